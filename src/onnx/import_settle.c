/* SPDX-License-Identifier: MIT */
/* Settling: the layers that compute the formula of a value (ls_form), and the layer of a value that
 * must be an image or a vector. */
#include "onnx/importer.h"

#include <math.h>

/* Largest limit, slope and offset of clip and affine. */
static const double MOST_NUMBER = 1e30;

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 2e-6 * (fabs(b) > 1e-3 ? fabs(b) : 1);
}

/* ---- settling -------------------------------------------------------------------------------- */

void ls_import_end_same(ls_import *g, ls_import_value *v)
{
    v->layer = ls_import_end_layer(g, ls_import_shape(g, v->layer));
    v->form = LS_FORM_PLAIN;
}

static int put_plain(ls_import *g, ls_import_value *v, const char *type)
{
    int status = ls_import_begin_layer(g, v->node, type, v->layer, NULL);
    if (status == LS_OK)
        ls_import_end_same(g, v);
    return status;
}

int ls_import_put_scale(ls_import *g, ls_import_value *v, ls_import_value *scale, double p,
                        ls_import_value *shift, double q)
{
    const ls_shape shape = ls_import_shape(g, v->layer);
    const size_t channels = (size_t)shape.c;
    int status = ls_import_begin_layer(g, v->node, "conv2d", v->layer, NULL);
    if (status)
        return status;
    ls_json_put_int(&g->json, "out", shape.c);
    ls_json_put_int(&g->json, "kernel", 1);
    ls_json_put_int(&g->json, "groups", shape.c);
    status = ls_import_add_weight(g, v->node, scale, false, scale ? p : 1, channels, (float)p);
    if (status == LS_OK)
        status = ls_import_add_weight(g, v->node, shift, false, shift ? q : 1, channels, (float)q);
    if (status == LS_OK)
        ls_import_end_same(g, v);
    return status;
}

/* Writes the layer p·x + q, if it is not x. The file of a user's model has the layer in any case.
 */
static int put_affine(ls_import *g, ls_import_value *v, double p, double q)
{
    if ((float)p == 1 && q == 0 && !g->own) {
        v->form = LS_FORM_PLAIN;
        return LS_OK;
    }
    if (!(fabs(p) <= MOST_NUMBER) || !(fabs(q) <= MOST_NUMBER))
        return ls_import_fail(g, v->node, LS_EUNSUPPORTED,
                              "its constants amount to %g·x + %g; numbers up to %g are read", p, q,
                              MOST_NUMBER);
    int status = ls_import_begin_layer(g, v->node, "affine", v->layer, NULL);
    if (status)
        return status;
    if ((float)p != 1)
        ls_json_put_float(&g->json, "slope", (float)p);
    if ((float)q != 0)
        ls_json_put_float(&g->json, "offset", (float)q);
    ls_import_end_same(g, v);
    return LS_OK;
}

/* Writes the layer s·x that ends a formula, if s is not 1. */
static int put_factor(ls_import *g, ls_import_value *v, double s)
{
    return is_near(s, 1) ? LS_OK : put_affine(g, v, s, 0);
}

int ls_import_put_hard_sigmoid(ls_import *g, ls_import_value *v, double slope, double offset)
{
    int status = ls_import_begin_layer(g, v->node, "hard_sigmoid", v->layer, NULL);
    if (status)
        return status;
    if ((float)slope != 1.0f / 6)
        ls_json_put_float(&g->json, "slope", (float)slope);
    if ((float)offset != 0.5f)
        ls_json_put_float(&g->json, "offset", (float)offset);
    ls_import_end_same(g, v);
    return LS_OK;
}

/* Writes an `add` or a `multiply` of the value and the output of another layer. */
static int put_with(ls_import *g, ls_import_value *v, const char *type, int with)
{
    int status = ls_import_begin_layer(g, v->node, type, v->layer, NULL);
    if (status)
        return status;
    ls_import_with(g, with);
    ls_import_end_same(g, v);
    return LS_OK;
}

/* Writes min(max(x, lo), hi). The derivative of relu and of a clip from 0 without an upper limit is
 * the same. */
static int put_clip(ls_import *g, ls_import_value *v, double lo, double hi)
{
    const double limit[2] = {lo, hi};
    static const char *const name[2] = {"min", "max"};
    if (lo == 0 && hi == 6)
        return put_plain(g, v, "relu6");
    if (lo == 0 && hi == INFINITY && !g->own)
        return put_plain(g, v, "relu");
    if (lo == -INFINITY && hi == INFINITY)
        return LS_OK;
    if (!((float)lo < (float)hi) || (fabs(lo) > MOST_NUMBER && lo != -INFINITY) ||
        (fabs(hi) > MOST_NUMBER && hi != INFINITY))
        return ls_import_fail(g, v->node, LS_EUNSUPPORTED,
                              "its limits are %g and %g; a lower limit below the upper one, both "
                              "from %g to %g, are read",
                              lo, hi, -MOST_NUMBER, MOST_NUMBER);
    int status = ls_import_begin_layer(g, v->node, "clip", v->layer, NULL);
    if (status)
        return status;
    for (int i = 0; i < 2; i++)
        if (isfinite(limit[i]))
            ls_json_put_float(&g->json, name[i], (float)limit[i]);
    ls_import_end_same(g, v);
    return LS_OK;
}

