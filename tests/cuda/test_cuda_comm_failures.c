/* SPDX-License-Identifier: MIT */
/* Makes each call of the CUDA runtime and of NCCL in a merge (a sum of gradients) fail, lose the
 * device or take too long, one call after another. Each time, all workers must end with an error
 * within ten seconds. No memory may leak. No memory that NCCL may still use may be freed. No worker
 * may have completed a step that another worker has not completed. The CUDA runtime and NCCL are
 * simulated (tests/doubles). */
#include "base/clock.h"
#include "cuda/comm_gang.h"
#include "doubles/control.h"
#include "runner.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, STEPS = 2, FLOATS = 96 };
#define TEN_SECONDS 10000000000u

static const dbl_options world = {.mode = DBL_THREADS, .devices = RANKS, .nccl_polls = 1};

typedef struct kind {
    const char *name;
    const ls_comm_type *type;
    int shards, ahead;
    int gpus[RANKS];
} kind;

static const kind kinds[] = {
    {"ordered", &ls_cuda_comm_ordered, 5, 0, {0, 1, 2}},
    {"ordered, a GPU shared", &ls_cuda_comm_ordered, 5, 0, {0, 1, 1}},
    {"local", &ls_cuda_comm_local, 5, 0, {0, 0, 0}},
    {"nccl", &ls_cuda_comm_nccl, 5, 0, {0, 1, 2}},
    {"nccl, buckets ahead", &ls_cuda_comm_nccl, RANKS, 1, {0, 1, 2}},
};
/* three buckets are enqueued ahead, and then the rest */
static const size_t segments[] = {0, 16, 48, 80};

static int uses_one_gpu(const kind *k)
{
    return k->type == &ls_cuda_comm_local;
}

static comm_gang gang_of(const kind *k)
{
    return (comm_gang){.type = k->type,
                       .ranks = RANKS,
                       .shards = k->shards,
                       .steps = STEPS,
                       .floats = FLOATS,
                       .gpus = k->gpus,
                       .ahead = k->ahead,
                       .segments = segments,
                       .segment_count = 4,
                       .check = 1};
}

enum { FUNCTIONS = 128 };

/* Counts how often a run without failures calls each of the functions. */
static void count_calls(long calls[FUNCTIONS], const kind *k, const char *const *functions)
{
    comm_gang g = gang_of(k);
    dbl_begin(&world);
    comm_gang_run(&g);
    for (int f = 0; functions[f]; f++) {
        assert_true(f < FUNCTIONS);
        calls[f] = dbl_calls(functions[f]);
    }
    assert_string_equal(dbl_end(), "");
    assert_int_equal(comm_gang_status(&g), LS_OK);
    comm_gang_free(&g);
}

/* Checks that either all ranks or no rank has merged a step, and that the sums of merged steps are
 * right. */
static void check_steps(const comm_gang *g)
{
    float expected[FLOATS];
    for (int step = 0; step < STEPS && g->type->same_bits; step++) {
        comm_gang_expected(expected, RANKS, g->shards, step, FLOATS);
        for (int r = 0; r < RANKS; r++)
            if (g->member[r].steps_done > step)
                assert_memory_equal(g->member[r].result[step], expected, sizeof expected);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(g->member[r].merged, g->member[0].merged);
        if (g->member[r].status != LS_OK)
            assert_true(g->member[r].err.text[0] != 0);
    }
}

typedef void arm_fn(const char *function, int nth);

static void one_run(const kind *k, arm_fn *arm, const char *function, int nth, int must_fail)
{
    comm_gang g = gang_of(k);
    uint64_t start = ls_now_ns();
    dbl_begin(&world);
    arm(function, nth);
    comm_gang_run(&g);
    const char *wrong = dbl_end();
    if (wrong[0])
        fail_msg("%s on %s, call %d: %s", function, k->name, nth, wrong);
    if (ls_now_ns() - start >= TEN_SECONDS)
        fail_msg("%s on %s, call %d: took more than 10 s", function, k->name, nth);
    if (must_fail && comm_gang_status(&g) == LS_OK)
        fail_msg("%s on %s, call %d: nobody noticed", function, k->name, nth);
    if (g.group_status == LS_OK)
        check_steps(&g);
    comm_gang_free(&g);
}

