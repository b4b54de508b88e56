/* SPDX-License-Identifier: MIT */
/* Norms, and means. Below version 17 of the operators a LayerNorm is written out:
 *
 *     ReduceMean(x)         mean        over all values of a row
 *     Sub(x, mean)          centred
 *     Pow(centred, 2)       squares     or Mul(centred, centred)
 *     ReduceMean(squares)   variance
 *     Add(variance, q)      variance    q: epsilon
 *     Sqrt(variance)        deviation
 *     Div(centred, …)       norm
 *     Mul, Add              weight and bias, each of which can be absent
 *
 * Its parts are formulas over x (ls_form), of which only the norm can be settled. */
#include "onnx/importer.h"

#include "base/error.h"

#include <math.h>

int ls_import_batch_norm(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *part[4] = {0};
    int layer = 0, features = 0;
    int status = ls_import_need(g, n, 0, &x);
    for (int i = 0; i < 4 && status == LS_OK; i++) {
        status = ls_import_need(g, n, 1 + i, &part[i]);
        if (status == LS_OK)
            status = ls_import_need_constant(g, n, 1 + i, &part[i]);
    }
    if (status == LS_OK && ls_import_int(g, n, "training_mode", 0) != 0)
        return ls_import_fail(
            g, n, LS_EUNSUPPORTED,
            "attribute \"training_mode\": 0 is read; export the network after "
            "net.eval(), with torch.onnx.export(…, dynamo=False, "
            "training=torch.onnx.TrainingMode.PRESERVE) if its batch norms are to "
            "stay");
    if (status == LS_OK && ls_import_int(g, n, "spatial", 1) != 1)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"spatial\": 1 is read");
    ls_shape s = {0};
    if (status == LS_OK && x->kind == LS_VALUE_ROWS && x->rank == 2)
        status = ls_import_vector(g, n, x, &layer, &features);
    else if (status == LS_OK)
        status = ls_import_image(g, n, x, &layer, &s);
    if (status)
        return status;
    s = ls_import_shape(g, layer);
    for (int i = 0; i < 4; i++)
        if (part[i]->count != (size_t)s.c)
            return ls_import_fail(g, n, LS_EDATA, "its input %d needs %d numbers", 1 + i, s.c);
    const double momentum = 1 - ls_import_float(g, n, "momentum", (double)0.9f);
    status = ls_import_begin_layer(g, n, "batch_norm", layer, part[0]);
    if (status)
        return status;
    ls_json_put_float(&g->json, "epsilon", (float)ls_import_float(g, n, "epsilon", (double)1e-5f));
    if (momentum > 0 && momentum < 1)
        ls_json_put_float(&g->json, "momentum", (float)(round(momentum * 1e6) / 1e6));
    for (int i = 0; i < 4 && status == LS_OK; i++)
        status = ls_import_add_weight(g, n, part[i], false, 1, (size_t)s.c, 0);
    if (status == LS_OK)
        ls_import_give_layer(g, n, ls_import_end_layer(g, s), x->rank);
    return status;
}

/* Writes the norm of all values of a row of x, which is plain, and gives the node's output the view
 * of x. A constant NULL stands for 1 or 0. */
static int put_norm(ls_import *g, const ls_onnx_node *n, ls_import_value *x, ls_import_value *scale,
                    ls_import_value *bias, double epsilon)
{
    int layer = x->layer, features, status = LS_OK;
    if (x->rank == 2)
        status = ls_import_vector(g, n, x, &layer, &features);
    if (status)
        return status;
    const ls_shape s = ls_import_shape(g, layer);
    const size_t values = (size_t)s.c * (size_t)s.h * (size_t)s.w;
    status = ls_import_begin_layer(g, n, "layer_norm", layer, scale);
    if (status)
        return status;
    ls_json_put_float(&g->json, "epsilon", (float)epsilon);
    status = ls_import_add_weight(g, n, scale, false, 1, values, 1);
    if (status == LS_OK)
        status = ls_import_add_weight(g, n, bias, false, 1, values, 0);
    if (status == LS_OK)
        x->layer = ls_import_end_layer(g, s);
    return status;
}

static size_t values_of(const ls_import *g, const ls_import_value *x)
{
    const ls_shape s = ls_import_shape(g, x->layer);
    return (size_t)s.c * (size_t)s.h * (size_t)s.w;
}

int ls_import_layer_norm(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x, *scale, *bias;
    int status = ls_import_need_weights(g, n, &x, &scale, &bias);
    if (status == LS_OK)
        status = ls_import_settle(g, n, x);
    if (status)
        return status;
    const int64_t axis = ls_import_int(g, n, "axis", -1);
    const size_t values = values_of(g, x);
    if ((axis < 0 ? axis + x->rank : axis) != 1 || (x->rank != 2 && x->rank != 4) ||
        scale->count != values || (bias && bias->count != values))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"axis\": a norm over all values of a row is read");
    ls_import_value v = *x;
    status = put_norm(g, n, &v, scale, bias, ls_import_float(g, n, "epsilon", (double)1e-5f));
    if (status == LS_OK)
        ls_import_give(g, n, &v);
    return status;
}

