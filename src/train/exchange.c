#include "train/exchange.h"

#include "base/error.h"
#include "base/host.h"
#include "train/trainer.h"

#include <string.h>

static bool lacks_scores(const ls_exchange *e, const struct ls_trainer *t)
{
    return ls_metrics_need_scores(t->config.metrics) && e->test.rows > 0 && !e->test.scores;
}

static bool allocate(ls_exchange *e, const struct ls_trainer *t)
{
    const uint32_t train = ls_dataset_rows(t->data[LS_TRAIN]);
    e->test = (ls_sharded_rows){
        .rows = ls_dataset_rows(t->data[LS_TEST]),
        .batch = ls_evaluation_batch((uint32_t)t->config.batch_size, (uint32_t)t->shards),
        .shards = (uint32_t)t->shards,
        .classes = t->model->classes,
        .stop = t->members.cluster ? NULL : &t->stop};
    for (int i = 0; i < 2; i++)
        e->permutation[i] = ls_alloc_array(t->host, train, sizeof *e->permutation[i]);
    e->canonical = ls_alloc_array(t->host, t->model->floats, sizeof *e->canonical);
    bool complete = ls_sharded_rows_init(&e->test, t->host, NULL) == LS_OK && e->permutation[0] &&
                    e->permutation[1] && e->canonical;
    if (lacks_scores(e, t)) {
        e->test.scores =
            ls_alloc_array(t->host, e->test.rows * sizeof *e->test.scores, (size_t)e->test.classes);
        complete = complete && e->test.scores;
    }
    if (complete)
        ls_dataset_places(t->data[LS_TEST], e->test.row, e->test.rows);
    for (int i = 0; i < ls_optimizer_states(&t->config.optimizer); i++) {
        e->slot[i] = ls_alloc_array(t->host, t->model->floats, sizeof *e->slot[i]);
        complete = complete && e->slot[i];
    }
    return complete;
}

int ls_exchange_create(ls_exchange **out, struct ls_trainer *t, ls_error *err)
{
    ls_exchange *e = ls_alloc(t->host, sizeof *e);
    if (!e || !allocate(e, t)) {
        const bool scores = e && lacks_scores(e, t);
        ls_exchange_destroy(e, t->host);
        if (scores)
            return ls_config_fail_scores(err, &t->config, ls_dataset_rows(t->data[LS_TEST]),
                                         t->model->classes);
        return ls_fail(err, LS_ENOMEM, "out of memory for the lists of rows and %zu weights",
                       t->model->floats);
    }
    e->trainer = t;
    e->exporter = -1;
    *out = e;
    return LS_OK;
}

void ls_exchange_destroy(ls_exchange *e, const ls_host *host)
{
    if (!e)
        return;
    for (int i = 0; i < LS_STATES; i++)
        ls_free(host, e->slot[i]);
    ls_free(host, e->canonical);
    ls_free(host, e->test.scores);
    ls_sharded_rows_fini(&e->test, host);
    ls_free(host, e->permutation[1]);
    ls_free(host, e->permutation[0]);
    ls_free(host, e);
}

/* ---- streamed rows -------------------------------------------------------------------------- */

int ls_feed_create(ls_feed **out, const ls_dataset *data, uint32_t batch, const ls_host *host,
                   ls_error *err)
{
    const size_t rows = (size_t)batch * LS_IN_FLIGHT;
    ls_feed *f = ls_alloc(host, sizeof *f);
    if (!f)
        return ls_fail(err, LS_ENOMEM, "out of memory for a feed");
    *f = (ls_feed){.host = host, .batch = batch};
    f->image_bytes = ls_dataset_image_bytes(data);
    f->images = ls_alloc_array(host, rows, f->image_bytes);
    f->label_bytes = ls_dataset_target_bytes(data);
    f->labels = ls_alloc_array(host, rows, f->label_bytes);
    f->index = ls_alloc_array(host, rows, sizeof *f->index);
    if (!f->images || !f->labels || !f->index) {
        ls_feed_destroy(f);
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu rows in flight", rows);
    }
    for (size_t i = 0; i < rows; i++)
        f->index[i] = (uint32_t)i;
    *out = f;
    return LS_OK;
}

void ls_feed_destroy(ls_feed *f)
{
    if (!f)
        return;
    ls_free(f->host, f->index);
    ls_free(f->host, f->labels);
    ls_free(f->host, f->images);
    ls_free(f->host, f);
}

ls_replica_data ls_feed_data(const ls_feed *f)
{
    return (ls_replica_data){.images = (const void *)f->images,
                             .labels = (const void *)f->labels,
                             .rows = f->batch * LS_IN_FLIGHT};
}

const uint32_t *ls_feed_rows(const ls_feed *f, uint32_t slot)
{
    return f->index + (size_t)slot * f->batch;
}

int ls_feed_read(ls_feed *f, uint32_t slot, const ls_dataset *data, const uint32_t *rows,
                 uint32_t n, ls_error *err)
{
    const size_t first = (size_t)slot * f->batch;
    return ls_dataset_read(data, rows, n, f->images + first * f->image_bytes,
                           f->labels + first * f->label_bytes, err);
}

void ls_feed_copy(ls_feed *f, uint32_t slot, const void *images, const void *labels, uint32_t n)
{
    const size_t first = (size_t)slot * f->batch;
    memcpy(f->images + first * f->image_bytes, images, n * f->image_bytes);
    memcpy(f->labels + first * f->label_bytes, labels, n * f->label_bytes);
}

const float *ls_feed_targets(const ls_feed *f, uint32_t slot)
{
    return (const float *)(const void *)(f->labels + (size_t)slot * f->batch * f->label_bytes);
}

int ls_check_bits(const ls_loss *loss, const float *targets, uint32_t rows, int each,
                  const char *source, ls_error *err)
{
    const size_t n = loss->bits ? (size_t)rows * (size_t)each : 0;
    for (size_t i = 0; i < n; i++)
        if (!(targets[i] >= 0 && targets[i] <= 1))
            return ls_fail(
                err, LS_EDATA, "%.200s: row %zu: target %zu is %g; %s needs targets from 0 to 1",
                source, i / (size_t)each, i % (size_t)each, (double)targets[i], loss->name);
    return LS_OK;
}
