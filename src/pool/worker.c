/* SPDX-License-Identifier: MIT */
/* The functions of a worker, which runs on a thread of the pool, on a lent thread, or on the
 * owner's thread. pool.h explains lent threads, borrowed workers and phases. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "pool/pool.h"

#include <stdio.h>
#include <time.h>

/* The memory order with which `finished` is stored. It is a macro so that a test can weaken it and
 * check that ThreadSanitizer reports it (tests/sync/weakened_orders.sh). */
#ifndef LS_POOL_FINISHED_RELEASE
#define LS_POOL_FINISHED_RELEASE memory_order_release
#endif

/* Judges the result of a job or a start hook (ls_callback_result), which was given `err`. */
static int judge(const struct ls_pool_worker *w, const char *function, int status, ls_error *err)
{
    char callback[48];
    snprintf(callback, sizeof callback, "worker %d: %s", w->view.index, function);
    return ls_callback_result(err, status, err, callback);
}

static void run_job(struct ls_pool_worker *w, const struct ls_pool_job *job)
{
    /* acquire: pairs with the release in ls_pool_cancel. ls_pool_cancel first latches LS_ECANCELED
     * and then sets `canceled`. So for a worker that finds `canceled` set, the error is latched
     * already. This worker drops the job and then stores `finished` with release order. So an owner
     * that sees the dropped job finished also sees the latched error. */
    if (atomic_load_explicit(&w->pool->canceled, memory_order_acquire) ||
        ls_pool_was_abandoned(w)) {
        ls_pool_count(&w->dropped, 1);
        return;
    }
    bool timed = w->pool->options.time_jobs;
    uint64_t begin = timed ? ls_now_ns() : 0;
    ls_inside frame;
    ls_error err;
    err.text[0] = '\0';
    ls_inside_enter(&frame, w->pool);
    int status = job->job(&w->view, job->arg, &err);
    ls_inside_leave(&frame);
    if (timed)
        ls_pool_count(&w->busy_ns, ls_now_ns() - begin);
    if (status) {
        ls_pool_count(&w->failed, 1);
        status = judge(w, "a job", status, &err);
        ls_latch_set(&w->pool->latch, w->view.index, status, &err, &w->abandoned);
    }
}

void ls_pool_do_job(struct ls_pool_worker *w, const struct ls_pool_job *job)
{
    run_job(w, job);
    /* relaxed: only this worker writes the counter. */
    uint64_t finished = atomic_load_explicit(&w->finished, memory_order_relaxed);
    /* release: publishes what the job did to the owner that waits for it. */
    atomic_store_explicit(&w->finished, finished + 1, LS_POOL_FINISHED_RELEASE);
}

void ls_pool_drain(struct ls_pool_worker *w)
{
    struct ls_pool_job job;
    while (ls_ring_try_pop(&w->inbox, &job) == LS_OK)
        ls_pool_do_job(w, &job);
}

/* Arguments and result of an attempt to pop a job. A waiting worker repeats the attempt. */
struct attempt {
    struct ls_pool_worker *w;
    struct ls_pool_job *job; /* receives the job */
    int status;              /* result of the last attempt */
};

static bool popped(void *arg)
{
    struct attempt *a = arg;
    a->status = ls_ring_try_pop(&a->w->inbox, a->job);
    return a->status != LS_EAGAIN;
}

/* Sleeps until a job was popped, or the inbox is closed and empty. Counts how often the worker
 * sleeps. */
static void sleep_until_popped(struct attempt *a)
{
    struct ls_pool_worker *w = a->w;
    uint64_t begin_ns = ls_now_ns();
    for (;;) {
        uint32_t key = ls_park_prepare(&w->idle);
        if (popped(a))
            break;
        ls_pool_count(&w->sleeps, 1);
        ls_park_sleep(&w->idle, key, UINT64_MAX);
    }
    ls_pool_slept(&w->habit, ls_now_ns() - begin_ns);
}

/* Moves this thread to another CPU if it runs on the CPU on which the owner last woke a worker.
 * Lent threads and pinned threads are not moved. (w->part is the set of CPUs to which the thread is
 * pinned; an empty set means that it is not pinned.) */
static void step_aside(const struct ls_pool_worker *w)
{
    /* relaxed: an outdated value only costs time. */
    int cpu = atomic_load_explicit(&w->pool->owner_cpu, memory_order_relaxed);
    if (w->own && w->part.count == 0 && cpu == ls_this_cpu())
        ls_leave_cpu(cpu);
}

/* Waits for the next job. Counts the waits and sleeps. Spins before it sleeps, if spinning has
 * helped in earlier waits (w->habit). Returns LS_OK, or LS_ECLOSED if the inbox is closed and
 * empty. */
