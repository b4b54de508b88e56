/* SPDX-License-Identifier: MIT */
/* Evaluates and predicts rows with a trained model on all devices (predict.h). Each worker creates
 * a replica for its part of the shards. */
#include "model/predict.h"

#include "base/error.h"
#include "base/host.h"
#include "engine/infer.h"
#include "nn/replica.h"

#include <lockstep/device_pool.h>
#include <lockstep/split.h>
#include <stdio.h>
#include <string.h>

/* A prediction, as its workers see it. */
typedef struct job {
    const ls_predict_desc *desc;
    const void *labels;
    ls_sharded_rows rows;
    char (*name)[16]; /* [workers]: names of the devices */
} job;

static int open_replica(ls_replica **out, ls_device *device, const job *j, ls_error *err)
{
    const ls_predict_desc *d = j->desc;
    const ls_trained *t = d->trained;
    const ls_config *c = &t->config;
    const bool has_optimizer = c->optimizer.type; /* a card has no optimizer */
    uint32_t sizes[LS_SHARD_SIZES];
    const ls_replica_desc desc = {
        .device = device,
        .model = t->model,
        .optimizer = d->as_in_training && has_optimizer ? &c->optimizer : NULL,
        .normalisation = c->preprocessing,
        .loss = c->loss,
        .label_smoothing = (float)c->label_smoothing,
        .vector_loss = c->vector_loss,
        .class_weight = d->class_weight,
        .scores = j->rows.scores != NULL,
        .data[LS_TEST] = {.images = d->images,
                          .labels = j->labels,
                          .weights = d->weights,
                          .rows = d->row_index ? d->total_rows : d->rows},
        .shard_rows = sizes,
        .shard_row_counts = ls_add_shard_sizes(sizes, 0, d->rows, j->rows.batch, j->rows.shards),
        .host = t->host,
    };
    int status = ls_replica_create(out, &desc, err);
    return status ? status
                  : ls_replica_import(*out, ls_replica_weight_arena(*out), t->weights, err);
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

static int run_on_pool(ls_prediction *out, float *scores, const ls_predict_desc *d, ls_pool *pool,
                       int shards, ls_error *err)
{
    const int workers = ls_pool_size(pool), targets = d->trained->config.preprocessing.targets;
    const ls_host *host = d->trained->host;
    const uint32_t parts = shards ? (uint32_t)shards : (uint32_t)workers;
    job j = {.desc = d,
             .rows = {.rows = d->rows,
                      .batch = ls_evaluation_batch((uint32_t)d->trained->config.batch_size, parts),
                      .shards = parts,
                      .scores = scores,
                      .classes = d->trained->model->classes}};
    const size_t words = targets ? (size_t)targets : 1;
    int32_t *unknown = d->labels ? NULL : ls_alloc_array(host, d->rows * words, sizeof *unknown);
    j.labels = d->labels ? d->labels : unknown;
    j.name = ls_alloc_array(host, (size_t)workers, sizeof *j.name);
    int status = ls_sharded_rows_init(&j.rows, host, err);
    if (status == LS_OK && (!j.labels || !j.name))
        status = ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)d->rows);
    if (status == LS_OK && d->row_index)
        memcpy(j.rows.row, d->row_index, d->rows * sizeof *d->row_index);
    if (status == LS_OK)
        status = ls_pool_run(pool, predict_part, &j, LS_FOREVER, err);
    if (status == LS_OK)
        fill(out, &j, workers);
    ls_sharded_rows_fini(&j.rows, host);
    ls_free(host, j.name);
    ls_free(host, unknown);
    return status;
}

int ls_predict(ls_prediction *out, float *scores, const ls_predict_desc *d, ls_error *err)
{
    ls_pool *pool;
    const ls_config *c = &d->trained->config;
    const int shards = ls_config_shards(c, d->trained->model);
    const ls_device_pool_options o = {
        .size = sizeof o,
        .registry = d->registry,
        .devices = d->devices ? d->devices : c->devices,
        /* a few rows: one worker and its team */
        .max_devices = d->rows <= LS_SHARD_ROWS ? 1 : shards,
        .threads = c->threads ? c->threads : LS_TEAMS_OF_THE_REST,
        .precision = c->precision,
        .cache_dir = d->trained->cache_dir,
        .host = d->trained->host,
    };
    int status = ls_device_pool_create(&pool, &o, err);
    if (status)
        return status;
    status = run_on_pool(out, scores, d, pool, shards, err);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    return status;
}
