#include "ref/ref_op.h"

#include "base/error.h"
#include "base/host.h"

#include <limits.h>
#include <string.h>

static const char *const kind_names[REF_KINDS] = {
    [LS_OP_GATHER] = "gather", [LS_OP_CONV2D] = "conv2d", [LS_OP_DENSE] = "dense",
    [LS_OP_POOL] = "pool",     [LS_OP_RELU] = "relu",     [LS_OP_SOFTMAX_XENT] = "softmax_xent",
    [LS_OP_SGD] = "sgd",       [LS_OP_EXPORT] = "export",
};

static const char *name_of(const ref_op *op)
{
    return kind_names[op->desc.kind];
}

/* ---- run ------------------------------------------------------------------------------------ */

static int op_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    (void)stream;
    if (!op->bound)
        return ls_fail(err, LS_EINVAL, "%s: forward before bind", name_of(op));
    return op->kernels->forward[op->desc.kind](op, flags, err);
}

static int op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    (void)stream;
    if (!op->bound || !op->desc.training)
        return ls_fail(err, LS_EINVAL, "%s: backward needs bind and an op made for training",
                       name_of(op));
    return op->kernels->backward[op->desc.kind](op, flags, err);
}

/* ---- bind ----------------------------------------------------------------------------------- */

/* The first pointer that the op needs and has not got, or NULL. */
static const char *missing(const ref_op *op, const ls_op_buffers *b)
{
    const ls_op_desc *d = &op->desc;
    int loss = d->kind == LS_OP_SOFTMAX_XENT;
    int layer = d->kind != LS_OP_SGD && d->kind != LS_OP_GATHER && !loss;
    if (d->kind == LS_OP_SGD) {
        if (!b->args)
            return "args";
        if (!b->param[0])
            return "param[0]";
        if (!b->grad[0])
            return "grad[0]";
        return d->u.sgd.momentum != 0 && !b->slot[0] ? "slot[0]" : NULL;
    }
    if (!b->x)
        return "x";
    if (!b->y && !loss)
        return "y";
    if (d->needs_dx && !b->dx && (loss || d->training))
        return "dx";
    if (!b->dy && layer && d->training && (d->needs_dx || op->base.params))
        return "dy";
    for (int i = 0; i < op->base.params; i++) {
        if (!b->param[i])
            return i ? "param[1]" : "param[0]";
        if (d->training && !b->grad[i])
            return i ? "grad[1]" : "grad[0]";
    }
    if (d->kind == LS_OP_GATHER && !b->args)
        return "args";
    if (d->kind == LS_OP_GATHER && !b->labels != !b->labels_out)
        return b->labels ? "labels_out" : "labels";
    if (loss && !b->labels)
        return "labels";
    if (loss && !b->stats)
        return "stats";
    if (op->base.saved_bytes && !b->saved)
        return "saved";
    return op->base.scratch_bytes && !b->scratch ? "scratch" : NULL;
}

static int op_bind(ls_op *base, const ls_op_buffers *buffers, ls_error *err)
{
    ref_op *op = (ref_op *)base;
    const char *what = missing(op, buffers);
    if (what)
        return ls_fail(err, LS_EINVAL, "%s: bind needs `%s`", name_of(op), what);
    op->b = *buffers;
    op->bound = 1;
    return LS_OK;
}

/* ---- parameters: the op's layout is the canonical one --------------------------------------- */