/* Returns whether the failure of a call need not be reported. Most of these calls release an
 * object, also if they fail. A device that is closed waits for its two streams and ignores the
 * result. */
static int is_quiet(const char *function, long nth, long calls)
{
    if (strcmp(function, "cudaStreamSynchronize") == 0)
        return nth > calls - 2 * RANKS;
    return strstr(function, "Destroy") || strstr(function, "Free") || strstr(function, "Abort") ||
           strstr(function, "Version"); /* only for messages */
}

static void sweep(arm_fn *arm, int must_fail)
{
    const char *const *all = dbl_functions();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        long calls[FUNCTIONS];
        count_calls(calls, &kinds[k], all);
        for (int f = 0; all[f]; f++) {
            /* Tries the first calls, then fewer and fewer of the later ones. The number of polls
             * varies from run to run, so only the first three are tried. */
            int polled = strstr(all[f], "Query") || strstr(all[f], "GetAsyncError");
            long most = polled && calls[f] > 3 ? 3 : calls[f];
            for (long nth = 1; nth <= most; nth += 1 + nth / ls_tests_rounds(1, 4))
                one_run(&kinds[k], arm, all[f], (int)nth,
                        must_fail && !polled && !is_quiet(all[f], nth, calls[f]));
        }
    }
}

static void fail_nth(const char *function, int nth)
{
    dbl_fail(function, nth, 0);
}

static void each_call_that_fails_ends_in_an_error(void **state)
{
    (void)state;
    sweep(fail_nth, 1);
}

static void lose_nth(const char *function, int nth)
{
    dbl_lose_at(function, nth, 0);
}

static void a_device_that_is_lost_in_any_call_ends_in_an_error(void **state)
{
    (void)state;
    sweep(lose_nth, 0);
}

/* ---- stalls --------------------------------------------------------------------------------- */

/* number of launches that load the kernels of a merge while the ranks join; no rank waits for them
 */
enum { JOIN_LAUNCHES = 3 * RANKS };

static void go_on(comm_member *m)
{
    (void)m;
    dbl_go_on();
}

/* The delayed call ends when a rank that waits for it has given up, or after a second. (A rank that
 * gives up while it joins reports that only when all ranks have joined.) */
static void a_call_that_takes_too_long_times_the_group_out(void **state)
{
    (void)state;
    static const char *const functions[] = {"cudaEventRecord", "launch",
                                            "ncclGroupEnd",    "ncclCommInitRankConfig",
                                            "ncclAllReduce",   NULL};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        long calls[FUNCTIONS];
        count_calls(calls, &kinds[k], functions);
        for (int f = 0; functions[f]; f++) {
            const bool launches = strcmp(functions[f], "launch") == 0;
            if (calls[f] <= (launches ? JOIN_LAUNCHES : 0))
                continue;
            comm_gang g = gang_of(&kinds[k]);
            g.timeout_ns = 100000000;
            g.last = go_on;
            dbl_begin(&world);
            const long nth = launches ? calls[f] : (calls[f] + 1) / 2;
            dbl_stall(functions[f], (int)nth, 1000000000);
            comm_gang_run(&g);
            assert_string_equal(dbl_end(), "");
            if (comm_gang_status(&g) != LS_ETIMEDOUT)
                fail_msg("%s on %s: %s, expected a time-out", functions[f], kinds[k].name,
                         ls_status_name(comm_gang_status(&g)));
            comm_gang_free(&g);
        }
    }
}

static void stall_device_one(void)
{
    dbl_stall_streams(1);
}

/* The kernels of one GPU do not run. The wait of the GPU's worker ends nevertheless, and the worker
 * reports that its GPU may still read the memory of other ranks. */
