/* What the doubles of the CUDA runtime promise to the tests that stand on them. */
#include "cuda/fixture.h"
#include "runner.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1000 };

/* ---- order ---------------------------------------------------------------------------------- */

static void one_stream(void)
{
    cudaStream_t s = new_stream();
    float *x = new_floats(N), *y = new_floats(N);
    OK(k_fill(x, 2, N, s));
    OK(k_fill(y, 3, N, s));
    for (int i = 0; i < 10; i++)
        OK(k_add(y, x, N, s));
    OK(cudaMemcpyAsync(x, y, N * sizeof *x, cudaMemcpyDeviceToDevice, s));
    OK(cudaStreamSynchronize(s));
    assert_true(all_of(x, N) == 23);
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaStreamDestroy(s));
}

static void a_stream_keeps_its_order(void **state)
{
    (void)state;
    in_every_mode(1, one_stream);
}

static void two_streams(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t filled = new_event(), added = new_event();
    float *x = new_floats(N), *y = new_floats(N);
    OK(k_fill(y, 0, N, a));
    for (int i = 1; i <= 10; i++) {
        OK(k_fill(x, (float)i, N, a));
        OK(cudaEventRecord(filled, a));
        OK(cudaStreamWaitEvent(b, filled, 0));
        OK(k_add(y, x, N, b));
        OK(cudaEventRecord(added, b));
        OK(cudaStreamWaitEvent(a, added, 0));
    }
    OK(cudaEventSynchronize(added));
    assert_true(all_of(y, N) == 55);
    OK(cudaStreamSynchronize(a)); /* its last wait */
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaEventDestroy(filled));
    OK(cudaEventDestroy(added));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

static void events_order_streams(void **state)
{
    (void)state;
    in_every_mode(1, two_streams);
}

static void polled(void)
{
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event();
    float *x = new_floats(N);
    OK(cudaEventQuery(e)); /* never recorded: nothing to wait for */
    for (int i = 0; i < 5; i++)
        OK(k_fill(x, (float)i, N, s));
    OK(cudaEventRecord(e, s));
    cudaError_t answer;
    while ((answer = cudaEventQuery(e)) == cudaErrorNotReady)
        ;
    OK(answer);
    assert_true(all_of(x, N) == 4);
    OK(k_fill(x, 9, N, s));
    while ((answer = cudaStreamQuery(s)) == cudaErrorNotReady)
        ;
    OK(answer);
    assert_true(all_of(x, N) == 9);
    OK(cudaFree(x));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

static void asking_again_and_again_gets_there(void **state)
{
    (void)state;
    in_every_mode(1, polled);
}

static void lazy_runs_nothing_before_somebody_waits(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 1});
    cudaStream_t a = new_stream(), b = new_stream();
    float *x = new_floats(N), *y = new_floats(N);
    OK(k_fill(x, 1, N, a));
    OK(k_fill(y, 1, N, b));
    assert_true(isnan(all_of(x, N))); /* fresh memory is poisoned */
    OK(cudaStreamSynchronize(a));
    assert_true(all_of(x, N) == 1);
    assert_true(isnan(all_of(y, N))); /* nobody waited for that */
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    end_clean();
}

/* Without an event the two streams may run in either order. */
static float race(uint32_t seed)
{
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 1, .seed = seed});
    cudaStream_t a = new_stream(), b = new_stream();
    float *x = new_floats(N);
    OK(k_fill(x, 1, N, a));
    OK(k_fill(x, 2, N, b));
    OK(cudaStreamSynchronize(a));
    OK(cudaStreamSynchronize(b));
    float result = all_of(x, N);
    OK(cudaFree(x));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    end_clean();
    return result;
}

static void lazy_seeds_show_a_missing_wait_the_same_way_each_time(void **state)
{
    (void)state;
    int ones = 0, twos = 0;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        float first = race(seed);
        assert_true(first == race(seed));
        ones += first == 1;
        twos += first == 2;
    }
    assert_true(ones > 0 && twos > 0 && ones + twos == 20);
}

static void note_value(void *user)
{
    float *const *pair = user;
    pair[1][0] = pair[0][0]; /* from the first to the second, on the stream */
}

