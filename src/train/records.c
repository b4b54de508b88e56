/* Records of the run, from where it stands into its sinks. */
#include "base/host.h"
#include "train/run.h"

/* With the names of the devices that are at work. */
static ls_record with_devices(struct ls_trainer *t, ls_record_type type)
{
    ls_record r = {.type = type, .device = t->record_device};
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE)
            t->record_device[r.devices++] = t->worker[i].info.name;
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
    return ls_sinks_emit(&t->sinks, &r, err);
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
    if (t->sinks.count == 0)
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
        .worker = t->record_times,
    };
    for (int i = 0; i < t->workers; i++)
        if (t->worker[i].presence == LS_LIVE && t->worker[i].status == LS_OK)
            time_worker(&t->record_times[v->workers++], i, ls_pool_busy(t->pool, i),
                        &t->reports[i]);
    return ls_sinks_emit(&t->sinks, &record, err);
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
    return ls_sinks_emit(&t->sinks, &r, err);
}

int ls_record_fault(struct ls_trainer *t, const ls_fault *fault, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_FAULT, .of.fault = *fault};
    r.of.fault.device = t->worker[fault->worker].info.name;
    r.of.fault.devices_left = t->live;
    return ls_sinks_emit(&t->sinks, &r, err);
}

int ls_record_epoch(struct ls_trainer *t, uint32_t epoch, const ls_epoch_totals *totals,
                    ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EPOCH, .epoch = epoch};
    r.of.epoch = (ls_epoch_values){totals->seconds, totals->rows / totals->seconds,
                                   totals->loss / totals->rows, totals->correct / totals->rows};
    return ls_sinks_emit(&t->sinks, &r, err);
}

int ls_record_eval(struct ls_trainer *t, uint32_t epoch, double seconds, ls_error *err)
{
    ls_record r = {.type = LS_RECORD_EVAL, .epoch = epoch};
    r.of.eval = (ls_eval_values){t->result.test_loss, t->result.test_accuracy, seconds};
    return ls_sinks_emit(&t->sinks, &r, err);
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
    return ls_sinks_emit(&t->sinks, &r, err);
}
