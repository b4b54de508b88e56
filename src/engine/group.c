/* SPDX-License-Identifier: MIT */
/* Groups: the assignment of shards to workers, the creation of a group, and the removal of workers
 * after a failure.
 *
 * After a group has lost a worker it is not used again: a new group is created, and the shards are
 * distributed anew among the remaining workers.
 *
 * A stalled worker cannot be stopped. All memory that a stalled worker can still use (its replica,
 * the exchange, the feed, the group) is left to it, and the other workers continue with new memory.
 * If a stalled worker wakes, it finds its group aborted and does nothing more. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "cluster/cluster.h"
#include "engine/worker.h"

#include <lockstep/split.h>
#include <string.h>
#include <time.h>

/* ---- shards --------------------------------------------------------------------------------- */

/* Writes the range of shards lo … hi − 1 that belongs to this process. */
static void find_span(const ls_engine *e, int *lo, int *hi)
{
    struct ls_cluster *cluster = e->desc.cluster;
    *lo = 0;
    *hi = e->shards;
    if (cluster)
        ls_cluster_span(cluster, e->shards, ls_cluster_member(cluster), lo, hi);
}

void ls_assign_shards(ls_engine *e)
{
    double capacity[LS_DEVICES_MAX];
    int rank = 0, lo, hi;
    find_span(e, &lo, &hi);
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            capacity[rank++] = e->desc.capacity ? e->desc.capacity[i] : 1;
    e->live = rank;
    e->one_shard_each = true;
    rank = 0;
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        uint32_t first, count;
        if (w->presence != LS_LIVE)
            continue;
        ls_split_by_weights((uint32_t)(hi - lo), (uint32_t)e->live, (uint32_t)rank,
                            e->desc.capacity ? capacity : NULL, &first, &count);
        w->rank = rank++;
        w->shard_lo = lo + (int)first;
        w->shard_hi = lo + (int)(first + count);
        e->one_shard_each &= count == 1;
    }
}

/* Returns whether shards are dealt to the workers while they compute. They are dealt if all of
 * these hold:
 *
 * - there are at least two live workers, and this process has more shards than live workers
 * - sums are merged in the tree's order
 * - each live worker adds its own partial sums in host memory with one thread, in spread mode
 *   (ls_worker_spreads) */
static bool is_dealt(const ls_engine *e)
{
    int lo, hi;
    bool can = e->merge == &ls_comm_ordered && e->live > 1;
    find_span(e, &lo, &hi);
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            can &= ls_worker_spreads(&e->worker[i]);
    return can && hi - lo > e->live;
}

/* Creates the *deal* of a new group, the object from which workers take shards (sync/deal.h). A
 * worker begins with the first of the shards that are assigned to it. The last worker begins with
 * its last shard, because a deal needs a worker that begins with the last shard of this process. */
static int make_deal(ls_deal **out, const ls_engine *e, ls_error *err)
{
    int first[LS_DEVICES_MAX];
    *out = NULL;
    if (!is_dealt(e))
        return LS_OK;
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_LIVE)
            first[w->rank] = w->rank + 1 < e->live ? w->shard_lo : w->shard_hi - 1;
    }
    return ls_deal_create(out, first, e->live, e->desc.host, err);
}

/* Returns whether the total is computed *by pieces*: each worker adds all partial sums itself, one
 * piece of the arena at a time, while it updates its weights (comm/comm.h). This takes less time
 * than a merge before the update in two cases: two workers with one shard each, or one worker with
 * several shards. */
static bool is_by_pieces(const ls_engine *e)
{
    bool can = e->merge == &ls_comm_ordered && !e->desc.cluster;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            can &=
                ls_worker_spreads(&e->worker[i]) && ls_replica_takes_pieces(e->worker[i].replica);
    return can && (e->live == 1 ? e->shards > 1 : e->live == 2 && e->one_shard_each);
}

