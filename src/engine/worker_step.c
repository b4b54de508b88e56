/* SPDX-License-Identifier: MIT */
/* The steps of a worker, which it runs in one of two ways.
 *
 * In parts: the worker computes the gradients of its shards, merges them with the gradients of the
 * other workers, and applies the update. A range then usually has one step. If there are no other
 * workers, and the model is so small that a step takes less time than waking a thread, a range has
 * several steps. The worker then wakes the coordinator only with the report of the range's last
 * step.
 *
 * Whole: if the minibatch has one shard and there is one worker, the worker enqueues a whole step
 * (gradient and update) on its device as one launch. It enqueues the next step before the result of
 * the step before is known, so the device never waits for the host. For a small model one launch
 * has LS_UNROLLED steps. At most LS_IN_FLIGHT launches are in progress. If the loss of a step is
 * not finite, the device applies neither that step nor those that are enqueued after it. The worker
 * handles the step as any other skipped step when it reads the result, and enqueues the later steps
 * again if the run continues. So the results are the same as if each step had been enqueued after
 * the end of the one before. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "engine/worker.h"
#include "sync/park.h"

#include <float.h>
#include <lockstep/split.h>
#include <math.h>
#include <string.h>
#include <time.h>

_Static_assert(LS_RESULT_SLOTS >= LS_IN_FLIGHT, "each step under way has a slot of its own");

/* ---- choosing how steps are run ------------------------------------------------------------- */

/* The replica calls this function during backward, when the first `floats` floats of the worker's
 * only gradient are complete. The function passes these floats to the communicator. It does nothing
 * if the gradient is not for a step (w->merging_early is false). */
static int merge_complete_part(void *user, size_t floats, ls_error *err)
{
    ls_train_worker *w = user;
    if (!w->merging_early)
        return LS_OK;
    return w->comm->group->type->merge_ready(w->comm, NULL, ls_replica_gradient_arena(w->replica),
                                             ls_replica_total_arena(w->replica), floats, err);
}

/* Number of multiply-adds in a step that takes some tens of microseconds, which is about as long as
 * waking a thread takes. */
#define QUICK_PRODUCTS 4e6
/* Number of steps in a range, if steps are quick (is_quick). */
enum { QUICK_STEPS = 8 };

/* Estimates whether a step is so short that the steps of a range should be reported together. */
static bool is_quick(const ls_engine_desc *d)
{
    const ls_network *model = d->model;
    double products = 0;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        for (int k = 0; k < layer->params; k++)
            products += (double)layer->param[k].count * layer->out.h * layer->out.w;
    }
    return products * d->batch_size <= QUICK_PRODUCTS;
}

/* If each worker has one shard, the gradient of that shard is the worker's only partial sum, so its
 * complete parts can be merged during backward, if the group's communicator can (`ahead`). With one
 * worker, one shard and no other process, the gradient is the total, and steps can be whole. */
int ls_worker_choose_steps(ls_train_worker *w)
{
    const ls_engine *e = w->engine;
    const int ranks = e->group->ranks;
    const bool early = e->one_shard_each && e->group->ahead;
    int status = ls_replica_on_ready(w->replica, early ? merge_complete_part : NULL, w, &w->error);
    w->launches = 0;
    w->has_only_shard = e->one_shard_each && ranks == 1 && !e->desc.cluster;
    int whole = 0; /* number of steps of one launch; 0: steps are run in parts */
    if (status == LS_OK && w->has_only_shard) {
        status = ls_replica_record_whole_steps(w->replica, &w->error);
        whole = ls_replica_most_whole_steps(w->replica, e->desc.batch_size);
    }
    w->quick = ranks == 1 && !e->desc.cluster && whole == 0 && is_quick(&e->desc);
    w->length = w->quick ? QUICK_STEPS : whole > 1 ? LS_UNROLLED : 1;
    /* After a skipped step the device refuses all updates until ls_replica_resume_updates is
     * called. The worker's old group can have failed before that call, so it is made here. */
    return status ? status : ls_replica_resume_updates(w->replica, &w->error);
}

/* ---- shards --------------------------------------------------------------------------------- */

