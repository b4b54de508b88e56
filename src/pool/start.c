/* SPDX-License-Identifier: MIT */
/* Creation of a pool (options, CPUs, memory, threads), and its release. */
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "base/sized.h"
#include "base/stack.h"
#include "pool/pool.h"

#include <stdio.h>
#include <string.h>

#define WORKERS_MAX 4096
#define INBOX_DEFAULT 64
#define INBOX_MAX (1 << 20)

static int take_options(ls_pool_options *out, const ls_pool_options *o, ls_error *err)
{
    int status = ls_sized_take(out, sizeof *out, o, "ls_pool_options", err);
    if (status == LS_OK)
        status = ls_host_check(out->host, err);
    if (status)
        return status;
    if (out->workers < 1 || out->workers > WORKERS_MAX)
        return ls_fail(err, LS_EINVAL, "a pool of %d workers: expected 1 to %d", out->workers,
                       WORKERS_MAX);
    if (out->inbox < 0 || out->inbox > INBOX_MAX)
        return ls_fail(err, LS_EINVAL, "an inbox of %d jobs: expected 1 to %d, or 0 for %d",
                       out->inbox, INBOX_MAX, INBOX_DEFAULT);
    if (out->cpus_per_worker < 0)
        return ls_fail(err, LS_EINVAL,
                       "%d CPUs per worker: expected 1 or more, or 0 for an equal "
                       "share",
                       out->cpus_per_worker);
    if (out->cpus_per_worker > 0 && out->pinning != LS_PINNING_ON)
        return ls_fail(err, LS_EINVAL,
                       "cpus_per_worker is %d, but workers are not pinned: set "
                       "options.pinning to LS_PINNING_ON",
                       out->cpus_per_worker);
    out->caller_works = out->caller_works != 0;
    if (out->borrowed < 0 || out->borrowed > out->workers - out->caller_works)
        return ls_fail(err, LS_EINVAL, "%d borrowed workers of %d: expected 0 to %d", out->borrowed,
                       out->workers, out->workers - out->caller_works);
    if (out->inbox == 0)
        out->inbox = INBOX_DEFAULT;
    return LS_OK;
}

/* Decides each worker's CPUs. Returns the number of CPUs that the process can use, or 1 if the
 * number is unknown. (The caller needs the number because threads may spin only if each thread can
 * have a CPU of its own.) */
static int plan_cpus(ls_pool *pool)
{
    const ls_pool_options *o = &pool->options;
    ls_cpus all, core;
    ls_error err;
    if (ls_cpus_allowed(&all, "", &err) != LS_OK) {
        ls_log(o->host, LS_LOG_WARNING, "workers are not pinned: %s", err.text);
        return 1;
    }
    int usable = ls_usable_cpus(all.count, ls_cgroup_quota(""));
    if (o->pinning != LS_PINNING_ON)
        return usable;
    ls_cpus_cores(&core, &all, "");
    int want = usable < all.count ? 0 : o->cpus_per_worker;
    int pinned = 0;
    for (int i = 0; i < pool->workers; i++)
        if (ls_cpus_split(&pool->worker[i].part, &all, &core, pool->workers, i, want) > 0)
            pinned++;
    if (pinned < pool->workers)
        ls_log(o->host, LS_LOG_INFO, "%d %s not pinned: %d %s allowed", pool->workers,
               ls_plural((uint64_t)pool->workers, "worker is", "workers are"), all.count,
               ls_plural((uint64_t)all.count, "CPU is", "CPUs are"));
    return usable;
}

static int init_workers(ls_pool *pool, ls_error *err)
{
    const ls_pool_options *o = &pool->options;
    int cpus = plan_cpus(pool);
    bool spins = ls_spins_for(pool->workers, cpus) > 0;
    for (int i = 0; i < pool->workers; i++) {
        struct ls_pool_worker *w = &pool->worker[i];
        bool lent = i >= pool->workers - o->borrowed;
        w->pool = pool;
        w->view = (ls_worker){.index = i, .workers = pool->workers};
        w->own = !lent && !(i == 0 && o->caller_works);
        atomic_init(&w->phase, lent ? LS_PHASE_UNSERVED : LS_PHASE_STARTING);
        int status =
            ls_ring_init(&w->inbox, o->host, sizeof(struct ls_pool_job), (size_t)o->inbox, err);
        if (status)
            return status;
        w->habit.allowed = spins;
        ls_park_init(&w->idle, 0);
        ls_ring_share_consumer(&w->inbox, &w->idle);
    }
    /* The owner counts as an additional thread unless it works as worker 0. */
    pool->habit.allowed = ls_spins_for(pool->workers + !o->caller_works, cpus) > 0;
    ls_park_init(&pool->owner, 0);
    return LS_OK;
}

