/* SPDX-License-Identifier: MIT */
/* Tests the worker pool in the process of another program: fork, signals, cancellation of threads,
 * jobs that call the pool, nested pools, several pools at once. */
#define _GNU_SOURCE /* MADV_WIPEONFORK */
#include <lockstep/pool.h>

#include "pool/pool.h"
#include "runner.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static ls_pool *new_pool(ls_pool_options o)
{
    ls_pool *pool;
    o.size = sizeof o;
    if (o.workers == 0)
        o.workers = 2;
    return ls_pool_create(&pool, &o, NULL) == LS_OK ? pool : NULL;
}

static int add_one(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ((int *)arg)[w->index]++;
    return LS_OK;
}

/* ---- fork ----------------------------------------------------------------------------------- */

/* Runs `body` in a child process and returns its exit status, the result of `body`; 0 means
 * success. */
static int in_child(int (*body)(void *arg), void *arg)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* ends a child that hangs */
        _exit(body(arg));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int use_a_pool(void *unused)
{
    int counts[2] = {0, 0};
    (void)unused;
    ls_pool *pool = new_pool((ls_pool_options){0});
    if (!pool || ls_pool_run(pool, add_one, counts, LS_FOREVER, NULL) != LS_OK)
        return 1;
    return ls_pool_destroy(pool, LS_FOREVER, NULL) != LS_OK || counts[0] != 1 || counts[1] != 1;
}

static void a_fork_before_the_first_pool_is_free(void **state)
{
    (void)state;
    assert_int_equal(in_child(use_a_pool, NULL), 0);
    assert_int_equal(use_a_pool(NULL), 0);
}

static int touch_the_parents_pool(void *arg)
{
    ls_pool *pool = arg;
    int counts[2] = {0, 0};
    ls_error err = {0};
    if (ls_pool_run(pool, add_one, counts, LS_FOREVER, &err) != LS_EINVAL ||
        !strstr(err.text, "belongs to another process"))
        return 1;
    if (ls_pool_submit(pool, 0, add_one, counts, NULL) != LS_EINVAL ||
        ls_pool_wait(pool, LS_FOREVER, NULL) != LS_EINVAL ||
        ls_pool_abandon(pool, 0, NULL) != LS_EINVAL || ls_pool_clear(pool, NULL) != LS_EINVAL ||
        ls_pool_serve(pool, 0, NULL) != LS_EINVAL ||
        ls_pool_first_error(pool, NULL, NULL) != LS_EINVAL)
        return 2;
    ls_pool_cancel(pool);
    if (ls_pool_size(pool) != 2 || ls_pool_destroy(pool, LS_FOREVER, NULL) != LS_OK)
        return 3;
    return counts[0] != 0 || counts[1] != 0 ? 4 : 0;
}

static void count_stop(ls_worker *w, void *user)
{
    (void)w;
    atomic_fetch_add((_Atomic int *)user, 1);
}

static int destroy_the_parents_pool(void *arg)
{
    void **both = arg;
    _Atomic int *stops = both[1];
    return ls_pool_destroy(both[0], LS_FOREVER, NULL) != LS_OK || atomic_load(stops) != 0;
}

static int read_mark(void *page)
{
    return *(volatile char *)page;
}

/* Returns whether MADV_WIPEONFORK works on this system, so that a child process can find out that
 * it is a child. (qemu-user 7.2 accepts the advice and does nothing.) */
static bool children_know(void)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    *page = 1;
    const bool known = madvise(page, size, MADV_WIPEONFORK) == 0 && !in_child(read_mark, page);
    munmap(page, size);
    return known;
}

