/* SPDX-License-Identifier: MIT */
/* Formulas: the operators that compute value by value. Layers such as hard_swish and gelu are
 * written out in many ONNX files, in different orders. A node's output is therefore kept as a
 * formula over the output x of a layer (ls_form), and the next node changes the formula:
 *
 *     x + 3          affine    p = 1, q = 3
 *     clip(·, 0, 6)  clip      s·min(max(p·x + q, lo), hi)
 *     x · (·)        swish     x·s·min(max(p·x + q, lo), hi)
 *     (·) / 6        swish     s = 1/6: hard_swish
 *
 * Formulas with powers of x are those of Gelu's approximation with tanh.
 *
 * When a node reads the value that cannot continue the formula, the value is *settled*: the layers
 * that compute the formula are written (import_settle.c). */
#include "onnx/importer.h"
#include "onnx/operators.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

static bool same_view(const ls_import_value *a, const ls_import_value *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool ls_import_same_layer(const ls_onnx_node *a, const ls_onnx_node *b)
{
    ls_onnx_text name[2] = {a->name, b->name};
    for (int i = 0; i < 2; i++) {
        const char *colon = name[i].length ? memchr(name[i].at, ':', name[i].length) : NULL;
        if (colon)
            name[i].length = (size_t)(colon - name[i].at);
    }
    return ls_onnx_same(name[0], name[1]);
}

/* Returns whether a node may be a part of a formula. In a file that Lockstep wrote, only nodes
 * whose names have a colon are parts of one layer; a `sigmoid` and a `multiply` of the user's stay
 * two. */
static bool is_formula(const ls_import *g, const ls_onnx_node *n)
{
    return !g->own || (n->name.length && memchr(n->name.at, ':', n->name.length));
}

/* Makes the node's output a formula, or a layer if the node cannot be a part of one. */
static int give_formula(ls_import *g, const ls_onnx_node *n, ls_import_value *v)
{
    v->node = n;
    int status = is_formula(g, n) ? LS_OK : ls_import_settle(g, n, v);
    if (status == LS_OK)
        ls_import_give(g, n, v);
    return status;
}

/* ---- with a constant ------------------------------------------------------------------------- */

/* Applies f·(·) + c to a formula. */
static int step(ls_import *g, const ls_onnx_node *n, ls_import_value *v, double f, double c)
{
    int status;
    switch (v->form) {
    case LS_FORM_PLAIN: v->p = f, v->q = c, v->form = LS_FORM_AFFINE; return LS_OK;
    case LS_FORM_AFFINE: v->p *= f, v->q = v->q * f + c; return LS_OK;
    case LS_FORM_SQUARE:
    case LS_FORM_CUBE: v->t *= f, v->p *= f, v->q = v->q * f + c; return LS_OK;
    case LS_FORM_ERF:
    case LS_FORM_TANH:
        v->s *= f;
        v->q += v->s != 0 ? c / v->s : 0;
        return LS_OK;
    case LS_FORM_CLIP:
    case LS_FORM_SWISH:
    case LS_FORM_SIGMOID:
    case LS_FORM_SILU:
    case LS_FORM_GELU:
    case LS_FORM_GELU2:
        if (c == 0) {
            v->s *= f;
            return LS_OK;
        }
        break;
    case LS_FORM_VARIANCE:
        if (f == 1) {
            v->q += c;
            return LS_OK;
        }
        break;
    default: break;
    }
    status = ls_import_settle(g, n, v);
    return status ? status : step(g, n, v, f, c);
}

/* Returns whether a constant has one number for each channel of the value. */
static bool is_per_channel(const ls_import *g, const ls_import_value *v, const ls_import_value *c)
{
    const ls_shape s = ls_import_shape(g, v->layer);
    const int trailing = v->rank - 2; /* dimensions after the channels */
    const int at = c->rank - 1 - trailing;
    bool fits = v->rank >= 2 && v->dim[1] == s.c && at >= 0 && c->count == (size_t)s.c;
    for (int i = 0; fits && i < c->rank; i++)
        fits = c->dim[i] == (i == at ? s.c : 1);
    return fits && (s.h * s.w == 1 || v->rank == 4);
}

/* Returns 1 / c for each number of a constant, which is per channel. */
static int invert(ls_import *g, const ls_import_value *c, ls_import_value *out)
{
    *out = *c;
    uint8_t *data = ls_import_block(g, c->count, 8);
    if (!data)
        return ls_import_no_memory(g);
    for (size_t i = 0; i < c->count; i++)
        ls_import_put_double(data + 8 * i, 1 / ls_import_number(c, i));
    out->numbers = (ls_array){.type = LS_ARRAY_F64, .rank = 1, .dim = {c->count}, .data = data};
    out->swapped = false;
    return LS_OK;
}

/* Applies an operator with one number for each channel. */
static int step_channels(ls_import *g, const ls_onnx_node *n, char op, ls_import_value *v,
                         ls_import_value *c, bool first)
{
    ls_import_value inverse;
    int status = ls_import_settle(g, n, v);
    if (status)
        return status;
    v->node = n;
    if (!is_per_channel(g, v, c))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its constant has %zu numbers; one number, or one for each channel, "
                              "is read",
                              c->count);
    switch (op) {
    case '+': return ls_import_put_scale(g, v, NULL, 1, c, 1);
    case '-': return ls_import_put_scale(g, v, NULL, first ? -1 : 1, c, first ? 1 : -1);
    case '*': return ls_import_put_scale(g, v, c, 1, NULL, 0);
    default: break;
    }
    status = invert(g, c, &inverse);
    return status ? status : ls_import_put_scale(g, v, &inverse, 1, NULL, 0);
}

