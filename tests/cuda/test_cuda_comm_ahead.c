/* SPDX-License-Identifier: MIT */
/* Tests that NCCL sums parts of the gradient (buckets) while the backward pass still computes the
 * other parts. The CUDA runtime and NCCL are simulated (tests/doubles). */
#include "base/clock.h"
#include "comm/comm.h"
#include "cuda/comm_gang.h"
#include "doubles/control.h"
#include "runner.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const dbl_options worlds[] = {
    {.mode = DBL_THREADS, .devices = 8, .nccl_polls = 2},
    {.mode = DBL_EAGER, .devices = 8},
    {.mode = DBL_LAZY, .devices = 8, .nccl_polls = 0},
    {.mode = DBL_LAZY, .devices = 8, .seed = 3, .nccl_polls = 1},
    {.mode = DBL_LAZY, .devices = 8, .seed = 99, .nccl_polls = 3},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

enum { RANKS = 3, FLOATS = 640, SEGMENTS = 5, AHEAD = SEGMENTS - 1 };
static const size_t segments[SEGMENTS] = {0, 16, 160, 320, 512};

static comm_gang gang_of(int ranks)
{
    return (comm_gang){.type = &ls_cuda_comm_nccl,
                       .ranks = ranks,
                       .shards = ranks,
                       .steps = 3,
                       .floats = FLOATS,
                       .segments = segments,
                       .segment_count = SEGMENTS,
                       .ahead = 1,
                       .check = 1};
}

static void run(comm_gang *g, const dbl_options *world)
{
    dbl_begin(world);
    comm_gang_run(g);
    comm_gang_must_be_clean();
}

/* ---- results -------------------------------------------------------------------------------- */

static void merging_ahead_changes_no_bit(void **state)
{
    (void)state;
    const int ranks[] = {1, 2, 3, 5, 8};
    for (int w = 0; w < WORLDS; w++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            comm_gang ahead = gang_of(ranks[i]), behind = gang_of(ranks[i]);
            behind.ahead = 0;
            run(&ahead, &worlds[w]);
            comm_gang_must_succeed(&ahead);
            run(&behind, &worlds[0]);
            for (int step = 0; step < ahead.steps; step++)
                for (int r = 0; r < ranks[i]; r++)
                    assert_memory_equal(ahead.member[r].result[step], behind.member[0].result[step],
                                        FLOATS * sizeof(float));
            comm_gang_free(&ahead);
            comm_gang_free(&behind);
        }
}

/* Each bucket must wait for its own part of the gradient, not only for an earlier part. */
static void no_order_of_work_changes_a_bit(void **state)
{
    (void)state;
    comm_gang expected = gang_of(2);
    run(&expected, &worlds[0]);
    for (uint32_t seed = 0; seed < 40; seed++) {
        comm_gang g = gang_of(2);
        run(&g, &(dbl_options){.mode = DBL_LAZY, .devices = 2, .seed = seed});
        comm_gang_must_succeed(&g);
        for (int step = 0; step < g.steps; step++)
            for (int r = 0; r < 2; r++)
                assert_memory_equal(g.member[r].result[step], expected.member[0].result[step],
                                    FLOATS * sizeof(float));
        comm_gang_free(&g);
    }
    comm_gang_free(&expected);
}

/* The group's first merge connects the group. Buckets that are ready before must wait for it. */
static void before_the_first_merge_nothing_goes_ahead(void **state)
{
    (void)state;
    comm_gang g = gang_of(RANKS);
    g.check = 0;
    run(&g, &worlds[0]);
    comm_gang_must_succeed(&g);
    comm_gang_free(&g);
}

/* ---- buckets are enqueued before the meeting ------------------------------------------------- */

static _Atomic int arrived;
/* [step]: number of calls of ncclAllReduce when all ranks have begun the step and no rank has ended
 * it */
static long seen[GANG_STEPS];
static float merged[GANG_STEPS][FLOATS];

static void meet(int ranks)
{
    int round = atomic_fetch_add(&arrived, 1) / ranks;
    while (atomic_load(&arrived) < (round + 1) * ranks)
        sched_yield();
}

/* Checks that the sums of the buckets are in every rank's total although no rank has called
 * all_reduce. */