static int make_group(ls_comm_group **out, ls_engine *e, ls_error *err)
{
    int params;
    const ls_train_worker *first = &e->worker[ls_first_live(e)];
    const ls_replica *replica = first->replica;
    const ls_buckets *buckets = ls_replica_buckets(replica);
    ls_comm_group_desc desc = {
        .type = e->merge,
        .ranks = e->live,
        .shards = e->shards,
        .floats = ls_replica_floats(replica),
        .param_offsets = ls_replica_param_offsets(replica, &params),
        .buckets = buckets->end,
        .bucket_count = buckets->count,
        /* No time limit here: the coordinator finds a hung worker and aborts the group (wait.c). */
        .timeout_ns = UINT64_MAX,
        .spins = ls_spins_for(e->live, ls_allowed_cpus()),
        .host = e->desc.host,
        .members = e->desc.cluster,
        .members_ops = &ls_cluster_ops,
    };
    find_span(e, &desc.span.lo, &desc.span.hi);
    desc.param_count = params;
    int status = desc.type->group_create(out, &desc, err);
    const bool chosen = status == LS_OK && e->merge == &ls_comm_ordered && !e->desc.cluster &&
                        ls_worker_rebinds(first) && e->desc.optimizer->ema == 0;
    const bool one_total = chosen && e->live > 1;
    e->sums_in_place = chosen && e->live == 1;
    e->total = one_total ? ls_host_group_total(*out) : NULL;
    /* If there is no memory for a common total, each worker allocates its own total when it joins.
     * If that allocation fails too, the caller of ls_engine_form can try once more
     * (train/recover.c). */
    if (one_total && !e->total)
        ls_log(e->desc.host, LS_LOG_WARNING,
               "out of memory for a total that all workers share: each worker gets its own");
    return status;
}

/* Returns whether the worker has stalled and can still use `group`: it was told to join the group,
 * or ls_engine_drop has not returned its fault yet. */
static bool may_still_use(const ls_train_worker *w, const ls_comm_group *group)
{
    return w->presence == LS_STALLED && (w->member_of == group || !w->fault_returned);
}

/* Returns whether a stalled worker can still read the arrays that the other workers have shown to
 * the old group (merge/group.h). If one can, the function first waits up to 0.1 s until it has
 * stopped reading: a worker that is only slow stops within microseconds of the abort. Once may_read
 * has returned 0 for a worker, that worker reads nothing more.
 *
 * A worker that sleeps in the middle of a merge reads the shown arrays when it wakes, whatever they
 * contain then. It writes the sums to memory that no other worker reads any more. The reads are
 * therefore harmless as long as the arrays exist, so the caller keeps them if this function returns
 * true. */
static bool peer_may_read(const ls_engine *e, const ls_comm_group *group)
{
    const struct timespec a_millisecond = {.tv_nsec = 1000000};
    const uint64_t until = ls_now_ns() + 100000000u;
    bool may = false;
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        while (may_still_use(w, group) && ls_now_ns() < until &&
               group->type->may_read(group, w->rank))
            nanosleep(&a_millisecond, NULL);
        may |= may_still_use(w, group) && group->type->may_read(group, w->rank);
    }
    return may;
}

bool ls_readers_asleep(const ls_engine *e)
{
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_STALLED && ls_pool_busy(e->pool, i) > 0 && w->member_of &&
            w->member_of->type->may_read(w->member_of, w->rank))
            return true;
    }
    return false;
}

/* Destroys the old group and its deal. If a stalled worker can still use them, keeps both in the
 * list e->old_groups instead. */
static int retire_group(ls_engine *e, ls_comm_group *group, ls_deal *deal, ls_error *err)
{
    bool kept = false;
    for (int i = 0; i < e->workers; i++)
        kept |= may_still_use(&e->worker[i], group);
    if (!kept) {
        group->type->group_destroy(group);
        ls_deal_destroy(deal);
        return LS_OK;
    }
    ls_old_group *old = ls_alloc(e->desc.host, sizeof *old);
    if (!old)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group");
    *old = (ls_old_group){group, deal, e->old_groups};
    e->old_groups = old;
    return LS_OK;
}

void ls_free_groups(ls_engine *e)
{
    if (e->group)
        e->group->type->group_destroy(e->group);
    ls_deal_destroy(e->deal);
    e->group = NULL;
    e->deal = NULL;
    while (e->old_groups) {
        ls_old_group *old = e->old_groups;
        e->old_groups = old->next;
        old->group->type->group_destroy(old->group);
        ls_deal_destroy(old->deal);
        ls_free(e->desc.host, old);
    }
}