/* Fault injection: overwrites the shard's accumulated loss with NaN. */
static int spoil_loss(ls_train_worker *w)
{
    const float bad = NAN;
    float *tail = ls_replica_gradient_arena(w->replica) + ls_replica_tail_offset(w->replica);
    return w->device->ops->upload(w->device, NULL, tail + LS_TAIL_LOSS, &bad, sizeof bad,
                                  &w->error);
}

/* Fault injection: returns the array of which `flip` flips a bit, and sets *floats to its length;
 * NULL: the replica has no such array. */
static float *array_to_spoil(ls_train_worker *w, const ls_injection *flip, size_t *floats)
{
    ls_replica *r = w->replica;
    const size_t tail = ls_replica_tail_offset(r), stats = tail + LS_TAIL;
    *floats = tail;
    switch (flip->part) {
    case LS_PART_SLOT_0: return ls_replica_slot_arena(r, 0);
    case LS_PART_SLOT_1: return ls_replica_slot_arena(r, 1);
    case LS_PART_AVERAGE:
        return ls_replica_slot_arena(r, ls_optimizer_average(w->engine->desc.optimizer));
    case LS_PART_STATISTICS:
        *floats = ls_replica_floats(r) - stats;
        return *floats > 0 ? ls_replica_weight_arena(r) + stats : NULL;
    case LS_PART_WEIGHTS: break;
    }
    return ls_replica_weight_arena(r);
}

/* Fault injection: flips a bit of the worker's replica. */
static int flip_bit(ls_train_worker *w, const ls_injection *flip)
{
    const ls_device_ops *ops = w->device->ops;
    size_t floats;
    float *array = array_to_spoil(w, flip, &floats);
    uint32_t bits = 0;
    if (!array || flip->index >= floats)
        return ls_fail(
            &w->error, LS_EINVAL, "inject: the replica has no such float to flip: %s %llu of %zu",
            ls_inject_part_name(flip->part), (unsigned long long)flip->index, array ? floats : 0);
    array += flip->index;
    int status = ops->download(w->device, NULL, &bits, array, sizeof bits, &w->error);
    if (status == LS_OK)
        status = ops->sync(w->device, NULL, &w->error);
    bits ^= (uint32_t)1 << flip->bit;
    return status ? status : ops->upload(w->device, NULL, array, &bits, sizeof bits, &w->error);
}

/* If rows are streamed, copies `count` rows of the step, from row `first` on, to the device. The
 * rows are consecutive in the feed. */
static int refresh_rows(ls_train_worker *w, const ls_step *s, uint32_t first, uint32_t count)
{
    if (!w->engine->streams || count == 0)
        return LS_OK;
    return ls_replica_refresh(w->replica, LS_TRAIN, s->rows[first], count, &w->error);
}

/* Computes the gradient of one shard. The gradient is written where the fold expects the next
 * gradient (ls_fold_leaf). */
static int compute_shard(ls_train_worker *w, ls_step *s, int shard, ls_replica_times *times)
{
    uint32_t first, count;
    ls_split(s->n, (uint32_t)w->engine->shards, (uint32_t)shard, &first, &count);
    int status = refresh_rows(w, s, first, count);
    ls_replica_gradient_at(w->replica, ls_fold_leaf(&w->fold));
    if (status)
        return status;
    /* The weights change only after all shards of a step have been computed. */
    if (s->began)
        ls_replica_promise_same_weights(w->replica);
    s->began = true;
    status = ls_replica_gradient(w->replica, s->rows + first, count, s->draw, times, &w->error);
    return status == LS_OK && shard == s->spoilt ? spoil_loss(w) : status;
}

/* Computes the gradient of a shard, and adds the gradient to the worker's fold. `on_left`: the
 * shard's number is smaller than the numbers of all shards that are in the fold already; if false,
 * it is larger. */
static int fold_shard(ls_train_worker *w, ls_step *s, int shard, bool on_left)
{
    /* An injected NaN is written after the gradient is complete. Therefore no part of such a
     * gradient may be merged during backward. */
    w->merging_early = s->spoilt < 0;
    int status = compute_shard(w, s, shard, &s->report.times);
    w->merging_early = false;
    ls_beat(&w->heartbeat, LS_PLACE_ADD);
    if (status == LS_OK && on_left)
        ls_fold_push_left(&w->fold);
    else if (status == LS_OK)
        status = ls_fold_push(&w->fold, &w->error);
    return status;
}

