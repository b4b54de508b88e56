/* SPDX-License-Identifier: MIT */
/* Opening a run: creates the parts of the run. Each part depends only on parts that are created
 * before it.
 *
 * The array `stages` (at the end of this file) lists the functions that create the parts, in order.
 * After a failure the remaining stages are skipped, and closing the trainer frees the parts that
 * exist. In a run of several members, all go through the same stages, and in some stages they
 * exchange data. A member that fails therefore leaves the cluster, which tells the others the
 * reason. */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "config/card.h"
#include "data/own_rows.h"
#include "device/registry.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "onnx/import.h"
#include "train/chaining.h"
#include "train/coordinator.h"
#include "train/learnt_scales.h"
#include "train/release.h"
#include "train/run_files.h"
#include "train/run_records.h"
#include "train/saving.h"
#include "train/taken_over.h"

#include <lockstep/split.h>
#include <lockstep/sys/trainer.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- options -------------------------------------------------------------------------------- */

/* Copies what a test or a program lends to the library. Zeroes *out if there is nothing. */
static int read_sys(ls_trainer_sys *out, const ls_trainer_options *o, ls_error *err)
{
    *out = (ls_trainer_sys){.size = sizeof *out};
    return o->sys ? ls_sized_take(out, sizeof *out, o->sys, "ls_trainer_sys", err) : LS_OK;
}

static int read_inject(ls_injections *out, const ls_trainer_options *o, ls_error *err)
{
    ls_trainer_sys sys;
    int status = read_sys(&sys, o, err);
    if (status == LS_OK)
        status = ls_config_check_texts(sys.inject, sys.inject_count, "sys->inject", err);
    for (int i = 0; status == LS_OK && i < sys.inject_count; i++)
        status = ls_inject_parse(out, sys.inject[i], err);
    return status;
}

/* Fails with the failure that the program reports, if it reports one. */
static int take_sys(ls_trainer *t, ls_error *err)
{
    ls_trainer_sys sys;
    int status = read_sys(&sys, &t->options, err);
    t->clock = sys.clock;
    t->clock_user = sys.clock_user;
    return status || !sys.failed ? status : ls_fail(err, LS_EABORTED, "%s", sys.failed);
}

/* Copies the caller's data sources. (If the caller was compiled with another version of the
 * headers, its structs can have another size.) */
static int take_sources(ls_trainer *t, ls_error *err)
{
    const int count = t->options.source_count;
    int status = LS_OK;
    if (count < 1)
        return LS_OK;
    t->source = ls_alloc_array(t->host, (size_t)count, sizeof *t->source);
    t->sources = ls_alloc_array(t->host, (size_t)count, sizeof *t->sources);
    if (!t->source || !t->sources)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d data sources", count);
    for (int i = 0; status == LS_OK && i < count; i++) {
        t->sources[i] = &t->source[i];
        status = ls_sized_take(&t->source[i], sizeof t->source[i], t->options.sources[i],
                               "ls_data_source", err);
        if (status == LS_OK && !t->source[i].name)
            status = ls_fail(err, LS_EINVAL, "ls_trainer_open: source %d needs a name", i);
        if (status == LS_OK) {
            t->source[i].name = ls_strdup(t->host, t->source[i].name);
            if (!t->source[i].name)
                status = ls_fail(err, LS_ENOMEM, "out of memory for a name");
        }
    }
    t->options.sources = t->sources;
    return status;
}

static int check_options(ls_trainer *t, ls_error *err)
{
    const ls_trainer_options *o = &t->options;
    int status = ls_config_check_options(o, err);
    if (status == LS_OK && o->cluster)
        status =
            ls_sized_take(&t->cluster, sizeof t->cluster, o->cluster, "ls_trainer_cluster", err);
    if (status == LS_OK && o->pool)
        status = ls_device_pool_check(o->pool, err);
    if (status == LS_OK)
        status = take_sources(t, err);
    if (status == LS_OK && o->callbacks)
        status = ls_sized_take(&t->callbacks, sizeof t->callbacks, o->callbacks,
                               "ls_trainer_callbacks", err);
    if (status)
        return status;
    if (o->step_row_count < 0 || o->step_row_count > LS_STEP_ROWS)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_open: step_rows has %d entries; at most %d are allowed",
                       o->step_row_count, LS_STEP_ROWS);
    for (int i = 0; i < o->step_row_count; i++)
        t->step_rows[i] = o->step_rows[i];
    t->options.step_rows = t->step_rows;
    ls_injections injections = {0};
    status = read_inject(&injections, o, err);
    return status ? status : take_sys(t, err);
}

