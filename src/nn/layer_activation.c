/* The element-wise activations: {"type": "relu"}, {"type": "leaky_relu", "slope": 0.01}, relu6,
 * sigmoid, {"type": "hard_sigmoid", "slope": 0.1667, "offset": 0.5}, tanh, gelu, silu and
 * hard_swish. */
#include "nn/layer.h"

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

const ls_layer_type ls_layer_relu = {"relu", LS_OP_RELU, NULL, ls_layer_same_shape, relu_samples};

static void parse_leaky(ls_layer *layer, ls_fields *fields)
{
    layer->op.u.relu.slope = ls_read_float(fields, "slope", 0, 1, 0.01);
}

static const struct ls_layer_sample leaky_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"leaky_relu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":5,\"kernel\":2},{\"type\":\"leaky_relu\",\"slope\":0.3},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_leaky_relu = {"leaky_relu", LS_OP_RELU, parse_leaky,
                                           ls_layer_same_shape, leaky_samples};

/* Models for the gradient check: the activation of vectors, of images, and of a flattened image. */
/* clang-format off */
#define SAMPLES(type)                                                                              \
    {                                                                                              \
        {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"" type "\"},"                             \
         " {\"type\":\"dense\",\"out\":3}]",                                                       \
         {6, 1, 1}},                                                                               \
        {"[{\"type\":\"" type "\"}," \
         "{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},"                  \
         " {\"type\":\"" type "\"},{\"type\":\"avg_pool\",\"kernel\":2}," \
         "{\"type\":\"flatten\"},"    \
         " {\"type\":\"" type "\"},{\"type\":\"dense\",\"out\":3}]",                               \
         {2, 5, 5}},                                                                               \
        {0},                                                                                       \
    }
/* clang-format on */

static const struct ls_layer_sample sigmoid_samples[] = SAMPLES("sigmoid");
static const struct ls_layer_sample tanh_samples[] = SAMPLES("tanh");
static const struct ls_layer_sample gelu_samples[] = SAMPLES("gelu");
static const struct ls_layer_sample silu_samples[] = SAMPLES("silu");
static const struct ls_layer_sample relu6_samples[] = SAMPLES("relu6");
static const struct ls_layer_sample hard_swish_samples[] = SAMPLES("hard_swish");

const ls_layer_type ls_layer_sigmoid = {"sigmoid", LS_OP_SIGMOID, NULL, ls_layer_same_shape,
                                        sigmoid_samples};
const ls_layer_type ls_layer_tanh = {"tanh", LS_OP_TANH, NULL, ls_layer_same_shape, tanh_samples};
const ls_layer_type ls_layer_gelu = {"gelu", LS_OP_GELU, NULL, ls_layer_same_shape, gelu_samples};
const ls_layer_type ls_layer_silu = {"silu", LS_OP_SILU, NULL, ls_layer_same_shape, silu_samples};
const ls_layer_type ls_layer_relu6 = {"relu6", LS_OP_RELU6, NULL, ls_layer_same_shape,
                                      relu6_samples};
const ls_layer_type ls_layer_hard_swish = {"hard_swish", LS_OP_HARD_SWISH, NULL,
                                           ls_layer_same_shape, hard_swish_samples};

static void parse_hard_sigmoid(ls_layer *layer, ls_fields *fields)
{
    layer->op.u.hard_sigmoid = (ls_hard_sigmoid){
        .slope = ls_read_float(fields, "slope", 0, 16, 1.0 / 6),
        .offset = ls_read_float(fields, "offset", -16, 16, 0.5),
    };
}

static const struct ls_layer_sample hard_sigmoid_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"hard_sigmoid\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},"
     " {\"type\":\"hard_sigmoid\",\"slope\":0.4,\"offset\":0.25},"
     " {\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"flatten\"},"
     " {\"type\":\"hard_sigmoid\",\"slope\":0.2},{\"type\":\"dense\",\"out\":3}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_hard_sigmoid = {"hard_sigmoid", LS_OP_HARD_SIGMOID, parse_hard_sigmoid,
                                             ls_layer_same_shape, hard_sigmoid_samples};
