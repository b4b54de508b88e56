/* SPDX-License-Identifier: MIT */
/* {"type": "pad", "padding": 1 | [1, 1] | [0, 0, 1, 1]}: adds zeros around an image; four numbers
 * are those at the top, left, bottom and right. A convolution whose padding differs from side to
 * side is a pad and a conv2d without padding. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    int first[2], last[2];
    if (!ls_field_any(fields, "padding"))
        ls_fields_fail(fields, NULL,
                       "\"padding\" is missing; add it, such as [0, 0, 1, 1]: the "
                       "zeros at the top, left, bottom and right");
    ls_field_sides(fields, "padding", 0, LS_MAX_KERNEL - 1, first, last);
    layer->op.u.pad = (ls_pad){first[0], first[1], last[0], last[1]};
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_pad *pad = &layer->op.u.pad;
    const long long h = (long long)layer->in.h + pad->top + pad->bottom;
    const long long w = (long long)layer->in.w + pad->left + pad->right;
    int status = ls_layer_wants_image(layer, err);
    if (status != LS_OK)
        return status;
    if (h * w > LS_MODEL_VALUES)
        return ls_fail(err, LS_ECONFIG,
                       "an image of %lld×%lld pixels has more than %d; use a smaller \"padding\"",
                       h, w, LS_MODEL_VALUES);
    layer->out = (ls_shape){layer->in.c, (int)h, (int)w};
    return LS_OK;
}

/* Models for the gradient check: a convolution that pads only at the bottom and right; a pad as the
 * first layer, and one that is larger than the image. */
static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},"
     " {\"type\":\"pad\",\"padding\":[0,0,1,1]},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":3,\"stride\":2},{\"type\":\"flatten\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 5, 5}},
    {"[{\"type\":\"pad\",\"padding\":[2,0,1,3]},{\"type\":\"conv2d\",\"out\":3,\"kernel\":2},"
     " {\"type\":\"pad\",\"padding\":[4,1]},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[12,7]}]",
     {1, 2, 3}},
    {0},
};

const ls_layer_type ls_layer_pad = {"pad", LS_OP_PAD, parse, shape, samples};
