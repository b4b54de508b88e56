#include "nn/layer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void ls_window_parse(ls_window *out, ls_fields *fields, const long *stride)
{
    static const long zero = 0;
    static const long one = 1;
    ls_field_pair(fields, "kernel", 1, LS_MAX_KERNEL, NULL, out->k);
    int given = ls_field_pair(fields, "stride", 1, LS_MAX_STRIDE, stride ? stride : &one, out->s);
    if (!given && !stride)
        memcpy(out->s, out->k, sizeof out->s);
    ls_field_pair(fields, "padding", 0, LS_MAX_KERNEL - 1, &zero, out->p);
    for (int i = 0; i < 2; i++)
        if (out->k[i] > 0 && out->p[i] >= out->k[i])
            ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "padding"),
                           "padding %d must be smaller than the kernel, which is %d", out->p[i],
                           out->k[i]);
}

/* The least padding with which a window of k fits n pixels. */
static int padding_for(int k, int n)
{
    return k > n ? (k - n + 1) / 2 : 0;
}

static int fail_window(const int k[2], const int n[2], ls_error *err)
{
    const int p[2] = {padding_for(k[0], n[0]), padding_for(k[1], n[1])};
    char padding[32];
    snprintf(padding, sizeof padding, p[0] == p[1] ? "%d" : "[%d, %d]", p[0], p[1]);
    return ls_fail(
        err, LS_ECONFIG,
        "kernel %d×%d does not fit its %d×%d input; use a smaller kernel or padding ≥ %s", k[0],
        k[1], n[0], n[1], padding);
}

int ls_window_shape(ls_shape *out, const ls_shape *in, const ls_window *window, ls_error *err)
{
    const int n[2] = {in->h, in->w};
    const int *k = window->k;
    int size[2];
    int fits = 1;
    for (int i = 0; i < 2; i++) {
        int room = n[i] + 2 * window->p[i] - k[i];
        fits = fits && room >= 0;
        size[i] = room / window->s[i] + 1;
    }
    if (!fits)
        return fail_window(k, n, err);
    out->h = size[0];
    out->w = size[1];
    return LS_OK;
}

int ls_layer_wants_image(const ls_layer *layer, ls_error *err)
{
    if (!layer->flat)
        return LS_OK;
    return ls_fail(err, LS_ECONFIG,
                   "expected an image, but its input of %d features was flattened; remove the "
                   "flatten layer before it",
                   layer->in.c);
}

int ls_layer_add_params(ls_layer *layer, int rank, const int dim[4], int bias, ls_error *err)
{
    assert(layer->params == 0);
    ls_param *weight = &layer->param[0];
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= (size_t)dim[i]; /* at most 2³¹ · 2²⁸ */
        if (count > LS_MODEL_FLOATS)
            return ls_fail(err, LS_ECONFIG,
                           "its weight has more than %u numbers; use fewer features",
                           LS_MODEL_FLOATS);
        weight->dim[i] = dim[i];
    }
    weight->rank = rank;
    weight->count = count;
    weight->fan_in = (int)(count / (size_t)dim[0]);
    weight->fan_out = (int)(count / (size_t)dim[1]);
    layer->params = 1;
    if (bias) {
        layer->param[1] = (ls_param){.rank = 1,
                                     .dim = {dim[0]},
                                     .count = (size_t)dim[0],
                                     .start = LS_START_ZEROS,
                                     .fan_in = weight->fan_in,
                                     .fan_out = dim[0]};
        layer->params = 2;
    }
    return LS_OK;
}

int ls_layer_same_shape(ls_layer *layer, ls_error *err)
{
    (void)err;
    layer->out = layer->in;
    return LS_OK;
}
