/* Opening and closing a run: everything is made here, in the order in which it is needed, and
 * unmade in reverse. */
#include "base/error.h"
#include "base/host.h"
#include "base/split.h"
#include "nn/safetensors.h"
#include "train/run.h"
#include "train/run_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- data and model ------------------------------------------------------------------------- */

static int open_data(ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    ls_dataset_spec spec = {
        .name = c->data_name,
        .path = c->data_path,
        .search = t->options.data_dirs,
        .search_count = (size_t)t->options.data_dir_count,
        .limit = (uint32_t)c->data_limit,
        .seed = c->seed,
    };
    ls_error cause;
    int status = ls_dataset_open(&t->data[LS_TRAIN], &t->data[LS_TEST], &spec, t->host, &cause);
    if (status == LS_ECONFIG) /* its message begins with the key */
        return ls_config_fail(err, c,
                              strncmp(cause.text, "data.limit", 10) == 0 ? "data.limit"
                              : strncmp(cause.text, "data.path", 9) == 0 ? "data.path"
                                                                         : "data.name",
                              status, cause.text);
    if (status && err)
        *err = cause;
    if (status)
        return status;
    const ls_dataset_info *info = ls_dataset_describe(t->data[LS_TRAIN]);
    snprintf(t->data_text, sizeof t->data_text, "%s%s: %u training and %u test images of %d×%d×%d",
             info->synthetic ? "SYNTHETIC " : "", info->name, (unsigned)info->rows,
             (unsigned)ls_subset_rows(t, LS_TEST), info->channels, info->height, info->width);
    return LS_OK;
}

static int build_model(ls_trainer *t, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(t->data[LS_TRAIN]);
    ls_shape input = {info->channels, info->height, info->width};
    int status = ls_model_parse(&t->model, ls_config_model_doc(&t->config), t->config.model, input,
                                info->classes, t->host, err);
    if (status)
        return status;
    t->canonical = ls_alloc_array(t->host, t->model->floats, sizeof(float));
    if (!t->canonical)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu weights", t->model->floats);
    ls_init_weights(t->canonical, t->model, &t->config.init, t->config.seed);
    return LS_OK;
}

/* The lists of rows, and the results of an evaluation: sized once, for the whole run. */
static int allocate_rows(ls_trainer *t, ls_error *err)
{
    uint32_t train = ls_subset_rows(t, LS_TRAIN), test = ls_subset_rows(t, LS_TEST);
    size_t batch = (size_t)t->config.batch_size;
    size_t minibatches = (test + batch - 1) / batch;
    for (int i = 0; i < 2; i++)
        t->permutation[i] = ls_alloc_array(t->host, train, sizeof *t->permutation[i]);
    t->test_rows = ls_alloc_array(t->host, test, sizeof *t->test_rows);
    t->tally = ls_alloc_array(t->host, minibatches * (size_t)t->shards, sizeof *t->tally);
    t->reports = ls_alloc_array(t->host, (size_t)t->workers, sizeof *t->reports);
    if (!t->permutation[0] || !t->permutation[1] || !t->test_rows || !t->tally || !t->reports)
        return ls_fail(err, LS_ENOMEM, "out of memory for the lists of rows");
    for (uint32_t i = 0; i < test; i++)
        t->test_rows[i] = i;
    return LS_OK;
}

/* ---- devices and workers -------------------------------------------------------------------- */

static int open_pool(ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    ls_device_pool_options o = {
        .size = sizeof o,
        .registry = t->options.registry ? t->options.registry : t->own_registry,
        .devices = c->devices,
        .max_devices = (int)c->shards,
        .threads = (int)c->threads,
        .inbox = LS_IN_FLIGHT * 2,
        .host = t->host,
    };
    ls_error cause;
    int status = ls_device_pool_create(&t->pool, &o, &cause);
    if (status == LS_EINVAL)
        return ls_config_fail(err, c, "devices", LS_ECONFIG, cause.text);
    if (status) {
        if (err)
            *err = cause;
        return status;
    }
    t->workers = ls_pool_size(t->pool);
    t->shards = c->shards ? (int)c->shards : t->workers;
    char text[200];
    if (c->capacities && c->capacities != t->workers) {
        snprintf(text, sizeof text, "%d numbers for %d devices; give one per device", c->capacities,
                 t->workers);
        return ls_config_fail(err, c, "capacity", LS_ECONFIG, text);
    }
    if (t->workers <= t->shards)
        return LS_OK;
    snprintf(text, sizeof text,
             "%d devices, but a minibatch has only %d shards; ask for at most %d devices, or set "
             "shards to at least %d",
             t->workers, t->shards, t->shards, t->workers);
    return ls_config_fail(err, c, "devices", LS_ECONFIG, text);
}

