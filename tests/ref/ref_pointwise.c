/* SPDX-License-Identifier: MIT */
/* The element-wise ops. */
#include "base/error.h"
#include "base/rng.h"
#include "ref/ref_op.h"

#include <math.h>
#include <string.h>

static size_t elements(const ref_op *op)
{
    return (size_t)op->base.y.rows * ref_row(&op->base.y);
}

int ref_relu_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x, slope = op->desc.u.relu.slope;
    float *y = op->b.y;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : slope != 0 ? slope * x[i] : 0;
    return LS_OK;
}

int ref_relu_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *y = op->b.y, *dy = op->b.dy, slope = op->desc.u.relu.slope;
    float *dx = op->b.dx;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : slope != 0 ? slope * dy[i] : 0;
    return LS_OK;
}

int ref_export_forward(ref_op *op, unsigned flags, ls_error *err)
{
    (void)flags;
    (void)err;
    memmove(op->b.y, op->b.x, op->base.y.bytes);
    return LS_OK;
}

int ref_export_backward(ref_op *op, unsigned flags, ls_error *err)
{
    (void)flags;
    (void)err;
    if (op->desc.needs_dx)
        memmove(op->b.dx, op->b.dy, op->base.y.bytes);
    return LS_OK;
}

int ref_add_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x, *x2 = op->b.x2;
    float *y = op->b.y;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        float sum = x[i] + x2[i];
        y[i] = op->desc.fuse_relu && !(sum > 0) ? 0 : sum;
    }
    return LS_OK;
}

int ref_add_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *y = op->b.y, *dy = op->b.dy;
    float *dx = op->b.dx, *dx2 = op->b.dx2;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = dx2[i] = op->desc.fuse_relu && !(y[i] > 0) ? 0 : dy[i];
    return LS_OK;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Elements of x for each element of x2. */
static size_t each(const ref_op *op)
{
    return ref_row(&op->desc.x) / ref_row(&op->desc.x2);
}

int ref_multiply_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x, *x2 = op->b.x2;
    float *y = op->b.y;
    const size_t n = elements(op), pixels = each(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * x2[i / pixels];
    return LS_OK;
}

int ref_multiply_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x, *x2 = op->b.x2, *dy = op->b.dy;
    float *dx = op->b.dx, *dx2 = op->b.dx2;
    const size_t n = op->desc.needs_dx ? elements(op) : 0, pixels = each(op);
    double sum = 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        dx[i] = dy[i] * x2[i / pixels];
        sum = (i % pixels ? sum : 0) + (double)dy[i] * (double)x[i];
        dx2[i / pixels] = (float)sum;
    }
    return LS_OK;
}

/* ---- curves: y is `of` x, and dx is dy times the slope at y, or at x ------------------------- */

/* Replaces infinities by finite numbers, whose products with 0 are 0, the limit of what the curves
 * multiply, and not NaN. As floats they are infinite again. */
static double bounded(double x)
{
    return isinf(x) ? (x > 0 ? 1e300 : -1e300) : x;
}

