/* SPDX-License-Identifier: MIT */
/* Operators that become layers: convolutions, products, pools, concatenations. */
#include "onnx/importer.h"

#include "base/error.h"

#include <limits.h>
#include <math.h>
#include <string.h>

int ls_import_need(const ls_import *g, const ls_onnx_node *n, int i, ls_import_value **out)
{
    *out = ls_import_input(g, n, i);
    return *out ? LS_OK : ls_import_fail(g, n, LS_EDATA, "expected an input %d", i);
}

int ls_import_need_constant(ls_import *g, const ls_onnx_node *n, int i, ls_import_value **out)
{
    *out = ls_import_input(g, n, i);
    if (!*out)
        return LS_OK;
    if ((*out)->kind != LS_VALUE_CONSTANT)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its input %d depends on the rows, or is an input of the graph; "
                              "weights that are constants are read",
                              i);
    return ls_import_decode(g, *out);
}

int ls_import_need_weights(ls_import *g, const ls_onnx_node *n, ls_import_value **x,
                           ls_import_value **weight, ls_import_value **bias)
{
    int status = ls_import_need(g, n, 0, x);
    if (status == LS_OK)
        status = ls_import_need(g, n, 1, weight);
    if (status == LS_OK)
        status = ls_import_need_constant(g, n, 1, weight);
    return status ? status : ls_import_need_constant(g, n, 2, bias);
}

void ls_import_give_layer(ls_import *g, const ls_onnx_node *n, int layer, int rank)
{
    const ls_shape s = ls_import_shape(g, layer);
    const ls_import_value v = {
        .rank = rank, .dim = {LS_ONNX_BATCH, s.c, s.h, s.w}, .layer = layer, .uses = 0};
    ls_import_give(g, n, &v);
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct window {
    int64_t k[2], s[2], d[2], pad[4]; /* pad: top, left, bottom, right */
    bool ceil;
} window;

/* Reads a list of two numbers from `least` to 255, or leaves *out as it is. */
static int read_pair(const ls_import *g, const ls_onnx_node *n, const char *name, int64_t out[2])
{
    int64_t list[2];
    if (!ls_import_has(g, n, name))
        return LS_OK;
    if (ls_import_ints(g, n, name, list, 2) != 2)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"%s\": two numbers are read (windows over images)", name);
    for (int i = 0; i < 2; i++) {
        if (list[i] < 1 || list[i] > 255)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "attribute \"%s\": numbers from 1 to 255 are read", name);
        out[i] = list[i];
    }
    return LS_OK;
}

/* Computes the padding of auto_pad for a side of `n` pixels. */
static void pad_same(window *w, int side, int64_t n, bool upper)
{
    const int64_t windows = (n + w->s[side] - 1) / w->s[side];
    int64_t all = (windows - 1) * w->s[side] + (w->k[side] - 1) * w->d[side] + 1 - n;
    all = all < 0 ? 0 : all;
    w->pad[side] = upper ? all / 2 : all - all / 2;
    w->pad[2 + side] = all - w->pad[side];
}

static int read_pads(const ls_import *g, const ls_onnx_node *n, window *w, const ls_shape *in)
{
    const ls_onnx_text way = ls_import_text(g, n, "auto_pad");
    const bool upper = ls_onnx_is(way, "SAME_UPPER"), lower = ls_onnx_is(way, "SAME_LOWER");
    if (upper || lower) {
        pad_same(w, 0, in->h, upper);
        pad_same(w, 1, in->w, upper);
        return LS_OK;
    }
    if (way.length && !ls_onnx_is(way, "NOTSET") && !ls_onnx_is(way, "VALID"))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"auto_pad\": NOTSET, VALID, SAME_UPPER and SAME_LOWER "
                              "are read");
    if (ls_onnx_is(way, "VALID") || !ls_import_has(g, n, "pads"))
        return LS_OK;
    if (ls_import_ints(g, n, "pads", w->pad, 4) != 4)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"pads\": four numbers are read");
    for (int i = 0; i < 4; i++)
        if (w->pad[i] < 0 || w->pad[i] > 254)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "attribute \"pads\": numbers from 0 to 254 are read");
    return LS_OK;
}