/* Computes the shards that are dealt to this worker (sync/deal.h). It begins with a fixed shard of
 * its own. It then takes shards next to those that it has computed, until the deal has no more
 * shard for it. */
static int compute_dealt_shards(ls_train_worker *w, ls_step *s)
{
    int status = LS_OK;
    ls_deal_begin(&w->hand);
    for (int done = 0; status == LS_OK; done++) {
        const int shard = ls_deal_take(&w->hand);
        if (done == 1)
            status = ls_worker_inject(w, s->report.number, LS_STAGE_SHARD);
        if (shard < 0)
            return status;
        if (status == LS_OK)
            status = fold_shard(w, s, shard, done > 0 && shard == w->hand.lo);
    }
    return status;
}

/* Computes the gradients of this worker's shards of one minibatch, and adds them in the tree's
 * order. */
static int compute_shards(ls_train_worker *w, ls_step *s)
{
    int status = LS_OK;
    if (ls_inject_now(&w->engine->desc.injections, w->index, s->report.number, LS_INJECT_NAN))
        s->spoilt = w->hand.deal ? ls_deal_first(&w->hand) : w->shard_lo;
    ls_fold_begin(&w->fold);
    if (w->hand.deal)
        return compute_dealt_shards(w, s);
    for (int shard = w->shard_lo; shard < w->shard_hi && status == LS_OK; shard++) {
        if (shard == w->shard_hi - 1)
            status = ls_worker_inject(w, s->report.number, LS_STAGE_SHARD);
        if (status == LS_OK)
            status = fold_shard(w, s, shard, false);
    }
    return status;
}

/* Takes the sum of a step into the worker's digest (base/digest.h). */
static void note_digest(ls_train_worker *w, uint64_t sum)
{
    w->digest_before = w->digest;
    w->digest = ls_digest_next(w->digest, sum);
}

void ls_worker_take_late_digest(ls_train_worker *w)
{
    if (w->digest_due)
        note_digest(w, ls_replica_digest(w->replica));
    w->digest_due = false;
}

static int read_tail(ls_train_worker *w, const float *arena, float tail[LS_TAIL])
{
    const ls_device_ops *ops = w->device->ops;
    const float *at = arena + ls_replica_tail_offset(w->replica);
    int status = ops->download(w->device, NULL, tail, at, LS_TAIL * sizeof *tail, &w->error);
    if (status == LS_OK)
        status = ops->sync(w->device, NULL, &w->error);
    if (status == LS_OK)
        ls_worker_take_late_digest(w);
    return status;
}

/* Finds the first of this worker's shards whose loss is not finite, by computing its shards again.
 * The worker has skipped the step, so it still has the weights with which the step began. A sum of
 * n finite losses overflows only if one of them is about FLT_MAX / n or more: such a loss is taken
 * for one that is not finite. (2: the sum of several is rounded.) */
static int find_bad_shard(ls_train_worker *w, ls_step *s)
{
    float tail[LS_TAIL];
    const bool dealt = w->hand.deal;
    const int lo = dealt ? w->hand.lo : w->shard_lo, hi = dealt ? w->hand.hi : w->shard_hi;
    const float most = FLT_MAX / (2 * (float)w->engine->shards);
    ls_fold_begin(&w->fold);
    for (int shard = lo; shard < hi; shard++) {
        int status = compute_shard(w, s, shard, NULL);
        if (status == LS_OK)
            status = read_tail(w, ls_replica_gradient_arena(w->replica), tail);
        if (status)
            return status;
        if (!(fabsf(tail[LS_TAIL_LOSS]) < most)) {
            s->report.bad_shard = shard;
            return LS_OK;
        }
    }
    return LS_OK;
}

/* Called by the communicator when a wait for other workers begins (`begins` is 1) and when it ends.
 * The heartbeat's place tells the coordinator whether this worker waits or merges. */
