/* What the owner does with a pool: submitting, waiting, and who may. */
#include "pool/pool.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

/* ---- spinning --------------------------------------------------------------------------------- */

/* Whether to wait awake.
 *
 * A thread that sleeps is woken within some tens of microseconds, on some machines a hundred; one
 * that spins answers within one. Spinning for about as long as a wake-up takes is what lets two
 * threads that hand work back and forth stay awake, and begin to: the one spins until the other has
 * been woken. Where work comes at longer intervals, or where the thread that is waited for
 * cannot run because this one has its CPU, the same time is lost. So spinning is a habit: given up
 * after a few misses in a row, tried again from time to time, and taken up with the first success.
 *
 * A worker that was woken out of short sleeps time and again should not have had to sleep at all:
 * the scheduler has put it on the CPU of the very thread that it works for, where neither can spin
 * for the other, and leaves them there, because neither ever waits for a CPU for long. Only such a
 * worker knows, and it steps aside.
 */

#define SPIN_NS 100000
#define MISSES_ALLOWED 4
#define TRIED_EVERY 32
#define CHECKS_PER_LOOK 32 /* at the clock */
#define PATIENCE_FIRST 8
#define PATIENCE_MOST 65536

static bool is_worth_it(const ls_spin_habit *habit)
{
    return habit->allowed && (habit->misses < MISSES_ALLOWED || habit->misses % TRIED_EVERY == 0);
}

bool ls_pool_spin(ls_spin_habit *habit, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    uint64_t end_ns = 0;
    if (!is_worth_it(habit)) {
        habit->misses++;
        return false;
    }
    for (unsigned i = 0;; i++) {
        if (ready(arg)) {
            habit->misses = 0;
            habit->patience = PATIENCE_FIRST;
            return true;
        }
        ls_spin_pause();
        if (i % CHECKS_PER_LOOK != CHECKS_PER_LOOK - 1)
            continue;
        uint64_t now_ns = ls_now_ns();
        if (end_ns == 0)
            end_ns = now_ns + SPIN_NS;
        if (now_ns >= deadline_ns)
            return false; /* which says nothing about the habit */
        if (now_ns >= end_ns)
            break;
    }
    habit->misses++;
    return false;
}

void ls_pool_slept(ls_spin_habit *habit, uint64_t ns)
{
    habit->short_sleeps = habit->allowed && ns < SPIN_NS ? habit->short_sleeps + 1 : 0;
}

bool ls_pool_ought_to_spin(ls_spin_habit *habit)
{
    if (habit->patience < PATIENCE_FIRST)
        habit->patience = PATIENCE_FIRST;
    if (habit->short_sleeps < habit->patience)
        return false;
    /* Should this not help, the next time comes later. A spin that succeeds sets it back. */
    if (habit->patience < PATIENCE_MOST)
        habit->patience *= 2;
    habit->short_sleeps = 0;
    habit->misses = 0;
    return true;
}

/* ---- jobs ------------------------------------------------------------------------------------- */

int ls_pool_size(const ls_pool *pool)
{
    return pool->workers;
}

int ls_pool_is_ours(const ls_pool *pool, ls_error *err)
{
    if (ls_fork_mark_is_inherited(pool->mark))
        return ls_fail(err, LS_EINVAL,
                       "the pool belongs to another process, of which this one was forked: make a "
                       "new one here");
    return LS_OK;
}

int ls_pool_check_owner(const ls_pool *pool, ls_error *err)
{
    int status = ls_pool_is_ours(pool, err);
    if (status == LS_OK && ls_inside_of(pool))
        status = ls_fail(err, LS_EINVAL,
                         "called from a job or hook of the same pool, which would wait for itself");
    return status;
}

static int check_job(const ls_pool *pool, ls_job job, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (!job)
        return ls_fail(err, LS_EINVAL, "the job is NULL");
    if (atomic_load_explicit(&pool->canceled, memory_order_acquire))
        return ls_fail(err, LS_ECANCELED, "the pool was cancelled");
    return LS_OK;
}

/* The inbox has room unless LS_EAGAIN comes back. A job is counted before it can run, so that it
 * counts itself if it asks how busy its worker is: the push hands the count over too. */
