/* What the double of NCCL promises. One thread stands for all ranks; where a call of a blocking
 * communicator needs the others, each rank has a thread. */
#include "cuda/fixture.h"
#include "runner.h"

#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { N = 96, R = 3 };

static ncclComm_t comm[R];
static cudaStream_t stream[R];
static float *in[R], *out[R];

/* Asks until the communicator has an answer. */
static ncclResult_t settle(ncclComm_t c)
{
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 1000 && state == ncclInProgress; i++)
        OK(ncclCommGetAsyncError(c, &state));
    return state;
}

static ncclResult_t settled(ncclResult_t result, ncclComm_t c)
{
    return result == ncclInProgress || result == ncclSuccess ? settle(c) : result;
}

static void open_ranks(int ranks)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < ranks; r++) {
        OK(cudaSetDevice(r));
        assert_int_equal(ncclCommInitRankConfig(&comm[r], ranks, id, r, &config), ncclInProgress);
        stream[r] = new_stream();
        in[r] = new_floats(N * R);
        out[r] = new_floats(N * R);
        OK(k_fill(in[r], (float)(1 << r), N * R, stream[r]));
        OK(k_fill(out[r], -1, N * R, stream[r]));
    }
    for (int r = 0; r < ranks; r++)
        OK(settle(comm[r]));
}

static void free_rank(int r)
{
    OK(cudaSetDevice(r));
    OK(cudaFree(in[r]));
    OK(cudaFree(out[r]));
    OK(cudaStreamDestroy(stream[r]));
}

static void sync_ranks(int ranks)
{
    for (int r = 0; r < ranks; r++)
        OK(cudaStreamSynchronize(stream[r]));
}

static void close_ranks(int ranks)
{
    for (int r = 0; r < ranks; r++)
        OK(ncclCommAbort(comm[r]));
    for (int r = 0; r < ranks; r++)
        free_rank(r);
}

/* ---- results -------------------------------------------------------------------------------- */

static void all_reduces(void)
{
    open_ranks(R);
    for (int r = 0; r < R; r++)
        OK(settled(ncclAllReduce(in[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]),
                   comm[r]));
    for (int r = 0; r < R; r++) /* in place */
        OK(settled(ncclAllReduce(out[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]),
                   comm[r]));
    sync_ranks(R);
    for (int r = 0; r < R; r++)
        assert_true(all_of(out[r], N) == 7 * R);
    close_ranks(R);
}

static void all_reduce_sums(void **state)
{
    (void)state;
    in_every_mode(R, all_reduces);
}

static void other_collectives(void)
{
    open_ranks(R);
    for (int r = 0; r < R; r++) { /* fused into one group */
        OK(ncclGroupStart());
        OK(ncclReduceScatter(in[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]));
        OK(ncclBroadcast(in[r], out[r] + N, N, ncclFloat32, 1, comm[r], stream[r]));
        OK(settled(ncclGroupEnd(), comm[r]));
    }
    sync_ranks(R);
    for (int r = 0; r < R; r++) {
        assert_true(all_of(out[r], N) == 7);
        assert_true(all_of(out[r] + N, N) == 2);
    }
    for (int r = 0; r < R; r++)
        OK(settled(ncclAllGather(in[r], out[r], N, ncclFloat32, comm[r], stream[r]), comm[r]));
    sync_ranks(R);
    for (int r = 0; r < R; r++)
        for (int from = 0; from < R; from++)
            assert_true(all_of(out[r] + N * from, N) == (float)(1 << from));
    close_ranks(R);
}

static void scatter_gather_and_broadcast(void **state)
{
    (void)state;
    in_every_mode(R, other_collectives);
}

