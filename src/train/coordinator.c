/* SPDX-License-Identifier: MIT */
/* The coordinator's loop: draws the order of the rows of each epoch, submits steps to the engine,
 * and collects the steps. account.c accounts for a completed step, evaluate.c evaluates, and
 * recover.c handles faults.
 *
 * *Due work* (coordinator.h) can be done only while no worker has work. The coordinator submits
 * ranges as long as the engine has room for them. It stops at the next step after which work is
 * due, and at the end of the epoch. It then collects the steps in flight, does the due work
 * (do_due_work), and submits the next ranges. */
#include "train/coordinator.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "base/rng.h"
#include "engine/feed.h"
#include "engine/view.h"
#include "merge/weights.h"
#include "train/chaining.h"
#include "train/release.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <stdio.h>

/* Returns the number of steps that the run will have done when all submitted steps are
 * completed. */
static uint64_t steps_sent(const ls_coordination *c)
{
    const ls_position *at = &c->t->position;
    return at->steps - at->step + c->sent;
}

/* ---- ranges --------------------------------------------------------------------------------- */

/* Sets the rows of a range of `steps` steps: the next rows in the epoch's order. */
static void choose_rows(ls_range *range, const ls_coordination *c, uint32_t steps)
{
    const struct ls_trainer *t = c->t;
    const uint32_t batch = (uint32_t)t->config.batch_size, first_row = c->sent * batch;
    range->rows = ls_engine_order(t->engine, t->position.epoch) + first_row;
    range->row_count = c->rows - first_row < steps * batch ? c->rows - first_row : steps * batch;
}

/* Copies the streamed rows of a range, which has one step, to the feed, from the dataset or from
 * the caller. The random numbers of a streamed row depend on its index in the feed. If a step is
 * repeated, its rows must get the same random numbers. Therefore the number of the step determines
 * the slot of the feed. */
static int feed_rows(ls_range *range, const ls_coordination *c, ls_error *err)
{
    const struct ls_trainer *t = c->t;
    ls_feed *feed = ls_engine_feed(t->engine);
    const uint32_t slot = (uint32_t)(range->first_step % LS_IN_FLIGHT);
    int status = LS_OK;
    if (c->images) {
        status =
            ls_feed_take(feed, slot, t->data[LS_TRAIN],
                         &(ls_feed_rows_given){c->images, c->labels, c->weights, c->given}, err);
        range->row_count = c->given;
    } else {
        const uint64_t start = ls_now_ns();
        status = ls_feed_read(feed, slot, t->data[LS_TRAIN], range->rows, range->row_count, err);
        ls_trace_span(t->records.trace, LS_TRACK_COORDINATOR, "read rows", start, ls_now_ns(),
                      "step", range->first_step + 1);
    }
    range->rows = ls_feed_rows(feed, slot);
    if (status || !ls_loss_limits_targets(t->config.loss))
        return status;
    return ls_check_targets(t->config.loss, ls_feed_targets(feed, slot), range->row_count,
                            t->config.preprocessing.targets, "the rows of a step", err);
}

/* Sets the divisor of each step: the sum of the weights of its rows. */
static void weigh_range(ls_range *range, const struct ls_trainer *t)
{
    const ls_feed *feed = ls_engine_feed(t->engine);
    const float *weights = feed ? feed->weights : ls_dataset_resident(t->data[LS_TRAIN]).weights;
    const uint32_t batch = (uint32_t)t->config.batch_size;
    for (uint32_t i = 0; weights && i < range->steps; i++)
        range->weight[i] = (float)ls_sum_weights(weights, range->rows + (size_t)i * batch,
                                                 ls_minibatch_rows(range->row_count, batch, i),
                                                 ls_engine_shards(t->engine));
}

static int fill_range(ls_range *range, const ls_coordination *c, uint32_t steps, ls_error *err)
{
    struct ls_trainer *t = c->t;
    range->epoch = t->position.epoch;
    range->first_step = steps_sent(c);
    range->steps = steps;
    for (uint32_t i = 0; i < steps; i++)
        range->lr[i] = (float)ls_rate(t, range->first_step + i);
    if (!c->images)
        choose_rows(range, c, steps);
    int status = ls_engine_feed(t->engine) ? feed_rows(range, c, err) : LS_OK;
    if (status == LS_OK)
        weigh_range(range, t);
    return status;
}

/* ---- work between steps --------------------------------------------------------------------- */

static bool model_is_due(const struct ls_trainer *t, uint64_t steps)
{
    return t->callbacks.model && steps > 0 && ls_is_multiple(steps, t->callbacks.model_every_steps);
}

static ls_due save_due(const struct ls_trainer *t, uint64_t steps)
{
    return ls_checkpoint_due(t, &(ls_moment){.occasion = LS_STEP_DONE, .steps = steps});
}

/* Returns whether work that reads the replicas is due when the run has done `steps` steps. */
static bool is_due(const ls_coordination *c, uint64_t steps)
{
    const struct ls_trainer *t = c->t;
    const bool verifies =
        !t->members.cluster && ls_is_multiple(steps, t->config.verify_every_steps);
    return steps != c->due_work_done_at &&
           (save_due(t, steps) != LS_DUE_NOTHING || verifies || ls_agreement_is_due(t, steps) ||
            ls_chain_is_due(t, steps) || model_is_due(t, steps));
}