/* ---- data and model ------------------------------------------------------------------------- */

/* Checks the targets of resident rows. Targets of streamed rows are checked when they are read. */
static int check_targets(const ls_trainer *t, const ls_dataset *data, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(data);
    const ls_dataset_view view = ls_dataset_resident(data);
    return view.images ? ls_check_targets(t->config.loss, view.targets, view.rows, info->targets,
                                          info->source, err)
                       : LS_OK;
}

/* Fails if the config has patience or checkpoint.best, but the run makes no evaluations. */
static int check_monitor(const ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if ((c->patience == 0 && !c->checkpoint.best) ||
        (ls_dataset_rows(t->data[LS_TEST]) > 0 && c->eval_every > 0))
        return LS_OK;
    return ls_config_fail(
        err, c, c->patience ? "patience" : "checkpoint.best", LS_ECONFIG,
        "patience and checkpoint.best need evaluations during the run: set eval_every to at "
        "least 1, and provide test rows or set data.validation");
}

/* Returns the name of the set of rows on which the run is evaluated: "validation" or "test". */
static const char *judged_by(const ls_trainer *t)
{
    const char *split = ls_dataset_describe(t->data[LS_TEST])->split;
    return strcmp(split, "validation") == 0 ? "validation" : "test";
}

static int open_data(ls_trainer *t, ls_error *err)
{
    int status = ls_config_open_data(&t->data[LS_TRAIN], &t->data[LS_TEST], &t->config, false,
                                     &t->options, err);
    if (status)
        return status;
    const ls_dataset_info *info = ls_dataset_describe(t->data[LS_TRAIN]);
    snprintf(t->reported.text.data, sizeof t->reported.text.data,
             "%s%s: %u training and %u %s %s of %d×%d×%d%s%s", info->synthetic ? "SYNTHETIC " : "",
             info->name, (unsigned)info->rows, (unsigned)ls_dataset_rows(t->data[LS_TEST]),
             judged_by(t), info->row_type == LS_ROW_U8 ? "images" : "rows", info->channels,
             info->height, info->width,
             info->row_type == LS_ROW_U8 ? ", bytes / 255"
             : info->stored              ? ", floats from "
                                         : "",
             info->stored ? info->stored : "");
    status = ls_config_fit_data(&t->config, info, ls_dataset_rows(t->data[LS_TEST]), err);
    if (status == LS_OK)
        status = check_monitor(t, err);
    for (int s = 0; s < LS_SUBSETS && status == LS_OK; s++)
        status = check_targets(t, t->data[s], err);
    return status;
}

/* Fails if the config has epochs in which parameters are frozen, but the data has no epochs, or if
 * the learning rate depends on epochs, but neither the data nor the schedule says how many steps an
 * epoch has. */
static int check_schedule(ls_trainer *t, ls_error *err)
{
    const ls_schedule *s = &t->config.schedule;
    if (ls_dataset_resident(t->data[LS_TRAIN]).images || ls_dataset_rows(t->data[LS_TRAIN]) > 0)
        return LS_OK;
    if (t->config.freeze_epochs > 0)
        return ls_config_fail(err, &t->config, "freeze_epochs", LS_ECONFIG,
                              "the data has no epochs (train_rows is 0); remove freeze_epochs");
    if ((s->rule == LS_SCHEDULE_CONSTANT && s->warmup == 0) || s->rule == LS_SCHEDULE_EXPONENTIAL ||
        s->epoch_steps > 0)
        return LS_OK;
    return ls_config_fail(err, &t->config, "schedule", LS_ECONFIG,
                          "the data has no epochs (train_rows is 0); set epoch_steps in the "
                          "schedule, or the schedule \"constant\", without warm-up");
}

