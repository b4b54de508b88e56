/* Metrics records: one JSON object each. Their schema is documented in train/README.md. */
#include "base/host.h"
#include "train/run.h"

#include <lockstep/version.h>
#include <time.h>

static ls_json_writer *begin(struct ls_trainer *t, const char *type)
{
    ls_json_writer *w = &t->sinks.writer;
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", type);
    return w;
}

static int end(struct ls_trainer *t, ls_error *err)
{
    ls_json_close(&t->sinks.writer);
    return ls_sinks_emit(&t->sinks, err);
}

static void put_time(ls_json_writer *w)
{
    char text[32];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ls_json_put_string(w, "time", text);
}

static void put_devices(ls_json_writer *w, const struct ls_trainer *t)
{
    ls_json_open_array(w, "devices");
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE)
            ls_json_put_string(w, NULL, t->worker[i].info.name);
    ls_json_close(w);
}

static void put_data(ls_json_writer *w, const struct ls_trainer *t)
{
    static const char *const payload[] = {"unknown", "published", "differs"};
    const ls_dataset_info *train = ls_dataset_describe(t->data[LS_TRAIN]);
    ls_json_open_object(w, "data");
    ls_json_put_string(w, "name", train->name);
    ls_json_put_bool(w, "synthetic", train->synthetic);
    ls_json_put_string(w, "source", train->source);
    ls_json_put_string(w, "payload", payload[train->payload]);
    ls_json_put_uint(w, "train_rows", train->rows);
    ls_json_put_uint(w, "test_rows", ls_subset_rows(t, LS_TEST));
    ls_json_close(w);
}

int ls_record_run_start(struct ls_trainer *t, ls_error *err)
{
    const ls_summary *s = &t->summary;
    ls_json_writer *w = begin(t, "run_start");
    put_time(w);
    ls_json_put_string(w, "lockstep", LS_VERSION);
    put_devices(w, t);
    ls_json_put_string(w, "device_model", s->device_model);
    ls_json_put_string(w, "instruction_set", s->isa);
    ls_json_put_string(w, "library", s->library);
    ls_json_put_int(w, "shards", s->shards);
    ls_json_put_int(w, "batch_size", s->batch_size);
    ls_json_put_int(w, "batch_per_device", s->batch_per_device);
    ls_json_put_uint(w, "parameters", s->parameters);
    ls_json_put_uint(w, "parameter_bytes", s->parameter_bytes);
    ls_json_put_uint(w, "device_bytes", s->device_bytes);
    put_data(w, t);
    ls_config_write(w, "config", &t->config);
    return end(t, err);
}

int ls_record_resume(struct ls_trainer *t, ls_error *err)
{
    const ls_summary *s = &t->summary;
    ls_json_writer *w = begin(t, "resume");
    put_time(w);
    ls_json_put_string(w, "lockstep", LS_VERSION);
    ls_json_put_uint(w, "step", t->position.steps);
    ls_json_put_int(w, "epochs", s->epochs);
    put_devices(w, t);
    ls_json_put_string(w, "device_model", s->device_model);
    ls_json_put_string(w, "instruction_set", s->isa);
    ls_json_put_string(w, "library", s->library);
    ls_json_put_int(w, "batch_per_device", s->batch_per_device);
    ls_json_put_uint(w, "device_bytes", s->device_bytes);
    return end(t, err);
}

/* `queued`: work items that it has, the one it is at included. */
static void put_worker(ls_json_writer *w, int worker, int queued, const ls_report *r)
{
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "worker", worker);
    ls_json_put_int(w, "queued", queued);
    ls_json_put_float(w, "gather_s", (float)r->times.gather);
    ls_json_put_float(w, "forward_s", (float)r->times.forward);
    ls_json_put_float(w, "backward_s", (float)r->times.backward);
    ls_json_put_float(w, "comm_exposed_s", (float)r->comm.exposed);
    ls_json_put_float(w, "wait_s", (float)r->comm.wait);
    ls_json_put_float(w, "apply_s", (float)r->times.apply);
    ls_json_close(w);
}

