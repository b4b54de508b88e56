/* {"type": "relu"}, {"type": "leaky_relu", "slope": 0.01}, sigmoid, tanh, gelu, silu: element by element. */
#include "nn/layer.h"

static void parse_relu(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_RELU;
}

static const struct ls_layer_sample relu_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"relu\"},"
     " {\"type\":\"dense\",\"out\":3},{\"type\":\"relu\"}]",
     {2, 4, 4}},
    {"[{\"type\":\"relu\"},{\"type\":\"relu\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {3, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_relu = {"relu", parse_relu, ls_layer_same_shape, relu_samples};

static void parse_sigmoid(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_SIGMOID;
}

static const struct ls_layer_sample sigmoid_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"sigmoid\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"sigmoid\"},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"sigmoid\"},"
     " {\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"sigmoid\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_sigmoid = {"sigmoid", parse_sigmoid, ls_layer_same_shape,
                                        sigmoid_samples};

static void parse_tanh(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_TANH;
}

static const struct ls_layer_sample tanh_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"tanh\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"tanh\"},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"tanh\"},"
     " {\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"tanh\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_tanh = {"tanh", parse_tanh, ls_layer_same_shape, tanh_samples};

static void parse_leaky(ls_layer *layer, ls_fields *fields)
{
    static const double slope = 0.01;
    double value;
    ls_field_double(fields, "slope", 0, 1, &slope, &value);
    layer->op.kind = LS_OP_RELU;
    layer->op.u.relu.slope = (float)value;
}

static const struct ls_layer_sample leaky_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"leaky_relu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":5,\"kernel\":2},{\"type\":\"leaky_relu\",\"slope\":0.3},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_leaky_relu = {"leaky_relu", parse_leaky, ls_layer_same_shape,
                                           leaky_samples};

static void parse_gelu(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_GELU;
}

static const struct ls_layer_sample gelu_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"gelu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"gelu\"},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"gelu\"},"
     " {\"type\":\"flatten\"},{\"type\":\"gelu\"},{\"type\":\"dense\",\"out\":3}]",
     {2, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_gelu = {"gelu", parse_gelu, ls_layer_same_shape, gelu_samples};

static void parse_silu(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.kind = LS_OP_SILU;
}

static const struct ls_layer_sample silu_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"silu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"silu\"},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"silu\"},"
     " {\"type\":\"flatten\"},{\"type\":\"silu\"},{\"type\":\"dense\",\"out\":3}]",
     {2, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_silu = {"silu", parse_silu, ls_layer_same_shape, silu_samples};