static void a_forked_childs_copy_refuses_and_the_parents_pool_goes_on(void **state)
{
    (void)state;
    int counts[2] = {0, 0};
    _Atomic int stops = 0;
    if (!children_know())
        skip();
    ls_pool *pool = new_pool((ls_pool_options){.stop = count_stop, .user = (void *)&stops});
    assert_int_equal(ls_pool_run(pool, add_one, counts, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(in_child(touch_the_parents_pool, pool), 0);
    assert_int_equal(in_child(destroy_the_parents_pool, (void *[]){pool, (void *)&stops}), 0);
    assert_int_equal(ls_pool_run(pool, add_one, counts, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(counts[1], 2);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(atomic_load(&stops), 2);
}

static void a_fork_while_workers_work_is_survived(void **state)
{
    (void)state;
    if (!children_know())
        skip();
    for (int i = 0; i < 20; i++) {
        int counts[2] = {0, 0};
        ls_pool *pool = new_pool((ls_pool_options){0});
        for (int j = 0; j < 40; j++)
            assert_int_equal(ls_pool_submit(pool, j % 2, add_one, counts, NULL), LS_OK);
        assert_int_equal(in_child(touch_the_parents_pool, pool), 0);
        assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(counts[0] + counts[1], 40);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
    }
}

/* ---- jobs that call the pool ---------------------------------------------------------------- */

struct calls {
    ls_pool *pool;
    int status[7];
    int counts[2];
    ls_error err;
    int only; /* index of the worker that makes the calls */
};

static int call_the_owners_functions(const ls_worker *w, void *arg, ls_error *err)
{
    struct calls *c = arg;
    (void)err;
    if (w->index != c->only)
        return LS_OK;
    c->status[0] = ls_pool_submit(c->pool, 0, add_one, c->counts, &c->err);
    c->status[1] = ls_pool_run(c->pool, add_one, c->counts, LS_FOREVER, NULL);
    c->status[2] = ls_pool_wait(c->pool, LS_FOREVER, NULL);
    c->status[3] = ls_pool_clear(c->pool, NULL);
    c->status[4] = ls_pool_abandon(c->pool, 1, NULL);
    c->status[5] = ls_pool_destroy(c->pool, LS_FOREVER, NULL);
    c->status[6] = ls_pool_serve(c->pool, 1, NULL);
    return LS_OK;
}

static void the_owners_functions_refuse_a_job_of_their_pool(void **state)
{
    (void)state;
    for (int caller = 0; caller <= 1; caller++)
        for (int only = 0; only < 2; only++) {
            struct calls c = {.only = only};
            c.pool = new_pool((ls_pool_options){.caller_works = caller});
            assert_int_equal(ls_pool_run(c.pool, call_the_owners_functions, &c, 10000 * MS, NULL),
                             LS_OK);
            for (size_t i = 0; i < sizeof c.status / sizeof c.status[0]; i++)
                assert_int_equal(c.status[i], LS_EINVAL);
            assert_string_equal(c.err.text, "called from a job or hook of the same pool, which "
                                            "would wait for itself");
            assert_int_equal(c.counts[0] + c.counts[1], 0);
            assert_int_equal(ls_pool_run(c.pool, add_one, c.counts, LS_FOREVER, NULL), LS_OK);
            assert_int_equal(c.counts[0] + c.counts[1], 2);
            assert_int_equal(ls_pool_destroy(c.pool, LS_FOREVER, NULL), LS_OK);
        }
}

/* Job that calls the functions that any thread may call, a job included. */
static int cancel_own_pool(const ls_worker *w, void *arg, ls_error *err)
{
    ls_pool *pool = *(ls_pool **)arg;
    ls_pool_stats stats = {.size = sizeof stats};
    (void)err;
    if (ls_pool_busy(pool, w->index) < 1 || ls_pool_is_abandoned(pool, 0) ||
        ls_pool_get_stats(pool, -1, &stats, NULL) != LS_OK)
        return LS_EINTERNAL;
    ls_pool_cancel(pool);
    return LS_OK;
}

static void a_job_may_ask_about_its_pool_and_cancel_it(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    assert_int_equal(ls_pool_submit(pool, 1, cancel_own_pool, &pool, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_ECANCELED);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
}

static void call_in_stop_hook(ls_worker *w, void *user)
{
    struct calls *c = user;
    if (w->index == c->only) {
        c->status[0] = ls_pool_submit(c->pool, 0, add_one, c->counts, NULL);
        c->status[1] = ls_pool_destroy(c->pool, LS_FOREVER, NULL);
    }
}

static void hooks_are_refused_as_jobs_are(void **state)
{
    (void)state;
    for (int only = 0; only < 2; only++) {
        struct calls c = {.only = only};
        c.pool =
            new_pool((ls_pool_options){.caller_works = 1, .stop = call_in_stop_hook, .user = &c});
        assert_int_equal(ls_pool_destroy(c.pool, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(c.status[0], LS_EINVAL);
        assert_int_equal(c.status[1], LS_EINVAL);
    }
}

/* ---- pools within pools, and beside each other ---------------------------------------------- */

/* Data of a job that creates an inner pool, in which the job's thread is worker 0, and uses it.
 * Afterwards the job calls a function of the outer pool, which must still be refused. */
struct nest {
    ls_pool *outer;
    int inner_sum[2], refused[2];
};

static int use_inner_pool(const ls_worker *w, void *arg, ls_error *err)
{
    struct nest *n = arg;
    int counts[3] = {0, 0, 0};
    ls_pool *inner = new_pool((ls_pool_options){.workers = 3, .caller_works = 1});
    for (int i = 0; inner && i < 50; i++) {
        int rc = ls_pool_run(inner, add_one, counts, LS_FOREVER, err);
        if (rc != LS_OK)
            return rc;
    }
    ls_pool_destroy(inner, LS_FOREVER, NULL);
    n->inner_sum[w->index] = counts[0] + counts[1] + counts[2];
    n->refused[w->index] = ls_pool_wait(n->outer, LS_FOREVER, NULL);
    return LS_OK;
}

static void a_job_may_have_a_pool_of_its_own(void **state)
{
    (void)state;
    struct nest n = {.outer = new_pool((ls_pool_options){0})};
    assert_int_equal(ls_pool_run(n.outer, use_inner_pool, &n, LS_FOREVER, NULL), LS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(n.inner_sum[i], 150);
        assert_int_equal(n.refused[i], LS_EINVAL);
    }
    ls_pool_destroy(n.outer, LS_FOREVER, NULL);
}

static int call_outer_from_inner(const ls_worker *w, void *arg, ls_error *err)
{
    struct nest *n = arg;
    (void)err;
    n->refused[w->index] = ls_pool_wait(n->outer, LS_FOREVER, NULL);
    return LS_OK;
}

static int run_inner(const ls_worker *w, void *arg, ls_error *err)
{
    ls_pool *inner = new_pool((ls_pool_options){.workers = 1, .caller_works = 1});
    int rc = w->index ? LS_OK : ls_pool_run(inner, call_outer_from_inner, arg, LS_FOREVER, err);
    ls_pool_destroy(inner, LS_FOREVER, NULL);
    return rc;
}

/* The job of the inner pool runs on a thread that is inside a job of the outer pool. */
static void a_call_from_two_pools_deep_is_refused_as_well(void **state)
{
    (void)state;
    struct nest n = {.outer = new_pool((ls_pool_options){0})};
    assert_int_equal(ls_pool_run(n.outer, run_inner, &n, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(n.refused[0], LS_EINVAL);
    ls_pool_destroy(n.outer, LS_FOREVER, NULL);
}

static void *use_pool_often(void *arg)
{
    int counts[2] = {0, 0};
    ls_pool *pool = new_pool((ls_pool_options){.caller_works = 1});
    for (int i = 0; pool && i < 500; i++)
        if (ls_pool_run(pool, add_one, counts, LS_FOREVER, NULL) != LS_OK)
            break;
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    *(int *)arg = counts[0] + counts[1];
    return NULL;
}

static void pools_of_several_owners_do_not_meet(void **state)
{
    (void)state;
    pthread_t t[4];
    int sum[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, use_pool_often, &sum[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(sum[i], 1000);
    }
}

/* ---- signals -------------------------------------------------------------------------------- */

static _Atomic int caught;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&caught, 1);
}

/* Job that ends when five more signals have been caught. */
static int outlast_signals(const ls_worker *w, void *arg, ls_error *err)
{
    int enough = atomic_load(&caught) + 5;
    while (atomic_load(&caught) < enough)
        nap(1);
    return add_one(w, arg, err);
}

/* Job that ends when the gate, the integer `arg`, is not 0. */
static int wait_at_gate(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    while (!atomic_load((_Atomic int *)arg))
        nap(1);
    return LS_OK;
}

struct pesterer {
    pthread_t target;
    _Atomic int enough;
};

static void *pester(void *arg)
{
    struct pesterer *p = arg;
    while (!atomic_load(&p->enough)) {
        pthread_kill(p->target, SIGUSR1);
        nap(1);
    }
    return NULL;
}

/* Signal handlers without SA_RESTART run again and again on the waiting owner's thread. */
static void signals_do_not_end_a_wait(void **state)
{
    (void)state;
    struct sigaction on = {.sa_handler = on_signal}, before;
    struct pesterer p = {.target = pthread_self()};
    pthread_t t;
    int counts[2] = {0, 0};
    sigaction(SIGUSR1, &on, &before);
    assert_int_equal(pthread_create(&t, NULL, pester, &p), 0);
    for (int caller = 0; caller <= 1; caller++) {
        _Atomic int gate = 0;
        ls_pool *pool = new_pool((ls_pool_options){.caller_works = caller});
        assert_int_equal(ls_pool_run(pool, outlast_signals, counts, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(counts[1], caller + 1);
        assert_int_equal(ls_pool_submit(pool, 1, wait_at_gate, (void *)&gate, NULL), LS_OK);
        assert_int_equal(ls_pool_wait(pool, 20 * MS, NULL), LS_ETIMEDOUT);
        atomic_store(&gate, 1);
        assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
        assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    }
    atomic_store(&p.enough, 1);
    pthread_join(t, NULL);
    sigaction(SIGUSR1, &before, NULL);
}

/* ---- cancellation --------------------------------------------------------------------------- */

struct victim {
    ls_pool *pool;
    int index; /* index of the worker whose thread is cancelled */
    int counts[2];
    int status;
    _Atomic int inside, requested, after;
};

static int sleep_inside(const ls_worker *w, void *arg, ls_error *err)
{
    struct victim *v = arg;
    (void)err;
    if (w->index == v->index)
        atomic_store(&v->inside, 1);
    while (!atomic_load(&v->requested))
        nap(1);
    nap(1); /* a cancellation point */
    v->counts[w->index]++;
    return LS_OK;
}

static void *run_and_then_be_cancelled(void *arg)
{
    struct victim *v = arg;
    v->pool = new_pool((ls_pool_options){.caller_works = 1});
    v->status = ls_pool_run(v->pool, sleep_inside, v, LS_FOREVER, NULL);
    atomic_store(&v->after, 1);
    pthread_testcancel();
    atomic_store(&v->after, 2);
    return NULL;
}

/* The owner's thread is cancelled only while it is inside its job, because glibc 2.36 can forget a
 * request that comes while a thread is about to disable cancellation. */
static void cancelling_the_owner_waits_for_the_call(void **state)
{
    (void)state;
    struct victim v = {.index = 0};
    pthread_t t;
    void *result;
    assert_int_equal(pthread_create(&t, NULL, run_and_then_be_cancelled, &v), 0);
    while (!atomic_load(&v.inside))
        nap(1);
    assert_int_equal(pthread_cancel(t), 0);
    atomic_store(&v.requested, 1);
    assert_int_equal(pthread_join(t, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(v.status, LS_OK);
    assert_int_equal(v.counts[0] + v.counts[1], 2);
    assert_int_equal(atomic_load(&v.after), 1);
    assert_int_equal(ls_pool_submit(v.pool, 1, add_one, v.counts, NULL), LS_OK);
    /* Another thread may become the owner if it gives no jobs to worker 0. */
    assert_int_equal(ls_pool_destroy(v.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(v.counts[1], 2);
}

static int tell_thread(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ((pthread_t *)arg)[w->index] = pthread_self();
    return LS_OK;
}

static void cancelling_a_worker_changes_nothing(void **state)
{
    (void)state;
    pthread_t thread[2];
    struct victim v = {.index = 1};
    v.pool = new_pool((ls_pool_options){0});
    assert_int_equal(ls_pool_run(v.pool, tell_thread, thread, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(ls_pool_submit(v.pool, 1, sleep_inside, &v, NULL), LS_OK);
    while (!atomic_load(&v.inside))
        nap(1);
    assert_int_equal(pthread_cancel(thread[0]), 0);
    assert_int_equal(pthread_cancel(thread[1]), 0);
    atomic_store(&v.requested, 1);
    assert_int_equal(ls_pool_run(v.pool, sleep_inside, &v, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(v.counts[0], 1);
    assert_int_equal(v.counts[1], 2);
    assert_int_equal(ls_pool_destroy(v.pool, LS_FOREVER, NULL), LS_OK);
}

static void *serve_and_then_be_cancelled(void *arg)
{
    struct victim *v = arg;
    v->status = ls_pool_serve(v->pool, 1, NULL);
    atomic_store(&v->after, 1);
    pthread_testcancel();
    atomic_store(&v->after, 2);
    return NULL;
}

static void cancelling_a_lent_thread_waits_for_the_pools_end(void **state)
{
    (void)state;
    struct victim v = {.index = 1};
    pthread_t t;
    void *result;
    v.pool = new_pool((ls_pool_options){.borrowed = 1});
    assert_int_equal(pthread_create(&t, NULL, serve_and_then_be_cancelled, &v), 0);
    assert_int_equal(ls_pool_submit(v.pool, 1, sleep_inside, &v, NULL), LS_OK);
    while (!atomic_load(&v.inside))
        nap(1);
    assert_int_equal(pthread_cancel(t), 0);
    atomic_store(&v.requested, 1);
    assert_int_equal(ls_pool_run(v.pool, sleep_inside, &v, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(ls_pool_destroy(v.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(pthread_join(t, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(v.status, LS_OK);
    assert_int_equal(v.counts[1], 2);
    assert_int_equal(atomic_load(&v.after), 1);
}

LS_TESTS(pool_guest, "unit")
{
    const struct CMUnitTest tests[] = {
        /* must run first, as the name of the test says */
        cmocka_unit_test(a_fork_before_the_first_pool_is_free),
        cmocka_unit_test(a_forked_childs_copy_refuses_and_the_parents_pool_goes_on),
        cmocka_unit_test(a_fork_while_workers_work_is_survived),
        cmocka_unit_test(the_owners_functions_refuse_a_job_of_their_pool),
        cmocka_unit_test(a_job_may_ask_about_its_pool_and_cancel_it),
        cmocka_unit_test(hooks_are_refused_as_jobs_are),
        cmocka_unit_test(a_job_may_have_a_pool_of_its_own),
        cmocka_unit_test(a_call_from_two_pools_deep_is_refused_as_well),
        cmocka_unit_test(pools_of_several_owners_do_not_meet),
        cmocka_unit_test(signals_do_not_end_a_wait),
        cmocka_unit_test(cancelling_the_owner_waits_for_the_call),
        cmocka_unit_test(cancelling_a_worker_changes_nothing),
        cmocka_unit_test(cancelling_a_lent_thread_waits_for_the_pools_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