static int open_workers(ls_trainer *t, ls_error *err)
{
    t->worker = ls_alloc_array(t->host, (size_t)t->workers, sizeof *t->worker);
    if (!t->worker)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d workers", t->workers);
    const double *capacity = t->config.capacities ? t->config.capacity : NULL;
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        uint32_t first, count;
        ls_split_by_capacity((uint32_t)t->shards, (uint32_t)t->workers, (uint32_t)i, capacity,
                             &first, &count);
        w->trainer = t;
        w->rank = i;
        w->shard_lo = (int)first;
        w->shard_hi = (int)(first + count);
        int status = ls_ring_init(&w->reports, t->host, sizeof(ls_report), LS_REPORTS, err);
        if (status)
            return status;
    }
    return ls_pool_run(t->pool, ls_worker_open, t, LS_FOREVER, err);
}

/* The replicas exist: their arenas' length is known, so the group can be made. */
static int open_group(ls_trainer *t, ls_error *err)
{
    int segments;
    ls_comm_group_desc desc = {
        .type = t->config.allreduce,
        .ranks = t->workers,
        .shards = t->shards,
        .floats = ls_replica_floats(t->worker[0].replica),
        .segments = ls_replica_segments(t->worker[0].replica, &segments),
        .timeout_ns = UINT64_MAX,
        .spins = ls_spins_for(t->workers, ls_allowed_cpus()),
        .host = t->host,
    };
    desc.segment_count = segments;
    int status = desc.type->group_create(&t->group, &desc, err);
    return status ? status : ls_pool_run(t->pool, ls_worker_join, t, LS_FOREVER, err);
}

/* ---- summary and output --------------------------------------------------------------------- */

static void write_devices_text(ls_trainer *t)
{
    size_t used = 0, size = sizeof t->devices_text;
    for (int i = 0; i < t->workers && used < size; i++)
        used += (size_t)snprintf(t->devices_text + used, size - used, "%s%s", i ? ", " : "[",
                                 t->worker[i].info.name);
    if (used < size - 1)
        snprintf(t->devices_text + used, size - used, "]");
    else
        memcpy(t->devices_text + size - 5, "…]", sizeof "…]");
}

/* Rows of a whole minibatch that the busiest device computes. */
static int largest_share(const ls_trainer *t)
{
    uint32_t most = 0;
    for (int i = 0; i < t->workers; i++) {
        uint32_t first, last, count;
        ls_split((uint32_t)t->config.batch_size, (uint32_t)t->shards,
                 (uint32_t)t->worker[i].shard_lo, &first, &count);
        ls_split((uint32_t)t->config.batch_size, (uint32_t)t->shards,
                 (uint32_t)t->worker[i].shard_hi - 1, &last, &count);
        if (last + count - first > most)
            most = last + count - first;
    }
    return (int)most;
}

static void summarise(ls_trainer *t)
{
    const ls_config *c = &t->config;
    ls_replica_memory memory;
    ls_replica_memory_used(t->worker[0].replica, &memory);
    write_devices_text(t);
    t->summary = (ls_summary){
        .name = c->name,
        .data = t->data_text,
        .synthetic = ls_dataset_describe(t->data[LS_TRAIN])->synthetic,
        .devices = t->devices_text,
        .device_model = t->worker[0].info.model,
        .isa = t->worker[0].info.isa,
        .library = t->worker[0].info.library,
        .workers = t->workers,
        .threads = t->worker[0].info.threads,
        .shards = t->shards,
        .batch_size = (int)c->batch_size,
        .batch_per_device = largest_share(t),
        .parameters = t->model->parameters,
        .parameter_bytes = t->model->parameters * sizeof(float),
        .device_bytes =
            memory.arenas + memory.activations + memory.dataset + ls_fold_bytes(&t->worker[0].fold),
        .run_dir = t->run_dir ? t->run_dir : "",
    };
    t->result.devices = t->devices_text;
    t->result.test_loss = t->result.test_accuracy = t->result.seconds_per_epoch = NAN;
}

