/* SPDX-License-Identifier: MIT */
/* {"type": "flatten"}: reads an image as a vector in c, h, w order. The layer computes and moves
 * nothing: it has no op, and the layers that read its output read its input instead. */
#include "nn/layer.h"

static int shape(ls_layer *layer, ls_error *err)
{
    (void)err;
    layer->out = (ls_shape){(int)ls_shape_values(&layer->in), 1, 1};
    return LS_OK;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]", {2, 3, 4}},
    {"[{\"type\":\"conv2d\",\"out\":3,\"kernel\":3},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {1, 5, 6}},
    {"[{\"type\":\"dense\",\"out\":3},{\"type\":\"flatten\"}]", {4, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":1,\"kernel\":2},{\"type\":\"flatten\"}]", {2, 2, 4}},
    {0},
};

const ls_layer_type ls_layer_flatten = {"flatten", 0, NULL, shape, samples};