/* Fails if the network of an ONNX file has another number of outputs than the data need. */
static int check_outputs(const ls_trainer *t, int needed, ls_error *err)
{
    const ls_onnx_about *about = t->config.onnx ? ls_onnx_net_about(t->config.onnx) : NULL;
    const int outputs = about && !about->left_out ? about->outputs : needed;
    if (outputs == needed)
        return LS_OK;
    return ls_config_fail(err, &t->config, "model", LS_ECONFIG,
                          "the network of the ONNX file gives %d values for a row, but the data "
                          "need %d: one for each class or target; set \"head\" of the model to "
                          "\"new\", which replaces its last layer by one with %d outputs",
                          outputs, needed, needed);
}

static int build_model(ls_trainer *t, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(t->data[LS_TRAIN]);
    ls_shape input = {info->channels, info->height, info->width};
    const int outputs = ls_config_outputs(&t->config, info);
    const bool holds = t->config.freeze_epochs > 0;
    ls_network *model;
    int status = check_outputs(t, outputs, err);
    if (status == LS_OK)
        status = ls_network_parse(&model, ls_config_model_doc(&t->config), t->config.model, input,
                                  outputs, t->host, err);
    if (status)
        return status;
    status = ls_config_set_rates(model, &t->config, false, err);
    if (status == LS_OK && holds)
        status = ls_network_parse(&t->held, ls_config_model_doc(&t->config), t->config.model, input,
                                  outputs, t->host, err);
    if (status == LS_OK && holds)
        status = ls_config_set_rates(t->held, &t->config, true, err);
    if (status == LS_OK)
        status = ls_write_card(model, t, err);
    if (status) {
        ls_network_destroy(model, t->host);
        return status;
    }
    status = ls_inference_create(&t->inference, model, t->options.registry,
                                 &t->config.preprocessing, t->host, err);
    t->model = status ? NULL : model;
    if (status == LS_OK && ls_own_rows_learn(t->data[LS_TRAIN]))
        ls_inference_expect_changes(t->inference);
    return status;
}

/* ---- shards ---------------------------------------------------------------------------------- */

static int choose_shards(ls_trainer *t, ls_error *err)
{
    if (ls_members_first(t))
        t->config.shards = ls_config_shards(&t->config, t->model);
    return ls_members_share_shards(t, err);
}

/* ---- devices and workers -------------------------------------------------------------------- */

/* Returns the largest number of devices that have work, which is the number of shards of this
 * process, at least 1. */
static int most_devices(const ls_trainer *t)
{
    int lo, hi;
    ls_members_span(t, t->config.shards, &lo, &hi);
    return hi > lo ? hi - lo : 1;
}

/* Called by the engine while it waits for workers. Writes the workers' new marks (times at which
 * they began an activity) to the timeline. Has the sinks write records that they have buffered for
 * more than a second. */
static void be_idle(void *user)
{
    ls_trainer *t = user;
    ls_drain_trace(t);
    ls_sinks_look(&t->records.sinks);
}

static void trace_device(void *user, int worker, ls_device *device)
{
    const ls_trainer *t = user;
    ls_trace_device(t->records.trace, worker, device);
}

/* Returns whether the rows that evaluations measure have weights. */
static bool tests_are_weighted(const struct ls_trainer *t)
{
    return ls_dataset_resident(t->data[LS_TEST]).weights != NULL;
}

static ls_engine_desc describe_work(ls_trainer *t)
{
    const ls_config *c = &t->config;
    const bool accuracy = c->loss->hits && tests_are_weighted(t);
    return (ls_engine_desc){.pool = t->options.pool,
                            .model = t->held ? t->held : t->model,
                            .optimizer = &c->optimizer,
                            .preprocessing = &c->preprocessing,
                            .loss = c->loss,
                            .label_smoothing = (float)c->label_smoothing,
                            .vector_loss = c->vector_loss,
                            .seed = c->seed,
                            .divides_by_batch_size = c->nominal,
                            .skip_nonfinite = c->skip_nonfinite,
                            .data = t->data,
                            .weighted = ls_dataset_describe(t->data[LS_TRAIN])->weighted,
                            .batch_size = (uint32_t)c->batch_size,
                            .step_rows = t->options.step_rows,
                            .step_row_count = t->options.step_row_count,
                            .scores = ls_metrics_need_scores(c->metrics, accuracy),
                            .stop = t->members.cluster ? NULL : &t->stop,
                            .shards = c->shards,
                            .capacity = c->capacities ? c->capacity : NULL,
                            .cluster = t->members.cluster,
                            .deadline_s = c->deadline_s,
                            .idle = be_idle,
                            .opened = trace_device,
                            .user = t,
                            .host = t->host};
}

