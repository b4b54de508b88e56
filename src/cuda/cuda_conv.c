/* Convolution (in messages, `kernel` is its filter), with a bias, a relu and pooling. Weights are
 * stored as [out][kh][kw][c / groups], where `groups` is the number of groups of channels.
 *
 * With fused pooling, forward runs the library's convolution and then a kernel that pools. The
 * pooling kernel applies the relu before it pools. It also adds the bias, unless the convolution's
 * plan does so. Backward begins with one kernel that computes the gradient of the convolution's
 * result and the gradient of the bias. */
#include "cuda/cuda_op.h"

#include <stdint.h>

/* Largest values in a description, for which sums and products of the values fit an int. SIDE: for
 * height, width and dilation of the filter; LIMIT: for strides and padding. */
enum { LIMIT = 1000000, SIDE = 10000 };

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

static void reserve(ls_cuda_op *op)
{
    const ls_cuda_form form = ls_cuda_is_half(op) ? LS_FORM_HALF : LS_FORM_LAST;
    ls_cuda_use_x(op, form, 1);
    ls_cuda_product_reserve(op, form);
    if (ls_cuda_is_half(op) && ls_cuda_form_of(&op->op.y) != LS_FORM_HALF)
        op->half_y = ls_cuda_scratch(op, ls_cuda_elements(&op->op.y) * sizeof(uint16_t));
    if (op->desc.fuse_pool) {
        /* forward: the convolution's result before pooling; backward: its gradient */
        op->masked = ls_cuda_scratch(op, op->product.bytes);
        op->kept = ls_cuda_saved(op, op->desc.training ? ls_cuda_elements(&op->op.y) : 0);
    }
    if (op->desc.training && !ls_cuda_is_half(op))
        op->weight_grad = ls_cuda_scratch(op, op->op.param_floats[0] * sizeof(float));
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
    reserve(op);
    return ls_cuda_product_plan(op, &made, err);
}
