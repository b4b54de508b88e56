/* SPDX-License-Identifier: MIT */
/* {"type": "dense", "out": 128 | "classes", "bias": true} */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const int bias = 1;
    layer->op.u.dense.out = ls_read_out(layer, fields);
    ls_field_bool(fields, "bias", &bias, &layer->op.u.dense.bias);
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_shape *in = &layer->in;
    const int dim[4] = {layer->op.u.dense.out, in->c};
    if (in->h != 1 || in->w != 1)
        return ls_fail(err, LS_ECONFIG,
                       "expected a vector, but its input is an image of %d×%d×%d; insert "
                       "{\"type\": \"flatten\"} before it",
                       in->c, in->h, in->w);
    layer->out = (ls_shape){layer->op.u.dense.out, 1, 1};
    return ls_layer_add_params(layer, 2, dim, layer->op.u.dense.bias, err);
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":3}]", {7, 1, 1}},
    {"[{\"type\":\"dense\",\"out\":18},{\"type\":\"relu\"},"
     " {\"type\":\"dense\",\"out\":3,\"bias\":false}]",
     {5, 1, 1}},
    {"[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":6,\"bias\":false},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 3, 2}},
    {0},
};

const ls_layer_type ls_layer_dense = {"dense", LS_OP_DENSE, parse, shape, samples};
