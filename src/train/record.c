/* Records: as text, one JSON object each, whose schema is train/README.md; and out of the run, from where it
 * stands into its sinks. */
#include "train/record.h"

#include "base/host.h"
#include "train/trainer.h"

#include <lockstep/version.h>
#include <time.h>

const char *const ls_record_names[LS_RECORD_TYPES] = {
    "run_start", "resume", "step", "epoch", "eval", "fault", "nonfinite", "run_end"};
const char *const ls_phase_keys[LS_PHASES] = {"gather_s",       "forward_s", "backward_s",
                                              "comm_exposed_s", "wait_s",    "apply_s"};
const char *const ls_phase_names[LS_PHASES] = {"gather",     "forward", "backward",
                                               "all-reduce", "wait",    "apply"};

static void put_time(ls_json_writer *w)
{
    char text[32];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ls_json_put_string(w, "time", text);
}

static void put_devices(ls_json_writer *w, const ls_record *r)
{
    ls_json_open_array(w, "devices");
    for (int i = 0; i < r->devices; i++)
        ls_json_put_string(w, NULL, r->device[i]);
    ls_json_close(w);
}

static void put_machine(ls_json_writer *w, const ls_record *r)
{
    const ls_summary *s = r->of.start.summary;
    put_devices(w, r);
    ls_json_put_string(w, "device_model", s->device_model);
    ls_json_put_string(w, "instruction_set", s->isa);
    ls_json_put_string(w, "library", s->library);
}

static void put_data(ls_json_writer *w, const ls_start_values *v)
{
    static const char *const payload[] = {"unknown", "published", "differs"};
    ls_json_open_object(w, "data");
    ls_json_put_string(w, "name", v->data->name);
    ls_json_put_bool(w, "synthetic", v->data->synthetic);
    ls_json_put_string(w, "source", v->data->source);
    ls_json_put_string(w, "payload", payload[v->data->payload]);
    ls_json_put_uint(w, "train_rows", v->data->rows);
    ls_json_put_uint(w, "test_rows", v->test_rows);
    ls_json_close(w);
}

static void put_run_start(ls_json_writer *w, const ls_record *r)
{
    const ls_summary *s = r->of.start.summary;
    put_time(w);
    ls_json_put_string(w, "lockstep", LS_VERSION);
    put_machine(w, r);
    ls_json_put_int(w, "shards", s->shards);
    ls_json_put_int(w, "batch_size", s->batch_size);
    ls_json_put_int(w, "batch_per_device", s->batch_per_device);
    ls_json_put_uint(w, "parameters", s->parameters);
    ls_json_put_uint(w, "parameter_bytes", s->parameter_bytes);
    ls_json_put_uint(w, "device_bytes", s->device_bytes);
    put_data(w, &r->of.start);
    ls_config_write(w, "config", r->of.start.config);
}

static void put_resume(ls_json_writer *w, const ls_record *r)
{
    const ls_summary *s = r->of.start.summary;
    put_time(w);
    ls_json_put_string(w, "lockstep", LS_VERSION);
    ls_json_put_uint(w, "step", r->of.start.step);
    ls_json_put_int(w, "epochs", s->epochs);
    put_machine(w, r);
    ls_json_put_int(w, "batch_per_device", s->batch_per_device);
    ls_json_put_uint(w, "device_bytes", s->device_bytes);
}

static void put_worker(ls_json_writer *w, const ls_worker_times *t)
{
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "worker", t->worker);
    ls_json_put_int(w, "queued", t->queued);
    for (int p = 0; p < LS_PHASES; p++)
        ls_json_put_float(w, ls_phase_keys[p], t->seconds[p]);
    ls_json_close(w);
}

static void put_step(ls_json_writer *w, const ls_record *r)
{
    const ls_step_values *v = &r->of.step;
    ls_json_put_uint(w, "step", v->step);
    ls_json_put_uint(w, "epoch", r->epoch);
    ls_json_put_uint(w, "rows", v->rows);
    ls_json_put_float(w, "loss", v->loss);
    ls_json_put_uint(w, "correct", v->correct);
    ls_json_put_float(w, "lr", v->lr);
    ls_json_put_float(w, "images_per_s", v->images_per_s);
    ls_json_open_array(w, "workers");
    for (int i = 0; i < v->workers; i++)
        put_worker(w, &v->worker[i]);
    ls_json_close(w);
}

static void put_epoch(ls_json_writer *w, const ls_record *r)
{
    const ls_epoch_values *v = &r->of.epoch;
    ls_json_put_uint(w, "epoch", r->epoch);
    ls_json_put_double(w, "seconds", v->seconds);
    ls_json_put_double(w, "images_per_s", v->images_per_s);
    ls_json_put_double(w, "train_loss", v->train_loss);
    ls_json_put_double(w, "train_accuracy", v->train_accuracy);
}

static void put_eval(ls_json_writer *w, const ls_record *r)
{
    const ls_eval_values *v = &r->of.eval;
    ls_json_put_uint(w, "epoch", r->epoch);
    ls_json_put_double(w, "test_loss", v->test_loss);
    ls_json_put_double(w, "test_accuracy", v->test_accuracy);
    ls_json_put_double(w, "seconds", v->seconds);
}

