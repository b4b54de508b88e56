/* What happens when a worker fails, or no longer answers.
 *
 * A step has one commit point, inside the all-reduce: either every rank gets the whole sum, or none
 * does. So after a failure the survivors agree on how many steps are done, and their replicas are
 * equal. Who failed leaves; a new group is made, never the old one used again; the shards are dealt
 * out anew among the survivors; and the steps that were not done are sent again. Since the result
 * of a step depends on its shards and not on the worker that computes them, the final weights are those of the
 * undisturbed run.
 *
 * A worker that no longer answers cannot be stopped. It is left behind with all memory it may still
 * touch (its replica, the exchange, the group), and the survivors go on with memory of their own. If
 * it wakes up, it finds its group aborted, and idles.
 *
 * Where several processes train together and one of them is lost, those that are left do the same (regroup.c).
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "train/coordinator.h"
#include "train/run_records.h"
#include "train/worker.h"

#include <lockstep/split.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define START_NS ((uint64_t)300 * 1000000000u) /* before anything was measured */
#define LEAST_NS ((uint64_t)10 * 1000000000u)
#define TIMES_LONGEST 20

/* ---- deadlines ------------------------------------------------------------------------------ */

void ls_set_deadline(struct ls_trainer *t, double longest_s)
{
    uint64_t wanted = START_NS;
    if (t->config.deadline_s > 0)
        wanted = (uint64_t)(t->config.deadline_s * 1e9);
    else if (longest_s > 0)
        wanted = (uint64_t)(longest_s * TIMES_LONGEST * 1e9);
    if (t->config.deadline_s == 0 && wanted < LEAST_NS)
        wanted = LEAST_NS;
    t->faults.deadline_ns = wanted;
}

/* ---- leaving a worker behind ---------------------------------------------------------------- */

static void say_where(char *out, size_t size, const ls_train_worker *w)
{
    const int place = ls_heartbeat_place(&w->heartbeat);
    if (w->replica && ls_replica_place(out, size, w->replica, place))
        return;
    snprintf(out, size, "%s",
             place == LS_PLACE_MERGE    ? "all-reduce"
             : place == LS_PLACE_WAIT   ? "all-reduce"
             : place == LS_PLACE_APPLY  ? "optimizer step"
             : place == LS_PLACE_ADD    ? "adding up gradients"
             : place == LS_PLACE_STEP   ? "the beginning of a step"
             : place == LS_PLACE_OPEN   ? "opening"
             : place == LS_PLACE_EXPORT ? "reading weights back"
                                        : "between two jobs");
}

/* What of a silence does not count is said where there is any to speak of. */
static void say_how_long(char *out, size_t size, const ls_silence *silence)
{
    const double held_s = (double)silence->held_ns * 1e-9;
    const double all_s = (double)(ls_now_ns() - silence->since_ns) * 1e-9;
    if (all_s < held_s + 0.5)
        snprintf(out, size, "%.1f s", held_s);
    else
        snprintf(out, size, "%.1f s (and %.1f s in which it was stopped or had no CPU)", held_s,
                 all_s - held_s);
}

void ls_quarantine(struct ls_trainer *t, int worker, uint64_t step, const ls_silence *silence)
{
    ls_train_worker *w = &t->worker[worker];
    char where[160], how_long[100];
    say_where(where, sizeof where, w);
    say_how_long(how_long, sizeof how_long, silence);
    ls_fail(&w->verdict, LS_ESTALLED, "no sign of life for %s: in %s, %d items queued", how_long,
            where, ls_pool_busy(t->pool, worker));
    w->silence_s = (double)silence->held_ns * 1e-9;
    w->fault_step = step;
    w->presence = LS_STALLED;
    ls_pool_abandon(t->pool, worker, NULL);
    if (t->group)
        t->group->type->abort(t->group);
}

/* ---- judging -------------------------------------------------------------------------------- */

static bool is_news(const ls_train_worker *w)
{
    return w->presence != LS_LIVE && !w->loss_recorded;
}

static int status_of(const ls_train_worker *w)
{
    return w->presence == LS_STALLED ? LS_ESTALLED : w->status;
}