/* Reads the attributes of a window. w->k: the kernel's size if the node does not say it, or 0.
 * `pad`: zeros that a Pad node has put around the image. */
static int read_window(const ls_import *g, const ls_onnx_node *n, window *w, const ls_shape *in,
                       const int pad[4])
{
    *w = (window){.k = {w->k[0], w->k[1]}, .s = {1, 1}, .d = {1, 1}};
    int status = read_pair(g, n, "kernel_shape", w->k);
    if (status == LS_OK)
        status = read_pair(g, n, "strides", w->s);
    if (status == LS_OK)
        status = read_pair(g, n, "dilations", w->d);
    const ls_shape padded = {in->c, in->h + pad[0] + pad[2], in->w + pad[1] + pad[3]};
    if (status == LS_OK && !w->k[0])
        return ls_import_fail(g, n, LS_EDATA, "expected the attribute \"kernel_shape\"");
    if (status == LS_OK)
        status = read_pads(g, n, w, &padded);
    for (int i = 0; i < 4; i++)
        w->pad[i] += pad[i];
    w->ceil = ls_import_int(g, n, "ceil_mode", 0) != 0;
    return status;
}

/* Returns whether the padding is smaller than the window, as layers need it. */
static bool is_small(const window *w)
{
    bool small = true;
    for (int i = 0; i < 4; i++)
        small &= w->pad[i] <= (w->k[i % 2] - 1) * w->d[i % 2];
    return small;
}

/* Computes the shape of the output of a window, as ONNX does. */
static int shape_window(const ls_import *g, const ls_onnx_node *n, const window *w, ls_shape *s)
{
    const ls_shape in = *s;
    int *const side[2] = {&s->h, &s->w};
    for (int i = 0; i < 2; i++) {
        const int windows = ls_windows(*side[i], (int)((w->k[i] - 1) * w->d[i] + 1), (int)w->s[i],
                                       (int)w->pad[i], (int)w->pad[2 + i], w->ceil);
        if (windows < 1)
            return ls_import_fail(g, n, LS_EDATA,
                                  "its window does not fit its input of %d×%d×%d; set "
                                  "model.input to larger rows, if the file leaves their size open",
                                  in.c, in.h, in.w);
        *side[i] = windows;
    }
    return LS_OK;
}

static void put_pair(ls_import *g, const char *key, const int64_t v[2])
{
    if (v[0] == v[1]) {
        ls_json_put_int(&g->json, key, v[0]);
        return;
    }
    ls_json_open_array(&g->json, key);
    ls_json_put_int(&g->json, NULL, v[0]);
    ls_json_put_int(&g->json, NULL, v[1]);
    ls_json_close(&g->json);
}

static void put_window(ls_import *g, const window *w)
{
    put_pair(g, "kernel", w->k);
    put_pair(g, "stride", w->s);
    if (w->pad[0] == w->pad[2] && w->pad[1] == w->pad[3]) {
        if (w->pad[0] || w->pad[1])
            put_pair(g, "padding", w->pad);
        return;
    }
    ls_json_open_array(&g->json, "padding");
    for (int i = 0; i < 4; i++)
        ls_json_put_int(&g->json, NULL, w->pad[i]);
    ls_json_close(&g->json);
}

/* Finds the image that a window reads. The output of a Pad is taken as the image and its padding.
 */
