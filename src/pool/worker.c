#include "pool/pool.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>

static void run_job(struct ls_pool_worker *w, const struct ls_pool_job *job)
{
    /* acquire: a job is dropped only after the cancel was latched, so that the owner, who sees it
     * finished, also sees why. */
    if (atomic_load_explicit(&w->pool->canceled, memory_order_acquire))
        return;
    ls_error err;
    err.text[0] = '\0';
    int rc = job->job(&w->view, job->arg, &err);
    if (rc < 0)
        ls_latch_set(&w->pool->latch, w->view.index, rc, &err);
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
        atomic_store_explicit(&w->finished, ++finished, memory_order_release);
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
        ls_latch_set(&w->pool->latch, w->view.index, rc, &err);
    return rc;
}

void *ls_pool_thread(void *worker)
{
    struct ls_pool_worker *w = worker;
    pin(w);
    name_thread(w);
    int rc = start(w);
    /* release: the start hook's work is visible to the owner when create returns. */
    atomic_store_explicit(&w->phase, rc < 0 ? LS_PHASE_FAILED : LS_PHASE_RUNNING,
                          memory_order_release);
    ls_park_wake(&w->pool->owner);
    if (rc < 0)
        return NULL;
    ls_pool_work(w->pool, w->view.index);
    if (w->pool->options.stop)
        w->pool->options.stop(&w->view, w->pool->options.user);
    return NULL;
}
