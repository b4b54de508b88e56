/* Element by element, in fp32 and the order that x has; add also in bf16; and LS_OP_EXPORT. */
#include "cuda/cuda_op.h"

#include <stdio.h>

static size_t count_of(const ls_cuda_op *op)
{
    return ls_cuda_elements(&op->desc.x);
}

/* ---- relu, sigmoid, tanh, gelu, silu --------------------------------------------------------- */

static ls_k_curve curve_of(const ls_cuda_op *op)
{
    switch ((int)op->desc.kind) {
    case LS_OP_TANH: return LS_K_TANH;
    case LS_OP_GELU: return LS_K_GELU;
    case LS_OP_SILU: return LS_K_SILU;
    default: return LS_K_SIGMOID;
    }
}

/* Whether the gradient is a function of x, not of y. */
static int goes_by_x(const ls_op_desc *desc)
{
    return desc->kind == LS_OP_GELU || desc->kind == LS_OP_SILU;
}

static int curve_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const void *x;
    (void)flags;
    int status = ls_cuda_take_x(&x, op, on, 1, err);
    if (status)
        return status;
    return ls_cuda_done(op,
                        op->desc.kind == LS_OP_RELU
                            ? ls_k_relu(op->b.y, x, op->desc.u.relu.slope, count_of(op), on)
                            : ls_k_curve_of(op->b.y, x, curve_of(op), count_of(op), on),
                        err);
}

static int curve_backward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    float *dx = ls_cuda_dx(op);
    const void *v = op->b.y;
    (void)flags;
    if (!op->desc.needs_dx)
        return LS_OK;
    int status = goes_by_x(&op->desc) ? ls_cuda_take_x(&v, op, on, 0, err) : LS_OK;
    if (status)
        return status;
    status = ls_cuda_done(
        op,
        op->desc.kind == LS_OP_RELU
            ? ls_k_relu_back(dx, op->b.dy, op->b.y, op->desc.u.relu.slope, count_of(op), on)
            : ls_k_curve_back(dx, op->b.dy, v, curve_of(op), count_of(op), on),
        err);
    return status ? status : ls_cuda_give_dx(op, on, err);
}

/* ---- add ------------------------------------------------------------------------------------ */

static int add_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const void *x, *x2;
    (void)flags;
    int status = ls_cuda_take_x(&x, op, on, 1, err);
    if (status == LS_OK)
        status = ls_cuda_take_x2(&x2, op, on, err);
    if (status)
        return status;
    return ls_cuda_done(
        op,
        ls_k_add(op->b.y, x, x2, op->x_form == LS_FORM_HALF, op->desc.fuse_relu, count_of(op), on),
        err);
}

static int add_backward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    (void)flags;
    if (!op->desc.needs_dx)
        return LS_OK;
    int status = ls_cuda_done(op,
                              ls_k_add_back(ls_cuda_dx(op), ls_cuda_dx2(op), op->b.dy,
                                            op->desc.fuse_relu ? op->b.y : NULL,
                                            op->x_form == LS_FORM_HALF, count_of(op), on),
                              err);
    if (status == LS_OK)
        status = ls_cuda_give_dx(op, on, err);
    return status ? status : ls_cuda_give_dx2(op, on, err);
}

/* As x comes, unless one of the two alone is bf16. */
static ls_cuda_form form_of_add(const ls_op_desc *d)
{
    const ls_cuda_form x = ls_cuda_form_of(&d->x), x2 = ls_cuda_form_of(&d->x2);
    return (x == LS_FORM_HALF) == (x2 == LS_FORM_HALF) ? x : LS_FORM_LAST;
}

/* ---- concat --------------------------------------------------------------------------------- */

static int concat_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const void *x, *x2;
    (void)flags;
    int status = ls_cuda_take_x(&x, op, on, 1, err);
    if (status == LS_OK)
        status = ls_cuda_take_x2(&x2, op, on, err);
    if (status)
        return status;
    return ls_cuda_done(op, ls_k_concat(op->b.y, x, x2, op->m, op->desc.x.c, op->desc.x2.c, on),
                        err);
}

static int concat_backward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    (void)flags;
    if (!op->desc.needs_dx)
        return LS_OK;
    int status = ls_cuda_done(op,
                              ls_k_concat_back(ls_cuda_dx(op), ls_cuda_dx2(op), op->b.dy, op->m,
                                               op->desc.x.c, op->desc.x2.c, on),
                              err);
    if (status == LS_OK)
        status = ls_cuda_give_dx(op, on, err);
    return status ? status : ls_cuda_give_dx2(op, on, err);
}

/* ---- dropout -------------------------------------------------------------------------------- */

