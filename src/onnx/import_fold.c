/* SPDX-License-Identifier: MIT */
/* Constants that a graph computes: shapes, and what follows from them. Such a constant has at most
 * LS_ONNX_FOLDED numbers. The number of rows is the symbol LS_ONNX_BATCH, with which no operator
 * computes. */
#include "onnx/importer.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

static int fail_fold(const ls_import *g, const ls_onnx_node *n)
{
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "it computes a constant; lists of up to %d numbers, which do not depend "
                          "on the number of rows, are computed",
                          LS_ONNX_FOLDED);
}

/* Finds an input that is a constant of at most LS_ONNX_FOLDED numbers and `rank` dimensions. */
static int constant_input(ls_import *g, const ls_onnx_node *n, int i, int rank,
                          ls_import_value **out)
{
    *out = ls_import_input(g, n, i);
    if (!*out || (*out)->kind != LS_VALUE_CONSTANT)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its input %d depends on the rows; constants, and what follows "
                              "from shapes, are read",
                              i);
    int status = ls_import_decode(g, *out);
    if (status)
        return status;
    return (*out)->rank > rank || (*out)->count > LS_ONNX_FOLDED ? fail_fold(g, n) : LS_OK;
}

/* Finds an input that is a list or a single number. */
static int small_input(ls_import *g, const ls_onnx_node *n, int i, ls_import_value **out)
{
    return constant_input(g, n, i, 1, out);
}

int ls_import_constant(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *out = ls_import_output(g, n);
    ls_pb_reader message;
    int64_t list[LS_ONNX_FOLDED];
    if (ls_import_tensor(g, n, "value", &message)) {
        ls_onnx_stored *stored = ls_import_block(g, 1, sizeof *stored);
        if (!stored)
            return ls_import_no_memory(g);
        int status = ls_onnx_read_tensor(stored, &g->file, message, g->err);
        if (status == LS_OK)
            ls_import_keep(out, stored);
        return status;
    }
    if (ls_import_has(g, n, "value_int")) {
        list[0] = ls_import_int(g, n, "value_int", 0);
        return ls_import_fold_ints(g, out, list, 1, 0);
    }
    if (ls_import_has(g, n, "value_float")) {
        const double x = ls_import_float(g, n, "value_float", 0);
        return ls_import_fold_numbers(g, out, &x, 1, 0);
    }
    const int count = ls_import_ints(g, n, "value_ints", list, LS_ONNX_FOLDED);
    if (ls_import_has(g, n, "value_ints") && count >= 0)
        return ls_import_fold_ints(g, out, list, count, 1);
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "attributes \"value\", \"value_int\", \"value_float\" and \"value_ints\" "
                          "are read");
}

int ls_import_shape_of(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *v = ls_import_input(g, n, 0);
    if (!v || v->kind == LS_VALUE_NONE)
        return ls_import_fail(g, n, LS_EDATA, "expected an input");
    int64_t from = ls_import_int(g, n, "start", 0), to = ls_import_int(g, n, "end", v->rank);
    from = from < 0 ? from + v->rank : from;
    to = to < 0 ? to + v->rank : to;
    from = from < 0 ? 0 : from > v->rank ? v->rank : from;
    to = to < from ? from : to > v->rank ? v->rank : to;
    return ls_import_fold_ints(g, ls_import_output(g, n), v->dim + from, (int)(to - from), 1);
}

int ls_import_gather(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *v, *at;
    int64_t out[LS_ONNX_FOLDED];
    int status = small_input(g, n, 0, &v);
    if (status == LS_OK)
        status = small_input(g, n, 1, &at);
    if (status)
        return status;
    const int64_t count = (int64_t)v->count;
    if (v->rank != 1 || !ls_import_whole(v) || !ls_import_whole(at))
        return fail_fold(g, n);
    for (size_t i = 0; i < at->count; i++) {
        int64_t k = ls_import_integer(at, i);
        k += k < 0 ? count : 0;
        if (k < 0 || k >= count)
            return ls_import_fail(g, n, LS_EDATA, "an index is beyond its list of %lld numbers",
                                  (long long)count);
        out[i] = ls_import_integer(v, (size_t)k);
    }
    return ls_import_fold_ints(g, ls_import_output(g, n), out, (int)at->count, at->rank);
}

