/* Records: as text, one JSON object each, whose schema is train/README.md; and out of the run, from where it
 * stands into its sinks. */
#include "train/record.h"

#include "base/host.h"
#include "train/saver.h"
#include "train/trainer.h"

#include <lockstep/version.h>
#include <math.h>
#include <time.h>

const char *const ls_record_names[LS_RECORD_TYPES] = {
    "run_start", "resume", "step", "epoch", "eval", "fault", "nonfinite", "run_end"};
const char *const ls_phase_keys[LS_PHASES] = {"gather_s",       "forward_s", "backward_s",
                                              "comm_exposed_s", "wait_s",    "apply_s"};
const char *const ls_phase_names[LS_PHASES] = {"gather",     "forward", "backward",
                                               "all-reduce", "wait",    "apply"};

/* ---- members with a form of their own ------------------------------------------------------- */

static void put_time(ls_json_writer *w, const char *key, const ls_record *r)
{
    char text[32];
    struct tm utc;
    time_t now = time(NULL);
    (void)r;
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ls_json_put_string(w, key, text);
}

static void put_version(ls_json_writer *w, const char *key, const ls_record *r)
{
    (void)r;
    ls_json_put_string(w, key, LS_VERSION);
}

static void put_devices(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_json_open_array(w, key);
    for (int i = 0; i < r->devices; i++)
        ls_json_put_string(w, NULL, r->device[i]);
    ls_json_close(w);
}

/* Of so many classes as a matrix may have by default; a set that is known by name may have theirs in the table. */
static void put_names(ls_json_writer *w, const ls_start_values *v)
{
    const ls_dataset_about *about;
    const char *const *name = v->data->class_name;
    if (!name && ls_config_find_data(&about, v->config, NULL) == LS_OK &&
        about->classes == v->data->classes)
        name = about->class_name;
    if (!name || v->data->classes > LS_CONFUSION_CLASSES)
        return;
    ls_json_open_array(w, "class_names");
    for (int k = 0; k < v->data->classes; k++)
        ls_json_put_string(w, NULL, name[k]);
    ls_json_close(w);
}

static void put_data(ls_json_writer *w, const char *key, const ls_record *r)
{
    static const char *const payload[] = {"unknown", "published", "differs"};
    const ls_dataset_info *data = r->of.start.data;
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", data->name);
    ls_json_put_bool(w, "synthetic", data->synthetic);
    ls_json_put_string(w, "source", data->source);
    ls_json_put_string(w, "payload", payload[data->payload]);
    ls_json_put_bool(w, "images", data->dtype == LS_ROW_U8);
    ls_json_put_uint(w, "train_rows", data->rows);
    ls_json_put_uint(w, "test_rows", r->of.start.test_rows);
    if (data->targets > 0)
        ls_json_put_int(w, "targets", data->targets);
    put_names(w, &r->of.start);
    ls_json_close(w);
}

static void put_config(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_config_write(w, key, r->of.start.config);
}

