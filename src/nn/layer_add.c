/* SPDX-License-Identifier: MIT */
/* {"type": "add", "with": "name"} adds the output of the layer before it (or of the layer "from")
 * and the output of the layer "name". {"type": "concat", "with": "name"} concatenates the channels
 * of these two outputs; the channels of the layer "name" come last. {"type": "multiply", "with":
 * "name"} multiplies them; one of them can have one value for each channel instead of an image. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    (void)fields;
    layer->inputs = 2;
}

/* Models for the gradient check: a shortcut; two branches, where the output of one branch is added
 * to itself; a model whose input is read three times. */
static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"name\":\"a\",\"out\":5},{\"type\":\"dense\",\"out\":5},"
     " {\"type\":\"add\",\"with\":\"a\"},{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"name\":\"stem\",\"out\":4,\"kernel\":2},"
     " {\"type\":\"conv2d\",\"name\":\"left\",\"out\":5,\"kernel\":3,\"padding\":1},"
     " {\"type\":\"add\",\"name\":\"twice\",\"with\":\"left\"},"
     " {\"type\":\"conv2d\",\"out\":5,\"kernel\":1,\"from\":\"stem\"},{\"type\":\"relu\"},"
     " {\"type\":\"add\",\"with\":\"twice\"},{\"type\":\"flatten\"},"
     "{\"type\":\"dense\",\"out\":3}]",
     {2, 4, 4}},
    {"[{\"type\":\"conv2d\",\"out\":2,\"kernel\":3,\"padding\":1},"
     "{\"type\":\"add\",\"with\":\"input\"},"
     " {\"type\":\"add\",\"with\":\"input\"},{\"type\":\"relu\",\"name\":\"r\"},"
     " {\"type\":\"conv2d\",\"out\":2,\"kernel\":1},{\"type\":\"add\",\"with\":\"r\"},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_add = {"add", LS_OP_ADD, parse, ls_layer_same_shape, samples};

static int shape_of_both(ls_layer *layer, ls_error *err)
{
    (void)err;
    layer->out = layer->in;
    layer->out.c += layer->in2.c;
    return LS_OK;
}

/* Models for the gradient check: two concatenated vectors; the skip connection of a U-Net; branches
 * whose outputs are concatenated, flattened, and concatenated with themselves. */
static const struct ls_layer_sample concat_samples[] = {
    {"[{\"type\":\"dense\",\"name\":\"a\",\"out\":5},{\"type\":\"tanh\"},"
     " {\"type\":\"concat\",\"with\":\"input\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"name\":\"skip\",\"out\":5,\"kernel\":3,\"padding\":1},"
     " {\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"conv2d\",\"out\":18,\"kernel\":1},"
     " {\"type\":\"upsample\"},{\"type\":\"concat\",\"with\":\"skip\"},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":4}]",
     {2, 4, 4}},
    {"[{\"type\":\"conv2d\",\"name\":\"l\",\"out\":3,\"kernel\":2},"
     " {\"type\":\"conv2d\",\"name\":\"m\",\"out\":2,\"kernel\":2,\"from\":\"input\"},"
     " {\"type\":\"concat\",\"name\":\"lm\",\"with\":\"l\"},{\"type\":\"concat\",\"with\":\"lm\"},"
     " {\"type\":\"flatten\",\"name\":\"flat\"},{\"type\":\"concat\",\"with\":\"flat\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {2, 3, 4}},
    {0},
};

const ls_layer_type ls_layer_concat = {"concat", LS_OP_CONCAT, parse, shape_of_both,
                                       concat_samples};

/* Sets the shape of a product. If only one input has one value for each channel (h = w = 1), it
 * becomes the second input. */
static int shape_of_product(ls_layer *layer, ls_error *err)
{
    const ls_shape in = layer->in, in2 = layer->in2;
    if (in.h == in2.h && in.w == in2.w)
        return ls_layer_same_shape(layer, err);
    if (in.h == 1 && in.w == 1) {
        const int first = layer->input[0];
        layer->input[0] = layer->input[1];
        layer->input[1] = first;
        layer->in = in2;
        layer->in2 = in;
    }
    layer->out = layer->in;
    return LS_OK;
}

/* Models for the gradient check: gates of a vector; a block of squeeze and excitation, with its
 * factors as the second and as the first input; a product of two images; a square. */
static const struct ls_layer_sample product_samples[] = {
    {"[{\"type\":\"dense\",\"name\":\"a\",\"out\":5},"
     " {\"type\":\"dense\",\"out\":5,\"from\":\"input\"},{\"type\":\"sigmoid\"},"
     " {\"type\":\"multiply\",\"with\":\"a\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"name\":\"a\",\"out\":18,\"kernel\":2},"
     " {\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":4},{\"type\":\"silu\"},"
     " {\"type\":\"dense\",\"out\":18},{\"type\":\"sigmoid\",\"name\":\"s\"},"
     " {\"type\":\"multiply\",\"with\":\"a\"},{\"type\":\"tanh\"},"
     " {\"type\":\"multiply\",\"with\":\"s\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[3,4]}]",
     {2, 4, 5}},
    {"[{\"type\":\"conv2d\",\"name\":\"l\",\"out\":3,\"kernel\":2},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":2,\"from\":\"input\"},"
     " {\"type\":\"multiply\",\"name\":\"p\",\"with\":\"l\"},"
     "{\"type\":\"multiply\",\"with\":\"p\"},"
     " {\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
     {2, 3, 4}},
    {0},
};

const ls_layer_type ls_layer_multiply = {"multiply", LS_OP_MULTIPLY, parse, shape_of_product,
                                         product_samples};