static int check_capacities(const ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    const int workers = ls_engine_workers(t->engine);
    if (!c->capacities || c->capacities == workers)
        return LS_OK;
    return ls_config_fail(err, c, "capacity", LS_ECONFIG,
                          "capacity has %d numbers for %d devices; give one for each device",
                          c->capacities, workers);
}

static int open_engine(ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    const ls_device_pool_options devices = {
        .size = sizeof devices,
        .registry = ls_inference_registry(t->inference),
        .devices = c->devices,
        .max_devices = c->shards ? most_devices(t) : 0,
        /* LS_TEAMS_OF_THE_REST: if there are fewer workers than CPUs, each worker computes with
         * several threads, an equal share of all CPUs */
        .threads = c->threads ? c->threads : LS_TEAMS_OF_THE_REST,
        .precision = c->precision,
        .cache_dir = t->options.cache_dir,
        .host = t->host,
    };
    ls_engine_desc work = describe_work(t);
    ls_error cause;
    work.devices = &devices;
    int status = read_inject(&work.injections, &t->options, err);
    if (status == LS_OK)
        status = ls_config_class_weights(&work.class_weight, c, t->data[LS_TRAIN],
                                         t->model->classes, err);
    if (status)
        return status;
    status = ls_engine_open(&t->engine, &work, &cause);
    if (status == LS_EINVAL)
        return ls_config_fail(err, c, "devices", LS_ECONFIG, "%s", cause.text);
    if (status == LS_ENOMEM && t->engine && ls_engine_lacks_scores(t->engine))
        return ls_config_fail_scores(err, c, ls_dataset_rows(t->data[LS_TEST]), t->model->classes);
    return status ? ls_fail(err, status, "%s", cause.text) : check_capacities(t, err);
}

/* Allocates memory for the results of an evaluation. */
static int prepare_evaluation(ls_trainer *t, ls_error *err)
{
    return ls_measured_init(&t->reported.measured, t->config.metrics,
                            ls_dataset_rows(t->data[LS_TEST]), t->model->classes,
                            tests_are_weighted(t), t->host, err);
}

static int load_weights(ls_trainer *t, ls_error *err)
{
    ls_error cause;
    const int status = ls_take_weights_over(ls_engine_weights(t->engine)->canonical, &t->config,
                                            t->model, t->data[LS_TRAIN], &cause);
    t->card_is_old |= ls_own_rows_learn(t->data[LS_TRAIN]);
    return status ? ls_config_fail(err, &t->config, "init.weights", status, "%s", cause.text)
                  : LS_OK;
}

/* Fails if the weights of the model were in an ONNX file that this run does not have. A resolved
 * config (config.json) has the layers of the file without its weights. */
static int check_source(const ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if (c->onnx || c->init_weights || !cJSON_HasObjectItem(c->model, "source"))
        return LS_OK;
    return ls_config_fail(err, c, "model", LS_ECONFIG,
                          "the weights of this model were in an ONNX file, and a new run needs "
                          "them: set model to {\"onnx\": FILE}, or init.weights to a file of the "
                          "weights; or remove \"source\" from the model, to begin with new "
                          "weights");
}

/* Continues from the checkpoint of the run that is resumed. The file's SHA-256 is verified again,
 * because the file can have been damaged since its state was read. */
static int go_on(ls_trainer *t, ls_error *err)
{
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, t->dir.resumed->path, t->host, err);
    if (status == LS_OK)
        status = ls_go_on_from(t, t->dir.resumed, file, err);
    ls_tensor_file_close(file);
    return status;
}

/* Initialises or loads the weights with which training begins, and sends them to the other
 * members. */