/* ---- LayerNorm written out ------------------------------------------------------------------- */

int ls_import_settle_norm(ls_import *g, ls_import_value *v, ls_import_value *bias)
{
    ls_import_value x = *v;
    x.form = LS_FORM_PLAIN;
    int status = put_norm(g, v->node, &x, v->matrix, bias, v->q);
    if (status == LS_OK)
        *v = x;
    return status;
}

int ls_import_fail_norm(const ls_import *g, const ls_onnx_node *n)
{
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it reads a part of ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt and Div, "
                          "which together are read as a LayerNorm over all values of a row; with "
                          "opset_version 17 and higher a LayerNorm is exported as one node");
}

bool ls_import_norm_formulas(ls_import_value *out, char op, const ls_import_value *a,
                             const ls_import_value *b)
{
    if (a->layer != b->layer || a->rank != b->rank)
        return false;
    *out = *a;
    if (op == '-' && a->form == LS_FORM_PLAIN && b->form == LS_FORM_MEAN) {
        out->form = LS_FORM_CENTRED;
    } else if (op == '*' && a->form == LS_FORM_CENTRED && b->form == LS_FORM_CENTRED) {
        out->form = LS_FORM_SQUARES;
    } else if (op == '/' && a->form == LS_FORM_CENTRED && b->form == LS_FORM_DEVIATION) {
        out->form = LS_FORM_NORM, out->q = b->q, out->matrix = NULL;
    } else {
        return false;
    }
    return true;
}

bool ls_import_is_row(const ls_import *g, const ls_import_value *v, const ls_import_value *c)
{
    const int more = c->rank - (v->rank - 1);
    bool same = more >= 0 && c->count == values_of(g, v);
    for (int i = 0; same && i < c->rank; i++)
        same = c->dim[i] == (i < more ? 1 : v->dim[1 + i - more]);
    return same;
}

int ls_import_sqrt(ls_import *g, const ls_onnx_node *n)
{
    const ls_import_value *x = ls_import_input(g, n, 0);
    if (!x || x->kind != LS_VALUE_ROWS || x->form != LS_FORM_VARIANCE)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "Sqrt is read as a part of a LayerNorm over all values of a row");
    ls_import_value v = *x;
    v.form = LS_FORM_DEVIATION;
    ls_import_give(g, n, &v);
    return LS_OK;
}

/* ---- means ----------------------------------------------------------------------------------- */

/* Gives the mean over all values of a row, a part of a LayerNorm. */
static int give_row_mean(ls_import *g, const ls_onnx_node *n, const ls_import_value *x)
{
    ls_import_value v = *x;
    v.form = x->form == LS_FORM_SQUARES ? LS_FORM_VARIANCE : LS_FORM_MEAN;
    v.q = 0;
    for (int i = 1; i < v.rank; i++)
        v.dim[i] = 1;
    ls_import_give(g, n, &v);
    return LS_OK;
}

/* Reads ReduceMean over height and width, which may have been joined to one dimension, or over all
 * values of a row. */
int ls_import_mean(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *x;
    int64_t axes[LS_ONNX_RANK];
    int count;
    unsigned over = 0;
    int status = ls_import_need(g, n, 0, &x);
    if (status == LS_OK && (x->kind != LS_VALUE_ROWS || x->form != LS_FORM_SQUARES))
        status = ls_import_settle(g, n, x);
    if (status == LS_OK)
        status = ls_import_list(g, n, 1, "axes", axes, LS_ONNX_RANK, &count);
    if (status)
        return status;
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + x->rank : axes[i];
        if (axis >= 0 && axis < x->rank)
            over |= 1u << axis;
    }
    const ls_shape s = ls_import_shape(g, x->layer);
    const bool keeps = ls_import_int(g, n, "keepdims", 1) != 0;
    const bool image = x->rank == 4 && x->dim[1] == s.c && x->dim[2] == s.h && x->dim[3] == s.w;
    const bool joined = x->rank == 3 && x->dim[1] == s.c && x->dim[2] == (int64_t)s.h * s.w;
    if (keeps && ((x->rank == 2 && over == 2) || (x->rank == 4 && over == 14)))
        return give_row_mean(g, n, x);
    if (x->form == LS_FORM_SQUARES)
        return ls_import_fail_norm(g, n);
    if (!(image && over == 12) && !(joined && over == 4))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"axes\": the mean over height and width of an image is "
                              "read, and in a LayerNorm that over all values of a row");
    const ls_import_value view = {.rank = keeps ? x->rank : 2, .dim = {LS_ONNX_BATCH, s.c, 1, 1}};
    return ls_import_put_mean(g, n, x->layer, &s, &view);
}
