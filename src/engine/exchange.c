#include "engine/exchange.h"

#include "base/error.h"
#include "base/host.h"
#include "engine/state.h"

#include <string.h>

static bool allocate(ls_exchange *x, ls_engine *e)
{
    const ls_engine_desc *d = &e->desc;
    const uint32_t train = ls_dataset_rows(d->data[LS_TRAIN]);
    ls_engine_state *state = &x->state;
    x->test = (ls_sharded_rows){.rows = ls_dataset_rows(d->data[LS_TEST]),
                                .batch = d->batch_size,
                                .shards = (uint32_t)e->shards,
                                .classes = d->model->classes,
                                .stop = d->stop};
    for (int i = 0; i < 2; i++)
        x->permutation[i] = ls_alloc_array(d->host, train, sizeof *x->permutation[i]);
    state->canonical = ls_alloc_array(d->host, d->model->floats, sizeof *state->canonical);
    bool complete = ls_sharded_rows_init(&x->test, d->host, NULL) == LS_OK && x->permutation[0] &&
                    x->permutation[1] && state->canonical;
    if (d->scores && x->test.rows > 0) {
        x->test.scores =
            ls_alloc_array(d->host, x->test.rows * sizeof *x->test.scores, (size_t)x->test.classes);
        e->lacks_scores = !x->test.scores;
        complete = complete && x->test.scores;
    }
    if (complete)
        ls_dataset_places(d->data[LS_TEST], x->test.row, x->test.rows);
    for (int i = 0; i < ls_optimizer_states(d->optimizer); i++) {
        state->slot[i] = ls_alloc_array(d->host, d->model->floats, sizeof *state->slot[i]);
        complete = complete && state->slot[i];
    }
    return complete;
}

int ls_exchange_create(ls_exchange **out, ls_engine *e, ls_error *err)
{
    ls_exchange *x = ls_alloc(e->desc.host, sizeof *x);
    e->lacks_scores = false;
    if (!x || !allocate(x, e)) {
        ls_exchange_destroy(x, e->desc.host);
        return ls_fail(err, LS_ENOMEM, "out of memory for the lists of rows and %zu weights",
                       e->desc.model->floats);
    }
    x->engine = e;
    x->exporter = -1;
    *out = x;
    return LS_OK;
}

void ls_exchange_destroy(ls_exchange *e, const ls_host *host)
{
    if (!e)
        return;
    for (int i = 0; i < LS_STATES; i++)
        ls_free(host, e->state.slot[i]);
    ls_free(host, e->state.canonical);
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
