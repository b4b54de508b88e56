/* SPDX-License-Identifier: MIT */
/* Tests that the simulated NCCL detects misuse, and that its calls hang until the communicator is
 * aborted; see test_doubles.c. One thread of the test stands for all ranks. */
#include "cuda/fixture.h"
#include "runner.h"

#include <nccl.h>
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

/* Polls until the communicator's call is no longer in progress. Returns its result. */
static ncclResult_t settle(ncclComm_t c)
{
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 1000 && state == ncclInProgress; i++)
        OK(ncclCommGetAsyncError(c, &state));
    return state;
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
    for (int r = 0; r < 2; r++) /* rank 2 never makes the call */
        OK(ncclAllReduce(in[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]));
    assert_int_equal(cudaStreamSynchronize(stream[0]), cudaErrorLaunchTimeout);
    OK(ncclCommAbort(comm[2]));
    OK(ncclCommAbort(comm[0]));
    OK(cudaStreamSynchronize(stream[0]));
    assert_int_equal(cudaStreamSynchronize(stream[1]), cudaErrorLaunchTimeout);
    expect_complaint("a hang");
    /* The kernel of rank 1 still runs, and may access memory that rank 0 sends. */
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
    assert_int_equal(error, ncclSuccess); /* the communicator reports no error */
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

static void aborts_outside_a_group_are_counted(void **state)
{
    (void)state;
    for (int grouped = 0; grouped < 2; grouped++) {
        dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2});
        open_ranks(2);
        if (grouped)
            OK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
            OK(ncclCommAbort(comm[r]));
        if (grouped)
            OK(ncclGroupEnd());
        for (int r = 0; r < 2; r++)
            free_rank(r);
        assert_int_equal(dbl_lone_aborts(), grouped ? 0 : 1);
        end_clean();
    }
}

static void nothing_at_all(const void *args)
{
    (void)args;
}

static void a_kernel_that_is_loaded_while_nccl_runs_is_told(void **state)
{
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_LAZY, .devices = 2});
    open_ranks(2);
    OK(cudaSetDevice(0));
    OK(dbl_launch(stream[0], "early", nothing_at_all, "", 1));
    for (int r = 0; r < 2; r++) {
        OK(cudaSetDevice(r));
        OK(ncclAllReduce(in[r], out[r], N, ncclFloat32, ncclSum, comm[r], stream[r]));
    }
    OK(cudaSetDevice(0));
    OK(dbl_launch(stream[0], "early", nothing_at_all, "", 1));
    assert_string_equal(dbl_complaints(), "");
    OK(dbl_launch(stream[0], "late", nothing_at_all, "", 1));
    expect_complaint("the first launch of late on device 0, while NCCL runs there");
    for (int r = 0; r < 2; r++)
        OK(cudaStreamSynchronize(stream[r]));
    close_ranks(2);
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

LS_TESTS(cuda_doubles_contract_nccl, "integration doubles no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_on_one_device_are_refused),
        cmocka_unit_test(a_communicator_is_not_used_before_it_is_ready),
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(sends_outside_a_group_hang_until_they_are_aborted),
        cmocka_unit_test(an_abort_releases_its_own_rank_alone),
        cmocka_unit_test(a_lost_device_hangs_its_peers_until_they_are_aborted),
        cmocka_unit_test(aborts_outside_a_group_are_counted),
        cmocka_unit_test(a_kernel_that_is_loaded_while_nccl_runs_is_told),
        cmocka_unit_test(a_missing_rank_leaves_the_others_in_progress),
    };
    return cmocka_run_group_tests_name("doubles_nccl", tests, NULL, NULL);
}