static void a_gpu_that_hangs_times_the_group_out(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (uses_one_gpu(&kinds[k]))
            continue;
        comm_gang g = gang_of(&kinds[k]);
        g.check = 0;
        g.timeout_ns = 100000000;
        g.plant = stall_device_one;
        g.last = go_on;
        dbl_begin(&world);
        comm_gang_run(&g);
        assert_string_equal(dbl_end(), "");
        assert_int_equal(comm_gang_status(&g), LS_ETIMEDOUT);
        comm_gang_free(&g);
    }
}

/* ---- aborts --------------------------------------------------------------------------------- */

static comm_gang *to_abort;

static void abort_it(void)
{
    to_abort->type->abort(to_abort->group);
}

static void may_read_no_more(comm_member *m)
{
    const ls_comm_type *type = m->gang->type;
    ls_error err;
    assert_int_equal(type->may_read(m->gang->group, m->rank), 0);
    assert_int_equal(type->all_reduce(m->comm, NULL, m->fold.stack, 0, m->total, &m->times, &err),
                     LS_EABORTED);
}

static void an_abort_from_outside_releases_everybody(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        comm_gang g = gang_of(&kinds[k]);
        to_abort = &g;
        g.plant = abort_it;
        g.last = may_read_no_more;
        dbl_begin(&world);
        comm_gang_run(&g);
        assert_string_equal(dbl_end(), "");
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(g.member[r].status, LS_EABORTED);
        comm_gang_free(&g);
    }
}

/* ---- a rank whose GPU reads the memory of others --------------------------------------------- */

static void lose_whoever_asks_first(void)
{
    dbl_lose_at("cudaEventQuery", 1, 0);
}

/* A rank loses its GPU while it waits for the GPU. Work on a lost GPU no longer runs, so the rank
 * no longer reads. */
static void a_rank_whose_gpu_is_lost_reads_no_more(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        comm_gang g = gang_of(&kinds[k]);
        g.check = 0;
        g.plant = lose_whoever_asks_first;
        g.last = may_read_no_more;
        dbl_begin(&world);
        comm_gang_run(&g);
        assert_string_equal(dbl_end(), "");
        assert_int_equal(comm_gang_status(&g), LS_EDEVICE);
        comm_gang_free(&g);
    }
}

enum { MANY = 200 }; /* number of polls; a rank that has polled so often is waiting */

static pthread_t onlooker;
static int still_reads;

static void *abort_and_look_on(void *arg)
{
    comm_gang *g = arg;
    while (dbl_calls("cudaEventQuery") < MANY)
        sched_yield();
    g->type->abort(g->group);
    while (dbl_calls("cudaStreamQuery") < MANY && atomic_load(&g->returned) < RANKS)
        sched_yield();
    still_reads = atomic_load(&g->returned) < RANKS && g->type->may_read(g->group, 1);
    dbl_go_on();
    return NULL;
}

static void stall_device_one_and_look_on(void)
{
    dbl_stall_streams(1);
    assert_int_equal(pthread_create(&onlooker, NULL, abort_and_look_on, to_abort), 0);
}

/* An abort ends the waits of all ranks. A rank whose kernels do not run counts as reading until
 * they have run. */
static void a_gpu_that_hangs_reads_until_it_goes_on(void **state)
{
    (void)state;
    comm_gang g = gang_of(&kinds[0]);
    to_abort = &g;
    g.check = 0;
    g.plant = stall_device_one_and_look_on;
    dbl_begin(&world);
    comm_gang_run(&g);
    assert_int_equal(pthread_join(onlooker, NULL), 0);
    assert_string_equal(dbl_end(), "");
    assert_true(still_reads);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(g.member[r].status, LS_EABORTED);
    comm_gang_free(&g);
}

static void says_that_it_reads(comm_member *m)
{
    if (m->rank != 1)
        return;
    assert_int_equal(m->gang->type->may_read(m->gang->group, 1), 1);
    dbl_go_on();
}

