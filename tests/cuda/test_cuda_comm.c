/* SPDX-License-Identifier: MIT */
/* Tests the communicators for GPUs without a GPU: the CUDA runtime and NCCL are simulated
 * (tests/doubles). */
#include "cuda/comm_gang.h"
#include "doubles/control.h"
#include "merge/tree.h"
#include "runner.h"

#include <lockstep/split.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const dbl_options worlds[] = {
    {.mode = DBL_THREADS, .devices = 8, .nccl_polls = 2},
    {.mode = DBL_LAZY, .devices = 8, .nccl_polls = 0},
    {.mode = DBL_LAZY, .devices = 8, .seed = 3, .nccl_polls = 1},
    {.mode = DBL_LAZY, .devices = 8, .seed = 99, .nccl_polls = 3},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* ---- results -------------------------------------------------------------------------------- */

static void run_ordered(const dbl_options *world, const ls_comm_type *type, int ranks, int shards,
                        int share)
{
    comm_gang g = {.type = type,
                   .ranks = ranks,
                   .shards = shards,
                   .steps = 3,
                   .floats = 1040,
                   .share = share,
                   .check = 1};
    dbl_begin(world);
    comm_gang_run(&g);
    comm_gang_must_be_clean();
    comm_gang_must_succeed(&g);
    comm_gang_must_match(&g);
    comm_gang_free(&g);
}

static void each_number_of_ranks(const ls_comm_type *type, int share)
{
    const int ranks[] = {1, 2, 3, 5, 8};
    for (int w = 0; w < WORLDS; w++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            run_ordered(&worlds[w], type, ranks[i], 8, share);
            if (w == 0)
                run_ordered(&worlds[w], type, ranks[i], 13, share);
        }
}

static void ordered_gives_the_host_s_bits_on_gpus_of_their_own(void **state)
{
    (void)state;
    each_number_of_ranks(&ls_cuda_comm_ordered, 0);
}

static void ordered_gives_the_host_s_bits_on_one_gpu(void **state)
{
    (void)state;
    each_number_of_ranks(&ls_cuda_comm_ordered, 1);
}

static void local_gives_the_host_s_bits(void **state)
{
    (void)state;
    each_number_of_ranks(&ls_cuda_comm_local, 1);
}

static void an_arena_smaller_than_the_ranks_lines(void **state)
{
    (void)state;
    for (int share = 0; share < 2; share++) {
        comm_gang g = {.type = &ls_cuda_comm_ordered,
                       .ranks = 5,
                       .shards = 5,
                       .steps = 2,
                       .floats = 32, /* three ranks have an empty chunk */
                       .share = share};
        dbl_begin(&worlds[0]);
        comm_gang_run(&g);
        comm_gang_must_be_clean();
        comm_gang_must_succeed(&g);
        comm_gang_must_match(&g);
        comm_gang_free(&g);
    }
}

/* NCCL promises no order of additions. So the result must be close to the expected sum, and the
 * same on every rank. */
static void close_to_expected(const comm_gang *g)
{
    float *expected = malloc(g->floats * sizeof *expected);
    for (int step = 0; step < g->steps; step++) {
        comm_gang_expected(expected, g->ranks, g->shards, step, g->floats);
        for (int r = 0; r < g->ranks; r++)
            for (size_t i = 0; i < g->floats; i++) {
                float got = g->member[r].result[step][i];
                if (!(fabsf(got - expected[i]) < 64.0f))
                    fail_msg("rank %d float %zu: %g, expected %g", r, i, (double)got,
                             (double)expected[i]);
                assert_true(got == g->member[0].result[step][i]);
            }
    }
    free(expected);
}

static void run_nccl(const dbl_options *world, int ranks, int shards, int steps, size_t floats)
{
    size_t segments[8];
    for (int s = 0; s < 8; s++)
        segments[s] = floats / 8 / 16 * 16 * (size_t)s;
    comm_gang g = {.type = &ls_cuda_comm_nccl,
                   .ranks = ranks,
                   .shards = shards,
                   .steps = steps,
                   .floats = floats,
                   .segments = segments,
                   .segment_count = 8,
                   .check = 1};
    dbl_begin(world);
    comm_gang_run(&g);
    comm_gang_must_be_clean();
    comm_gang_must_succeed(&g);
    close_to_expected(&g);
    comm_gang_free(&g);
}

