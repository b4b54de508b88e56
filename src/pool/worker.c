#include "pool/pool.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>

/* How a worker says that a job has finished, a macro so that a test can weaken it and see
 * ThreadSanitizer object (tests/sync/weakened_orders.sh). */
#ifndef LS_POOL_FINISHED_RELEASE
#define LS_POOL_FINISHED_RELEASE memory_order_release
#endif

static void run_job(struct ls_pool_worker *w, const struct ls_pool_job *job)
{
    /* acquire: a job is dropped only after the cancel was latched, so that the owner, who sees it
     * finished, also sees why. */
    if (atomic_load_explicit(&w->pool->canceled, memory_order_acquire) || ls_pool_gave_up(w))
        return;
    ls_error err;
    err.text[0] = '\0';
    int rc = job->job(&w->view, job->arg, &err);
    if (rc < 0)
        ls_latch_set(&w->pool->latch, w->view.index, rc, &err, &w->abandoned);
}

void ls_pool_work(ls_pool *pool, int index)
{
    struct ls_pool_worker *w = &pool->worker[index];
    struct ls_pool_job job;
    /* relaxed: only this worker writes it. */
    uint64_t finished = atomic_load_explicit(&w->finished, memory_order_relaxed);
    while (ls_ring_pop(&w->inbox, &job, UINT64_MAX, NULL) == LS_OK) {
        run_job(w, &job);
        /* release: what the job did is visible to the owner that has waited for it. */
        atomic_store_explicit(&w->finished, ++finished, LS_POOL_FINISHED_RELEASE);
        ls_park_wake(&pool->owner);
    }
}

/* Threads are called "<name>/<index>"; the name gives way where both do not fit. */
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

static int start(struct ls_pool_worker *w)
{
    const ls_pool_options *o = &w->pool->options;
    if (!o->start)
        return LS_OK;
    ls_error err;
    err.text[0] = '\0';
    int rc = o->start(&w->view, o->user, &err);
    if (rc < 0)
        ls_latch_set(&w->pool->latch, w->view.index, rc, &err, NULL);
    return rc;
}

static void enter_phase(struct ls_pool_worker *w, int phase)
{
    /* release: what the hooks did is visible to the owner that has seen the phase. */
    atomic_store_explicit(&w->phase, phase, memory_order_release);
    ls_park_wake(&w->pool->owner);
}

/* The stop hook, unless the thread was left behind: then everything of the caller's may be gone,
 * and what remains of the pool is this thread's for good. */
static void stop(struct ls_pool_worker *w)
{
    const ls_pool_options *o = &w->pool->options;
    int running = LS_PHASE_RUNNING;
    /* relaxed: who comes second does nothing with what the first has done. */
    if (!atomic_compare_exchange_strong_explicit(&w->phase, &running, LS_PHASE_STOPPING,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    if (o->stop)
        o->stop(&w->view, o->user);
    enter_phase(w, LS_PHASE_ENDED);
}

void *ls_pool_thread(void *worker)
{
    struct ls_pool_worker *w = worker;
    pin(w);
    name_thread(w);
    if (start(w) < 0) {
        enter_phase(w, LS_PHASE_ENDED);
        return NULL;
    }
    enter_phase(w, LS_PHASE_RUNNING);
    ls_pool_work(w->pool, w->view.index);
    stop(w);
    return NULL;
}
