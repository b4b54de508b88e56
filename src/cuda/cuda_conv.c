/* SPDX-License-Identifier: MIT */
/* Convolution (in messages, `kernel` is its filter), with a bias, a relu and pooling. Weights are
 * stored as [out][kh][kw][c / groups], where `groups` is the number of groups of channels.
 *
 * With fused pooling, forward runs the library's convolution and then a kernel that applies the
 * relu and pools, and adds the bias unless the convolution's plan does so. Backward begins with one
 * kernel that computes the gradient of the convolution's result and the gradient of the bias.
 *
 * If the plans run Lockstep's own kernels for few channels (own_conv.h), which is usual for the
 * first convolution, forward is one kernel. The gradients of the weights and of the bias come
 * straight from the gradient of y, unless the gradient of x is needed too. */
#include "cuda/cuda_op.h"
#include "cuda/own_conv.h"

#include <stdint.h>

/* Largest values in a description, for which sums and products of the values fit an int. SIDE: for
 * height, width and dilation of the filter; LIMIT: for strides and padding. */
enum { LIMIT = 1000000, SIDE = 10000 };

static ls_math_shape math_shape(const ls_cuda_op *op)
{
    const ls_tensor *x = &op->desc.x, *y = &op->product;
    const ls_conv2d *k = &op->desc.u.conv2d;
    return (ls_math_shape){
        .kind = LS_MATH_CONV,
        .half = ls_cuda_is_half(op),
        .bias = k->bias != 0,
        .relu = k->bias && op->desc.fuse_relu,
        .rows = x->rows,
        .c = x->c,
        .h = x->h,
        .w = x->w,
        .out = k->out,
        .y_h = y->h,
        .y_w = y->w,
        .kh = k->kh,
        .kw = k->kw,
        .sh = k->sh,
        .sw = k->sw,
        .ph = k->ph,
        .pw = k->pw,
        .dh = k->dh,
        .dw = k->dw,
        .groups = k->groups,
    };
}

/* ---- own kernels ---------------------------------------------------------------------------- */

static bool is_own_forward(const ls_cuda_op *op)
{
    return op->plan[LS_PASS_FORWARD]->own;
}

/* Returns true if the own kernels compute all of backward. */
static bool is_own_backward(const ls_cuda_op *op)
{
    const ls_math_plan *weights = op->plan[LS_PASS_WEIGHTS];
    return weights && weights->own && !op->desc.needs_dx;
}

/* Returns the arguments of the own kernels, which use the weights and the bias in fp32. */
static ls_k_conv own_conv_of(const ls_cuda_op *op)
{
    const ls_math_shape shape = math_shape(op);
    ls_k_conv k = ls_own_conv_of(&shape);
    k.relu = op->desc.fuse_relu;
    k.pool = op->desc.fuse_pool;
    k.max = op->desc.pool.max;
    k.x_half = op->x_form == LS_FORM_HALF;
    k.w_half = 0;
    k.y_half = ls_cuda_form_of(&op->op.y) == LS_FORM_HALF;
    return k;
}

static cudaError_t own_forward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_conv k = own_conv_of(op);
    uint8_t *bits = op->flags & LS_RUN_EVALUATE ? NULL : ls_cuda_at(op, &op->kept);
    return ls_k_conv_forward(op->b.y, bits, ls_cuda_x(op), op->b.param[0],
                             op->op.params > 1 ? op->b.param[1] : NULL, &k, on);
}

/* In bf16 the gradient of the weights is rounded, as if the library had computed it. */
static cudaError_t own_backward(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_conv k = own_conv_of(op);
    const bool bias = op->op.params > 1 && (!op->desc.zero_bias || k.relu || k.pool);
    const ls_k_conv_grad g = {
        .x = ls_cuda_x(op),
        .dy = op->b.dy,
        .y = k.relu && !k.pool ? op->b.y : NULL,
        .bits = ls_cuda_at(op, &op->kept),
        .partial = ls_cuda_at(op, &op->partial),
        .weight = op->b.grad[0],
        .weight_half = op->flags & LS_RUN_SHADOW ? op->b.shadow_grad[0] : NULL,
        .rounded = ls_cuda_is_half(op),
        .bias = bias ? op->b.grad[1] : NULL,
        .add = ls_cuda_accumulates(op),
    };
    return ls_k_conv_weights(&g, &k, on);
}

/* ---- run ------------------------------------------------------------------------------------ */

static ls_k_quads quads_of(const ls_cuda_op *op)
{
    return ls_cuda_quads_of(&op->product, &op->desc.pool, op->desc.fuse_relu,
                            ls_cuda_form_of(&op->op.y) == LS_FORM_HALF);
}

static cudaError_t pool(ls_cuda_op *op, cudaStream_t on)
{
    const ls_k_quads quads = quads_of(op);
    uint8_t *bits = op->flags & LS_RUN_EVALUATE ? NULL : ls_cuda_at(op, &op->kept);
    const float *bias = op->op.params > 1 && !op->plan_fuses ? op->b.param[1] : NULL;
    return ls_k_quads_forward(op->b.y, bits, ls_cuda_at(op, &op->masked), bias, &quads, on);
}

