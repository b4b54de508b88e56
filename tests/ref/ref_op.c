/* SPDX-License-Identifier: MIT */
#include "ref/ref_op.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/host.h"

#include <string.h>

/* ---- run ------------------------------------------------------------------------------------ */

/* Adds the digest of the arrays that an op on arenas changes, by the formula of plugin.h. */
static void add_digest(const ref_op *op)
{
    const ls_op_buffers *b = &op->b;
    const ls_op_kind kind = op->desc.kind;
    const int slots = kind == LS_OP_ADAMW ? 2 : kind == LS_OP_SGD && op->desc.u.sgd.momentum != 0;
    for (int a = 0; a <= slots; a++) {
        const float *array = a ? b->slot[a - 1] : b->param[0];
        for (size_t i = 0; i < op->desc.count; i++) {
            uint32_t bits;
            memcpy(&bits, &array[i], sizeof bits);
            *b->args->digest += bits * ls_digest_weight(b->digest_at[a] + i);
        }
    }
}

int ref_digest(ref_op *op, unsigned flags, ls_error *err)
{
    (void)op;
    (void)flags;
    (void)err;
    return LS_OK;
}

static int op_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    (void)stream;
    if (!op->bound)
        return ls_fail(err, LS_EINVAL, "%s: forward before bind", ref_op_name(op));
    if (ref_is_arena(op->desc.kind) && op->desc.kind != LS_OP_CLIP && op->b.args->digest)
        add_digest(op);
    return op->kernels->of[op->desc.kind].forward(op, flags, err);
}

static int op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    (void)stream;
    if (!op->bound || !op->desc.training)
        return ls_fail(err, LS_EINVAL, "%s: backward needs bind and an op made for training",
                       ref_op_name(op));
    return op->kernels->of[op->desc.kind].backward(op, flags, err);
}

/* ---- bind ----------------------------------------------------------------------------------- */

/* Returns the name of a missing buffer of an op that steps over an arena, or NULL. */
static const char *missing_arena(const ref_op *op, const ls_op_buffers *b)
{
    const ls_op_desc *d = &op->desc;
    int slots = d->kind == LS_OP_ADAMW ? 2 : d->kind == LS_OP_SGD && d->u.sgd.momentum != 0;
    if (!b->args)
        return "args";
    if (!b->param[0])
        return "param[0]";
    if (!b->grad[0] && d->kind != LS_OP_DIGEST)
        return "grad[0]";
    if (!b->guard != !b->skip)
        return b->guard ? "skip" : "guard";
    if (slots > 0 && !b->slot[0])
        return "slot[0]";
    return slots > 1 && !b->slot[1] ? "slot[1]" : NULL;
}

/* Returns the name of a missing buffer that a layer's backward pass reads or writes, or NULL. */
static const char *missing_gradient(const ref_op *op, const ls_op_buffers *b)
{
    const ls_op_desc *d = &op->desc;
    if (!d->training)
        return NULL;
    if (!b->dy && (d->needs_dx || op->base.params))
        return "dy";
    for (int i = 0; i < op->base.params; i++)
        if (!b->grad[i])
            return i ? "grad[1]" : "grad[0]";
    if (d->needs_dx && !b->dx)
        return "dx";
    return d->needs_dx && ref_has_x2(d) && !b->dx2 ? "dx2" : NULL;
}

static const char *missing_layer(const ref_op *op, const ls_op_buffers *b)
{
    const ls_op_desc *d = &op->desc;
    if (!b->y)
        return "y";
    if (ref_has_x2(d) && !b->x2)
        return "x2";
    for (int i = 0; i < op->base.params; i++)
        if (!b->param[i])
            return i ? "param[1]" : "param[0]";
    if (d->kind == LS_OP_DROPOUT && !b->args)
        return "args";
    if (d->kind == LS_OP_BATCHNORM && d->training && !b->contribution)
        return "contribution";
    if (d->kind == LS_OP_BATCHNORM && !d->training && !b->running)
        return "running";
    return missing_gradient(op, b);
}

