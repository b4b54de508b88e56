/* Records as text: one JSON object each, whose schema is train/README.md. */
#include "train/record.h"

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
