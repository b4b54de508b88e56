/* SPDX-License-Identifier: MIT */
/* Average and maximum pooling, and upsampling. */
#include "cuda/cuda_op.h"

#include <stdint.h>

enum { LIMIT = 1000000 /* largest value in a description, so that sums fit an int */ };

static ls_k_pool shape_of(const ls_cuda_op *op)
{
    const ls_pool2d *k = &op->desc.pool;
    const ls_tensor *x = &op->desc.x, *y = &op->op.y;
    return (ls_k_pool){.rows = x->rows,
                       .c = x->c,
                       .h = x->h,
                       .w = x->w,
                       .y_h = y->h,
                       .y_w = y->w,
                       .kh = k->kh,
                       .kw = k->kw,
                       .sh = k->sh,
                       .sw = k->sw,
                       .ph = k->ph,
                       .pw = k->pw,
                       .max = k->max,
                       .end_h = x->h + k->ph + k->eh,
                       .end_w = x->w + k->pw + k->ew,
                       .count_padding = k->count_padding};
}

bool ls_cuda_pools_quads(const ls_pool2d *k)
{
    return k->kh == 2 && k->kw == 2 && k->sh == 2 && k->sw == 2 && k->ph == 0 && k->pw == 0 &&
           k->eh == 0 && k->ew == 0 && !k->ceil;
}

ls_k_quads ls_cuda_quads_of(const ls_tensor *x, const ls_pool2d *pool, int relu, int half)
{
    return (ls_k_quads){x->rows, x->c, x->h, x->w, pool->max, relu, half};
}

static cudaError_t pool_forward(ls_cuda_op *op, cudaStream_t on)
{
    const void *x = ls_cuda_x(op);
    const ls_k_pool shape = shape_of(op);
    const ls_k_quads quads = ls_cuda_quads_of(&op->desc.x, &op->desc.pool, 0, 0);
    void *kept = ls_cuda_at(op, &op->kept);
    if (ls_cuda_pools_quads(&op->desc.pool))
        return ls_k_quads_forward(op->b.y, kept, x, NULL, &quads, on);
    return ls_k_pool_forward(op->b.y, kept, x, &shape, on);
}

static cudaError_t pool_backward(ls_cuda_op *op, cudaStream_t on)
{
    float *dx = ls_cuda_dx(op);
    const ls_k_pool shape = shape_of(op);
    const ls_k_quads quads = ls_cuda_quads_of(&op->desc.x, &op->desc.pool, 0, 0);
    const void *kept = ls_cuda_at(op, &op->kept);
    if (ls_cuda_pools_quads(&op->desc.pool))
        return ls_k_quads_back(dx, NULL, 0, op->b.dy, kept, NULL, &quads, on);
    return ls_k_pool_back(dx, op->b.dy, kept, &shape, on);
}

static int lines_of(const ls_tensor *x, const ls_pool2d *k)
{
    return ls_windows(x->h, k->kh, k->sh, k->ph, k->ph + k->eh, k->ceil);
}

static int columns_of(const ls_tensor *x, const ls_pool2d *k)
{
    return ls_windows(x->w, k->kw, k->sw, k->pw, k->pw + k->ew, k->ceil);
}

static int check(const ls_tensor *x, const ls_pool2d *k, ls_error *err)
{
    const long long below = (long long)k->ph + k->eh, right = (long long)k->pw + k->ew;
    if (k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0 ||
        k->kh > LIMIT || k->kw > LIMIT || k->sh > LIMIT || k->sw > LIMIT)
        return ls_fail(err, LS_EINVAL,
                       "pool: window %d×%d, stride %d×%d, padding %d×%d: window and stride "
                       "must be at least 1, padding at least 0",
                       k->kh, k->kw, k->sh, k->sw, k->ph, k->pw);
    if (k->ph >= k->kh || k->pw >= k->kw || below >= k->kh || right >= k->kw || below < 0 ||
        right < 0)
        return ls_fail(err, LS_EINVAL,
                       "pool: padding %d×%d and %lld×%lld must be at least 0 and smaller than the "
                       "window %d×%d, which would hold no pixel else",
                       k->ph, k->pw, below, right, k->kh, k->kw);
    if (lines_of(x, k) < 1 || columns_of(x, k) < 1)
        return ls_fail(err, LS_EINVAL,
                       "pool: a window of %d×%d does not fit an input of %d×%d with padding "
                       "%d×%d",
                       k->kh, k->kw, x->h, x->w, k->ph, k->pw);
    return LS_OK;
}

