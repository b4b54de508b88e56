/* SPDX-License-Identifier: MIT */
/* {"type": "upsample", "scale": 2 | [2, 2]}: repeats each pixel scale[0] times vertically and
 * scale[1] times horizontally. */
#include "nn/layer.h"

enum { MOST = 64 };

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const long two = 2;
    int scale[2];
    ls_field_pair(fields, "scale", 1, MOST, &two, scale);
    layer->op.u.upsample = (ls_upsample){scale[0], scale[1]};
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_upsample *by = &layer->op.u.upsample;
    const long long h = (long long)layer->in.h * by->sh, w = (long long)layer->in.w * by->sw;
    int status = ls_layer_wants_image(layer, err);
    if (status != LS_OK)
        return status;
    if (h * w > LS_MODEL_VALUES)
        return ls_fail(err, LS_ECONFIG,
                       "an image of %lld×%lld pixels has more than %d; use a smaller \"scale\"", h,
                       w, LS_MODEL_VALUES);
    layer->out = (ls_shape){layer->in.c, (int)h, (int)w};
    return LS_OK;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"upsample\"},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":[6,4]}]",
     {2, 4, 3}},
    {"[{\"type\":\"upsample\",\"scale\":[1,3]},"
     "{\"type\":\"conv2d\",\"out\":5,\"kernel\":3,\"stride\":2},"
     " {\"type\":\"upsample\",\"scale\":[3,2]},{\"type\":\"flatten\"},"
     "{\"type\":\"dense\",\"out\":3}]",
     {1, 5, 3}},
    {0},
};

const ls_layer_type ls_layer_upsample = {"upsample", LS_OP_UPSAMPLE, parse, shape, samples};
