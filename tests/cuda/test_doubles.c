/* SPDX-License-Identifier: MIT */
/* Tests the simulated CUDA runtime (tests/doubles) itself. Every test that uses the simulated
 * runtime shows that it behaves as CUDA does. Only this test shows that it detects misuse of
 * CUDA. */
#include "cuda/fixture.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1000 };

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
    OK(k_fill(far, 1, N, s)); /* memory of a peer device to which access is enabled */
    OK(cudaStreamSynchronize(s));
    OK(cudaSetDevice(1));
    float *own = new_floats(N);
    cudaStream_t t = new_stream();
    OK(k_add(own, far, N, t));
    OK(cudaSetDevice(0));
    float *near = new_floats(N);
    OK(cudaSetDevice(1));
    OK(k_add(own, near, N, t)); /* the other direction has no access */
    assert_int_equal(cudaStreamSynchronize(t), cudaErrorIllegalAddress);
    expect_complaint("of a device it has no access to");
    /* the device is lost, but the memory is freed */
    assert_int_equal(cudaFree(own), cudaErrorIllegalAddress);
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

/* ---- devices and handles -------------------------------------------------------------------- */

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
    free(e); /* frees the handle for the leak sanitizer; the event itself was freed at the end */
}

/* ---- failures ------------------------------------------------------------------------------- */

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

LS_TESTS(cuda_doubles_contract, "unit doubles no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_must_not_touch_another_device_s_memory),
        cmocka_unit_test(a_kernel_must_not_touch_pageable_memory_or_leave_its_allocation),
        cmocka_unit_test(copies_are_checked),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(work_is_enqueued_with_the_streams_device_current),
        cmocka_unit_test(destroyed_handles_are_noticed_and_leaks_are_listed),
        cmocka_unit_test(a_hang_is_ended_and_told),
    };
    return cmocka_run_group_tests_name("doubles", tests, NULL, NULL);
}
