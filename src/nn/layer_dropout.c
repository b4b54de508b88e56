/* SPDX-License-Identifier: MIT */
/* {"type": "dropout", "p": 0.5}: in training each value is set to 0 with probability p (*dropped*),
 * and the other values are multiplied by 1/(1 − p). The seed, the epoch and the row's index in the
 * dataset decide which values are dropped. The distribution of the rows over devices has no
 * influence. */
#include "base/rng.h"
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const double half = 0.5;
    double p;
    ls_field_double(fields, "p", 0, 1, &half, &p);
    if (p >= 1)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "p"),
                       "\"p\" must be less than 1: nothing would be left");
    layer->op.u.dropout.p = (float)p;
    layer->op.u.dropout.stream = LS_STREAM_DROPOUT + (uint32_t)layer->index;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":12},{\"type\":\"dropout\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"dropout\",\"p\":0.2},"
     " {\"type\":\"relu\"},{\"type\":\"flatten\"},{\"type\":\"dropout\",\"p\":0},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 5, 4}},
    {0},
};

const ls_layer_type ls_layer_dropout = {"dropout", LS_OP_DROPOUT, parse, ls_layer_same_shape,
                                        samples};