/* Returns the memory for the library's result: y itself, or scratch memory if the result will be
 * pooled or converted to fp32. */
static void *product_of(const ls_cuda_op *op)
{
    void *half_y = ls_cuda_at(op, &op->half_y);
    return op->desc.fuse_pool ? ls_cuda_at(op, &op->masked) : half_y ? half_y : op->b.y;
}

static int conv_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    if (is_own_forward(op))
        return ls_cuda_done(op, own_forward(op, on->cuda), err);
    int status = ls_cuda_product_run(op, LS_PASS_FORWARD, ls_cuda_x(op), ls_cuda_param(op, 0),
                                     product_of(op), 0, on->cuda, err);
    if (status == LS_OK && op->desc.fuse_pool)
        return ls_cuda_done(op, pool(op, on->cuda), err);
    if (status == LS_OK && op->half_y.bytes > 0)
        status = ls_cuda_done(
            op, ls_k_from_bf16(op->b.y, product_of(op), ls_cuda_elements(&op->op.y), 0, on->cuda),
            err);
    return status ? status : ls_cuda_product_bias(op, on->cuda, err);
}

/* Computes the gradient of the weights. The library cannot add to a gradient. Therefore, with
 * LS_RUN_ACCUMULATE, the library computes the gradient in separate memory, and a kernel adds it. In
 * bf16 the library computes the gradient in shadow_grad, and a kernel converts it to fp32; with
 * LS_RUN_SHADOW it stays there. */
static int weight_gradient(ls_cuda_op *op, const void *x, const void *dy, cudaStream_t on,
                           ls_error *err)
{
    const int add = ls_cuda_accumulates(op);
    const size_t count = op->op.param_floats[0];
    float *grad = op->b.grad[0], *part = ls_cuda_at(op, &op->weight_grad);
    void *out = ls_cuda_is_half(op) ? op->b.shadow_grad[0] : add ? part : grad;
    int status = ls_cuda_product_run(op, LS_PASS_WEIGHTS, x, dy, out, 0, on, err);
    if (status == LS_OK && ls_cuda_is_half(op) && !(op->flags & LS_RUN_SHADOW))
        return ls_cuda_done(op, ls_k_from_bf16(grad, out, count, add, on), err);
    if (status || !add || ls_cuda_is_half(op))
        return status;
    return ls_cuda_done(op, ls_k_sum(grad, grad, part, count, on), err);
}

/* Computes the gradient of the convolution's result from the gradient of the pooled tensor, through
 * the relu if there is one. Also computes the gradient of the bias. */
static int unpool(const void **out, ls_cuda_op *op, cudaStream_t on, ls_error *err)
{
    const ls_k_quads quads = quads_of(op);
    void *dy = ls_cuda_at(op, &op->masked);
    *out = dy;
    return ls_cuda_done(op,
                        ls_k_quads_back(dy, op->op.params > 1 ? op->b.grad[1] : NULL,
                                        ls_cuda_accumulates(op), op->b.dy,
                                        ls_cuda_at(op, &op->kept), ls_cuda_at(op, &op->partial),
                                        &quads, on),
                        err);
}

/* Sets *out to the gradient of the convolution's own result, without the fused relu and pool, and
 * writes the gradient of the bias. */
static int take_dy(const void **out, ls_cuda_op *op, cudaStream_t on, ls_error *err)
{
    if (op->desc.fuse_pool)
        return unpool(out, op, on, err);
    if (!op->desc.zero_bias || op->desc.fuse_relu)
        return ls_cuda_product_dy(out, op, on, err);
    *out = op->b.dy;
    return LS_OK;
}

static int conv_backward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const void *dy = NULL, *factor = NULL;
    if (is_own_backward(op))
        return ls_cuda_done(op, own_backward(op, on->cuda), err);
    int status = take_dy(&dy, op, on->cuda, err);
    if (status == LS_OK)
        status = ls_cuda_factor(&factor, op, &op->half_dy, dy, ls_cuda_elements(&op->op.y),
                                on->cuda, err);
    if (status == LS_OK)
        status = weight_gradient(op, ls_cuda_x(op), factor, on->cuda, err);
    return status == LS_OK && op->desc.needs_dx ? ls_cuda_product_dx(op, factor, on->cuda, err)
                                                : status;
}

/* ---- create --------------------------------------------------------------------------------- */