/* Passes a model to the caller. The weights must have been read back (ls_read_back) before. */
static int pass_model(struct ls_trainer *t, ls_error *err)
{
    ls_model *model;
    int status = ls_model_create(&model, t->inference, ls_engine_weights(t->engine)->canonical,
                                 t->position.steps, err);
    if (status)
        return status;
    t->callbacks.model(t->callbacks.user, model);
    ls_model_release(model);
    return LS_OK;
}

/* Compares the replicas, adds their state to the chain, saves a checkpoint and passes a model to
 * the caller, if they are due. `all`: all members of the run do this work now, so their replicas
 * are compared with each other. */
static int do_due_work(ls_coordination *c, ls_due due, bool all, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const bool show =
        model_is_due(t, t->position.steps) && c->due_work_done_at != t->position.steps;
    c->due_work_done_at = t->position.steps;
    const bool exports = due != LS_DUE_NOTHING || show || ls_chain_is_due(t, t->position.steps);
    int status = ls_read_back(t, exports, all, err);
    if (status == LS_OK)
        status = ls_chain_state(t, err);
    if (status == LS_OK && show)
        status = pass_model(t, err);
    return status ? status : ls_save(t, due, err);
}

/* ---- submitting ----------------------------------------------------------------------------- */

/* Returns the number of steps of the next range: the number that the engine prefers, but fewer if
 * work is due earlier or the limit is reached earlier; at least 1. */
static uint32_t range_length(const ls_coordination *c)
{
    const uint32_t most = ls_engine_steps_at_once(c->t->engine);
    const uint64_t sent = steps_sent(c);
    uint32_t length = 1;
    while (length < most && c->sent + length < c->limit && !is_due(c, sent + length))
        length++;
    return length;
}

static int submit(const struct ls_trainer *t, const ls_range *range, ls_error *err)
{
    if (!t->records.trace)
        return ls_engine_submit(t->engine, range, err);
    const uint64_t start = ls_now_ns();
    int status = ls_engine_submit(t->engine, range, err);
    if (status == LS_OK) {
        ls_trace_submit(t->records.trace, range->first_step + 1, start, ls_now_ns());
        ls_count_queues(t);
    }
    return status;
}

static int submit_next(ls_coordination *c, ls_error *err)
{
    ls_range range;
    const uint64_t sent = steps_sent(c);
    int status = ls_release_is_due(c->t, sent) ? ls_release(c->t, sent, err) : LS_OK;
    if (status == LS_OK)
        status = fill_range(&range, c, range_length(c), err);
    if (status == LS_OK)
        status = submit(c->t, &range, err);
    if (status == LS_OK)
        c->sent += range.steps;
    return status;
}

/* ---- collecting ----------------------------------------------------------------------------- */

/* Makes the first step that is not done the next step to be submitted. The workers must have no
 * work. */
static void send_from_here(ls_coordination *c)
{
    c->sent = c->t->position.step;
    c->last_ns = ls_engine_ns(c->t->engine);
}

/* Collects all steps that are in flight. Afterwards no worker has work. Called after a failure. If
 * a worker has failed, no worker has applied these steps. After another failure, such as a full
 * disk, the workers have applied these steps. They then count as steps of the run, but no records
 * of them are written. */
static void collect_rest(ls_coordination *c)
{
    ls_outcome o;
    while (ls_engine_in_flight(c->t->engine) > 0) {
        ls_engine_collect(c->t->engine, &o);
        if (o.report)
            ls_count_step(c, o.report);
    }
}

/* Recovers after a worker has failed in step `number`. (Either no worker has applied that step, or
 * every remaining worker has.) */
static int recover_step(ls_coordination *c, uint64_t number, ls_error *err)
{
    char when[64];
    collect_rest(c);
    snprintf(when, sizeof when, "step %llu", (unsigned long long)number);
    int status = ls_recover(c->t, when, err);
    send_from_here(c);
    return status;
}

/* Collects the next step. Accounts for it, or recovers if a worker has failed. */
static int collect_step(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    ls_outcome o;
    const uint64_t number = t->position.steps + 1;
    ls_engine_collect(t->engine, &o);
    ls_drain_trace(t);
    ls_count_queues(t);
    int status = o.report ? ls_account_step(c, &o, err) : LS_OK;
    if (status == LS_OK)
        status = ls_save_kept(t, err);
    return status == LS_OK && o.failed ? recover_step(c, number, err) : status;
}

/* ---- training ------------------------------------------------------------------------------- */

static bool can_submit(const ls_coordination *c)
{
    const struct ls_trainer *t = c->t;
    const uint64_t sent = steps_sent(c);
    const bool stops = t->members.cluster ? sent >= t->members.stop_after : ls_stopping(t);
    return c->sent < c->limit && !stops && ls_engine_has_room(t->engine) && !is_due(c, sent);
}

