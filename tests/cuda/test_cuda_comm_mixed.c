/* SPDX-License-Identifier: MIT */
/* Tests workers on several GPUs, some of which share a GPU. The CUDA runtime and NCCL are simulated
 * (tests/doubles). */
#include "cuda/comm_gang.h"
#include "doubles/control.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const dbl_options worlds[] = {
    {.mode = DBL_THREADS, .devices = 3, .nccl_polls = 2},
    {.mode = DBL_EAGER, .devices = 3},
    {.mode = DBL_LAZY, .devices = 3, .nccl_polls = 0},
    {.mode = DBL_LAZY, .devices = 3, .seed = 3, .nccl_polls = 1},
    {.mode = DBL_LAZY, .devices = 3, .seed = 99, .nccl_polls = 3},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static const struct {
    int ranks;
    int gpus[GANG_RANKS];
} mixes[] = {
    {4, {0, 0, 1, 1}},
    {3, {0, 1, 1}},
    {5, {0, 1, 0, 1, 2}},
    {4, {2, 0, 2, 2}},
    {8, {0, 0, 0, 0, 1, 1, 1, 1}},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

static comm_gang mixed_gang(int mix, int shards, size_t floats)
{
    return (comm_gang){.type = &ls_cuda_comm_ordered,
                       .ranks = mixes[mix].ranks,
                       .gpus = mixes[mix].gpus,
                       .shards = shards,
                       .steps = 3,
                       .floats = floats};
}

static void must_match(comm_gang *g, const dbl_options *world)
{
    dbl_begin(world);
    comm_gang_run(g);
    comm_gang_must_be_clean();
    comm_gang_must_succeed(g);
    comm_gang_must_match(g);
    comm_gang_free(g);
}

static void ordered_gives_the_host_s_bits_however_gpus_are_shared(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++)
        for (int mix = 0; mix < MIXES; mix++) {
            comm_gang even = mixed_gang(mix, 8, 1040), odd = mixed_gang(mix, 13, 1040);
            even.check = 1;
            must_match(&even, &worlds[w]);
            must_match(&odd, &worlds[w]);
        }
}

/* The result must have the bits of one rank that has all shards, not only the bits of the library's
 * communicator `ordered`. */
static void a_mix_gives_the_bits_of_one_worker(void **state)
{
    (void)state;
    enum { FLOATS = 208, SHARDS = 12 };
    for (int mix = 0; mix < MIXES; mix++) {
        float expected[FLOATS];
        comm_gang g = mixed_gang(mix, SHARDS, FLOATS);
        dbl_begin(&worlds[0]);
        comm_gang_run(&g);
        comm_gang_must_be_clean();
        comm_gang_must_succeed(&g);
        for (int step = 0; step < g.steps; step++) {
            comm_gang_expected(expected, 1, SHARDS, step, FLOATS);
            for (int r = 0; r < g.ranks; r++)
                assert_memory_equal(g.member[r].result[step], expected, sizeof expected);
        }
        comm_gang_free(&g);
    }
}

static void an_arena_smaller_than_the_gpus_lines(void **state)
{
    (void)state;
    comm_gang g = mixed_gang(2, 7, 32); /* the third GPU has an empty chunk */
    must_match(&g, &worlds[0]);
}

/* NCCL has one rank for each GPU, and only the GPU's leader calls NCCL. */
static void nccl_has_one_rank_for_each_gpu(void **state)
{
    (void)state;
    comm_gang g = mixed_gang(2, 10, 64);
    dbl_begin(&worlds[0]);
    comm_gang_run(&g);
    long joined = dbl_calls("ncclCommInitRankConfig"), groups = dbl_calls("ncclGroupEnd");
    comm_gang_must_be_clean();
    comm_gang_must_succeed(&g);
    assert_int_equal(joined, 3);
    assert_int_equal(groups, 3 * 2 * g.steps + 1); /* one group aborts all communicators */
    comm_gang_free(&g);
}

