/* SPDX-License-Identifier: MIT */
/* Renders records (the events of a run, record.h), each as one JSON object. train/README.md lists
 * the keys. */
#include "records/record.h"

#include "base/host.h"

#include <lockstep/version.h>
#include <math.h>
#include <time.h>

const char *const ls_record_names[LS_RECORD_TYPES] = {
    "run_start", "resume",    "step",    "epoch",          "eval",
    "fault",     "nonfinite", "arrival", "failed_arrival", "run_end"};
/* Index of each phase in ls_worker_times.seconds, and its key. */
#define PHASES(X)                                                                                  \
    X(0, "gather_s"), X(1, "forward_s"), X(2, "backward_s"), X(3, "comm_exposed_s"),               \
        X(4, "wait_s"), X(5, "apply_s")
#define KEY_OF_PHASE(phase, key) [phase] = (key)
const char *const ls_phase_keys[LS_PHASES] = {PHASES(KEY_OF_PHASE)};
const char *const ls_phase_names[LS_PHASES] = {"gather",     "forward", "backward",
                                               "all-reduce", "wait",    "apply"};

static void put_keys(ls_json_writer *w, int type, const void *values, const ls_record *r);

/* ---- values that are not scalars ------------------------------------------------------------ */

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

static void put_class_names(ls_json_writer *w, const char *key, const ls_record *r)
{
    const ls_data_values *data = &r->of.start.data;
    if (!data->class_name)
        return;
    ls_json_open_array(w, key);
    for (int k = 0; k < data->classes; k++)
        ls_json_put_string(w, NULL, data->class_name[k]);
    ls_json_close(w);
}

static void put_payload(ls_json_writer *w, const char *key, const ls_record *r)
{
    /* in the order of the enum */
    static const char *const payload[] = {"unknown", "published", "differs"};
    ls_json_put_string(w, key, payload[r->of.start.data.payload]);
}

static void put_data(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_json_open_object(w, key);
    put_keys(w, LS_PART_DATA, r, r);
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
        ls_json_open_object(w, NULL);
        put_keys(w, LS_PART_WORKER, &r->of.step.worker[i], r);
        ls_json_close(w);
    }
    ls_json_close(w);
}