/* How much of the normal distribution lies below x. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double sigmoid_slope(double y)
{
    return y * (1 - y);
}

static double tanh_slope(double y)
{
    return 1 - y * y;
}

static double gelu(double x)
{
    return bounded(x) * normal_below(x);
}

static double gelu_slope(double x)
{
    const double v = bounded(x);
    return normal_below(v) + v * exp(-v * v / 2) * 0.39894228040143267794;
}

static double silu(double x)
{
    return bounded(x) / (1 + exp(-x));
}

static double silu_slope(double x)
{
    const double v = bounded(x), s = sigmoid(v);
    return s * (1 + v * (1 - s));
}

/* NaN stays. */
static double between(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* √(2/π)·(x + 0.044715·x³), and its derivative */
static double gelu_inner(double x)
{
    return 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

static double gelu_tanh(double x)
{
    const double v = bounded(x);
    return v * sigmoid(2 * gelu_inner(v));
}

static double gelu_tanh_slope(double x)
{
    const double v = between(x, -30, 30), s = sigmoid(2 * gelu_inner(v));
    return s + v * s * sigmoid(-2 * gelu_inner(v)) * 2 * 0.79788456080286535588 *
                   (1 + 3 * 0.044715 * v * v);
}

static double hard_swish(double x)
{
    return bounded(x) * (between(x + 3, 0, 6) / 6);
}

static double hard_swish_slope(double x)
{
    return x >= 3 ? 1 : x > -3 ? x / 3 + 0.5 : 0;
}

static const struct {
    double (*of)(double x), (*slope)(double v);
    int by_x;
} curves[LS_OP_KINDS] = {
    [LS_OP_SIGMOID] = {sigmoid, sigmoid_slope, 0},
    [LS_OP_TANH] = {tanh, tanh_slope, 0},
    [LS_OP_GELU] = {gelu, gelu_slope, 1},
    [LS_OP_SILU] = {silu, silu_slope, 1},
    [LS_OP_GELU_TANH] = {gelu_tanh, gelu_tanh_slope, 1},
    [LS_OP_HARD_SWISH] = {hard_swish, hard_swish_slope, 1},
};

int ref_curve_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x;
    float *y = op->b.y;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)curves[op->desc.kind].of((double)x[i]);
    return LS_OK;
}

int ref_curve_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *v = curves[op->desc.kind].by_x ? op->b.x : op->b.y, *dy = op->b.dy;
    float *dx = op->b.dx;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)((double)dy[i] * curves[op->desc.kind].slope((double)v[i]));
    return LS_OK;
}

int ref_hard_sigmoid_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_hard_sigmoid *k = &op->desc.u.hard_sigmoid;
    const float *x = op->b.x;
    float *y = op->b.y;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)between((double)fmaf(k->slope, x[i], k->offset), 0, 1);
    return LS_OK;
}

int ref_hard_sigmoid_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *y = op->b.y, *dy = op->b.dy;
    float *dx = op->b.dx;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 && y[i] < 1 ? op->desc.u.hard_sigmoid.slope * dy[i] : 0;
    return LS_OK;
}

int ref_clamp_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_clamp *k = &op->desc.u.clamp;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        ((float *)op->b.y)[i] =
            (float)between((double)((const float *)op->b.x)[i], (double)k->least, (double)k->most);
    return LS_OK;
}

int ref_clamp_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_clamp *k = &op->desc.u.clamp;
    const float *y = op->b.y, *dy = op->b.dy;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        ((float *)op->b.dx)[i] = y[i] > k->least && y[i] < k->most ? dy[i] : 0;
    return LS_OK;
}

int ref_affine_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_affine *k = &op->desc.u.affine;
    size_t n = elements(op);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        ((float *)op->b.y)[i] = fmaf(k->slope, ((const float *)op->b.x)[i], k->offset);
    return LS_OK;
}

int ref_affine_backward(ref_op *op, unsigned flags, ls_error *err)
{
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        ((float *)op->b.dx)[i] = op->desc.u.affine.slope * ((const float *)op->b.dy)[i];
    return LS_OK;
}

/* ---- ops that move elements ------------------------------------------------------------------ */

int ref_upsample_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_upsample *by = &op->desc.u.upsample;
    const size_t h = (size_t)op->base.y.h, w = (size_t)op->base.y.w, n = elements(op);
    const size_t x_h = h / (size_t)by->sh, x_w = w / (size_t)by->sw;
    (void)flags;
    (void)err;
    for (size_t e = 0; e < n; e++) {
        const size_t i = e / w % h / (size_t)by->sh, j = e % w / (size_t)by->sw;
        ((float *)op->b.y)[e] = ((const float *)op->b.x)[(e / (h * w) * x_h + i) * x_w + j];
    }
    return LS_OK;
}

