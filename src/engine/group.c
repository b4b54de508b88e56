/* Groups: who takes part, which shards each worker has, and how the workers that are left go on after a failure.
 *
 * A group is never used again once a member of it was lost. A new one is made, and the shards are dealt out anew among
 * the survivors. Since the result of a step depends on its shards and not on the worker that computes them, the final
 * weights are those of the undisturbed run.
 *
 * A worker that no longer answers cannot be stopped. It is left behind with all memory it may still touch (its replica,
 * the exchange, the feed, the group), and the survivors go on with memory of their own. If it wakes up, it finds its group
 * aborted, and idles.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "cluster/cluster.h"
#include "engine/worker.h"

#include <lockstep/split.h>
#include <string.h>
#include <time.h>

/* ---- shards --------------------------------------------------------------------------------- */

/* Of all shards those of this process. */
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
        ls_split_by_capacity((uint32_t)(hi - lo), (uint32_t)e->live, (uint32_t)rank,
                             e->desc.capacity ? capacity : NULL, &first, &count);
        w->rank = rank++;
        w->shard_lo = lo + (int)first;
        w->shard_hi = lo + (int)(first + count);
        e->one_shard_each &= count == 1;
    }
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
        .timeout_ns = UINT64_MAX, /* the watch knows who is to blame, and aborts the group */
        .spins = ls_spins_for(e->live, ls_allowed_cpus()),
        .host = e->desc.host,
        .members = e->desc.cluster,
        .members_ops = &ls_cluster_ops,
    };
    find_span(e, &desc.span.lo, &desc.span.hi);
    desc.param_count = params;
    int status = desc.type->group_create(out, &desc, err);
    const bool one_total = status == LS_OK && e->merge == &ls_comm_ordered && !e->desc.cluster &&
                           ls_worker_rebinds(first) && e->desc.optimizer->ema == 0;
    e->total = one_total ? ls_host_group_total(*out) : NULL;
    /* A worker whose own total cannot be allocated either may be retried once. */
    if (one_total && !e->total)
        ls_log(e->desc.host, LS_LOG_WARNING,
               "out of memory for one total of all workers: each has its own");
    return status;
}

static bool may_come_back_to(const ls_train_worker *w, const ls_comm_group *group)
{
    return w->presence == LS_STALLED && (w->member_of == group || !w->told);
}

/* A worker that was left behind may still be about to read what the survivors showed to the old group. A
 * worker that is merely slow stops within microseconds of the abort. One that sleeps in the midst of
 * a merge reads, when it wakes, what is there by then, into memory of its own or the old group's total, which no worker
 * reads any more. That is harmless as long as the memory exists. Returns whether there is such a worker. */
static bool peer_may_read(const ls_engine *e, const ls_comm_group *group)
{
    const struct timespec a_millisecond = {.tv_nsec = 1000000};
    const uint64_t until = ls_now_ns() + 100000000u;
    bool may = false;
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        while (may_come_back_to(w, group) && ls_now_ns() < until &&
               group->type->may_read(group, w->rank))
            nanosleep(&a_millisecond, NULL);
        may |= may_come_back_to(w, group) && group->type->may_read(group, w->rank);
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

/* The old group goes when no worker can come back to it. */
static int retire(ls_engine *e, ls_comm_group *group, ls_error *err)
{
    bool kept = false;
    for (int i = 0; i < e->workers; i++)
        kept |= may_come_back_to(&e->worker[i], group);
    if (!kept) {
        group->type->group_destroy(group);
        return LS_OK;
    }
    ls_old_group *old = ls_alloc(e->desc.host, sizeof *old);
    if (!old)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group");
    *old = (ls_old_group){group, e->old_groups};
    e->old_groups = old;
    return LS_OK;
}

void ls_free_groups(ls_engine *e)
{
    if (e->group)
        e->group->type->group_destroy(e->group);
    e->group = NULL;
    while (e->old_groups) {
        ls_old_group *old = e->old_groups;
        e->old_groups = old->next;
        old->group->type->group_destroy(old->group);
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
    const bool keep = old && peer_may_read(e, old);
    e->merge = merge ? merge : e->merge;
    ls_assign_shards(e);
    for (int i = 0; i < e->workers; i++) {
        if (e->worker[i].presence == LS_LIVE)
            e->worker[i].fault = (ls_fault){.worker = i};
        if (keep && e->worker[i].presence != LS_STALLED)
            e->worker[i].keep_fold = true;
    }
    int status = make_group(&fresh, e, err);
    if (status)
        return status;
    e->group = fresh;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            e->worker[i].member_of = fresh;
    /* Every worker leaves the old one. */
    status = ls_engine_run_all(e, ls_worker_join, steps_done, err);
    int retire_status = old ? retire(e, old, status ? NULL : err) : LS_OK;
    if (status == LS_OK)
        status = retire_status;
    if (status == LS_OK && e->desc.cluster && !e->old_groups && !any_stalled(e))
        ls_cluster_free_old(e->desc.cluster); /* no group, no worker is left that knows of it */
    return status ? status : ls_engine_run_all(e, ls_worker_check, steps_done, err);
}

/* ---- who is left ---------------------------------------------------------------------------- */

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

/* The rows of the epoch under way move on to the new exchange. */
static int renew_exchange(ls_engine *e, ls_error *err)
{
    ls_exchange *fresh, *old = e->exchange;
    int status = ls_exchange_create(&fresh, e, err);
    if (status)
        return status;
    for (int i = 0; i < 2; i++)
        memcpy(fresh->permutation[i], old->permutation[i],
               ls_dataset_rows(e->desc.data[LS_TRAIN]) * sizeof *fresh->permutation[i]);
    old->next = e->old_exchanges;
    e->old_exchanges = old;
    e->exchange = fresh;
    return LS_OK;
}

/* Whether the replicas that are left can be told where their rows lie from now on. */
static bool may_move_rows(const ls_engine *e)
{
    bool may = true;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE)
            may &= !(e->worker[i].info.flags & LS_DEVICE_HOST_MEMORY) ||
                   ls_worker_rebinds(&e->worker[i]);
    return may;
}

/* Its rows are read anew for the step that is repeated. */
static int renew_feed(ls_engine *e, ls_error *err)
{
    ls_feed *fresh, *old = e->feed;
    if (!old || !may_move_rows(e))
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
    bool news = false;
    for (int i = 0; i < e->workers; i++)
        news |= e->worker[i].presence == LS_STALLED && ls_is_news(&e->worker[i]);
    int status = news ? renew_exchange(e, err) : LS_OK;
    return status == LS_OK && news ? renew_feed(e, err) : status;
}

int ls_engine_drop(ls_engine *e, const ls_fault **out)
{
    int count = 0;
    e->live = 0;
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_LIVE && w->fault.error.status == LS_EDEVICE) {
            w->presence = LS_LOST;
            w->idle = true;
        }
        if (w->presence == LS_LIVE)
            e->live++;
        if (!ls_is_news(w))
            continue;
        w->told = true;
        out[count++] = &w->fault;
    }
    return count;
}