static void put_fault(ls_json_writer *w, const ls_record *r)
{
    const ls_fault *v = &r->of.fault;
    ls_json_put_int(w, "worker", v->worker);
    ls_json_put_string(w, "device", v->device);
    ls_json_put_uint(w, "step", v->step);
    ls_json_put_string(w, "kind", v->kind);
    ls_json_put_double(w, "detected_after_s", v->detected_after_s);
    ls_json_put_string(w, "action", v->action);
    ls_json_put_int(w, "devices_left", v->devices_left);
    ls_json_put_string(w, "error", v->text);
}

static void put_nonfinite(ls_json_writer *w, const ls_record *r)
{
    const ls_nonfinite_values *v = &r->of.nonfinite;
    ls_json_put_uint(w, "step", v->step);
    ls_json_put_int(w, "worker", v->worker);
    ls_json_put_int(w, "shard", v->shard);
    ls_json_put_string(w, "action", v->action);
}

static void put_run_end(ls_json_writer *w, const ls_record *r)
{
    const ls_end_values *v = &r->of.end;
    const ls_result *result = v->result;
    put_time(w);
    ls_json_put_string(w, "status", v->status);
    if (v->error)
        ls_json_put_string(w, "error", v->error);
    ls_json_put_int(w, "epochs", result->epochs);
    ls_json_put_uint(w, "steps", result->steps);
    ls_json_put_double(w, "test_accuracy", result->test_accuracy);
    ls_json_put_double(w, "seconds_per_epoch", result->seconds_per_epoch);
    put_devices(w, r);
    ls_json_put_bool(w, "synthetic", v->synthetic);
    ls_json_put_string(w, "checkpoint", result->saved ? result->checkpoint : NULL);
    ls_json_put_string(w, "weights_sha256",
                       result->weights_sha256[0] ? result->weights_sha256 : NULL);
}

void ls_record_write(ls_json_writer *w, const ls_record *r)
{
    static void (*const put[LS_RECORD_TYPES])(ls_json_writer *, const ls_record *) = {
        put_run_start, put_resume, put_step,      put_epoch,
        put_eval,      put_fault,  put_nonfinite, put_run_end};
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", ls_record_names[r->type]);
    put[r->type](w, r);
    ls_json_close(w);
}

/* ---- out of the run ------------------------------------------------------------------------- */

/* With the names of the devices that are at work. */
static ls_record with_devices(struct ls_trainer *t, ls_record_type type)
{
    ls_record r = {.type = type, .device = t->records.device};
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE)
            t->records.device[r.devices++] = t->worker[i].info.name;
    return r;
}

static int emit_start(struct ls_trainer *t, ls_record_type type, ls_error *err)
{
    ls_record r = with_devices(t, type);
    r.of.start = (ls_start_values){
        .summary = &t->summary,
        .data = ls_dataset_describe(t->data[LS_TRAIN]),
        .config = &t->config,
        .step = t->position.steps,
        .test_rows = ls_subset_rows(t, LS_TEST),
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_run_start(struct ls_trainer *t, ls_error *err)
{
    return emit_start(t, LS_RECORD_RUN_START, err);
}

int ls_record_resume(struct ls_trainer *t, ls_error *err)
{
    return emit_start(t, LS_RECORD_RESUME, err);
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

int ls_record_step(struct ls_trainer *t, uint32_t epoch, double images_per_s, const ls_report *r,
                   ls_error *err)
{
    if (t->records.sinks.count == 0)
        return LS_OK;
    ls_record record = {.type = LS_RECORD_STEP, .epoch = epoch};
    ls_step_values *v = &record.of.step;
    *v = (ls_step_values){
        .step = r->step + 1,
        .rows = (uint64_t)r->rows,
        .correct = (uint64_t)r->correct,
        .loss = r->loss / r->rows,
        .lr = r->lr,
        .images_per_s = (float)images_per_s,
        .worker = t->records.times,
    };
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE && t->worker[i].status == LS_OK)
            time_worker(&t->records.times[v->workers++], i, ls_pool_busy(t->pool, i),
                        &t->reports[i]);
    return ls_sinks_emit(&t->records.sinks, &record, err);
}

int ls_record_nonfinite(struct ls_trainer *t, uint64_t step, int worker, int shard, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_NONFINITE};
    if (t->config.skip_nonfinite)
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
    r.of.fault.device = t->worker[fault->worker].info.name;
    r.of.fault.devices_left = t->live;
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_epoch(struct ls_trainer *t, uint32_t epoch, const ls_epoch_totals *totals,
                    ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EPOCH, .epoch = epoch};
    r.of.epoch = (ls_epoch_values){totals->seconds, totals->rows / totals->seconds,
                                   totals->loss / totals->rows, totals->correct / totals->rows};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_eval(struct ls_trainer *t, uint32_t epoch, double seconds, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EVAL, .epoch = epoch};
    r.of.eval = (ls_eval_values){t->result.test_loss, t->result.test_accuracy, seconds};
    return ls_sinks_emit(&t->records.sinks, &r, err);
}

int ls_record_run_end(struct ls_trainer *t, int status, const char *error, ls_error *err)
{
    const int failed = status && status != LS_EINTERRUPTED;
    ls_record r = with_devices(t, LS_RECORD_RUN_END);
    r.of.end = (ls_end_values){
        .status = failed   ? "failed"
                  : status ? "interrupted"
                           : "finished",
        .error = failed ? error : NULL,
        .result = &t->result,
        .synthetic = ls_dataset_describe(t->data[LS_TRAIN])->synthetic,
    };
    return ls_sinks_emit(&t->records.sinks, &r, err);
}
