/* SPDX-License-Identifier: MIT */
/* Tests workers that run on threads of the program that uses the library: on threads that it lends
 * to the pool, and on the calling thread as worker 0. Also tests the pool's counters. */
#include <lockstep/pool.h>

#include "pool/pool.h"
#include "runner.h"
#include "times.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define WORKERS_MAX 8

/* Results of hooks and jobs: plain memory, whose visibility the pool guarantees. */
struct scene {
    ls_pool *pool;
    int runs[WORKERS_MAX];
    pthread_t ran_on[WORKERS_MAX], started_on[WORKERS_MAX], stopped_on[WORKERS_MAX];
    int local[WORKERS_MAX];
    _Atomic int starts, stops;
    _Atomic int failures_left; /* number of start hooks that still have to fail */
    _Atomic int starting;      /* number of start hooks that have begun */
    _Atomic int start_open;    /* start hooks wait until it is not 0 */
    _Atomic int entered, open; /* used by the job `hold`: number of jobs that have begun; the jobs
                                * end when `open` is set */
};

static int start_hook(ls_worker *w, void *user, ls_error *err)
{
    struct scene *s = user;
    atomic_fetch_add(&s->starting, 1);
    while (!atomic_load(&s->start_open))
        nap(1);
    s->started_on[w->index] = pthread_self();
    s->local[w->index]++;
    w->local = &s->local[w->index];
    if (atomic_fetch_sub(&s->failures_left, 1) > 0) {
        snprintf(err->text, sizeof err->text, "worker %d is not in the mood", w->index);
        return LS_EDEVICE;
    }
    atomic_fetch_add(&s->starts, 1);
    return LS_OK;
}

static void stop_hook(ls_worker *w, void *user)
{
    struct scene *s = user;
    s->stopped_on[w->index] = pthread_self();
    atomic_fetch_add(&s->stops, 1);
}

static int note(const ls_worker *w, void *arg, ls_error *err)
{
    struct scene *s = arg;
    (void)err;
    s->runs[w->index]++;
    s->ran_on[w->index] = pthread_self();
    return LS_OK;
}

static int hold(const ls_worker *w, void *arg, ls_error *err)
{
    struct scene *s = arg;
    (void)w;
    (void)err;
    atomic_fetch_add(&s->entered, 1);
    while (!atomic_load(&s->open))
        nap(1);
    return LS_OK;
}

static int refuse(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)arg;
    snprintf(err->text, sizeof err->text, "no");
    return LS_EDATA;
}

static void begin(struct scene *s, ls_pool_options o)
{
    ls_error err;
    memset(s, 0, sizeof *s);
    atomic_store(&s->start_open, 1);
    o.size = sizeof o;
    o.start = start_hook;
    o.stop = stop_hook;
    o.user = s;
    if (ls_pool_create(&s->pool, &o, &err) != LS_OK)
        fail_msg("%s", err.text);
}

/* A thread of the host program that serves a worker. */
struct lender {
    struct scene *scene;
    int worker;
    int status;
    ls_error err;
    pthread_t thread;
    sigset_t mask_before, mask_after;
};

static void *lend(void *arg)
{
    struct lender *l = arg;
    pthread_sigmask(SIG_BLOCK, NULL, &l->mask_before);
    l->status = ls_pool_serve(l->scene->pool, l->worker, &l->err);
    pthread_sigmask(SIG_BLOCK, NULL, &l->mask_after);
    return l;
}

static void start_lender(struct lender *l, struct scene *s, int worker)
{
    l->scene = s;
    l->worker = worker;
    l->status = 1;
    assert_int_equal(pthread_create(&l->thread, NULL, lend, l), 0);
}

/* ---- lent threads --------------------------------------------------------------------------- */

static void lent_threads_run_jobs_and_come_back(void **state)
{
    (void)state;
    struct scene s;
    struct lender l[3];
    begin(&s, (ls_pool_options){.workers = 3, .borrowed = 3});
    for (int i = 0; i < 3; i++)
        start_lender(&l[i], &s, i);
    for (int round = 1; round <= 300; round++) {
        assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(s.runs[i], round);
    }
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(pthread_equal(s.ran_on[i], l[i].thread));
        assert_true(pthread_equal(s.started_on[i], l[i].thread));
        assert_true(pthread_equal(s.stopped_on[i], l[i].thread));
        pthread_join(l[i].thread, NULL);
        assert_int_equal(l[i].status, LS_OK);
        assert_int_equal(sigismember(&l[i].mask_after, SIGINT), 0);
    }
    assert_int_equal(atomic_load(&s.stops), 3);
}