static void beat_in_merge(void *user, int begins)
{
    ls_train_worker *w = user;
    ls_beat(&w->heartbeat, begins ? LS_PLACE_WAIT : LS_PLACE_MERGE);
}

/* Copies the tail of the total (loss, correct rows, rows) to the report. Errors: LS_EINTERNAL (the
 * total has another number of rows than the minibatch). */
static int copy_tail(ls_train_worker *w, ls_step *s, const float tail[LS_TAIL])
{
    ls_report *report = &s->report;
    report->loss = tail[LS_TAIL_LOSS];
    report->correct = tail[LS_TAIL_CORRECT];
    report->rows = tail[LS_TAIL_ROWS];
    if (report->rows == (float)s->n)
        return LS_OK;
    return ls_fail(&w->error, LS_EINTERNAL, "%g of %u rows were computed", (double)report->rows,
                   (unsigned)s->n);
}

/* Merges the partial sums of all workers, and copies the tail of the total to `tail`. */
static int reduce(ls_train_worker *w, ls_comm_times *times, float tail[LS_TAIL])
{
    float *total = ls_replica_total_arena(w->replica);
    const ls_partial *parts = w->fold.stack;
    int status;
    if (w->by_pieces) {
        status = ls_pieces_begin(w->comm, parts, w->fold.depth, times, &w->error);
        if (status == LS_OK)
            ls_piece(w->comm, tail, ls_replica_tail_offset(w->replica), LS_TAIL);
        return status;
    }
    status = w->comm->group->type->all_reduce(w->comm, NULL, parts, w->fold.depth, total, times,
                                              &w->error);
    return status ? status : read_tail(w, total, tail);
}

static int merge(ls_train_worker *w, ls_step *s)
{
    float tail[LS_TAIL];
    ls_report *report = &s->report;
    ls_beat(&w->heartbeat, LS_PLACE_MERGE);
    report->comm.waiting = beat_in_merge;
    report->comm.user = w;
    int status = reduce(w, &report->comm, tail);
    ls_beat(&w->heartbeat, LS_PLACE_APPLY);
    if (status)
        return status;
    status = copy_tail(w, s, tail);
    if (status && w->by_pieces)
        ls_pieces_drop(w->comm);
    return status;
}

/* Fault injection: flips the bits that are to be flipped after this step. */
static int spoil_replica(ls_train_worker *w, uint64_t number)
{
    const ls_injection *flip;
    int status = LS_OK;
    while (status == LS_OK &&
           (flip = ls_inject_now(&w->engine->desc.injections, w->index, number, LS_INJECT_CORRUPT)))
        status = flip_bit(w, flip);
    return status;
}

static int apply(ls_train_worker *w, ls_step *s)
{
    ls_replica *r = w->replica;
    int status = w->by_pieces ? ls_replica_apply_pieces(r, &s->update, ls_piece, w->comm,
                                                        &s->report.times, &w->error)
                              : ls_replica_apply(r, &s->update, &s->report.times, &w->error);
    if (status == LS_OK) {
        w->digest_due = true;
        if (!ls_replica_digest_is_late(r))
            ls_worker_take_late_digest(w);
        status = ls_replica_gradient_norm(&s->report.gradient_norm, r, &w->error);
    }
    return status == LS_OK ? spoil_replica(w, s->report.number) : status;
}

/* Called after the update, whose result is `status`. If this worker computes the total by pieces,
 * tells the other workers that it no longer reads their partial sums. Returns `status`: if the
 * update succeeded, this worker reports the step as done. If another worker has failed meanwhile,
 * this worker only begins no further step. */
static int end_pieces(ls_train_worker *w, ls_step *s, int status)
{
    if (!w->by_pieces)
        return status;
    if (status)
        ls_pieces_drop(w->comm);
    else if (ls_pieces_end(w->comm, &s->report.comm, &w->error) != LS_OK)
        w->failed = true;
    return status;
}

/* Called for a skipped step, in which no update reads the state: a pass of its own sums it. */
static int note_skipped(ls_train_worker *w, uint64_t number)
{
    uint32_t sum = 0;
    int status = w->compares ? ls_worker_sum_state(&sum, w) : LS_OK;
    note_digest(w, sum);
    return status ? status : spoil_replica(w, number);
}

