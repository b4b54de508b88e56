/* SPDX-License-Identifier: MIT */
/* Ops that compute element by element, in fp32 and in the order of x: activation functions
 * (*curves*), add, multiply and dropout. Add also computes in bf16. Also concat, which joins
 * channels, and export, which copies to row-major order. */
#include "cuda/cuda_op.h"

static size_t count_of(const ls_cuda_op *op)
{
    return ls_cuda_elements(&op->desc.x);
}

/* ---- curves ---------------------------------------------------------------------------------- */

static ls_k_curve curve_of(const ls_cuda_op *op)
{
    switch ((int)op->desc.kind) {
    case LS_OP_TANH: return LS_K_TANH;
    case LS_OP_GELU: return LS_K_GELU;
    case LS_OP_SILU: return LS_K_SILU;
    case LS_OP_SIGMOID: return LS_K_SIGMOID;
    case LS_OP_CLAMP: return LS_K_CLAMP;
    case LS_OP_HARD_SIGMOID: return LS_K_HARD_SIGMOID;
    case LS_OP_HARD_SWISH: return LS_K_HARD_SWISH;
    case LS_OP_GELU_TANH: return LS_K_GELU_TANH;
    case LS_OP_AFFINE: return LS_K_AFFINE;
    default: return LS_K_RELU;
    }
}

/* Returns true if the derivative is computed from x, false if it is computed from y. */
static bool goes_by_x(const ls_op_desc *desc)
{
    return desc->kind == LS_OP_GELU || desc->kind == LS_OP_GELU_TANH || desc->kind == LS_OP_SILU ||
           desc->kind == LS_OP_HARD_SWISH;
}

static ls_k_shape shape_of(const ls_op_desc *desc)
{
    const ls_hard_sigmoid *hard = &desc->u.hard_sigmoid;
    const ls_clamp *clamp = &desc->u.clamp;
    const ls_affine *affine = &desc->u.affine;
    switch ((int)desc->kind) {
    case LS_OP_RELU: return (ls_k_shape){.slope = desc->u.relu.slope};
    case LS_OP_HARD_SIGMOID: return (ls_k_shape){.slope = hard->slope, .offset = hard->offset};
    case LS_OP_CLAMP: return (ls_k_shape){.least = clamp->least, .most = clamp->most};
    case LS_OP_AFFINE: return (ls_k_shape){.slope = affine->slope, .offset = affine->offset};
    default: return (ls_k_shape){0};
    }
}

static cudaError_t curve_forward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_curve_of(op->b.y, ls_cuda_x(op), curve_of(op), shape_of(&op->desc), count_of(op),
                         on);
}

static cudaError_t curve_backward(ls_cuda_op *op, cudaStream_t on)
{
    const float *v = goes_by_x(&op->desc) ? ls_cuda_x(op) : op->b.y;
    return ls_k_curve_back(ls_cuda_dx(op), op->b.dy, v, curve_of(op), shape_of(&op->desc),
                           count_of(op), on);
}

/* ---- add, concat ---------------------------------------------------------------------------- */

static cudaError_t add_forward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_add(op->b.y, ls_cuda_x(op), ls_cuda_x2(op), op->x_form == LS_FORM_HALF,
                    op->desc.fuse_relu, count_of(op), on);
}

static cudaError_t add_backward(ls_cuda_op *op, cudaStream_t on)
{
    const void *y = op->desc.fuse_relu ? op->b.y : NULL;
    return ls_k_add_back(ls_cuda_dx(op), ls_cuda_dx2(op), op->b.dy, y, op->x_form == LS_FORM_HALF,
                         count_of(op), on);
}

/* Returns the form in which add uses its inputs: the form of x, or fp32 if only one of the two
 * inputs is bf16. */
static ls_cuda_form form_of_add(const ls_op_desc *d)
{
    const ls_cuda_form x = ls_cuda_form_of(&d->x), x2 = ls_cuda_form_of(&d->x2);
    return (x == LS_FORM_HALF) == (x2 == LS_FORM_HALF) ? x : LS_FORM_LAST;
}

static cudaError_t concat_forward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_concat(op->b.y, ls_cuda_x(op), ls_cuda_x2(op), op->m, op->desc.x.c, op->desc.x2.c,
                       on);
}

static cudaError_t concat_backward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_concat_back(ls_cuda_dx(op), ls_cuda_dx2(op), op->b.dy, op->m, op->desc.x.c,
                            op->desc.x2.c, on);
}

/* ---- multiply ------------------------------------------------------------------------------- */

/* Returns the shape of a product with one factor for each channel; `rows` is 0 if x2 has the shape
 * of x. */
static ls_k_scale scale_of(const ls_op_desc *d)
{
    const ls_tensor *x = &d->x, *x2 = &d->x2;
    const int pixels = x->h * x->w, has_shape_of_x = x->h == x2->h && x->w == x2->w;
    return (ls_k_scale){has_shape_of_x ? 0 : x->rows, pixels, x->c};
}

static cudaError_t multiply_forward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_scale k = scale_of(&op->desc);
    return k.rows ? ls_k_scale_by(op->b.y, ls_cuda_x(op), ls_cuda_x2(op), &k, on)
                  : ls_k_multiply(op->b.y, ls_cuda_x(op), ls_cuda_x2(op), count_of(op), on);
}