static void own_and_lent_workers_and_the_caller_share_a_pool(void **state)
{
    (void)state;
    struct scene s;
    struct lender l;
    begin(&s, (ls_pool_options){.workers = 4, .borrowed = 1, .caller_works = 1});
    start_lender(&l, &s, 3);
    assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    assert_true(pthread_equal(s.ran_on[0], pthread_self()));
    assert_false(pthread_equal(s.ran_on[1], pthread_self()));
    assert_true(pthread_equal(s.ran_on[3], l.thread));
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_true(pthread_equal(s.stopped_on[0], pthread_self()));
    pthread_join(l.thread, NULL);
    assert_int_equal(atomic_load(&s.stops), 4);
}

static void jobs_wait_for_their_thread(void **state)
{
    (void)state;
    struct scene s;
    struct lender l;
    ls_error err;
    begin(&s, (ls_pool_options){.workers = 1, .borrowed = 1});
    assert_int_equal(ls_pool_run(s.pool, note, &s, 20 * MS, &err), LS_ETIMEDOUT);
    assert_string_equal(err.text, "the time limit passed with unfinished jobs: worker 0 (1 job)");
    start_lender(&l, &s, 0);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(s.runs[0], 1);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    pthread_join(l.thread, NULL);
}

static void a_worker_that_nobody_serves_does_not_hold_up_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scene s;
        begin(&s, (ls_pool_options){.workers = 2, .borrowed = 1});
        assert_int_equal(ls_pool_submit(s.pool, 1, note, &s, NULL), LS_OK);
        assert_int_equal(ls_pool_destroy(s.pool, i ? LS_FOREVER : 600000 * MS, NULL), LS_OK);
        assert_int_equal(s.runs[1], 0);
        assert_int_equal(atomic_load(&s.stops), 1);
    }
}

static void one_thread_serves_a_worker_and_no_other(void **state)
{
    (void)state;
    struct scene s;
    struct lender l;
    ls_error err;
    begin(&s, (ls_pool_options){.workers = 3, .borrowed = 2});
    start_lender(&l, &s, 2);
    assert_int_equal(ls_pool_submit(s.pool, 2, note, &s, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(ls_pool_serve(s.pool, 2, &err), LS_EAGAIN);
    assert_string_equal(err.text, "worker 2 is served by another thread");
    assert_int_equal(ls_pool_serve(s.pool, 0, &err), LS_EINVAL);
    assert_string_equal(err.text, "worker 0 is not borrowed: 2 of 3 are, the last ones");
    assert_int_equal(ls_pool_serve(s.pool, 3, &err), LS_EINVAL);
    assert_int_equal(ls_pool_serve(s.pool, -1, &err), LS_EINVAL);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    pthread_join(l.thread, NULL);
}

static void a_start_hook_that_fails_leaves_the_worker_to_another_thread(void **state)
{
    (void)state;
    struct scene s;
    struct lender l;
    ls_error err;
    begin(&s, (ls_pool_options){.workers = 1, .borrowed = 1});
    atomic_store(&s.failures_left, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_pool_serve(s.pool, 0, &err), LS_EDEVICE);
        assert_string_equal(err.text, "worker 0 is not in the mood");
        assert_int_equal(err.status, LS_EDEVICE);
    }
    /* a failed start hook of a lent thread is not an error of the pool */
    assert_int_equal(ls_pool_first_error(s.pool, NULL, NULL), LS_OK);
    start_lender(&l, &s, 0);
    assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(s.local[0], 3);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    pthread_join(l.thread, NULL);
    assert_int_equal(atomic_load(&s.stops), 1);
}

/* The sanitizers check here that the pool is freed only after the lent threads have left it. */
static void the_end_waits_until_lent_threads_are_out(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        struct scene s;
        struct lender l[2];
        begin(&s, (ls_pool_options){.workers = 2, .borrowed = 2});
        for (int w = 0; w < 2; w++)
            start_lender(&l[w], &s, w);
        assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
        for (int w = 0; w < 2; w++) {
            pthread_join(l[w].thread, NULL);
            assert_int_equal(l[w].status, LS_OK);
        }
    }
}