static int padded_image(ls_import *g, const ls_onnx_node *n, ls_import_value *v, int *layer,
                        ls_shape *s, int pad[4])
{
    memset(pad, 0, 4 * sizeof *pad);
    if (v->kind != LS_VALUE_ROWS || v->form != LS_FORM_PAD)
        return ls_import_image(g, n, v, layer, s);
    memcpy(pad, v->pad, 4 * sizeof *pad);
    *layer = v->layer;
    *s = ls_import_shape(g, v->layer);
    return LS_OK;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static int check_conv(const ls_import *g, const ls_onnx_node *n, const ls_import_value *weight,
                      const ls_import_value *bias, const ls_shape *s, int64_t groups)
{
    const int64_t *dim = weight->dim;
    if (weight->rank != 4)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its weights have %d dimensions; 4 are read (images)", weight->rank);
    if (groups < 1 || dim[0] < 1 || dim[0] % groups || dim[1] * groups != s->c ||
        (bias && bias->count != (size_t)dim[0]))
        return ls_import_fail(g, n, LS_EDATA,
                              "its weights, bias and \"group\" do not fit its input of %d channels",
                              s->c);
    return LS_OK;
}

/* Reads the window of a convolution. */
static int conv_window(const ls_import *g, const ls_onnx_node *n, const ls_import_value *weight,
                       const ls_shape *s, const int pad[4], window *w)
{
    const int64_t *k = weight->dim + 2;
    *w = (window){.k = {k[0], k[1]}};
    int status = LS_OK;
    if (k[0] >= 1 && k[0] <= 255 && k[1] >= 1 && k[1] <= 255)
        status = read_window(g, n, w, s, pad);
    if (status == LS_OK && (w->k[0] != k[0] || w->k[1] != k[1] || !w->s[0]))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"kernel_shape\": the shape of the weights, from 1 to "
                              "255, is read");
    return status;
}

/* Writes a `pad` layer if a convolution has no padding like it: one that differs from side to side,
 * or is not smaller than the kernel. `x`: what the convolution reads. */
static int pad_conv(ls_import *g, const ls_onnx_node *n, const ls_import_value *x, window *w,
                    int *layer, ls_shape *s)
{
    int pad[4];
    if (w->pad[0] == w->pad[2] && w->pad[1] == w->pad[3] && is_small(w))
        return LS_OK;
    for (int i = 0; i < 4; i++) {
        if (w->pad[i] > 254)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "it pads an image by %lld pixels on one side; 0 to 254 are read",
                                  (long long)w->pad[i]);
        pad[i] = (int)w->pad[i];
        w->pad[i] = 0;
    }
    int status = ls_import_put_pad(g, x->form == LS_FORM_PAD ? x->node : NULL, layer, pad);
    if (status == LS_OK)
        *s = ls_import_shape(g, *layer);
    return status;
}

/* Writes a convolution whose inputs and window have been read. `s`: the shape of its output. */
static int put_conv(ls_import *g, const ls_onnx_node *n, int layer, const window *w,
                    ls_import_value *weight, ls_import_value *bias, ls_shape s)
{
    const int64_t groups = ls_import_int(g, n, "group", 1);
    int status = ls_import_begin_layer(g, n, "conv2d", layer, weight);
    if (status)
        return status;
    s.c = (int)weight->dim[0];
    ls_json_put_int(&g->json, "out", s.c);
    put_window(g, w);
    if (w->d[0] > 1 || w->d[1] > 1)
        put_pair(g, "dilation", w->d);
    if (groups > 1)
        ls_json_put_int(&g->json, "groups", groups);
    if (!bias)
        ls_json_put_bool(&g->json, "bias", false);
    status = ls_import_add_weight(g, n, weight, false, 1, weight->count, 0);
    if (status == LS_OK && bias)
        status = ls_import_add_weight(g, n, bias, false, 1, bias->count, 0);
    if (status == LS_OK)
        ls_import_give_layer(g, n, ls_import_end_layer(g, s), 4);
    return status;
}

int ls_import_conv(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *weight, *bias;
    int layer, pad[4];
    ls_shape s;
    window w;
    int status = ls_import_need_weights(g, n, &x, &weight, &bias);
    if (status == LS_OK)
        status = padded_image(g, n, x, &layer, &s, pad);
    if (status == LS_OK)
        status = check_conv(g, n, weight, bias, &s, ls_import_int(g, n, "group", 1));
    if (status == LS_OK)
        status = conv_window(g, n, weight, &s, pad, &w);
    if (status == LS_OK)
        status = pad_conv(g, n, x, &w, &layer, &s);
    if (status == LS_OK)
        status = shape_window(g, n, &w, &s);
    return status ? status : put_conv(g, n, layer, &w, weight, bias, s);
}

