/* SPDX-License-Identifier: MIT */
/* Batch normalisation, alone, followed by a relu, or followed by an addition and a relu; and layer
 * normalisation. */
#include "cuda/cuda_op.h"

static ls_k_norm shape_of(const ls_cuda_op *op)
{
    return (ls_k_norm){op->m,
                       op->desc.x.c,
                       op->desc.x.rows,
                       op->desc.u.batchnorm.epsilon,
                       op->desc.fuse_relu,
                       op->x_form == LS_FORM_HALF};
}

/* Returns the memory for the means and the values 1/√(variance + ε), 2·c floats. In training it is
 * saved memory, which backward reads. In evaluation it is scratch memory, so that statistics which
 * a training step has saved stay as they are. */
static float *statistics_of(const ls_cuda_op *op, int evaluate)
{
    return ls_cuda_at(op, !evaluate && op->desc.training ? &op->mean : &op->sums);
}

/* Writes the contribution to the running statistics if each channel has only one value and
 * therefore no variance. The contribution is the running statistics themselves, so that
 * LS_OP_RUNNING leaves them unchanged. */
static cudaError_t contribute_running(const ls_cuda_op *op, float *contribution, cudaStream_t on)
{
    const size_t n = 2 * (size_t)op->desc.x.c;
    if (ls_cuda_accumulates(op))
        return ls_k_sum(contribution, contribution, op->b.running, n, on);
    return cudaMemcpyAsync(contribution, op->b.running, n * sizeof(float), cudaMemcpyDeviceToDevice,
                           on);
}

static int statistics(ls_cuda_op *op, const void *x, const ls_k_norm *shape, cudaStream_t on,
                      ls_error *err)
{
    const int evaluate = (op->flags & LS_RUN_EVALUATE) != 0;
    float *mean = statistics_of(op, evaluate), *inverse = mean + shape->c;
    float *contribution = op->desc.training ? op->b.contribution : NULL;
    if (evaluate && !op->b.running)
        return ls_fail(err, LS_EINVAL,
                       "batchnorm: evaluation needs running statistics, but `running` is NULL");
    if (!evaluate && op->desc.training && !contribution)
        return ls_fail(err, LS_EINVAL,
                       "batchnorm: training needs a buffer `contribution`, but it is NULL");
    const int stays = !evaluate && contribution && shape->m == 1 && op->b.running != NULL;
    cudaError_t e = evaluate ? ls_k_norm_running(mean, inverse, op->b.running, shape, on)
                             : ls_k_norm_statistics(mean, inverse, stays ? NULL : contribution,
                                                    ls_cuda_accumulates(op), x,
                                                    ls_cuda_at(op, &op->partial), shape, on);
    if (e == cudaSuccess && stays)
        e = contribute_running(op, contribution, on);
    return ls_cuda_done(op, e, err);
}

static int norm_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_k_norm shape = shape_of(op);
    const int evaluate = (op->flags & LS_RUN_EVALUATE) != 0;
    const void *x = ls_cuda_x(op), *x2 = op->desc.fuse_add ? ls_cuda_x2(op) : NULL;
    const float *mean = statistics_of(op, evaluate);
    uint8_t *mask = evaluate ? NULL : ls_cuda_at(op, &op->kept);
    int status = statistics(op, x, &shape, on->cuda, err);
    if (status)
        return status;
    return ls_cuda_done(op,
                        ls_k_norm_apply(op->b.y, mask, x, x2, mean, mean + shape.c, op->b.param[0],
                                        op->b.param[1], &shape, on->cuda),
                        err);
}

static cudaError_t norm_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_norm shape = shape_of(op);
    const float *mean = ls_cuda_at(op, &op->mean), *inverse = mean + shape.c;
    const uint8_t *mask = ls_cuda_at(op, &op->kept);
    const void *x = ls_cuda_x(op);
    float *sums = ls_cuda_at(op, &op->sums);
    cudaError_t e =
        ls_k_norm_grad(op->b.grad[0], op->b.grad[1], sums, ls_cuda_accumulates(op), x, op->b.dy,
                       mask, mean, inverse, ls_cuda_at(op, &op->partial), &shape, on);
    if (e == cudaSuccess && op->desc.needs_dx)
        e = ls_k_norm_dx(ls_cuda_dx(op), op->desc.fuse_add ? ls_cuda_dx2(op) : NULL, x, op->b.dy,
                         mask, mean, inverse, op->b.param[0], sums, &shape, on);
    return e;
}