static void *keep[4]; /* memory that an abandoned thread can still use; the pointers tell leak
                       * checkers that it is not lost */

static void a_lent_thread_that_hangs_is_left_behind_and_told_so(void **state)
{
    (void)state;
    static struct scene s;
    struct lender l;
    ls_error err;
    begin(&s, (ls_pool_options){.workers = 1, .borrowed = 1});
    keep[0] = s.pool;
    start_lender(&l, &s, 0);
    assert_int_equal(ls_pool_submit(s.pool, 0, hold, &s, NULL), LS_OK);
    while (atomic_load(&s.entered) == 0)
        nap(1);
    assert_int_equal(ls_pool_destroy(s.pool, 20 * MS, &err), LS_ESTALLED);
    assert_string_equal(err.text, "still running when the pool was destroyed: "
                                  "worker 0 (1 job)");
    atomic_store(&s.open, 1);
    pthread_join(l.thread, NULL);
    assert_int_equal(l.status, LS_ESTALLED);
    assert_string_equal(l.err.text, "the pool was destroyed without waiting for the thread lent as "
                                    "worker 0");
    assert_int_equal(atomic_load(&s.stops), 0);
}

static void a_lent_thread_that_hangs_in_its_start_hook_is_left_behind(void **state)
{
    (void)state;
    static struct scene s;
    struct lender l;
    begin(&s, (ls_pool_options){.workers = 1, .borrowed = 1});
    keep[1] = s.pool;
    atomic_store(&s.start_open, 0);
    start_lender(&l, &s, 0);
    while (atomic_load(&s.starting) == 0)
        nap(1);
    assert_int_equal(ls_pool_destroy(s.pool, 20 * MS, NULL), LS_ESTALLED);
    atomic_store(&s.start_open, 1);
    pthread_join(l.thread, NULL);
    assert_int_equal(l.status, LS_ESTALLED);
    assert_int_equal(atomic_load(&s.stops), 0);
}

static void an_abandoned_lent_worker_comes_back_at_the_end(void **state)
{
    (void)state;
    struct scene s;
    struct lender l;
    begin(&s, (ls_pool_options){.workers = 2, .borrowed = 1});
    start_lender(&l, &s, 1);
    assert_int_equal(ls_pool_submit(s.pool, 1, hold, &s, NULL), LS_OK);
    while (atomic_load(&s.entered) == 0)
        nap(1);
    assert_int_equal(ls_pool_abandon(s.pool, 1, NULL), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    atomic_store(&s.open, 1);
    assert_int_equal(ls_pool_destroy(s.pool, 600000 * MS, NULL), LS_OK);
    pthread_join(l.thread, NULL);
    assert_int_equal(l.status, LS_OK);
    assert_int_equal(s.runs[1], 0);
}

/* ---- the caller ----------------------------------------------------------------------------- */

static void the_caller_runs_its_jobs_in_order_and_only_when_it_waits(void **state)
{
    (void)state;
    struct scene s;
    for (int workers = 1; workers <= 3; workers++) {
        begin(&s, (ls_pool_options){.workers = workers, .caller_works = 1, .inbox = 4});
        assert_true(pthread_equal(s.started_on[0], pthread_self()));
        for (int i = 0; i < 4; i++)
            assert_int_equal(ls_pool_submit(s.pool, 0, note, &s, NULL), LS_OK);
        assert_int_equal(ls_pool_submit(s.pool, 0, note, &s, NULL), LS_EAGAIN);
        assert_int_equal(s.runs[0], 0);
        assert_int_equal(ls_pool_busy(s.pool, 0), 4);
        assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(s.runs[0], 5); /* ls_pool_run works although the inbox of worker 0 is
                                         * full */
        assert_int_equal(ls_pool_submit(s.pool, 0, note, &s, NULL), LS_OK);
        assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(s.runs[0], 6);
        assert_int_equal(ls_pool_submit(s.pool, 0, note, &s, NULL), LS_OK);
        assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL),
                         LS_OK); /* runs the queued job */
        assert_int_equal(s.runs[0], 7);
        assert_int_equal(atomic_load(&s.stops), workers);
    }
}

static int cpus_of_caller(void)
{
    static ls_cpus cpus;
    assert_int_equal(ls_cpus_allowed(&cpus, "", NULL), LS_OK);
    return cpus.count;
}