static void host_functions(void)
{
    cudaStream_t s = new_stream();
    void *pinned;
    OK(cudaHostAlloc(&pinned, N * sizeof(float), 0));
    float seen = 0, *pair[2] = {pinned, &seen};
    float *x = new_floats(N);
    OK(k_fill(x, 5, N, s));
    OK(cudaMemcpyAsync(pinned, x, N * sizeof *x, cudaMemcpyDeviceToHost, s));
    OK(cudaLaunchHostFunc(s, note_value, pair));
    OK(cudaMemsetAsync(pinned, 0, N * sizeof *x, s));
    OK(cudaStreamSynchronize(s));
    assert_true(seen == 5);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
}

static void host_functions_run_in_their_place(void **state)
{
    (void)state;
    in_every_mode(1, host_functions);
}

static void call_cuda(void *user)
{
    int device;
    (void)user;
    cudaGetDevice(&device);
}

static void host_functions_must_not_call_cuda(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_EAGER, .devices = 1});
    cudaStream_t s = new_stream();
    OK(cudaLaunchHostFunc(s, call_cuda, NULL));
    expect_complaint("cudaGetDevice was called from a stream's own work");
    OK(cudaStreamDestroy(s));
    end_clean();
}

/* ---- memory --------------------------------------------------------------------------------- */

static void a_kernel_must_not_touch_another_device_s_memory(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2});
    OK(cudaSetDevice(1));
    float *far = new_floats(N);
    OK(cudaSetDevice(0));
    cudaStream_t s = new_stream();
    OK(cudaDeviceEnablePeerAccess(1, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    OK(k_fill(far, 1, N, s)); /* a peer's, with access */
    OK(cudaStreamSynchronize(s));
    OK(cudaSetDevice(1));
    float *own = new_floats(N);
    cudaStream_t t = new_stream();
    OK(k_add(own, far, N, t));
    OK(cudaSetDevice(0));
    float *near = new_floats(N);
    OK(cudaSetDevice(1));
    OK(k_add(own, near, N, t)); /* access is not mutual */
    assert_int_equal(cudaStreamSynchronize(t), cudaErrorIllegalAddress);
    expect_complaint("of a device it has no access to");
    assert_int_equal(cudaFree(own), cudaErrorIllegalAddress); /* lost, but freed */
    cudaFree(far);
    cudaStreamDestroy(t);
    OK(cudaSetDevice(0));
    OK(cudaFree(near));
    OK(cudaStreamDestroy(s));
    end_clean();
}

static void a_kernel_must_not_touch_pageable_memory_or_leave_its_allocation(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 1});
        cudaStream_t s = new_stream();
        float pageable[N], *x = new_floats(N);
        OK(way ? k_fill(x + 1, 0, N, s) : k_fill(pageable, 0, N, s));
        assert_int_equal(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
        expect_complaint(way ? "that leave their allocation" : "that are no CUDA memory");
        cudaFree(x);
        cudaStreamDestroy(s);
        end_clean();
    }
}

static void copies_are_checked(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_EAGER, .devices = 1});
    cudaStream_t s = new_stream();
    float pageable[N] = {0}, *x = new_floats(N), *y = new_floats(N);
    assert_int_equal(cudaMemcpyAsync(x, pageable, sizeof pageable, cudaMemcpyHostToDevice, s),
                     cudaErrorInvalidValue);
    expect_complaint("pageable memory");
    OK(cudaMemcpy(x, pageable, sizeof pageable, cudaMemcpyHostToDevice));
    assert_int_equal(cudaMemcpyAsync(x + 1, y, N * sizeof *x, cudaMemcpyDeviceToDevice, s),
                     cudaErrorInvalidValue);
    expect_complaint("leaves its allocation");
    assert_int_equal(cudaMemcpyAsync(x, y, N * sizeof *x, cudaMemcpyHostToDevice, s),
                     cudaErrorInvalidMemcpyDirection);
    expect_complaint("another direction");
    assert_int_equal(cudaMemsetAsync(pageable, 0, sizeof pageable, s), cudaErrorInvalidValue);
    expect_complaint("a fill");
    OK(cudaFree(x));
    OK(cudaFree(y));
    assert_int_equal(cudaFree(pageable), cudaErrorInvalidValue);
    expect_complaint("no such allocation");
    OK(cudaStreamDestroy(s));
    end_clean();
}

