/* SPDX-License-Identifier: MIT */
/* Layers that multiply (convolution, dense): the library's plans, the factors of their products,
 * and the gradient of the bias. The interface is in cuda_op.h. */
#include "cuda/cuda_op.h"

#include <stdint.h>
#include <stdio.h>

static size_t y_positions(const ls_cuda_op *op)
{
    const ls_tensor *y = &op->op.y;
    return (size_t)y->rows * (size_t)y->h * (size_t)y->w;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static int plan_forward(ls_cuda_op *op, const ls_math_shape *forward, ls_error *err)
{
    ls_math_shape shape = *forward;
    ls_error declined = {0};
    ls_math_plan **plan = &op->plan[LS_PASS_FORWARD];
    if (shape.bias) {
        int status = ls_math_plan_create(plan, op->device->math, &shape, &declined);
        op->plan_fuses = status == LS_OK;
        if (status != LS_EUNSUPPORTED)
            return status ? ls_fail(err, status, "%s", declined.text) : LS_OK;
    }
    shape.bias = shape.relu = 0;
    return ls_math_plan_create(plan, op->device->math, &shape, err);
}

static int make_plans(ls_cuda_op *op, const ls_math_shape *forward, ls_error *err)
{
    const int first = op->desc.needs_dx ? LS_PASS_DATA : LS_PASS_WEIGHTS;
    ls_math_shape shape = *forward;
    shape.bias = shape.relu = 0;
    int status = plan_forward(op, forward, err);
    for (int p = first; op->desc.training && p < LS_PASSES && status == LS_OK; p++) {
        shape.kind = (ls_math_kind)(forward->kind + p);
        status = ls_math_plan_create(&op->plan[p], op->device->math, &shape, err);
    }
    return status;
}

int ls_cuda_product_plan(ls_cuda_op *op, const ls_math_shape *forward, ls_error *err)
{
    size_t most = 0;
    int status = make_plans(op, forward, err);
    if (status)
        return status;
    op->needs_shadow = ls_cuda_is_half(op);
    for (int p = 0; p < LS_PASSES; p++)
        if (op->plan[p] && op->plan[p]->workspace_bytes > most)
            most = op->plan[p]->workspace_bytes;
    op->work = ls_cuda_scratch(op, most);
    op->op.kernel = op->kernel;
    snprintf(op->kernel, sizeof op->kernel, "%s%s", op->plan[LS_PASS_FORWARD]->name,
             op->plan_fuses && forward->relu ? "+bias+relu"
             : op->plan_fuses                ? "+bias"
                                             : "");
    return LS_OK;
}

/* Returns the fused bias in the type that the library requires: fp32 for a dense layer; for a
 * convolution the type of the factors. */
static const void *fused_bias(const ls_cuda_op *op)
{
    return op->desc.kind == LS_OP_DENSE ? op->b.param[1] : ls_cuda_param(op, 1);
}

int ls_cuda_product_run(ls_cuda_op *op, int pass, const void *a, const void *b, void *out, int add,
                        cudaStream_t stream, ls_error *err)
{
    ls_math_operands o = {a, b, NULL, out, add, ls_cuda_at(op, &op->work)};
    if (pass == LS_PASS_FORWARD && op->plan_fuses)
        o.bias = fused_bias(op);
    return ls_math_run(op->plan[pass], stream, &o, err);
}

/* ---- factors -------------------------------------------------------------------------------- */

static ls_cuda_form y_form(const ls_cuda_op *op)
{
    return ls_cuda_form_of(&op->op.y);
}

static bool is_half_already(const ls_cuda_op *op, ls_cuda_form form)
{
    return !ls_cuda_is_half(op) || form == LS_FORM_HALF;
}

/* In training the bf16 copy of x is in saved memory, because backward uses it again. */
void ls_cuda_product_reserve(ls_cuda_op *op, ls_cuda_form x_form)
{
    const ls_op_desc *d = &op->desc;
    const size_t half = sizeof(uint16_t);
    const size_t x = is_half_already(op, x_form) ? 0 : ls_cuda_elements(&d->x) * half;
    const size_t y = is_half_already(op, y_form(op)) ? 0 : ls_cuda_elements(&op->op.y) * half;
    op->half_x = d->training ? ls_cuda_saved(op, x) : ls_cuda_scratch(op, x);
    if (!d->training)
        return;
    op->half_dy = ls_cuda_scratch(op, y);
    op->masked = ls_cuda_scratch(op, d->fuse_relu && !d->fuse_pool ? op->op.y.bytes : 0);
    if (op->op.params > 1)
        op->partial =
            ls_cuda_scratch(op, ls_k_partial_floats(y_positions(op), op->op.y.c) * sizeof(float));
}

const void *ls_cuda_param(const ls_cuda_op *op, int index)
{
    return ls_cuda_is_half(op) ? op->b.shadow[index] : op->b.param[index];
}

int ls_cuda_factor(const void **out, ls_cuda_op *op, const ls_cuda_room *room, const void *from,
                   size_t count, cudaStream_t stream, ls_error *err)
{
    uint16_t *half = ls_cuda_at(op, room);
    *out = half ? half : from;
    return half ? ls_cuda_done(op, ls_k_to_bf16(half, from, count, stream), err) : LS_OK;
}

/* ---- dy ------------------------------------------------------------------------------------- */

int ls_cuda_product_dy(const void **out, ls_cuda_op *op, cudaStream_t stream, ls_error *err)
{
    const ls_op_buffers *b = &op->b;
    const int half = y_form(op) == LS_FORM_HALF;
    const void *y = op->desc.fuse_relu ? b->y : NULL;
    void *masked = ls_cuda_at(op, &op->masked);
    cudaError_t e = cudaSuccess;
    if (op->op.params > 1)
        e = ls_k_bias_grad(b->grad[1], masked, b->dy, y, half, ls_cuda_accumulates(op),
                           ls_cuda_at(op, &op->partial), y_positions(op), op->op.y.c, stream);
    else if (y)
        e = ls_k_add_back(masked, NULL, b->dy, y, half, ls_cuda_elements(&op->op.y), stream);
    *out = y ? masked : b->dy;
    return ls_cuda_done(op, e, err);
}

int ls_cuda_product_dx(ls_cuda_op *op, const void *dy, cudaStream_t stream, ls_error *err)
{
    return ls_cuda_product_run(op, LS_PASS_DATA, dy, ls_cuda_param(op, 0), ls_cuda_dx(op), 0,
                               stream, err);
}

int ls_cuda_product_bias(ls_cuda_op *op, cudaStream_t stream, ls_error *err)
{
    const int bias = op->op.params > 1;
    if (op->plan_fuses || (!bias && !op->desc.fuse_relu))
        return LS_OK;
    return ls_cuda_done(op,
                        ls_k_bias(op->b.y, bias ? op->b.param[1] : NULL, y_form(op) == LS_FORM_HALF,
                                  op->desc.fuse_relu, y_positions(op), op->op.y.c, stream),
                        err);
}