static void the_callers_mask_and_affinity_stay_as_they_are(void **state)
{
    (void)state;
    struct scene s;
    sigset_t mask;
    int before = cpus_of_caller();
    begin(&s, (ls_pool_options){.workers = 2, .caller_works = 1});
    assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGINT), 0);
    assert_int_equal(cpus_of_caller(), before);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
}

static void errors_cancels_and_limits_reach_the_caller_too(void **state)
{
    (void)state;
    struct scene s;
    ls_error err;
    int worker = -5;
    begin(&s, (ls_pool_options){.workers = 2, .caller_works = 1});
    assert_int_equal(ls_pool_submit(s.pool, 0, refuse, NULL, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, &err), LS_EDATA);
    assert_string_equal(err.text, "no");
    assert_int_equal(ls_pool_first_error(s.pool, &worker, NULL), LS_EDATA);
    assert_int_equal(worker, 0);
    assert_int_equal(ls_pool_clear(s.pool, NULL), LS_OK);

    assert_int_equal(ls_pool_submit(s.pool, 0, note, &s, NULL), LS_OK);
    ls_pool_cancel(s.pool);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_ECANCELED);
    assert_int_equal(s.runs[0], 0);
    assert_int_equal(ls_pool_clear(s.pool, NULL), LS_OK);

    assert_int_equal(ls_pool_submit(s.pool, 1, hold, &s, NULL), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, note, &s, 20 * MS, &err), LS_ETIMEDOUT);
    assert_int_equal(s.runs[0], 1); /* the owner's own part (worker 0) is done */
    atomic_store(&s.open, 1);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(s.runs[1], 1);
    assert_int_equal(ls_pool_abandon(s.pool, 0, &err), LS_EINVAL);
    assert_string_equal(err.text, "worker 0 runs on the owner's thread and cannot be abandoned");
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
}

static void a_callers_start_hook_that_fails_unwinds_the_others(void **state)
{
    (void)state;
    struct scene s;
    memset(&s, 0, sizeof s);
    atomic_store(&s.start_open, 1);
    atomic_store(&s.failures_left, 3);
    ls_pool_options o = {.size = sizeof o,
                         .workers = 3,
                         .caller_works = 1,
                         .start = start_hook,
                         .stop = stop_hook,
                         .user = &s};
    assert_int_equal(ls_pool_create(&s.pool, &o, NULL), LS_EDEVICE);
    assert_null(s.pool);
    assert_int_equal(atomic_load(&s.stops), 0);
    atomic_store(&s.failures_left, 1);
    assert_int_equal(ls_pool_create(&s.pool, &o, NULL), LS_EDEVICE);
    assert_int_equal(atomic_load(&s.stops), 2);
}

static void bad_shares_are_refused(void **state)
{
    (void)state;
    ls_pool *pool;
    ls_error err;
    ls_pool_options o = {.size = sizeof o, .workers = 2, .borrowed = 3};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_string_equal(err.text, "3 borrowed workers of 2: expected 0 to 2");
    o.borrowed = 2;
    o.caller_works = 1;
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_string_equal(err.text, "2 borrowed workers of 2: expected 0 to 1");
    o.borrowed = -1;
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
}