/* The rank stops waiting after five seconds, but the work that it has enqueued may still run. */
static void a_rank_that_no_longer_waits_for_its_gpu_still_reads(void **state)
{
    (void)state;
    comm_gang g = gang_of(&kinds[0]);
    g.check = 0;
    g.timeout_ns = 100000000;
    g.plant = stall_device_one;
    g.last = says_that_it_reads;
    dbl_begin(&world);
    comm_gang_run(&g);
    assert_string_equal(dbl_end(), "");
    assert_int_equal(comm_gang_status(&g), LS_ETIMEDOUT);
    comm_gang_free(&g);
}

/* ---- the watchdog --------------------------------------------------------------------------- */

/* Rank 1 loses its GPU while it does not merge, and does not report the loss. */
static int lose_own_gpu(comm_member *m, int step)
{
    const ls_cuda_group *group = (const ls_cuda_group *)m->gang->group;
    if (m->rank != 1 || step != 1)
        return LS_OK;
    dbl_lose_device(1, 0);
    while (!ls_merge_aborted(&group->merge))
        sched_yield();
    return LS_OK;
}

static void a_gpu_that_is_lost_between_merges_ends_the_group(void **state)
{
    (void)state;
    comm_gang g = gang_of(&kinds[0]);
    g.between = lose_own_gpu;
    g.timeout_ns = TEN_SECONDS;
    dbl_begin(&world);
    comm_gang_run(&g);
    assert_string_equal(dbl_end(), "");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(g.member[r].status, LS_EABORTED); /* no rank has timed out */
    comm_gang_free(&g);
}

/* While the watchdog aborts the communicators, which can take long, no rank waits for it in a call
 * that has no deadline. */
static void a_rank_does_not_wait_for_an_abort(void **state)
{
    ls_barrier barrier;
    ls_cuda_links *links = NULL;
    ls_cuda_link link;
    ls_error err = {0};
    (void)state;
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 1});
    assert_int_equal(ls_barrier_init(&barrier, NULL, 1, 0, &err), LS_OK);
    assert_int_equal(ls_cuda_links_create(&links, &barrier, 1, NULL, &err), LS_OK);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(
        ls_cuda_links_connect(links, 0, (ls_cuda_peer){0, 1}, ls_deadline_ns(TEN_SECONDS), &err),
        LS_OK);
    dbl_stall("ncclCommAbort", 1, 8000000000u);
    ls_barrier_abort(&barrier);
    ls_cuda_links_wake(links);
    while (dbl_calls("ncclCommAbort") == 0)
        sched_yield();
    const uint64_t start = ls_now_ns();
    const int status = ls_cuda_links_begin(&link, links, 0, &err);
    const uint64_t took = ls_now_ns() - start;
    dbl_go_on();
    if (status == LS_OK)
        (void)ls_cuda_links_end(links, 0, ncclSuccess, 0, &err);
    ls_cuda_links_destroy(links);
    ls_barrier_fini(&barrier);
    assert_string_equal(dbl_end(), "");
    assert_int_equal(status, LS_EABORTED);
    assert_true(took < 4000000000u);
}

LS_TESTS(cuda_comm_failures, "integration doubles no-tsan budget:30")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_that_fails_ends_in_an_error),
        cmocka_unit_test(a_device_that_is_lost_in_any_call_ends_in_an_error),
        cmocka_unit_test(a_call_that_takes_too_long_times_the_group_out),
        cmocka_unit_test(a_gpu_that_hangs_times_the_group_out),
        cmocka_unit_test(an_abort_from_outside_releases_everybody),
        cmocka_unit_test(a_rank_whose_gpu_is_lost_reads_no_more),
        cmocka_unit_test(a_gpu_that_hangs_reads_until_it_goes_on),
        cmocka_unit_test(a_gpu_that_is_lost_between_merges_ends_the_group),
        cmocka_unit_test(a_rank_does_not_wait_for_an_abort),
    };
    return cmocka_run_group_tests_name("cuda_comm_failures", tests, NULL, NULL);
}

LS_TESTS_LONG(cuda_comm_failures, "nightly doubles no-asan no-tsan budget:60")

LS_TESTS(cuda_comm_patience, "nightly doubles no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_no_longer_waits_for_its_gpu_still_reads),
    };
    return cmocka_run_group_tests_name("cuda_comm_patience", tests, NULL, NULL);
}