static void memory_runs_out(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1, .memory_bytes = 1000});
    void *a, *b;
    OK(cudaMalloc(&a, 600));
    assert_int_equal(cudaMalloc(&b, 600), cudaErrorMemoryAllocation);
    OK(cudaFree(a));
    OK(cudaMalloc(&b, 600));
    OK(cudaFree(b));
    end_clean();
}

static void freeing_waits_for_the_device(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 1});
    cudaStream_t s = new_stream();
    float *x = new_floats(N), *y = new_floats(N);
    OK(k_fill(x, 1, N, s));
    OK(k_fill(y, 4, N, s));
    OK(cudaFree(x));
    assert_true(all_of(y, N) == 4);
    OK(cudaFree(y));
    OK(cudaStreamDestroy(s));
    end_clean();
}

/* ---- devices and handles -------------------------------------------------------------------- */

static void without_a_driver_there_is_no_device(void **state)
{
    (void)state;
    int count = 5;
    dbl_begin(&(dbl_options){.devices = 0});
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    assert_int_equal(count, 0);
    assert_int_equal(cudaSetDevice(0), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    end_clean();
}

static void work_is_enqueued_with_the_streams_device_current(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_EAGER, .devices = 2});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    OK(cudaSetDevice(1));
    assert_int_equal(k_fill(x, 1, N, s), cudaErrorInvalidResourceHandle);
    expect_complaint("while device 1 is current");
    cudaEvent_t e = new_event();
    assert_int_equal(cudaEventRecord(e, s), cudaErrorInvalidResourceHandle);
    expect_complaint("an event of device 1 on a stream of device 0");
    OK(cudaEventDestroy(e));
    assert_int_equal(cudaMemsetAsync(x, 0, 4, NULL), cudaErrorInvalidResourceHandle);
    expect_complaint("on a default stream");
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamDefault), cudaErrorInvalidValue);
    expect_complaint("pass cudaStreamNonBlocking");
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    end_clean();
}

static void destroyed_handles_are_noticed_and_leaks_are_listed(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event();
    OK(cudaEventDestroy(e));
    assert_int_equal(cudaEventRecord(e, s), cudaErrorInvalidResourceHandle);
    expect_complaint("cudaEventRecord of an event that does not exist any more");
    OK(cudaStreamDestroy(s));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    expect_complaint("cudaStreamSynchronize on a stream that was destroyed");
    new_floats(1);
    e = new_event();
    dbl_live live = dbl_count_live();
    assert_int_equal(live.allocations, 1);
    assert_int_equal(live.events, 1);
    assert_int_equal(live.streams, 0);
    assert_int_equal(live.device_bytes, sizeof(float));
    assert_string_equal(dbl_end(), "leak: 1 device allocation(s)\nleak: 1 event(s)\n");
    free(e); /* for the leak sanitizer; the allocation was freed at the end */
}

static void a_destroyed_stream_still_does_its_work(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    for (int i = 0; i < 100; i++)
        OK(k_fill(x, (float)i, N, s));
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
    assert_true(all_of(x, N) == 99);
    OK(cudaFree(x));
    end_clean();
}

/* ---- failures ------------------------------------------------------------------------------- */

static void the_nth_call_fails(void **state)
{
    (void)state;
    void *a = NULL, *b = NULL;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    dbl_fail("cudaMalloc", 2, 0);
    OK(cudaMalloc(&a, 4));
    assert_int_equal(cudaMalloc(&b, 4), cudaErrorMemoryAllocation);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&b, 4));
    dbl_fail("cudaFree", 1, cudaErrorUnknown);
    assert_int_equal(cudaFree(a), cudaErrorUnknown); /* but it is free */
    long before = dbl_calls(NULL);
    dbl_fail(NULL, 2, cudaErrorNotSupported);
    OK(cudaSetDevice(0));
    int device;
    assert_int_equal(cudaGetDevice(&device), cudaErrorNotSupported);
    assert_int_equal(dbl_calls(NULL), before + 2);
    assert_int_equal(dbl_calls("cudaMalloc"), 3);
    OK(cudaFree(b));
    end_clean();
}