/* A program can have been built when the structure of the options had fewer fields. */
static void options_of_an_older_size_are_taken(void **state)
{
    (void)state;
    ls_pool *pool;
    ls_pool_options o;
    memset(&o, 0xff, sizeof o);
    memset(&o, 0, offsetof(ls_pool_options, caller_works));
    o.size = offsetof(ls_pool_options, caller_works);
    o.workers = 2;
    struct scene s = {.pool = NULL};
    assert_int_equal(ls_pool_create(&pool, &o, NULL), LS_OK);
    assert_int_equal(ls_pool_run(pool, note, &s, LS_FOREVER, NULL), LS_OK);
    assert_false(pthread_equal(s.ran_on[0], pthread_self()));
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

/* ---- statistics ----------------------------------------------------------------------------- */

static ls_pool_stats stats_of(const ls_pool *pool, int worker)
{
    ls_pool_stats st = {.size = sizeof st};
    assert_int_equal(ls_pool_get_stats(pool, worker, &st, NULL), LS_OK);
    return st;
}

/* Waits until the worker has slept `sleeps` times. A worker that has nothing to do goes to sleep
 * soon. */
static void wait_for_sleep(const ls_pool *pool, int worker, uint64_t sleeps)
{
    for (int i = 0; i < 10000 && stats_of(pool, worker).sleeps < sleeps; i++)
        nap(1);
    assert_true(stats_of(pool, worker).sleeps >= sleeps);
    assert_true(stats_of(pool, worker).waits >= 1);
}

static void statistics_count_what_happened(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, (ls_pool_options){.workers = 3, .caller_works = 1});
    for (int i = 0; i < 10; i++)
        assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_pool_submit(s.pool, 1, refuse, NULL, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_EDATA);
    ls_pool_stats one = stats_of(s.pool, 1), all = stats_of(s.pool, -1);
    assert_int_equal(one.submitted, 13);
    assert_int_equal(one.run, 13);
    assert_int_equal(one.failed, 3);
    assert_int_equal(one.dropped, 0);
    assert_int_equal(one.busy_ns, 0); /* not measured, because time_jobs is not set */
    assert_int_equal(all.submitted, 33);
    assert_int_equal(all.run, 33);

    wait_for_sleep(s.pool, 2, 1);
    uint64_t sleeps = stats_of(s.pool, 2).sleeps;
    assert_int_equal(ls_pool_submit(s.pool, 2, note, &s, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_EDATA);
    wait_for_sleep(s.pool, 2, sleeps + 1);

    assert_int_equal(ls_pool_clear(s.pool, NULL), LS_OK);
    assert_int_equal(ls_pool_submit(s.pool, 1, hold, &s, NULL), LS_OK);
    while (atomic_load(&s.entered) == 0)
        nap(1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ls_pool_submit(s.pool, 1, note, &s, NULL), LS_OK);
    ls_pool_cancel(s.pool);
    atomic_store(&s.open, 1);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_ECANCELED);
    one = stats_of(s.pool, 1);
    assert_int_equal(one.dropped, 5);
    assert_int_equal(one.run, 14);
    assert_int_equal(one.submitted, 19);
    ls_pool_destroy(s.pool, LS_FOREVER, NULL);
}

static int busy_for_10_ms(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)arg;
    (void)err;
    nap(10);
    return LS_OK;
}

static void busy_time_is_measured_when_asked_for(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, (ls_pool_options){.workers = 2, .time_jobs = 1});
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_pool_submit(s.pool, 1, busy_for_10_ms, NULL, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_in_range(stats_of(s.pool, 1).busy_ns, 30 * MS, 10000 * MS);
    assert_int_equal(stats_of(s.pool, 0).busy_ns, 0);
    ls_pool_destroy(s.pool, LS_FOREVER, NULL);
}

static void statistics_fill_as_much_as_the_caller_knows(void **state)
{
    (void)state;
    struct scene s;
    ls_error err;
    ls_pool_stats st;
    begin(&s, (ls_pool_options){.workers = 2});
    assert_int_equal(ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL), LS_OK);
    memset(&st, 0xee, sizeof st);
    st.size = offsetof(ls_pool_stats, run);
    assert_int_equal(ls_pool_get_stats(s.pool, 0, &st, NULL), LS_OK);
    assert_int_equal(st.size, offsetof(ls_pool_stats, run));
    assert_int_equal(st.submitted, 1);
    assert_true(st.run == UINT64_C(0xeeeeeeeeeeeeeeee));
    st.size = 0;
    assert_int_equal(ls_pool_get_stats(s.pool, 0, &st, &err), LS_EINVAL);
    st.size = sizeof st;
    assert_int_equal(ls_pool_get_stats(s.pool, 2, &st, &err), LS_EINVAL);
    assert_string_equal(err.text,
                        "worker 2 of a pool whose workers are 0 to 1, or -1 for all of them");
    assert_int_equal(ls_pool_get_stats(s.pool, -2, &st, &err), LS_EINVAL);
    ls_pool_destroy(s.pool, LS_FOREVER, NULL);
}

/* ---- everything at once --------------------------------------------------------------------- */

/* A thread that is not the owner. It reads statistics, and cancels the pool now and then. */
struct onlooker {
    ls_pool *pool;
    _Atomic int enough;
    int wrong;
};

