#include "pool/pool.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define WORKERS_MAX 4096
#define INBOX_DEFAULT 64
#define INBOX_MAX (1 << 20)

/* The caller's options in this version's size: fields that the caller does not know are zero. */
static int take_options(ls_pool_options *out, const ls_pool_options *o, ls_error *err)
{
    if (!o || o->size < sizeof o->size)
        return ls_fail(err, LS_EINVAL, "options.size is not set: expected sizeof(ls_pool_options)");
    memset(out, 0, sizeof *out);
    memcpy(out, o, o->size < sizeof *out ? o->size : sizeof *out);
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
    if (out->inbox == 0)
        out->inbox = INBOX_DEFAULT;
    return LS_OK;
}

/* Decides each worker's CPUs. Returns the number of CPUs that count for spinning. */
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
    if (o->no_pinning)
        return usable;
    ls_cpus_cores(&core, &all, "");
    int want = usable < all.count ? 0 : o->cpus_per_worker;
    int pinned = 0;
    for (int i = 0; i < pool->workers; i++)
        pinned += ls_cpus_split(&pool->worker[i].part, &all, &core, pool->workers, i, want) > 0;
    if (pinned < pool->workers)
        ls_log(o->host, LS_LOG_INFO, "%d workers are not pinned: %d CPUs are allowed",
               pool->workers, all.count);
    return usable;
}

static int init_workers(ls_pool *pool, ls_error *err)
{
    const ls_pool_options *o = &pool->options;
    for (int i = 0; i < pool->workers; i++) {
        struct ls_pool_worker *w = &pool->worker[i];
        w->pool = pool;
        w->view = (ls_worker){.index = i, .workers = pool->workers};
        int rc =
            ls_ring_init(&w->inbox, o->host, sizeof(struct ls_pool_job), (size_t)o->inbox, err);
        if (rc != LS_OK)
            return rc;
    }
    int cpus = plan_cpus(pool);
    for (int i = 0; i < pool->workers; i++)
        ls_ring_set_spins(&pool->worker[i].inbox, ls_spins_for(pool->workers, cpus));
    /* The owner is one more thread. */
    ls_park_init(&pool->owner, ls_spins_for(pool->workers + 1, cpus));
    return LS_OK;
}

void ls_pool_free_worker(struct ls_pool_worker *w)
{
    ls_ring_fini(&w->inbox);
}

void ls_pool_free(ls_pool *pool)
{
    const ls_host *host = pool->options.host;
    for (int i = 0; i < pool->workers && pool->worker; i++)
        ls_pool_free_worker(&pool->worker[i]);
    ls_free(host, pool->worker);
    ls_latch_fini(&pool->latch);
    ls_free(host, pool);
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
    int rc = LS_OK;
    pool->worker = ls_alloc_array(o->host, (size_t)o->workers, sizeof *pool->worker);
    if (!pool->worker)
        rc = ls_fail(err, LS_ENOMEM, "no memory for %d workers", o->workers);
    if (rc == LS_OK)
        rc = init_workers(pool, err);
    if (rc != LS_OK)
        ls_pool_free(pool);
    else
        *out = pool;
    return rc;
}

/* The signals that worker threads block: all but those that a thread raises by its own fault, and
 * the profiler's. */
static void blocked_signals(sigset_t *set)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigfillset(set);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        sigdelset(set, kept[i]);
}

/* Starts the threads; `*started` of them run, also on failure. A thread inherits the mask of its
 * creator, so the caller's is changed for a moment. */
