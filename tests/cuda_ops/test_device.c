/* SPDX-License-Identifier: MIT */
/* Tests the CUDA device over the simulated runtime (tests/doubles): memory, streams, invalid data,
 * missing libraries and devices. Also makes each call of the runtime fail in turn. */
#include "cuda/cuda_device.h"
#include "doubles/control.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

ls_plugin_entry_fn ls_plugin_backend;

static const ls_backend *backend(void)
{
    return ls_plugin_backend();
}

static void begin(dbl_mode mode, int devices)
{
    dbl_begin(&(dbl_options){.mode = mode, .devices = devices});
}

static void end(void)
{
    assert_string_equal(dbl_end(), "");
}

static ls_device *open_device(int index)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .index = index};
    ls_error err = {0};
    if (backend()->open(&device, &request, &err) != LS_OK ||
        device->ops->bind(device, &err) != LS_OK)
        fail_msg("%s", err.text);
    return device;
}

/* ---- description ---------------------------------------------------------------------------- */

static void devices_are_described(void **state)
{
    ls_backend_info info;
    ls_device_info about;
    (void)state;
    begin(DBL_EAGER, 2);
    backend()->probe(&info);
    assert_int_equal(info.devices, 2);
    ls_device *device = open_device(1);
    device->ops->describe(device, &about);
    assert_string_equal(about.name, "cuda(1)");
    assert_int_equal(about.flags, LS_DEVICE_DIGESTS);
    assert_true(about.memory_bytes > 0);
    assert_int_equal(strncmp(about.isa, "sm_", 3), 0);
    device->ops->close(device);
    end();
}

static void no_driver_is_absent_and_says_so(void **state)
{
    ls_backend_info info;
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request};
    ls_error err = {0};
    (void)state;
    begin(DBL_EAGER, 0);
    backend()->probe(&info);
    assert_int_equal(info.devices, 0);
    assert_false(info.broken);
    assert_non_null(strstr(info.reason, "there is no NVIDIA driver"));
    assert_int_equal(backend()->open(&device, &request, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "there is no NVIDIA driver"));
    assert_null(device);
    end();
}

static void a_driver_that_fails_is_broken(void **state)
{
    ls_backend_info info;
    (void)state;
    begin(DBL_EAGER, 1);
    dbl_fail("cudaGetDeviceCount", 1, cudaErrorSystemNotReady);
    backend()->probe(&info);
    assert_int_equal(info.devices, 0);
    assert_true(info.broken);
    dbl_fail("cudaGetDeviceCount", 1, cudaErrorNoDevice);
    backend()->probe(&info);
    assert_false(info.broken);
    end();
}

/* Errors whose cause is the environment come with what to do. */
static void errors_of_the_environment_say_what_to_do(void **state)
{
    static const struct {
        int error;
        const char *says;
    } cases[] = {{cudaErrorSystemNotReady, "fabric manager"},
                 {cudaErrorInitializationError, "forked"},
                 {cudaErrorDevicesUnavailable, "EXCLUSIVE_PROCESS"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_backend_info info;
        ls_device *device = NULL;
        ls_device_request request = {.size = sizeof request};
        ls_error err = {0};
        begin(DBL_EAGER, 1);
        dbl_fail("cudaGetDeviceCount", 1, cases[i].error);
        backend()->probe(&info);
        assert_true(info.broken);
        assert_non_null(strstr(info.reason, cases[i].says));
        assert_int_equal(backend()->open(&device, &request, &err), LS_OK);
        dbl_fail("cudaSetDevice", 1, cases[i].error);
        assert_int_equal(device->ops->bind(device, &err), LS_EDEVICE);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_null(strstr(err.text, "the device is lost"));
        device->ops->close(device);
        end();
    }
}

static void a_device_that_is_not_there_is_refused(void **state)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .index = 2};
    ls_error err = {0};
    (void)state;
    begin(DBL_EAGER, 2);
    assert_int_equal(backend()->open(&device, &request, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "cuda:2"));
    end();
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Uploads more data than the pinned slots hold (cuda_staging.c), from memory that the test
 * overwrites as soon as the call returns. */
static void uploads_leave_the_callers_memory_free(void **state)
{
    enum { PIECES = 50, PIECE = 100003 };
    static unsigned char piece[PIECE], back[PIECES * (size_t)PIECE];
    ls_error err = {0};
    void *memory = NULL;
    (void)state;
    begin(DBL_LAZY, 1);
    ls_device *d = open_device(0);
    assert_int_equal(d->ops->alloc(&memory, d, sizeof back, &err), LS_OK);
    for (int i = 0; i < PIECES; i++) {
        memset(piece, i + 1, sizeof piece);
        assert_int_equal(d->ops->upload(d, NULL, (unsigned char *)memory + (size_t)i * PIECE, piece,
                                        sizeof piece, &err),
                         LS_OK);
    }
    memset(piece, 0, sizeof piece);
    assert_int_equal(d->ops->download(d, NULL, back, memory, sizeof back, &err), LS_OK);
    assert_int_equal(d->ops->sync(d, NULL, &err), LS_OK);
    for (int i = 0; i < PIECES; i++)
        for (size_t k = 0; k < PIECE; k++)
            if (back[(size_t)i * PIECE + k] != i + 1)
                fail_msg("byte %zu of piece %d is %d", k, i, back[(size_t)i * PIECE + k]);
    d->ops->free(d, memory);
    d->ops->close(d);
    end();
}