static void expect_failure(comm_gang *g, int status, const char *text)
{
    dbl_begin(&worlds[0]);
    comm_gang_run(g);
    comm_gang_must_be_clean();
    if (comm_gang_status(g) != status || !strstr(comm_gang_text(g), text))
        fail_msg("expected %s (%s), got %s: %s", ls_status_name(status), text,
                 ls_status_name(comm_gang_status(g)), comm_gang_text(g));
    comm_gang_free(g);
}

static void the_other_ways_refuse_a_mix_and_name_ordered(void **state)
{
    (void)state;
    comm_gang nccl = mixed_gang(0, 4, 32), local = mixed_gang(0, 4, 32);
    nccl.type = &ls_cuda_comm_nccl;
    expect_failure(&nccl, LS_EUNSUPPORTED,
                   "'nccl' needs a GPU for each worker, and 4 workers have 2 here; workers that "
                   "share one merge with 'ordered'");
    local.type = &ls_cuda_comm_local;
    expect_failure(
        &local, LS_EUNSUPPORTED,
        "'local' is for workers that share one GPU, and there are 2 here; use 'ordered'");
}

static void a_rank_of_a_mix_that_stays_away_is_named(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        char text[64] = "with 3 of 4 ranks there; missing: ?";
        comm_gang g = mixed_gang(0, 8, 64);
        text[strlen(text) - 1] = (char)('0' + rank);
        g.timeout_ns = 300000000;
        g.absent = rank + 1;
        expect_failure(&g, LS_ETIMEDOUT, text);
    }
}

/* ---- a rank that fails in the second step --------------------------------------------------- */

static int failing;

static int one_fails(comm_member *m, int step)
{
    if (step != 1 || m->rank != failing)
        return LS_OK;
    return ls_fail(&m->err, LS_EDEVICE, "rank %d failed", m->rank);
}

static void has_stopped_reading(comm_member *m)
{
    assert_int_equal(m->gang->type->may_read(m->gang->group, m->rank), 0);
}

static void a_failure_in_a_mix_ends_the_step_for_all(void **state)
{
    (void)state;
    for (int mix = 0; mix < MIXES; mix++)
        for (failing = 0; failing < mixes[mix].ranks; failing++) {
            comm_gang g = mixed_gang(mix, 8, 96);
            g.between = one_fails;
            g.last = has_stopped_reading;
            dbl_begin(&worlds[0]);
            comm_gang_run(&g);
            comm_gang_must_be_clean();
            assert_int_equal(comm_gang_status(&g), LS_EDEVICE);
            for (int r = 0; r < g.ranks; r++) {
                assert_int_equal(g.member[r].merged, 1);
                if (r != failing)
                    assert_int_equal(g.member[r].status, LS_EABORTED);
            }
            comm_gang_free(&g);
        }
}

static void the_check_finds_a_total_that_was_not_handed_out(void **state)
{
    (void)state;
    comm_gang g = mixed_gang(1, 6, 640);
    g.check = 1;
    g.timeout_ns = 300000000;
    dbl_begin(&worlds[0]);
    /* the call after those for the start-up pattern of each rank: the leader's only copy */
    dbl_skip("cudaMemcpyAsync", 4);
    comm_gang_run(&g);
    (void)dbl_end();
    assert_int_equal(comm_gang_status(&g), LS_EDEVICE);
    assert_non_null(strstr(comm_gang_text(&g), "start-up check"));
    assert_non_null(strstr(comm_gang_text(&g), "(rank 2)"));
    comm_gang_free(&g);
}

LS_TESTS(cuda_comm_mixed, "integration doubles no-asan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_gives_the_host_s_bits_however_gpus_are_shared),
        cmocka_unit_test(a_mix_gives_the_bits_of_one_worker),
        cmocka_unit_test(an_arena_smaller_than_the_gpus_lines),
        cmocka_unit_test(nccl_has_one_rank_for_each_gpu),
        cmocka_unit_test(the_other_ways_refuse_a_mix_and_name_ordered),
        cmocka_unit_test(a_rank_of_a_mix_that_stays_away_is_named),
        cmocka_unit_test(a_failure_in_a_mix_ends_the_step_for_all),
        cmocka_unit_test(the_check_finds_a_total_that_was_not_handed_out),
    };
    return cmocka_run_group_tests_name("cuda_comm_mixed", tests, NULL, NULL);
}