static int open_weights(ls_trainer *t, ls_error *err)
{
    t->agreement.chained = t->config.receipt;
    int status = t->dir.resumed ? go_on(t, err) : LS_OK;
    if (status || t->dir.resumed || !ls_members_first(t))
        return status ? status : ls_members_share_start(t, err);
    status = check_source(t, err);
    if (status)
        return status;
    float *canonical = ls_engine_weights(t->engine)->canonical;
    ls_init_weights(canonical, t->model, &t->config.init, t->config.seed);
    if (t->config.onnx)
        status = ls_onnx_net_load(canonical, t->config.onnx, t->model, err);
    if (status == LS_OK && t->config.init_weights)
        status = load_weights(t, err);
    if (status == LS_OK && t->agreement.chained)
        status = ls_chain_begin(t, err);
    return status ? status : ls_members_share_start(t, err);
}

static int open_trace(ls_trainer *t, ls_error *err)
{
    const ls_trainer_options *o = &t->options;
    const int workers = ls_engine_workers(t->engine);
    ls_trace **trace = &t->records.trace;
    if (!o->trace_path)
        return LS_OK;
    int status = ls_trace_create(trace, o->trace_path, o->trace_ops, workers, t->host, err);
    for (int i = 0; status == LS_OK && i < workers; i++)
        ls_engine_set_marks(t->engine, i, ls_trace_marks(*trace, i));
    return status;
}

static int open_workers(ls_trainer *t, ls_error *err)
{
    const size_t workers = (size_t)ls_engine_workers(t->engine);
    t->records.times = ls_alloc_array(t->host, workers, sizeof *t->records.times);
    t->records.device = ls_alloc_array(t->host, workers, sizeof *t->records.device);
    if (!t->records.times || !t->records.device)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu workers", workers);
    int status = ls_members_open_workers(t, err);
    if (status == LS_OK)
        ls_inference_use_kind_of(t->inference, ls_engine_device_name(t->engine, 0));
    return status;
}

/* ---- summary and output --------------------------------------------------------------------- */

static void write_devices_text(ls_trainer *t)
{
    size_t used = 0, size = sizeof t->reported.text.devices;
    for (int i = 0; i < ls_engine_workers(t->engine) && used < size; i++)
        used += (size_t)snprintf(t->reported.text.devices + used, size - used, "%s%s",
                                 i ? ", " : "[", ls_engine_device_name(t->engine, i));
    if (used < size - 1)
        snprintf(t->reported.text.devices + used, size - used, "]");
    else
        memcpy(t->reported.text.devices + size - 5, "…]", sizeof "…]");
}

/* Returns the largest number of rows of a full minibatch that one device computes. */
static int largest_share(const ls_trainer *t)
{
    const uint32_t batch = (uint32_t)t->config.batch_size,
                   shards = (uint32_t)ls_engine_shards(t->engine);
    uint32_t most = 0;
    for (int i = 0; i < ls_engine_workers(t->engine); i++) {
        const ls_worker_view w = ls_engine_worker(t->engine, i);
        uint32_t first, last, count;
        if (w.shard_lo == w.shard_hi)
            continue;
        ls_split(batch, shards, (uint32_t)w.shard_lo, &first, &count);
        ls_split(batch, shards, (uint32_t)w.shard_hi - 1, &last, &count);
        if (last + count - first > most)
            most = last + count - first;
    }
    return (int)most;
}