static int copy_param(const ref_op *op, int index, void *dst, const void *src, ls_error *err)
{
    if (index < 0 || index >= op->base.params)
        return ls_fail(err, LS_EINVAL, "%s: there is no parameter %d", name_of(op), index);
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

/* Positions of a window along one side, 0 when it does not fit. */
static int windows(int size, int kernel, int stride, int padding)
{
    if (kernel < 1 || stride < 1 || padding < 0 || size + 2 * padding < kernel)
        return 0;
    return (size + 2 * padding - kernel) / stride + 1;
}

static int is_tensor(const ls_tensor *t)
{
    if (t->rows < 1 || t->c < 1 || t->h < 1 || t->w < 1 || t->layout)
        return 0;
    double bytes = 4.0 * t->rows * t->c * t->h * t->w;
    return bytes < (double)(SIZE_MAX / 4) && (double)t->c * t->h * t->w < INT_MAX;
}

static void set_params(ref_op *op, size_t weights, int outputs, int bias)
{
    op->base.params = bias ? 2 : 1;
    op->base.param_floats[0] = weights;
    op->base.param_floats[1] = bias ? (size_t)outputs : 0;
}

/* y's shape and the parameters; 0 when the description makes no sense. */
static int shape(ref_op *op)
{
    const ls_op_desc *d = &op->desc;
    const ls_tensor *x = &d->x;
    ls_tensor *y = &op->base.y;
    const ls_conv2d *v = &d->u.conv2d;
    const ls_pool2d *p = &d->pool;
    *y = (ls_tensor){LS_F32, x->rows, x->c, x->h, x->w, NULL, 0};
    switch (d->kind) {
    case LS_OP_CONV2D:
        y->c = v->out;
        y->h = windows(x->h, v->kh, v->sh, v->ph);
        y->w = windows(x->w, v->kw, v->sw, v->pw);
        set_params(op,
                   ref_row(x) / (size_t)x->h / (size_t)x->w * (size_t)v->out * (size_t)v->kh *
                       (size_t)v->kw,
                   v->out, v->bias);
        break;
    case LS_OP_DENSE:
        y->c = d->u.dense.out;
        y->h = y->w = 1;
        set_params(op, ref_row(x) * (size_t)y->c, y->c, d->u.dense.bias);
        break;
    case LS_OP_POOL: /* a window must not lie in the padding alone */
        y->h = p->ph < p->kh ? windows(x->h, p->kh, p->sh, p->ph) : 0;
        y->w = p->pw < p->kw ? windows(x->w, p->kw, p->sw, p->pw) : 0;
        break;
    default: break;
    }
    if (!is_tensor(y))
        return 0;
    y->bytes = (size_t)y->rows * ref_row(y) * sizeof(float);
    if (d->kind == LS_OP_POOL && p->max && d->training)
        op->base.saved_bytes = (size_t)y->rows * ref_row(y) * sizeof(int32_t);
    return 1;
}

/* Fills everything but the table pointers. */
static int plan(ref_op *op, ls_error *err)
{
    const ls_op_desc *d = &op->desc;
    ls_dtype dtype = d->kind == LS_OP_GATHER ? LS_U8 : LS_F32;
    if (d->fuse_pool)
        return ls_fail(err, LS_EUNSUPPORTED, "%s: pooling is not fused here", name_of(op));
    if (d->kind == LS_OP_SGD)
        return LS_OK;
    if (d->x.dtype != dtype || !is_tensor(&d->x) || !shape(op))
        return ls_fail(err, LS_EINVAL, "%s: x %d×%d×%d×%d does not fit the description",
                       name_of(op), d->x.rows, d->x.c, d->x.h, d->x.w);
    if (d->kind == LS_OP_SOFTMAX_XENT)
        op->base.y = (ls_tensor){.dtype = LS_F32, .rows = d->x.rows};
    const ref_op *twin = (const ref_op *)d->twin;
    if (twin &&
        (twin->desc.kind != d->kind || twin->base.param_floats[0] != op->base.param_floats[0] ||
         twin->base.param_floats[1] != op->base.param_floats[1]))
        return ls_fail(err, LS_EINVAL, "%s: the twin is another layer's", name_of(op));
    return LS_OK;
}

int ref_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    ref_device *d = (ref_device *)device;
    int kind = (int)desc->kind;
    if (kind < 1 || kind >= REF_KINDS || !d->kernels->forward[kind])
        return ls_fail(err, LS_EUNSUPPORTED, "%s: unknown op kind %d", d->name, kind);
    ref_op *op = ls_alloc(d->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "%s: no memory for a %s op", d->name, kind_names[kind]);
    op->host = d->host;
    op->kernels = d->kernels;
    op->desc = *desc;
    op->base.impl = d->kernels->backward[kind] ? &layer_impl : &forward_only_impl;
    op->base.kernel = d->kernels->name;
    int rc = plan(op, err);
    if (rc != LS_OK) {
        op_destroy(&op->base);
        return rc;
    }
    if (d->kernels->scratch[kind])
        op->base.scratch_bytes = d->kernels->scratch[kind](op);
    *out = &op->base;
    return LS_OK;
}
