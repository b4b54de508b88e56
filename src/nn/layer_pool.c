/* {"type": "avg_pool", "kernel": 2 | [2, 2], "stride": 2, "padding": 0}, and max_pool. The stride is
 * the kernel unless given. */
#include "nn/layer.h"

static void parse_any(ls_layer *layer, ls_fields *fields, int max)
{
    ls_window w;
    layer->op.kind = LS_OP_POOL;
    ls_window_parse(&w, fields, NULL);
    layer->op.pool = (ls_pool2d){max, w.k[0], w.k[1], w.s[0], w.s[1], w.p[0], w.p[1]};
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
    const ls_pool2d *pool = &layer->op.pool;
    const ls_window w = {{pool->kh, pool->kw}, {pool->sh, pool->sw}, {pool->ph, pool->pw}};
    int rc = ls_layer_wants_image(layer, err);
    if (rc != LS_OK)
        return rc;
    layer->out.c = layer->in.c;
    return ls_window_shape(&layer->out, &layer->in, &w, err);
}

/* One model before the pooling, one that drops rows and columns, one with overlap and padding. */
/* clang-format off */
#define SAMPLES(type)                                                                              \
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
        {0},                                                                                       \
    }
/* clang-format on */

static const struct ls_layer_sample avg_samples[] = SAMPLES("avg_pool");
static const struct ls_layer_sample max_samples[] = SAMPLES("max_pool");

const ls_layer_type ls_layer_avg_pool = {"avg_pool", parse_avg, shape, avg_samples};
const ls_layer_type ls_layer_max_pool = {"max_pool", parse_max, shape, max_samples};
