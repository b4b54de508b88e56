/* SPDX-License-Identifier: MIT */
/* Evaluation: measures the model on the test rows, finds the best evaluation, and says when the run
 * ends because evaluations do not improve any more (patience). recover.c handles the faults of
 * workers and other processes meanwhile.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "data/own_rows.h"
#include "engine/view.h"
#include "merge/weights.h"
#include "train/coordinator.h"
#include "train/doubts.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- measuring ------------------------------------------------------------------------------ */

/* Computes the results of an evaluation: the loss, and the accuracy of rows without weights, from
 * the sums of the shards (ls_tally), and the other metrics from the scores of all rows. */
static void measure(struct ls_trainer *t)
{
    const ls_sharded_rows *r = ls_engine_test(t->engine);
    const ls_tally sum = ls_sharded_rows_sum(r);
    const ls_dataset_view view = ls_dataset_resident(t->data[LS_TEST]);
    const ls_scored_rows judged = {.scores = r->scores,
                                   .labels = view.labels,
                                   .row = r->row,
                                   .weights = view.weights,
                                   .rows = r->rows,
                                   .outputs = r->classes,
                                   .loss = &t->config.vector_loss};
    const double weight = ls_sum_weights(view.weights, r->row, r->rows, 1);
    t->reported.result.test_loss = ls_loss_of_run(t, ls_loss_mean(sum.loss, weight));
    ls_measured_clear(&t->reported.measured);
    t->reported.measured.value[LS_METRIC_LOSS] = t->reported.result.test_loss;
    t->reported.measured.value[LS_METRIC_ACCURACY] =
        ls_loss_accuracy(t->config.loss, sum.correct, r->rows);
    if (r->scores)
        ls_measure(&t->reported.measured, t->config.metrics, &judged);
    t->reported.accuracy = t->reported.measured.value[LS_METRIC_ACCURACY];
    ls_measured_in_unit(&t->reported.measured,
                        ls_prep_error_unit(ls_dataset_describe(t->data[LS_TRAIN])->prep));
}

/* ---- the best evaluation -------------------------------------------------------------------- */

/* Fails if the run needs a best evaluation but the monitored metric has no value (NaN) on the test
 * rows. (The metric will have no value in later evaluations either.) If the test loss is not
 * finite, this function does not fail, because take_evaluation then reports the loss. */
static int check_monitored(const struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    const bool needed = c->patience > 0 || c->checkpoint.best;
    if (!needed || t->position.best.epoch > 0 || !isfinite(t->reported.result.test_loss) ||
        !isnan(t->reported.measured.value[c->monitor]))
        return LS_OK;
    return ls_fail(
        err, LS_ECONFIG,
        "monitor: %s has no value on the %s rows (%s), so patience and checkpoint.best cannot "
        "tell which epoch is the best; set monitor to a metric that has a value, such as loss",
        ls_metric_names[c->monitor], t->reported.summary.judged_by, ls_metric_why_none(c->monitor));
}

/* Compares the last evaluation with the best evaluation so far. If the last evaluation is better,
 * it becomes the best. (Of equal evaluations the first is the best.) If it is not better,
 * increments the number of evaluations since the best one, for the config's `patience`. */
static int compare_with_best(struct ls_trainer *t, ls_error *err)
{
    ls_best *best = &t->position.best;
    const ls_metric metric = t->config.monitor;
    const double value = t->reported.measured.value[metric];
    const bool better =
        best->epoch == 0 || (ls_metric_rises(metric) ? value > best->value : value < best->value);
    if (!isfinite(value) || !better) {
        if (best->epoch > 0)
            best->waited++;
        return LS_OK;
    }
    int status = ls_displace_best(t, err);
    if (status == LS_OK)
        *best = (ls_best){metric, value, t->position.epoch + 1, 0, t->position.steps, best->kept};
    return status;
}

static void note_least_loss(struct ls_trainer *t)
{
    ls_position *at = &t->position;
    const double loss = t->reported.result.test_loss;
    if (!isfinite(loss) || (at->least_epoch > 0 && loss >= at->least_loss))
        return;
    at->least_loss = loss;
    at->least_epoch = at->epoch + 1;
}

bool ls_patience_is_used_up(const struct ls_trainer *t)
{
    return t->config.patience > 0 && t->position.best.waited >= (uint32_t)t->config.patience;
}

void ls_stop_early(struct ls_trainer *t)
{
    const ls_best *best = &t->position.best;
    snprintf(
        t->reported.text.early, sizeof t->reported.text.early,
        "%u evaluations in a row were not better than the one after epoch %u, with a%s %s of %.6g",
        (unsigned)best->waited, (unsigned)best->epoch,
        strchr("af", ls_metric_names[best->metric][0]) ? "n" : "", ls_metric_names[best->metric],
        best->value);
    ls_log(t->host, LS_LOG_INFO, "stopped early: %s", t->reported.text.early);
}

/* ---- an evaluation of the run --------------------------------------------------------------- */

