/* SPDX-License-Identifier: MIT */
/* A dense layer: y = x·wᵀ + bias, with an optional relu. The op reads x in the order in which x is
 * stored. The weights of an output are stored in the order of x's elements: [out][h][w][c] if x is
 * channels last. */
#include "cuda/cuda_op.h"

static int dense_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const void *x;
    int status =
        ls_cuda_factor(&x, op, &op->half_x, op->b.x, ls_cuda_elements(&op->desc.x), on->cuda, err);
    if (status == LS_OK)
        status = ls_cuda_product_run(op, LS_PASS_FORWARD, x, ls_cuda_param(op, 0), op->b.y, 0,
                                     on->cuda, err);
    return status ? status : ls_cuda_product_bias(op, on->cuda, err);
}

static int dense_backward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const void *rounded = ls_cuda_at(op, &op->half_x), *x = rounded ? rounded : op->b.x;
    const void *masked = NULL, *dy = NULL;
    int status = ls_cuda_product_dy(&masked, op, on->cuda, err);
    if (status == LS_OK)
        status = ls_cuda_factor(&dy, op, &op->half_dy, masked, ls_cuda_elements(&op->op.y),
                                on->cuda, err);
    if (status == LS_OK)
        status = ls_cuda_product_run(op, LS_PASS_WEIGHTS, x, dy, op->b.grad[0],
                                     ls_cuda_accumulates(op), on->cuda, err);
    return status == LS_OK && op->desc.needs_dx ? ls_cuda_product_dx(op, dy, on->cuda, err)
                                                : status;
}

static ls_math_shape math_shape(const ls_cuda_op *op)
{
    const int bias = op->desc.u.dense.bias != 0;
    return (ls_math_shape){
        .kind = LS_MATH_DENSE,
        .half = ls_cuda_is_half(op),
        .bias = bias,
        .relu = bias && op->desc.fuse_relu,
        .rows = op->desc.x.rows,
        .c = (int)ls_cuda_row(&op->desc.x),
        .out = op->desc.u.dense.out,
    };
}

/* Reserves memory. Results of products are fp32. If x is bf16, it is used as a factor without
 * conversion; dx is computed in fp32 and then rounded to bf16. */
static void reserve(ls_cuda_op *op)
{
    const ls_tensor *x = &op->desc.x;
    op->x_form = ls_cuda_form_of(x);
    ls_cuda_product_reserve(op, op->x_form);
    if (op->x_form != LS_FORM_HALF || !op->desc.training || !op->desc.needs_dx)
        return;
    op->x_form = LS_FORM_LAST;
    op->dx = ls_cuda_scratch(op, ls_cuda_elements(x) * sizeof(float));
}

int ls_cuda_dense_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const int outputs = op->desc.u.dense.out;
    if (outputs < 1)
        return ls_fail(err, LS_EINVAL, "dense: %d outputs", outputs);
    if ((double)outputs * x->c * x->h * x->w > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "dense: the weights are too large");
    op->op.y = ls_cuda_tensor(x->rows, outputs, 1, 1, LS_FORM_LAST);
    if (x->layout)
        ls_cuda_op_param(op, outputs, x->c, x->h * x->w);
    else
        ls_cuda_op_param(op, 0, (int)ls_cuda_row(x) * outputs, 1);
    if (op->desc.u.dense.bias)
        ls_cuda_op_param(op, 0, outputs, 1);
    op->forward.pass = dense_forward;
    op->backward.pass = dense_backward;
    const ls_math_shape shape = math_shape(op);
    reserve(op);
    return ls_cuda_product_plan(op, &shape, err);
}