/* Returns the form of y: bf16 if all inputs are bf16, else fp32 channels last. */
static ls_cuda_form form_of(const ls_op_desc *d)
{
    return ls_cuda_form_of(&d->x) == LS_FORM_HALF &&
                   (!d->fuse_add || ls_cuda_form_of(&d->x2) == LS_FORM_HALF)
               ? LS_FORM_HALF
               : LS_FORM_LAST;
}

static void reserve(ls_cuda_op *op)
{
    const ls_op_desc *d = &op->desc;
    const size_t c = (size_t)d->x.c;
    ls_cuda_use_x(op, form_of(d), 1);
    if (d->fuse_add)
        ls_cuda_use_x2(op, form_of(d), 0);
    op->mean = ls_cuda_saved(op, d->training ? 2 * c * sizeof(float) : 0);
    op->kept = ls_cuda_saved(op, d->training && d->fuse_relu
                                     ? ls_k_mask_bytes(op->m, d->x.c, op->x_form == LS_FORM_HALF)
                                     : 0);
    op->sums = ls_cuda_scratch(op, 2 * c * sizeof(float));
    op->partial = ls_cuda_scratch(op, ls_k_partial_floats(op->m, d->x.c) * sizeof(float));
}

int ls_cuda_norm_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    if (!(op->desc.u.batchnorm.epsilon >= 0))
        return ls_fail(err, LS_EINVAL, "batchnorm: epsilon is %g; it must not be negative",
                       (double)op->desc.u.batchnorm.epsilon);
    for (int i = 0; i < 2; i++)
        ls_cuda_op_param(op, 0, x->c, 1);
    op->op.contribution_floats = 2 * (size_t)x->c;
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h, x->w, form_of(&op->desc));
    reserve(op);
    op->forward.pass = norm_forward;
    op->backward.kernels = norm_backward;
    op->op.kernel = op->x_form == LS_FORM_HALF ? "cuda nhwc bf16" : "cuda nhwc";
    return LS_OK;
}

/* ---- layer norm; its parameters are stored in the order of x --------------------------------- */

static cudaError_t layer_norm_forward(ls_cuda_op *op, cudaStream_t on)
{
    return ls_k_layer_norm(op->b.y, ls_cuda_at(op, &op->mean), ls_cuda_x(op), op->b.param[0],
                           op->b.param[1], op->desc.u.layernorm.epsilon, op->desc.x.rows,
                           ls_cuda_row(&op->desc.x), on);
}

static cudaError_t layer_norm_backward(ls_cuda_op *op, cudaStream_t on)
{
    const float *stats = ls_cuda_at(op, &op->mean), *x = ls_cuda_x(op);
    const int rows = op->desc.x.rows;
    const size_t n = ls_cuda_row(&op->desc.x);
    cudaError_t e = ls_k_layer_norm_grad(op->b.grad[0], op->b.grad[1], ls_cuda_accumulates(op), x,
                                         op->b.dy, stats, rows, n, on);
    if (e == cudaSuccess && op->desc.needs_dx)
        e = ls_k_layer_norm_dx(ls_cuda_dx(op), x, op->b.dy, op->b.param[0], stats, rows, n, on);
    return e;
}

int ls_cuda_layer_norm_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    if (!(op->desc.u.layernorm.epsilon > 0))
        return ls_fail(err, LS_EINVAL, "layernorm: epsilon is %g; it must be above 0",
                       (double)op->desc.u.layernorm.epsilon);
    for (int i = 0; i < 2; i++)
        ls_cuda_op_param(op, 1, x->c, x->h * x->w);
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h, x->w, LS_FORM_LAST);
    ls_cuda_use_x(op, LS_FORM_LAST, 1);
    const size_t bytes = 2 * (size_t)x->rows * sizeof(float);
    op->mean = op->desc.training ? ls_cuda_saved(op, bytes) : ls_cuda_scratch(op, bytes);
    op->forward.kernels = layer_norm_forward;
    op->backward.kernels = layer_norm_backward;
    op->op.kernel = "cuda nhwc";
    return LS_OK;
}
