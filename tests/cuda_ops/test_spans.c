/* SPDX-License-Identifier: MIT */
/* Tests the GPU's activity in a timeline. CUPTI is NVIDIA's library that records kernels and
 * copies; a *span* is one kernel or copy with its begin and end. The records of a simulated CUPTI
 * must become a limited number of spans of the right device. Without CUPTI there is no timeline,
 * and nothing else changes. */
#include "cuda/cuda_device.h"
#include "cuda_ops/cuda_backend.h"
#include "doubles/cupti.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { FLOATS = 1024, MOST = 4096 };

static ls_device_span got[MOST];

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(int rc, const ls_error *err)
{
    if (rc != LS_OK)
        fail_msg("%s: %s", ls_status_name(rc), err->text);
}

typedef struct spans_fixture {
    ls_device *device;
    float *a, *b;
} spans_fixture;

static spans_fixture open_fixture(int index)
{
    spans_fixture s = {NULL, NULL, NULL};
    void *memory = NULL;
    ls_device_request request = {.size = sizeof request, .index = index};
    ls_error err = {0};
    must(test_cuda_backend()->open(&s.device, &request, &err), &err);
    must(s.device->ops->bind(s.device, &err), &err);
    must(s.device->ops->alloc(&memory, s.device, 2 * FLOATS * sizeof(float), &err), &err);
    s.a = memory;
    s.b = s.a + FLOATS;
    return s;
}

static void close_fixture(spans_fixture *s)
{
    s->device->ops->free(s->device, s->a);
    s->device->ops->close(s->device);
}

static void begin(spans_fixture *s)
{
    ls_error err = {0};
    must(s->device->ops->spans_begin(s->device, &err), &err);
}

static void add(spans_fixture *s, ls_stream *stream)
{
    ls_error err = {0};
    must(s->device->ops->add(s->device, stream, s->b, s->a, s->b, FLOATS, &err), &err);
}

static void finish(spans_fixture *s)
{
    ls_error err = {0};
    must(s->device->ops->sync(s->device, NULL, &err), &err);
}

static int take(spans_fixture *s, uint64_t *lost)
{
    return s->device->ops->spans_take(s->device, got, MOST, lost);
}

static int count_of(int spans, const char *name)
{
    int count = 0;
    for (int i = 0; i < spans; i++)
        count += strcmp(got[i].name, name) == 0;
    return count;
}

static int reset(void **state)
{
    (void)state;
    dbl_cupti_fail(NULL, 0);
    dbl_cupti_buffer_records(0);
    dbl_cupti_name(NULL);
    return 0;
}

/* This test is the first one, because a loaded library stays loaded. */
static void without_cupti_the_reason_is_told(void **state)
{
    uint64_t lost;
    ls_error err = {0};
    spans_fixture s = open_fixture(0);
    (void)state;
    dbl_cupti_fail("load", 1);
    assert_int_equal(s.device->ops->spans_begin(s.device, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "CUPTI does not load"));
    add(&s, NULL);
    finish(&s);
    assert_int_equal(take(&s, &lost), 0);
    s.device->ops->spans_end(s.device);
    close_fixture(&s);
}

static void kernels_and_copies_arrive_on_the_hosts_clock(void **state)
{
    uint64_t lost = 9;
    ls_error err = {0};
    spans_fixture s = open_fixture(0);
    (void)state;
    add(&s, NULL); /* before the timeline begins */
    finish(&s);
    const uint64_t from = now();
    begin(&s);
    add(&s, NULL);
    must(s.device->ops->copy(s.device, NULL, s.a, s.b, FLOATS * sizeof(float), &err), &err);
    add(&s, NULL);
    finish(&s);
    const uint64_t to = now();
    s.device->ops->spans_end(s.device);
    add(&s, NULL); /* after the timeline has ended */
    finish(&s);
    int spans = take(&s, &lost);
    assert_int_equal(spans, 3);
    assert_int_equal(lost, 0);
    assert_int_equal(count_of(spans, "ls_k_sum"), 2);
    assert_int_equal(count_of(spans, "copy within the device"), 1);
    for (int i = 0; i < spans; i++) {
        assert_true(got[i].begin_ns >= from && got[i].end_ns <= to);
        assert_true(got[i].begin_ns <= got[i].end_ns);
        assert_true(i == 0 || got[i].begin_ns >= got[i - 1].end_ns);
        assert_int_equal(got[i].stream, got[0].stream);
    }
    assert_int_equal(take(&s, &lost), 0);
    close_fixture(&s);
}

/* Two devices use GPU 0, and each gets the spans of its own streams, also of a stream that is
 * created after the timeline began. A second spans_begin of the same device is refused. */
static void devices_on_one_gpu_keep_theirs_apart(void **state)
{
    uint64_t lost;
    ls_error err = {0};
    ls_stream *late = NULL;
    spans_fixture one = open_fixture(0), two = open_fixture(0);
    (void)state;
    begin(&one);
    begin(&two);
    assert_int_equal(one.device->ops->spans_begin(one.device, &err), LS_EINVAL);
    must(two.device->ops->stream_create(&late, two.device, 0, &err), &err);
    for (int i = 0; i < 3; i++)
        add(&one, NULL);
    for (int i = 0; i < 2; i++)
        add(&two, NULL);
    finish(&two);
    for (int i = 0; i < 5; i++)
        add(&two, late);
    finish(&one);
    finish(&two);
    one.device->ops->spans_end(one.device);
    two.device->ops->spans_end(two.device);
    assert_int_equal(count_of(take(&one, &lost), "ls_k_sum"), 3);
    const int spans = take(&two, &lost);
    assert_int_equal(count_of(spans, "ls_k_sum"), 7);
    assert_int_not_equal(got[0].stream, got[spans - 1].stream);
    close_fixture(&one);
    close_fixture(&two);
}

