/* SPDX-License-Identifier: MIT */
/* Composes the records of a run (the lines of metrics.jsonl), and the progress and results for the
 * caller, from the trainer's state. */
#include "train/run_records.h"

#include "base/host.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/saving.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- records -------------------------------------------------------------------------------- */

/* Writes the names of the devices that still take part in the run to t->records.device, and returns
 * their number. */
static int list_live_devices(struct ls_trainer *t)
{
    int count = 0;
    const ls_members *m = &t->members;
    const int workers = ls_engine_workers(t->engine);
    for (int i = 0; i < m->devices; i++) {
        /* index among this process's workers; < 0 or ≥ workers: the device belongs to another
         * process */
        const int own = i - m->own;
        if (own < 0 || own >= workers || ls_engine_worker(t->engine, own).presence == LS_LIVE)
            t->records.device[count++] = m->device[i].name;
    }
    for (int i = 0; i < workers && m->devices == 0; i++) {
        if (ls_engine_worker(t->engine, i).presence == LS_LIVE)
            t->records.device[count++] = ls_engine_device_name(t->engine, i);
    }
    return count;
}

/* Returns a record with the names of the devices that still take part in the run. */
static ls_record with_devices(struct ls_trainer *t, ls_record_type type)
{
    return (ls_record){.type = type, .devices = list_live_devices(t), .device = t->records.device};
}

/* Returns the names of the classes, or NULL if there are more than LS_CONFUSION_CLASSES classes.
 * For data sets that are known by name, the names come from the built-in table. */
