/* Shards are split among the workers, each of which makes a replica, takes its part and is done. */
#include "tools/predict.h"

#include "base/error.h"
#include "base/host.h"
#include "train/infer.h"

#include <lockstep/split.h>
#include <stdio.h>
#include <string.h>

typedef struct job {
    const ls_predict_desc *desc;
    const uint8_t *labels;
    ls_sharded_rows rows;
    char (*name)[16]; /* [worker] */
} job;

static int open_replica(ls_replica **out, ls_device *device, const job *j, ls_error *err)
{
    const ls_predict_desc *d = j->desc;
    uint32_t sizes[LS_SHARD_SIZES];
    const ls_replica_desc desc = {
        .device = device,
        .model = d->model,
        .optimizer = j->rows.logits ? NULL : d->optimizer,
        .normalisation = d->normalisation,
        .label_smoothing = d->label_smoothing,
        .data[LS_TEST] = {.images = d->images, .labels = j->labels, .rows = d->rows},
        .shard_rows = sizes,
        .shard_row_counts = ls_add_shard_sizes(sizes, 0, d->rows, d->batch, j->rows.shards),
        .host = d->host,
    };
    int status = ls_replica_create(out, &desc, err);
    return status ? status
                  : ls_replica_import(*out, ls_replica_weight_arena(*out), d->weights, err);
}

static int predict_part(const ls_worker *w, void *arg, ls_error *err)
{
    const job *j = arg;
    ls_device *device = ls_worker_device(w);
    ls_replica *replica = NULL;
    ls_device_info info;
    uint32_t first, count;
    device->ops->describe(device, &info);
    memcpy(j->name[w->index], info.name, sizeof info.name);
    ls_split(j->rows.shards, (uint32_t)w->workers, (uint32_t)w->index, &first, &count);
    int status = open_replica(&replica, device, j, err);
    if (status == LS_OK)
        status = ls_infer_shards(&j->rows, replica, (int)first, (int)(first + count), err);
    ls_replica_destroy(replica);
    return status;
}

static void fill(ls_prediction *out, const job *j, int workers)
{
    const ls_tally sum = ls_sharded_rows_sum(&j->rows);
    size_t used = 0;
    *out = (ls_prediction){.loss = sum.loss, .correct = sum.correct};
    for (int i = 0; i < workers && used < sizeof out->devices - 32; i++)
        used += (size_t)snprintf(out->devices + used, sizeof out->devices - used, "%s%s",
                                 i ? ", " : "[", j->name[i]);
    snprintf(out->devices + used, sizeof out->devices - used, "]");
}

static int run_on_pool(ls_prediction *out, float *logits, const ls_predict_desc *d, ls_pool *pool,
                       ls_error *err)
{
    const int workers = ls_pool_size(pool);
    job j = {.desc = d,
             .rows = {.rows = d->rows,
                      .batch = d->batch,
                      .shards = d->shards ? d->shards : (uint32_t)workers,
                      .logits = logits,
                      .classes = d->model->classes}};
    uint8_t *unknown = d->labels ? NULL : ls_alloc(d->host, d->rows);
    j.labels = d->labels ? d->labels : unknown;
    j.name = ls_alloc_array(d->host, (size_t)workers, sizeof *j.name);
    int status = ls_sharded_rows_init(&j.rows, d->host, err);
    if (status == LS_OK && (!j.labels || !j.name))
        status = ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)d->rows);
    if (status == LS_OK)
        status = ls_pool_run(pool, predict_part, &j, LS_FOREVER, err);
    if (status == LS_OK)
        fill(out, &j, workers);
    ls_sharded_rows_fini(&j.rows, d->host);
    ls_free(d->host, j.name);
    ls_free(d->host, unknown);
    return status;
}

int ls_predict(ls_prediction *out, float *logits, const ls_predict_desc *d, ls_error *err)
{
    ls_pool *pool;
    const ls_device_pool_options o = {
        .size = sizeof o,
        .registry = d->registry,
        .devices = d->devices,
        .max_devices = (int)d->shards,
        .threads = d->threads,
        .precision = d->precision,
        .cache_dir = d->cache_dir,
        .host = d->host,
    };
    int status = ls_device_pool_create(&pool, &o, err);
    if (status)
        return status;
    status = run_on_pool(out, logits, d, pool, err);
    ls_pool_destroy(pool);
    return status;
}
