/* {"type": "relu"} */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_RELU;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"relu\"},"
     " {\"type\":\"dense\",\"out\":3},{\"type\":\"relu\"}]",
     {2, 4, 4}},
    {"[{\"type\":\"relu\"},{\"type\":\"relu\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {3, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_relu = {"relu", parse, ls_layer_same_shape, samples};