static const char *text_of(const ls_train_worker *w)
{
    return w->presence == LS_STALLED ? w->verdict.text : w->error.text;
}

/* The worker whose failure is the cause: workers that were released by an abort, or waited in vain, are
 * not, as long as there is another. −1: no worker failed. */
static int find_cause(const struct ls_trainer *t)
{
    int cause = -1, best = 0;
    for (int i = 0; i < t->workers; i++) {
        const ls_train_worker *w = &t->worker[i];
        if (w->presence != LS_LIVE && !is_news(w))
            continue;
        int status = status_of(w);
        int weight = status == LS_OK          ? 0
                     : status == LS_EABORTED  ? 1
                     : status == LS_ETIMEDOUT ? 2
                                              : 3;
        if (weight > best) {
            cause = i;
            best = weight;
        }
    }
    return cause;
}

static void drop_failed_devices(struct ls_trainer *t)
{
    t->live = 0;
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        if (w->presence == LS_LIVE && w->status == LS_EDEVICE) {
            w->presence = LS_LOST;
            w->idle = true;
        }
        t->live += w->presence == LS_LIVE;
    }
}

static int record_losses(struct ls_trainer *t, const char *action, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        if (!is_news(w))
            continue;
        const bool stalled = w->presence == LS_STALLED;
        w->loss_recorded = true;
        ls_log(t->host, LS_LOG_WARNING, "worker %d, %s: %.300s; %s", i, w->info.name, text_of(w),
               strcmp(action, "stop") == 0 ? "stopping" : "the others go on without it");
        const ls_fault fault = {.worker = i,
                                .step = w->fault_step,
                                .kind = stalled ? "stall" : "device",
                                .action = action,
                                .text = text_of(w),
                                .detected_after_s = w->silence_s};
        int record_status = ls_record_fault(t, &fault, status ? NULL : err);
        if (status == LS_OK)
            status = record_status;
    }
    return status;
}

static int give_up(const struct ls_trainer *t, int cause, const char *when, const char *why,
                   ls_error *err)
{
    const ls_train_worker *w = &t->worker[cause];
    return ls_fail(err, status_of(w), "worker %d, %s: %.380s%s", cause, when, text_of(w), why);
}

static int judge_losses(struct ls_trainer *t, int cause, const char *when, ls_error *err)
{
    const bool stop = t->live == 0 || t->config.stop_on_device_loss;
    int status = record_losses(t, stop ? "stop" : "continue", err);
    if (status == LS_OK && t->live == 0)
        return give_up(t, cause, when, t->workers > 1 ? "; no device is left" : "", err);
    if (status == LS_OK && stop)
        return give_up(t, cause, when, "; stopped, as on_device_loss says", err);
    return status;
}

/* A failure that took no device away. It may have been a passing one: once. */
static int judge_failure(struct ls_trainer *t, int cause, const char *when, ls_error *err)
{
    const int status = status_of(&t->worker[cause]);
    const bool passing = status == LS_ENOMEM || status == LS_ETIMEDOUT || status == LS_EABORTED;
    if (!passing || t->faults.repeated == t->position.steps + 1)
        return give_up(t, cause, when, "", err);
    t->faults.repeated = t->position.steps + 1;
    ls_log(t->host, LS_LOG_WARNING, "worker %d, %s: %.300s; trying once more", cause, when,
           text_of(&t->worker[cause]));
    const ls_fault fault = {.worker = cause,
                            .step = t->worker[cause].fault_step,
                            .kind = status == LS_ENOMEM ? "memory" : "timeout",
                            .action = "repeat",
                            .text = text_of(&t->worker[cause])};
    return ls_record_fault(t, &fault, err);
}

/* LS_OK: go on with the workers that are left. */
static int judge(struct ls_trainer *t, const char *when, ls_error *err)
{
    const int cause = find_cause(t);
    if (cause < 0)
        return ls_fail(err, LS_EINTERNAL, "%s: failed, but no worker did", when);
    const int before = t->live;
    drop_failed_devices(t);
    return t->live < before ? judge_losses(t, cause, when, err)
                            : judge_failure(t, cause, when, err);
}

