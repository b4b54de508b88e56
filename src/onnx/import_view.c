/* SPDX-License-Identifier: MIT */
/* Operators that change the shape in which the graph sees values and move nothing: their output is
 * the same layer with another view. */
#include "onnx/importer.h"

#include "base/error.h"

#include <string.h>

static int first_input(const ls_import *g, const ls_onnx_node *n, ls_import_value **out)
{
    *out = ls_import_input(g, n, 0);
    return *out ? LS_OK : ls_import_fail(g, n, LS_EDATA, "expected an input");
}

/* Returns the number of values of a row, or of all numbers of a constant. */
static int64_t values_of(const ls_import_value *v)
{
    int64_t values = 1;
    for (int i = 0; i < v->rank; i++)
        if (v->dim[i] != LS_ONNX_BATCH)
            values *= v->dim[i]; /* at most 2²⁸, and 2³¹ for a constant */
    return values;
}

/* Gives the output the contents of `v` with another shape. */
static int give_view(ls_import *g, const ls_onnx_node *n, ls_import_value *v, const int64_t *dim,
                     int rank)
{
    int status = LS_OK;
    if (v->kind == LS_VALUE_ROWS && (v->form == LS_FORM_PRODUCT || v->form == LS_FORM_PAD))
        status = ls_import_settle(g, n, v);
    if (status)
        return status;
    ls_import_value view = *v;
    view.rank = rank;
    memcpy(view.dim, dim, (size_t)rank * sizeof *dim);
    if (v->kind == LS_VALUE_CONSTANT)
        view.root = v->root ? v->root : v;
    ls_import_give(g, n, &view);
    if (v->kind == LS_VALUE_ROWS && v->form != LS_FORM_PLAIN)
        ls_import_output(g, n)->node = v->node; /* which gives the layer its name */
    return LS_OK;
}

int ls_import_identity(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *v;
    int status = first_input(g, n, &v);
    if (status == LS_OK && v->kind == LS_VALUE_CONSTANT)
        status = ls_import_decode(g, v);
    return status ? status : give_view(g, n, v, v->dim, v->rank);
}

/* Reads Dropout, which changes nothing unless its input "training_mode" is true. */
int ls_import_dropout(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *training;
    double on = 0;
    int status = ls_import_need_constant(g, n, 2, &training);
    if (status)
        return status;
    if (training && (!ls_import_scalar(&on, training) || on != 0))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its input 2, training_mode, is true; false is read: export the "
                              "network after net.eval(), and not with TrainingMode.TRAINING");
    return ls_import_identity(g, n);
}

static bool is_float(int64_t type)
{
    return type == LS_ONNX_FLOAT || type == LS_ONNX_DOUBLE || type == LS_ONNX_FLOAT16 ||
           type == LS_ONNX_BFLOAT16;
}

int ls_import_cast(ls_import *g, const ls_onnx_node *n)
{
    const int64_t to = ls_import_int(g, n, "to", 0);
    ls_import_value *v;
    int status = first_input(g, n, &v);
    if (status)
        return status;
    if (v->kind == LS_VALUE_CONSTANT) {
        status = ls_import_decode(g, v);
        if (status)
            return status;
        return is_float(to) || ls_import_whole(v) ? give_view(g, n, v, v->dim, v->rank)
                                                  : ls_import_round(g, n);
    }
    if (!is_float(to))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"to\": rows stay numbers of a floating-point type");
    return give_view(g, n, v, v->dim, v->rank);
}

static int fail_move(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v)
{
    char dims[LS_ONNX_DIMS];
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it rearranges the values of rows %s; shapes in which the rows stay the "
                          "first dimension and the values keep their order are read",
                          ls_import_dims(dims, v));
}