/* Computes `v` op `c`, or `c` op `v` if `first` is set. */
static int with_constant(ls_import *g, const ls_onnx_node *n, char op, ls_import_value v,
                         ls_import_value *c, bool first)
{
    double x;
    int status = ls_import_decode(g, c);
    if (status)
        return status;
    if (first && op == '/')
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "it divides a constant by rows; rows divided by a constant are read");
    if (v.form == LS_FORM_PRODUCT && v.uses == 1 && op == '+' &&
        c->count == (size_t)v.matrix->dim[1] &&
        c->dim[c->rank ? c->rank - 1 : 0] == v.matrix->dim[1]) {
        status = ls_import_settle_product(g, &v, c);
    } else if (v.form == LS_FORM_NORM && op == '*' && !v.matrix && ls_import_is_row(g, &v, c)) {
        v.matrix = c;
    } else if (v.form == LS_FORM_NORM && op == '+' && ls_import_is_row(g, &v, c)) {
        v.node = n;
        status = ls_import_settle_norm(g, &v, c);
    } else if (!ls_import_scalar(&x, c)) {
        status = step_channels(g, n, op, &v, c, first);
    } else if (!isfinite(x) || (x == 0 && (op == '/' || (op == '*' && !g->own)))) {
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "its constant is %g", x);
    } else {
        const double f = op == '*' ? x : op == '/' ? 1 / x : op == '-' && first ? -1 : 1;
        const double q = op == '+' || (op == '-' && first) ? x : op == '-' ? -x : 0;
        status = step(g, n, &v, f, q);
    }
    if (status)
        return status;
    ls_import_give(g, n, &v);
    /* A value that several nodes read is the x of a formula that follows, such as a Gelu of
     * p·x + q. */
    ls_import_value *out = ls_import_output(g, n);
    return out->form == LS_FORM_AFFINE && out->uses > 1 ? ls_import_settle(g, n, out) : LS_OK;
}

/* ---- operators of two formulas --------------------------------------------------------------- */

/* Returns whether a value is p·x, and sets *p. */
static bool is_linear(const ls_import_value *v, double *p)
{
    *p = v->form == LS_FORM_PLAIN ? 1 : v->p;
    return v->form == LS_FORM_PLAIN || (v->form == LS_FORM_AFFINE && v->q == 0);
}

