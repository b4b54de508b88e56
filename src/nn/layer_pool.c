/* SPDX-License-Identifier: MIT */
/* {"type": "avg_pool", "kernel": 2 | [2, 2], "stride": 2, "padding": 0 | [0, 0] | [0, 0, 0, 0],
 * "ceil_mode": false, "count_include_pad": false}, and max_pool with the same keys, except the last
 * one. The default stride is the size of the kernel. {"type": "global_avg_pool"} computes the mean
 * of each channel; its output is a vector. */
#include "nn/layer.h"

static void parse_any(ls_layer *layer, ls_fields *fields, int max)
{
    static const int no = 0;
    ls_window w = {.d = {1, 1}};
    ls_window_parse(&w, fields, NULL);
    ls_pool2d *pool = &layer->op.pool;
    *pool = (ls_pool2d){.max = max,
                        .kh = w.k[0],
                        .kw = w.k[1],
                        .sh = w.s[0],
                        .sw = w.s[1],
                        .ph = w.p[0],
                        .pw = w.p[1],
                        .eh = w.end[0] - w.p[0],
                        .ew = w.end[1] - w.p[1]};
    ls_field_bool(fields, "ceil_mode", &no, &pool->ceil);
    if (!max)
        ls_field_bool(fields, "count_include_pad", &no, &pool->count_padding);
}

static void parse_avg(ls_layer *layer, ls_fields *fields)
{
    parse_any(layer, fields, 0);
}

static void parse_max(ls_layer *layer, ls_fields *fields)
{
    parse_any(layer, fields, 1);
}

static int shape(ls_layer *layer, ls_error *err)
{
    ls_pool2d *pool = &layer->op.pool;
    ls_window w = {.k = {pool->kh, pool->kw},
                   .s = {pool->sh, pool->sw},
                   .p = {pool->ph, pool->pw},
                   .d = {1, 1},
                   .end = {pool->ph + pool->eh, pool->pw + pool->ew},
                   .ceil = pool->ceil};
    ls_shape whole = {0};
    int status = ls_layer_wants_image(layer, err);
    if (status != LS_OK)
        return status;
    layer->out.c = layer->in.c;
    status = ls_window_shape(&layer->out, &layer->in, &w, err);
    /* Removes what changes nothing, so that ops with code for the usual pools recognise them. */
    w.ceil = 0;
    if (ls_window_shape(&whole, &layer->in, &w, NULL) == LS_OK && whole.h == layer->out.h &&
        whole.w == layer->out.w)
        pool->ceil = 0;
    if (pool->ph == 0 && pool->pw == 0 && pool->eh == 0 && pool->ew == 0)
        pool->count_padding = 0;
    return status;
}

/* Models for the gradient check: a pool as the first layer; a pool that ignores the last column of
 * pixels and the last line; a pool with overlapping windows and padding; a pool whose padding
 * differs from side to side, and whose last windows extend beyond it. */
/* clang-format off */
#define SAMPLES(type, more)                                                                        \
    {                                                                                              \
        {"[{\"type\":\"" type "\",\"kernel\":2},{\"type\":\"flatten\"},"                           \
         " {\"type\":\"dense\",\"out\":3}]",                                                       \
         {2, 4, 6}},                                                                               \
        {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"relu\"},"                      \
         " {\"type\":\"" type "\",\"kernel\":2},{\"type\":\"flatten\"},"                           \
         " {\"type\":\"dense\",\"out\":3}]",                                                       \
         {1, 6, 8}},                                                                               \
        {"[{\"type\":\"conv2d\",\"out\":3,\"kernel\":1},"                                          \
         " {\"type\":\"" type "\",\"kernel\":[3,2],\"stride\":[2,1],\"padding\":1},"               \
         " {\"type\":\"conv2d\",\"out\":3,\"kernel\":[3,6]}]",                                     \
         {2, 5, 5}},                                                                               \
        {"[{\"type\":\"conv2d\",\"out\":18,\"kernel\":1},"                                         \
         " {\"type\":\"" type "\",\"kernel\":3,\"stride\":2,\"padding\":[1,0,0,2],"                \
         "\"ceil_mode\":true" more "},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[4,3]}]",          \
         {2, 7, 5}},                                                                               \
        {0},                                                                                       \
    }
/* clang-format on */

static const struct ls_layer_sample avg_samples[] =
    SAMPLES("avg_pool", ",\"count_include_pad\":true");
static const struct ls_layer_sample max_samples[] = SAMPLES("max_pool", "");

const ls_layer_type ls_layer_avg_pool = {"avg_pool", LS_OP_POOL, parse_avg, shape, avg_samples};
const ls_layer_type ls_layer_max_pool = {"max_pool", LS_OP_POOL, parse_max, shape, max_samples};

/* ---- global average pooling ------------------------------------------------------------------ */

static int global_shape(ls_layer *layer, ls_error *err)
{
    const ls_shape *in = &layer->in;
    int status = ls_layer_wants_image(layer, err);
    layer->op.pool = (ls_pool2d){.kh = in->h, .kw = in->w, .sh = in->h, .sw = in->w};
    layer->out = (ls_shape){in->c, 1, 1};
    return status;
}

static const struct ls_layer_sample global_samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":3,\"kernel\":2},{\"type\":\"global_avg_pool\"}]", {2, 5, 4}},
    {"[{\"type\":\"conv2d\",\"out\":20,\"kernel\":3},{\"type\":\"relu\"},"
     " {\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]",
     {1, 6, 9}},
    {0},
};

const ls_layer_type ls_layer_global_avg_pool = {"global_avg_pool", LS_OP_POOL, NULL, global_shape,
                                                global_samples};