static int64_t clamp(int64_t i, int64_t count, int64_t least, int64_t most)
{
    i = i < 0 && i >= -count ? i + count : i;
    return i < least ? least : i > most ? most : i;
}

/* Reads Slice of a list, or of the rows of a matrix: PyTorch computes the pads of a Pad so. */
int ls_import_slice(ls_import *g, const ls_onnx_node *n)
{
    static const char *const name[4] = {"starts", "ends", "axes", "steps"};
    int64_t part[4][LS_ONNX_RANK], out[LS_ONNX_FOLDED];
    ls_import_value *v, *slice = ls_import_output(g, n);
    int given[4], rows = 0;
    int status = constant_input(g, n, 0, 2, &v);
    for (int i = 0; i < 4 && status == LS_OK; i++)
        status = ls_import_list(g, n, 1 + i, name[i], part[i], LS_ONNX_RANK, &given[i]);
    if (status)
        return status;
    const int64_t by = given[3] == 1 ? part[3][0] : 1, axis = given[2] == 1 ? part[2][0] : 0;
    if (v->rank < 1 || v->rank > 2 || !ls_import_whole(v) || given[0] != 1 || given[1] != 1 ||
        by == 0 || by == INT64_MIN || (axis != 0 && axis != -v->rank) || v->dim[0] < 0)
        return fail_fold(g, n);
    const int64_t length = v->dim[0];
    const int width = length > 0 ? (int)v->count / (int)length : 0;
    const int64_t from = clamp(part[0][0], length, 0, by > 0 ? length : length - 1);
    const int64_t to = clamp(part[1][0], length, by > 0 ? 0 : -1, length);
    for (int64_t i = from;
         i < length && (by > 0 ? i < to : i > to) && (rows + 1) * width <= LS_ONNX_FOLDED;
         i += by) {
        for (int k = 0; k < width; k++)
            out[rows * width + k] = ls_import_integer(v, (size_t)(i * width + k));
        rows++;
        if (by > LS_ONNX_FOLDED || by < -LS_ONNX_FOLDED)
            break;
    }
    status = ls_import_fold_ints(g, slice, out, rows * width, v->rank);
    slice->dim[0] = rows;
    slice->dim[1] = width;
    return status;
}

/* Computes the transpose of a small matrix of integers. */
int ls_import_turn(ls_import *g, const ls_onnx_node *n, const ls_import_value *v)
{
    int64_t out[LS_ONNX_FOLDED];
    ls_import_value *turned = ls_import_output(g, n);
    const size_t rows = (size_t)v->dim[0], columns = (size_t)v->dim[1];
    for (size_t i = 0; i < v->count; i++)
        out[i] = ls_import_integer(v, i % rows * columns + i / rows);
    int status = ls_import_fold_ints(g, turned, out, (int)v->count, 2);
    turned->dim[0] = (int64_t)columns;
    turned->dim[1] = (int64_t)rows;
    return status;
}

/* Reads ConstantOfShape. */
int ls_import_filled(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value value = {.kind = LS_VALUE_CONSTANT};
    ls_onnx_stored stored;
    ls_pb_reader message;
    int64_t dim[LS_ONNX_RANK], ints[LS_ONNX_FOLDED], all = 1;
    double numbers[LS_ONNX_FOLDED], x = 0;
    int count, status = ls_import_list(g, n, 0, "shape", dim, LS_ONNX_RANK, &count);
    if (status)
        return status;
    for (int i = 0; i < count; i++) {
        if (dim[i] < 0 || dim[i] > LS_ONNX_FOLDED || (all *= dim[i]) > LS_ONNX_FOLDED)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "up to %d numbers are read; larger weights are read from "
                                  "initializers",
                                  LS_ONNX_FOLDED);
    }
    bool whole = false;
    if (ls_import_tensor(g, n, "value", &message)) {
        status = ls_onnx_read_tensor(&stored, &g->file, message, g->err);
        if (status == LS_OK) {
            ls_import_keep(&value, &stored);
            value.name = n->name;
            status = ls_import_decode(g, &value);
        }
        if (status)
            return status;
        if (!ls_import_scalar(&x, &value))
            return fail_fold(g, n);
        whole = ls_import_whole(&value);
    }
    for (int i = 0; i < all; i++) {
        numbers[i] = x;
        ints[i] = whole ? ls_import_integer(&value, 0) : 0;
    }
    ls_import_value *out = ls_import_output(g, n);
    status = whole ? ls_import_fold_ints(g, out, ints, (int)all, 1)
                   : ls_import_fold_numbers(g, out, numbers, (int)all, 1);
    if (status == LS_OK) {
        out->rank = count < 0 ? 0 : count;
        memcpy(out->dim, dim, (size_t)out->rank * sizeof *dim);
    }
    return status;
}