int ls_first_worker(const struct ls_trainer *t, ls_presence presence)
{
    int w = 0;
    while (w < t->workers && t->worker[w].presence != presence)
        w++;
    return w;
}

/* ---- a new group ---------------------------------------------------------------------------- */

void ls_assign_shards(struct ls_trainer *t)
{
    double capacity[LS_DEVICES_MAX];
    int rank = 0, lo, hi;
    ls_members_span(t, t->shards, &lo, &hi);
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE)
            capacity[rank++] = t->config.capacities ? t->config.capacity[i] : 1;
    t->live = rank;
    t->one_shard_each = true;
    rank = 0;
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        uint32_t first, count;
        if (w->presence != LS_LIVE)
            continue;
        ls_split_by_capacity((uint32_t)(hi - lo), (uint32_t)t->live, (uint32_t)rank,
                             t->config.capacities ? capacity : NULL, &first, &count);
        w->rank = rank++;
        w->shard_lo = lo + (int)first;
        w->shard_hi = lo + (int)(first + count);
        t->one_shard_each &= count == 1;
    }
}

static int make_group(ls_comm_group **out, struct ls_trainer *t, ls_error *err)
{
    int params;
    const ls_train_worker *first = &t->worker[ls_first_worker(t, LS_LIVE)];
    const ls_replica *replica = first->replica;
    const ls_buckets *buckets = ls_replica_buckets(replica);
    ls_comm_group_desc desc = {
        .type = t->merge,
        .ranks = t->live,
        .shards = t->shards,
        .floats = ls_replica_floats(replica),
        .param_offsets = ls_replica_param_offsets(replica, &params),
        .buckets = buckets->end,
        .bucket_count = buckets->count,
        .timeout_ns = UINT64_MAX, /* the watch knows who is to blame, and aborts the group */
        .spins = ls_spins_for(t->live, ls_allowed_cpus()),
        .host = t->host,
        .members = t->members.cluster,
        .members_ops = &ls_cluster_ops,
    };
    ls_members_span(t, t->shards, &desc.span.lo, &desc.span.hi);
    desc.param_count = params;
    int status = desc.type->group_create(out, &desc, err);
    const bool one_total = status == LS_OK && t->merge == &ls_comm_ordered && !t->members.cluster &&
                           ls_worker_rebinds(first) && t->config.optimizer.ema == 0;
    t->total = one_total ? ls_host_group_total(*out) : NULL;
    /* A worker whose own total cannot be allocated either may be retried once. */
    if (one_total && !t->total)
        ls_log(t->host, LS_LOG_WARNING,
               "out of memory for one total of all workers: each has its own");
    return status;
}

static bool may_come_back_to(const ls_train_worker *w, const ls_comm_group *group)
{
    return w->presence == LS_STALLED && (w->member_of == group || !w->loss_recorded);
}

/* A worker that was left behind may still be about to read what the survivors showed to the old group. A
 * worker that is merely slow stops within microseconds of the abort. One that sleeps in the midst of
 * a merge reads, when it wakes, what is there by then, into memory of its own or the old group's total, which no worker
 * reads any more. That is harmless as long as the memory exists. Returns whether there is such a worker. */
static bool peer_may_read(const struct ls_trainer *t, const ls_comm_group *group)
{
    const struct timespec a_millisecond = {.tv_nsec = 1000000};
    const uint64_t until = ls_now_ns() + 100000000u;
    bool may = false;
    for (int i = 0; i < t->workers; i++) {
        const ls_train_worker *w = &t->worker[i];
        while (may_come_back_to(w, group) && ls_now_ns() < until &&
               group->type->may_read(group, w->rank))
            nanosleep(&a_millisecond, NULL);
        may |= may_come_back_to(w, group) && group->type->may_read(group, w->rank);
    }
    return may;
}

bool ls_readers_asleep(const struct ls_trainer *t)
{
    for (int i = 0; i < t->workers; i++) {
        const ls_train_worker *w = &t->worker[i];
        if (w->presence == LS_STALLED && ls_pool_busy(t->pool, i) > 0 && w->member_of &&
            w->member_of->type->may_read(w->member_of, w->rank))
            return true;
    }
    return false;
}