/* Returns the position in y of element e of x. */
static size_t padded_place(const ref_op *op, size_t e)
{
    const size_t h = (size_t)op->desc.x.h, w = (size_t)op->desc.x.w;
    const size_t y_h = (size_t)op->base.y.h, y_w = (size_t)op->base.y.w;
    const size_t i = e / w % h + (size_t)op->desc.u.pad.top;
    return (e / (h * w) * y_h + i) * y_w + e % w + (size_t)op->desc.u.pad.left;
}

int ref_pad_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const size_t n = (size_t)op->desc.x.rows * ref_row(&op->desc.x);
    float *y = op->b.y;
    (void)flags;
    (void)err;
    memset(y, 0, (size_t)op->desc.x.rows * ref_row(&op->base.y) * sizeof *y);
    for (size_t e = 0; e < n; e++)
        y[padded_place(op, e)] = ((const float *)op->b.x)[e];
    return LS_OK;
}

int ref_pad_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const size_t n = op->desc.needs_dx ? (size_t)op->desc.x.rows * ref_row(&op->desc.x) : 0;
    (void)flags;
    (void)err;
    for (size_t e = 0; e < n; e++)
        ((float *)op->b.dx)[e] = ((const float *)op->b.dy)[padded_place(op, e)];
    return LS_OK;
}

int ref_concat_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const size_t first = ref_row(&op->desc.x), second = ref_row(&op->desc.x2);
    (void)flags;
    (void)err;
    for (size_t r = 0; r < (size_t)op->desc.x.rows; r++) {
        float *y = (float *)op->b.y + r * (first + second);
        memcpy(y, (const float *)op->b.x + r * first, first * sizeof *y);
        memcpy(y + first, (const float *)op->b.x2 + r * second, second * sizeof *y);
    }
    return LS_OK;
}

int ref_concat_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const size_t first = ref_row(&op->desc.x), second = ref_row(&op->desc.x2);
    (void)flags;
    (void)err;
    for (size_t r = 0; op->desc.needs_dx && r < (size_t)op->desc.x.rows; r++) {
        const float *dy = (const float *)op->b.dy + r * (first + second);
        memcpy((float *)op->b.dx + r * first, dy, first * sizeof *dy);
        memcpy((float *)op->b.dx2 + r * second, dy + first, second * sizeof *dy);
    }
    return LS_OK;
}

/* ---- dropout: `saved` holds a byte for each element, 1 where it was kept --------------------- */

int ref_dropout_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_dropout *d = &op->desc.u.dropout;
    const ls_step_args *a = op->b.args;
    const float *x = op->b.x;
    float *y = op->b.y, scale = 1 / (1 - d->p);
    uint8_t *saved = op->b.saved;
    size_t n = elements(op), row = ref_row(&op->base.y);
    int draws = !(flags & LS_RUN_EVALUATE);
    if (draws && !a->rows)
        return ls_fail(err, LS_EINVAL, "dropout: no rows are given");
    for (size_t i = 0; i < n; i++) {
        uint64_t index = draws ? (uint64_t)a->rows[i / row] * row + i % row : 0;
        int kept = !draws || !(ls_rng_uniform(a->seed, d->stream, a->epoch, index) < d->p);
        y[i] = !draws ? x[i] : kept ? x[i] * scale : 0;
        if (saved)
            saved[i] = (uint8_t)kept;
    }
    return LS_OK;
}

int ref_dropout_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *dy = op->b.dy;
    float *dx = op->b.dx, scale = 1 / (1 - op->desc.u.dropout.p);
    const uint8_t *kept = op->b.saved;
    size_t n = op->desc.needs_dx ? elements(op) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = kept[i] ? dy[i] * scale : 0;
    return LS_OK;
}

size_t ref_dropout_saved(const ref_op *op)
{
    return op->desc.training ? elements(op) : 0;
}
