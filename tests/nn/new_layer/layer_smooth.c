/* SPDX-License-Identifier: MIT */
/* {"type": "smooth", "reach": 1}: each pixel becomes the mean of the pixels around it. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const long one = 1;
    long reach;
    ls_field_int(fields, "reach", 1, 7, &one, &reach);
    const int side = 2 * (int)reach + 1, padding = (int)reach;
    layer->op.pool =
        (ls_pool2d){.kh = side, .kw = side, .sh = 1, .sw = 1, .ph = padding, .pw = padding};
}

static int shape(ls_layer *layer, ls_error *err)
{
    layer->out = layer->in;
    return ls_layer_wants_image(layer, err);
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":5,\"kernel\":2},{\"type\":\"smooth\"},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 5, 5}},
    {"[{\"type\":\"smooth\",\"reach\":2},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[4,3]}]",
     {1, 4, 3}},
    {0},
};

const ls_layer_type ls_layer_smooth = {"smooth", LS_OP_POOL, parse, shape, samples};