static void put_ended(ls_json_writer *w, const char *key, const ls_record *r)
{
    const ls_former_end *ended = r->of.start.ended;
    if (!ended)
        return;
    ls_json_open_object(w, key);
    ls_json_put_string(w, "status", ended->status);
    ls_json_put_string(w, "time", ended->time);
    if (ended->error[0])
        ls_json_put_string(w, "error", ended->error);
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
    /* in the order of the enum */
    static const char *const actions[] = {"continue", "repeat", "stop"};
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

static void put_each(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_measured_write_each(w, key, &r->of.eval.measured);
}

static void put_unweighted(ls_json_writer *w, const char *key, const ls_record *r)
{
    ls_measured_write_unweighted(w, key, &r->of.eval.measured, 0);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define AT(member) .at = offsetof(ls_record, member)
#define DATA(member) AT(of.start.data.member)
#define TIMES(member) .at = offsetof(ls_worker_times, member)
#define SUMMARY(member) AT(of.start.summary.member)
#define MEASURED(metric) AT(of.eval.measured.value[LS_METRIC_##metric])
#define IN(type) (1u << LS_RECORD_##type)
#define PART(part) (1u << LS_PART_##part)
#define VARIES .varies = true
#define ROW_OF_PHASE(phase, key)                                                                   \
    {                                                                                              \
        PART(WORKER), key, LS_MEMBER_FLOAT, TIMES(seconds[phase])                                  \
    }
#define LIVES (IN(RUN_START) | IN(RESUME)) /* types of records that begin or continue a run */

const ls_record_key ls_record_keys[] = {
    {LIVES | IN(RUN_END), "time", LS_FORM_TEXT, .put = put_time, VARIES},
    {LIVES, "lockstep", LS_FORM_TEXT, .put = put_version},
    {IN(RESUME), "step", LS_MEMBER_UINT, AT(of.start.step)},
    {IN(RESUME), "epochs", LS_MEMBER_INT, SUMMARY(epochs)},
    {IN(RESUME), "missing_records", LS_MEMBER_INT_IF_ANY, AT(of.start.missing)},
    {IN(RESUME), "ended", LS_FORM_OBJECT_IF_ANY, .put = put_ended, VARIES},
    {IN(RESUME), "doubtful", LS_MEMBER_BOOL, AT(of.start.doubtful), VARIES},
    {IN(ARRIVAL), "host", LS_MEMBER_TEXT, AT(of.arrival.host), VARIES},
    {IN(ARRIVAL), "step", LS_MEMBER_UINT, AT(of.arrival.step)},
    {IN(FAILED_ARRIVAL), "host", LS_MEMBER_TEXT, AT(of.failed.host), VARIES},
    {IN(FAILED_ARRIVAL), "step", LS_MEMBER_UINT, AT(of.failed.step)},
    {IN(FAILED_ARRIVAL), "error", LS_MEMBER_TEXT, AT(of.failed.error), VARIES},
    {LIVES | IN(ARRIVAL), "devices", LS_FORM_ARRAY, .put = put_devices, VARIES},
    {LIVES, "device_model", LS_MEMBER_TEXT, SUMMARY(device_model), VARIES},
    {LIVES, "instruction_set", LS_MEMBER_TEXT, SUMMARY(isa), VARIES},
    {LIVES, "library", LS_MEMBER_TEXT, SUMMARY(library), VARIES},
    {IN(RUN_START), "shards", LS_MEMBER_INT, SUMMARY(shards)},
    {IN(RUN_START), "batch_size", LS_MEMBER_INT, SUMMARY(batch_size)},
    {LIVES, "batch_per_device", LS_MEMBER_INT, SUMMARY(batch_per_device), VARIES},
    {IN(RUN_START), "parameters", LS_MEMBER_SIZE, SUMMARY(parameters)},
    {IN(RUN_START), "parameter_bytes", LS_MEMBER_SIZE, SUMMARY(parameter_bytes)},
    {LIVES, "device_bytes", LS_MEMBER_SIZE, SUMMARY(device_bytes), VARIES},
    {IN(RUN_START), "data", LS_FORM_OBJECT, .put = put_data},
    {IN(RUN_START), "config", LS_FORM_OBJECT, .put = put_config, VARIES},

    {PART(DATA), "name", LS_MEMBER_TEXT, DATA(name)},
    {PART(DATA), "synthetic", LS_MEMBER_BOOL, DATA(synthetic)},
    {PART(DATA), "source", LS_MEMBER_TEXT, DATA(source)},
    {PART(DATA), "payload", LS_FORM_TEXT, .put = put_payload},
    {PART(DATA), "images", LS_MEMBER_BOOL, DATA(images)},
    {PART(DATA), "train_rows", LS_MEMBER_UINT, DATA(train_rows)},
    {PART(DATA), "test_rows", LS_MEMBER_UINT, DATA(test_rows)},
    {PART(DATA), "test_rows_left_out", LS_MEMBER_INT_IF_ANY, DATA(test_rows_left_out)},
    {PART(DATA), "targets", LS_MEMBER_INT_IF_ANY, DATA(targets)},
    {PART(DATA), "class_names", LS_FORM_ARRAY_IF_ANY, .put = put_class_names},
    {PART(DATA), "sha256", LS_MEMBER_TEXT_IF_ANY, DATA(sha256)},
    {PART(DATA), "labels_sha256", LS_MEMBER_TEXT_IF_ANY, DATA(labels_sha256)},
    {PART(DATA), "test_sha256", LS_MEMBER_TEXT_IF_ANY, DATA(test_sha256)},

    {IN(STEP), "step", LS_MEMBER_UINT, AT(of.step.step)},
    {IN(STEP) | IN(EPOCH) | IN(EVAL), "epoch", LS_MEMBER_UINT, AT(epoch)},
    {IN(STEP), "rows", LS_MEMBER_UINT, AT(of.step.rows)},
    {IN(STEP), "loss", LS_MEMBER_FLOAT_OR_NULL, AT(of.step.loss)},
    {IN(STEP), "correct", LS_MEMBER_UINT, AT(of.step.correct)},
    {IN(STEP), "lr", LS_MEMBER_FLOAT, AT(of.step.lr)},
    {IN(STEP), "grad_norm", LS_MEMBER_FLOAT_IF_ANY, AT(of.step.gradient_norm)},
    {IN(STEP), "images_per_s", LS_MEMBER_FLOAT, AT(of.step.images_per_s), VARIES},
    {IN(STEP), "workers", LS_FORM_ARRAY, .put = put_workers, VARIES},

    {PART(WORKER), "worker", LS_MEMBER_INT, TIMES(worker)},
    {PART(WORKER), "queued", LS_MEMBER_INT, TIMES(queued)},
    PHASES(ROW_OF_PHASE),

    {IN(EPOCH), "seconds", LS_MEMBER_DOUBLE, AT(of.epoch.seconds), VARIES},
    {IN(EPOCH), "images_per_s", LS_MEMBER_DOUBLE, AT(of.epoch.images_per_s), VARIES},
    {IN(EPOCH), "train_loss", LS_MEMBER_DOUBLE, AT(of.epoch.train_loss)},
    {IN(EPOCH), "train_accuracy", LS_MEMBER_DOUBLE_OR_NULL, AT(of.epoch.train_accuracy)},

    {IN(EVAL), "test_loss", LS_MEMBER_DOUBLE_OR_NULL, AT(of.eval.test_loss)},
    {IN(EVAL), "test_accuracy", LS_MEMBER_DOUBLE_OR_NULL, AT(of.eval.test_accuracy)},
    {IN(EVAL), "best", LS_MEMBER_BOOL, AT(of.eval.best)},
    {IN(EVAL), "test_top5", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(TOP5)},
    {IN(EVAL), "test_mae", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(MAE)},
    {IN(EVAL), "test_r2", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(R2)},
    {IN(EVAL), "test_auc", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(AUC)},
    {IN(EVAL), "test_huber", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(HUBER)},
    {IN(EVAL), "test_pinball", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(PINBALL)},
    {IN(EVAL), "test_coverage", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(COVERAGE)},
    {IN(EVAL), "test_deviance", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(DEVIANCE)},
    {IN(EVAL), "test_average_precision", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(AVERAGE_PRECISION)},
    {IN(EVAL), "test_f1", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(F1)},
    {IN(EVAL), "test_r2_mean", LS_MEMBER_DOUBLE_IF_ANY, MEASURED(R2_MEAN)},
    {IN(EVAL), "test_r2_each", LS_FORM_ARRAY_IF_ANY, .put = put_each},
    {IN(EVAL), "precision", LS_FORM_ARRAY_IF_ANY, .put = put_classes},
    {IN(EVAL), "recall", LS_FORM_ARRAY_IF_ANY, .put = put_classes},
    {IN(EVAL), "confusion", LS_FORM_ARRAY_IF_ANY, .put = put_classes},
    {IN(EVAL), "unweighted", LS_FORM_OBJECT_IF_ANY, .put = put_unweighted},
    {IN(EVAL), "seconds", LS_MEMBER_DOUBLE, AT(of.eval.seconds), VARIES},

    {IN(FAULT), "worker", LS_MEMBER_INT, AT(of.fault.fault.worker), VARIES},
    {IN(FAULT), "device", LS_MEMBER_TEXT, AT(of.fault.device), VARIES},
    {IN(FAULT), "step", LS_MEMBER_UINT, AT(of.fault.fault.step)},
    {IN(FAULT), "kind", LS_FORM_TEXT, .put = put_kind},
    {IN(FAULT), "detected_after_s", LS_MEMBER_DOUBLE, AT(of.fault.fault.silence_s), VARIES},
    {IN(FAULT), "action", LS_FORM_TEXT, .put = put_action},
    {IN(FAULT), "devices_left", LS_MEMBER_INT, AT(of.fault.devices_left), VARIES},
    {IN(FAULT), "error", LS_FORM_TEXT, .put = put_error, VARIES},

    {IN(NONFINITE), "step", LS_MEMBER_UINT, AT(of.nonfinite.step)},
    {IN(NONFINITE), "worker", LS_MEMBER_INT, AT(of.nonfinite.worker), VARIES},
    {IN(NONFINITE), "shard", LS_MEMBER_INT, AT(of.nonfinite.shard), VARIES},
    {IN(NONFINITE), "action", LS_MEMBER_TEXT, AT(of.nonfinite.action)},

    {IN(RUN_END), "status", LS_MEMBER_TEXT, AT(of.end.status)},
    {IN(RUN_END), "error", LS_MEMBER_TEXT_IF_ANY, AT(of.end.error), VARIES},
    {IN(RUN_END), "epochs", LS_MEMBER_INT, AT(of.end.result.epochs)},
    {IN(RUN_END), "steps", LS_MEMBER_UINT, AT(of.end.result.steps)},
    {IN(RUN_END), "skipped_steps", LS_MEMBER_INT_IF_ANY, AT(of.end.skipped)},
    {IN(RUN_END), "test_accuracy", LS_MEMBER_DOUBLE_OR_NULL, AT(of.end.test_accuracy)},
    {IN(RUN_END), "seconds_per_epoch", LS_MEMBER_DOUBLE_OR_NULL,
     AT(of.end.result.seconds_per_epoch), VARIES},
    {IN(RUN_END), "devices", LS_FORM_ARRAY, .put = put_devices, VARIES},
    {IN(RUN_END), "synthetic", LS_MEMBER_BOOL, AT(of.end.synthetic)},
    {IN(RUN_END), "checkpoint", LS_MEMBER_TEXT_OR_NULL, AT(of.end.checkpoint), VARIES},
    {IN(RUN_END), "best_checkpoint", LS_MEMBER_TEXT_IF_ANY, AT(of.end.best_checkpoint), VARIES},
    {IN(RUN_END), "stopped_early", LS_MEMBER_TEXT_IF_ANY, AT(of.end.stopped_early)},
    {IN(RUN_END), "weights_epoch", LS_MEMBER_INT_IF_ANY, AT(of.end.weights_epoch)},
    {IN(RUN_END), "weights_sha256", LS_MEMBER_TEXT_OR_NULL, AT(of.end.weights_sha256)},
    {.key = NULL},
};

/* Writes a key and its value. `values`: the struct in which row->at is the offset of the value. */
static void put_member(ls_json_writer *w, const ls_record_key *row, const void *values,
                       const ls_record *r)
{
    const void *value = (const char *)values + row->at;
    switch (row->kind) {
    case LS_MEMBER_INT_IF_ANY:
        if (*(const int *)value == 0)
            break; /* an int that is not 0 is written like LS_MEMBER_INT */
    /* fall through */
    case LS_MEMBER_INT: ls_json_put_int(w, row->key, *(const int *)value); break;
    case LS_MEMBER_UINT: ls_json_put_uint(w, row->key, *(const uint64_t *)value); break;
    case LS_MEMBER_SIZE: ls_json_put_uint(w, row->key, *(const size_t *)value); break;
    case LS_MEMBER_FLOAT_IF_ANY:
        if (!isfinite(*(const float *)value))
            break; /* a finite float is written like LS_MEMBER_FLOAT */
    /* fall through */
    case LS_MEMBER_FLOAT:
    case LS_MEMBER_FLOAT_OR_NULL: ls_json_put_float(w, row->key, *(const float *)value); break;
    case LS_MEMBER_DOUBLE_IF_ANY:
        if (isnan(*(const double *)value))
            break; /* a double that is not NaN is written like LS_MEMBER_DOUBLE */
    /* fall through */
    case LS_MEMBER_DOUBLE:
    case LS_MEMBER_DOUBLE_OR_NULL: ls_json_put_double(w, row->key, *(const double *)value); break;
    case LS_MEMBER_BOOL: ls_json_put_bool(w, row->key, *(const bool *)value); break;
    case LS_MEMBER_TEXT_IF_ANY:
        if (!*(const char *const *)value)
            break; /* a text that is not NULL is written like LS_MEMBER_TEXT */
    /* fall through */
    case LS_MEMBER_TEXT:
    case LS_MEMBER_TEXT_OR_NULL:
        ls_json_put_string(w, row->key, *(const char *const *)value);
        break;
    case LS_FORM_TEXT:
    case LS_FORM_ARRAY:
    case LS_FORM_ARRAY_IF_ANY:
    case LS_FORM_OBJECT:
    case LS_FORM_OBJECT_IF_ANY: row->put(w, row->key, r); break;
    }
}

/* Writes all keys of a type of records, or of a part (LS_PART_…), with their values. */
static void put_keys(ls_json_writer *w, int type, const void *values, const ls_record *r)
{
    for (const ls_record_key *row = ls_record_keys; row->key; row++)
        if (row->in & 1u << type)
            put_member(w, row, values, r);
}

void ls_record_write(ls_json_writer *w, const ls_record *r)
{
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", ls_record_names[r->type]);
    put_keys(w, (int)r->type, r, r);
    ls_json_close(w);
}