/* Fails at a Transpose that moves values. */
static int fail_transpose(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v,
                          const int64_t *perm)
{
    char dims[LS_ONNX_DIMS];
    const bool to_front = v->rank == 4 && perm[1] == 3 && perm[2] == 1 && perm[3] == 2,
               to_end = v->rank == 4 && perm[1] == 2 && perm[2] == 3 && perm[3] == 1;
    if (v->kind != LS_VALUE_ROWS || (!to_front && !to_end))
        return fail_move(g, n, v);
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it moves the channels of images %s to the %s; images with the channels "
                          "first are read: export the network so that all its layers, and its "
                          "input, have them first",
                          ls_import_dims(dims, v), to_front ? "front" : "end");
}

/* ---- new shapes ------------------------------------------------------------------------------ */

int ls_import_flatten(ls_import *g, const ls_onnx_node *n)
{
    int64_t axis = ls_import_int(g, n, "axis", 1);
    ls_import_value *v;
    int status = first_input(g, n, &v);
    if (status)
        return status;
    axis = axis < 0 ? axis + v->rank : axis;
    if (v->kind != LS_VALUE_ROWS || axis != 1)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"axis\": 1 is read, with rows");
    const int64_t dim[2] = {LS_ONNX_BATCH, values_of(v)};
    return give_view(g, n, v, dim, 2);
}

/* Computes the shape that Reshape asks for with `to` [count]. The first dimension of rows may be
 * the symbol, 0 or −1 for all rows, or the number of rows that the file fixes. */
static bool resolve(const ls_import *g, const ls_import_value *v, int64_t *to, int count,
                    bool zeros)
{
    const bool rows = v->kind == LS_VALUE_ROWS;
    const int64_t all = values_of(v);
    int64_t product = 1;
    int open = -1;
    for (int i = 0; i < count; i++) {
        if (to[i] == 0 && !zeros && i < v->rank)
            to[i] = v->dim[i];
        if (rows && i == 0 && (to[0] == LS_ONNX_BATCH || (g->fixed && to[0] == g->fixed))) {
            to[0] = LS_ONNX_BATCH;
            continue;
        }
        if (to[i] == -1) {
            if (open >= 0)
                return false;
            open = i;
            continue;
        }
        if (to[i] < 1 || to[i] > all / product)
            return to[i] == 0 && !rows && all == 0;
        product *= to[i];
    }
    if (open == 0 && rows)
        to[0] = LS_ONNX_BATCH;
    else if (open >= 0)
        to[open] = all % product ? 0 : all / product;
    if (open > 0 || (open == 0 && !rows))
        product *= to[open];
    return product == all && (!rows || (count > 0 && to[0] == LS_ONNX_BATCH));
}

int ls_import_reshape(ls_import *g, const ls_onnx_node *n)
{
    int64_t to[LS_ONNX_RANK];
    ls_import_value *v;
    int count = 0;
    int status = first_input(g, n, &v);
    if (status == LS_OK)
        status = ls_import_list(g, n, 1, "shape", to, LS_ONNX_RANK, &count);
    if (status == LS_OK && v->kind == LS_VALUE_CONSTANT)
        status = ls_import_decode(g, v);
    if (status)
        return status;
    if (count < 0)
        return ls_import_fail(g, n, LS_EDATA, "expected a shape");
    if (v->swapped || !resolve(g, v, to, count, ls_import_int(g, n, "allowzero", 0) != 0))
        return fail_move(g, n, v);
    return give_view(g, n, v, to, count);
}