static bool any_stalled(const ls_engine *e)
{
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_STALLED)
            return true;
    return false;
}

int ls_engine_form(ls_engine *e, const ls_comm_type *merge, uint64_t steps_done, ls_error *err)
{
    ls_comm_group *fresh, *old = e->group;
    ls_deal *deal, *old_deal = e->deal;
    const bool keep = old && peer_may_read(e, old);
    e->merge = merge ? merge : e->merge;
    ls_assign_shards(e);
    e->by_pieces = is_by_pieces(e);
    for (int i = 0; i < e->workers; i++) {
        if (e->worker[i].presence == LS_LIVE)
            e->worker[i].fault = (ls_fault){.worker = i};
        if (keep && e->worker[i].presence != LS_STALLED)
            e->worker[i].keep_fold = true;
    }
    int status = make_deal(&deal, e, err);
    if (status)
        return status;
    status = make_group(&fresh, e, err);
    if (status) {
        ls_deal_destroy(deal);
        return status;
    }
    e->group = fresh;
    e->deal = deal;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            e->worker[i].member_of = fresh;
    /* in the job ls_worker_join every worker also leaves the old group */
    status = ls_engine_run_all(e, ls_worker_join, steps_done, err);
    int retire_status = old ? retire_group(e, old, old_deal, status ? NULL : err) : LS_OK;
    if (status == LS_OK)
        status = retire_status;
    /* The cluster can free the memory of earlier sums, because no old group is kept and no worker
     * is stalled. */
    if (status == LS_OK && e->desc.cluster && !e->old_groups && !any_stalled(e))
        ls_cluster_free_old(e->desc.cluster);
    return status ? status : ls_engine_run_all(e, ls_worker_check, steps_done, err);
}

/* ---- remaining workers ---------------------------------------------------------------------- */

int ls_engine_faults(const ls_engine *e, const ls_fault **out)
{
    int count = 0;
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        if (ls_has_fault(w))
            out[count++] = &w->fault;
    }
    return count;
}

/* Replaces the exchange, and copies the model and the orders of the epochs' rows to the new one. */
static int renew_exchange(ls_engine *e, ls_error *err)
{
    ls_exchange *fresh, *old = e->exchange;
    int status = ls_exchange_create(&fresh, e, err);
    if (status)
        return status;
    fresh->model = old->model;
    for (int i = 0; i < 2; i++)
        memcpy(fresh->permutation[i], old->permutation[i],
               ls_dataset_rows(e->desc.data[LS_TRAIN]) * sizeof *fresh->permutation[i]);
    old->next = e->old_exchanges;
    e->old_exchanges = old;
    e->exchange = fresh;
    return LS_OK;
}

/* Replaces the feed, if there is one. The coordinator must then read the rows of the repeated step
 * again. */
static int renew_feed(ls_engine *e, ls_error *err)
{
    ls_feed *fresh, *old = e->feed;
    if (!old)
        return LS_OK;
    int status =
        ls_feed_create(&fresh, e->desc.data[LS_TRAIN], e->desc.batch_size, e->desc.host, err);
    if (status)
        return status;
    old->next = e->old_feeds;
    e->old_feeds = old;
    e->feed = fresh;
    return LS_OK;
}

int ls_engine_leave_stalled(ls_engine *e, ls_error *err)
{
    bool stalled = false;
    for (int i = 0; i < e->workers; i++)
        stalled |= e->worker[i].presence == LS_STALLED && ls_drop_is_due(&e->worker[i]);
    int status = stalled ? renew_exchange(e, err) : LS_OK;
    return status == LS_OK && stalled ? renew_feed(e, err) : status;
}

int ls_engine_drop(ls_engine *e, const ls_fault **out)
{
    int count = 0;
    e->live = 0;
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_LIVE && w->fault.error.status == LS_EDEVICE) {
            w->presence = LS_LOST;
            w->device_failed = true;
        }
        if (w->presence == LS_LIVE)
            e->live++;
        if (!ls_drop_is_due(w))
            continue;
        w->fault_returned = true;
        out[count++] = &w->fault;
    }
    return count;
}