int ls_import_pad(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *fill, v;
    const ls_onnx_text mode = ls_import_text(g, n, "mode");
    int64_t pads[8], axes[4];
    int count, axis_count, layer;
    ls_shape s;
    double zero = 0;
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = ls_import_list(g, n, 1, "pads", pads, 8, &count);
    if (status == LS_OK)
        status = ls_import_need_constant(g, n, 2, &fill);
    if (status == LS_OK)
        status = ls_import_list(g, n, 3, "axes", axes, 4, &axis_count);
    if (status)
        return status;
    if (fill && !ls_import_scalar(&zero, fill))
        zero = NAN;
    if (mode.length && !ls_onnx_is(mode, "constant"))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"mode\": constant is read");
    if (zero != 0 || ls_import_float(g, n, "value", 0) != 0)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "padding with zeros is read");
    if (count != 8 || axis_count >= 0 || pads[0] || pads[1] || pads[4] || pads[5])
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "eight \"pads\" that pad height and width alone are read");
    status = ls_import_image(g, n, x, &layer, &s);
    v = *x;
    for (int i = 0; i < 4 && status == LS_OK; i++) {
        const int64_t p = pads[i < 2 ? 2 + i : 4 + i];
        if (p < 0 || p > 254)
            return ls_import_fail(g, n, LS_EUNSUPPORTED, "\"pads\": 0 to 254 are read");
        v.pad[i] = (int)p;
        v.dim[2 + i % 2] += p;
    }
    if (status == LS_OK) {
        const bool none = !v.pad[0] && !v.pad[1] && !v.pad[2] && !v.pad[3];
        v.form = none ? LS_FORM_PLAIN : LS_FORM_PAD;
        ls_import_give(g, n, &v);
    }
    return status;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Writes a dense layer. `transposed`: the matrix is [in, out]. */
static int put_dense(ls_import *g, const ls_onnx_node *n, int from, ls_import_value *matrix,
                     bool transposed, double alpha, ls_import_value *bias, double beta)
{
    const int out = (int)matrix->dim[transposed ? 1 : 0];
    int status = ls_import_begin_layer(g, n, "dense", from, matrix);
    if (status)
        return status;
    ls_json_put_int(&g->json, "out", out);
    if (!bias)
        ls_json_put_bool(&g->json, "bias", false);
    status = ls_import_add_weight(g, n, matrix, transposed, alpha, matrix->count, 0);
    if (status == LS_OK && bias)
        status = ls_import_add_weight(g, n, bias, false, beta, (size_t)out, 0);
    if (status == LS_OK)
        ls_import_give_layer(g, n, ls_import_end_layer(g, (ls_shape){out, 1, 1}), 2);
    return status;
}

static int check_matrix(const ls_import *g, const ls_onnx_node *n, const ls_import_value *matrix,
                        bool transposed, int features)
{
    if (matrix->rank != 2 || matrix->dim[0] < 1 || matrix->dim[1] < 1)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "a matrix of two dimensions is read");
    if (matrix->dim[transposed ? 0 : 1] == features)
        return LS_OK;
    return ls_import_fail(g, n, LS_EDATA,
                          "its matrix of %lld×%lld does not fit rows of %d features",
                          (long long)matrix->dim[0], (long long)matrix->dim[1], features);
}

int ls_import_gemm(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *matrix, *bias;
    const bool transposed = ls_import_int(g, n, "transB", 0) == 0;
    int layer = 0, features = 0;
    int status = ls_import_need_weights(g, n, &x, &matrix, &bias);
    if (status == LS_OK && ls_import_int(g, n, "transA", 0) != 0)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"transA\": 0 is read");
    if (status == LS_OK && x->kind == LS_VALUE_ROWS && x->rank != 2)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "rows [rows, features] are read");
    if (status == LS_OK)
        status = ls_import_vector(g, n, x, &layer, &features);
    if (status == LS_OK)
        status = check_matrix(g, n, matrix, transposed, features);
    if (status)
        return status;
    const int64_t out = matrix->dim[transposed ? 1 : 0];
    if (bias && bias->count != 1 &&
        (bias->count != (size_t)out || bias->dim[bias->rank - 1] != out))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "a bias of %lld numbers is read",
                              (long long)out);
    return put_dense(g, n, layer, matrix, transposed, ls_import_float(g, n, "alpha", 1), bias,
                     ls_import_float(g, n, "beta", 1));
}