static int look_at_the_total(comm_member *m, int step)
{
    ls_device *d = m->device;
    meet(RANKS);
    int status = d->ops->sync(d, NULL, &m->err); /* all streams */
    if (!atomic_load(&((ls_cuda_comm *)m->comm)->shown->reading))
        status = ls_fail(&m->err, LS_EINTERNAL, "a rank with buckets under way reads nothing");
    meet(RANKS);
    if (m->rank == 0) {
        seen[step] = dbl_calls("ncclAllReduce");
        if (status == LS_OK)
            status = d->ops->download(d, NULL, merged[step], m->total,
                                      segments[AHEAD] * sizeof(float), &m->err);
        if (status == LS_OK)
            status = d->ops->sync(d, NULL, &m->err);
    }
    meet(RANKS);
    return status;
}

static void buckets_are_merged_before_all_reduce_is_called(void **state)
{
    (void)state;
    comm_gang g = gang_of(RANKS);
    g.between = look_at_the_total;
    run(&g, &worlds[0]);
    comm_gang_must_succeed(&g);
    for (int step = 0; step < g.steps; step++) {
        /* The two merges of the start-up check, the merges of the earlier steps, and the buckets
         * that are enqueued ahead. */
        assert_int_equal(seen[step], RANKS * (SEGMENTS * (2 + step) + AHEAD));
        for (size_t i = 0; i < segments[AHEAD]; i++)
            assert_true(merged[step][i] == g.member[0].result[step][i]);
    }
    comm_gang_free(&g);
}

/* ---- steps that are cut short --------------------------------------------------------------- */

static int failing; /* the rank that fails */

static int one_fails(comm_member *m, int step)
{
    if (step != 1 || m->rank != failing)
        return LS_OK;
    return ls_fail(&m->err, LS_EDEVICE, "the backward pass of rank %d failed", m->rank);
}

static void has_stopped_reading(comm_member *m)
{
    ls_comm_group *group = m->gang->group;
    const ls_comm_type *type = m->gang->type;
    ls_error err;
    type->abort(group); /* every rank that fails does this */
    assert_int_equal(type->merge_ready(m->comm, NULL, m->leaf, m->total, FLOATS, &err),
                     LS_EABORTED);
    assert_int_equal(type->may_read(group, m->rank), 0);
}

/* A rank fails after it has enqueued buckets. The other ranks wait in kernels of NCCL, or are about
 * to call all_reduce. */
static void a_rank_that_fails_behind_its_buckets_releases_everybody(void **state)
{
    (void)state;
    for (failing = 0; failing < RANKS; failing++) {
        comm_gang g = gang_of(RANKS);
        g.between = one_fails;
        g.last = has_stopped_reading;
        uint64_t start = ls_now_ns();
        run(&g, &worlds[0]);
        assert_true(ls_now_ns() - start < 5000000000u);
        assert_int_equal(comm_gang_status(&g), LS_EDEVICE);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(g.member[r].merged, 1);
            assert_int_equal(g.member[r].status, r == failing ? LS_EDEVICE : LS_EABORTED);
        }
        comm_gang_free(&g);
    }
}

/* Leaves the group without another call, as a worker of a trainer does after a failure. */
static void leaves_at_once(comm_member *m)
{
    const ls_comm_type *type = m->gang->type;
    type->abort(m->gang->group);
    type->leave(m->comm);
    m->comm = NULL;
    assert_int_equal(type->may_read(m->gang->group, m->rank), 0);
}

static void leaving_ends_what_was_begun(void **state)
{
    (void)state;
    for (failing = 0; failing < RANKS; failing++) {
        comm_gang g = gang_of(RANKS);
        g.between = one_fails;
        g.last = leaves_at_once;
        run(&g, &worlds[0]);
        assert_int_equal(comm_gang_status(&g), LS_EDEVICE);
        comm_gang_free(&g);
    }
}

static comm_gang *to_abort;

static int abort_from_outside(comm_member *m, int step)
{
    /* the other ranks are in merge_ready, in all_reduce, or between the two */
    if (step == 1 && m->rank == 0)
        to_abort->type->abort(to_abort->group);
    return LS_OK;
}

static void an_abort_in_mid_step_releases_everybody(void **state)
{
    (void)state;
    for (int again = 0; again < 8; again++) {
        comm_gang g = gang_of(RANKS);
        to_abort = &g;
        g.between = abort_from_outside;
        g.last = has_stopped_reading;
        run(&g, &worlds[0]);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(g.member[r].status, LS_EABORTED);
        comm_gang_free(&g);
    }
}

