/* A step in parts: the gradients of a worker's shards, the merge with the others', the optimizer. */
#include "base/error.h"
#include "train/worker.h"

#include <math.h>

/* ---- the course of steps -------------------------------------------------------------------- */

/* The replica has computed the first `floats` floats of the only gradient of this worker. Only
 * within a step: a gradient is computed for other ends as well. */
static int hand_over(void *user, size_t floats, ls_error *err)
{
    ls_train_worker *mine = user;
    if (!mine->merging_early)
        return LS_OK;
    return mine->comm->group->type->merge_ready(mine->comm, NULL,
                                                ls_replica_gradient_arena(mine->replica),
                                                ls_replica_total_arena(mine->replica), floats, err);
}

/* Where each worker has one shard, its gradient is what it brings to the merge: what is complete of
 * it can be merged while backward goes on; and where there is one worker, it is the sum. */
int ls_worker_choose_course(ls_train_worker *mine)
{
    const struct ls_trainer *t = mine->trainer;
    const int ranks = t->group->ranks;
    const int early = t->one_shard_each && ranks > 1 && t->group->type->merge_ready;
    int status = ls_replica_on_ready(mine->replica, early ? hand_over : NULL, mine, &mine->error);
    mine->flights = 0;
    mine->alone = t->one_shard_each && ranks == 1;
    mine->length = 1;
    if (status == LS_OK && mine->alone) {
        status = ls_replica_prepare_whole(mine->replica, &mine->error);
        if (ls_replica_steps_whole(mine->replica, (uint32_t)t->config.batch_size) > 1)
            mine->length = LS_UNROLLED;
    }
    /* A group that failed may have left a step that was held up. */
    return status ? status : ls_replica_release(mine->replica, &mine->error);
}

/* ---- shards --------------------------------------------------------------------------------- */

/* A number that is none, where the shard's loss was summed. */
static int spoil_loss(ls_train_worker *mine)
{
    const float bad = NAN;
    float *tail = ls_replica_gradient_arena(mine->replica) + ls_replica_tail_offset(mine->replica);
    return mine->device->ops->upload(mine->device, NULL, tail + LS_TAIL_LOSS, &bad, sizeof bad,
                                     &mine->error);
}

/* The lowest bit of the first weight that is not zero. */
static int spoil_weight(ls_train_worker *mine)
{
    const ls_device_ops *ops = mine->device->ops;
    float *weights = ls_replica_weight_arena(mine->replica);
    uint32_t bits = 0;
    int status = ops->download(mine->device, NULL, &bits, weights, sizeof bits, &mine->error);
    bits ^= 1;
    return status ? status
                  : ops->upload(mine->device, NULL, weights, &bits, sizeof bits, &mine->error);
}

int ls_worker_refresh(ls_train_worker *mine, const ls_step *s, uint32_t first, uint32_t count,
                      uint32_t *draw)
{
    *draw = s->range->epoch; /* with a row's index it tells random numbers apart */
    if (!mine->trainer->feed)
        return LS_OK;
    *draw = (uint32_t)s->number;
    if (count == 0)
        return LS_OK;
    /* Its rows follow one another. */
    return ls_replica_refresh(mine->replica, LS_TRAIN, s->rows[first], count, &mine->error);
}

static int compute_shard(ls_train_worker *mine, const ls_step *s, int shard,
                         ls_replica_times *times)
{
    uint32_t first, count;
    ls_worker_shard_rows(mine->trainer, s->n, shard, &first, &count);
    uint32_t draw;
    int status = ls_worker_refresh(mine, s, first, count, &draw);
    if (status == LS_OK)
        status =
            ls_replica_gradient(mine->replica, s->rows + first, count, draw, times, &mine->error);
    return status == LS_OK && shard == s->spoilt ? spoil_loss(mine) : status;
}

/* The gradients of this worker's shards of one minibatch, folded in tree order. */
static int compute_shards(ls_train_worker *mine, ls_step *s)
{
    if (ls_inject_now(&mine->trainer->injections, mine->index, s->number, LS_INJECT_NAN))
        s->spoilt = mine->shard_lo;
    ls_fold_begin(&mine->fold);
    for (int shard = mine->shard_lo; shard < mine->shard_hi; shard++) {
        int status = LS_OK;
        if (shard == mine->shard_hi - 1)
            status = ls_worker_inject(mine, s->number, LS_STAGE_SHARD);
        mine->merging_early = 1;
        if (status == LS_OK)
            status = compute_shard(mine, s, shard, &s->report.times);
        mine->merging_early = 0;
        ls_beat(&mine->heartbeat, LS_PLACE_ADD);
        if (status == LS_OK)
            status = ls_fold_push(&mine->fold, &mine->error);
        if (status)
            return status;
    }
    return LS_OK;
}

static int read_tail(ls_train_worker *mine, const float *arena, float tail[LS_TAIL])
{
    const ls_device_ops *ops = mine->device->ops;
    const float *at = arena + ls_replica_tail_offset(mine->replica);
    int status = ops->download(mine->device, NULL, tail, at, LS_TAIL * sizeof *tail, &mine->error);
    return status ? status : ops->sync(mine->device, NULL, &mine->error);
}

/* Everybody found the same sum, so everybody leaves the step out. */
int ls_worker_name_the_shard(ls_train_worker *mine, ls_step *s)
{
    float tail[LS_TAIL];
    ls_replica_times times = {0};
    s->report.skipped = 1;
    for (int shard = mine->shard_lo; shard < mine->shard_hi; shard++) {
        int status = compute_shard(mine, s, shard, &times);
        if (status == LS_OK)
            status = read_tail(mine, ls_replica_gradient_arena(mine->replica), tail);
        if (status)
            return status;
        if (!isfinite(tail[LS_TAIL_LOSS])) {
            s->report.bad_shard = shard;
            return LS_OK;
        }
    }
    return LS_OK;
}