int ls_import_matmul(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *matrix, v;
    int layer = 0, features = 0;
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = ls_import_need(g, n, 1, &matrix);
    if (status == LS_OK)
        status = ls_import_need_constant(g, n, 1, &matrix);
    if (status == LS_OK && x->kind == LS_VALUE_ROWS && x->rank != 2)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "rows [rows, features] are read");
    if (status == LS_OK)
        status = ls_import_vector(g, n, x, &layer, &features);
    if (status == LS_OK)
        status = check_matrix(g, n, matrix, true, features);
    if (status)
        return status;
    v = (ls_import_value){.rank = 2,
                          .dim = {LS_ONNX_BATCH, matrix->dim[1]},
                          .layer = layer,
                          .form = LS_FORM_PRODUCT,
                          .matrix = matrix};
    ls_import_give(g, n, &v);
    return LS_OK;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static bool is_padded(const int pad[4])
{
    return pad[0] || pad[1] || pad[2] || pad[3];
}

/* Returns whether a window that begins in the zeros `pad`, which a Pad node has put at the bottom
 * or right, would not count if they were padding of the pool (ls_windows). */
static bool loses_window(const window *w, const ls_shape *s, const int pad[4])
{
    const int side[2] = {s->h, s->w};
    bool loses = false;
    for (int i = 0; i < 2; i++) {
        const int k = (int)w->k[i], by = (int)w->s[i], before = (int)w->pad[i],
                  after = (int)w->pad[2 + i];
        loses |= ls_windows(side[i], k, by, before, after, w->ceil) !=
                 ls_windows(side[i] + pad[i] + pad[2 + i], k, by, before - pad[i],
                            after - pad[2 + i], w->ceil);
    }
    return loses;
}

/* Decides what becomes of the zeros `pad` that a Pad node has put around the image `x`, on which
 * the window lies: padding of the pool, or a layer of their own. */
static int pad_pool(ls_import *g, const ls_onnx_node *n, ls_import_value *x, window *w, ls_shape *s,
                    int pad[4])
{
    const bool max = ls_onnx_is(n->op, "MaxPool");
    const bool counts = ls_import_int(g, n, "count_include_pad", 0) != 0;
    bool own = false;
    for (int i = 0; i < 4; i++)
        own |= w->pad[i] != pad[i];
    if (is_padded(pad) && (max || (own && !counts) || !is_small(w) || loses_window(w, s, pad))) {
        int status = ls_import_settle(g, n, x);
        if (status)
            return status;
        for (int i = 0; i < 4; i++)
            w->pad[i] -= pad[i], pad[i] = 0;
        *s = ls_import_shape(g, x->layer);
    }
    if (is_small(w))
        return LS_OK;
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "attribute \"pads\": padding smaller than the kernel, which is "
                          "%lld×%lld, is read",
                          (long long)w->k[0], (long long)w->k[1]);
}

static int check_pool(const ls_import *g, const ls_onnx_node *n, const window *w)
{
    if (w->d[0] != 1 || w->d[1] != 1)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"dilations\": 1 is read");
    if (ls_import_int(g, n, "storage_order", 0) != 0)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"storage_order\": 0 is read");
    return LS_OK;
}