static void put_workers(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_json_open_array(w, key);
    for (int i = 0; i < r->of.step.workers; i++) {
        const ls_worker_times *t = &r->of.step.worker[i];
        ls_json_open_object(w, NULL);
        ls_json_put_int(w, "worker", t->worker);
        ls_json_put_int(w, "queued", t->queued);
        for (int p = 0; p < LS_PHASES; p++)
            ls_json_put_float(w, ls_phase_keys[p], t->seconds[p]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

static void put_classes(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_measured_write(w, key, &r->of.eval.measured);
}

/* ---- the rows ------------------------------------------------------------------------------- */

#define AT(member) .at = offsetof(ls_record, member)
#define SUMMARY(member) AT(of.start.summary.member)
#define MEASURED(metric) AT(of.eval.measured.value[LS_METRIC_##metric])
#define IN(type) (1u << LS_RECORD_##type)
#define LIVES (IN(RUN_START) | IN(RESUME)) /* each time that a run is started */

const ls_record_key ls_record_keys[] = {
    {LIVES | IN(RUN_END), "time", LS_MEMBER_FORM, .put = put_time},
    {LIVES, "lockstep", LS_MEMBER_FORM, .put = put_version},
    {IN(RESUME), "step", LS_MEMBER_UINT, AT(of.start.step)},
    {IN(RESUME), "epochs", LS_MEMBER_INT, SUMMARY(epochs)},
    {LIVES, "devices", LS_MEMBER_FORM, .put = put_devices},
    {LIVES, "device_model", LS_MEMBER_TEXT, SUMMARY(device_model)},
    {LIVES, "instruction_set", LS_MEMBER_TEXT, SUMMARY(isa)},
    {LIVES, "library", LS_MEMBER_TEXT, SUMMARY(library)},
    {IN(RUN_START), "shards", LS_MEMBER_INT, SUMMARY(shards)},
    {IN(RUN_START), "batch_size", LS_MEMBER_INT, SUMMARY(batch_size)},
    {LIVES, "batch_per_device", LS_MEMBER_INT, SUMMARY(batch_per_device)},
    {IN(RUN_START), "parameters", LS_MEMBER_SIZE, SUMMARY(parameters)},
    {IN(RUN_START), "parameter_bytes", LS_MEMBER_SIZE, SUMMARY(parameter_bytes)},
    {LIVES, "device_bytes", LS_MEMBER_SIZE, SUMMARY(device_bytes)},
    {IN(RUN_START), "data", LS_MEMBER_FORM, .put = put_data},
    {IN(RUN_START), "config", LS_MEMBER_FORM, .put = put_config},

    {IN(STEP), "step", LS_MEMBER_UINT, AT(of.step.step)},
    {IN(STEP) | IN(EPOCH) | IN(EVAL), "epoch", LS_MEMBER_UINT, AT(epoch)},
    {IN(STEP), "rows", LS_MEMBER_UINT, AT(of.step.rows)},
    {IN(STEP), "loss", LS_MEMBER_FLOAT, AT(of.step.loss)},
    {IN(STEP), "correct", LS_MEMBER_UINT, AT(of.step.correct)},
    {IN(STEP), "lr", LS_MEMBER_FLOAT, AT(of.step.lr)},
    {IN(STEP), "images_per_s", LS_MEMBER_FLOAT, AT(of.step.images_per_s)},
    {IN(STEP), "workers", LS_MEMBER_FORM, .put = put_workers},

    {IN(EPOCH), "seconds", LS_MEMBER_DOUBLE, AT(of.epoch.seconds)},
    {IN(EPOCH), "images_per_s", LS_MEMBER_DOUBLE, AT(of.epoch.images_per_s)},
    {IN(EPOCH), "train_loss", LS_MEMBER_DOUBLE, AT(of.epoch.train_loss)},
    {IN(EPOCH), "train_accuracy", LS_MEMBER_DOUBLE, AT(of.epoch.train_accuracy)},

    {IN(EVAL), "test_loss", LS_MEMBER_DOUBLE, AT(of.eval.test_loss)},
    {IN(EVAL), "test_accuracy", LS_MEMBER_DOUBLE, AT(of.eval.test_accuracy)},
    {IN(EVAL), "best", LS_MEMBER_BOOL, AT(of.eval.best)},
    {IN(EVAL), "test_top5", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(TOP5)},
    {IN(EVAL), "test_mae", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(MAE)},
    {IN(EVAL), "test_r2", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(R2)},
    {IN(EVAL), "test_auc", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(AUC)},
    {IN(EVAL), "precision", LS_MEMBER_FORM, .put = put_classes},
    {IN(EVAL), "recall", LS_MEMBER_FORM, .put = put_classes},
    {IN(EVAL), "confusion", LS_MEMBER_FORM, .put = put_classes},
    {IN(EVAL), "seconds", LS_MEMBER_DOUBLE, AT(of.eval.seconds)},

    {IN(FAULT), "worker", LS_MEMBER_INT, AT(of.fault.worker)},
    {IN(FAULT), "device", LS_MEMBER_TEXT, AT(of.fault.device)},
    {IN(FAULT), "step", LS_MEMBER_UINT, AT(of.fault.step)},
    {IN(FAULT), "kind", LS_MEMBER_TEXT, AT(of.fault.kind)},
    {IN(FAULT), "detected_after_s", LS_MEMBER_DOUBLE, AT(of.fault.detected_after_s)},
    {IN(FAULT), "action", LS_MEMBER_TEXT, AT(of.fault.action)},
    {IN(FAULT), "devices_left", LS_MEMBER_INT, AT(of.fault.devices_left)},
    {IN(FAULT), "error", LS_MEMBER_TEXT, AT(of.fault.text)},

    {IN(NONFINITE), "step", LS_MEMBER_UINT, AT(of.nonfinite.step)},
    {IN(NONFINITE), "worker", LS_MEMBER_INT, AT(of.nonfinite.worker)},
    {IN(NONFINITE), "shard", LS_MEMBER_INT, AT(of.nonfinite.shard)},
    {IN(NONFINITE), "action", LS_MEMBER_TEXT, AT(of.nonfinite.action)},

    {IN(RUN_END), "status", LS_MEMBER_TEXT, AT(of.end.status)},
    {IN(RUN_END), "error", LS_MEMBER_TEXT_IF_ANY, AT(of.end.error)},
    {IN(RUN_END), "epochs", LS_MEMBER_INT, AT(of.end.result.epochs)},
    {IN(RUN_END), "steps", LS_MEMBER_UINT, AT(of.end.result.steps)},
    {IN(RUN_END), "test_accuracy", LS_MEMBER_DOUBLE, AT(of.end.result.test_accuracy)},
    {IN(RUN_END), "seconds_per_epoch", LS_MEMBER_DOUBLE, AT(of.end.result.seconds_per_epoch)},
    {IN(RUN_END), "devices", LS_MEMBER_FORM, .put = put_devices},
    {IN(RUN_END), "synthetic", LS_MEMBER_BOOL, AT(of.end.synthetic)},
    {IN(RUN_END), "checkpoint", LS_MEMBER_TEXT, AT(of.end.checkpoint)},
    {IN(RUN_END), "best_checkpoint", LS_MEMBER_TEXT_IF_ANY, AT(of.end.best_checkpoint)},
    {IN(RUN_END), "stopped_early", LS_MEMBER_TEXT_IF_ANY, AT(of.end.stopped_early)},
    {IN(RUN_END), "weights_sha256", LS_MEMBER_TEXT, AT(of.end.weights_sha256)},
    {.key = NULL},
};

static void put_member(ls_json_writer *w, const ls_record *r, const ls_record_key *row)
{
    const void *value = (const char *)r + row->at;
    switch (row->kind) {
    case LS_MEMBER_INT: ls_json_put_int(w, row->key, *(const int *)value); break;
    case LS_MEMBER_UINT: ls_json_put_uint(w, row->key, *(const uint64_t *)value); break;
    case LS_MEMBER_SIZE: ls_json_put_uint(w, row->key, *(const size_t *)value); break;
    case LS_MEMBER_FLOAT: ls_json_put_float(w, row->key, *(const float *)value); break;
    case LS_MEMBER_DOUBLE_IF_ANY:
        if (isnan(*(const double *)value))
            break; /* else as any double */
    /* fall through */
    case LS_MEMBER_DOUBLE: ls_json_put_double(w, row->key, *(const double *)value); break;
    case LS_MEMBER_BOOL: ls_json_put_bool(w, row->key, *(const bool *)value); break;
    case LS_MEMBER_TEXT_IF_ANY:
        if (!*(const char *const *)value)
            break; /* else as any text */
    /* fall through */
    case LS_MEMBER_TEXT: ls_json_put_string(w, row->key, *(const char *const *)value); break;
    case LS_MEMBER_FORM: row->put(w, row->key, r); break;
    }
}

void ls_record_write(ls_json_writer *w, const ls_record *r)
{
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", ls_record_names[r->type]);
    for (const ls_record_key *row = ls_record_keys; row->key; row++)
        if (row->in & 1u << r->type)
            put_member(w, r, row);
    ls_json_close(w);
}

/* ---- out of the run ------------------------------------------------------------------------- */

/* With the names of the devices that are at work. */
static ls_record with_devices(struct ls_trainer *t, ls_record_type type)
{
    ls_record r = {.type = type, .device = t->records.device};
    const ls_members *m = &t->members;
    for (int i = 0; i < m->devices; i++) {
        const int own = i - m->own; /* of this process's workers, where it is one */
        if (own < 0 || own >= t->workers || t->worker[own].presence == LS_LIVE)
            t->records.device[r.devices++] = m->device[i].name;
    }
    for (int i = 0; i < t->workers && m->devices == 0; i++)
        if (t->worker[i].presence == LS_LIVE)
            t->records.device[r.devices++] = t->worker[i].info.name;
    return r;
}

int ls_record_start(struct ls_trainer *t, ls_record_type type, ls_error *err)
{
    ls_record r = with_devices(t, type);
    r.of.start = (ls_start_values){
        .summary = t->summary,
        .data = ls_dataset_describe(t->data[LS_TRAIN]),
        .config = &t->config,
        .step = t->position.steps,
        .test_rows = ls_subset_rows(t, LS_TEST),
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

static void time_worker(ls_worker_times *out, int worker, int queued, const ls_report *r)
{
    *out = (ls_worker_times){
        worker,
        queued,
        {(float)r->times.gather, (float)r->times.forward, (float)r->times.backward,
         (float)r->comm.exposed, (float)r->comm.wait, (float)r->times.apply},
    };
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
        .loss = r->loss / r->rows,
        .lr = r->lr,
        .images_per_s = (float)images_per_s,
        .worker = t->records.times,
    };
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE && t->worker[i].status == LS_OK)
            time_worker(&t->records.times[v->workers++], i, ls_pool_busy(t->pool, i),
                        &t->worker[i].report);
    return ls_sinks_emit(&t->records.sinks, &record, err);
}

int ls_record_nonfinite(struct ls_trainer *t, int worker, int shard, ls_error *err)
{
    const uint64_t step = t->position.steps + 1;
    ls_record r = {.type = LS_RECORD_NONFINITE};
    if (t->config.skip_nonfinite && shard < 0 && t->members.cluster)
        ls_log(
            t->host, LS_LOG_WARNING,
            "step %llu: the loss of no shard of this host, but of another one's, is not finite; the "
            "step is skipped",
            (unsigned long long)step);
    else if (t->config.skip_nonfinite)
        ls_log(t->host, LS_LOG_WARNING,
               "step %llu: the loss of shard %d, on worker %d, is not finite; the step is skipped",
               (unsigned long long)step, shard, worker);
    r.of.nonfinite =
        (ls_nonfinite_values){step, worker, shard, t->config.skip_nonfinite ? "skip" : "stop"};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_fault(struct ls_trainer *t, const ls_fault *fault, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_FAULT, .of.fault = *fault};
    if (fault->worker >= 0)
        r.of.fault.device = t->worker[fault->worker].info.name;
    r.of.fault.devices_left = fault->worker >= 0 ? t->live : t->members.devices;
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_epoch(struct ls_trainer *t, ls_error *err)
{
    const ls_epoch_totals *totals = &t->position.totals;
    ls_record r = {.type = LS_RECORD_EPOCH, .epoch = t->position.epoch + 1};
    r.of.epoch = (ls_epoch_values){totals->seconds, totals->rows / totals->seconds,
                                   totals->loss / totals->rows,
                                   ls_accuracy(t, totals->correct, totals->rows)};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_eval(struct ls_trainer *t, double seconds, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EVAL, .epoch = t->position.epoch + 1};
    r.of.eval = (ls_eval_values){.test_loss = t->result.test_loss,
                                 .test_accuracy = t->result.test_accuracy,
                                 .seconds = seconds,
                                 .measured = t->measured,
                                 .best = t->position.best.epoch > 0 &&
                                         t->position.best.steps == t->position.steps};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_run_end(struct ls_trainer *t, int status, const char *error, ls_error *err)
{
    const bool failed = status && status != LS_EINTERRUPTED;
    ls_record r = with_devices(t, LS_RECORD_RUN_END);
    r.of.end = (ls_end_values){
        .status = failed   ? "failed"
                  : status ? "interrupted"
                           : "finished",
        .error = failed ? error : NULL,
        .result = t->result,
        .checkpoint = t->result.saved ? t->result.checkpoint : NULL,
        .best_checkpoint = ls_saver_best(t),
        .stopped_early = t->text.early[0] ? t->text.early : NULL,
        .weights_sha256 = t->result.weights_sha256[0] ? t->result.weights_sha256 : NULL,
        .synthetic = ls_dataset_describe(t->data[LS_TRAIN])->synthetic,
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}