/* The old group goes when no worker can come back to it. */
static int retire(struct ls_trainer *t, ls_comm_group *group, ls_error *err)
{
    bool kept = false;
    for (int i = 0; i < t->workers; i++)
        kept |= may_come_back_to(&t->worker[i], group);
    if (!kept) {
        group->type->group_destroy(group);
        return LS_OK;
    }
    ls_old_group *old = ls_alloc(t->host, sizeof *old);
    if (!old)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group");
    *old = (ls_old_group){group, t->faults.old_groups};
    t->faults.old_groups = old;
    return LS_OK;
}

int ls_form_group(struct ls_trainer *t, ls_error *err)
{
    ls_comm_group *fresh, *old = t->group;
    const bool keep = old && peer_may_read(t, old);
    ls_assign_shards(t);
    for (int i = 0; i < t->workers; i++) {
        t->worker[i].status = LS_OK;
        if (keep && t->worker[i].presence != LS_STALLED)
            t->worker[i].keep_fold = true;
    }
    int status = make_group(&fresh, t, err);
    if (status)
        return status;
    t->group = fresh;
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE)
            t->worker[i].member_of = fresh;
    status = ls_gang(t, ls_worker_join, err); /* and every worker leaves the old one */
    int retire_status = old ? retire(t, old, status ? NULL : err) : LS_OK;
    if (status == LS_OK)
        status = retire_status;
    const bool stalled = ls_first_worker(t, LS_STALLED) < t->workers;
    if (status == LS_OK && t->members.cluster && !t->faults.old_groups && !stalled)
        ls_cluster_free_old(t->members.cluster); /* no group, no worker is left that knows of it */
    return status ? status : ls_gang(t, ls_worker_check, err);
}

/* ---- recovering ----------------------------------------------------------------------------- */

static bool any_stalled(const struct ls_trainer *t)
{
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_STALLED && is_news(&t->worker[i]))
            return true;
    return false;
}

/* The rows of the epoch under way move on to the new exchange. */
static int renew_exchange(struct ls_trainer *t, ls_error *err)
{
    ls_exchange *fresh, *old = t->exchange;
    int status = ls_exchange_create(&fresh, t, err);
    if (status)
        return status;
    for (int i = 0; i < 2; i++)
        memcpy(fresh->permutation[i], old->permutation[i],
               ls_dataset_rows(t->data[LS_TRAIN]) * sizeof *fresh->permutation[i]);
    old->next = t->faults.old_exchanges;
    t->faults.old_exchanges = old;
    t->exchange = fresh;
    return LS_OK;
}

/* A worker that failed while waiting for another host is not at fault. */
static void forgive_waiting(struct ls_trainer *t)
{
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        if (w->presence == LS_LIVE && (w->status == LS_ESTALLED || w->status == LS_EABORTED))
            w->status = LS_OK;
    }
}

/* Of this process's workers, of other hosts, or of both. */
static int judge_all(struct ls_trainer *t, const char *when, ls_error *err)
{
    if (!ls_members_lost(t))
        return judge(t, when, err);
    int status = ls_members_regroup(t, err);
    forgive_waiting(t);
    return status || find_cause(t) < 0 ? status : judge(t, when, err);
}

/* Another failure while the new group is made is one more to recover from. Each round has fewer
 * workers, or fewer hosts, than the one before, or is the last. */
int ls_recover(struct ls_trainer *t, const char *when, ls_error *err)
{
    ls_error cause;
    for (;;) {
        int status = any_stalled(t) ? renew_exchange(t, err) : LS_OK;
        if (status == LS_OK)
            status = judge_all(t, when, err);
        if (status)
            return status;
        status = ls_form_group(t, &cause);
        if (status == LS_OK)
            status = ls_members_level(t, &cause);
        if (status == LS_OK)
            return LS_OK;
        if (!ls_members_lost(t) && find_cause(t) < 0) /* no worker's failure */
            return ls_fail(err, status, "%s", cause.text);
    }
}