static void a_lost_device_drops_its_work_and_says_so_for_ever(void)
{
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event();
    float *x = new_floats(N);
    OK(k_fill(x, 1, N, s));
    OK(cudaStreamSynchronize(s));
    dbl_stall_streams(0);
    OK(k_fill(x, 2, N, s));
    OK(cudaEventRecord(e, s));
    dbl_lose_at("cudaStreamSynchronize", 1, 0);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorECCUncorrectable);
    assert_int_equal(k_fill(x, 3, N, s), cudaErrorECCUncorrectable);
    assert_int_equal(cudaEventQuery(e), cudaErrorECCUncorrectable);
    assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable);
    assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable);
    OK(cudaSetDevice(1)); /* the other one lives */
    float *y = new_floats(N);
    OK(cudaFree(y));
    assert_int_equal(cudaSetDevice(0), cudaErrorECCUncorrectable);
    assert_int_equal(cudaFree(x), cudaErrorECCUncorrectable);
    assert_int_equal(cudaEventDestroy(e), cudaErrorECCUncorrectable);
    assert_int_equal(cudaStreamDestroy(s), cudaErrorECCUncorrectable);
}

static void a_lost_device(void **state)
{
    (void)state;
    in_every_mode(2, a_lost_device_drops_its_work_and_says_so_for_ever);
}

static void *go_on_soon(void *arg)
{
    struct timespec nap = {0, 20000000};
    (void)arg;
    nanosleep(&nap, NULL);
    dbl_go_on();
    return NULL;
}

static void calls_and_streams_stall_until_told_to_go_on(void **state)
{
    (void)state;
    pthread_t thread;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    OK(k_fill(x, 1, N, s));
    OK(cudaStreamSynchronize(s));
    dbl_stall_streams(0);
    OK(k_fill(x, 2, N, s));
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    dbl_stall("cudaDeviceSynchronize", 1, 60000000000u);
    OK(pthread_create(&thread, NULL, go_on_soon, NULL));
    OK(cudaDeviceSynchronize());
    assert_true(all_of(x, N) == 2);
    OK(pthread_join(thread, NULL));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    end_clean();
}

static void a_hang_is_ended_and_told(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1, .patience_ns = 50000000});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    dbl_stall_streams(0);
    OK(k_fill(x, 1, N, s));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorLaunchTimeout);
    expect_complaint("cudaStreamSynchronize: a hang");
    dbl_go_on();
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    end_clean();
}

static void a_skipped_call_does_nothing(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 1});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    OK(k_fill(x, 1, N, s));
    dbl_skip("cudaStreamSynchronize", 1);
    OK(cudaStreamSynchronize(s));
    assert_true(isnan(all_of(x, N)));
    OK(cudaStreamSynchronize(s));
    assert_true(all_of(x, N) == 1);
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    end_clean();
}

LS_TESTS(cuda_doubles_contract, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_keeps_its_order),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(asking_again_and_again_gets_there),
        cmocka_unit_test(lazy_runs_nothing_before_somebody_waits),
        cmocka_unit_test(lazy_seeds_show_a_missing_wait_the_same_way_each_time),
        cmocka_unit_test(host_functions_run_in_their_place),
        cmocka_unit_test(host_functions_must_not_call_cuda),
        cmocka_unit_test(a_kernel_must_not_touch_another_device_s_memory),
        cmocka_unit_test(a_kernel_must_not_touch_pageable_memory_or_leave_its_allocation),
        cmocka_unit_test(copies_are_checked),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(freeing_waits_for_the_device),
        cmocka_unit_test(without_a_driver_there_is_no_device),
        cmocka_unit_test(work_is_enqueued_with_the_streams_device_current),
        cmocka_unit_test(destroyed_handles_are_noticed_and_leaks_are_listed),
        cmocka_unit_test(a_destroyed_stream_still_does_its_work),
        cmocka_unit_test(the_nth_call_fails),
        cmocka_unit_test(a_lost_device),
        cmocka_unit_test(calls_and_streams_stall_until_told_to_go_on),
        cmocka_unit_test(a_hang_is_ended_and_told),
        cmocka_unit_test(a_skipped_call_does_nothing),
    };
    return cmocka_run_group_tests_name("doubles", tests, NULL, NULL);
}