static int next_job(struct ls_pool_worker *w, struct ls_pool_job *job)
{
    struct attempt a = {w, job, LS_OK};
    if (popped(&a))
        return a.status;
    ls_pool_count(&w->waits, 1);
    if (ls_pool_ought_to_spin(&w->habit))
        step_aside(w);
    if (!ls_pool_spin(&w->habit, popped, &a, UINT64_MAX))
        sleep_until_popped(&a);
    return a.status;
}

void ls_pool_work(struct ls_pool_worker *w)
{
    struct ls_pool_job job = {NULL, NULL};
    while (next_job(w, &job) == LS_OK) {
        ls_pool_do_job(w, &job);
        ls_park_wake(&w->pool->owner);
    }
}

/* ---- hooks ---------------------------------------------------------------------------------- */

int ls_pool_start_hook(struct ls_pool_worker *w, ls_error *err)
{
    const ls_pool_options *o = &w->pool->options;
    ls_inside frame;
    /* relaxed: the number publishes no other data. */
    atomic_store_explicit(&w->thread_number, ls_thread_self(), memory_order_relaxed);
    if (!o->start)
        return LS_OK;
    err->text[0] = '\0';
    ls_inside_enter(&frame, w->pool);
    int status = o->start(&w->view, o->user, err);
    ls_inside_leave(&frame);
    return judge(w, "its start hook", status, err);
}

void ls_pool_stop_hook(struct ls_pool_worker *w)
{
    const ls_pool_options *o = &w->pool->options;
    ls_inside frame;
    if (!o->stop)
        return;
    ls_inside_enter(&frame, w->pool);
    o->stop(&w->view, o->user);
    ls_inside_leave(&frame);
}

void ls_pool_enter_phase(struct ls_pool_worker *w, int phase)
{
    /* release: publishes what the hooks did to the owner that sees the phase. */
    atomic_store_explicit(&w->phase, phase, memory_order_release);
    ls_park_wake(&w->pool->owner);
}