static int64_t round_by(ls_onnx_text op, double x)
{
    x = ls_onnx_is(op, "Floor") ? floor(x) : ls_onnx_is(op, "Ceil") ? ceil(x) : trunc(x);
    return x > -9e15 && x < 9e15 ? (int64_t)x : 0;
}

/* Reads Floor and Ceil of constants, and Cast of constants to integers. */
int ls_import_round(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *v, *out = ls_import_output(g, n);
    int64_t ints[LS_ONNX_FOLDED];
    double numbers[LS_ONNX_FOLDED];
    int status = small_input(g, n, 0, &v);
    if (status)
        return status;
    for (size_t i = 0; i < v->count; i++) {
        ints[i] =
            ls_import_whole(v) ? ls_import_integer(v, i) : round_by(n->op, ls_import_number(v, i));
        numbers[i] = (double)ints[i];
    }
    return ls_onnx_is(n->op, "Cast") || ls_import_whole(v)
               ? ls_import_fold_ints(g, out, ints, (int)v->count, v->rank)
               : ls_import_fold_numbers(g, out, numbers, (int)v->count, v->rank);
}

/* Computes a op b. Returns false if the result is not defined or too large. */
static bool compute(ls_onnx_text op, double a, double b, bool whole, double *out)
{
    if (ls_onnx_is(op, "Add"))
        *out = a + b;
    else if (ls_onnx_is(op, "Sub"))
        *out = a - b;
    else if (ls_onnx_is(op, "Mul"))
        *out = a * b;
    else if (b == 0)
        return false;
    else
        *out = whole ? trunc(a / b) : a / b;
    return !whole || fabs(*out) < 9e15;
}

int ls_import_arithmetic(ls_import *g, const ls_onnx_node *n, ls_import_value *a,
                         ls_import_value *b)
{
    double numbers[LS_ONNX_FOLDED];
    int64_t ints[LS_ONNX_FOLDED];
    int status = small_input(g, n, 0, &a);
    if (status == LS_OK)
        status = small_input(g, n, 1, &b);
    if (status)
        return status;
    const bool whole = ls_import_whole(a) && ls_import_whole(b);
    const size_t count = a->count > b->count ? a->count : b->count;
    if ((a->count != 1 && a->count != count) || (b->count != 1 && b->count != count))
        return ls_import_fail(g, n, LS_EDATA, "its inputs have unlike numbers of numbers");
    for (size_t i = 0; i < count; i++) {
        const double x = ls_import_number(a, a->count == 1 ? 0 : i),
                     y = ls_import_number(b, b->count == 1 ? 0 : i);
        /* the symbol for the number of rows is far beyond all numbers that are computed */
        if (whole && (fabs(x) > 9e15 || fabs(y) > 9e15))
            return fail_fold(g, n);
        if (!compute(n->op, x, y, whole, &numbers[i]))
            return fail_fold(g, n);
        ints[i] = whole ? (int64_t)numbers[i] : 0;
    }
    const int rank = a->rank > b->rank ? a->rank : b->rank;
    return whole ? ls_import_fold_ints(g, ls_import_output(g, n), ints, (int)count, rank)
                 : ls_import_fold_numbers(g, ls_import_output(g, n), numbers, (int)count, rank);
}

int ls_import_join(ls_import *g, const ls_onnx_node *n)
{
    int64_t out[LS_ONNX_FOLDED];
    ls_import_value *v;
    int count = 0, status = LS_OK;
    for (int i = 0; i < n->inputs && status == LS_OK; i++) {
        status = small_input(g, n, i, &v);
        if (status == LS_OK &&
            (v->rank != 1 || !ls_import_whole(v) || v->count > (size_t)(LS_ONNX_FOLDED - count)))
            status = fail_fold(g, n);
        for (size_t k = 0; status == LS_OK && k < v->count; k++)
            out[count++] = ls_import_integer(v, k);
    }
    return status ? status : ls_import_fold_ints(g, ls_import_output(g, n), out, count, 1);
}
