/* SPDX-License-Identifier: MIT */
#include "engine/view.h"
#include "base/digest.h"
#include "engine/worker.h"

bool ls_engine_has_room(const ls_engine *e)
{
    return e->ends[e->ranges % LS_IN_FLIGHT] <= e->taken;
}

uint64_t ls_engine_in_flight(const ls_engine *e)
{
    return e->sent - e->taken;
}

uint32_t ls_engine_steps_at_once(const ls_engine *e)
{
    const int first = ls_first_live(e);
    return e->live == 1 && !e->streams && first < e->workers ? e->worker[first].length : 1;
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

const ls_injections *ls_engine_injections(const ls_engine *e)
{
    return &e->desc.injections;
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
    return e->total ? ls_engine_floats(e) * sizeof(float) : 0;
}

size_t ls_engine_fold_bytes(const ls_engine *e, int worker)
{
    return ls_fold_bytes(&e->worker[worker].fold);
}

const ls_replica *const *ls_engine_replica_at(const ls_engine *e, int worker)
{
    return (const ls_replica *const *)&e->worker[worker].replica;
}

/* Only the coordinator writes presence, shard_lo, shard_hi and report, even those of a stalled
 * worker. So the coordinator may read these fields at any time. Jobs write device, replica and
 * checksum on the worker's thread, so these fields are read only if the worker's last job has
 * ended. That of a live or lost worker has ended, because the coordinator waits for its jobs
 * (ls_await_jobs), and the pool makes its writes visible to the thread that saw it end
 * (pool/pool.h). Ranges, which may be running, do not write these fields. A stalled worker can
 * still be running a job, so its fields are not read. */
ls_worker_view ls_engine_worker(const ls_engine *e, int worker)
{
    const ls_train_worker *w = &e->worker[worker];
    ls_worker_view view = {.presence = w->presence,
                           .shard_lo = w->shard_lo,
                           .shard_hi = w->shard_hi,
                           .info = &w->info,
                           .queued = ls_pool_busy(e->pool, worker)};
    if (w->presence == LS_STALLED)
        return view;
    view.device = w->device;
    view.replica = w->replica;
    view.checksum = w->checksum;
    if (w->presence == LS_LIVE && w->fault.error.status == LS_OK)
        view.report = &w->report;
    return view;
}

int ls_engine_compare_lag(const ls_engine *e)
{
    const int first = ls_first_live(e);
    if (first == e->workers || !e->worker[first].compares)
        return 0;
    return ls_replica_digest_is_late(e->worker[first].replica) ? 3 : 2;
}

uint64_t ls_engine_state_digest(const ls_engine *e)
{
    const ls_train_worker *w = &e->worker[ls_first_live(e)];
    return ls_digest_next(w->digest, w->checksum);
}

void ls_engine_digest(const ls_engine *e, ls_engine_digests *out)
{
    const ls_train_worker *w = &e->worker[ls_first_live(e)];
    *out = (ls_engine_digests){w->digest, w->digest_before};
}

void ls_engine_set_digest(ls_engine *e, const ls_engine_digests *digests)
{
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_STALLED)
            continue;
        w->digest_due = false;
        w->digest = digests->now;
        w->digest_before = digests->before;
    }
}

const char *ls_engine_device_name(const ls_engine *e, int worker)
{
    return e->worker[worker].info.name;
}

size_t ls_engine_floats(const ls_engine *e)
{
    return ls_replica_floats(e->worker[0].replica);
}

bool ls_engine_lacks_scores(const ls_engine *e)
{
    return e->lacks_scores;
}

void ls_engine_set_marks(ls_engine *e, int worker, ls_marks *marks)
{
    e->worker[worker].heartbeat.marks = marks;
}