static void a_recordings_kernels_arrive_one_by_one(void **state)
{
    uint64_t lost;
    ls_error err = {0};
    ls_recording *recording = NULL;
    const ls_step_args args = {.lr = 1};
    spans_fixture s = open_fixture(1);
    (void)state;
    begin(&s);
    must(s.device->ops->record_begin(s.device, NULL, &err), &err);
    for (int i = 0; i < 4; i++)
        add(&s, NULL);
    must(s.device->ops->record_end(&recording, s.device, NULL, &err), &err);
    for (int i = 0; i < 3; i++)
        must(s.device->ops->launch(s.device, NULL, recording, &args, &err), &err);
    finish(&s);
    s.device->ops->spans_end(s.device);
    assert_int_equal(count_of(take(&s, &lost), "ls_k_sum"), 12);
    s.device->ops->recording_destroy(s.device, recording);
    close_fixture(&s);
}

static void each_failure_is_told_and_the_device_goes_on(void **state)
{
    static const struct {
        const char *function;
        int nth;
        const char *told;
    } cases[] = {
        {"cuptiActivityRegisterTimestampCallback", 1, "cuptiActivityRegisterTimestampCallback:"},
        {"cuptiActivityRegisterCallbacks", 1, "cuptiActivityRegisterCallbacks:"},
        {"cuptiActivityEnable", 1, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"},
        {"cuptiActivityEnable", 3, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"},
        {"cuptiGetStreamIdEx", 1, "cuptiGetStreamIdEx:"},
        {"cuptiGetStreamIdEx", 2, "cuptiGetStreamIdEx:"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t lost;
        ls_error err = {0};
        spans_fixture s = open_fixture(0);
        dbl_cupti_fail(cases[i].function, cases[i].nth);
        assert_int_equal(s.device->ops->spans_begin(s.device, &err), LS_EUNSUPPORTED);
        if (!strstr(err.text, cases[i].told))
            fail_msg("'%s' says nothing of '%s'", err.text, cases[i].told);
        add(&s, NULL);
        finish(&s);
        assert_int_equal(take(&s, &lost), 0);
        s.device->ops->spans_end(s.device);
        dbl_cupti_fail(NULL, 0);
        begin(&s); /* the failed beginning was undone, so the timeline can begin again */
        add(&s, NULL);
        finish(&s);
        s.device->ops->spans_end(s.device);
        assert_int_equal(take(&s, &lost), 1);
        close_fixture(&s);
    }
}

/* If a call of CUPTI fails while a timeline ends, the records that CUPTI still has are lost. The
 * next timeline can begin. */
static void an_end_that_fails_does_no_harm(void **state)
{
    static const char *const functions[] = {"cuptiActivityDisable", "cuptiActivityFlushAll"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        uint64_t lost;
        spans_fixture s = open_fixture(0);
        begin(&s);
        add(&s, NULL);
        finish(&s);
        dbl_cupti_fail(functions[i], 1);
        s.device->ops->spans_end(s.device);
        dbl_cupti_fail(NULL, 0);
        begin(&s);
        add(&s, NULL);
        finish(&s);
        s.device->ops->spans_end(s.device);
        assert_true(count_of(take(&s, &lost), "ls_k_sum") >= 1);
        close_fixture(&s);
    }
}

static void what_finds_no_room_is_counted(void **state)
{
    enum { EXTRA = 100 };
    uint64_t lost = 0, all = 0;
    int count;
    spans_fixture s = open_fixture(0);
    (void)state;
    dbl_cupti_buffer_records(7); /* small buffers, which are reused often */
    begin(&s);
    for (int i = 0; i < LS_CUDA_SPANS + EXTRA; i++) {
        add(&s, NULL);
        if (i % 512 == 0)
            finish(&s);
    }
    finish(&s);
    s.device->ops->spans_end(s.device);
    for (uint64_t some = 0; (count = take(&s, &some)) > 0; lost += some)
        all += (uint64_t)count;
    assert_int_equal(all, LS_CUDA_SPANS);
    assert_int_equal(lost, EXTRA);
    close_fixture(&s);
}

static void names_are_readable(void **state)
{
    static const char *const names[][2] = {
        {"ls_k_sum", "ls_k_sum"},
        {"_Z8add_pairPfS_", "add_pair"},
        {"_ZN7cutlass6KernelINS_4gemmEEEvNT_6ParamsE", "cutlass::Kernel"},
        {"_ZN12_GLOBAL__N_13gopEv", "gop"},
        {"_ZN99short", "_ZN99short"},
        {"_Z", "_Z"},
        {"_ZN1", "_ZN1"},
        {"", ""},
    };
    char out[16];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ls_cuda_readable_name(out, sizeof out, names[i][0]);
        assert_string_equal(out, names[i][1]);
    }
    ls_cuda_readable_name(out, sizeof out, "_ZN10abcdefghij10abcdefghij3abcE");
    assert_string_equal(out, "abcdefghij::abc");
}

LS_TESTS(cuda_spans, "integration doubles no-tsan")
{
    test_cuda_begin(DBL_LAZY);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_cupti_the_reason_is_told, reset),
        cmocka_unit_test_setup(kernels_and_copies_arrive_on_the_hosts_clock, reset),
        cmocka_unit_test_setup(devices_on_one_gpu_keep_theirs_apart, reset),
        cmocka_unit_test_setup(a_recordings_kernels_arrive_one_by_one, reset),
        cmocka_unit_test_setup(each_failure_is_told_and_the_device_goes_on, reset),
        cmocka_unit_test_setup(an_end_that_fails_does_no_harm, reset),
        cmocka_unit_test_setup(what_finds_no_room_is_counted, reset),
        cmocka_unit_test(names_are_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
