/* SPDX-License-Identifier: MIT */
/* The functions that a pool's owner calls: submitting jobs, waiting for them, cancelling,
 * clearing. */
#include "pool/pool.h"

#include "base/error.h"

int ls_pool_check_canceled(const ls_pool *pool, ls_error *err)
{
    if (atomic_load_explicit(&pool->canceled, memory_order_acquire))
        return ls_fail(err, LS_ECANCELED, "the pool was cancelled");
    return LS_OK;
}

static int check_job(const ls_pool *pool, ls_job job, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (!job)
        return ls_fail(err, LS_EINVAL, "the job is NULL");
    return ls_pool_check_canceled(pool, err);
}

/* Puts a job into a worker's inbox. Returns LS_EAGAIN if the inbox is full. The job is counted in
 * `submitted` before the push. The push is a release and publishes the count as well. So if a job
 * calls ls_pool_busy, the result includes the job itself. */
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
    int status = check_job(pool, job, err);
    if (status)
        return status;
    if (worker < 0 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d of a pool whose workers are 0 to %d", worker,
                       pool->workers - 1);
    if (ls_pool_was_abandoned(&pool->worker[worker]))
        return ls_fail(err, LS_ESTALLED, "worker %d was abandoned: it accepts no jobs", worker);
    status = post(&pool->worker[worker], job, arg);
    if (status == LS_EAGAIN)
        return ls_fail(err, status, "the inbox of worker %d is full: %d jobs", worker,
                       (int)ls_ring_length(&pool->worker[worker].inbox));
    return status;
}

/* Returns whether the owner has to wait for the worker. */
static bool is_awaited(const struct ls_pool_worker *w)
{
    return !ls_pool_was_abandoned(w) && ls_pool_pending(w) > 0;
}

/* Condition of the owner's waits: the owner does not have to wait for any worker. */
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
    return ls_fail(err, LS_ETIMEDOUT, "the time limit passed with unfinished jobs: %s",
                   workers ? left : "none, the last one has just finished");
}

/* Waits until all awaited jobs have finished, and returns the latched error, if any. If the owner
 * has just woken a worker that is not pinned, it sleeps at once: the worker then starts soonest, on
 * the CPU that the owner leaves, because waking another CPU takes several times as long. Otherwise
 * the owner spins first. */
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

/* Runs the jobs in worker 0's inbox on the owner's thread, and then `job`, unless it is NULL. */
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

/* Waits until the inbox can take a job. Returns false if the time limit has passed. */
static bool has_free_slot(ls_ring *inbox, ls_patience *patience)
{
    do {
        if (ls_ring_wait_slot(inbox, ls_patience_nap(patience), NULL) == LS_OK)
            return true;
    } while (!ls_patience_over(patience));
    return false;
}

/* Waits until every inbox can take one job, so that either every worker gets the job or none does.
 * Only the owner fills inboxes, so an inbox with a free slot still has it when the owner pushes the
 * job. */
static int wait_for_slots(ls_pool *pool, ls_patience *patience, ls_error *err)
{
    int takers = pool->options.caller_works;
    for (int i = takers; i < pool->workers; i++) {
        if (ls_pool_was_abandoned(&pool->worker[i]))
            continue;
        takers++;
        if (!has_free_slot(&pool->worker[i].inbox, patience))
            return ls_fail(err, LS_EAGAIN,
                           "the inbox of worker %d stayed full until the time "
                           "limit; no worker got the job",
                           i);
    }
    if (takers == 0)
        return ls_fail(err, LS_ESTALLED, "every worker of the pool was abandoned");
    return LS_OK;
}

int ls_pool_run(ls_pool *pool, ls_job job, void *arg, ls_timeout timeout, ls_error *err)
{
    ls_patience patience = ls_patience_of(timeout);
    int status = check_job(pool, job, err);
    if (status == LS_OK)
        status = wait_for_slots(pool, &patience, err);
    if (status)
        return status;
    for (int i = pool->options.caller_works; i < pool->workers; i++) {
        if (ls_pool_was_abandoned(&pool->worker[i]))
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
    if (ls_pool_is_ours(pool, NULL) != LS_OK) /* NULL included */
        return;
    ls_fail(&err, LS_ECANCELED, "the pool was cancelled");
    ls_latch_set(&pool->latch, -1, LS_ECANCELED, &err, NULL);
    /* release: pairs with the acquire in run_job. A thread that sees a job dropped because of the
     * cancel also sees the latched error. */
    atomic_store_explicit(&pool->canceled, 1, memory_order_release);
}

int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err)
{
    /* in a forked child the latch can be locked for ever */
    int status = ls_pool_is_ours(pool, err);
    return status ? status : ls_latch_get(&pool->latch, worker, err);
}

int ls_pool_clear(ls_pool *pool, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (!all_finished(pool))
        return ls_fail(err, LS_EAGAIN, "the pool has unfinished jobs: wait before clearing it");
    atomic_store_explicit(&pool->canceled, 0, memory_order_relaxed);
    ls_latch_clear(&pool->latch);
    return LS_OK;
}

/* Returns the number of cores to which the CPUs belong. */
static int count_cores(const ls_cpus *cpus)
{
    ls_cpus core;
    ls_cpus_cores(&core, cpus, "");
    int n = 0;
    for (int i = 0; i < core.count; i++)
        if (i == 0 || core.id[i] != core.id[i - 1])
            n++;
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
