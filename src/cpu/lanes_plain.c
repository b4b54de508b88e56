/* SPDX-License-Identifier: MIT */
/* An op for plain (row-major) inputs. The op contains an op in lanes (lanes_op.h), the *inner op*.
 * It copies its inputs into lanes before the inner op's forward, and copies their gradients back
 * after the inner op has computed them.
 *
 * Buffers; parts that are not needed are left out. `saved` is [x in lanes][x2 in lanes][the inner
 * op's saved memory]. `scratch` is [dx in lanes][dx2 in lanes][the inner op's scratch memory]. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/few.h"

#include <stdio.h>

typedef struct plain_op {
    ls_op op;        /* base; must be first */
    ls_op_impl impl; /* has no backward if the inner op has none; a loss has none */
    const ls_host *host;
    ls_op *inner;
    ls_op_buffers outer, in_lanes; /* buffers of this op; buffers of the inner op */
    ls_tensor x[2]; /* the plain inputs; `bytes` is 0 if an input is in lanes already, or absent */
    bool dx;        /* dx is needed; a loss computes it in forward */
} plain_op;

static plain_op *self_of(ls_op *op)
{
    return (plain_op *)op;
}

static size_t lanes_bytes(const plain_op *op, int i)
{
    const ls_tensor *x = &op->x[i];
    return x->bytes ? ls_lanes_bytes(x->rows, x->c, x->h, x->w) : 0;
}

static int plain_bind(ls_op *base, const ls_op_buffers *b, ls_error *err)
{
    plain_op *op = self_of(base);
    ls_op_buffers *in = &op->in_lanes;
    char *saved = b->saved, *scratch = b->scratch;
    const size_t first = lanes_bytes(op, 0), second = lanes_bytes(op, 1);
    op->outer = *in = *b;
    in->x = first ? saved : b->x;
    in->x2 = second ? saved + first : b->x2;
    in->saved = saved + first + second;
    if (op->dx) {
        in->dx = first ? scratch : b->dx;
        in->dx2 = second ? scratch + first : b->dx2;
        in->scratch = scratch + first + second;
    }
    return op->inner->impl->bind(op->inner, &op->in_lanes, err);
}

static void unpack_gradients(const plain_op *op)
{
    if (op->x[0].bytes)
        ls_lanes_to_plain(op->outer.dx, op->in_lanes.dx, &op->x[0]);
    if (op->x[1].bytes)
        ls_lanes_to_plain(op->outer.dx2, op->in_lanes.dx2, &op->x[1]);
}

static int plain_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const plain_op *op = self_of(base);
    if (op->x[0].bytes)
        ls_plain_to_lanes((float *)op->in_lanes.x, op->outer.x, &op->x[0]);
    if (op->x[1].bytes)
        ls_plain_to_lanes((float *)op->in_lanes.x2, op->outer.x2, &op->x[1]);
    int status = op->inner->impl->forward(op->inner, stream, flags, err);
    if (status == LS_OK && op->dx && !op->inner->impl->backward)
        unpack_gradients(op);
    return status;
}

static int plain_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const plain_op *op = self_of(base);
    int status = op->inner->impl->backward(op->inner, stream, flags, err);
    if (status == LS_OK && op->dx)
        unpack_gradients(op);
    return status;
}

static int plain_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    ls_op *inner = self_of(base)->inner;
    return inner->impl->import_param(inner, index, dst, src, err);
}

static int plain_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    ls_op *inner = self_of(base)->inner;
    return inner->impl->export_param(inner, index, dst, src, err);
}

static void plain_destroy(ls_op *base)
{
    if (!base)
        return;
    plain_op *op = self_of(base);
    if (op->inner)
        op->inner->impl->destroy(op->inner);
    ls_free(op->host, op);
}

const ls_op *ls_lanes_inner(const ls_op *op)
{
    return op && op->impl->bind == plain_bind ? ((const plain_op *)op)->inner : ls_few_inner(op);
}

bool ls_lanes_has_x2(const ls_op_desc *desc)
{
    return desc->kind == LS_OP_ADD || desc->kind == LS_OP_CONCAT || desc->kind == LS_OP_MULTIPLY ||
           desc->fuse_add;
}

bool ls_lanes_are_plain(const ls_op_desc *desc)
{
    return desc->x.layout != &ls_layout_lanes ||
           (ls_lanes_has_x2(desc) && desc->x2.layout != &ls_layout_lanes);
}

static ls_tensor in_lanes(plain_op *op, int i, const ls_tensor *x)
{
    if (x->layout == &ls_layout_lanes)
        return *x;
    op->x[i] = *x;
    op->x[i].bytes = (size_t)x->rows * (size_t)x->c * (size_t)x->h * (size_t)x->w * sizeof(float);
    return ls_lanes_tensor(x);
}

int ls_lanes_plain_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_op_desc inner = *desc;
    inner.twin = ls_lanes_inner(desc->twin);
    *out = NULL;
    plain_op *op = ls_alloc(device->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for an op");
    op->host = device->host;
    inner.x = in_lanes(op, 0, &desc->x);
    if (ls_lanes_has_x2(desc))
        inner.x2 = in_lanes(op, 1, &desc->x2);
    int status = ls_cpu_op_create(&op->inner, device, &inner, err);
    if (status) {
        ls_free(device->host, op);
        return status;
    }
    op->op = *op->inner;
    op->impl = (ls_op_impl){.size = sizeof op->impl,
                            .bind = plain_bind,
                            .forward = plain_forward,
                            .backward = op->inner->impl->backward ? plain_backward : NULL,
                            .import_param = plain_import,
                            .export_param = plain_export,
                            .destroy = plain_destroy};
    op->op.impl = &op->impl;
    op->dx = desc->needs_dx;
    op->op.saved_bytes += lanes_bytes(op, 0) + lanes_bytes(op, 1);
    op->op.scratch_bytes += op->dx ? lanes_bytes(op, 0) + lanes_bytes(op, 1) : 0;
    *out = &op->op;
    return LS_OK;
}