int ls_import_pool(ls_import *g, const ls_onnx_node *n)
{
    const bool max = ls_onnx_is(n->op, "MaxPool");
    ls_import_value *x;
    int layer, pad[4];
    ls_shape s;
    window w = {.k = {0}};
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = padded_image(g, n, x, &layer, &s, pad);
    if (status == LS_OK)
        status = read_window(g, n, &w, &s, pad);
    if (status == LS_OK)
        status = check_pool(g, n, &w);
    if (status == LS_OK)
        status = pad_pool(g, n, x, &w, &s, pad);
    if (status == LS_OK)
        status = shape_window(g, n, &w, &s);
    if (status == LS_OK)
        status = ls_import_begin_layer(g, n, max ? "max_pool" : "avg_pool", x->layer, NULL);
    if (status)
        return status;
    put_window(g, &w);
    if (w.ceil)
        ls_json_put_bool(&g->json, "ceil_mode", true);
    if (!max && (is_padded(pad) || ls_import_int(g, n, "count_include_pad", 0)))
        ls_json_put_bool(&g->json, "count_include_pad", true);
    ls_import_give_layer(g, n, ls_import_end_layer(g, s), 4);
    return LS_OK;
}

int ls_import_put_mean(ls_import *g, const ls_onnx_node *n, int layer, const ls_shape *s,
                       const ls_import_value *view)
{
    int status = ls_import_begin_layer(g, n, "global_avg_pool", layer, NULL);
    if (status)
        return status;
    ls_import_value v = *view;
    v.layer = ls_import_end_layer(g, (ls_shape){s->c, 1, 1});
    ls_import_give(g, n, &v);
    return LS_OK;
}

int ls_import_global(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x;
    int layer;
    ls_shape s;
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = ls_import_image(g, n, x, &layer, &s);
    if (status)
        return status;
    const ls_import_value view = {.rank = 4, .dim = {LS_ONNX_BATCH, s.c, 1, 1}};
    if (ls_onnx_is(n->op, "GlobalAveragePool"))
        return ls_import_put_mean(g, n, layer, &s, &view);
    if (s.h > 255 || s.w > 255)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "images of up to 255×255 are read");
    status = ls_import_begin_layer(g, n, "max_pool", layer, NULL);
    if (status)
        return status;
    put_pair(g, "kernel", (const int64_t[2]){s.h, s.w});
    ls_import_give_layer(g, n, ls_import_end_layer(g, (ls_shape){s.c, 1, 1}), 4);
    return LS_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Writes the concatenation of two layers, or finds the one that was written. In a network whose
 * layers read all layers before them, each concatenation continues the one before it. */
static int put_pair_joined(ls_import *g, const ls_onnx_node *n, int first, int second, int *out)
{
    for (int i = 0; i < g->layers; i++)
        if (g->layer[i].first == first && g->layer[i].second == second) {
            *out = i;
            return LS_OK;
        }
    ls_shape s = ls_import_shape(g, first);
    const ls_shape t = ls_import_shape(g, second);
    if (s.h != t.h || s.w != t.w || s.c > (1 << 28) - t.c)
        return ls_import_fail(g, n, LS_EDATA, "its inputs have %d×%d and %d×%d pixels", s.h, s.w,
                              t.h, t.w);
    int status = ls_import_begin_layer(g, n, "concat", first, NULL);
    if (status)
        return status;
    ls_import_with(g, second);
    s.c += t.c;
    *out = ls_import_end_layer(g, s);
    g->layer[*out].first = first;
    g->layer[*out].second = second;
    return LS_OK;
}

int ls_import_concat(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x = NULL;
    int joined = 0, rank = 0, status = LS_OK;
    for (int i = 0; i < n->inputs; i++) {
        ls_import_value *v = ls_import_input(g, n, i);
        if (v && v->kind == LS_VALUE_ROWS)
            x = v;
    }
    if (!x)
        return ls_import_join(g, n);
    rank = x->rank;
    const int64_t axis = ls_import_int(g, n, "axis", 1);
    if ((axis < 0 ? axis + rank : axis) != 1 || (rank != 2 && rank != 4))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"axis\": 1 is read (channels or features)");
    for (int i = 0; i < n->inputs && status == LS_OK; i++) {
        int layer = 0, features;
        ls_shape s;
        status = ls_import_need(g, n, i, &x);
        if (status == LS_OK && x->kind == LS_VALUE_ROWS && x->rank != rank)
            return ls_import_fail(g, n, LS_EDATA, "its inputs have unlike numbers of dimensions");
        if (status == LS_OK)
            status = rank == 2 ? ls_import_vector(g, n, x, &layer, &features)
                               : ls_import_image(g, n, x, &layer, &s);
        if (status == LS_OK && i > 0)
            status = put_pair_joined(g, n, joined, layer, &layer);
        joined = layer;
    }
    if (status == LS_OK)
        ls_import_give_layer(g, n, joined, rank);
    return status;
}

