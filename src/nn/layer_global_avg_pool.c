/* {"type": "global_avg_pool"}: the mean of each channel, a vector. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_POOL;
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_shape *in = &layer->in;
    int rc = ls_layer_wants_image(layer, err);
    layer->op.pool = (ls_pool2d){.kh = in->h, .kw = in->w, .sh = in->h, .sw = in->w};
    layer->out = (ls_shape){in->c, 1, 1};
    return rc;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":3,\"kernel\":2},{\"type\":\"global_avg_pool\"}]", {2, 5, 4}},
    {"[{\"type\":\"conv2d\",\"out\":20,\"kernel\":3},{\"type\":\"relu\"},"
     " {\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]",
     {1, 6, 9}},
    {0},
};

const ls_layer_type ls_layer_global_avg_pool = {"global_avg_pool", parse, shape, samples};
