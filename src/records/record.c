/* Records as text: one JSON object each, whose schema is train/README.md. */
#include "records/record.h"

#include "base/host.h"

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

static const char *kind_of(const ls_fault *f)
{
    if (f->worker < 0)
        return "host";
    switch (f->error.status) {
    case LS_ESTALLED: return "stall";
    case LS_EDEVICE: return "device";
    case LS_ENOMEM: return "memory";
    default: return "timeout";
    }
}

static void put_kind(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_json_put_string(w, key, kind_of(&r->of.fault.fault));
}

static void put_action(ls_json_writer *w, const char *key, const ls_record *r)
{
    static const char *const actions[] = {"continue", "repeat", "stop"}; /* as in the enum */
    ls_json_put_string(w, key, actions[r->of.fault.action]);
}

static void put_error(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_json_put_string(w, key, r->of.fault.fault.error.text);
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

    {IN(FAULT), "worker", LS_MEMBER_INT, AT(of.fault.fault.worker)},
    {IN(FAULT), "device", LS_MEMBER_TEXT, AT(of.fault.device)},
    {IN(FAULT), "step", LS_MEMBER_UINT, AT(of.fault.fault.step)},
    {IN(FAULT), "kind", LS_MEMBER_FORM, .put = put_kind},
    {IN(FAULT), "detected_after_s", LS_MEMBER_DOUBLE, AT(of.fault.fault.silence_s)},
    {IN(FAULT), "action", LS_MEMBER_FORM, .put = put_action},
    {IN(FAULT), "devices_left", LS_MEMBER_INT, AT(of.fault.devices_left)},
    {IN(FAULT), "error", LS_MEMBER_FORM, .put = put_error},

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