bool ls_pool_move_phase(struct ls_pool_worker *w, int from, int to)
{
    /* relaxed: after this exchange neither the worker's thread nor the thread that destroys the
     * pool relies on data that the other has written. */
    return atomic_compare_exchange_strong_explicit(&w->phase, &from, to, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* ---- the pool's own threads ----------------------------------------------------------------- */

/* Names the thread "<name>/<index>"; the name is truncated if both do not fit. */
static void name_thread(const struct ls_pool_worker *w)
{
    char index[16], name[32];
    int digits = snprintf(index, sizeof index, "/%d", w->view.index);
    snprintf(name, sizeof name, "%.*s%s", 15 - digits, w->pool->name, index);
    ls_name_thread(name);
}

static void pin(const struct ls_pool_worker *w)
{
    ls_error err;
    if (w->part.count > 0 && ls_pin_thread(&w->part, &err) != LS_OK)
        ls_log(w->pool->options.host, LS_LOG_WARNING, "worker %d is not pinned: %s", w->view.index,
               err.text);
}

void *ls_pool_thread(void *worker)
{
    struct ls_pool_worker *w = worker;
    ls_error err;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pin(w);
    name_thread(w);
    int status = ls_pool_start_hook(w, &err);
    if (status < 0) {
        ls_latch_set(&w->pool->latch, w->view.index, status, &err, NULL);
        ls_pool_enter_phase(w, LS_PHASE_ENDED);
        return NULL;
    }
    ls_pool_enter_phase(w, LS_PHASE_RUNNING);
    ls_pool_work(w);
    /* If the pool was destroyed and this thread was left running, the pool's user has possibly
     * freed the data of its jobs and hooks. So no code of the user may run here, the stop hook
     * included. The part of the pool that this thread still accesses is never freed. */
    if (!ls_pool_move_phase(w, LS_PHASE_RUNNING, LS_PHASE_STOPPING))
        return NULL;
    ls_pool_stop_hook(w);
    ls_pool_enter_phase(w, LS_PHASE_ENDED);
    return NULL;
}

/* The memory orders with which a lent thread takes over a worker whose earlier thread failed in its
 * start hook. They are macros so that a test can weaken them and check that ThreadSanitizer reports
 * it (tests/sync/weakened_orders.sh). */
#ifndef LS_POOL_TAKE_ACQUIRE
#define LS_POOL_TAKE_ACQUIRE memory_order_acquire
#endif
#ifndef LS_POOL_GIVE_RELEASE
#define LS_POOL_GIVE_RELEASE memory_order_release
#endif

/* Called by give_back (below) after it has changed the worker's phase, and before it unlocks a
 * mutex. Does nothing in the library. For one test it is compiled to sleep; the test checks that
 * the pool is not freed during the sleep. */
static void linger(void)
{
#ifdef LS_POOL_LINGER_NS
    nanosleep(&(struct timespec){.tv_nsec = LS_POOL_LINGER_NS}, NULL);
#endif
}

/* ---- lent threads --------------------------------------------------------------------------- */

/* Makes the calling thread the thread of a borrowed worker. Of the pool's workers, the last
 * options.borrowed are borrowed. */
static int take(ls_pool *pool, int worker, ls_error *err)
{
    if (worker < pool->workers - pool->options.borrowed || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d is not borrowed: %d of %d are, the last ones",
                       worker, pool->options.borrowed, pool->workers);
    if (ls_inside_of(pool))
        return ls_fail(err, LS_EINVAL, "a thread that runs a job of the pool cannot be lent to it");
    struct ls_pool_worker *w = &pool->worker[worker];
    int unserved = LS_PHASE_UNSERVED;
    /* acquire: pairs with the release in give_back, so that this thread sees what an earlier thread
     * has written to the worker's data. */
    if (!atomic_compare_exchange_strong_explicit(&w->phase, &unserved, LS_PHASE_STARTING,
                                                 LS_POOL_TAKE_ACQUIRE, memory_order_relaxed))
        return ls_fail(err, LS_EAGAIN, "worker %d is served by another thread", worker);
    return LS_OK;
}

/* Gives the worker back to the pool: changes the worker's phase from `from` to `to` and wakes the
 * owner. This is the last access of a lent thread to the pool. Returns false, and changes nothing,
 * if the phase is not `from` because the worker was left running.
 *
 * The pool's memory must not be freed before this function has unlocked the mutex. The thread that
 * destroys the pool cannot join a lent thread. Instead, after it has seen the new phase, the
 * destroying thread locks and unlocks the same mutex (ls_pool_await_lent). This thread changes the
 * phase while it holds the mutex. So the destroying thread gets the mutex only after this thread
 * has released it, and frees the memory after that. */
static bool give_back(struct ls_pool_worker *w, int from, int to)
{
    ls_pool *pool = w->pool;
    pthread_mutex_lock(&pool->leaving);
    bool mine = atomic_compare_exchange_strong_explicit(&w->phase, &from, to, LS_POOL_GIVE_RELEASE,
                                                        memory_order_relaxed);
    linger();
    if (mine)
        ls_park_wake(&pool->owner);
    pthread_mutex_unlock(&pool->leaving);
    return mine;
}

/* Writes the error of a lent thread whose pool was destroyed without waiting for it. */
static int left_behind(int worker, ls_error *err)
{
    return ls_fail(err, LS_ESTALLED,
                   "the pool was destroyed without waiting for the thread lent as worker %d",
                   worker);
}

/* Runs the worker on a lent thread: start hook, jobs, stop hook. */
static int serve(struct ls_pool_worker *w, ls_error *err)
{
    int index = w->view.index;
    ls_error why;
    int status = ls_pool_start_hook(w, &why);
    if (status < 0) {
        w->view.local = NULL;
        give_back(w, LS_PHASE_STARTING, LS_PHASE_UNSERVED);
        why.status = status;
        if (err)
            *err = why;
        return status;
    }
    if (!ls_pool_move_phase(w, LS_PHASE_STARTING, LS_PHASE_RUNNING))
        return left_behind(index, err);
    ls_pool_work(w);
    if (!ls_pool_move_phase(w, LS_PHASE_RUNNING, LS_PHASE_STOPPING))
        return left_behind(index, err);
    ls_pool_stop_hook(w);
    give_back(w, LS_PHASE_STOPPING, LS_PHASE_ENDED);
    return LS_OK;
}

int ls_pool_serve(ls_pool *pool, int worker, ls_error *err)
{
    int cancelable;
    int status = ls_pool_is_ours(pool, err);
    if (status == LS_OK)
        status = take(pool, worker, err);
    if (status)
        return status;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    status = serve(&pool->worker[worker], err);
    pthread_setcancelstate(cancelable, NULL);
    return status;
}

void ls_pool_await_lent(ls_pool *pool)
{
    pthread_mutex_lock(&pool->leaving);
    pthread_mutex_unlock(&pool->leaving);
}

/* ---- the owner as worker 0 ------------------------------------------------------------------ *
 * "caller" in the names of these functions is the owner, as in the option caller_works. */

int ls_pool_start_caller(ls_pool *pool)
{
    struct ls_pool_worker *w = &pool->worker[0];
    ls_error err;
    int status = ls_pool_start_hook(w, &err);
    if (status < 0)
        ls_latch_set(&pool->latch, 0, status, &err, NULL);
    ls_pool_enter_phase(w, status < 0 ? LS_PHASE_ENDED : LS_PHASE_RUNNING);
    return status;
}

void ls_pool_end_caller(ls_pool *pool)
{
    struct ls_pool_worker *w = &pool->worker[0];
    if (!pool->options.caller_works || !ls_pool_move_phase(w, LS_PHASE_RUNNING, LS_PHASE_STOPPING))
        return;
    ls_pool_drain(w);
    ls_pool_stop_hook(w);
    ls_pool_enter_phase(w, LS_PHASE_ENDED);
}