static cudaError_t pass_on(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

static int dropout_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const ls_tensor *x = &op->desc.x;
    ls_k_dropout k = {
        .number = op->desc.u.dropout.stream,
        .p = op->desc.u.dropout.p,
        .rows = x->rows,
        .c = x->c,
        .pixels = x->h * x->w,
        .channels_last = x->layout != NULL,
    };
    const void *from;
    int status = ls_cuda_take_x(&from, op, on, 1, err);
    if (status)
        return status;
    if (flags & LS_RUN_EVALUATE)
        return ls_cuda_done(op, pass_on(op->b.y, from, op->op.y.bytes, on), err);
    if (!op->b.args || !op->b.args->rows)
        return ls_fail(err, LS_EINVAL, "dropout: no rows are given");
    status = ls_cuda_args(&k.args, op->device, stream, op->b.args, err);
    if (status)
        return status;
    return ls_cuda_done(op, ls_k_drop(op->b.y, ls_cuda_at(op, &op->kept), from, &k, on), err);
}

static int dropout_backward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    (void)flags;
    if (!op->desc.needs_dx)
        return LS_OK;
    int status = ls_cuda_done(op,
                              ls_k_drop_back(ls_cuda_dx(op), op->b.dy, ls_cuda_at(op, &op->kept),
                                             op->desc.u.dropout.p, count_of(op), on),
                              err);
    return status ? status : ls_cuda_give_dx(op, on, err);
}

/* ---- export: row-major whatever x is --------------------------------------------------------- */

static int export_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const ls_tensor *t = &op->desc.x;
    const void *x;
    (void)flags;
    int status = ls_cuda_take_x(&x, op, on, 1, err);
    if (status)
        return status;
    return ls_cuda_done(op,
                        t->layout ? ls_k_transpose(op->b.y, x, t->rows, t->h * t->w, t->c, on)
                                  : pass_on(op->b.y, x, op->op.y.bytes, on),
                        err);
}

static int export_backward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    cudaStream_t on = ls_cuda_stream(op->device, stream);
    const ls_tensor *t = &op->desc.x;
    void *dx = ls_cuda_dx(op);
    (void)flags;
    if (!op->desc.needs_dx)
        return LS_OK;
    int status =
        ls_cuda_done(op,
                     t->layout ? ls_k_transpose(dx, op->b.dy, t->rows, t->c, t->h * t->w, on)
                               : pass_on(dx, op->b.dy, op->op.y.bytes, on),
                     err);
    return status ? status : ls_cuda_give_dx(op, on, err);
}

/* ---- create --------------------------------------------------------------------------------- */

static int set_dropout(ls_cuda_op *op, ls_error *err)
{
    const float p = op->desc.u.dropout.p;
    if (!(p >= 0 && p < 1))
        return ls_fail(err, LS_EINVAL, "dropout: p is %g; it must be at least 0 and below 1",
                       (double)p);
    op->forward = dropout_forward;
    op->backward = dropout_backward;
    op->kept = ls_cuda_saved(op, op->desc.training ? count_of(op) : 0);
    return LS_OK;
}

int ls_cuda_pointwise_create(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                             ls_error *err)
{
    static const char *const names[] = {
        [LS_OP_RELU] = "relu",       [LS_OP_EXPORT] = "export", [LS_OP_ADD] = "add",
        [LS_OP_SIGMOID] = "sigmoid", [LS_OP_TANH] = "tanh",     [LS_OP_DROPOUT] = "dropout",
        [LS_OP_GELU] = "gelu",       [LS_OP_SILU] = "silu",     [LS_OP_CONCAT] = "concat",
    };
    const ls_tensor *x = &desc->x;
    ls_cuda_op *op;
    int status = ls_cuda_op_new(&op, device, desc, names[desc->kind], err);
    if (status)
        return status;
    ls_cuda_form form = ls_cuda_form_of(x) == LS_FORM_HALF ? LS_FORM_LAST : ls_cuda_form_of(x);
    if (desc->kind == LS_OP_CONCAT)
        form = LS_FORM_LAST;
    if (desc->kind == LS_OP_ADD) {
        form = form_of_add(desc);
        ls_cuda_use_x2(op, form);
    }
    ls_cuda_use_x(op, form, desc->training && goes_by_x(desc));
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h, x->w,
                              desc->kind == LS_OP_EXPORT ? LS_FORM_PLAIN : form);
    if (desc->kind == LS_OP_CONCAT) {
        ls_cuda_use_x2(op, LS_FORM_LAST);
        op->op.y = ls_cuda_tensor(x->rows, x->c + desc->x2.c, x->h, x->w, LS_FORM_LAST);
    }
    op->forward = curve_forward;
    op->backward = curve_backward;
    if (desc->kind == LS_OP_ADD) {
        op->forward = add_forward;
        op->backward = add_backward;
    } else if (desc->kind == LS_OP_CONCAT) {
        op->forward = concat_forward;
        op->backward = concat_backward;
    } else if (desc->kind == LS_OP_EXPORT) {
        op->forward = export_forward;
        op->backward = export_backward;
    } else if (desc->kind == LS_OP_DROPOUT) {
        status = set_dropout(op, err);
    }
    snprintf(op->kernel, sizeof op->kernel, "cuda");
    return ls_cuda_op_finish(out, op, status);
}