static int start_threads(ls_pool *pool, int *started, ls_error *err)
{
    sigset_t blocked, before;
    blocked_signals(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int rc = 0;
    for (*started = 0; *started < pool->workers && rc == 0; *started += rc == 0) {
        struct ls_pool_worker *w = &pool->worker[*started];
        rc = pthread_create(&w->thread, NULL, ls_pool_thread, w);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return ls_fail(err, LS_ESYSTEM, "the system refused thread %d of %d: error %d",
                       *started + 1, pool->workers, rc);
    return LS_OK;
}

/* Ends the first `n` threads, and frees the pool. */
static void undo_start(ls_pool *pool, int n)
{
    for (int i = 0; i < n; i++)
        ls_ring_close(&pool->worker[i].inbox);
    for (int i = 0; i < n; i++)
        pthread_join(pool->worker[i].thread, NULL);
    ls_pool_free(pool);
}

static bool all_started(void *arg)
{
    ls_pool *pool = arg;
    for (int i = 0; i < pool->workers; i++) /* acquire: with the release in ls_pool_thread */
        if (atomic_load_explicit(&pool->worker[i].phase, memory_order_acquire) == LS_PHASE_STARTING)
            return false;
    return true;
}

int ls_pool_create(ls_pool **out, const ls_pool_options *options, ls_error *err)
{
    ls_pool_options o;
    ls_pool *pool = NULL;
    int started = 0;
    *out = NULL;
    int rc = take_options(&o, options, err);
    if (rc == LS_OK)
        rc = new_pool(&pool, &o, err);
    if (rc != LS_OK)
        return rc;
    rc = start_threads(pool, &started, err);
    if (rc == LS_OK) {
        ls_park_until(&pool->owner, all_started, pool, UINT64_MAX);
        rc = ls_latch_get(&pool->latch, NULL, err);
    }
    if (rc != LS_OK)
        undo_start(pool, started);
    else
        *out = pool;
    return rc;
}

int ls_pool_size(const ls_pool *pool)
{
    return pool->workers;
}

static int check_job(const ls_pool *pool, ls_job job, ls_error *err)
{
    if (!job)
        return ls_fail(err, LS_EINVAL, "the job is NULL");
    if (atomic_load_explicit(&pool->canceled, memory_order_acquire))
        return ls_fail(err, LS_ECANCELED, "the pool was cancelled");
    return LS_OK;
}

/* The inbox has room unless LS_EAGAIN comes back. */
static int post(struct ls_pool_worker *w, ls_job job, void *arg)
{
    int rc = ls_ring_try_push(&w->inbox, &(struct ls_pool_job){job, arg});
    /* relaxed: the owner alone writes it and decides by it. */
    uint64_t submitted = atomic_load_explicit(&w->submitted, memory_order_relaxed);
    atomic_store_explicit(&w->submitted, submitted + (rc == LS_OK), memory_order_relaxed);
    return rc;
}

int ls_pool_submit(ls_pool *pool, int worker, ls_job job, void *arg, ls_error *err)
{
    if (worker < 0 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL, "worker %d of a pool whose workers are 0 to %d", worker,
                       pool->workers - 1);
    int rc = check_job(pool, job, err);
    if (rc != LS_OK)
        return rc;
    if (ls_pool_gave_up(&pool->worker[worker]))
        return ls_fail(err, LS_ESTALLED, "worker %d was given up: it takes no jobs", worker);
    rc = post(&pool->worker[worker], job, arg);
    if (rc == LS_EAGAIN)
        return ls_fail(err, rc, "the inbox of worker %d is full: %d jobs", worker,
                       (int)ls_ring_length(&pool->worker[worker].inbox));
    return rc;
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

static int wait_until(ls_pool *pool, uint64_t deadline_ns, ls_error *err)
{
    if (!ls_park_until(&pool->owner, all_finished, pool, deadline_ns))
        return timed_out(pool, err);
    return ls_latch_get(&pool->latch, NULL, err);
}

int ls_pool_wait(ls_pool *pool, ls_timeout timeout, ls_error *err)
{
    return wait_until(pool, ls_deadline_ns(timeout), err);
}

/* Room for one job everywhere, so that either every worker gets it or none: only the owner fills
 * inboxes, hence room that was seen stays. */
static int wait_for_room(ls_pool *pool, uint64_t deadline_ns, ls_error *err)
{
    int takers = 0;
    for (int i = 0; i < pool->workers; i++) {
        if (ls_pool_gave_up(&pool->worker[i]))
            continue;
        takers++;
        if (ls_ring_wait_room(&pool->worker[i].inbox, deadline_ns, NULL) != LS_OK)
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
    uint64_t deadline_ns = ls_deadline_ns(timeout);
    int rc = check_job(pool, job, err);
    if (rc == LS_OK)
        rc = wait_for_room(pool, deadline_ns, err);
    if (rc != LS_OK)
        return rc;
    for (int i = 0; i < pool->workers; i++) {
        if (ls_pool_gave_up(&pool->worker[i]))
            continue;
        rc = post(&pool->worker[i], job, arg);
        if (rc != LS_OK)
            return ls_fail(err, LS_EINTERNAL, "the inbox of worker %d lost its room", i);
    }
    return wait_until(pool, deadline_ns, err);
}

void ls_pool_cancel(ls_pool *pool)
{
    ls_error err;
    ls_fail(&err, LS_ECANCELED, "the pool was cancelled");
    ls_latch_set(&pool->latch, -1, LS_ECANCELED, &err, NULL);
    /* release: whoever finds a job dropped also finds the latched error. */
    atomic_store_explicit(&pool->canceled, 1, memory_order_release);
}

int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err)
{
    return ls_latch_get(&pool->latch, worker, err);
}

int ls_pool_clear(ls_pool *pool, ls_error *err)
{
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
