/* Workers that run on threads of the host's: lent ones, and the owner itself. */
#include "base/error.h"
#include "pool/pool.h"

#include <time.h>

/* How a thread takes a worker over from one whose start hook failed: macros, so that a test can
 * weaken them and see ThreadSanitizer object (tests/sync/weakened_orders.sh). */
#ifndef LS_POOL_TAKE_ACQUIRE
#define LS_POOL_TAKE_ACQUIRE memory_order_acquire
#endif
#ifndef LS_POOL_GIVE_RELEASE
#define LS_POOL_GIVE_RELEASE memory_order_release
#endif

/* A test makes the last moment longer, to see that nobody frees the pool in it. */
static void linger(void)
{
#ifdef LS_POOL_LINGER_NS
    nanosleep(&(struct timespec){.tv_nsec = LS_POOL_LINGER_NS}, NULL);
#endif
}

/* ---- lent ----------------------------------------------------------------------------------- */

static int take(ls_pool *pool, int worker, ls_error *err)
{
    if (worker < pool->workers - pool->options.borrowed || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d is not borrowed: %d of %d are, the last ones",
                       worker, pool->options.borrowed, pool->workers);
    if (ls_inside_of(pool))
        return ls_fail(err, LS_EINVAL, "a thread that runs a job of the pool cannot be lent to it");
    struct ls_pool_worker *w = &pool->worker[worker];
    int unserved = LS_PHASE_UNSERVED;
    /* acquire: with the release in give_back, so that what a thread before this one has left in the
     * worker is seen. */
    if (!atomic_compare_exchange_strong_explicit(&w->phase, &unserved, LS_PHASE_STARTING,
                                                 LS_POOL_TAKE_ACQUIRE, memory_order_relaxed))
        return ls_fail(err, LS_EAGAIN, "worker %d is served by another thread", worker);
    return LS_OK;
}

/* The last that a lent thread does with the pool. Whoever destroys the pool cannot join the thread,
 * but passes through the same lock after it has seen the phase, so that the thread is out of here
 * before the memory goes. Nothing is done for a worker that was left behind. */
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

static int left_behind(int worker, ls_error *err)
{
    return ls_fail(err, LS_ESTALLED,
                   "the pool was destroyed without waiting for the thread lent as worker %d",
                   worker);
}

static int serve(struct ls_pool_worker *w, ls_error *err)
{
    int index = w->view.index;
    ls_error why;
    int rc = ls_pool_start_hook(w, &why);
    if (rc < 0) {
        w->view.local = NULL;
        give_back(w, LS_PHASE_STARTING, LS_PHASE_UNSERVED);
        why.status = rc;
        if (err)
            *err = why;
        return rc;
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
    int rc = ls_pool_is_ours(pool, err);
    if (rc == LS_OK)
        rc = take(pool, worker, err);
    if (rc != LS_OK)
        return rc;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    rc = serve(&pool->worker[worker], err);
    pthread_setcancelstate(cancelable, NULL);
    return rc;
}

void ls_pool_see_off(ls_pool *pool)
{
    pthread_mutex_lock(&pool->leaving);
    pthread_mutex_unlock(&pool->leaving);
}

/* ---- the owner as worker 0 ------------------------------------------------------------------ */

int ls_pool_start_caller(ls_pool *pool)
{
    struct ls_pool_worker *w = &pool->worker[0];
    ls_error err;
    int rc = ls_pool_start_hook(w, &err);
    if (rc < 0)
        ls_latch_set(&pool->latch, 0, rc, &err, NULL);
    ls_pool_enter_phase(w, rc < 0 ? LS_PHASE_ENDED : LS_PHASE_RUNNING);
    return rc;
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