/* Applies the step. If the loss is not finite, skips the step instead, and finds the first of this
 * worker's shards whose loss is not finite. */
static int use_sum(ls_train_worker *w, ls_step *s)
{
    if (!isfinite(s->report.loss)) {
        s->report.skipped = true;
        end_pieces(w, s, LS_OK);
        const int status = note_skipped(w, s->report.number);
        return status || w->failed ? status : find_bad_shard(w, s);
    }
    int status = ls_worker_inject(w, s->report.number, LS_STAGE_APPLY);
    if (status == LS_OK)
        status = apply(w, s);
    return end_pieces(w, s, status);
}

/* Hands the worker's digest to the merge of the step, and to the sum over all processes. If sums
 * are late, this is the digest before the last step, even if the last sum has arrived: whether it
 * has depends on the other work of the worker. */
static void show_digest(ls_train_worker *w)
{
    const bool has_last = ls_replica_digest_is_late(w->replica) && !w->digest_due;
    const uint64_t digest = has_last ? w->digest_before : w->digest;
    w->comm->digest = digest;
    if (w->rank == 0 && w->engine->desc.cluster)
        ls_cluster_set_digest(w->engine->desc.cluster, digest);
}

static int compute_step(ls_train_worker *w, ls_step *s)
{
    int status = ls_worker_inject(w, s->report.number, LS_STAGE_START);
    show_digest(w);
    if (status == LS_OK)
        status = compute_shards(w, s);
    if (status == LS_OK)
        status = ls_worker_inject(w, s->report.number, LS_STAGE_MERGE);
    if (status == LS_OK)
        status = merge(w, s);
    if (status == LS_OK)
        status = use_sum(w, s);
    if (s->report.skipped)
        return status;
    return status ? status : ls_worker_inject(w, s->report.number, LS_STAGE_REPORT);
}

/* ---- reports -------------------------------------------------------------------------------- */

/* Sends the report of a step. If the step failed, aborts the group, which releases the workers that
 * wait for this worker. After a failed step this worker begins no further step. After a skipped
 * step it begins no further step either, unless ls_engine_desc.skip_nonfinite is set. `more`:
 * another report follows at once, so this report need not wake the coordinator. */
static void send_report(ls_train_worker *w, ls_step *s, bool more)
{
    ls_report *report = &s->report;
    if (!w->failed) {
        if (report->status != LS_OK)
            w->comm->group->type->abort(w->comm->group);
        w->failed = report->status != LS_OK || (report->skipped && !w->engine->desc.skip_nonfinite);
    }
    ls_beat(&w->heartbeat, LS_PLACE_IDLE);
    if (!more || w->failed || ls_ring_try_push_quietly(&w->reports, report) != LS_OK)
        ls_ring_push(&w->reports, report, UINT64_MAX, NULL);
}

/* Returns the factor of the summed gradient of a minibatch of `n` rows whose weights have the sum
 * `weight`. If all rows have weight 0, the gradient is 0, and the factor is 0 too. */
static float scale_of(const ls_engine_desc *d, uint32_t n, float weight)
{
    if (d->weighted)
        return weight > 0 ? 1.0f / weight : 0;
    return 1.0f / (float)(d->divides_by_batch_size ? d->batch_size : n);
}

static ls_step step_of(const ls_range *range, uint32_t index)
{
    const ls_engine_desc *d = &range->engine->desc;
    const uint32_t batch = d->batch_size, n = ls_minibatch_rows(range->row_count, batch, index);
    const uint64_t number = range->first_step + index + 1;
    const float weight = d->weighted ? range->weight[index] : (float)n;
    return (ls_step){.rows = range->rows + (size_t)index * batch,
                     .n = n,
                     .draw = range->engine->streams ? (uint32_t)number : range->epoch,
                     .spoilt = -1,
                     .update = {.lr = range->lr[index],
                                .scale = scale_of(d, n, weight),
                                .rows = n,
                                .number = number - range->begun},
                     .report = {.number = number,
                                .status = LS_EABORTED,
                                .bad_shard = -1,
                                .weight = weight,
                                .gradient_norm = NAN,
                                .steps_left = 1}};
}