int ls_cuda_pool_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_pool2d *k = &op->desc.pool;
    int status = check(x, k, err);
    if (status)
        return status;
    op->op.y = ls_cuda_tensor(x->rows, x->c, lines_of(x, k), columns_of(x, k), LS_FORM_LAST);
    ls_cuda_use_x(op, LS_FORM_LAST, 0);
    if (op->desc.training && (k->max || ls_cuda_pools_quads(k)))
        op->kept = ls_cuda_saved(op, ls_cuda_elements(&op->op.y) *
                                         (ls_cuda_pools_quads(k) ? 1 : sizeof(int32_t)));
    op->forward.kernels = pool_forward;
    op->backward.kernels = pool_backward;
    op->op.kernel = "cuda nhwc";
    return LS_OK;
}

/* ---- upsampling ----------------------------------------------------------------------------- */

static ls_k_upsample scale_of(const ls_cuda_op *op)
{
    const ls_tensor *x = &op->desc.x;
    return (ls_k_upsample){
        x->rows, x->c, x->h, x->w, op->desc.u.upsample.sh, op->desc.u.upsample.sw};
}

static cudaError_t upsample_forward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_upsample k = scale_of(op);
    return ls_k_upsample_of(op->b.y, ls_cuda_x(op), &k, on);
}

static cudaError_t upsample_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_upsample k = scale_of(op);
    return ls_k_upsample_back(ls_cuda_dx(op), op->b.dy, &k, on);
}

int ls_cuda_upsample_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_upsample *by = &op->desc.u.upsample;
    if (by->sh < 1 || by->sw < 1)
        return ls_fail(err, LS_EINVAL, "upsample: a scale of %d×%d; each must be at least 1",
                       by->sh, by->sw);
    if ((double)x->rows * x->c * x->h * x->w * by->sh * by->sw > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "upsample: %d rows of %d×%d×%d by %d×%d are too large",
                       x->rows, x->c, x->h, x->w, by->sh, by->sw);
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h * by->sh, x->w * by->sw, LS_FORM_LAST);
    ls_cuda_use_x(op, LS_FORM_LAST, 0);
    op->forward.kernels = upsample_forward;
    op->backward.kernels = upsample_backward;
    op->op.kernel = "cuda nhwc";
    return LS_OK;
}

/* ---- padding -------------------------------------------------------------------------------- */

static cudaError_t pad_forward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_tensor *x = &op->desc.x, *y = &op->op.y;
    const ls_k_pad k = {.rows = x->rows,
                        .c = x->c,
                        .h = x->h,
                        .w = x->w,
                        .y_h = y->h,
                        .y_w = y->w,
                        .top = op->desc.u.pad.top,
                        .left = op->desc.u.pad.left};
    return ls_k_pad_of(op->b.y, ls_cuda_x(op), &k, on);
}

static cudaError_t pad_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_tensor *x = &op->desc.x, *y = &op->op.y;
    const ls_k_pad k = {.rows = x->rows,
                        .c = x->c,
                        .h = y->h,
                        .w = y->w,
                        .y_h = x->h,
                        .y_w = x->w,
                        .top = -op->desc.u.pad.top,
                        .left = -op->desc.u.pad.left};
    return ls_k_pad_of(ls_cuda_dx(op), op->b.dy, &k, on);
}

int ls_cuda_pad_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_pad *pad = &op->desc.u.pad;
    if (pad->top < 0 || pad->left < 0 || pad->bottom < 0 || pad->right < 0)
        return ls_fail(err, LS_EINVAL, "pad: %d, %d, %d and %d zeros; each must be at least 0",
                       pad->top, pad->left, pad->bottom, pad->right);
    const double h = (double)x->h + pad->top + pad->bottom;
    const double w = (double)x->w + pad->left + pad->right;
    if (x->rows * (double)x->c * h * w > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "pad: %d rows of %d×%g×%g are too large", x->rows,
                       x->c, h, w);
    op->op.y = ls_cuda_tensor(x->rows, x->c, (int)h, (int)w, LS_FORM_LAST);
    ls_cuda_use_x(op, LS_FORM_LAST, 0);
    op->forward.kernels = pad_forward;
    op->backward.kernels = pad_backward;
    op->op.kernel = "cuda nhwc";
    return LS_OK;
}
