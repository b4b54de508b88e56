/* SPDX-License-Identifier: MIT */
/* Workers whose jobs do not return: abandoning such workers, and destroying a pool that has such
 * workers. pool.h explains lent threads and phases. */
#include "base/error.h"
#include "pool/pool.h"

int ls_pool_abandon(ls_pool *pool, int worker, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (worker < 0 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d of a pool whose workers are 0 to %d", worker,
                       pool->workers - 1);
    if (worker == 0 && pool->options.caller_works)
        return ls_fail(err, LS_EINVAL,
                       "worker 0 runs on the owner's thread and cannot be abandoned");
    ls_latch_set_mute(&pool->latch, &pool->worker[worker].abandoned);
    return LS_OK;
}

/* ---- the end -------------------------------------------------------------------------------- */

static int phase_of(const struct ls_pool_worker *w)
{
    /* acquire: pairs with the releases in ls_pool_enter_phase and give_back. */
    return atomic_load_explicit(&w->phase, memory_order_acquire);
}

static bool has_ended(const struct ls_pool_worker *w)
{
    int phase = phase_of(w);
    return phase == LS_PHASE_ENDED || phase == LS_PHASE_UNSERVED;
}

static bool all_ended(void *arg)
{
    const ls_pool *pool = arg;
    for (int i = 0; i < pool->workers; i++)
        if (!has_ended(&pool->worker[i]))
            return false;
    return true;
}

static bool this_ended(void *arg)
{
    return has_ended(arg);
}

/* Returns whether all workers have ended, except abandoned workers that are still inside a job. */
static bool all_able_ended(void *arg)
{
    const ls_pool *pool = arg;
    for (int i = 0; i < pool->workers; i++) {
        const struct ls_pool_worker *w = &pool->worker[i];
        bool hangs = ls_pool_was_abandoned(w) && ls_pool_pending(w) > 0;
        if (!hangs && !has_ended(w))
            return false;
    }
    return true;
}

/* Ends one worker after the wait of end_workers.
 * - If the worker has ended, its thread is joined.
 * - If the worker is still in a job or in its start hook, its thread is left running.
 * - If the worker is already in its stop hook, this function waits for the end of the hook if there
 *   is no time limit (`no_limit`). With a time limit, the thread is left running.
 * Threads that the host program lent cannot be joined; ls_pool_await_lent waits for them. */
static void end_worker(ls_pool *pool, struct ls_pool_worker *w, bool no_limit)
{
    /* The worker must run no further jobs after its present job, which can return later. */
    ls_latch_set_mute(&pool->latch, &w->abandoned);
    /* The exchanges below are relaxed. The writes of a thread that has ended become visible to this
     * thread by the join, or by the acquire load of the worker's phase. */
    bool busy = ls_pool_move_phase(w, LS_PHASE_RUNNING, LS_PHASE_LEFT) ||
                ls_pool_move_phase(w, LS_PHASE_STARTING, LS_PHASE_LEFT);
    if (!w->own && !busy && no_limit)
        ls_park_until(&pool->owner, this_ended, w, UINT64_MAX);
    w->left_running = busy || (!has_ended(w) && !no_limit);
    if (w->own && w->left_running)
        pthread_detach(w->thread);
    else if (w->own)
        pthread_join(w->thread, NULL);
}

static bool is_left_running(const struct ls_pool_worker *w)
{
    return w->left_running;
}

/* Frees the whole pool if no thread was left running. Otherwise frees only the inboxes of the
 * workers that have ended, because a thread that is still running can access all other memory of
 * the pool. */
static int free_or_leave(ls_pool *pool, ls_error *err)
{
    char list[300];
    int running = ls_pool_list(list, sizeof list, pool, is_left_running);
    ls_pool_await_lent(pool);
    if (running == 0) {
        ls_pool_free(pool);
        return LS_OK;
    }
    for (int i = 0; i < pool->workers; i++)
        if (!pool->worker[i].left_running)
            ls_ring_fini(&pool->worker[i].inbox);
    return ls_fail(err, LS_ESTALLED, "still running when the pool was destroyed: %s", list);
}

static int end_workers(ls_pool *pool, ls_timeout timeout, ls_error *err)
{
    bool no_limit = timeout == LS_FOREVER;
    ls_patience limit = ls_patience_of(timeout);
    for (int i = 0; i < pool->workers; i++)
        ls_ring_close(&pool->worker[i].inbox);
    ls_pool_end_caller(pool);
    ls_park_patiently(&pool->owner, no_limit ? all_able_ended : all_ended, pool, &limit);
    for (int i = 0; i < pool->workers; i++)
        end_worker(pool, &pool->worker[i], no_limit);
    return free_or_leave(pool, err);
}

int ls_pool_destroy(ls_pool *pool, ls_timeout timeout, ls_error *err)
{
    int cancelable;
    if (!pool)
        return LS_OK;
    if (ls_pool_is_ours(pool, NULL) != LS_OK) {
        ls_pool_free(pool); /* the threads exist only in the parent process */
        return LS_OK;
    }
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    /* pthread_join is a cancellation point (pthread_cancel). The calling thread must not end
     * here. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    status = end_workers(pool, timeout, err);
    pthread_setcancelstate(cancelable, NULL);
    return status;
}