static void note_wait(void *user, int begins)
{
    ls_train_worker *mine = user;
    ls_beat(&mine->heartbeat, begins ? LS_PLACE_WAIT : LS_PLACE_MERGE);
}

int ls_worker_note_sum(ls_train_worker *mine, ls_step *s, const float tail[LS_TAIL])
{
    ls_report *report = &s->report;
    report->loss = tail[LS_TAIL_LOSS];
    report->correct = tail[LS_TAIL_CORRECT];
    report->rows = tail[LS_TAIL_ROWS];
    if (report->rows == (float)s->n)
        return LS_OK;
    return ls_fail(&mine->error, LS_EINTERNAL, "%g of %u rows were computed", (double)report->rows,
                   (unsigned)s->n);
}

static int merge(ls_train_worker *mine, ls_step *s)
{
    float *total = ls_replica_total_arena(mine->replica), tail[LS_TAIL];
    ls_report *report = &s->report;
    ls_beat(&mine->heartbeat, LS_PLACE_MERGE);
    report->comm.waiting = note_wait;
    report->comm.user = mine;
    int status = mine->comm->group->type->all_reduce(
        mine->comm, NULL, mine->fold.stack, mine->fold.depth, total, &report->comm, &mine->error);
    ls_beat(&mine->heartbeat, LS_PLACE_APPLY);
    if (status == LS_OK)
        status = read_tail(mine, total, tail);
    return status ? status : ls_worker_note_sum(mine, s, tail);
}

ls_replica_step ls_worker_how(const ls_train_worker *mine, const ls_step *s)
{
    const ls_config *c = &mine->trainer->config;
    float divisor = (float)(c->nominal ? c->batch_size : (long)s->n);
    return (ls_replica_step){
        .lr = s->lr, .scale = 1.0f / divisor, .rows = s->n, .number = s->number};
}

static int apply(ls_train_worker *mine, ls_step *s)
{
    const ls_replica_step how = ls_worker_how(mine, s);
    int status = ls_replica_apply(mine->replica, &how, &s->report.times, &mine->error);
    if (status == LS_OK &&
        ls_inject_now(&mine->trainer->injections, mine->index, s->number, LS_INJECT_CORRUPT))
        status = spoil_weight(mine);
    return status;
}

static int compute_step(ls_train_worker *mine, ls_step *s)
{
    int status = ls_worker_inject(mine, s->number, LS_STAGE_START);
    if (status == LS_OK)
        status = compute_shards(mine, s);
    if (status == LS_OK)
        status = ls_worker_inject(mine, s->number, LS_STAGE_MERGE);
    if (status == LS_OK)
        status = merge(mine, s);
    if (status == LS_OK && !isfinite(s->report.loss))
        return ls_worker_name_the_shard(mine, s);
    if (status == LS_OK)
        status = ls_worker_inject(mine, s->number, LS_STAGE_APPLY);
    if (status == LS_OK)
        status = apply(mine, s);
    return status ? status : ls_worker_inject(mine, s->number, LS_STAGE_REPORT);
}

/* ---- reports -------------------------------------------------------------------------------- */

void ls_worker_report(ls_train_worker *mine, ls_step *s)
{
    ls_report *report = &s->report;
    if (!mine->failed) {
        if (report->status != LS_OK)
            mine->comm->group->type->abort(mine->comm->group);
        mine->failed =
            report->status != LS_OK || (report->skipped && !mine->trainer->config.skip_nonfinite);
    }
    ls_beat(&mine->heartbeat, LS_PLACE_REST);
    ls_ring_push(&mine->reports, report, UINT64_MAX, NULL);
}

ls_step ls_worker_step_of(const ls_range *range, uint32_t index)
{
    const uint32_t batch = (uint32_t)range->trainer->config.batch_size;
    return (ls_step){.range = range,
                     .rows = range->rows + (size_t)index * batch,
                     .n = ls_minibatch_rows(range->row_count, batch, index),
                     .lr = range->lr[index],
                     .number = range->first_step + index + 1,
                     .spoilt = -1,
                     .report = {.step = range->first_step + index,
                                .status = LS_EABORTED,
                                .bad_shard = -1,
                                .lr = range->lr[index],
                                .rest = 1}};
}

/* The steps behind a failed one were sent before anybody knew. They are not begun: `error` belongs
 * to the coordinator once its report is on the way. */
static void run_in_parts(ls_train_worker *mine, const ls_range *range, uint32_t index)
{
    ls_step s = ls_worker_step_of(range, index);
    ls_worker_land(mine);
    if (!mine->failed)
        s.report.status = compute_step(mine, &s);
    ls_worker_report(mine, &s);
}

int ls_worker_train(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    const ls_range *range = arg;
    ls_train_worker *mine = &range->trainer->worker[w->index];
    /* The report of the last step gives the range back: it may be refilled from then on. */
    const uint32_t steps = range->steps;
    for (uint32_t i = 0; i < steps;) {
        const uint32_t at_once = mine->failed ? 0 : ls_worker_at_once(mine, range, i);
        ls_beat_at(&mine->heartbeat, LS_PLACE_STEP, (uint32_t)range->first_step + i + 1);
        if (at_once > 0)
            ls_worker_take_whole(mine, range, i, at_once);
        else
            run_in_parts(mine, range, i);
        i += at_once > 0 ? at_once : 1;
    }
    return LS_OK;
}