static cudaError_t multiply_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_scale k = scale_of(&op->desc);
    const float *x = ls_cuda_x(op), *x2 = ls_cuda_x2(op), *dy = op->b.dy;
    float *dx = ls_cuda_dx(op), *dx2 = ls_cuda_dx2(op);
    return k.rows ? ls_k_scale_back(dx, dx2, dy, x, x2, &k, on)
                  : ls_k_multiply_back(dx, dx2, dy, x, x2, count_of(op), on);
}

/* ---- dropout -------------------------------------------------------------------------------- */

static cudaError_t pass_on(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

static int dropout_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const void *from = ls_cuda_x(op);
    ls_k_dropout k = {
        .number = op->desc.u.dropout.stream,
        .p = op->desc.u.dropout.p,
        .rows = x->rows,
        .c = x->c,
        .pixels = x->h * x->w,
        .channels_last = x->layout != NULL,
    };
    if (op->flags & LS_RUN_EVALUATE)
        return ls_cuda_done(op, pass_on(op->b.y, from, op->op.y.bytes, on->cuda), err);
    if (!op->b.args || !op->b.args->rows)
        return ls_fail(err, LS_EINVAL, "dropout: no rows are given");
    int status = ls_cuda_args(&k.args, op->device, on, op->b.args, err);
    if (status)
        return status;
    return ls_cuda_done(op, ls_k_drop(op->b.y, ls_cuda_at(op, &op->kept), from, &k, on->cuda), err);
}

static cudaError_t dropout_backward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_drop_back(ls_cuda_dx(op), op->b.dy, ls_cuda_at(op, &op->kept), op->desc.u.dropout.p,
                          count_of(op), on);
}

/* ---- export: y is row-major in any case ------------------------------------------------------ */

static cudaError_t export_forward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_tensor *t = &op->desc.x;
    const void *x = ls_cuda_x(op);
    return t->layout ? ls_k_transpose(op->b.y, x, t->rows, t->h * t->w, t->c, on)
                     : pass_on(op->b.y, x, op->op.y.bytes, on);
}

static cudaError_t export_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_tensor *t = &op->desc.x;
    void *dx = ls_cuda_dx(op);
    return t->layout ? ls_k_transpose(dx, op->b.dy, t->rows, t->c, t->h * t->w, on)
                     : pass_on(dx, op->b.dy, op->op.y.bytes, on);
}

/* ---- create --------------------------------------------------------------------------------- */

static int set_dropout(ls_cuda_op *op, ls_error *err)
{
    const float p = op->desc.u.dropout.p;
    if (!(p >= 0 && p < 1))
        return ls_fail(err, LS_EINVAL, "dropout: p is %g; it must be at least 0 and below 1",
                       (double)p);
    op->kept = ls_cuda_saved(op, op->desc.training ? count_of(op) : 0);
    return LS_OK;
}

/* Returns the form in which an op uses x: the form of x, except that concat and products with one
 * factor for each channel use channels last, and that only add uses bf16. */
static ls_cuda_form form_of(const ls_op_desc *d)
{
    const ls_cuda_form x = ls_cuda_form_of(&d->x);
    if (d->kind == LS_OP_ADD)
        return form_of_add(d);
    const bool last = d->kind == LS_OP_CONCAT || (d->kind == LS_OP_MULTIPLY && scale_of(d).rows);
    return x == LS_FORM_HALF || last ? LS_FORM_LAST : x;
}

int ls_cuda_pointwise_setup(ls_cuda_op *op, ls_error *err)
{
    static const struct {
        ls_cuda_work forward, backward;
    } kinds[] = {
        [LS_OP_RELU] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_SIGMOID] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_TANH] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_GELU] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_SILU] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_CLAMP] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_HARD_SIGMOID] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_HARD_SWISH] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_GELU_TANH] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_AFFINE] = {{.kernels = curve_forward}, {.kernels = curve_backward}},
        [LS_OP_ADD] = {{.kernels = add_forward}, {.kernels = add_backward}},
        [LS_OP_MULTIPLY] = {{.kernels = multiply_forward}, {.kernels = multiply_backward}},
        [LS_OP_CONCAT] = {{.kernels = concat_forward}, {.kernels = concat_backward}},
        [LS_OP_DROPOUT] = {{.pass = dropout_forward}, {.kernels = dropout_backward}},
        [LS_OP_EXPORT] = {{.kernels = export_forward}, {.kernels = export_backward}},
    };
    const ls_op_desc *d = &op->desc;
    const ls_tensor *x = &d->x;
    const ls_cuda_form form = form_of(d);
    const int both = d->kind == LS_OP_CONCAT ? d->x2.c : 0;
    const int multiplies = d->kind == LS_OP_MULTIPLY;
    if (d->kind == LS_OP_ADD || d->kind == LS_OP_CONCAT || multiplies)
        ls_cuda_use_x2(op, form, multiplies);
    ls_cuda_use_x(op, form, multiplies || goes_by_x(d));
    op->op.y = ls_cuda_tensor(x->rows, x->c + both, x->h, x->w,
                              d->kind == LS_OP_EXPORT ? LS_FORM_PLAIN : form);
    op->forward = kinds[d->kind].forward;
    op->backward = kinds[d->kind].backward;
    return d->kind == LS_OP_DROPOUT ? set_dropout(op, err) : LS_OK;
}