/* Continues a formula: x, or p·x, times a formula over the same x. */
static bool multiply_formulas(ls_import_value *out, const ls_import_value *x,
                              const ls_import_value *by)
{
    double p, r;
    if (x->layer != by->layer || !same_view(x, by) || !is_linear(x, &p))
        return false;
    *out = *by;
    out->s *= p;
    if (is_linear(by, &r)) {
        out->form = LS_FORM_SQUARE, out->t = p * r, out->p = out->q = 0;
        return true;
    }
    switch (by->form) {
    case LS_FORM_SQUARE:
        out->form = LS_FORM_CUBE, out->t = p * by->t, out->p = p * by->q, out->q = 0;
        return true;
    case LS_FORM_CLIP: out->form = LS_FORM_SWISH; return true;
    case LS_FORM_SIGMOID: out->form = LS_FORM_SILU; return true;
    case LS_FORM_ERF: out->form = LS_FORM_GELU; return true;
    case LS_FORM_TANH: out->form = LS_FORM_GELU2; return true;
    default: return false;
    }
}

/* Continues a formula: x, or p·x, plus t·x³. */
static bool add_formulas(ls_import_value *out, const ls_import_value *x, const ls_import_value *to)
{
    double p;
    if (x->layer != to->layer || !same_view(x, to) || !is_linear(x, &p) ||
        to->form != LS_FORM_CUBE || to->p != 0 || to->q != 0)
        return false;
    *out = *to;
    out->p = p;
    return true;
}

static bool is_pixel(const ls_shape *s)
{
    return s->h == 1 && s->w == 1;
}

static bool is_image(const ls_import *g, const ls_import_value *v)
{
    const ls_shape s = ls_import_shape(g, v->layer);
    return v->rank == 4 && v->dim[1] == s.c && v->dim[2] == s.h && v->dim[3] == s.w;
}

/* Writes an `add` or a `multiply` of two values. */
static int put_both(ls_import *g, const ls_onnx_node *n, const char *type, ls_import_value *a,
                    ls_import_value *b)
{
    int status = ls_import_settle(g, n, a), first, second, features;
    if (status == LS_OK)
        status = ls_import_settle(g, n, b);
    if (status)
        return status;
    first = a->layer, second = b->layer;
    const ls_shape s = ls_import_shape(g, first), t = ls_import_shape(g, second);
    const bool equal = s.c == t.c && s.h == t.h && s.w == t.w && same_view(a, b);
    const bool channels = *type == 'm' && s.c == t.c && is_image(g, a) && is_image(g, b) &&
                          (is_pixel(&s) || is_pixel(&t));
    if (!equal && !channels) {
        if (!same_view(a, b) || a->rank != 2)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "its inputs have %d×%d×%d and %d×%d×%d values; equal shapes, and "
                                  "for Mul one value for each channel, are read",
                                  s.c, s.h, s.w, t.c, t.h, t.w);
        status = ls_import_vector(g, n, a, &first, &features);
        if (status == LS_OK)
            status = ls_import_vector(g, n, b, &second, &features);
    }
    if (status == LS_OK)
        status = ls_import_begin_layer(g, n, type, first, NULL);
    if (status)
        return status;
    ls_import_with(g, second);
    ls_import_value v = channels && is_pixel(&s) ? *b : *a;
    v.layer = ls_import_end_layer(g, ls_import_shape(g, channels && is_pixel(&s) ? second : first));
    ls_import_give(g, n, &v);
    return LS_OK;
}

/* Returns the operator of an arithmetic node as a character. */
static char sign_of(const ls_onnx_node *n)
{
    return ls_onnx_is(n->op, "Add")   ? '+'
           : ls_onnx_is(n->op, "Sub") ? '-'
           : ls_onnx_is(n->op, "Mul") ? '*'
                                      : '/';
}

int ls_import_binary(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *a = ls_import_input(g, n, 0), *b = ls_import_input(g, n, 1), v;
    const char op = sign_of(n);
    if (!a || !b)
        return ls_import_fail(g, n, LS_EDATA, "expected two inputs");
    if (a->kind == LS_VALUE_CONSTANT && b->kind == LS_VALUE_CONSTANT)
        return ls_import_arithmetic(g, n, a, b);
    if (b->kind == LS_VALUE_CONSTANT)
        return with_constant(g, n, op, *a, b, false);
    if (a->kind == LS_VALUE_CONSTANT)
        return with_constant(g, n, op, *b, a, true);
    if (is_formula(g, n) &&
        (ls_import_norm_formulas(&v, op, a, b) ||
         (op == '*' && (multiply_formulas(&v, a, b) || multiply_formulas(&v, b, a))) ||
         (op == '+' && (add_formulas(&v, a, b) || add_formulas(&v, b, a))))) {
        ls_import_give(g, n, &v);
        return LS_OK;
    }
    if (op == '-' || op == '/')
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "both of its inputs depend on the rows; with a constant it is read");
    return put_both(g, n, op == '+' ? "add" : "multiply", a, b);
}