static void memory_is_zeroed_for_every_stream(void **state)
{
    float back[64];
    ls_stream *other = NULL;
    ls_error err = {0};
    void *memory = NULL;
    (void)state;
    begin(DBL_LAZY, 1);
    ls_device *d = open_device(0);
    assert_int_equal(d->ops->stream_create(&other, d, 1, &err), LS_OK);
    assert_int_equal(d->ops->alloc(&memory, d, sizeof back, &err), LS_OK);
    assert_int_equal(d->ops->download(d, other, back, memory, sizeof back, &err), LS_OK);
    assert_int_equal(d->ops->sync(d, other, &err), LS_OK);
    for (int i = 0; i < 64; i++)
        assert_true(back[i] == 0);
    d->ops->stream_destroy(d, other);
    d->ops->free(d, memory);
    d->ops->close(d);
    end();
}

/* A stream computes a sum whose operands another stream uploads. It must wait for the upload. */
static void a_stream_waits_for_anothers_event(void **state)
{
    const float one[16] = {1, 2, 3};
    float back[16];
    ls_stream *other = NULL;
    ls_event *event = NULL;
    ls_error err = {0};
    void *a = NULL, *b = NULL;
    (void)state;
    begin(DBL_LAZY, 1);
    ls_device *d = open_device(0);
    assert_int_equal(d->ops->stream_create(&other, d, 1, &err), LS_OK);
    assert_int_equal(d->ops->alloc(&a, d, sizeof one, &err), LS_OK);
    assert_int_equal(d->ops->alloc(&b, d, sizeof one, &err), LS_OK);
    for (int round = 0; round < 2; round++) { /* the event is used again */
        assert_int_equal(d->ops->upload(d, NULL, a, one, sizeof one, &err), LS_OK);
        assert_int_equal(d->ops->record(&event, d, NULL, &err), LS_OK);
        assert_int_equal(d->ops->wait(d, other, event, &err), LS_OK);
        assert_int_equal(d->ops->add(d, other, b, a, a, 16, &err), LS_OK);
        assert_int_equal(d->ops->download(d, other, back, b, sizeof back, &err), LS_OK);
        assert_int_equal(d->ops->sync(d, other, &err), LS_OK);
        assert_true(back[0] == 2 && back[1] == 4 && back[2] == 6 && back[3] == 0);
    }
    d->ops->free(d, a);
    d->ops->free(d, b);
    d->ops->close(d); /* with a stream and an event that were not destroyed */
    end();
}