static void nccl_adds_up(void **state)
{
    (void)state;
    const int ranks[] = {1, 2, 3, 5, 8};
    for (int w = 0; w < WORLDS; w++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
            run_nccl(&worlds[w], ranks[i], 8, 3, 1040);
}

static void nccl_merges_bucket_by_bucket(void **state)
{
    (void)state;
    run_nccl(&worlds[0], 2, 2, 1, (size_t)2 << 20);
}

/* ---- arguments of the kernel ---------------------------------------------------------------- */

static void show_even_split(ls_merge_group *g)
{
    for (int r = 0; r < g->base.ranks; r++) {
        ls_span spans[LS_PARTIALS_MAX];
        uint32_t first, count;
        ls_split((uint32_t)g->desc.shards, (uint32_t)g->base.ranks, (uint32_t)r, &first, &count);
        g->rank[r].count = ls_tree_cover(spans, g->desc.shards, (int)first, (int)(first + count));
        for (int i = 0; i < g->rank[r].count; i++)
            g->rank[r].partials[i].span = spans[i];
    }
}

static char library[2][sizeof(((ls_device_info *)0)->library)];

static void describe_libraries(comm_member *m)
{
    ls_device_info info;
    m->device->ops->describe(m->device, &info);
    if (m->rank == 0)
        snprintf(library[m->gang->type == &ls_cuda_comm_nccl], sizeof *library, "%s", info.library);
}

/* The bits depend on NCCL's version only if NCCL adds. With `ordered` it moves data. */
static void a_device_names_nccl_if_nccl_adds(void **state)
{
    (void)state;
    for (int adds = 0; adds < 2; adds++) {
        comm_gang g = {.type = adds ? &ls_cuda_comm_nccl : &ls_cuda_comm_ordered,
                       .ranks = 2,
                       .shards = 2,
                       .steps = 1,
                       .floats = 64,
                       .last = describe_libraries};
        dbl_begin(&worlds[0]);
        comm_gang_run(&g);
        comm_gang_must_be_clean();
        comm_gang_must_succeed(&g);
        comm_gang_free(&g);
    }
    assert_null(strstr(library[0], "NCCL"));
    assert_non_null(strstr(library[1], ", NCCL 2."));
    assert_non_null(strstr(library[1], ", driver "));
}

/* Without NCCL `nccl` has no group, and `ordered` fails in its first merge, with the reason. */
static void a_missing_nccl_is_an_error(void **state)
{
    (void)state;
    for (int adds = 0; adds < 2; adds++) {
        comm_gang g = {.type = adds ? &ls_cuda_comm_nccl : &ls_cuda_comm_ordered,
                       .ranks = 2,
                       .shards = 2,
                       .steps = 1,
                       .floats = 64};
        dbl_begin(&worlds[0]);
        dbl_fail("ncclLoad", 1, 0);
        comm_gang_run(&g);
        comm_gang_must_be_clean();
        assert_int_equal(comm_gang_status(&g), LS_EUNSUPPORTED);
        assert_non_null(strstr(comm_gang_text(&g), "NCCL does not load"));
        comm_gang_free(&g);
    }
}

static void the_kernel_can_add_up_any_split_among_eight(void **state)
{
    (void)state;
    ls_error err;
    for (int ranks = 1; ranks <= GANG_RANKS; ranks++)
        for (int shards = ranks; shards <= LS_SHARDS_MAX; shards += 1 + shards / 64) {
            const ls_comm_group_desc desc = {.ranks = ranks, .shards = shards, .floats = 16};
            ls_cuda_group group = {0};
            ls_cuda_comm comm = {.group = &group};
            assert_int_equal(ls_merge_group_init(&group.merge, &desc, &err), LS_OK);
            show_even_split(&group.merge);
            if (ls_cuda_comm_rest(&comm, &err) != LS_OK)
                fail_msg("%d shards on %d ranks: %s", shards, ranks, err.text);
            ls_tree_rest_fini(&comm.rest, NULL);
            ls_merge_group_fini(&group.merge);
        }
}

/* ---- supported devices ---------------------------------------------------------------------- */

static void expect_failure(comm_gang *g, const dbl_options *world, int status, const char *text)
{
    dbl_begin(world);
    comm_gang_run(g);
    comm_gang_must_be_clean();
    if (comm_gang_status(g) != status || !strstr(comm_gang_text(g), text))
        fail_msg("expected %s (%s), got %s: %s", ls_status_name(status), text,
                 ls_status_name(comm_gang_status(g)), comm_gang_text(g));
    for (int r = 0; r < g->ranks; r++)
        assert_int_not_equal(g->member[r].status, LS_OK);
    comm_gang_free(g);
}

static void a_communicator_that_does_not_fit_the_devices_says_so(void **state)
{
    (void)state;
    comm_gang nccl = {
        .type = &ls_cuda_comm_nccl, .ranks = 2, .shards = 2, .steps = 1, .floats = 32, .share = 1};
    expect_failure(&nccl, &worlds[0], LS_EUNSUPPORTED,
                   "needs a GPU for each worker, and 2 workers have 1 here; workers that share one "
                   "merge with 'ordered'");
    comm_gang local = {
        .type = &ls_cuda_comm_local, .ranks = 2, .shards = 2, .steps = 1, .floats = 32};
    expect_failure(&local, &worlds[0], LS_EUNSUPPORTED, "workers that share one GPU");
}

static void a_rank_that_stays_away_is_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        comm_gang g = {.type = ls_cuda_comms()[kind],
                       .ranks = 3,
                       .shards = 8,
                       .steps = 1,
                       .floats = 64,
                       .share = ls_cuda_comms()[kind] == &ls_cuda_comm_local,
                       .timeout_ns = 400000000,
                       .absent = 2};
        dbl_begin(&worlds[0]);
        comm_gang_run(&g);
        comm_gang_must_be_clean();
        assert_int_equal(comm_gang_status(&g), LS_ETIMEDOUT);
        assert_non_null(strstr(comm_gang_text(&g), "with 2 of 3 ranks there; missing: 1"));
        comm_gang_free(&g);
    }
}

