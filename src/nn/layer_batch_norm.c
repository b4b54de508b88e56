/* SPDX-License-Identifier: MIT */
/* {"type": "batch_norm", "epsilon": 1e-5, "momentum": 0.1}
 *
 * In training, each channel is normalised to mean 0 and variance 1 over the rows and pixels of a
 * shard, then scaled and shifted. In evaluation, the layer uses the running statistics instead of
 * the shard's mean and variance. Running statistics are moving averages over the steps, in which
 * the statistics of one step have the weight `momentum`. The statistics of a step are the average
 * of the statistics of its shards, weighted by the shards' numbers of rows. */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    layer->op.u.batchnorm.epsilon = ls_read_float(fields, "epsilon", 1e-12, 1, 1e-5);
    layer->momentum = ls_read_float(fields, "momentum", 0, 1, 0.1);
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_shape channels = {layer->in.c, 1, 1};
    int status = ls_layer_wants_image(layer, err);
    if (status != LS_OK)
        return status;
    layer->out = layer->in;
    layer->param[0] = ls_layer_filled(&channels, LS_START_ONES);
    layer->param[1] = ls_layer_filled(&channels, LS_START_ZEROS);
    layer->params = 2;
    layer->stat[0] = ls_layer_filled(&channels, LS_START_ZEROS);
    layer->stat[1] = ls_layer_filled(&channels, LS_START_ONES);
    layer->stats = LS_STATS;
    return LS_OK;
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"dense\",\"out\":9},{\"type\":\"batch_norm\"},{\"type\":\"dense\",\"out\":3}]",
     {6, 1, 1}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2},{\"type\":\"batch_norm\",\"epsilon\":0.01},"
     " {\"type\":\"relu\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[3,4]}]",
     {2, 4, 5}},
    {"[{\"type\":\"batch_norm\"},{\"type\":\"conv2d\",\"name\":\"a\",\"out\":18,\"kernel\":1},"
     " {\"type\":\"conv2d\",\"out\":18,\"kernel\":3,\"padding\":1},{\"type\":\"batch_norm\"},"
     " {\"type\":\"add\",\"with\":\"a\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
     " {\"type\":\"dense\",\"out\":3}]",
     {3, 4, 4}},
    {0},
};

const ls_layer_type ls_layer_batch_norm = {"batch_norm", LS_OP_BATCHNORM, parse, shape, samples};