static int train_to_limit(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int status = LS_OK;
    while (status == LS_OK) {
        if (can_submit(c))
            status = submit_next(c, err);
        else if (ls_engine_in_flight(t->engine) > 0)
            status = collect_step(c, err);
        else if (is_due(c, t->position.steps) && !ls_stopping(t))
            status = do_due_work(c, save_due(t, t->position.steps),
                                 ls_agreement_is_due(t, t->position.steps), err);
        else
            return LS_OK;
    }
    collect_rest(c); /* no worker has work when the function returns */
    return status;
}

int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err)
{
    const ls_epoch_totals *totals = &c->t->position.totals;
    send_from_here(c);
    c->limit = limit;
    /* ls_account_step sets totals->seconds to the time from start_ns to the end of the step. So the
     * time for saving and models after the last step is not part of the epoch's time. */
    c->start_ns = c->last_ns - (uint64_t)(totals->seconds * 1e9);
    return train_to_limit(c, err);
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* Trains the epoch's steps from the current position on. */
static int train_epoch(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const ls_position *at = &t->position;
    /* the order is drawn before the epoch's time begins, while no worker has work */
    uint32_t *order = ls_engine_order(t->engine, at->epoch);
    ls_rng_permutation(order, c->rows, t->config.seed, at->epoch);
    if (!ls_engine_feed(t->engine))
        ls_dataset_view_rows(t->data[LS_TRAIN], order, c->rows);
    const uint64_t start = ls_now_ns();
    int status = ls_train_steps(c, c->steps, err);
    /* the rows per second are 0 until the next epoch */
    ls_trace_rate(t->records.trace, ls_now_ns(), 0);
    ls_trace_span(t->records.trace, LS_TRACK_COORDINATOR, "epoch", start, ls_now_ns(), "epoch",
                  at->epoch + 1);
    return status;
}

static int record_epoch(struct ls_trainer *t, ls_error *err)
{
    ls_position *at = &t->position;
    at->trained_s += at->totals.seconds;
    at->recorded = true;
    t->reported.result.epochs++;
    t->reported.result.seconds_per_epoch = at->trained_s / t->reported.result.epochs;
    return ls_record_epoch(t, err);
}

int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err)
{
    struct ls_trainer *t = c->t;
    bool evaluated = false;
    int status = t->position.recorded ? LS_OK : record_epoch(t, err);
    const bool due = may_evaluate && ls_evaluation_is_due(t);
    if (status == LS_OK && due && !ls_stopping(t))
        status = ls_evaluate(t, &evaluated, err);
    if (status || (due && !evaluated))
        return status;
    ls_report_progress(c, true, evaluated);
    t->position.epoch++;
    t->position.step = 0;
    t->position.recorded = false;
    t->position.totals = (ls_epoch_totals){0};
    /* `may_evaluate` is true in ls_trainer_run, which saves a final checkpoint after the last
     * epoch, so no checkpoint is saved here. It is false in ls_trainer_step, whose caller can go on
     * after the last epoch, so the checkpoint is saved here. */
    if (may_evaluate &&
        (t->position.epoch == (uint32_t)t->config.epochs || ls_patience_is_used_up(t)))
        return LS_OK;
    const ls_moment done = {.occasion = LS_EPOCH_DONE, .evaluated = evaluated};
    status = do_due_work(c, ls_checkpoint_due(t, &done), true, err);
    return status || !may_evaluate ? status : ls_members_admit(t, err);
}

static int run_epoch(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int status = t->position.recorded ? LS_OK : train_epoch(c, err);
    if (status || t->position.step < c->steps)
        return status;
    return ls_end_epoch(c, true, err);
}

int ls_coordination_create(struct ls_trainer *t, ls_error *err)
{
    ls_coordination *c = ls_alloc(t->host, sizeof *c);
    if (!c)
        return ls_fail(err, LS_ENOMEM, "out of memory for the coordinator");
    c->t = t;
    c->rows = ls_dataset_rows(t->data[LS_TRAIN]);
    c->steps = ls_steps_per_epoch(c->rows, (uint32_t)t->config.batch_size);
    c->due_work_done_at = t->position.steps;
    t->coordination = c;
    ls_agreement_begin(t);
    return LS_OK;
}

int ls_coordinate(struct ls_trainer *t, ls_error *err)
{
    const uint32_t epochs = (uint32_t)t->config.epochs;
    /* This process was admitted at the end of an epoch, where the other members are, so it begins
     * with the admissions at that end. */
    int status = t->members.arrived ? ls_members_admit(t, err) : LS_OK;
    t->members.arrived = false;
    while (status == LS_OK && t->position.epoch < epochs && !ls_stopping(t) &&
           !ls_patience_is_used_up(t))
        status = run_epoch(t->coordination, err);
    if (status || t->position.epoch == epochs)
        return status;
    if (ls_patience_is_used_up(t)) {
        ls_stop_early(t);
        return LS_OK;
    }
    t->reported.result.interrupted = 1;
    return ls_fail(err, LS_EINTERRUPTED, "interrupted after %llu %s",
                   (unsigned long long)t->reported.result.steps,
                   ls_plural(t->reported.result.steps, "step", "steps"));
}