static int post(struct ls_pool_worker *w, ls_job job, void *arg)
{
    if (w->part.count == 0 && ls_park_announced(&w->idle)) {
        w->pool->woke = true;
        atomic_store_explicit(&w->pool->owner_cpu, ls_this_cpu(), memory_order_relaxed);
    }
    ls_pool_count(&w->submitted, 1);
    int status = ls_ring_try_push(&w->inbox, &(struct ls_pool_job){job, arg});
    if (status)
        ls_pool_count(&w->submitted, (uint64_t)-1);
    return status;
}

int ls_pool_submit(ls_pool *pool, int worker, ls_job job, void *arg, ls_error *err)
{
    if (worker < 0 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d of a pool whose workers are 0 to %d", worker,
                       pool->workers - 1);
    int status = check_job(pool, job, err);
    if (status)
        return status;
    if (ls_pool_gave_up(&pool->worker[worker]))
        return ls_fail(err, LS_ESTALLED, "worker %d was given up: it takes no jobs", worker);
    status = post(&pool->worker[worker], job, arg);
    if (status == LS_EAGAIN)
        return ls_fail(err, status, "the inbox of worker %d is full: %d jobs", worker,
                       (int)ls_ring_length(&pool->worker[worker].inbox));
    return status;
}

/* Whether the owner waits for it. */
static bool is_awaited(const struct ls_pool_worker *w)
{
    return !ls_pool_gave_up(w) && ls_pool_pending(w) > 0;
}

static bool all_finished(void *arg)
{
    const ls_pool *pool = arg;
    for (int i = 0; i < pool->workers; i++)
        if (is_awaited(&pool->worker[i]))
            return false;
    return true;
}

static int timed_out(const ls_pool *pool, ls_error *err)
{
    char left[300];
    int workers = ls_pool_list(left, sizeof left, pool, is_awaited);
    return ls_fail(err, LS_ETIMEDOUT, "the time was over with work left: %s",
                   workers ? left : "none, it ended just then");
}

/* A worker that was just woken and may run anywhere is started fastest on the very CPU that the
 * owner leaves: waking another CPU takes several times as long. So the owner sleeps at once then,
 * and spins for workers that are awake, or that wake up on CPUs of their own. */
static int wait_until(ls_pool *pool, ls_patience *patience, ls_error *err)
{
    bool over = all_finished(pool);
    if (!over && !pool->woke)
        over = ls_pool_spin(&pool->habit, all_finished, pool, ls_patience_nap(patience));
    pool->woke = false;
    if (!over && !ls_park_patiently(&pool->owner, all_finished, pool, patience))
        return timed_out(pool, err);
    return ls_latch_get(&pool->latch, NULL, err);
}

/* Worker 0's part, on the owner's thread: what its inbox holds, then `job`, unless it is NULL. */
static void work_as_caller(ls_pool *pool, ls_job job, void *arg)
{
    struct ls_pool_worker *w = &pool->worker[0];
    int cancelable;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    ls_pool_drain(w);
    if (job) {
        ls_pool_count(&w->submitted, 1);
        ls_pool_do_job(w, &(struct ls_pool_job){job, arg});
    }
    pthread_setcancelstate(cancelable, NULL);
}

int ls_pool_wait(ls_pool *pool, ls_timeout timeout, ls_error *err)
{
    ls_patience patience = ls_patience_of(timeout);
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (pool->options.caller_works)
        work_as_caller(pool, NULL, NULL);
    return wait_until(pool, &patience, err);
}

static bool has_room(ls_ring *inbox, ls_patience *patience)
{
    do {
        if (ls_ring_wait_room(inbox, ls_patience_nap(patience), NULL) == LS_OK)
            return true;
    } while (!ls_patience_over(patience));
    return false;
}

/* Room for one job everywhere, so that either every worker gets it or none: only the owner fills
 * inboxes, hence room that was seen stays. */
static int wait_for_room(ls_pool *pool, ls_patience *patience, ls_error *err)
{
    int takers = pool->options.caller_works;
    for (int i = takers; i < pool->workers; i++) {
        if (ls_pool_gave_up(&pool->worker[i]))
            continue;
        takers++;
        if (!has_room(&pool->worker[i].inbox, patience))
            return ls_fail(err, LS_EAGAIN,
                           "the inbox of worker %d stayed full until the time was "
                           "over; no worker got the job",
                           i);
    }
    if (takers == 0)
        return ls_fail(err, LS_ESTALLED, "every worker of the pool was given up");
    return LS_OK;
}

