/* SPDX-License-Identifier: MIT */
/* Opening and closing of an engine, and ls_engine_submit. engine.h explains how an engine works. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "engine/worker.h"

#include <string.h>
#include <time.h>

/* time in nanoseconds for which ls_engine_stop waits for stalled workers, at most twice */
#define CLOSE_NS ((uint64_t)2 * 1000000000u)

/* ---- opening -------------------------------------------------------------------------------- */

static int open_pool(ls_engine *e, ls_error *err)
{
    e->pool = e->desc.pool;
    if (e->pool)
        return LS_OK;
    ls_device_pool_options o = *e->desc.devices;
    o.inbox = LS_IN_FLIGHT * 2;
    o.stop = ls_worker_close;
    o.user = e;
    e->desc.devices = NULL; /* the list belongs to the caller */
    return ls_device_pool_create(&e->pool, &o, err);
}

static int open_workers(ls_engine *e, ls_error *err)
{
    e->worker = ls_alloc_array(e->desc.host, (size_t)e->workers, sizeof *e->worker);
    if (!e->worker)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d workers", e->workers);
    ls_park_init(&e->parking, 0);
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        w->engine = e;
        w->index = w->fault.worker = i;
        int status = ls_ring_init(&w->reports, e->desc.host, sizeof(ls_report), LS_REPORTS, err);
        if (status)
            return status;
        ls_ring_share_consumer(&w->reports, &e->parking);
    }
    ls_assign_shards(e);
    return LS_OK;
}

static int open_all(ls_engine *e, ls_error *err)
{
    const ls_engine_desc *d = &e->desc;
    int status = open_pool(e, err);
    if (status)
        return status;
    e->workers = ls_pool_size(e->pool);
    e->shards = d->shards ? d->shards : e->workers;
    ls_engine_set_deadline(e, 0);
    status = open_workers(e, err);
    e->streams = !ls_dataset_resident(d->data[LS_TRAIN]).images;
    if (status == LS_OK && e->streams)
        status = ls_feed_create(&e->feed, d->data[LS_TRAIN], d->batch_size, d->host, err);
    return status ? status : ls_exchange_create(&e->exchange, e, err);
}

int ls_engine_open(ls_engine **out, const ls_engine_desc *desc, ls_error *err)
{
    ls_engine *e = ls_alloc(desc->host, sizeof *e);
    *out = e;
    if (!e) {
        ls_free(desc->host, desc->class_weight);
        return ls_fail(err, LS_ENOMEM, "out of memory for an engine");
    }
    e->desc = *desc;
    return open_all(e, err);
}

/* ---- closing -------------------------------------------------------------------------------- */

/* Stops an engine whose pool belongs to the caller: the workers only release what belongs to the
 * engine, and the pool continues to run. */
static int leave_pool(ls_engine *e)
{
    int status = LS_OK;
    if (!e->worker)
        return LS_OK;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_STALLED ||
            ls_pool_submit(e->pool, i, ls_worker_leave, e, NULL))
            status = LS_ESTALLED;
    return ls_pool_wait(e->pool, LS_FOREVER, NULL) == LS_ETIMEDOUT ? LS_ESTALLED : status;
}

static int close_pool(ls_engine *e)
{
    if (e->pool && e->pool == e->desc.pool)
        return leave_pool(e);
    bool left_behind = false;
    for (int i = 0; e->worker && i < e->workers; i++)
        left_behind |= e->worker[i].presence == LS_STALLED;
    return ls_pool_destroy(e->pool, left_behind ? CLOSE_NS : LS_FOREVER, NULL);
}

/* Waits until no stalled worker can still read the partial sums of the other workers, for at most
 * CLOSE_NS. Returns whether a stalled worker still can. */
static bool readers_stay_asleep(const ls_engine *e)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    const uint64_t until_ns = ls_now_ns() + CLOSE_NS;
    while (ls_readers_asleep(e)) {
        if (ls_now_ns() >= until_ns)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

int ls_engine_stop(ls_engine *e)
{
    if (!e)
        return LS_OK;
    /* If a stalled worker can still read the partial sums of other workers, no worker frees memory
     * (ls_worker_close), even if the stalled worker returns before the pool is closed. */
    e->readers_asleep = e->pool && e->worker && readers_stay_asleep(e);
    if (close_pool(e) || e->readers_asleep)
        return LS_ESTALLED;
    ls_free_groups(e);
    return LS_OK;
}

void ls_engine_destroy(ls_engine *e)
{
    if (!e)
        return;
    const ls_host *host = e->desc.host;
    ls_exchange_destroy(e->exchange, host);
    while (e->old_exchanges) {
        ls_exchange *old = e->old_exchanges;
        e->old_exchanges = old->next;
        ls_exchange_destroy(old, host);
    }
    for (int i = 0; e->worker && i < e->workers; i++)
        ls_ring_fini(&e->worker[i].reports);
    ls_free(host, e->worker);
    ls_free(host, e->choices);
    ls_free(host, e->desc.class_weight);
    ls_feed_destroy(e->feed);
    while (e->old_feeds) {
        ls_feed *old = e->old_feeds;
        e->old_feeds = old->next;
        ls_feed_destroy(old);
    }
    ls_free(host, e);
}

ls_engine_state *ls_engine_weights(ls_engine *e)
{
    return &e->exchange->state;
}

/* ---- the queue ------------------------------------------------------------------------------ */

/* Copies the range to a slot of each worker, and submits the copy as a job of the pool. Each inbox
 * has room for the copy, because its capacity is at least the number of a worker's slots. */
int ls_engine_submit(ls_engine *e, const ls_range *range, ls_error *err)
{
    const uint64_t slot = e->ranges++ % LS_IN_FLIGHT;
    const bool at_rest = e->taken == e->sent;
    /* The caller can have spent much time reading streamed rows. That time must not count as
     * silence of the workers. */
    if (at_rest || e->streams)
        ls_watch_begin(&e->watch);
    if (at_rest)
        e->next_number = range->first_step + 1;
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence != LS_LIVE)
            continue;
        w->range[slot] = *range;
        w->range[slot].engine = e;
        w->range[slot].begun = e->begun;
        int status = ls_pool_submit(e->pool, i, ls_worker_train, &w->range[slot], err);
        if (status) { /* releases the workers that wait in the merge */
            e->group->type->abort(e->group);
            return status;
        }
    }
    e->sent += range->steps;
    e->ends[slot] = e->sent;
    return LS_OK;
}