int ls_record_step(struct ls_trainer *t, uint32_t epoch, double images_per_s, const ls_report *r,
                   ls_error *err)
{
    if (t->sinks.count == 0)
        return LS_OK;
    ls_json_writer *w = begin(t, "step");
    ls_json_put_uint(w, "step", r->step + 1);
    ls_json_put_uint(w, "epoch", epoch);
    ls_json_put_uint(w, "rows", (uint64_t)r->rows);
    ls_json_put_float(w, "loss", r->loss / r->rows);
    ls_json_put_uint(w, "correct", (uint64_t)r->correct);
    ls_json_put_float(w, "lr", r->lr);
    ls_json_put_float(w, "images_per_s", (float)images_per_s);
    ls_json_open_array(w, "workers");
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE && t->worker[i].status == LS_OK)
            put_worker(w, i, ls_pool_busy(t->pool, i), &t->reports[i]);
    ls_json_close(w);
    return end(t, err);
}

int ls_record_nonfinite(struct ls_trainer *t, uint64_t step, int worker, int shard, ls_error *err)
{
    if (t->config.skip_nonfinite)
        ls_log(t->host, LS_LOG_WARNING,
               "step %llu: the loss of shard %d, on worker %d, is not finite; the step is skipped",
               (unsigned long long)step, shard, worker);
    ls_json_writer *w = begin(t, "nonfinite");
    ls_json_put_uint(w, "step", step);
    ls_json_put_int(w, "worker", worker);
    ls_json_put_int(w, "shard", shard);
    ls_json_put_string(w, "action", t->config.skip_nonfinite ? "skip" : "stop");
    return end(t, err);
}

int ls_record_fault(struct ls_trainer *t, const ls_fault *fault, ls_error *err)
{
    ls_json_writer *w = begin(t, "fault");
    ls_json_put_int(w, "worker", fault->worker);
    ls_json_put_string(w, "device", t->worker[fault->worker].info.name);
    ls_json_put_uint(w, "step", fault->step);
    ls_json_put_string(w, "kind", fault->kind);
    ls_json_put_double(w, "detected_after_s", fault->detected_after_s);
    ls_json_put_string(w, "action", fault->action);
    ls_json_put_int(w, "devices_left", t->live);
    ls_json_put_string(w, "error", fault->text);
    return end(t, err);
}

int ls_record_epoch(struct ls_trainer *t, uint32_t epoch, const ls_epoch_totals *totals,
                    ls_error *err)
{
    ls_json_writer *w = begin(t, "epoch");
    ls_json_put_uint(w, "epoch", epoch);
    ls_json_put_double(w, "seconds", totals->seconds);
    ls_json_put_double(w, "images_per_s", totals->rows / totals->seconds);
    ls_json_put_double(w, "train_loss", totals->loss / totals->rows);
    ls_json_put_double(w, "train_accuracy", totals->correct / totals->rows);
    return end(t, err);
}

int ls_record_eval(struct ls_trainer *t, uint32_t epoch, double seconds, ls_error *err)
{
    ls_json_writer *w = begin(t, "eval");
    ls_json_put_uint(w, "epoch", epoch);
    ls_json_put_double(w, "test_loss", t->result.test_loss);
    ls_json_put_double(w, "test_accuracy", t->result.test_accuracy);
    ls_json_put_double(w, "seconds", seconds);
    return end(t, err);
}

int ls_record_run_end(struct ls_trainer *t, int status, const char *error, ls_error *err)
{
    const ls_result *r = &t->result;
    ls_json_writer *w = begin(t, "run_end");
    put_time(w);
    ls_json_put_string(w, "status",
                       status == LS_OK             ? "finished"
                       : status == LS_EINTERRUPTED ? "interrupted"
                                                   : "failed");
    if (status && status != LS_EINTERRUPTED)
        ls_json_put_string(w, "error", error);
    ls_json_put_int(w, "epochs", r->epochs);
    ls_json_put_uint(w, "steps", r->steps);
    ls_json_put_double(w, "test_accuracy", r->test_accuracy);
    ls_json_put_double(w, "seconds_per_epoch", r->seconds_per_epoch);
    put_devices(w, t);
    ls_json_put_bool(w, "synthetic", ls_dataset_describe(t->data[LS_TRAIN])->synthetic);
    ls_json_put_string(w, "checkpoint", r->saved ? r->checkpoint : NULL);
    ls_json_put_string(w, "weights_sha256", r->weights_sha256[0] ? r->weights_sha256 : NULL);
    return end(t, err);
}