static void send_around(void)
{
    open_ranks(R);
    for (int r = 0; r < R; r++) {
        OK(ncclGroupStart());
        OK(ncclSend(in[r], N, ncclFloat32, (r + 1) % R, comm[r], stream[r]));
        OK(ncclRecv(out[r], N, ncclFloat32, (r + R - 1) % R, comm[r], stream[r]));
        OK(settled(ncclGroupEnd(), comm[r]));
    }
    sync_ranks(R);
    for (int r = 0; r < R; r++)
        assert_true(all_of(out[r], N) == (float)(1 << (r + R - 1) % R));
    close_ranks(R);
}

static void sends_and_receives_of_a_group_meet(void **state)
{
    (void)state;
    in_every_mode(R, send_around);
}

static void *blocking_rank(void *arg)
{
    int r = *(int *)arg;
    static ncclUniqueId id;
    if (r < 0)
        return (void *)(uintptr_t)ncclGetUniqueId(&id);
    cudaSetDevice(r);
    cudaStream_t s = new_stream();
    float *x = new_floats(N);
    ncclComm_t c;
    int failed = ncclCommInitRank(&c, 2, id, r) != ncclSuccess;
    failed |= k_fill(x, (float)(r + 1), N, s) != cudaSuccess;
    failed |= ncclAllReduce(x, x, N, ncclFloat32, ncclSum, c, s) != ncclSuccess;
    failed |= cudaStreamSynchronize(s) != cudaSuccess;
    failed |= all_of(x, N) != 3;
    failed |= ncclCommDestroy(c) != ncclSuccess; /* a collective too */
    cudaFree(x);
    cudaStreamDestroy(s);
    return (void *)(uintptr_t)failed;
}

static void blocking(void)
{
    int rank[3] = {-1, 0, 1};
    pthread_t thread[2];
    void *failed;
    assert_null(blocking_rank(&rank[0]));
    for (int r = 0; r < 2; r++)
        OK(pthread_create(&thread[r], NULL, blocking_rank, &rank[r + 1]));
    for (int r = 0; r < 2; r++) {
        OK(pthread_join(thread[r], &failed));
        assert_null(failed);
    }
}

static void blocking_ranks_wait_for_each_other(void **state)
{
    (void)state;
    in_every_mode(2, blocking);
}

/* ---- laws ----------------------------------------------------------------------------------- */

static void two_ranks_on_one_device_are_refused(void **state)
{
    (void)state;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        assert_int_equal(ncclCommInitRankConfig(&comm[r], 2, id, r, &config), ncclInProgress);
    for (int r = 0; r < 2; r++)
        assert_int_equal(settle(comm[r]), ncclInvalidUsage);
    for (int r = 0; r < 2; r++)
        OK(ncclCommAbort(comm[r]));
    end_clean();
}

static void a_communicator_is_not_used_before_it_is_ready(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_EAGER, .devices = 2, .nccl_polls = 1});
    open_ranks(2);
    OK(ncclAllReduce(in[0], out[0], N, ncclFloat32, ncclSum, comm[0], stream[0]));
    assert_int_equal(ncclAllReduce(in[0], out[0], N, ncclFloat32, ncclSum, comm[0], stream[0]),
                     ncclInvalidUsage);
    expect_complaint("before it was ready");
    close_ranks(2);
    end_clean();
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 2});
    open_ranks(2);
    OK(ncclAllReduce(in[0], out[0], N, ncclFloat32, ncclSum, comm[0], stream[0]));
    OK(ncclAllReduce(in[1], out[1], N / 2, ncclFloat32, ncclSum, comm[1], stream[1]));
    sync_ranks(2);
    expect_complaint("do not agree on the sequence");
    assert_int_equal(settle(comm[0]), ncclInvalidUsage);
    close_ranks(2);
    end_clean();
}

static void sends_outside_a_group_hang_until_they_are_aborted(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2, .patience_ns = 50000000});
    open_ranks(2);
    for (int r = 0; r < 2; r++) {
        OK(ncclSend(in[r], N, ncclFloat32, 1 - r, comm[r], stream[r]));
        OK(ncclRecv(out[r], N, ncclFloat32, 1 - r, comm[r], stream[r]));
    }
    assert_int_equal(cudaStreamSynchronize(stream[0]), cudaErrorLaunchTimeout);
    expect_complaint("a hang");
    close_ranks(2);
    end_clean();
}

