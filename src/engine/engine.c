/* The engine's life, its queue's sending end, and what others may see of it. */
#include "base/error.h"
#include "base/host.h"
#include "engine/worker.h"

#include <string.h>

#define CLOSE_NS ((uint64_t)2 * 1000000000u) /* for workers that were left behind to come back */

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
    e->desc.devices = NULL; /* the caller's */
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
    ls_engine_expect(e, 0);
    status = open_workers(e, err);
    if (status == LS_OK && !ls_dataset_resident(d->data[LS_TRAIN]).images)
        status = ls_feed_create(&e->feed, d->data[LS_TRAIN], d->batch_size, d->host, err);
    return status ? status : ls_exchange_create(&e->exchange, e, err);
}

int ls_engine_open(ls_engine **out, const ls_engine_desc *desc, ls_error *err)
{
    ls_engine *e = ls_alloc(desc->host, sizeof *e);
    *out = e;
    if (!e)
        return ls_fail(err, LS_ENOMEM, "out of memory for an engine");
    e->desc = *desc;
    return open_all(e, err);
}

bool ls_engine_lacks_scores(const ls_engine *e)
{
    return e->lacks_scores;
}

void ls_engine_mark(ls_engine *e, int worker, ls_marks *marks)
{
    e->worker[worker].heartbeat.marks = marks;
}

/* ---- closing -------------------------------------------------------------------------------- */

/* Others go on with this pool: its workers only put down what was this engine's. */
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
    return ls_pool_destroy_within(e->pool, left_behind ? CLOSE_NS : LS_FOREVER, NULL);
}

int ls_engine_stop(ls_engine *e)
{
    if (!e)
        return LS_OK;
    e->readers_asleep = e->pool && e->worker && ls_readers_asleep(e);
    if (close_pool(e))
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
    ls_feed_destroy(e->feed);
    ls_free(host, e);
}

/* ---- the queue ------------------------------------------------------------------------------ */

bool ls_engine_has_room(const ls_engine *e)
{
    return e->ends[e->items % LS_IN_FLIGHT] <= e->taken;
}

uint64_t ls_engine_in_flight(const ls_engine *e)
{
    return e->sent - e->taken;
}

uint32_t ls_engine_steps_at_once(const ls_engine *e)
{
    const int first = ls_first_live(e);
    return e->live == 1 && !e->feed && first < e->workers ? e->worker[first].length : 1;
}

/* The inboxes have room for as many ranges as there are slots. */
int ls_engine_submit(ls_engine *e, const ls_range *range, ls_error *err)
{
    const uint64_t slot = e->items++ % LS_IN_FLIGHT;
    const bool at_rest = e->taken == e->sent;
    if (at_rest || e->feed) /* reading rows may have taken long: no worker's silence */
        ls_watch_begin(&e->watch);
    if (at_rest)
        e->next_number = range->first_step + 1;
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence != LS_LIVE)
            continue;
        w->item[slot] = *range;
        w->item[slot].engine = e;
        int status = ls_pool_submit(e->pool, i, ls_worker_train, &w->item[slot], err);
        if (status) { /* the workers that did get the range wait for their peers */
            e->group->type->abort(e->group);
            return status;
        }
    }
    e->sent += range->steps;
    e->ends[slot] = e->sent;
    return LS_OK;
}

/* ---- what others may see -------------------------------------------------------------------- */

ls_engine_state *ls_engine_weights(ls_engine *e)
{
    return &e->exchange->state;
}

char **ls_engine_choices(ls_engine *e)
{
    return &e->choices;
}

ls_sharded_rows *ls_engine_test(ls_engine *e)
{
    return &e->exchange->test;
}

uint32_t *ls_engine_order(ls_engine *e, uint32_t epoch)
{
    return e->exchange->permutation[epoch % 2];
}

struct ls_feed *ls_engine_feed(ls_engine *e)
{
    return e->feed;
}

int ls_engine_workers(const ls_engine *e)
{
    return e->workers;
}

int ls_engine_live(const ls_engine *e)
{
    return e->live;
}

int ls_engine_shards(const ls_engine *e)
{
    return e->shards;
}

size_t ls_engine_total_bytes(const ls_engine *e)
{
    return e->total ? ls_replica_floats(e->worker[0].replica) * sizeof(float) : 0;
}

size_t ls_engine_fold_bytes(const ls_engine *e, int worker)
{
    return ls_fold_bytes(&e->worker[worker].fold);
}

const ls_replica *const *ls_engine_replica_at(const ls_engine *e, int worker)
{
    return (const ls_replica *const *)&e->worker[worker].replica;
}

ls_worker_view ls_engine_worker(const ls_engine *e, int worker)
{
    const ls_train_worker *w = &e->worker[worker];
    const bool done = w->presence == LS_LIVE && w->report.status == LS_OK;
    return (ls_worker_view){.presence = w->presence,
                            .shard_lo = w->shard_lo,
                            .shard_hi = w->shard_hi,
                            .device = w->device,
                            .info = &w->info,
                            .replica = w->replica,
                            .checksum = w->checksum,
                            .report = done ? &w->report : NULL,
                            .queued = ls_pool_busy(e->pool, worker)};
}