/* Reads Squeeze, which removes dimensions of one value, and Unsqueeze, which adds them. */
int ls_import_squeeze(ls_import *g, const ls_onnx_node *n)
{
    const bool adds = ls_onnx_is(n->op, "Unsqueeze");
    int64_t axes[LS_ONNX_RANK], dim[LS_ONNX_RANK];
    ls_import_value *v;
    unsigned at = 0;
    int count = 0, rank = 0, taken = 0;
    int status = first_input(g, n, &v);
    if (status == LS_OK)
        status = ls_import_list(g, n, 1, "axes", axes, LS_ONNX_RANK, &count);
    if (status == LS_OK && v->kind == LS_VALUE_CONSTANT)
        status = ls_import_decode(g, v);
    if (status)
        return status;
    if (adds && count < 0)
        return ls_import_fail(g, n, LS_EDATA, "expected \"axes\"");
    if (adds && v->rank + count > LS_ONNX_RANK)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "at most %d dimensions are read",
                              LS_ONNX_RANK);
    const int full = v->rank + (adds ? count : 0);
    for (int i = 0; i < count; i++) {
        axes[i] += axes[i] < 0 ? full : 0;
        if (axes[i] < 0 || axes[i] >= full)
            return ls_import_fail(g, n, LS_EDATA, "\"axes\": expected 0 to %d", full - 1);
        if (at >> axes[i] & 1)
            return ls_import_fail(g, n, LS_EDATA, "\"axes\": %d occurs twice", (int)axes[i]);
        at |= 1u << axes[i];
    }
    for (int i = 0; !adds && count < 0 && i < v->rank; i++)
        at |= (unsigned)(v->dim[i] == 1) << i;
    if (v->swapped)
        return fail_move(g, n, v);
    for (int i = 0; i < full; i++) {
        const bool named = at >> i & 1;
        if (!adds && named && v->dim[i] != 1)
            return fail_move(g, n, v);
        if (adds && named)
            dim[rank++] = 1;
        else if (adds && taken < v->rank)
            dim[rank++] = v->dim[taken++];
        else if (!adds && !named)
            dim[rank++] = v->dim[i];
    }
    if (v->kind == LS_VALUE_ROWS && (rank == 0 || dim[0] != LS_ONNX_BATCH))
        return fail_move(g, n, v);
    return give_view(g, n, v, dim, rank);
}

/* Returns whether a permutation leaves the values in their order, because it moves only dimensions
 * of one value. */
static bool keeps_order(const ls_import_value *v, const int64_t *perm)
{
    int64_t last = -1;
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[perm[i]] == 1)
            continue;
        if (perm[i] < last)
            return false;
        last = perm[i];
    }
    return true;
}

int ls_import_transpose(ls_import *g, const ls_onnx_node *n)
{
    int64_t perm[LS_ONNX_RANK], dim[LS_ONNX_RANK];
    ls_import_value *v;
    unsigned seen = 0;
    int status = first_input(g, n, &v);
    if (status == LS_OK && v->kind == LS_VALUE_CONSTANT)
        status = ls_import_decode(g, v);
    if (status)
        return status;
    const int count = ls_import_ints(g, n, "perm", perm, LS_ONNX_RANK);
    for (int i = 0; i < v->rank && count == 0; i++)
        perm[i] = v->rank - 1 - i;
    for (int i = 0; i < v->rank; i++) {
        if ((count != 0 && count != v->rank) || perm[i] < 0 || perm[i] >= v->rank)
            return ls_import_fail(g, n, LS_EDATA, "attribute \"perm\": expected %d dimensions",
                                  v->rank);
        seen |= 1u << perm[i];
        dim[i] = v->dim[perm[i]];
    }
    if (seen != (1u << v->rank) - 1)
        return ls_import_fail(g, n, LS_EDATA, "attribute \"perm\": expected each dimension once");
    if (!v->swapped && keeps_order(v, perm) &&
        (v->kind == LS_VALUE_CONSTANT || dim[0] == LS_ONNX_BATCH))
        return give_view(g, n, v, dim, v->rank);
    if (v->kind != LS_VALUE_CONSTANT || v->rank != 2)
        return fail_transpose(g, n, v, perm);
    if (ls_import_whole(v) && v->count <= LS_ONNX_FOLDED)
        return ls_import_turn(g, n, v);
    status = give_view(g, n, v, dim, v->rank);
    if (status == LS_OK && perm[0] == 1)
        ls_import_output(g, n)->swapped = !v->swapped;
    return status;
}
