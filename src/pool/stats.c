#include "base/error.h"
#include "pool/pool.h"

#include <string.h>

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
