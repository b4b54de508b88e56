/* {"type": "conv2d", "out": 20, "kernel": 3 | [3, 3], "stride": 1, "padding": 0, "bias": true} */
#include "nn/layer.h"

static void parse(ls_layer *layer, ls_fields *fields)
{
    static const long stride = 1;
    static const int bias = 1;
    ls_conv2d *conv = &layer->op.u.conv2d;
    ls_window w;
    long out;
    layer->op.kind = LS_OP_CONV2D;
    ls_field_int(fields, "out", 1, LS_MAX_FEATURES, NULL, &out);
    ls_window_parse(&w, fields, &stride);
    ls_field_bool(fields, "bias", &bias, &conv->bias);
    conv->out = (int)out;
    conv->kh = w.k[0], conv->kw = w.k[1];
    conv->sh = w.s[0], conv->sw = w.s[1];
    conv->ph = w.p[0], conv->pw = w.p[1];
}

static int shape(ls_layer *layer, ls_error *err)
{
    const ls_conv2d *conv = &layer->op.u.conv2d;
    const ls_window w = {{conv->kh, conv->kw}, {conv->sh, conv->sw}, {conv->ph, conv->pw}};
    const int dim[4] = {conv->out, layer->in.c, conv->kh, conv->kw};
    int status = ls_layer_wants_image(layer, err);
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
    {0},
};

const ls_layer_type ls_layer_conv2d = {"conv2d", parse, shape, samples};