/* Settles s·min(max(p·x + q, lo), hi): a hard_sigmoid if its values are 0 to 1, else a clip. */
static int settle_clip(ls_import *g, ls_import_value *v)
{
    const double p = v->p, q = v->q, lo = v->lo, hi = v->hi, s = v->s;
    const bool same = (float)p == 1 && q == 0;
    /* s·min(max(p·x + q, 0), hi) = s·hi·min(max((p·x + q) / hi, 0), 1) */
    if (!same && lo == 0 && p > 0 && isfinite(hi) && is_near(s * hi, 1) && p / hi <= 16 &&
        fabs(q / hi) <= 16)
        return ls_import_put_hard_sigmoid(g, v, p / hi, q / hi);
    int status = same ? LS_OK : put_affine(g, v, p, q);
    if (status == LS_OK)
        status = put_clip(g, v, lo, hi);
    v->form = LS_FORM_PLAIN;
    return status ? status : put_factor(g, v, s);
}

/* Settles x·s·min(max(p·x + q, lo), hi): hard_swish, or a product. */
static int settle_swish(ls_import *g, ls_import_value *v)
{
    const int x = v->layer;
    const double s = v->s, hi = v->hi;
    int status;
    if (v->lo == 0 && hi > 0 && isfinite(hi) && is_near(v->p / hi, 1.0 / 6) &&
        is_near(v->q / hi, 0.5)) {
        status = put_plain(g, v, "hard_swish");
        return status ? status : put_factor(g, v, s * hi);
    }
    status = settle_clip(g, v);
    return status ? status : put_with(g, v, "multiply", x);
}

int ls_import_put_gelu(ls_import *g, ls_import_value *v, bool approximate)
{
    int status = ls_import_begin_layer(g, v->node, "gelu", v->layer, NULL);
    if (status)
        return status;
    if (approximate)
        ls_json_put_string(&g->json, "approximate", "tanh");
    ls_import_end_same(g, v);
    return LS_OK;
}

static int settle_gelu(ls_import *g, ls_import_value *v)
{
    if (!is_near(v->p, 0.70710678) || !is_near(v->q, 1) || v->form == LS_FORM_ERF)
        return ls_import_fail(g, v->node, LS_EUNSUPPORTED,
                              "Erf is read as a part of Gelu, x·(1 + erf(x/√2))/2");
    const double s = v->s;
    int status = ls_import_put_gelu(g, v, false);
    return status ? status : put_factor(g, v, 2 * s);
}

/* Settles t·x² + q or t·x³ + p·x + q. */
static int settle_power(ls_import *g, ls_import_value *v)
{
    const bool cube = v->form == LS_FORM_CUBE;
    const double t = v->t, p = cube ? v->p : 0, q = v->q;
    ls_import_value x = *v;
    int status = put_with(g, v, "multiply", x.layer);
    if (status == LS_OK && cube)
        status = put_with(g, v, "multiply", x.layer);
    if (status == LS_OK && ((float)t != 1 || q != 0))
        status = put_affine(g, v, t, q);
    if (status || p == 0)
        return status;
    status = (float)p == 1 ? LS_OK : put_affine(g, &x, p, 0);
    return status ? status : put_with(g, v, "add", x.layer);
}

/* Settles s·(tanh(t·x³ + p·x) + q), or x times it: the approximation of gelu, or its parts. */
static int settle_tanh(ls_import *g, ls_import_value *v)
{
    const double root = 0.7978845608028654; /* √(2/π) */
    const double s = v->s, q = v->q;
    const bool product = v->form == LS_FORM_GELU2;
    const int x = v->layer;
    int status;
    if (product && is_near(v->p, root) && is_near(v->t, root * 0.044715) && is_near(q, 1)) {
        status = ls_import_put_gelu(g, v, true);
        return status ? status : put_factor(g, v, 2 * s);
    }
    v->form = LS_FORM_CUBE, v->q = 0;
    status = settle_power(g, v);
    if (status == LS_OK)
        status = put_plain(g, v, "tanh");
    if (status == LS_OK)
        status = put_affine(g, v, s, s * q);
    return status == LS_OK && product ? put_with(g, v, "multiply", x) : status;
}

int ls_import_put_pad(ls_import *g, const ls_onnx_node *named, int *layer, const int pad[4])
{
    static const ls_onnx_node unnamed = {0};
    ls_shape s = ls_import_shape(g, *layer);
    int status = ls_import_begin_layer(g, named ? named : &unnamed, "pad", *layer, NULL);
    if (status)
        return status;
    ls_json_open_array(&g->json, "padding");
    for (int i = 0; i < 4; i++)
        ls_json_put_int(&g->json, NULL, pad[i]);
    ls_json_close(&g->json);
    s.h += pad[0] + pad[2], s.w += pad[1] + pad[3];
    *layer = ls_import_end_layer(g, s);
    return LS_OK;
}