int ls_pool_run(ls_pool *pool, ls_job job, void *arg, ls_timeout timeout, ls_error *err)
{
    ls_patience patience = ls_patience_of(timeout);
    int status = check_job(pool, job, err);
    if (status == LS_OK)
        status = wait_for_room(pool, &patience, err);
    if (status)
        return status;
    for (int i = pool->options.caller_works; i < pool->workers; i++) {
        if (ls_pool_gave_up(&pool->worker[i]))
            continue;
        status = post(&pool->worker[i], job, arg);
        if (status)
            return ls_fail(err, LS_EINTERNAL, "the inbox of worker %d lost its room", i);
    }
    if (pool->options.caller_works)
        work_as_caller(pool, job, arg);
    return wait_until(pool, &patience, err);
}

void ls_pool_cancel(ls_pool *pool)
{
    ls_error err;
    if (ls_pool_is_ours(pool, NULL) != LS_OK)
        return;
    ls_fail(&err, LS_ECANCELED, "the pool was cancelled");
    ls_latch_set(&pool->latch, -1, LS_ECANCELED, &err, NULL);
    /* release: a thread that finds a job dropped also finds the latched error. */
    atomic_store_explicit(&pool->canceled, 1, memory_order_release);
}

int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err)
{
    int status = ls_pool_is_ours(pool, err); /* a child may have got the latch locked */
    return status ? status : ls_latch_get(&pool->latch, worker, err);
}

int ls_pool_clear(ls_pool *pool, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (!all_finished(pool))
        return ls_fail(err, LS_EAGAIN, "the pool still works: wait before clearing it");
    atomic_store_explicit(&pool->canceled, 0, memory_order_relaxed);
    ls_latch_clear(&pool->latch);
    return LS_OK;
}

static int count_cores(const ls_cpus *cpus)
{
    ls_cpus core;
    ls_cpus_cores(&core, cpus, "");
    int n = 0;
    for (int i = 0; i < core.count; i++)
        n += i == 0 || core.id[i] != core.id[i - 1];
    return n;
}

int ls_allowed_cpus(void)
{
    ls_cpus all;
    if (ls_cpus_allowed(&all, "", NULL) != LS_OK)
        return 1;
    return ls_usable_cpus(all.count, ls_cgroup_quota(""));
}

int ls_allowed_cores(void)
{
    ls_cpus all;
    if (ls_cpus_allowed(&all, "", NULL) != LS_OK)
        return 1;
    return ls_usable_cpus(count_cores(&all), ls_cgroup_quota(""));
}

/* ---- statistics ----------------------------------------------------------------------------- */

static uint64_t value(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Each counter is of its own moment. Where one is part of another, they are made to agree. */
static void add_worker(ls_pool_stats *sum, const struct ls_pool_worker *w)
{
    uint64_t dropped = value(&w->dropped), sleeps = value(&w->sleeps), failed = value(&w->failed);
    uint64_t finished = larger(value(&w->finished), dropped);
    uint64_t run = finished - dropped;
    sum->submitted += larger(value(&w->submitted), finished);
    sum->run += run;
    sum->failed += failed < run ? failed : run;
    sum->dropped += dropped;
    sum->waits += larger(value(&w->waits), sleeps);
    sum->sleeps += sleeps;
    sum->busy_ns += value(&w->busy_ns);
}

int ls_pool_get_stats(ls_pool_stats *out, const ls_pool *pool, int worker, ls_error *err)
{
    ls_pool_stats sum = {0};
    if (out->size < sizeof out->size)
        return ls_fail(err, LS_EINVAL, "stats.size is not set: expected sizeof(ls_pool_stats)");
    if (worker < -1 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL,
                       "worker %d of a pool whose workers are 0 to %d, or -1 for all of them",
                       worker, pool->workers - 1);
    for (int i = 0; i < pool->workers; i++)
        if (worker == -1 || i == worker)
            add_worker(&sum, &pool->worker[i]);
    sum.size = out->size;
    memcpy(out, &sum, out->size < sizeof sum ? out->size : sizeof sum);
    return LS_OK;
}
