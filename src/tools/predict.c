/* Rows are cut as training cuts them, into minibatches and shards; shard s of every minibatch is
 * worker s mod W's. */
#include "tools/predict.h"

#include "base/error.h"
#include "base/host.h"

#include <lockstep/split.h>
#include <stdio.h>
#include <string.h>

typedef struct tally {
    double loss, correct;
} tally;

typedef struct job {
    const ls_predict_desc *desc;
    uint32_t shards;
    uint32_t *row; /* 0, 1, 2, … */
    float *logits; /* NULL: loss and hits are wanted instead */
    tally *tally;  /* [minibatch][shard] */
    char (*name)[16];
} job;

/* One worker's part. */
typedef struct part {
    const job *job;
    ls_device *device;
    ls_replica *replica;
    uint8_t *images, *labels; /* of one shard, where logits are wanted: the replica reads them */
    size_t image_bytes;
    uint32_t most; /* rows of a shard */
} part;

/* ---- a worker's rows ------------------------------------------------------------------------ */

/* Logits: the replica predicts the rows that lie at the start of its data. */
static int predict_shard(part *p, uint32_t first, uint32_t count, ls_error *err)
{
    const job *j = p->job;
    memcpy(p->images, j->desc->images + first * p->image_bytes, count * p->image_bytes);
    int status = ls_replica_refresh(p->replica, LS_TEST, 0, count, err);
    return status ? status
                  : ls_replica_predict(p->replica, count,
                                       j->logits + first * (size_t)j->desc->model->classes, err);
}

static int run_shard(part *p, tally *sum, uint32_t first, uint32_t count, ls_error *err)
{
    if (count == 0)
        return LS_OK;
    if (p->job->logits)
        return predict_shard(p, first, count, err);
    return ls_replica_evaluate(p->replica, LS_TEST, p->job->row + first, count, &sum->loss,
                               &sum->correct, err);
}

static int run_rows(part *p, const ls_worker *w, ls_error *err)
{
    const job *j = p->job;
    const uint32_t rows = j->desc->rows, batch = j->desc->batch;
    int status = LS_OK;
    for (uint32_t m = 0; status == LS_OK && (uint64_t)m * batch < rows; m++) {
        const uint32_t left = rows - m * batch, n = left < batch ? left : batch;
        for (uint32_t s = (uint32_t)w->index; status == LS_OK && s < j->shards;
             s += (uint32_t)w->workers) {
            uint32_t first, count;
            ls_split(n, j->shards, s, &first, &count);
            status =
                run_shard(p, &j->tally[(size_t)m * j->shards + s], m * batch + first, count, err);
        }
    }
    return status;
}

/* The numbers of rows that shards have: two of whole minibatches, two of the last. */
static int shard_sizes(uint32_t out[4], const job *j)
{
    const uint32_t rows = j->desc->rows, batch = j->desc->batch;
    const uint32_t whole = rows < batch ? rows : batch, n[2] = {whole, rows % batch};
    int count = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t size = (n[i / 2] + (i % 2 ? j->shards - 1 : 0)) / j->shards;
        int known = size == 0;
        for (int k = 0; k < count; k++)
            known |= out[k] == size;
        if (!known)
            out[count++] = size;
    }
    return count;
}

static int open_rows(part *p, const uint32_t *sizes, int count, ls_error *err)
{
    const ls_shape *in = &p->job->desc->model->input;
    const ls_host *host = p->job->desc->host;
    p->image_bytes = (size_t)in->c * (size_t)in->h * (size_t)in->w;
    for (int i = 0; i < count; i++)
        p->most = sizes[i] > p->most ? sizes[i] : p->most;
    p->images = ls_alloc_array(host, p->most, p->image_bytes);
    p->labels = ls_alloc(host, p->most);
    return p->images && p->labels
               ? LS_OK
               : ls_fail(err, LS_ENOMEM, "out of memory for %u images", (unsigned)p->most);
}

static int open_replica(part *p, ls_error *err)
{
    const ls_predict_desc *d = p->job->desc;
    uint32_t sizes[4];
    const int count = shard_sizes(sizes, p->job);
    ls_replica_desc desc = {
        .device = p->device,
        .model = d->model,
        .optimizer = p->job->logits ? NULL : d->optimizer,
        .normalisation = d->normalisation,
        .label_smoothing = d->label_smoothing,
        .data[LS_TEST] = {.images = d->images, .labels = d->labels, .rows = d->rows},
        .shard_rows = sizes,
        .shard_row_counts = count,
        .host = d->host,
    };
    int status = p->job->logits ? open_rows(p, sizes, count, err) : LS_OK;
    if (status == LS_OK && p->job->logits)
        desc.data[LS_TEST] = (ls_replica_data){p->images, p->labels, p->most};
    if (status == LS_OK)
        status = ls_replica_create(&p->replica, &desc, err);
    if (status)
        return status;
    return ls_replica_import(p->replica, ls_replica_weight_arena(p->replica), d->weights, err);
}

static int predict_part(const ls_worker *w, void *arg, ls_error *err)
{
    const job *j = arg;
    part p = {.job = j, .device = ls_worker_device(w)};
    ls_device_info info;
    p.device->ops->describe(p.device, &info);
    memcpy(j->name[w->index], info.name, sizeof info.name);
    int status = open_replica(&p, err);
    if (status == LS_OK)
        status = run_rows(&p, w, err);
    ls_replica_destroy(p.replica);
    ls_free(j->desc->host, p.labels);
    ls_free(j->desc->host, p.images);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void sum_up(ls_prediction *out, const job *j, size_t tallies, int workers)
{
    size_t used = 0;
    *out = (ls_prediction){0};
    for (size_t i = 0; i < tallies; i++) {
        out->loss += j->tally[i].loss;
        out->correct += j->tally[i].correct;
    }
    for (int i = 0; i < workers && used < sizeof out->devices - 32; i++)
        used += (size_t)snprintf(out->devices + used, sizeof out->devices - used, "%s%s",
                                 i ? ", " : "[", j->name[i]);
    snprintf(out->devices + used, sizeof out->devices - used, "]");
}

static int run_on_pool(ls_prediction *out, job *j, ls_pool *pool, ls_error *err)
{
    const ls_predict_desc *d = j->desc;
    const int workers = ls_pool_size(pool);
    j->shards = d->shards ? d->shards : (uint32_t)workers;
    const size_t tallies = ((size_t)d->rows + d->batch - 1) / d->batch * j->shards;
    j->row = ls_alloc_array(d->host, d->rows, sizeof *j->row);
    j->tally = ls_alloc_array(d->host, tallies, sizeof *j->tally);
    j->name = ls_alloc_array(d->host, (size_t)workers, sizeof *j->name);
    int status = j->row && j->tally && j->name
                     ? LS_OK
                     : ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)d->rows);
    for (uint32_t i = 0; status == LS_OK && i < d->rows; i++)
        j->row[i] = i;
    if (status == LS_OK)
        status = ls_pool_run(pool, predict_part, j, LS_FOREVER, err);
    if (status == LS_OK)
        sum_up(out, j, tallies, workers);
    ls_free(d->host, j->name);
    ls_free(d->host, j->tally);
    ls_free(d->host, j->row);
    return status;
}

int ls_predict(ls_prediction *out, float *logits, const ls_predict_desc *d, ls_error *err)
{
    ls_pool *pool;
    job j = {.desc = d, .logits = logits};
    ls_device_pool_options o = {
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
    status = run_on_pool(out, &j, pool, err);
    ls_pool_destroy(pool);
    return status;
}