/* Reads Sum as a chain of additions. */
int ls_import_sum(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *a = ls_import_input(g, n, 0);
    if (!a || n->inputs < 2)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "two and more inputs are read");
    for (int i = 1; i < n->inputs; i++) {
        ls_import_value *b = ls_import_input(g, n, i);
        if (!b)
            return ls_import_fail(g, n, LS_EDATA, "input %d is missing", i);
        int status = put_both(g, n, "add", a, b);
        if (status)
            return status;
        a = ls_import_output(g, n);
    }
    return LS_OK;
}

/* ---- operators of one input ------------------------------------------------------------------ */

static int settled_input(ls_import *g, const ls_onnx_node *n, ls_import_value *out)
{
    ls_import_value *in = ls_import_input(g, n, 0);
    if (!in)
        return ls_import_fail(g, n, LS_EDATA, "expected an input");
    int status = ls_import_settle(g, n, in);
    *out = *in;
    out->node = n;
    out->p = 1, out->q = 0, out->s = 1;
    return status;
}

/* Reads an operator that is one layer without constants (operators.h). */
static int simple(ls_import *g, const ls_onnx_node *n, ls_import_value *v)
{
    char op[40];
    const char *type = ls_operator_type(ls_onnx_copy(op, sizeof op, n->op));
    if (!type)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "the operator is not read");
    int status = ls_import_begin_layer(g, n, type, v->layer, NULL);
    if (status)
        return status;
    if (ls_onnx_is(n->op, "LeakyRelu"))
        ls_json_put_float(&g->json, "slope", (float)ls_import_float(g, n, "alpha", 0.01));
    ls_import_end_same(g, v);
    return LS_OK;
}

int ls_import_unary(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value v, *in = ls_import_input(g, n, 0);
    int status = LS_OK;
    if (in && ls_onnx_is(n->op, "Erf") && in->kind == LS_VALUE_ROWS && in->form == LS_FORM_AFFINE &&
        in->q == 0) {
        v = *in;
        v.form = LS_FORM_ERF, v.s = 1;
        return give_formula(g, n, &v);
    }
    if (in && ls_onnx_is(n->op, "Tanh") && in->kind == LS_VALUE_ROWS && in->form == LS_FORM_CUBE &&
        in->q == 0) {
        v = *in;
        v.form = LS_FORM_TANH, v.s = 1;
        return give_formula(g, n, &v);
    }
    status = settled_input(g, n, &v);
    if (status)
        return status;
    if (ls_onnx_is(n->op, "Erf")) {
        v.form = LS_FORM_ERF;
    } else if (ls_onnx_is(n->op, "Sigmoid")) {
        v.form = LS_FORM_SIGMOID;
    } else if (ls_onnx_is(n->op, "HardSigmoid")) {
        v.form = LS_FORM_CLIP, v.lo = 0, v.hi = 1;
        v.p = ls_import_float(g, n, "alpha", (double)0.2f);
        v.q = ls_import_float(g, n, "beta", 0.5);
        if (g->own)
            status = ls_import_put_hard_sigmoid(g, &v, v.p, v.q);
    } else {
        status = simple(g, n, &v);
    }
    return status ? status : give_formula(g, n, &v);
}

/* Reads Pow with the exponent 2 or 3. */
int ls_import_power(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *by = ls_import_input(g, n, 1), v;
    double exponent = 0;
    int status = by && by->kind == LS_VALUE_CONSTANT ? ls_import_decode(g, by) : LS_EUNSUPPORTED;
    if (status == LS_EUNSUPPORTED ||
        (status == LS_OK && (!ls_import_scalar(&exponent, by) || (exponent != 2 && exponent != 3))))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "the exponents 2 and 3 are read");
    const ls_import_value *in = ls_import_input(g, n, 0);
    if (status == LS_OK && in && in->kind == LS_VALUE_ROWS && in->form == LS_FORM_CENTRED &&
        exponent == 2) {
        v = *in;
        v.form = LS_FORM_SQUARES;
        return give_formula(g, n, &v);
    }
    if (status == LS_OK)
        status = settled_input(g, n, &v);
    if (status)
        return status;
    v.form = exponent == 2 ? LS_FORM_SQUARE : LS_FORM_CUBE;
    v.p = 0, v.t = 1;
    return give_formula(g, n, &v);
}