/* ---- whole steps ---------------------------------------------------------------------------- */

/* Returns whether a fault of this worker is planned for step `number` (inject.h). */
static bool is_planned(const ls_train_worker *w, uint64_t number)
{
    return ls_inject_planned(&w->engine->desc.injections, w->index, number);
}

/* Returns how many steps of a range, from step `index` of the range on, can be enqueued as one
 * launch. Returns 0 if step `index` must be run in parts. It must if whole steps are not possible
 * in this group, or if a fault is to be injected in that step. */
static uint32_t launchable_steps(const ls_train_worker *w, const ls_range *range, uint32_t index)
{
    const uint32_t batch = w->engine->desc.batch_size;
    const uint64_t number = range->first_step + index + 1;
    const uint32_t n = ls_minibatch_rows(range->row_count, batch, index);
    const uint32_t most =
        w->has_only_shard ? (uint32_t)ls_replica_most_whole_steps(w->replica, n) : 0;
    if (most == 0 || is_planned(w, number))
        return 0;
    if (most > range->steps - index || range->row_count < (index + most) * batch)
        return 1;
    for (uint32_t k = 1; k < most; k++)
        if (is_planned(w, number + k))
            return 1;
    return most;
}

/* Enqueues `count` steps of the launch `f`, from step k of the launch on. An error is stored in
 * f->status, and is reported with the steps. */
static void enqueue(ls_train_worker *w, ls_launch *f, int k, int count)
{
    ls_replica_step how[LS_UNROLLED];
    ls_replica_times times = {0};
    ls_step *first = &f->step[k];
    for (int i = 0; i < count; i++)
        how[i] = first[i].update;
    f->status = refresh_rows(w, first, 0, first->n);
    if (f->status == LS_OK)
        f->status = ls_replica_run_whole_steps(w->replica, first->rows, first->draw, how, count,
                                               f->slot, &times, &w->error);
    for (int i = 0; i < count; i++) {
        first[i].report.times.forward += times.forward / count;
        first[i].report.steps_left = count - i;
    }
}

/* ---- waiting -------------------------------------------------------------------------------- */

enum { SPINS = 2000, NAP_NS = 20000 };

/* Waits a little before the worker checks again whether a launch has ended. `look`: number of
 * checks so far. The first checks follow each other quickly, because a step of a small model takes
 * some tens of microseconds. Later checks are separated by sleeps. */
static void pause_before(unsigned look)
{
    const struct timespec nap = {0, NAP_NS};
    if (look < SPINS)
        ls_spin_pause();
    else
        nanosleep(&nap, NULL);
}

/* Waits for the end of the launch `f`. `may_leave`: stop waiting when the worker has another range
 * or job in its inbox. Returns whether the launch has ended. */
static bool await_launch(ls_train_worker *w, ls_launch *f, bool may_leave)
{
    bool arrived = false;
    ls_beat(&w->heartbeat, LS_PLACE_APPLY);
    for (unsigned look = 0; f->status == LS_OK && !arrived; look++) {
        if (look > 0)
            pause_before(look);
        f->status = ls_replica_arrived(&arrived, w->replica, f->slot, &w->error);
        if (!arrived && may_leave && ls_pool_busy(w->engine->pool, w->index) > 1)
            return f->status != LS_OK;
    }
    return true;
}

/* ---- the end of a launch -------------------------------------------------------------------- */

/* Handles a step of a launch whose loss is not finite. The device has applied neither this step nor
 * the steps that were enqueued after it. */
static int skip_step(ls_train_worker *w, ls_step *s)
{
    int status = ls_replica_sync(w->replica, &w->error);
    if (status == LS_OK) {
        s->report.skipped = true;
        status = find_bad_shard(w, s);
    }
    return status ? status : ls_replica_resume_updates(w->replica, &w->error);
}

/* Reports a step of a launch that has ended. Returns whether the step was skipped. If it was, the
 * device has applied no step that was enqueued after it either. */
