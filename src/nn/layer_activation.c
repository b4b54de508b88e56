/* SPDX-License-Identifier: MIT */
/* The element-wise activations: {"type": "relu"}, {"type": "leaky_relu", "slope": 0.01}, relu6,
 * {"type": "clip", "min": -1, "max": 1}, sigmoid, {"type": "hard_sigmoid", "slope": 0.1667,
 * "offset": 0.5}, tanh, {"type": "gelu", "approximate": "none"}, silu, hard_swish and {"type":
 * "affine", "slope": 1, "offset": 0}. */
#include "nn/layer.h"

#include <math.h>

/* largest limit, slope and offset of clip and affine */
static const double most_number = 1e30;

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
#define SAMPLE_OF_VECTORS(type, keys)                                                              \
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"" type "\"" keys "},"                            \
     " {\"type\":\"dense\",\"out\":3}]",                                                           \
     {6, 1, 1}}
#define SAMPLE_OF_IMAGES(type, keys)                                                               \
    {"[{\"type\":\"" type "\"" keys "},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},"             \
     " {\"type\":\"" type "\"" keys "},{\"type\":\"avg_pool\",\"kernel\":2},"                      \
     " {\"type\":\"flatten\"},{\"type\":\"" type "\"" keys "},{\"type\":\"dense\",\"out\":3}]",    \
     {2, 5, 5}}
#define SAMPLES(type) {SAMPLE_OF_VECTORS(type, ""), SAMPLE_OF_IMAGES(type, ""), {0}}
/* clang-format on */

static const struct ls_layer_sample sigmoid_samples[] = SAMPLES("sigmoid");
static const struct ls_layer_sample tanh_samples[] = SAMPLES("tanh");
static const struct ls_layer_sample silu_samples[] = SAMPLES("silu");
static const struct ls_layer_sample relu6_samples[] = SAMPLES("relu6");
static const struct ls_layer_sample hard_swish_samples[] = SAMPLES("hard_swish");

const ls_layer_type ls_layer_sigmoid = {"sigmoid", LS_OP_SIGMOID, NULL, ls_layer_same_shape,
                                        sigmoid_samples};
const ls_layer_type ls_layer_tanh = {"tanh", LS_OP_TANH, NULL, ls_layer_same_shape, tanh_samples};
const ls_layer_type ls_layer_silu = {"silu", LS_OP_SILU, NULL, ls_layer_same_shape, silu_samples};
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

/* Reads "approximate", which has PyTorch's values. */
static void parse_gelu(ls_layer *layer, ls_fields *fields)
{
    static const char *const forms[] = {"none", "tanh", NULL};
    static const int none = 0;
    int form;
    ls_field_choice(fields, "approximate", forms, &none, &form);
    layer->op.kind = form ? LS_OP_GELU_TANH : LS_OP_GELU;
}

/* Models for the gradient check: both forms. */
static const struct ls_layer_sample gelu_samples[] = {
    SAMPLE_OF_VECTORS("gelu", ""),
    SAMPLE_OF_IMAGES("gelu", ""),
    SAMPLE_OF_VECTORS("gelu", ",\"approximate\":\"tanh\""),
    SAMPLE_OF_IMAGES("gelu", ",\"approximate\":\"tanh\""),
    {0},
};

const ls_layer_type ls_layer_gelu = {"gelu", LS_OP_GELU, parse_gelu, ls_layer_same_shape,
                                     gelu_samples};

/* ---- clip, and relu6 ------------------------------------------------------------------------- */

static void parse_relu6(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->op.u.clamp = (ls_clamp){0, 6};
}

/* Reads "min" and "max". One of them can be absent: then there is no such limit. */
static void parse_clip(ls_layer *layer, ls_fields *fields)
{
    const double none = INFINITY, none_below = -INFINITY;
    double least, most;
    const bool below =
        ls_field_double(fields, "min", -most_number, most_number, &none_below, &least);
    const bool above = ls_field_double(fields, "max", -most_number, most_number, &none, &most);
    if (!below && !above)
        ls_fields_fail(fields, NULL, "\"min\" and \"max\" are missing; add one of them, or both");
    if (!((float)least < (float)most))
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "max"),
                       "\"max\" must be above \"min\", which is %g", least);
    layer->op.u.clamp = (ls_clamp){(float)least, (float)most};
}

static const struct ls_layer_sample clip_samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"clip\",\"min\":-0.3,\"max\":0.4},"
     " {\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"clip\",\"min\":-0.5},{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},"
     " {\"type\":\"clip\",\"max\":0.25},{\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_relu6 = {"relu6", LS_OP_CLAMP, parse_relu6, ls_layer_same_shape,
                                      relu6_samples};
const ls_layer_type ls_layer_clip = {"clip", LS_OP_CLAMP, parse_clip, ls_layer_same_shape,
                                     clip_samples};

/* ---- affine ---------------------------------------------------------------------------------- */

static void parse_affine(ls_layer *layer, ls_fields *fields)
{
    layer->op.u.affine = (ls_affine){
        .slope = ls_read_float(fields, "slope", -most_number, most_number, 1),
        .offset = ls_read_float(fields, "offset", -most_number, most_number, 0),
    };
}

static const struct ls_layer_sample affine_samples[] = {
    {"[{\"type\":\"affine\",\"slope\":-1.5,\"offset\":0.25},{\"type\":\"dense\",\"out\":9},"
     " {\"type\":\"tanh\"},{\"type\":\"affine\",\"slope\":2},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":18,\"kernel\":2},{\"type\":\"affine\",\"offset\":-0.5},"
     " {\"type\":\"relu\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 5, 5}},
    {0},
};

const ls_layer_type ls_layer_affine = {"affine", LS_OP_AFFINE, parse_affine, ls_layer_same_shape,
                                       affine_samples};
