/* SPDX-License-Identifier: MIT */
/* Tests the barrier: no thread leaves a round before all have arrived, and every round ends in the
 * same way, completed or aborted, for all threads. */
#include "sync/barrier.h"

#include "base/clock.h"
#include "runner.h"
#include "times.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define RANKS_MAX 8

/* Everything that a group of ranks shares. The counters are plain memory, which only the barrier
 * protects. ThreadSanitizer checks that protection. */
struct group {
    ls_barrier barrier;
    int ranks;
    int rounds;
    unsigned seed;
    int counters[RANKS_MAX];
    int wrong[RANKS_MAX];
    int released[RANKS_MAX]; /* number of waits that returned LS_OK, for each rank */
    int verdict[RANKS_MAX];  /* status of the first wait that did not return LS_OK */
    uint64_t deadline_ns;
    _Atomic int running;
};

struct member {
    struct group *group;
    int rank;
};

static void start(pthread_t *t, struct member *m, struct group *g, void *(*run)(void *))
{
    for (int i = 0; i < g->ranks; i++) {
        m[i] = (struct member){g, i};
        assert_int_equal(pthread_create(&t[i], NULL, run, &m[i]), 0);
    }
}

/* Waits until `ranks` ranks have arrived. The low sixteen bits of the barrier's word are that
 * number. */
static void until_there(ls_barrier *barrier, uint64_t ranks)
{
    while ((atomic_load(&barrier->state) & 0xFFFF) < ranks)
        nap(1);
}

static void join(pthread_t *t, const struct group *g)
{
    for (int i = 0; i < g->ranks; i++)
        pthread_join(t[i], NULL);
}

/* Each rank increments its counter, waits at the barrier, and then checks the counters of all
 * ranks. A second wait ends the round before any rank increments its counter again. */
static void *count_together(void *arg)
{
    struct member *m = arg;
    struct group *g = m->group;
    for (int round = 1; round <= g->rounds; round++) {
        g->counters[m->rank]++;
        g->wrong[m->rank] += ls_barrier_wait(&g->barrier, m->rank, UINT64_MAX, NULL) != LS_OK;
        for (int i = 0; i < g->ranks; i++)
            g->wrong[m->rank] += g->counters[i] != round;
        g->wrong[m->rank] += ls_barrier_wait(&g->barrier, m->rank, UINT64_MAX, NULL) != LS_OK;
    }
    return NULL;
}