int ls_import_settle_product(ls_import *g, ls_import_value *v, ls_import_value *bias)
{
    ls_import_value *matrix = v->matrix;
    const int out = (int)matrix->dim[1];
    int status = ls_import_begin_layer(g, v->node, "dense", v->layer, matrix);
    if (status)
        return status;
    ls_json_put_int(&g->json, "out", out);
    if (!bias)
        ls_json_put_bool(&g->json, "bias", false);
    status = ls_import_add_weight(g, v->node, matrix, true, 1, matrix->count, 0);
    if (status == LS_OK && bias)
        status = ls_import_add_weight(g, v->node, bias, false, 1, (size_t)out, 0);
    if (status)
        return status;
    v->layer = ls_import_end_layer(g, (ls_shape){out, 1, 1});
    v->form = LS_FORM_PLAIN;
    return LS_OK;
}

int ls_import_settle(ls_import *g, const ls_onnx_node *n, ls_import_value *v)
{
    const double s = v->s;
    int status;
    if (v->kind != LS_VALUE_ROWS)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "it reads a constant where rows are read; with weights in place of "
                              "rows it is not read");
    switch (v->form) {
    case LS_FORM_PLAIN: return LS_OK;
    case LS_FORM_AFFINE: return put_affine(g, v, v->p, v->q);
    case LS_FORM_CLIP: return settle_clip(g, v);
    case LS_FORM_SWISH: return settle_swish(g, v);
    case LS_FORM_SIGMOID:
        status = put_plain(g, v, "sigmoid");
        return status ? status : put_factor(g, v, s);
    case LS_FORM_SILU:
        status = put_plain(g, v, "silu");
        return status ? status : put_factor(g, v, s);
    case LS_FORM_ERF:
    case LS_FORM_GELU: return settle_gelu(g, v);
    case LS_FORM_SQUARE:
    case LS_FORM_CUBE: return settle_power(g, v);
    case LS_FORM_TANH:
    case LS_FORM_GELU2: return settle_tanh(g, v);
    case LS_FORM_PRODUCT: return ls_import_settle_product(g, v, NULL);
    case LS_FORM_PAD:
        status = ls_import_put_pad(g, v->node, &v->layer, v->pad);
        v->form = status ? v->form : LS_FORM_PLAIN;
        return status;
    case LS_FORM_NORM: return ls_import_settle_norm(g, v, NULL);
    case LS_FORM_MEAN:
    case LS_FORM_CENTRED:
    case LS_FORM_SQUARES:
    case LS_FORM_VARIANCE:
    case LS_FORM_DEVIATION: return ls_import_fail_norm(g, n);
    case LS_FORM_SOFTMAX: break;
    }
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it reads a Softmax, which is read as the last node of the graph");
}

/* ---- views ----------------------------------------------------------------------------------- */

static int fail_view(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v,
                     const char *wanted)
{
    const ls_shape s = ls_import_shape(g, v->layer);
    char dims[LS_ONNX_DIMS];
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it reads %d×%d×%d values of a row in the shape %s; %s is read", s.c, s.h,
                          s.w, ls_import_dims(dims, v), wanted);
}

int ls_import_image(ls_import *g, const ls_onnx_node *n, ls_import_value *v, int *layer,
                    ls_shape *shape)
{
    int status = ls_import_settle(g, n, v);
    if (status)
        return status;
    *layer = v->layer;
    *shape = ls_import_shape(g, v->layer);
    if (v->rank == 4 && v->dim[1] == shape->c && v->dim[2] == shape->h && v->dim[3] == shape->w)
        return LS_OK;
    return fail_view(g, n, v,
                     v->rank == 4 ? "an image whose channels, height and width nothing has joined, "
                                    "split or moved"
                                  : "an image [rows, channels, height, width]");
}

/* Returns the flatten layer after a layer, which is written once. */
static int flatten(ls_import *g, int layer, int *out)
{
    static const ls_onnx_node unnamed = {0};
    const ls_shape s = ls_import_shape(g, layer);
    int *flat = layer == LS_INPUT ? &g->input_flat : &g->layer[layer].flat;
    int status = LS_OK;
    *out = layer;
    if (s.h == 1 && s.w == 1)
        return LS_OK;
    if (!*flat) {
        status = ls_import_begin_layer(g, &unnamed, "flatten", layer, NULL);
        if (status == LS_OK)
            *flat = 1 + ls_import_end_layer(g, (ls_shape){s.c * s.h * s.w, 1, 1});
    }
    *out = *flat - 1;
    return status;
}

int ls_import_vector(ls_import *g, const ls_onnx_node *n, ls_import_value *v, int *layer,
                     int *features)
{
    int status = ls_import_settle(g, n, v);
    if (status)
        return status;
    const ls_shape s = ls_import_shape(g, v->layer);
    bool fits = v->rank >= 2 && v->dim[1] == (int64_t)s.c * s.h * s.w;
    for (int i = 2; i < v->rank; i++)
        fits &= v->dim[i] == 1;
    *features = s.c * s.h * s.w;
    return fits ? flatten(g, v->layer, layer) : fail_view(g, n, v, "a vector [rows, features]");
}
