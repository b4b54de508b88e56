/* SPDX-License-Identifier: MIT */
/* The feed (feed.h). `images` are the values of the rows, which need not be images. */
#include "engine/feed.h"

#include "base/error.h"
#include "base/host.h"
#include "data/own_rows.h"

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
    if (ls_dataset_describe(data)->weighted)
        f->weights = ls_alloc_array(host, rows, sizeof *f->weights);
    if (!f->images || !f->labels || !f->index ||
        (ls_dataset_describe(data)->weighted && !f->weights)) {
        ls_feed_destroy(f);
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu rows in flight", rows);
    }
    for (size_t i = 0; i < rows; i++)
        f->index[i] = (uint32_t)i;
    ls_feed_reset_weights(f);
    *out = f;
    return LS_OK;
}

void ls_feed_reset_weights(ls_feed *f)
{
    for (size_t i = 0; f->weights && i < (size_t)f->batch * LS_IN_FLIGHT; i++)
        f->weights[i] = 1;
}

void ls_feed_destroy(ls_feed *f)
{
    if (!f)
        return;
    ls_free(f->host, f->index);
    ls_free(f->host, f->weights);
    ls_free(f->host, f->labels);
    ls_free(f->host, f->images);
    ls_free(f->host, f);
}

ls_replica_data ls_feed_data(const ls_feed *f)
{
    return (ls_replica_data){.images = (const void *)f->images,
                             .labels = (const void *)f->labels,
                             .weights = f->weights,
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
    const float *weights = ls_own_rows_weights(data);
    for (uint32_t i = 0; f->weights && i < n; i++)
        f->weights[first + i] = weights ? weights[rows[i]] : 1;
    return ls_dataset_read(data, rows, n, f->images + first * f->image_bytes,
                           f->labels + first * f->label_bytes, err);
}

int ls_feed_take(ls_feed *f, uint32_t slot, const ls_dataset *data, const ls_feed_rows_given *rows,
                 ls_error *err)
{
    const size_t first = (size_t)slot * f->batch;
    for (uint32_t i = 0; f->weights && i < rows->n; i++)
        f->weights[first + i] = rows->weights ? rows->weights[i] : 1;
    return ls_own_rows_take(data, rows->images, rows->labels, rows->n,
                            f->images + first * f->image_bytes, f->labels + first * f->label_bytes,
                            err);
}

const float *ls_feed_targets(const ls_feed *f, uint32_t slot)
{
    return (const float *)(const void *)(f->labels + (size_t)slot * f->batch * f->label_bytes);
}