static int summarise(ls_trainer *t, ls_error *err)
{
    (void)err;
    const ls_config *c = &t->config;
    ls_replica_memory memory;
    const ls_worker_view first = ls_engine_worker(t->engine, 0);
    ls_replica_memory_used(first.replica, &memory);
    const size_t total = ls_engine_total_bytes(t->engine);
    if (!t->members.cluster)
        write_devices_text(t);
    t->reported.summary = (ls_summary){
        .name = c->name,
        .data = t->reported.text.data,
        .synthetic = ls_dataset_describe(t->data[LS_TRAIN])->synthetic,
        .devices = t->reported.text.devices,
        .device_model = first.info->model,
        .isa = first.info->isa,
        .library = first.info->library,
        .workers = ls_engine_workers(t->engine),
        .threads = first.info->threads,
        .shards = ls_engine_shards(t->engine),
        .batch_size = (int)c->batch_size,
        .batch_per_device = largest_share(t),
        .parameters = t->model->parameters,
        .parameter_bytes = t->model->parameters * sizeof(float),
        .device_bytes = memory.arenas + total + memory.activations + memory.dataset + memory.kept +
                        ls_engine_fold_bytes(t->engine, 0),
        .run_dir = t->dir.path ? t->dir.path : "",
        .resumed_from = t->reported.text.resumed,
        .resumed_steps = t->position.steps,
        .epochs = (int)c->epochs,
        .member = t->members.member,
        .members = t->members.count,
        .row_type = ls_dataset_describe(t->data[LS_TRAIN])->row_type,
        .judged_by = judged_by(t),
    };
    if (!t->reported.result.metric) /* a resumed run has taken its metric from the checkpoint */
        ls_report_metric(t, NULL);
    t->reported.result.devices = t->reported.text.devices;
    if (t->dir.resumed)
        ls_resume_compare_libraries(t->dir.resumed, t->reported.summary.isa,
                                    t->reported.summary.library, t->host);
    return LS_OK;
}

static int log_warnings(ls_trainer *t, ls_error *err)
{
    (void)err;
    ls_warn_of_settings(t);
    return LS_OK;
}

/* ---- config, group, and the stages of opening ----------------------------------------------- */

/* Checks options.step_rows, the numbers of rows for ls_trainer_step: each from 1 to batch_size. */
static int check_step_rows(const ls_trainer *t, ls_error *err)
{
    const ls_trainer_options *o = &t->options;
    for (int i = 0; i < o->step_row_count; i++)
        if (o->step_rows[i] < 1 || o->step_rows[i] > (uint32_t)t->config.batch_size)
            return ls_fail(
                err, LS_EINVAL,
                "ls_trainer_open: step_rows has %u; expected 1 to batch_size, which is %d",
                (unsigned)o->step_rows[i], t->config.batch_size);
    return LS_OK;
}

/* Reads the config of the run that is resumed. Only the first member has the file `path`; the other
 * members receive the text of the file. */
static int read_own_config(ls_trainer *t, const char *path, ls_error *err)
{
    ls_trainer_options options = t->options;
    if (!t->members.cluster)
        return ls_config_read_of_run(&t->config, path, &options, err);
    char *text = NULL;
    int status =
        ls_members_first(t) ? ls_config_read_of_run(&t->config, path, &options, err) : LS_OK;
    if (status == LS_OK && ls_members_first(t))
        status = ls_config_text(&text, &t->config, t->host, err);
    if (status == LS_OK)
        status = ls_members_share_text(&text, t, err);
    options.config_path = NULL;
    options.config_text = text;
    if (status == LS_OK && !ls_members_first(t))
        status = ls_config_read(&t->config, &options, err);
    ls_free(t->host, text);
    return status;
}

/* Returns whether this process opens its data before it joins the other members. It does if it can
 * be admitted to a run that has begun: the members then compare its data before they admit it, and
 * need not wait while it reads the data. */
static bool joins_late(const ls_trainer *t)
{
    return t->config.cluster.admits && !t->options.resume;
}

static int join_late(ls_trainer *t, ls_error *err)
{
    if (!joins_late(t))
        return LS_OK;
    int status =
        ls_members_fingerprint(&t->members.print, t, ls_config_shards(&t->config, t->model), err);
    t->members.has_print = status == LS_OK;
    return status ? status : ls_members_open(t, err);
}

/* The last stage of a process that is admitted to a run. After this stage the process is a member
 * like the others. */
static int begin_late(ls_trainer *t, ls_error *err)
{
    return t->members.arrived ? ls_members_begin(t, err) : LS_OK;
}

/* Reads the config of the caller or, if the caller gives none, the config of the run that is
 * resumed. */
