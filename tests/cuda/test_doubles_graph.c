/* What the doubles promise of stream capture and of graphs. */
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

/* y ← y + x on a second stream while x2 ← 10 on the first; then y ← y + x2. */
static cudaGraph_t capture_fork(float *y, float *x, float *x2, cudaStream_t a, cudaStream_t b,
                                cudaEvent_t fork, cudaEvent_t join)
{
    cudaGraph_t graph;
    begin(a);
    OK(k_fill(x, 1, N, a));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(k_add(y, x, N, b));
    OK(k_fill(x2, 10, N, a));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(k_add(y, x2, N, a));
    OK(cudaStreamEndCapture(a, &graph));
    return graph;
}

static void replays(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event(), join = new_event();
    float *y = new_floats(N), *x = new_floats(N), *x2 = new_floats(N);
    OK(k_fill(y, 0, N, a));
    cudaGraph_t graph = capture_fork(y, x, x2, a, b, fork, join);
    cudaGraphExec_t exec;
    size_t nodes;
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 4);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, a));
    OK(cudaGraphExecDestroy(exec)); /* what was launched still runs */
    OK(cudaStreamSynchronize(a));
    assert_true(all_of(y, N) == 33);
    OK(cudaFree(y));
    OK(cudaFree(x));
    OK(cudaFree(x2));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

static void a_graph_replays_what_was_captured(void **state)
{
    (void)state;
    in_every_mode(1, replays);
}

static void an_update_changes_arguments_but_not_the_shape(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    cudaGraph_t one, two, other;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    begin(s);
    OK(k_fill(x, 1, N, s));
    OK(cudaStreamEndCapture(s, &one));
    begin(s);
    OK(k_fill(x, 2, N, s));
    OK(cudaStreamEndCapture(s, &two));
    begin(s);
    OK(k_fill(x, 3, N, s));
    OK(k_fill(x, 3, N, s));
    OK(cudaStreamEndCapture(s, &other));
    OK(cudaGraphInstantiate(&exec, one, 0));
    assert_int_equal(cudaGraphExecUpdate(exec, other, &info), cudaErrorGraphExecUpdateFailure);
    assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    OK(cudaGraphExecUpdate(exec, two, &info));
    OK(cudaGraphUpload(exec, s));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    assert_true(all_of(x, N) == 2);
    OK(cudaGraphDestroy(one));
    OK(cudaGraphDestroy(two));
    OK(cudaGraphDestroy(other));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaFree(x));
    OK(cudaStreamDestroy(s));
    end_clean();
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
        OK(cudaStreamSynchronize(s0)); /* free again */
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

LS_TESTS(cuda_doubles_contract_graph, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_replays_what_was_captured),
        cmocka_unit_test(an_update_changes_arguments_but_not_the_shape),
        cmocka_unit_test(a_capturing_thread_must_not_wait_allocate_or_query),
        cmocka_unit_test(other_threads_are_free_but_for_the_device),
        cmocka_unit_test(forks_must_join_and_events_must_come_from_inside),
        cmocka_unit_test(a_capture_ends_even_when_its_end_fails),
    };
    return cmocka_run_group_tests_name("doubles_graph", tests, NULL, NULL);
}
