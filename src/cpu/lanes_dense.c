/* SPDX-License-Identifier: MIT */
/* The dense op: y = weights · x + bias, with a relu if one is fused.
 *
 * dz is the gradient of the op's result before the relu. The scratch memory of backward is [dz][dz
 * transposed]. For few rows (few.h) it has only a forward pass; the scratch memory is then a copy
 * of an image x in the layout `flat`. */
#include "base/error.h"
#include "cpu/few.h"

typedef struct dense_op {
    ls_lanes_op base;    /* base; must be first */
    int in, out, padded; /* padded: outputs rounded up to a multiple of sixteen */
    int bias, relu;
    /* few rows: the shape of x, and whether it has the layout `flat` */
    ls_tensor x;
    bool flat;
} dense_op;

/* number of sixteens of an item, the work that a thread of the team takes at a time */
#define SOME 4
#define FEW_SOME 8 /* number of sixteens of an item for few rows */

static uint32_t items(int n)
{
    return (uint32_t)((n + SOME * LS_LANES - 1) / (SOME * LS_LANES));
}

/* Returns the arguments of item `item` of a pass whose `of` outputs or inputs are divided into
 * items. */
static ls_lanes_dense part_of(const dense_op *op, uint32_t item, int of)
{
    const int from = (int)item * SOME, all = (of + LS_LANES - 1) / LS_LANES;
    return (ls_lanes_dense){op->in, op->out, op->base.packets, from,
                            from + SOME < all ? from + SOME : all};
}

static void forward_some(void *arg, uint32_t item)
{
    const dense_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_dense l = part_of(op, item, op->out);
    op->base.kernels->dense_forward(&l, b->x, b->param[0], op->bias ? b->param[1] : NULL, op->relu,
                                    b->y);
}

/* Returns the memory for the transposed dz. */
static float *dzt_of(const dense_op *op)
{
    return (float *)op->base.b.scratch + (size_t)op->base.packets * LS_LANES * (size_t)op->padded;
}

static void weights_some(void *arg, uint32_t item)
{
    const dense_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_dense l = part_of(op, item, op->out);
    op->base.kernels->dense_weights(&l, b->x, dzt_of(op), b->grad[0], op->bias ? b->grad[1] : NULL,
                                    (op->base.flags & LS_RUN_ACCUMULATE) != 0);
}

static void data_some(void *arg, uint32_t item)
{
    const dense_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_dense l = part_of(op, item, op->in);
    op->base.kernels->dense_data(&l, b->scratch, b->param[0], b->dx);
}

static int dense_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const dense_op *op = (const dense_op *)base;
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_dense l = {op->in, op->out, op->base.packets, 0, op->padded / LS_LANES};
    op->base.kernels->dense_grad(&l, b->dy, op->relu ? b->y : NULL, b->scratch, dzt_of(op));
    return ls_lanes_op_backward(base, stream, flags, err);
}

/* ---- few rows -------------------------------------------------------------------------------- */

/* Returns true if a row has the same floats in the layouts `few` and `flat`. */
static bool is_vector(const ls_tensor *x)
{
    return x->h * x->w == 1;
}

/* Returns the rows of x in the order c, h, w, `*step` floats apart: x itself, or a copy in scratch
 * memory. */
static const float *vectors(const dense_op *op, size_t *step)
{
    *step = ls_flat_row(&op->x);
    if (op->flat || is_vector(&op->x))
        return op->base.b.x;
    ls_few_to_plain(op->base.b.scratch, *step, op->base.b.x, &op->x);
    return op->base.b.scratch;
}

typedef struct few_dense {
    const dense_op *op;
    const float *x;
    size_t step; /* floats from one row of x to the next */
} few_dense;

static void few_some(void *arg, uint32_t item)
{
    const few_dense *few = arg;
    const dense_op *op = few->op;
    const ls_op_buffers *b = &op->base.b;
    const int from = (int)item * FEW_SOME, all = op->padded / LS_LANES;
    const ls_few_dense d = {.in = op->in,
                            .rows = op->x.rows,
                            .from = from,
                            .to = from + FEW_SOME < all ? from + FEW_SOME : all,
                            .x_row = few->step,
                            .y_row = (size_t)op->padded,
                            .x = few->x,
                            .w = b->param[0],
                            .b = op->bias ? b->param[1] : NULL,
                            .y = b->y,
                            .relu = op->relu};
    op->base.kernels->few->dense(&d);
}

static void forward_few(ls_lanes_op *base)
{
    const dense_op *op = (const dense_op *)base;
    few_dense few = {.op = op};
    few.x = vectors(op, &few.step);
    const uint32_t sixteens = (uint32_t)(op->padded / LS_LANES);
    ls_team_run(base->team, (sixteens + FEW_SOME - 1) / FEW_SOME, few_some, &few);
}

static const ls_op_impl dense_impl = LS_LANES_IMPL(ls_lanes_op_forward, dense_backward);

int ls_cpu_dense_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *base;
    if (desc->u.dense.out < 1)
        return ls_fail(err, LS_EINVAL, "dense: %d outputs", desc->u.dense.out);
    int status = ls_lanes_op_new(&base, sizeof(dense_op), &dense_impl, device, desc, err);
    if (status)
        return status;
    dense_op *op = (dense_op *)base;
    op->in = desc->x.c * desc->x.h * desc->x.w;
    op->out = desc->u.dense.out;
    op->padded = (op->out + LS_LANES_OUT - 1) / LS_LANES_OUT * LS_LANES_OUT;
    op->bias = desc->u.dense.bias;
    op->relu = desc->fuse_relu;
    ls_lanes_op_set_y(base, op->out, 1, 1);
    ls_lanes_op_set_params(base, op->out, op->in, LS_LANES_OUT, op->bias);
    base->forward = (ls_lanes_pass){forward_some, items(op->out)};
    base->gradients = (ls_lanes_pass){weights_some, items(op->out)};
    base->dx = (ls_lanes_pass){data_some, items(op->in)};
    if (base->training)
        base->op.scratch_bytes =
            (size_t)2 * (size_t)base->packets * LS_LANES * (size_t)op->padded * sizeof(float);
    if (ls_few_wanted(desc)) {
        op->x = desc->x;
        op->flat = base->few_reads_flat = ls_few_is_flat(desc);
        base->few = forward_few;
        if (!op->flat && !is_vector(&op->x))
            base->few_scratch = (size_t)op->x.rows * ls_flat_row(&op->x) * sizeof(float);
    }
    return ls_lanes_op_finish(out, base, desc, err);
}