static void warn(ls_trainer *t)
{
    const ls_config *c = &t->config;
    int cpus = ls_allowed_cpus();
    long per_shard = c->batch_size / t->shards;
    int on_host = (t->worker[0].info.flags & LS_DEVICE_HOST_MEMORY) != 0;
    char threads[32] = "";
    if (c->threads > 1)
        snprintf(threads, sizeof threads, " of %ld threads", c->threads);
    if (on_host && t->workers * c->threads > cpus)
        ls_log(t->host, LS_LOG_WARNING,
               "%d workers%s share %d allowed CPUs: slower than fewer workers", t->workers, threads,
               cpus);
    if (on_host && t->workers == c->shards && t->workers < cpus && strcmp(c->devices, "auto") == 0)
        ls_log(t->host, LS_LOG_INFO, "devices: auto takes at most one device per shard: %d",
               t->workers);
    if (per_shard % 16 != 0 || c->batch_size % t->shards != 0)
        ls_log(
            t->host, LS_LOG_WARNING,
            "%ld rows per shard are no multiple of 16: batch_size %ld and shards %d leave vector "
            "units partly empty",
            per_shard, c->batch_size, t->shards);
}

/* The config as indented JSON, owned by the caller. */
static int resolved_text(char **out, const ls_config *config, const ls_host *host, ls_error *err)
{
    int status = LS_OK;
    size_t length = 0;
    ls_json_writer w;
    ls_json_writer_init(&w, 2, host);
    ls_config_write(&w, NULL, config);
    const char *text = ls_json_writer_text(&w, &length, err);
    *out = text ? ls_alloc(host, length + 2) : NULL;
    if (*out) {
        memcpy(*out, text, length);
        (*out)[length] = '\n';
    } else {
        status = ls_fail(err, LS_ENOMEM, "out of memory for the resolved config");
    }
    ls_json_writer_fini(&w);
    return status;
}

static int open_run_dir(ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if (c->run_dir && c->run_dir[0] == '\0')
        return LS_OK;
    int status = ls_run_dir_make(&t->run_dir, c->run_dir, c->name, t->host, err);
    if (status)
        return status;
    char *resolved;
    status = resolved_text(&resolved, c, t->host, err);
    if (status)
        return status;
    status = ls_run_dir_write(t->run_dir, "config.json", resolved, t->host, err);
    ls_text_free(resolved, t->host);
    return status;
}

static int open_sinks(ls_trainer *t, ls_error *err)
{
    ls_sink *sink;
    int status = LS_OK;
    if (t->run_dir) {
        char *path = ls_run_dir_path(t->run_dir, "metrics.jsonl", t->host);
        status = path ? ls_sink_jsonl(&sink, path, t->host, err)
                      : ls_fail(err, LS_ENOMEM, "out of memory for a path");
        ls_free(t->host, path);
        if (status == LS_OK)
            status = ls_sinks_add(&t->sinks, sink, err);
    }
    if (status == LS_OK && t->options.record) {
        status = ls_sink_callback(&sink, t->options.record, t->options.user, t->host, err);
        if (status == LS_OK)
            status = ls_sinks_add(&t->sinks, sink, err);
    }
    return status;
}

/* ---- the public functions ------------------------------------------------------------------- */

static int open_all(ls_trainer *t, ls_error *err)
{
    int (*const stages[])(ls_trainer *, ls_error *) = {open_data,     build_model,  open_pool,
                                                       allocate_rows, open_workers, open_group,
                                                       open_run_dir,  open_sinks};
    int status = LS_OK;
    if (!t->options.registry)
        status = ls_registry_create(&t->own_registry, t->host, err);
    for (size_t i = 0; status == LS_OK && i < sizeof stages / sizeof *stages; i++)
        status = stages[i](t, err);
    if (status == LS_OK) {
        summarise(t);
        warn(t);
    }
    return status;
}

int ls_trainer_open(ls_trainer **out, const ls_trainer_options *options, ls_error *err)
{
    if (!out || !options || options->size != sizeof *options)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_open: options.size must be sizeof(ls_trainer_options)");
    ls_trainer *t = ls_alloc(options->host, sizeof *t);
    if (!t)
        return ls_fail(err, LS_ENOMEM, "out of memory for a trainer");
    t->options = *options;
    t->host = options->host;
    ls_sinks_init(&t->sinks, t->host);
    int status = ls_config_read(&t->config, options, err);
    if (status == LS_OK)
        status = open_all(t, err);
    if (status) {
        ls_trainer_close(t);
        return status;
    }
    *out = t;
    return LS_OK;
}