static int read_config(ls_trainer *t, ls_error *err)
{
    const bool given = t->options.config_path || t->options.config_text || !t->options.resume;
    char *own = NULL;
    int status = given ? ls_config_read(&t->config, &t->options, err) : LS_OK;
    if (status == LS_OK && given)
        status = ls_config_choose_run_dir(&t->config, &t->options, err);
    if (status == LS_OK && given)
        status = ls_config_pack(&t->config, &t->options, err);
    if (status == LS_OK && t->config.cluster.admits && !t->config.cluster.survives_loss)
        status =
            ls_config_fail(err, &t->config, "cluster.on_arrival", LS_ECONFIG,
                           "\"admit\" needs \"on_host_loss\": \"continue\", because a newcomer "
                           "may be lost while it is being admitted");
    if (status == LS_OK && !joins_late(t))
        status = ls_members_open(t, err);
    if (status == LS_OK && t->options.resume && ls_members_first(t))
        status = ls_resume_find(&t->dir, &own, t->options.resume, given ? &t->config : NULL,
                                t->options.resume_at, t->host, err);
    if (status == LS_OK && !given)
        status = read_own_config(t, own, err);
    if (status == LS_OK && !given)
        status = ls_config_find_run_data(&t->config, own, &t->options, err);
    ls_free(t->host, own);
    if (status == LS_OK && t->dir.resumed)
        status = ls_resume_check_place(t->dir.path, &t->config, &t->options, err);
    if (status == LS_OK)
        status = check_step_rows(t, err);
    if (status == LS_OK && t->dir.resumed && t->config.shards <= 0)
        t->config.shards = t->dir.resumed->state.shards;
    return status;
}

/* Finds the communicator (the code that sums gradients over workers) that the config's key
 * `allreduce` names, among the communicators of the devices' back end. If the back end has no
 * communicators, searches those that sum in host memory. */
static int choose_merge(const ls_comm_type **out, const ls_trainer *t, ls_error *err)
{
    const ls_worker_view first = ls_engine_worker(t->engine, 0);
    const ls_device_ops *ops = first.device->ops;
    const ls_comm_type *const *types = ops->communicators ? ops->communicators() : ls_comm_types();
    char why[LS_COMM_WHY];
    *out = ls_comm_find(types, t->config.allreduce, why);
    if (*out)
        return LS_OK;
    return ls_config_fail(err, &t->config, "allreduce", LS_ECONFIG, "%s does not have '%.100s'; %s",
                          first.info->name, t->config.allreduce, why);
}

/* Checks the communicator and the other members (ls_members_check). Then has the workers join the
 * group that sums gradients. */
static int open_group(ls_trainer *t, ls_error *err)
{
    const ls_comm_type *merge;
    int status = choose_merge(&merge, t, err);
    if (status == LS_OK)
        status = ls_members_check(t, merge, err);
    return status ? status : ls_engine_form(t->engine, merge, t->position.steps, err);
}

/* Forgets the options that belong to the caller, who may free them when the trainer is open. */
static void forget_options(ls_trainer *t)
{
    const ls_trainer_options all = t->options;
    t->options = (ls_trainer_options){.size = all.size,
                                      .registry = all.registry,
                                      .sources = all.sources,
                                      .source_count = all.source_count,
                                      .step_rows = all.step_rows,
                                      .step_row_count = all.step_row_count,
                                      .pool = all.pool,
                                      .host = all.host};
}

typedef int stage(ls_trainer *t, ls_error *err);

int ls_open_run(ls_trainer *t, ls_error *err)
{
    static stage *const stages[] = {
        /* options and config */
        check_options, read_config,
        /* data and model */
        open_data, check_schedule, build_model, join_late, choose_shards,
        /* workers */
        prepare_evaluation, open_engine, ls_members_compare, open_weights, ls_release_at_start,
        open_trace, open_workers, ls_release_check, open_group,
        /* output and reports */
        ls_open_run_dir, ls_open_sinks, ls_open_saver, ls_coordination_create, summarise,
        log_warnings, begin_late};
    int status = LS_OK;
    t->reported.result.test_loss = t->reported.result.seconds_per_epoch = NAN;
    t->reported.accuracy = NAN;
    t->reported.metric = LS_METRIC_CONFUSION;
    t->reported.result.checkpoint = "";
    t->dir.lock.fd = -1;
    for (size_t i = 0; status == LS_OK && i < sizeof stages / sizeof *stages; i++)
        status = stages[i](t, err);
    if (status == LS_OK)
        forget_options(t);
    return status;
}