void ls_pool_free(ls_pool *pool)
{
    const ls_host *host = pool->options.host;
    for (int i = 0; i < pool->workers && pool->worker; i++)
        ls_ring_fini(&pool->worker[i].inbox);
    ls_free(host, pool->worker);
    ls_free(host, pool->adopted);
    ls_fork_mark_destroy(pool->mark);
    pthread_mutex_destroy(&pool->leaving);
    ls_latch_fini(&pool->latch);
    ls_free(host, pool);
}

void ls_pool_adopt(ls_pool *pool, void *memory)
{
    pool->adopted = memory;
}

static int new_pool(ls_pool **out, const ls_pool_options *o, ls_error *err)
{
    ls_pool *pool = ls_alloc(o->host, sizeof *pool);
    if (!pool)
        return ls_fail(err, LS_ENOMEM, "no memory for a pool");
    pool->options = *o;
    pool->workers = o->workers;
    snprintf(pool->name, sizeof pool->name, "%s", o->name ? o->name : "lockstep");
    pool->options.name = pool->name;
    ls_latch_init(&pool->latch);
    pthread_mutex_init(&pool->leaving, NULL);
    int status = ls_fork_mark_create(&pool->mark, err);
    if (status == LS_OK)
        pool->worker = ls_alloc_array(o->host, (size_t)o->workers, sizeof *pool->worker);
    if (status == LS_OK && !pool->worker)
        status = ls_fail(err, LS_ENOMEM, "no memory for %d workers", o->workers);
    if (status == LS_OK)
        status = init_workers(pool, err);
    if (status)
        ls_pool_free(pool);
    else
        *out = pool;
    return status;
}

/* Starts the pool's own threads. Sets *started, also after a failure: the workers 0 … *started − 1
 * have been started, as far as the pool starts their threads. */
static int start_threads(ls_pool *pool, int *started, ls_error *err)
{
    char why[LS_THREAD_REASON];
    for (*started = 0; *started < pool->workers; (*started)++) {
        struct ls_pool_worker *w = &pool->worker[*started];
        const int error = w->own ? ls_thread_start(&w->thread, ls_pool_thread, w) : 0;
        if (error != 0)
            return ls_fail(err, LS_ESYSTEM, "the system refused the thread of worker %d of %d: %s",
                           *started, pool->workers, ls_thread_reason(why, error));
    }
    return LS_OK;
}

/* Ends the threads of the first `n` workers and frees the pool, after a failure of the creation. */
static void undo_start(ls_pool *pool, int n)
{
    for (int i = 0; i < n; i++)
        ls_ring_close(&pool->worker[i].inbox);
    ls_pool_end_caller(pool);
    for (int i = 0; i < n; i++)
        if (pool->worker[i].own)
            pthread_join(pool->worker[i].thread, NULL);
    ls_pool_free(pool);
}

static bool all_started(void *arg)
{
    ls_pool *pool = arg;
    for (int i = 0; i < pool->workers - pool->options.borrowed; i++)
        /* acquire: pairs with the release in ls_pool_enter_phase */
        if (atomic_load_explicit(&pool->worker[i].phase, memory_order_acquire) == LS_PHASE_STARTING)
            return false;
    return true;
}

static int start_workers(ls_pool *pool, ls_error *err)
{
    int started, cancelable;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    int status = start_threads(pool, &started, err);
    if (status == LS_OK && pool->options.caller_works)
        ls_pool_start_caller(pool);
    if (status == LS_OK) {
        ls_park_until(&pool->owner, all_started, pool, UINT64_MAX);
        status = ls_latch_get(&pool->latch, NULL, err);
    }
    if (status)
        undo_start(pool, started);
    pthread_setcancelstate(cancelable, NULL);
    return status;
}

LS_AFTER_STACK_CHECK static int create(ls_pool **out, const ls_pool_options *options, ls_error *err)
{
    ls_pool_options o;
    ls_pool *pool = NULL;
    int status = take_options(&o, options, err);
    if (status == LS_OK)
        status = new_pool(&pool, &o, err);
    if (status == LS_OK)
        status = start_workers(pool, err);
    if (status == LS_OK)
        *out = pool;
    return status;
}

int ls_pool_create(ls_pool **out, const ls_pool_options *options, ls_error *err)
{
    if (!out)
        return ls_fail(err, LS_EINVAL, "ls_pool_create: nowhere to put the pool");
    *out = NULL;
    int status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_pool_create", err);
    return status ? status : create(out, options, err);
}