static bool end_step(ls_train_worker *w, const ls_launch *f, ls_step *s, const float tail[LS_TAIL])
{
    ls_report *report = &s->report;
    bool skipped = false;
    report->status = w->failed ? LS_EABORTED : f->status;
    if (report->status == LS_OK)
        report->status = copy_tail(w, s, tail);
    if (report->status == LS_OK && !isfinite(report->loss)) {
        report->status = skip_step(w, s);
        skipped = true;
    }
    if (report->status != LS_OK && !w->failed)
        /* the device has no work left when the failure is reported */
        ls_replica_sync(w->replica, NULL);
    send_report(w, s, false);
    return skipped;
}

/* Reports the steps of the oldest launch, which has ended. If a step was skipped, enqueues the
 * later steps of the launch again, one by one, and then the next launch. */
static void retire_first(ls_train_worker *w)
{
    ls_launch *f = &w->launch[0];
    bool anew = false;
    for (int k = 0; k < f->count; k++) {
        if (anew && !w->failed) {
            enqueue(w, f, k, 1);
            await_launch(w, f, false);
        }
        const float *tail = ls_replica_arrived_tail(w->replica, f->slot, anew ? 0 : k);
        anew |= end_step(w, f, &f->step[k], tail);
    }
    w->launches--;
    memmove(f, f + 1, (size_t)w->launches * sizeof *f);
    if (anew && w->launches > 0 && !w->failed && f->status == LS_OK)
        enqueue(w, f, 0, f->count);
}

/* Waits until at most `most` launches are in progress, and reports the steps of the others. */
static void retire_down_to(ls_train_worker *w, int most)
{
    while (w->launches > most)
        if (w->failed || await_launch(w, &w->launch[0], false))
            retire_first(w);
}

/* Enqueues `count` steps of a range, from step `index` on, as one launch. Then waits for the
 * earlier launch, if any, and reports its steps. If the range has more steps, or other work arrives
 * first, the steps of the new launch are reported later (when the next launch has been enqueued, or
 * before the next step in parts); otherwise here. */
static void launch_steps(ls_train_worker *w, const ls_range *range, uint32_t index, uint32_t count)
{
    const bool more = index + count < range->steps;
    ls_launch *latest = &w->launch[w->launches++];
    for (uint32_t k = 0; k < count; k++)
        latest->step[k] = step_of(range, index + k);
    latest->count = (int)count;
    latest->slot = w->next_slot;
    w->next_slot = (w->next_slot + 1) % LS_RESULT_SLOTS;
    enqueue(w, latest, 0, latest->count);
    /* Report the steps of all launches but the newest. */
    retire_down_to(w, 1);
    if (more && !w->failed && w->launch[0].status == LS_OK)
        return;
    if (w->failed || await_launch(w, &w->launch[0], true))
        retire_first(w);
}

/* ---- a range of steps ----------------------------------------------------------------------- */

/* Runs one step in parts. If an earlier step has failed, only reports the step as aborted. (The
 * coordinator submitted the step before it knew of the failure.) The step is not begun, because a
 * second failure would overwrite w->error, which the coordinator reads once it has the report of
 * the failed step. */
static void run_in_parts(ls_train_worker *w, const ls_range *range, uint32_t index)
{
    ls_step s = step_of(range, index);
    retire_down_to(w, 0);
    if (!w->failed)
        s.report.status = compute_step(w, &s);
    if (w->quick)
        s.report.ended_ns = ls_now_ns();
    send_report(w, &s, w->quick && index + 1 < range->steps);
}

int ls_worker_train(const ls_worker *thread, void *arg, ls_error *err)
{
    (void)err;
    const ls_range *range = arg;
    ls_train_worker *w = &range->engine->worker[thread->index];
    /* When the coordinator has the report of the range's last step, it can overwrite *range. The
     * number of steps is therefore copied first. */
    const uint32_t steps = range->steps;
    for (uint32_t i = 0; i < steps;) {
        const uint32_t at_once = w->failed ? 0 : launchable_steps(w, range, i);
        ls_beat_at(&w->heartbeat, LS_PLACE_STEP, (uint32_t)range->first_step + i + 1);
        if (at_once > 0) {
            launch_steps(w, range, i, at_once);
            i += at_once;
        } else {
            run_in_parts(w, range, i);
            i++;
        }
    }
    return LS_OK;
}