static const char *const *class_names(const struct ls_trainer *t, const ls_dataset_info *data)
{
    const ls_dataset_about *about;
    const char *const *name = data->class_name;
    if (!name && ls_config_find_data(&about, &t->config, NULL) == LS_OK &&
        about->classes == data->classes)
        name = about->class_name;
    return data->classes <= LS_CONFUSION_CLASSES ? name : NULL;
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static ls_data_values describe_data(const struct ls_trainer *t)
{
    const ls_dataset_info *data = ls_dataset_describe(t->data[LS_TRAIN]);
    return (ls_data_values){
        .name = data->name,
        .source = data->source,
        .payload = data->payload,
        .synthetic = data->synthetic,
        .images = data->row_type == LS_ROW_U8,
        .train_rows = data->rows,
        .test_rows = ls_dataset_rows(t->data[LS_TEST]),
        .test_rows_left_out = (int)ls_dataset_describe(t->data[LS_TEST])->left_out,
        .sha256 = text_or_null(data->images_sha256),
        .labels_sha256 = text_or_null(data->labels_sha256),
        .test_sha256 = text_or_null(ls_dataset_describe(t->data[LS_TEST])->images_sha256),
        .targets = data->targets,
        .classes = data->classes,
        .class_name = class_names(t, data),
    };
}

int ls_record_start(struct ls_trainer *t, ls_record_type type, ls_error *err)
{
    ls_record r = with_devices(t, type);
    r.of.start = (ls_start_values){
        .summary = t->reported.summary,
        .data = describe_data(t),
        .config = &t->config,
        .step = t->position.steps,
        .missing = t->records.sinks.missing,
        .ended = t->records.sinks.ended.status[0] ? &t->records.sinks.ended : NULL,
        .doubtful = t->dir.resumed && t->dir.resumed->doubtful,
    };
    if (type == LS_RECORD_RESUME)
        t->records.sinks.missing = 0; /* only the first resume reports them */
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

double ls_loss_of_run(const struct ls_trainer *t, double loss)
{
    const double unit = ls_prep_error_unit(ls_dataset_describe(t->data[LS_TRAIN])->prep);
    return ls_loss_in_unit(t->config.loss->power, loss, unit);
}

double ls_rate(const struct ls_trainer *t, uint64_t step)
{
    const double full = t->position.lr > 0 ? t->position.lr : ls_config_lr(&t->config);
    return ls_config_rate(&t->config, full, step, t->coordination->steps);
}

int ls_record_step(struct ls_trainer *t, double images_per_s, const ls_report *r, ls_error *err)
{
    if (t->records.sinks.count == 0)
        return LS_OK;
    ls_record record = {.type = LS_RECORD_STEP, .epoch = t->position.epoch + 1};
    ls_step_values *v = &record.of.step;
    *v = (ls_step_values){
        .step = r->number,
        .rows = (uint64_t)r->rows,
        .correct = (uint64_t)r->correct,
        .hits = t->config.loss->hits,
        .loss = (float)ls_loss_of_run(
            t, (double)(float)ls_loss_mean((double)r->loss, (double)r->weight)),
        .lr = (float)ls_rate(t, r->number - 1),
        .images_per_s = (float)images_per_s,
        .gradient_norm = r->gradient_norm,
        .worker = t->records.times,
    };
    /* Workers can already be running later steps. That does not change the reports of this step. */
    for (int i = 0; i < ls_engine_workers(t->engine); i++) {
        const ls_worker_view w = ls_engine_worker(t->engine, i);
        if (w.report)
            t->records.times[v->workers++] = (ls_worker_times){
                .worker = i,
                .queued = w.queued,
                .seconds = {(float)w.report->times.gather, (float)w.report->times.forward,
                            (float)w.report->times.backward, (float)w.report->comm.exposed,
                            (float)w.report->comm.wait, (float)w.report->times.apply},
            };
    }
    return ls_sinks_emit(&t->records.sinks, &record, err);
}

int ls_record_nonfinite(struct ls_trainer *t, int worker, int shard, ls_error *err)
{
    const uint64_t step = t->position.steps + 1;
    ls_record r = {.type = LS_RECORD_NONFINITE};
    if (t->config.skip_nonfinite && shard < 0 && t->members.cluster)
        ls_log(t->host, LS_LOG_WARNING,
               "step %llu: the loss of a shard of another host is not finite; the step is skipped",
               (unsigned long long)step);
    else if (t->config.skip_nonfinite)
        ls_log(t->host, LS_LOG_WARNING,
               "step %llu: the loss of shard %d, on worker %d, is not finite; the step is skipped",
               (unsigned long long)step, shard, worker);
    r.of.nonfinite =
        (ls_nonfinite_values){step, worker, shard, t->config.skip_nonfinite ? "skip" : "stop"};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_fault(struct ls_trainer *t, const ls_fault *fault, ls_fault_action action,
                    ls_error *err)
{
    const bool own = fault->worker >= 0;
    ls_record r = {.type = LS_RECORD_FAULT};
    r.of.fault = (ls_fault_values){
        .fault = *fault,
        .action = action,
        .device = own ? ls_engine_device_name(t->engine, fault->worker) : t->members.lost,
        .devices_left = own ? ls_engine_live(t->engine) : t->members.devices};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_arrival(struct ls_trainer *t, const char *host, ls_error *err)
{
    ls_record r = with_devices(t, LS_RECORD_ARRIVAL);
    r.of.arrival = (ls_arrival_values){host, t->position.steps};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_failed_arrival(struct ls_trainer *t, const char *host, const char *why, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_FAILED_ARRIVAL};
    r.of.failed = (ls_failed_arrival_values){host, why, t->position.steps};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

double ls_epoch_loss(const ls_epoch_totals *totals)
{
    return totals->rows > 0 ? ls_loss_mean(totals->loss, totals->weight) : NAN;
}

int ls_record_epoch(struct ls_trainer *t, ls_error *err)
{
    const ls_epoch_totals *totals = &t->position.totals;
    ls_record r = {.type = LS_RECORD_EPOCH, .epoch = t->position.epoch + 1};
    r.of.epoch = (ls_epoch_values){
        .seconds = totals->seconds,
        .images_per_s = totals->rows / totals->seconds,
        .train_loss = ls_epoch_loss(totals),
        .train_accuracy = ls_loss_accuracy(t->config.loss, totals->correct, totals->rows),
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_eval(struct ls_trainer *t, double seconds, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EVAL, .epoch = t->position.epoch + 1};
    r.of.eval = (ls_eval_values){.test_loss = t->reported.result.test_loss,
                                 .test_accuracy = t->reported.accuracy,
                                 .seconds = seconds,
                                 .measured = t->reported.measured,
                                 .best = t->position.best.epoch > 0 &&
                                         t->position.best.steps == t->position.steps};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_run_end(struct ls_trainer *t, int status, const char *error, ls_error *err)
{
    const bool failed = status && status != LS_EINTERRUPTED;
    const char *ended = "finished";
    if (failed)
        ended = "failed";
    else if (status)
        ended = "interrupted";
    ls_record r = with_devices(t, LS_RECORD_RUN_END);
    r.of.end = (ls_end_values){
        .status = ended,
        .error = failed ? error : NULL,
        .result = t->reported.result,
        .test_accuracy = t->reported.accuracy,
        .skipped = t->position.skipped < INT_MAX ? (int)t->position.skipped : INT_MAX,
        .checkpoint = t->reported.result.saved ? t->reported.result.checkpoint : NULL,
        .weights_epoch = t->reported.weights_epoch,
        .best_checkpoint = ls_best_checkpoint(t),
        .stopped_early = t->reported.text.early[0] ? t->reported.text.early : NULL,
        .weights_sha256 =
            t->reported.result.weights_sha256[0] ? t->reported.result.weights_sha256 : NULL,
        .synthetic = ls_dataset_describe(t->data[LS_TRAIN])->synthetic,
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

/* ---- the caller ----------------------------------------------------------------------------- */

/* Writes "[cpu(0), cpu(1)]", or "[a: cpu(0), cpu(1); b: cpu(0)]" for several hosts. The host's name
 * is written only before the first of its devices. */
void ls_report_devices(struct ls_trainer *t)
{
    const int devices = list_live_devices(t);
    const char *const *device = t->records.device;
    char *out = t->reported.text.devices_left;
    const size_t size = sizeof t->reported.text.devices_left - sizeof "…]";
    size_t used = 1, host = 0;
    if (devices == (t->members.devices > 0 ? t->members.devices : ls_engine_workers(t->engine)) &&
        t->members.devices == t->members.devices_at_start)
        return; /* no device was lost or added since the start */
    out[0] = '[';
    for (int i = 0; i < devices && used < size; i++) {
        const char *name = device[i], *colon = strstr(name, ": ");
        const size_t length = colon ? (size_t)(colon - name) + 2 : 0;
        const bool same =
            i > 0 && length > 0 && length == host && strncmp(name, device[i - 1], length) == 0;
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0           ? ""
                                 : same || !colon ? ", "
                                                  : "; ",
                                 name + (same ? length : 0));
        host = length;
    }
    strcpy(out + (used < size ? used : size - 1), used < size ? "]" : "…]");
    t->reported.result.devices = out;
}

/* Estimates the seconds until the end of the configured epochs from the seconds of training so far.
 * Returns 0 if that end is unknown or has passed. */
static double remaining_s(const ls_coordination *c, double trained_s)
{
    const ls_position *at = &c->t->position;
    const double done = (double)at->epoch + (double)at->step / c->steps;
    const double left = (double)c->t->config.epochs - done;
    return c->rows > 0 && left > 0 ? left * trained_s / done : 0;
}

void ls_report_progress(const ls_coordination *c, bool epoch_done, bool evaluated)
{
    const struct ls_trainer *t = c->t;
    const ls_position *at = &t->position;
    if (!t->callbacks.progress)
        return;
    const double epoch_s =
        epoch_done ? at->totals.seconds : (double)(ls_engine_ns(t->engine) - c->start_ns) * 1e-9;
    ls_progress p = {
        .epoch = (int)at->epoch + 1,
        .epochs = (int)t->config.epochs,
        .step = at->step,
        .steps = c->rows > 0 ? c->steps : 0,
        .loss = ls_epoch_loss(&at->totals),
        .accuracy = ls_loss_accuracy(t->config.loss, at->totals.correct, at->totals.rows),
        .rows_per_s = at->totals.rows / epoch_s,
        .remaining_s = remaining_s(c, at->trained_s + (epoch_done ? 0 : epoch_s)),
        .epoch_done = epoch_done,
        .evaluated = evaluated,
        .test_loss = t->reported.result.test_loss,
        .metric = t->reported.result.metric,
        .metric_value = t->reported.result.metric_value,
    };
    t->callbacks.progress(t->callbacks.user, &p);
}

void ls_report_metric(struct ls_trainer *t, const ls_measured *measured)
{
    const ls_metric metric = ls_metric_to_report(t->config.loss, t->config.metrics, measured);
    t->reported.metric = metric;
    t->reported.result.metric = ls_metric_names[metric];
    double value = NAN;
    if (metric == LS_METRIC_ACCURACY)
        value = t->reported.accuracy;
    else if (metric == LS_METRIC_LOSS)
        value = t->reported.result.test_loss;
    else if (measured)
        value = measured->value[metric];
    t->reported.result.metric_value = value;
}

/* ---- the timeline --------------------------------------------------------------------------- */

void ls_drain_trace(const struct ls_trainer *t)
{
    ls_trace *trace = t->records.trace;
    for (int w = 0; trace && w < ls_engine_workers(t->engine); w++)
        ls_trace_drain(trace, w, ls_engine_replica_at(t->engine, w));
}

void ls_count_queues(const struct ls_trainer *t)
{
    int queued[LS_DEVICES_MAX];
    if (!t->records.trace)
        return;
    for (int w = 0; w < ls_engine_workers(t->engine); w++)
        queued[w] = ls_engine_worker(t->engine, w).queued;
    ls_trace_queues(t->records.trace, ls_now_ns(), queued);
}
