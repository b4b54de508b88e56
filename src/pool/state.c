/* SPDX-License-Identifier: MIT */
/* Information about a pool's workers: pending jobs, abandoned workers, statistics. */
#include "base/error.h"
#include "base/sized.h"
#include "pool/pool.h"

#include <stdio.h>
#include <string.h>

int ls_pool_size(const ls_pool *pool)
{
    return pool ? pool->workers : 0;
}

/* The memory order with which `finished` is loaded. It pairs with LS_POOL_FINISHED_RELEASE in
 * worker.c, and is a macro so that a test can weaken it and check that ThreadSanitizer reports it
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_POOL_FINISHED_ACQUIRE
#define LS_POOL_FINISHED_ACQUIRE memory_order_acquire
#endif

bool ls_pool_was_abandoned(const struct ls_pool_worker *w)
{
    /* relaxed: the flag publishes no other data. */
    return atomic_load_explicit(&w->abandoned, memory_order_relaxed);
}

uint64_t ls_pool_pending(const struct ls_pool_worker *w)
{
    uint64_t finished = atomic_load_explicit(&w->finished, LS_POOL_FINISHED_ACQUIRE);
    uint64_t submitted = atomic_load_explicit(&w->submitted, memory_order_relaxed);
    /* `submitted` cannot be less than `finished` here. The owner increments `submitted` before it
     * pushes a job (release), and the worker pops the job (acquire) before it increments `finished`
     * (release), which is loaded above (acquire). So the increment of `submitted` for each finished
     * job happens before the load of `submitted`. The comparison below protects the result in a
     * test that weakens one of these orders. */
    return submitted > finished ? submitted - finished : 0;
}

int ls_pool_list(char *text, size_t size, const ls_pool *pool,
                 bool (*which)(const struct ls_pool_worker *w))
{
    size_t used = 0;
    int listed = 0;
    text[0] = '\0';
    for (int i = 0; i < pool->workers; i++) {
        if (!which(&pool->worker[i]))
            continue;
        unsigned long long jobs = ls_pool_pending(&pool->worker[i]);
        if (used + 48 > size) {
            snprintf(text + used, size - used, ", …");
            return listed + 1;
        }
        const char *comma = listed++ ? ", " : "";
        int length;
        if (jobs > 0)
            length = snprintf(text + used, size - used, "%sworker %d (%llu job%s)", comma, i, jobs,
                              jobs == 1 ? "" : "s");
        else
            length = snprintf(text + used, size - used, "%sworker %d (stopping)", comma, i);
        used += (size_t)length;
    }
    return listed;
}

static bool exists(const ls_pool *pool, int worker)
{
    return pool && worker >= 0 && worker < pool->workers;
}

int ls_pool_busy(const ls_pool *pool, int worker)
{
    return exists(pool, worker) ? (int)ls_pool_pending(&pool->worker[worker]) : 0;
}

int ls_pool_thread_number(const ls_pool *pool, int worker)
{
    return atomic_load_explicit(&pool->worker[worker].thread_number, memory_order_relaxed);
}

int ls_pool_is_abandoned(const ls_pool *pool, int worker)
{
    return exists(pool, worker) && ls_pool_was_abandoned(&pool->worker[worker]);
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

/* Adds a worker's counters to `sum`. The worker can change the counters while this function reads
 * them one after another. So the function corrects the values that it has read until they satisfy
 * dropped ≤ finished ≤ submitted, failed ≤ run and sleeps ≤ waits. */
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

int ls_pool_get_stats(const ls_pool *pool, int worker, ls_pool_stats *out, ls_error *err)
{
    ls_pool_stats sum = {0};
    if (!pool || !out)
        return ls_fail(err, LS_EINVAL, "ls_pool_get_stats: no pool, or no room for the counters");
    if (worker < -1 || worker >= pool->workers)
        return ls_fail(err, LS_EINVAL,
                       "worker %d of a pool whose workers are 0 to %d, or -1 for all of them",
                       worker, pool->workers - 1);
    for (int i = 0; i < pool->workers; i++)
        if (worker == -1 || i == worker)
            add_worker(&sum, &pool->worker[i]);
    return ls_sized_give(out, &sum, sizeof sum, "ls_pool_stats", err);
}