/* Finds the factors of a Resize: from its input "scales" or "sizes". */
static int read_scales(ls_import *g, const ls_onnx_node *n, const ls_shape *s, int64_t by[2])
{
    ls_import_value *scales;
    int64_t sizes[4];
    int count;
    int status = ls_import_need_constant(g, n, 2, &scales);
    if (status == LS_OK)
        status = ls_import_list(g, n, 3, "sizes", sizes, 4, &count);
    if (status)
        return status;
    const int side[2] = {s->h, s->w};
    for (int i = 0; i < 2; i++) {
        double f = 0;
        if (scales && scales->count == 4 && ls_import_number(scales, 0) == 1 &&
            ls_import_number(scales, 1) == 1)
            f = ls_import_number(scales, (size_t)(2 + i));
        else if (count == 4 && sizes[1] == s->c)
            f = (double)sizes[2 + i] / side[i];
        if (!(f >= 1) || f > 255 || f != floor(f))
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "height and width times a whole number from 1 to 255 are read");
        by[i] = (int64_t)f;
    }
    return LS_OK;
}

int ls_import_resize(ls_import *g, const ls_onnx_node *n)
{
    const ls_onnx_text mode = ls_import_text(g, n, "mode"),
                       at = ls_import_text(g, n, "coordinate_transformation_mode"),
                       way = ls_import_text(g, n, "nearest_mode");
    const bool asymmetric = ls_onnx_is(at, "asymmetric") && ls_onnx_is(way, "floor");
    const bool half =
        (!at.length || ls_onnx_is(at, "half_pixel") || ls_onnx_is(at, "pytorch_half_pixel")) &&
        (!way.length || ls_onnx_is(way, "round_prefer_floor") ||
         ls_onnx_is(way, "round_prefer_ceil"));
    ls_import_value *x;
    int64_t by[2];
    int layer;
    ls_shape s;
    if (mode.length && !ls_onnx_is(mode, "nearest"))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"mode\": nearest is read");
    const ls_onnx_text policy = ls_import_text(g, n, "keep_aspect_ratio_policy");
    if (policy.length && !ls_onnx_is(policy, "stretch"))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"keep_aspect_ratio_policy\": stretch is read");
    if (!asymmetric && !half)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"coordinate_transformation_mode\": asymmetric with "
                              "\"nearest_mode\" floor, and half_pixel with round_prefer_floor, "
                              "are read");
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = ls_import_image(g, n, x, &layer, &s);
    if (status == LS_OK)
        status = read_scales(g, n, &s, by);
    if (status == LS_OK && (s.h > INT_MAX / by[0] || s.w > INT_MAX / by[1]))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "its output is too large");
    if (status == LS_OK)
        status = ls_import_begin_layer(g, n, "upsample", layer, NULL);
    if (status)
        return status;
    put_pair(g, "scale", by);
    s.h *= (int)by[0], s.w *= (int)by[1];
    ls_import_give_layer(g, n, ls_import_end_layer(g, s), 4);
    return LS_OK;
}

int ls_import_softmax(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x;
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK)
        status = ls_import_settle(g, n, x);
    if (status)
        return status;
    int64_t axis = ls_import_int(g, n, "axis", g->file.opset < 13 ? 1 : -1);
    axis = axis < 0 ? axis + x->rank : axis;
    bool rest = x->rank >= 2 && axis == 1;
    for (int i = 2; i < x->rank; i++)
        rest &= x->dim[i] == 1;
    if (!rest)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"axis\": the classes, which are axis 1 of [rows, "
                              "classes], are read");
    ls_import_value v = *x;
    v.form = LS_FORM_SOFTMAX;
    ls_import_give(g, n, &v);
    return LS_OK;
}