static void *look_on(void *arg)
{
    struct onlooker *o = arg;
    for (unsigned i = 1; !atomic_load(&o->enough); i++) {
        ls_pool_stats st = {.size = sizeof st};
        o->wrong += ls_pool_get_stats(o->pool, -1, &st, NULL) != LS_OK;
        o->wrong += st.submitted < st.run || st.run < st.failed || st.waits < st.sleeps;
        o->wrong += ls_pool_busy(o->pool, (int)(i % 4)) < 0;
        ls_pool_first_error(o->pool, NULL, NULL);
        if (i % 512 == 0)
            ls_pool_cancel(o->pool);
    }
    return NULL;
}

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* Makes one random call as the owner. If the pool was cancelled or a job failed, makes the pool
 * usable again. */
static void act(struct scene *s, unsigned *seed)
{
    int status = LS_OK;
    switch (draw(seed, 8)) {
    case 0: status = ls_pool_run(s->pool, note, s, LS_FOREVER, NULL); break;
    case 1: status = ls_pool_wait(s->pool, LS_FOREVER, NULL); break;
    case 2: status = ls_pool_wait(s->pool, draw(seed, 100000), NULL); break;
    case 3: status = ls_pool_submit(s->pool, (int)draw(seed, 4), refuse, NULL, NULL); break;
    default: status = ls_pool_submit(s->pool, (int)draw(seed, 4), note, s, NULL);
    }
    if (status == LS_EDATA || status == LS_ECANCELED) {
        ls_pool_wait(s->pool, LS_FOREVER, NULL);
        assert_int_equal(ls_pool_clear(s->pool, NULL), LS_OK);
    }
}

static void every_job_is_counted_whatever_happens(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 10; round++) {
        struct scene s;
        struct lender l[2];
        pthread_t t;
        begin(&s, (ls_pool_options){.workers = 4, .caller_works = 1, .borrowed = 2, .inbox = 8});
        struct onlooker o = {.pool = s.pool};
        assert_int_equal(pthread_create(&t, NULL, look_on, &o), 0);
        for (int i = 0; i < 2; i++)
            start_lender(&l[i], &s, 2 + i);
        for (int i = 0; i < 2000; i++)
            act(&s, &seed);
        atomic_store(&o.enough, 1);
        pthread_join(t, NULL);
        assert_int_equal(o.wrong, 0);
        ls_pool_wait(s.pool, LS_FOREVER, NULL);
        for (int w = 0; w < 4; w++) {
            ls_pool_stats st = stats_of(s.pool, w);
            assert_int_equal(st.submitted, st.run + st.dropped);
            assert_int_equal(st.run - st.failed, s.runs[w]);
        }
        /* A cancelled pool returns LS_ECANCELED, also if a job had failed before the cancel. */
        const int ran = ls_pool_run(s.pool, note, &s, LS_FOREVER, NULL);
        assert_true(ran == LS_ECANCELED || ran == ls_pool_first_error(s.pool, NULL, NULL));
        assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
        for (int i = 0; i < 2; i++)
            pthread_join(l[i].thread, NULL);
    }
}

LS_TESTS(pool_lent, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lent_threads_run_jobs_and_come_back),
        cmocka_unit_test(own_and_lent_workers_and_the_caller_share_a_pool),
        cmocka_unit_test(jobs_wait_for_their_thread),
        cmocka_unit_test(a_worker_that_nobody_serves_does_not_hold_up_the_end),
        cmocka_unit_test(one_thread_serves_a_worker_and_no_other),
        cmocka_unit_test(a_start_hook_that_fails_leaves_the_worker_to_another_thread),
        cmocka_unit_test(the_end_waits_until_lent_threads_are_out),
        cmocka_unit_test(a_lent_thread_that_hangs_is_left_behind_and_told_so),
        cmocka_unit_test(a_lent_thread_that_hangs_in_its_start_hook_is_left_behind),
        cmocka_unit_test(an_abandoned_lent_worker_comes_back_at_the_end),
        cmocka_unit_test(the_caller_runs_its_jobs_in_order_and_only_when_it_waits),
        cmocka_unit_test(the_callers_mask_and_affinity_stay_as_they_are),
        cmocka_unit_test(errors_cancels_and_limits_reach_the_caller_too),
        cmocka_unit_test(a_callers_start_hook_that_fails_unwinds_the_others),
        cmocka_unit_test(bad_shares_are_refused),
        cmocka_unit_test(options_of_an_older_size_are_taken),
        cmocka_unit_test(statistics_count_what_happened),
        cmocka_unit_test(busy_time_is_measured_when_asked_for),
        cmocka_unit_test(statistics_fill_as_much_as_the_caller_knows),
        cmocka_unit_test(every_job_is_counted_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