static void a_stream_that_is_destroyed_brings_its_downloads(void **state)
{
    const float three[16] = {1, 2, 3};
    float back[16] = {0};
    ls_stream *other = NULL;
    ls_error err = {0};
    void *memory = NULL;
    (void)state;
    begin(DBL_LAZY, 1);
    ls_device *d = open_device(0);
    assert_int_equal(d->ops->stream_create(&other, d, 0, &err), LS_OK);
    assert_int_equal(d->ops->alloc(&memory, d, sizeof three, &err), LS_OK);
    assert_int_equal(d->ops->upload(d, other, memory, three, sizeof three, &err), LS_OK);
    assert_int_equal(d->ops->download(d, other, back, memory, sizeof back, &err), LS_OK);
    d->ops->stream_destroy(d, other);
    assert_memory_equal(back, three, sizeof three);
    d->ops->free(d, memory);
    d->ops->close(d);
    end();
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Calls each function of a device once. Returns the first failure. Frees everything. */
static int live(void)
{
    float numbers[32] = {1};
    ls_device *d = NULL;
    ls_stream *other = NULL;
    ls_event *event = NULL;
    void *memory = NULL;
    ls_error err = {0};
    ls_device_request request = {.size = sizeof request};
    int rc = backend()->open(&d, &request, &err);
    if (rc == LS_OK)
        rc = d->ops->bind(d, &err);
    if (rc == LS_OK)
        rc = d->ops->stream_create(&other, d, 0, &err);
    if (rc == LS_OK)
        rc = d->ops->alloc(&memory, d, sizeof numbers, &err);
    if (rc == LS_OK)
        rc = d->ops->upload(d, NULL, memory, numbers, sizeof numbers, &err);
    if (rc == LS_OK)
        rc = d->ops->copy(d, NULL, (char *)memory + 64, memory, 64, &err);
    if (rc == LS_OK)
        rc = d->ops->record(&event, d, NULL, &err);
    if (rc == LS_OK)
        rc = d->ops->wait(d, other, event, &err);
    if (rc == LS_OK)
        rc = d->ops->add(d, other, memory, memory, memory, 16, &err);
    if (rc == LS_OK)
        rc = d->ops->download(d, other, numbers, memory, sizeof numbers, &err);
    if (rc == LS_OK)
        rc = d->ops->sync(d, NULL, &err);
    if (d) {
        d->ops->free(d, memory);
        d->ops->close(d);
    }
    assert_true(rc == LS_OK || (err.text[0] && err.status == rc));
    return rc;
}

static void every_failing_call_ends_in_an_error(void **state)
{
    int failed = 0;
    (void)state;
    begin(DBL_THREADS, 1);
    assert_int_equal(live(), LS_OK);
    long calls = dbl_calls(NULL);
    end();
    for (long nth = 1; nth <= calls; nth++) {
        begin(nth % 2 ? DBL_THREADS : DBL_LAZY, 1);
        dbl_fail(NULL, (int)nth, 0);
        failed += live() != LS_OK;
        end(); /* no complaint, no leak */
    }
    /* All failures are reported, except those of calls that are made while a device is closed. */
    assert_true(failed > calls / 2);
}

static void a_lost_device_ends_in_an_error(void **state)
{
    static const char *const functions[] = {"cudaMemcpyAsync", "cudaStreamSynchronize",
                                            "cudaEventRecord", "launch", "cudaMalloc"};
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        begin(DBL_THREADS, 1);
        dbl_lose_at(functions[i], 1, 0);
        assert_int_equal(live(), LS_EDEVICE);
        end();
    }
    assert_true(cuda_is_lost(cudaErrorContained)); /* caused by another process on the same GPU */
    assert_true(cuda_is_lost(cudaErrorIllegalAddress));
    assert_false(cuda_is_lost(cudaErrorMemoryAllocation));
}

/* After a device is lost, the first wait or query reports this, and closing the device does not
 * wait. */
static void a_lost_device_is_not_waited_for(void **state)
{
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ls_event *event = NULL;
        ls_error err = {0};
        int reached = 1;
        begin(DBL_THREADS, 1);
        ls_device *d = open_device(0);
        assert_int_equal(d->ops->record(&event, d, NULL, &err), LS_OK);
        dbl_lose_device(0, 0);
        assert_int_equal(asks ? d->ops->reached(&reached, d, event, &err)
                              : d->ops->sync(d, NULL, &err),
                         LS_EDEVICE);
        assert_non_null(strstr(err.text, "the device is lost"));
        assert_int_equal(reached, !asks);
        long waits = dbl_calls("cudaStreamSynchronize");
        d->ops->close(d);
        assert_int_equal(dbl_calls("cudaStreamSynchronize"), waits);
        end();
    }
}

/* Each input is small enough, but the output has more values than kernels can count (2³¹ − 1). */
static void a_concat_of_too_many_values_is_refused(void **state)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_CONCAT};
    ls_error err = {0};
    ls_op *op = NULL;
    (void)state;
    begin(DBL_EAGER, 1);
    ls_device *d = open_device(0);
    desc.x = desc.x2 = (ls_tensor){LS_F32, 1 << 20, 1024, 1, 1, NULL, (size_t)4 << 30};
    assert_int_equal(d->ops->op_create(&op, d, &desc, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "1048576 rows of (1024 + 1024)×1×1 are too large"));
    desc.x2.c = 1023;
    assert_int_equal(d->ops->op_create(&op, d, &desc, &err), LS_OK);
    op->impl->destroy(op);
    d->ops->close(d);
    end();
}

LS_TESTS(cuda_device, "unit doubles no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(no_driver_is_absent_and_says_so),
        cmocka_unit_test(a_driver_that_fails_is_broken),
        cmocka_unit_test(errors_of_the_environment_say_what_to_do),
        cmocka_unit_test(a_device_that_is_not_there_is_refused),
        cmocka_unit_test(uploads_leave_the_callers_memory_free),
        cmocka_unit_test(memory_is_zeroed_for_every_stream),
        cmocka_unit_test(a_stream_waits_for_anothers_event),
        cmocka_unit_test(a_stream_that_is_destroyed_brings_its_downloads),
        cmocka_unit_test(a_concat_of_too_many_values_is_refused),
        cmocka_unit_test(every_failing_call_ends_in_an_error),
        cmocka_unit_test(a_lost_device_ends_in_an_error),
        cmocka_unit_test(a_lost_device_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
