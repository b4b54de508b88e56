/* SPDX-License-Identifier: MIT */
/* Tests the misuse of CUDA that the simulated runtime detects while a stream is captured; see
 * test_doubles.c. */
#include "cuda/fixture.h"
#include "runner.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 500 };

static void begin(cudaStream_t s)
{
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
}

/* ---- laws ----------------------------------------------------------------------------------- */

static cudaStream_t s0, s1;
static cudaEvent_t e0;

static cudaError_t synchronise_it(void)
{
    return cudaStreamSynchronize(s0);
}

static cudaError_t synchronise_another(void)
{
    return cudaStreamSynchronize(s1);
}

static cudaError_t allocate(void)
{
    void *memory;
    return cudaMalloc(&memory, 16);
}

static cudaError_t allocate_pinned(void)
{
    void *memory;
    return cudaHostAlloc(&memory, 16, 0);
}

static cudaError_t query(void)
{
    return cudaEventQuery(e0);
}

static cudaError_t synchronise_device(void)
{
    return cudaDeviceSynchronize();
}

static void a_capturing_thread_must_not_wait_allocate_or_query(void **state)
{
    (void)state;
    cudaError_t (*const unsafe[])(void) = {
        synchronise_it, synchronise_another, allocate, allocate_pinned, query, synchronise_device};
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    s0 = new_stream();
    s1 = new_stream();
    e0 = new_event();
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++) {
        cudaGraph_t graph;
        begin(s0);
        assert_int_equal(unsafe[i](), cudaErrorStreamCaptureUnsupported);
        enum cudaStreamCaptureStatus status;
        OK(cudaStreamIsCapturing(s0, &status));
        assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
        assert_int_equal(cudaStreamEndCapture(s0, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        expect_complaint("during a capture");
        OK(cudaStreamSynchronize(s0)); /* the stream has no work any more */
    }
    OK(cudaEventDestroy(e0));
    OK(cudaStreamDestroy(s0));
    OK(cudaStreamDestroy(s1));
    end_clean();
}

static void *other_thread(void *arg)
{
    cudaError_t (*call)(void) = *(cudaError_t(**)(void))arg;
    return (void *)(uintptr_t)call();
}

static cudaError_t in_another_thread(cudaError_t (*call)(void))
{
    pthread_t thread;
    void *result;
    OK(pthread_create(&thread, NULL, other_thread, &call));
    OK(pthread_join(thread, &result));
    return (cudaError_t)(uintptr_t)result;
}

static void other_threads_are_free_but_for_the_device(void **state)
{
    (void)state;
    cudaGraph_t graph;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    s0 = new_stream();
    s1 = new_stream();
    begin(s0);
    OK(in_another_thread(synchronise_another));
    OK(cudaStreamEndCapture(s0, &graph));
    OK(cudaGraphDestroy(graph));

    begin(s0);
    assert_int_equal(in_another_thread(synchronise_device), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(s0, &graph), cudaErrorStreamCaptureInvalidated);
    expect_complaint("the device was synchronised");

    OK(cudaStreamBeginCapture(s0, cudaStreamCaptureModeGlobal));
    assert_int_equal(in_another_thread(synchronise_another), cudaErrorStreamCaptureUnsupported);
    expect_complaint("during a capture");
    OK(cudaStreamEndCapture(s0, &graph)); /* only the other thread's call failed */
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(s0));
    OK(cudaStreamDestroy(s1));
    end_clean();
}

static void forks_must_join_and_events_must_come_from_inside(void **state)
{
    (void)state;
    cudaGraph_t graph;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    s0 = new_stream();
    s1 = new_stream();
    cudaEvent_t fork = new_event(), outside = new_event();
    float *x = new_floats(N);
    OK(cudaEventRecord(outside, s1));
    begin(s0);
    OK(cudaEventRecord(fork, s0));
    OK(cudaStreamWaitEvent(s1, fork, 0));
    OK(k_fill(x, 1, N, s1));
    assert_int_equal(cudaStreamEndCapture(s0, &graph), cudaErrorStreamCaptureUnjoined);
    expect_complaint("had not joined");

    assert_int_equal(cudaStreamWaitEvent(s1, fork, 0), cudaErrorCapturedEvent);
    expect_complaint("a capture that has ended");

    begin(s0);
    assert_int_equal(cudaStreamWaitEvent(s0, outside, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(s0, &graph), cudaErrorStreamCaptureInvalidated);
    expect_complaint("from outside its capture");
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(outside));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s0));
    OK(cudaStreamDestroy(s1));
    end_clean();
}

static void a_capture_ends_even_when_its_end_fails(void **state)
{
    (void)state;
    cudaGraph_t graph;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    s0 = new_stream();
    begin(s0);
    dbl_fail("cudaStreamEndCapture", 1, 0);
    assert_int_equal(cudaStreamEndCapture(s0, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamSynchronize(s0));
    OK(cudaStreamDestroy(s0));
    end_clean();
}

LS_TESTS(cuda_doubles_contract_graph, "unit doubles no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capturing_thread_must_not_wait_allocate_or_query),
        cmocka_unit_test(other_threads_are_free_but_for_the_device),
        cmocka_unit_test(forks_must_join_and_events_must_come_from_inside),
        cmocka_unit_test(a_capture_ends_even_when_its_end_fails),
    };
    return cmocka_run_group_tests_name("doubles_graph", tests, NULL, NULL);
}