void ls_trainer_close(ls_trainer *t)
{
    if (!t)
        return;
    const ls_host *host = t->host;
    ls_sinks_close(&t->sinks, NULL);
    if (t->pool && t->worker)
        ls_pool_run(t->pool, ls_worker_close, t, LS_FOREVER, NULL);
    if (t->group)
        t->group->type->group_destroy(t->group);
    ls_pool_destroy(t->pool);
    for (int i = 0; t->worker && i < t->workers; i++)
        ls_ring_fini(&t->worker[i].reports);
    ls_free(host, t->worker);
    ls_free(host, t->reports);
    ls_free(host, t->tally);
    ls_free(host, t->test_rows);
    ls_free(host, t->permutation[1]);
    ls_free(host, t->permutation[0]);
    ls_free(host, t->canonical);
    ls_free(host, t->run_dir);
    ls_model_destroy(t->model, host);
    ls_dataset_close(t->data[LS_TEST]);
    ls_dataset_close(t->data[LS_TRAIN]);
    ls_registry_destroy(t->own_registry);
    ls_config_fini(&t->config);
    ls_free(host, t);
}

const ls_summary *ls_trainer_summary(const ls_trainer *t)
{
    return &t->summary;
}

const ls_result *ls_trainer_result(const ls_trainer *t)
{
    return &t->result;
}

void ls_trainer_interrupt(ls_trainer *t)
{
    atomic_store_explicit(&t->stop, 1, memory_order_relaxed);
}

/* Brings the weights home, hashes them, and writes them into the run directory. */
static int save_weights(ls_trainer *t, ls_error *err)
{
    ls_pool_clear(t->pool, NULL); /* an evaluation that failed does not keep the weights back */
    int status = ls_pool_run(t->pool, ls_worker_export, t, LS_FOREVER, err);
    if (status)
        return status;
    ls_weights_sha256(t->result.weights_sha256, t->model, t->canonical);
    if (!t->run_dir)
        return LS_OK;
    char *path = ls_run_dir_path(t->run_dir, "weights.safetensors", t->host);
    status = path ? ls_safetensors_save(path, t->model, t->canonical, t->host, err)
                  : ls_fail(err, LS_ENOMEM, "out of memory for a path");
    ls_free(t->host, path);
    return status;
}

int ls_trainer_run(ls_trainer *t, ls_error *err)
{
    if (t->ran)
        return ls_fail(err, LS_EINVAL, "ls_trainer_run: a trainer runs once; open another one");
    t->ran = 1;
    ls_error first = {0}, later;
    int status = ls_record_run_start(t, &first);
    if (status == LS_OK)
        status = ls_coordinate(t, &first);
    int saved = save_weights(t, &later);
    if (saved && (status == LS_OK || status == LS_EINTERRUPTED)) {
        status = saved;
        first = later;
    }
    int ended = ls_record_run_end(t, status, first.text, &later);
    if (ended == LS_OK)
        ended = ls_sinks_close(&t->sinks, &later);
    if (ended && (status == LS_OK || status == LS_EINTERRUPTED)) {
        status = ended;
        first = later;
    }
    if (status && err)
        *err = first;
    return status;
}

int ls_trainer_weights(ls_trainer *t, float *out, ls_error *err)
{
    int status = ls_pool_run(t->pool, ls_worker_export, t, LS_FOREVER, err);
    for (int i = 0; status == LS_OK && i < t->model->params; i++) {
        const ls_param *p = t->model->param[i];
        memcpy(out, t->canonical + p->offset, p->count * sizeof(float));
        out += p->count;
    }
    return status;
}

int ls_config_resolve(char **out, const ls_trainer_options *options, ls_error *err)
{
    ls_config config;
    int status = ls_config_read(&config, options, err);
    if (status)
        return status;
    status = resolved_text(out, &config, options->host, err);
    ls_config_fini(&config);
    return status;
}

void ls_text_free(char *text, const ls_host *host)
{
    ls_free(host, text);
}