/* Returns the number of outputs in one direction; 0 if the dilated filter does not fit. */
static int outputs(int size, int kernel, int dilation, int stride, int padding)
{
    const int room = size + 2 * padding - (kernel - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

static int check(const ls_tensor *x, const ls_conv2d *k, ls_error *err)
{
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0 ||
        k->dh < 1 || k->dw < 1 || k->kh > SIDE || k->kw > SIDE || k->dh > SIDE || k->dw > SIDE ||
        k->sh > LIMIT || k->sw > LIMIT || k->ph > LIMIT || k->pw > LIMIT)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d outputs, kernel %d×%d, stride %d×%d, padding %d×%d, dilation "
                       "%d×%d make no sense",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, k->dh, k->dw);
    if (k->groups < 1 || x->c % k->groups || k->out % k->groups)
        return ls_fail(
            err, LS_EINVAL,
            "conv2d: %d groups; the number must divide the %d channels of x and the %d of y",
            k->groups, x->c, k->out);
    if (outputs(x->h, k->kh, k->dh, k->sh, k->ph) < 1 ||
        outputs(x->w, k->kw, k->dw, k->sw, k->pw) < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d, dilated by %d×%d, does not fit an input of "
                       "%d×%d with padding %d×%d",
                       k->kh, k->kw, k->dh, k->dw, x->h, x->w, k->ph, k->pw);
    if ((double)k->out * (x->c / k->groups) * k->kh * k->kw > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "conv2d: the weights are too large");
    return LS_OK;
}

/* Returns the form in which the op uses x. The library multiplies bf16 with bf16. The own kernels
 * read bf16 and fp32, so nothing is converted for them. */
static ls_cuda_form x_form_of(const ls_cuda_op *op)
{
    const bool own = is_own_forward(op) && (!op->desc.training || is_own_backward(op));
    const ls_cuda_form comes = ls_cuda_form_of(&op->desc.x);
    if (own && comes != LS_FORM_PLAIN)
        return comes;
    return !own && ls_cuda_is_half(op) ? LS_FORM_HALF : LS_FORM_LAST;
}

/* Reserves what the library's passes need. */
static void reserve_for_library(ls_cuda_op *op)
{
    const bool half = ls_cuda_is_half(op);
    if (half && ls_cuda_form_of(&op->op.y) != LS_FORM_HALF)
        op->half_y = ls_cuda_scratch(op, ls_cuda_elements(&op->op.y) * sizeof(uint16_t));
    if (op->desc.fuse_pool) /* forward: the result before pooling; backward: its gradient */
        op->masked = ls_cuda_scratch(op, op->product.bytes);
    if (op->desc.training && !half)
        op->weight_grad = ls_cuda_scratch(op, op->op.param_floats[0] * sizeof(float));
}

static void reserve(ls_cuda_op *op)
{
    const bool training = op->desc.training != 0;
    ls_cuda_use_x(op, x_form_of(op), 1);
    if (op->desc.fuse_pool)
        op->kept = ls_cuda_saved(op, training ? ls_cuda_elements(&op->op.y) : 0);
    if (is_own_backward(op)) {
        const ls_k_conv k = own_conv_of(op);
        op->partial = ls_cuda_scratch(op, ls_k_conv_partial_floats(&k) * sizeof(float));
    } else {
        /* x is in the form in which it is multiplied */
        ls_cuda_product_reserve(op, ls_cuda_is_half(op) ? LS_FORM_HALF : LS_FORM_LAST);
    }
    if (!is_own_forward(op) || (training && !is_own_backward(op)))
        reserve_for_library(op);
}

/* Sets the shapes of the library's result (`product`) and of y, which is the pooled result if there
 * is a pool. */
static int shape_results(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_conv2d *k = &op->desc.u.conv2d;
    const ls_cuda_form form = ls_cuda_is_half(op) ? LS_FORM_HALF : LS_FORM_LAST;
    op->product = ls_cuda_tensor(x->rows, k->out, outputs(x->h, k->kh, k->dh, k->sh, k->ph),
                                 outputs(x->w, k->kw, k->dw, k->sw, k->pw), form);
    op->op.y = op->product;
    if (!op->desc.fuse_pool)
        return LS_OK;
    const ls_tensor *made = &op->product;
    op->op.y = ls_cuda_tensor(x->rows, k->out, made->h / 2, made->w / 2, form);
    if (!ls_cuda_pools_quads(&op->desc.pool) || made->h < 2 || made->w < 2 ||
        ls_cuda_form_of(made) != form || ls_cuda_form_of(&op->op.y) != form)
        return ls_fail(err, LS_EUNSUPPORTED, "conv2d: only windows of 2×2 side by side are fused");
    if (ls_cuda_elements(made) > (size_t)LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "conv2d: too many values to be pooled at once");
    return LS_OK;
}

int ls_cuda_conv_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_conv2d *k = &op->desc.u.conv2d;
    op->desc.u.conv2d = ls_conv2d_filled(*k);
    int status = check(x, k, err);
    if (status == LS_OK)
        status = shape_results(op, err);
    if (status)
        return status;
    ls_cuda_op_param(op, k->out, x->c / k->groups, k->kh * k->kw);
    if (k->bias)
        ls_cuda_op_param(op, 0, k->out, 1);
    op->forward.pass = conv_forward;
    op->backward.pass = conv_backward;
    op->op.shadow_grads = ls_cuda_is_half(op);
    const ls_math_shape made = math_shape(op);
    status = ls_cuda_product_plan(op, &made, err);
    if (status == LS_OK)
        reserve(op);
    return status;
}