/* number of ranks that have found that the sleeping rank no longer reads */
static _Atomic int seen_asleep;

static int sleep_until_seen(comm_member *m, int step)
{
    while (step == 1 && m->rank == failing && atomic_load(&seen_asleep) < RANKS - 1)
        sched_yield();
    return LS_OK;
}

/* The buckets of the sleeping rank wait on its GPU until the watchdog aborts them. After that the
 * other ranks may use their memory again, although the rank still sleeps. */
static void see_the_sleeper(comm_member *m)
{
    const ls_comm_type *type = m->gang->type;
    uint64_t end = ls_now_ns() + 5000000000u;
    type->abort(m->gang->group);
    if (m->rank == failing)
        return;
    while (type->may_read(m->gang->group, failing) && ls_now_ns() < end)
        sched_yield();
    assert_int_equal(type->may_read(m->gang->group, failing), 0);
    atomic_fetch_add(&seen_asleep, 1);
}

static void a_rank_that_sleeps_behind_its_buckets_is_named(void **state)
{
    (void)state;
    for (failing = 0; failing < RANKS; failing++) {
        char text[64] = "with 2 of 3 ranks there; missing: ?";
        text[strlen(text) - 1] = (char)('0' + failing);
        comm_gang g = gang_of(RANKS);
        g.between = sleep_until_seen;
        g.last = see_the_sleeper;
        g.timeout_ns = 300000000;
        atomic_store(&seen_asleep, 0);
        run(&g, &worlds[0]);
        assert_int_equal(comm_gang_status(&g), LS_ETIMEDOUT);
        assert_non_null(strstr(comm_gang_text(&g), text));
        assert_int_equal(g.member[failing].status, LS_EABORTED);
        comm_gang_free(&g);
    }
}

/* ---- misuse --------------------------------------------------------------------------------- */

static int another_total(comm_member *m, int step)
{
    ls_partial partial = {{m->rank, m->rank + 1}, m->leaf};
    if (step != 1)
        return LS_OK;
    return m->gang->type->all_reduce(m->comm, NULL, &partial, 1, m->leaf, &m->times, &m->err);
}

static int another_gradient(comm_member *m, int step)
{
    if (step != 1)
        return LS_OK;
    return m->gang->type->merge_ready(m->comm, NULL, m->total, m->total, FLOATS, &m->err);
}

static int too_many_floats(comm_member *m, int step)
{
    if (step != 1)
        return LS_OK;
    return m->gang->type->merge_ready(m->comm, NULL, m->leaf, m->total, FLOATS + 16, &m->err);
}

static void a_merge_that_goes_on_otherwise_is_refused(void **state)
{
    (void)state;
    static const struct {
        int (*between)(comm_member *m, int step);
        const char *text;
    } misuse[] = {{another_total, "another partial sum or another total"},
                  {another_gradient, "another partial sum or another total"},
                  {too_many_floats, "656 floats are complete, but an arena has 640"}};
    for (size_t i = 0; i < sizeof misuse / sizeof *misuse; i++) {
        comm_gang g = gang_of(RANKS);
        g.between = misuse[i].between;
        run(&g, &worlds[0]);
        assert_int_equal(comm_gang_status(&g), LS_EINVAL);
        assert_non_null(strstr(comm_gang_text(&g), misuse[i].text));
        comm_gang_free(&g);
    }
}

LS_TESTS(cuda_comm_ahead, "integration doubles no-asan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_ahead_changes_no_bit),
        cmocka_unit_test(no_order_of_work_changes_a_bit),
        cmocka_unit_test(before_the_first_merge_nothing_goes_ahead),
        cmocka_unit_test(buckets_are_merged_before_all_reduce_is_called),
        cmocka_unit_test(a_rank_that_fails_behind_its_buckets_releases_everybody),
        cmocka_unit_test(leaving_ends_what_was_begun),
        cmocka_unit_test(an_abort_in_mid_step_releases_everybody),
        cmocka_unit_test(a_rank_that_sleeps_behind_its_buckets_is_named),
        cmocka_unit_test(a_merge_that_goes_on_otherwise_is_refused),
    };
    return cmocka_run_group_tests_name("cuda_comm_ahead", tests, NULL, NULL);
}