static const char *missing_gather(const ls_op_buffers *b)
{
    if (!b->y)
        return "y";
    if (!b->args)
        return "args";
    if (!b->labels != !b->labels_out)
        return b->labels ? "labels_out" : "labels";
    return NULL;
}

static const char *missing_loss(const ref_op *op, const ls_op_buffers *b)
{
    if (op->desc.needs_dx && !b->dx)
        return "dx";
    if (!b->labels)
        return "labels";
    if (op->desc.kind == LS_OP_SOFTMAX_XENT && op->desc.u.softmax_xent.weighted && !b->class_weight)
        return "class_weight";
    return b->stats ? NULL : "stats";
}

/* The first pointer that the op needs and has not got, or NULL. */
static const char *missing(const ref_op *op, const ls_op_buffers *b)
{
    const char *name = NULL;
    if (ref_is_arena(op->desc.kind))
        return missing_arena(op, b);
    if (!b->x)
        return "x";
    switch (op->desc.kind) {
    case LS_OP_GATHER: name = missing_gather(b); break;
    case LS_OP_SOFTMAX_XENT:
    case LS_OP_VECTOR_LOSS: name = missing_loss(op, b); break;
    default: name = missing_layer(op, b); break;
    }
    if (name)
        return name;
    if (op->base.saved_bytes && !b->saved)
        return "saved";
    return op->base.scratch_bytes && !b->scratch ? "scratch" : NULL;
}

static int op_bind(ls_op *base, const ls_op_buffers *buffers, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    const char *what = missing(op, buffers);
    if (what)
        return ls_fail(err, LS_EINVAL, "%s: bind needs `%s`", ref_op_name(op), what);
    op->b = *buffers;
    op->bound = 1;
    return LS_OK;
}

/* ---- parameters: the op's layout is the canonical one --------------------------------------- */

static int copy_param(const ref_op *op, int index, void *dst, const void *src, ls_error *err)
{
    if (index < 0 || index >= op->base.params)
        return ls_fail(err, LS_EINVAL, "%s: there is no parameter %d", ref_op_name(op), index);
    memcpy(dst, src, op->base.param_floats[index] * sizeof(float));
    return LS_OK;
}

static int op_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    return copy_param((ref_op *)op, index, dst, src, err);
}

static int op_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    return copy_param((ref_op *)op, index, dst, src, err);
}

/* ---- create --------------------------------------------------------------------------------- */

static void op_destroy(ls_op *base)
{
    if (base)
        ls_free(((ref_op *)base)->host, base);
}

static const ls_op_impl layer_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .backward = op_backward,
    .import_param = op_import,
    .export_param = op_export,
    .destroy = op_destroy,
};
static const ls_op_impl forward_only_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .destroy = op_destroy,
};

int ref_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    ref_device *d = (ref_device *)device;
    int kind = (int)desc->kind;
    if (kind < 1 || kind >= LS_OP_KINDS || !d->kernels->of[kind].forward)
        return ls_fail(err, LS_EUNSUPPORTED, "%s: unknown op kind %d", d->name, kind);
    const ref_loops *loops = &d->kernels->of[kind];
    ref_op *op = ls_alloc(d->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "%s: no memory for an op of kind %d", d->name, kind);
    op->host = d->host;
    op->kernels = d->kernels;
    op->desc = *desc;
    if (desc->kind == LS_OP_CONV2D)
        op->desc.u.conv2d = ls_conv2d_filled(desc->u.conv2d);
    op->base.impl = loops->backward ? &layer_impl : &forward_only_impl;
    op->base.kernel = d->kernels->name;
    int rc = ref_plan(op, err);
    if (rc != LS_OK) {
        op_destroy(&op->base);
        return rc;
    }
    if (loops->scratch)
        op->base.scratch_bytes = loops->scratch(op);
    if (loops->saved)
        op->base.saved_bytes = loops->saved(op);
    *out = &op->base;
    return LS_OK;
}
