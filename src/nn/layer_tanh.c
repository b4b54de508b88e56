/* {"type": "tanh"} */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_TANH;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"tanh\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"tanh\"},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"tanh\"},"
     " {\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"tanh\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_tanh = {"tanh", parse, ls_layer_same_shape, samples};