static void barrier_separates_rounds(void **state)
{
    (void)state;
    /* `rounds`: number of rounds in a short run of the tests; `more`: in a long run */
    static const struct {
        int ranks;
        unsigned rounds, more, spins;
    } cases[] = {{1, 1000, 1000, 0},
                 {2, 20000, 100000, 300},
                 {2, 2000, 20000, 0},
                 {3, 1000, 5000, 0},
                 {8, 400, 2000, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct group g = {.ranks = cases[c].ranks,
                          .rounds = (int)ls_tests_rounds(cases[c].rounds, cases[c].more)};
        pthread_t t[RANKS_MAX];
        struct member m[RANKS_MAX];
        assert_int_equal(ls_barrier_init(&g.barrier, NULL, g.ranks, cases[c].spins, NULL), LS_OK);
        start(t, m, &g, count_together);
        join(t, &g);
        for (int i = 0; i < g.ranks; i++)
            assert_int_equal(g.wrong[i], 0);
        ls_barrier_fini(&g.barrier);
    }
}

/* Runs rounds until the barrier is aborted or a deadline passes. Records the number of completed
 * rounds and the status that ended the last one. */
static void *run_until_broken(void *arg)
{
    struct member *m = arg;
    struct group *g = m->group;
    unsigned seed = g->seed + (unsigned)m->rank;
    int rc;
    do {
        seed = seed * 1664525u + 1013904223u;
        for (volatile unsigned i = seed >> 22; i > 0; i--)
            ;
        g->counters[m->rank]++; /* plain memory: the barrier makes it visible to the other ranks */
        rc = ls_barrier_wait(&g->barrier, m->rank, g->deadline_ns, NULL);
        if (rc == LS_OK) {
            for (int i = 0; i < g->ranks; i++)
                g->wrong[m->rank] += g->counters[i] < g->released[m->rank] + 1;
            g->released[m->rank]++;
            rc = ls_barrier_wait(&g->barrier, m->rank, g->deadline_ns, NULL);
            if (rc == LS_OK)
                continue;
        }
        g->verdict[m->rank] = rc;
    } while (rc == LS_OK);
    atomic_fetch_sub(&g->running, 1);
    return NULL;
}

/* Waits until the barrier is aborted or a deadline passes. The counter `released` counts waits
 * here. (A round of run_until_broken has two waits, and the barrier can be aborted between
 * them.) */
static void *wait_until_broken(void *arg)
{
    struct member *m = arg;
    struct group *g = m->group;
    unsigned seed = g->seed * 31 + (unsigned)m->rank;
    int rc;
    while ((rc = ls_barrier_wait(&g->barrier, m->rank, g->deadline_ns, NULL)) == LS_OK) {
        g->released[m->rank]++;
        seed = seed * 1664525u + 1013904223u;
        for (volatile unsigned i = seed >> 22; i > 0; i--)
            ;
    }
    g->verdict[m->rank] = rc;
    g->wrong[m->rank] += ls_barrier_wait(&g->barrier, m->rank, UINT64_MAX, NULL) != LS_EABORTED;
    return NULL;
}

/* Checks that the same number of waits succeeded on all ranks, and that the next wait failed on all
 * ranks. *timeouts receives the number of ranks whose wait returned LS_ETIMEDOUT. */
static void check_agreement(const struct group *g, int *timeouts)
{
    *timeouts = 0;
    for (int i = 0; i < g->ranks; i++) {
        assert_int_equal(g->released[i], g->released[0]);
        assert_int_equal(g->wrong[i], 0);
        assert_true(g->verdict[i] == LS_EABORTED || g->verdict[i] == LS_ETIMEDOUT);
        *timeouts += g->verdict[i] == LS_ETIMEDOUT;
    }
}

static void break_at_random(int ranks, unsigned spins, unsigned epochs, int by_timeout)
{
    static struct group g;
    unsigned seed = 7;
    g.ranks = ranks;
    epochs = ls_tests_rounds(epochs, 4 * epochs);
    for (unsigned epoch = 0; epoch < epochs; epoch++) {
        pthread_t t[RANKS_MAX];
        struct member m[RANKS_MAX];
        int timeouts;
        seed = seed * 1664525u + 1013904223u;
        memset(g.released, 0, sizeof g.released);
        memset(g.wrong, 0, sizeof g.wrong);
        g.seed = seed;
        uint64_t pause = seed >> 12; /* in nanoseconds, up to a millisecond */
        g.deadline_ns = by_timeout ? ls_deadline_ns(pause) : UINT64_MAX;
        assert_int_equal(ls_barrier_init(&g.barrier, NULL, ranks, spins, NULL), LS_OK);
        start(t, m, &g, wait_until_broken);
        if (!by_timeout) {
            uint64_t until = ls_deadline_ns(pause);
            while (ls_now_ns() < until)
                ;
            ls_barrier_abort(&g.barrier);
        }
        join(t, &g);
        check_agreement(&g, &timeouts);
        assert_int_equal(timeouts, by_timeout ? 1 : 0);
        ls_barrier_fini(&g.barrier);
    }
}

static void an_abort_at_any_moment_is_the_same_for_all(void **state)
{
    (void)state;
    break_at_random(2, 300, 100, 0);
    break_at_random(4, 0, 100, 0);
    break_at_random(8, 0, 50, 0);
}

static void a_timeout_at_any_moment_is_the_same_for_all(void **state)
{
    (void)state;
    break_at_random(2, 300, 100, 1);
    break_at_random(4, 0, 100, 1);
    break_at_random(8, 0, 50, 1);
}

/* Aborts the barrier after a random time, while ranks use it in rounds that protect plain data. */
static void *break_repeatedly(void *arg)
{
    struct group *g = arg;
    unsigned seed = g->seed;
    seed = seed * 1664525u + 1013904223u;
    nap(1 + (long)(seed >> 28));
    ls_barrier_abort(&g->barrier);
    return NULL;
}

static void data_is_protected_over_many_rounds_with_random_aborts(void **state)
{
    (void)state;
    static struct group g;
    const long wanted = ls_tests_rounds(10000, 100000);
    long rounds = 0;
    uint64_t stop = ls_deadline_ns(15000 * MS); /* slow machines do fewer rounds in 15 s */
    g.ranks = 2;
    g.deadline_ns = UINT64_MAX;
    for (unsigned epoch = 0; rounds < wanted && ls_now_ns() < stop; epoch++) {
        pthread_t t[RANKS_MAX], breaker;
        struct member m[RANKS_MAX];
        memset(g.counters, 0, sizeof g.counters);
        memset(g.released, 0, sizeof g.released);
        g.seed = epoch;
        assert_int_equal(ls_barrier_init(&g.barrier, NULL, 2, 300, NULL), LS_OK);
        start(t, m, &g, run_until_broken);
        assert_int_equal(pthread_create(&breaker, NULL, break_repeatedly, &g), 0);
        join(t, &g);
        pthread_join(breaker, NULL);
        assert_int_equal(g.released[0], g.released[1]);
        assert_int_equal(g.wrong[0] + g.wrong[1], 0);
        rounds += 2L * g.released[0];
        ls_barrier_fini(&g.barrier);
    }
    assert_true(rounds > 1000);
}

static void *wait_once(void *arg)
{
    struct member *m = arg;
    struct group *g = m->group;
    g->verdict[m->rank] = ls_barrier_wait(&g->barrier, m->rank, UINT64_MAX, NULL);
    return NULL;
}

static void a_timeout_names_the_missing_ranks(void **state)
{
    (void)state;
    struct group g = {.ranks = 2};
    pthread_t t[RANKS_MAX];
    struct member m[RANKS_MAX];
    ls_error err;
    assert_int_equal(ls_barrier_init(&g.barrier, NULL, 5, 0, NULL), LS_OK);
    start(t, m, &g, wait_once);
    until_there(&g.barrier, 2);
    uint64_t deadline = ls_deadline_ns(20 * MS);
    assert_int_equal(ls_barrier_wait(&g.barrier, 3, deadline, &err), LS_ETIMEDOUT);
    assert_true(ls_now_ns() >= deadline);
    assert_string_equal(err.text, "the deadline passed at a barrier with 3 of 5 ranks there; "
                                  "missing: 2, 4");
    join(t, &g);
    assert_int_equal(g.verdict[0], LS_EABORTED);
    assert_int_equal(g.verdict[1], LS_EABORTED);
    assert_true(ls_barrier_arrived(&g.barrier, 3));
    assert_false(ls_barrier_arrived(&g.barrier, 4));
    assert_int_equal(ls_barrier_wait(&g.barrier, 4, UINT64_MAX, &err), LS_EABORTED);
    assert_true(ls_barrier_arrived(&g.barrier, 4));
    ls_barrier_fini(&g.barrier);
}

static void a_long_list_of_missing_ranks_is_cut(void **state)
{
    (void)state;
    ls_barrier b;
    ls_error err;
    assert_int_equal(ls_barrier_init(&b, NULL, 1000, 0, NULL), LS_OK);
    assert_int_equal(ls_barrier_wait(&b, 0, 1, &err), LS_ETIMEDOUT);
    assert_non_null(strstr(err.text, "1 of 1000 ranks there; missing: 1, 2, 3"));
    assert_non_null(strstr(err.text, ", …"));
    ls_barrier_fini(&b);
}

static void abort_reaches_sleepers_and_latecomers_for_good(void **state)
{
    (void)state;
    struct group g = {.ranks = 2};
    pthread_t t[RANKS_MAX];
    struct member m[RANKS_MAX];
    ls_error err;
    assert_int_equal(ls_barrier_init(&g.barrier, NULL, 3, 0, NULL), LS_OK);
    start(t, m, &g, wait_once);
    until_there(&g.barrier, 2);
    assert_false(ls_barrier_aborted(&g.barrier));
    ls_barrier_abort(&g.barrier);
    ls_barrier_abort(&g.barrier);
    join(t, &g);
    assert_int_equal(g.verdict[0], LS_EABORTED);
    assert_int_equal(g.verdict[1], LS_EABORTED);
    assert_int_equal(ls_barrier_wait(&g.barrier, 2, UINT64_MAX, &err), LS_EABORTED);
    assert_string_equal(err.text, "the barrier was aborted");
    assert_true(ls_barrier_aborted(&g.barrier));
    ls_barrier_fini(&g.barrier);
}

static void a_past_deadline_still_releases_the_last_rank(void **state)
{
    (void)state;
    struct group g = {.ranks = 1};
    pthread_t t[RANKS_MAX];
    struct member m[RANKS_MAX];
    assert_int_equal(ls_barrier_init(&g.barrier, NULL, 2, 0, NULL), LS_OK);
    start(t, m, &g, wait_once);
    until_there(&g.barrier, 1);
    assert_int_equal(ls_barrier_wait(&g.barrier, 1, 0, NULL), LS_OK);
    join(t, &g);
    assert_int_equal(g.verdict[0], LS_OK);
    ls_barrier_fini(&g.barrier);
}

static void barrier_refuses_absurd_sizes(void **state)
{
    (void)state;
    ls_barrier b;
    ls_error err;
    assert_int_equal(ls_barrier_init(&b, NULL, 0, 0, &err), LS_EINVAL);
    ls_barrier_fini(&b);
    assert_int_equal(ls_barrier_init(&b, NULL, 65536, 0, &err), LS_EINVAL);
    assert_string_equal(err.text, "a barrier for 65536 ranks: expected 1 to 65535");
}

LS_TESTS(sync_barrier, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_separates_rounds),
        cmocka_unit_test(an_abort_at_any_moment_is_the_same_for_all),
        cmocka_unit_test(a_timeout_at_any_moment_is_the_same_for_all),
        cmocka_unit_test(data_is_protected_over_many_rounds_with_random_aborts),
        cmocka_unit_test(a_timeout_names_the_missing_ranks),
        cmocka_unit_test(a_long_list_of_missing_ranks_is_cut),
        cmocka_unit_test(abort_reaches_sleepers_and_latecomers_for_good),
        cmocka_unit_test(a_past_deadline_still_releases_the_last_rank),
        cmocka_unit_test(barrier_refuses_absurd_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(sync_barrier, "nightly no-asan")