int ls_import_neg(ls_import *g, const ls_onnx_node *n)
{
    ls_import_value *in = ls_import_input(g, n, 0);
    if (!in || in->kind != LS_VALUE_ROWS)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "rows are read as its input");
    ls_import_value v = *in;
    int status = step(g, n, &v, -1, 0);
    if (status == LS_OK)
        ls_import_give(g, n, &v);
    return status;
}

/* Limits a value, which is p·x + q or a clip without a factor. */
static int limit(ls_import *g, const ls_onnx_node *n, double lo, double hi)
{
    ls_import_value *in = ls_import_input(g, n, 0);
    if (!in || in->kind != LS_VALUE_ROWS)
        in = ls_import_input(g, n, 1);
    if (!in || in->kind != LS_VALUE_ROWS)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "rows are read as its input");
    ls_import_value v = *in;
    const bool clips = v.form == LS_FORM_CLIP && !g->own && v.s == 1 && lo <= v.hi && hi >= v.lo;
    if (!clips && v.form != LS_FORM_AFFINE) {
        int status = ls_import_settle(g, n, in);
        if (status)
            return status;
        v = *in;
        v.p = 1, v.q = 0;
    }
    v.lo = clips && v.lo > lo ? v.lo : lo;
    v.hi = clips && v.hi < hi ? v.hi : hi;
    v.s = 1;
    v.form = LS_FORM_CLIP;
    return give_formula(g, n, &v);
}

/* Reads a limit of Clip: its input number `i`, or the attribute of older versions. */
static int read_limit(ls_import *g, const ls_onnx_node *n, int i, const char *name, double *out)
{
    ls_import_value *v = ls_import_input(g, n, i);
    if (!v) {
        *out = ls_import_float(g, n, name, *out);
        return LS_OK;
    }
    int status = v->kind == LS_VALUE_CONSTANT ? ls_import_decode(g, v) : LS_EUNSUPPORTED;
    if (status == LS_EUNSUPPORTED || (status == LS_OK && !ls_import_scalar(out, v)))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "its limit \"%s\": a constant is read", name);
    return status;
}

int ls_import_clip(ls_import *g, const ls_onnx_node *n)
{
    double lo = -INFINITY, hi = INFINITY;
    int status = read_limit(g, n, 1, "min", &lo);
    if (status == LS_OK)
        status = read_limit(g, n, 2, "max", &hi);
    /* the largest float stands for no limit */
    return status ? status : limit(g, n, lo <= -3e38 ? -INFINITY : lo, hi >= 3e38 ? INFINITY : hi);
}

/* Reads Min or Max with a constant. */
int ls_import_limit(ls_import *g, const ls_onnx_node *n)
{
    const bool most = ls_onnx_is(n->op, "Min");
    ls_import_value *c = ls_import_input(g, n, 1);
    double x = 0;
    if (c && c->kind != LS_VALUE_CONSTANT)
        c = ls_import_input(g, n, 0);
    int status = c && c->kind == LS_VALUE_CONSTANT && n->inputs == 2 ? ls_import_decode(g, c)
                                                                     : LS_EUNSUPPORTED;
    if (status == LS_EUNSUPPORTED || (status == LS_OK && !ls_import_scalar(&x, c)))
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "rows and one number are read");
    return status ? status : limit(g, n, most ? -INFINITY : x, most ? x : INFINITY);
}

int ls_import_gelu(ls_import *g, const ls_onnx_node *n)
{
    const ls_onnx_text form = ls_import_text(g, n, "approximate");
    ls_import_value v;
    const bool approximate = ls_onnx_is(form, "tanh");
    if (form.length && !approximate && !ls_onnx_is(form, "none"))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"approximate\": \"none\" and \"tanh\" are read");
    int status = settled_input(g, n, &v);
    if (status == LS_OK)
        status = ls_import_put_gelu(g, &v, approximate);
    if (status == LS_OK)
        ls_import_give(g, n, &v);
    return status;
}
