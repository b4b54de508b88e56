/* SPDX-License-Identifier: MIT */
/* {"type": "conv2d", "out": 20, "kernel": 3 | [3, 3], "stride": 1, "padding": 0, "dilation": 1,
 * "groups": 1, "bias": true} */
#include "nn/layer.h"

/* Pools accept four numbers; for a convolution the message names the layer that has them. */
static void refuse_sides(ls_fields *fields)
{
    const cJSON *padding = ls_field_any(fields, "padding");
    if (cJSON_IsArray(padding) && cJSON_GetArraySize(padding) == 4)
        ls_fields_fail(
            fields, padding,
            "\"padding\" is the same at the top and bottom, and at the left and right; put "
            "{\"type\": \"pad\", \"padding\": [top, left, bottom, right]} before the "
            "convolution");
}

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const long one = 1;
    static const int bias = 1;
    ls_conv2d *conv = &layer->op.u.conv2d;
    ls_window w;
    long groups;
    conv->out = ls_read_out(layer, fields);
    refuse_sides(fields);
    ls_field_pair(fields, "dilation", 1, LS_MAX_STRIDE, &one, w.d);
    ls_window_parse(&w, fields, &one);
    ls_field_int(fields, "groups", 1, LS_MAX_FEATURES, &one, &groups);
    ls_field_bool(fields, "bias", &bias, &conv->bias);
    conv->groups = (int)groups;
    conv->dh = w.d[0], conv->dw = w.d[1];
    conv->kh = w.k[0], conv->kw = w.k[1];
    conv->sh = w.s[0], conv->sw = w.s[1];
    conv->ph = w.p[0], conv->pw = w.p[1];
}

static int greatest_divisor(int a, int b)
{
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int check_groups(const ls_layer *layer, ls_error *err)
{
    const ls_conv2d *conv = &layer->op.u.conv2d;
    const int most = greatest_divisor(layer->in.c, conv->out);
    if (most % conv->groups == 0)
        return LS_OK;
    return ls_fail(err, LS_ECONFIG,
                   "%d groups do not divide both its input's channels (%d) and its outputs (%d); "
                   "use %s%d",
                   conv->groups, layer->in.c, conv->out, most > 1 ? "a divisor of " : "", most);
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_conv2d *conv = &layer->op.u.conv2d;
    const ls_window w = {.k = {conv->kh, conv->kw},
                         .s = {conv->sh, conv->sw},
                         .p = {conv->ph, conv->pw},
                         .d = {conv->dh, conv->dw},
                         .end = {conv->ph, conv->pw}};
    const int dim[4] = {conv->out, layer->in.c / conv->groups, conv->kh, conv->kw};
    int status = ls_layer_wants_image(layer, err);
    if (status == LS_OK)
        status = check_groups(layer, err);
    if (status == LS_OK)
        status = ls_window_shape(&layer->out, &layer->in, &w, err);
    if (status != LS_OK)
        return status;
    layer->out.c = conv->out;
    return ls_layer_add_params(layer, 4, dim, conv->bias, err);
}

static const struct ls_layer_sample samples[] = {
    {"[{\"type\":\"conv2d\",\"out\":3,\"kernel\":[4,5]}]", {2, 4, 5}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":3},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":[4,3],\"bias\":false}]",
     {1, 6, 5}},
    {"[{\"type\":\"conv2d\",\"out\":2,\"kernel\":3,\"padding\":1},"
     " {\"type\":\"conv2d\",\"out\":5,\"kernel\":[3,2],\"stride\":[2,1],\"padding\":[1,0]},"
     " {\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
     {3, 5, 4}},
    {"[{\"type\":\"conv2d\",\"out\":18,\"kernel\":1},{\"type\":\"relu\"},"
     " {\"type\":\"conv2d\",\"out\":17,\"kernel\":3,\"stride\":2,\"padding\":2},"
     " {\"type\":\"relu\"},{\"type\":\"avg_pool\",\"kernel\":2},"
     " {\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
     {2, 6, 7}},
    {"[{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"dilation\":2,\"padding\":2},"
     " {\"type\":\"conv2d\",\"out\":3,\"kernel\":[4,2],\"dilation\":[1,3]}]",
     {2, 4, 4}},
    {"[{\"type\":\"conv2d\",\"out\":6,\"kernel\":2,\"groups\":2},{\"type\":\"relu\"},"
     " {\"type\":\"conv2d\",\"out\":6,\"kernel\":3,\"groups\":6,\"padding\":1,\"bias\":false},"
     " {\"type\":\"batch_norm\"},{\"type\":\"conv2d\",\"out\":3,\"kernel\":[3,4],\"groups\":3}]",
     {4, 4, 5}},
    {0},
};

const ls_layer_type ls_layer_conv2d = {"conv2d", LS_OP_CONV2D, parse, shape, samples};