static void an_abort_releases_its_own_rank_alone(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 3, .patience_ns = 500000000});
    open_ranks(3);
    for (int r = 0; r < 2; r++) /* rank 2 never comes */
        OK(ncclAllReduce(in[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]));
    assert_int_equal(cudaStreamSynchronize(stream[0]), cudaErrorLaunchTimeout);
    OK(ncclCommAbort(comm[2]));
    OK(ncclCommAbort(comm[0]));
    OK(cudaStreamSynchronize(stream[0]));
    assert_int_equal(cudaStreamSynchronize(stream[1]), cudaErrorLaunchTimeout);
    expect_complaint("a hang");
    /* Rank 1 still runs, and may touch what rank 0 sends. */
    OK(cudaFree(in[0]));
    expect_complaint("memory that a collective may still touch");
    OK(ncclCommAbort(comm[1]));
    OK(cudaFree(out[0]));
    OK(cudaStreamDestroy(stream[0]));
    free_rank(1);
    free_rank(2);
    assert_int_equal(ncclCommAbort(comm[1]), ncclInvalidArgument);
    expect_complaint("does not exist any more");
    end_clean();
}

static void a_lost_device_hangs_its_peers_until_they_are_aborted(void **state)
{
    (void)state;
    ncclResult_t error;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2});
    open_ranks(2);
    OK(ncclAllReduce(in[0], out[0], N, ncclFloat32, ncclSum, comm[0], stream[0]));
    dbl_lose_device(1, 0);
    OK(cudaSetDevice(0));
    assert_int_equal(ncclAllReduce(in[1], out[1], N, ncclFloat32, ncclSum, comm[1], stream[1]),
                     ncclUnhandledCudaError);
    OK(ncclCommGetAsyncError(comm[1], &error));
    assert_int_equal(error, ncclUnhandledCudaError);
    OK(ncclCommGetAsyncError(comm[0], &error));
    assert_int_equal(error, ncclSuccess); /* it knows nothing */
    assert_int_equal(cudaStreamQuery(stream[0]), cudaErrorNotReady);
    for (int r = 0; r < 2; r++)
        OK(ncclCommAbort(comm[r]));
    OK(cudaStreamSynchronize(stream[0]));
    free_rank(0);
    cudaFree(in[1]);
    cudaFree(out[1]);
    cudaStreamDestroy(stream[1]);
    end_clean();
}

static void a_missing_rank_leaves_the_others_in_progress(void **state)
{
    (void)state;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2});
    OK(ncclGetUniqueId(&id));
    assert_int_equal(ncclCommInitRankConfig(&comm[0], 2, id, 0, &config), ncclInProgress);
    assert_int_equal(settle(comm[0]), ncclInProgress);
    dbl_fail("ncclCommInitRankConfig", 1, 0);
    assert_int_equal(ncclCommInitRankConfig(&comm[1], 2, id, 1, &config), ncclInternalError);
    OK(ncclCommAbort(comm[0]));
    end_clean();
}

LS_TESTS(cuda_doubles_contract_nccl, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sums),
        cmocka_unit_test(scatter_gather_and_broadcast),
        cmocka_unit_test(sends_and_receives_of_a_group_meet),
        cmocka_unit_test(blocking_ranks_wait_for_each_other),
        cmocka_unit_test(two_ranks_on_one_device_are_refused),
        cmocka_unit_test(a_communicator_is_not_used_before_it_is_ready),
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(sends_outside_a_group_hang_until_they_are_aborted),
        cmocka_unit_test(an_abort_releases_its_own_rank_alone),
        cmocka_unit_test(a_lost_device_hangs_its_peers_until_they_are_aborted),
        cmocka_unit_test(a_missing_rank_leaves_the_others_in_progress),
    };
    return cmocka_run_group_tests_name("doubles_nccl", tests, NULL, NULL);
}