/* Warns after the last evaluation if the model is no better than a guess, or is overfitted. */
static void warn_of_result(const struct ls_trainer *t)
{
    const ls_position *at = &t->position;
    const double *value = t->reported.measured.value;
    if (at->epoch + 1 != (uint32_t)t->config.epochs || !ls_members_first(t))
        return;
    ls_log_result_doubts(
        &t->config, t->data[LS_TEST],
        &(ls_last_result){.loss = t->reported.result.test_loss,
                          .least_loss = at->least_loss,
                          .train_loss = ls_epoch_loss(&at->totals),
                          .epoch = at->epoch + 1,
                          .least_epoch = at->least_epoch,
                          .accuracy = t->reported.accuracy,
                          /* a median can be worse than the mean by r2 */
                          .r2 = t->config.loss->rule == LS_VECTOR_MSE ? value[LS_METRIC_R2] : NAN,
                          .auc = value[LS_METRIC_AUC]},
        t->host);
}

/* Computes the results of an evaluation, compares them with the best results, and writes their
 * record. If this process has adopted the results from another process (members.evaluated), the
 * results are not computed. */
static int take_evaluation(struct ls_trainer *t, double seconds, ls_error *err)
{
    const ls_best before = t->position.best;
    if (!t->members.evaluated)
        measure(t);
    t->members.evaluated = false;
    ls_report_metric(t, &t->reported.measured);
    ls_note_completed(t);
    int status = check_monitored(t, err);
    if (status == LS_OK)
        status = compare_with_best(t, err);
    if (status == LS_OK)
        status = ls_record_eval(t, seconds, err);
    if (status) { /* after a resume the evaluation is repeated, and it must count only once */
        t->position.best = before;
    } else {
        note_least_loss(t);
        warn_of_result(t);
    }
    if (status == LS_OK && !isfinite(t->reported.result.test_loss))
        status = ls_fail(err, LS_ENONFINITE,
                         "epoch %u: the %s loss is not finite any more; try a smaller "
                         "optimizer.lr",
                         (unsigned)t->position.epoch + 1, t->reported.summary.judged_by);
    return status;
}

/* Evaluates this process's shards, and then gathers the results of all processes. If a worker or
 * another process is lost meanwhile, recovers and begins again. There is one exception: another
 * process had completed this evaluation before the loss. The recovery then adopts the results of
 * that process and sets members.evaluated (regroup.c), and the evaluation is not repeated. */
static int evaluate_shards(struct ls_trainer *t, ls_error *err)
{
    char when[64];
    snprintf(when, sizeof when, "evaluation of epoch %llu",
             (unsigned long long)t->position.epoch + 1);
    bool moved;
    int status = ls_own_rows_scale_test(t->data[LS_TRAIN], &moved, err);
    t->test_has_moved |= moved;
    while (status == LS_OK && !t->members.evaluated) {
        int job_status = t->test_has_moved ? ls_engine_run_all(t->engine, ls_worker_refresh_test,
                                                               t->position.steps, err)
                                           : LS_OK;
        if (job_status == LS_OK)
            job_status = ls_engine_run_all(t->engine, ls_worker_evaluate, t->position.steps, err);
        if (job_status == LS_OK && ls_stopping(t))
            return LS_OK;
        if (job_status == LS_OK)
            status = ls_members_gather_evaluation(t, err);
        if (job_status == LS_OK && (status == LS_OK || !ls_members_lost(t)))
            return status;
        status = ls_recover(t, when, err);
    }
    return status;
}

int ls_evaluate(struct ls_trainer *t, bool *evaluated, ls_error *err)
{
    const uint64_t start = ls_now_ns(), run_start = ls_engine_ns(t->engine);
    int status = evaluate_shards(t, err);
    ls_trace_span(t->records.trace, LS_TRACK_COORDINATOR, "evaluate", start, ls_now_ns(), "step",
                  t->position.steps);
    t->test_has_moved &= status != LS_OK;
    *evaluated = status == LS_OK && (t->members.evaluated || !ls_stopping(t));
    if (!*evaluated)
        return status;
    return take_evaluation(t, (double)(ls_engine_ns(t->engine) - run_start) * 1e-9, err);
}

int ls_measure_again(struct ls_trainer *t, ls_error *err)
{
    if (isnan(t->reported.result.test_loss) || !isnan(t->reported.measured.value[LS_METRIC_LOSS]))
        return LS_OK;
    int status = evaluate_shards(t, err);
    t->test_has_moved &= status != LS_OK;
    if (status || (ls_stopping(t) && !t->members.evaluated))
        return status;
    if (!t->members.evaluated)
        measure(t);
    t->members.evaluated = false;
    ls_note_completed(t);
    return LS_OK;
}

bool ls_evaluation_is_due(const struct ls_trainer *t)
{
    const uint32_t next = t->position.epoch + 1;
    return ls_dataset_rows(t->data[LS_TEST]) > 0 &&
           (next == (uint32_t)t->config.epochs || ls_is_multiple(next, t->config.eval_every));
}
