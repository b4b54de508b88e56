/* SPDX-License-Identifier: MIT */
/* {"type": "layer_norm", "epsilon": 1e-5}
 *
 * Each row is normalised to mean 0 and variance 1 over all its values, then each value is
 * scaled and shifted. The layer computes the same in training and in evaluation. The layer equals
 * PyTorch's LayerNorm over all values of a row. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    layer->op.u.layernorm.epsilon = ls_read_float(fields, "epsilon", 1e-12, 1, 1e-5);
}

static int shape(ls_layer *layer, ls_error *err)
{
    int status = ls_layer_same_shape(layer, err);
    layer->param[0] = ls_layer_filled(&layer->in, LS_START_ONES);
    layer->param[1] = ls_layer_filled(&layer->in, LS_START_ZEROS);
    layer->params = 2;
    return status;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"layer_norm\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":5,\"kernel\":2},{\"type\":\"layer_norm\",\"epsilon\":0.01},"
     " {\"type\":\"tanh\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[3,4]}]",
     {2, 4, 5}},
    {"[{\"type\":\"layer_norm\"},{\"type\":\"conv2d\",\"out\":4,\"kernel\":1},"
     " {\"type\":\"flatten\"},{\"type\":\"layer_norm\"},{\"type\":\"dense\",\"out\":3}]",
     {3, 4, 3}},
    {0},
};

const ls_layer_type ls_layer_layer_norm = {"layer_norm", LS_OP_LAYERNORM, parse, shape, samples};