static void the_check_finds_memory_that_does_not_arrive(void **state)
{
    (void)state;
    for (int share = 0; share < 2; share++) {
        comm_gang g = {.type = &ls_cuda_comm_ordered,
                       .ranks = 2,
                       .shards = 4,
                       .steps = 1,
                       .floats = 640,
                       .share = share,
                       .timeout_ns = 300000000,
                       .check = 1};
        dbl_begin(&worlds[0]);
        dbl_skip(share ? "cudaMemcpyAsync" : "ncclSend", share ? 4 : 3);
        comm_gang_run(&g);
        (void)dbl_end();
        assert_int_not_equal(comm_gang_status(&g), LS_OK);
        comm_gang_free(&g);
    }
}

LS_TESTS(cuda_comm, "integration doubles no-asan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_gives_the_host_s_bits_on_gpus_of_their_own),
        cmocka_unit_test(ordered_gives_the_host_s_bits_on_one_gpu),
        cmocka_unit_test(local_gives_the_host_s_bits),
        cmocka_unit_test(an_arena_smaller_than_the_ranks_lines),
        cmocka_unit_test(nccl_adds_up),
        cmocka_unit_test(nccl_merges_bucket_by_bucket),
        cmocka_unit_test(a_device_names_nccl_if_nccl_adds),
        cmocka_unit_test(a_missing_nccl_is_an_error),
        cmocka_unit_test(the_kernel_can_add_up_any_split_among_eight),
        cmocka_unit_test(a_communicator_that_does_not_fit_the_devices_says_so),
        cmocka_unit_test(a_rank_that_stays_away_is_named),
        cmocka_unit_test(the_check_finds_memory_that_does_not_arrive),
    };
    return cmocka_run_group_tests_name("cuda_comm", tests, NULL, NULL);
}
