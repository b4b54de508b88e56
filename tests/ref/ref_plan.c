/* SPDX-License-Identifier: MIT */
/* Computes an op's shapes from its description, or refuses the description. */
#include "base/error.h"
#include "ref/ref_op.h"

#include <limits.h>
#include <math.h>

/* Pixels from one end of a dilated kernel to the other. */
static int span(int kernel, int dilation)
{
    return dilation < 1 ? 0 : (kernel - 1) * dilation + 1;
}

/* Positions of a window along one side, 0 when it does not fit. */
static int windows(int size, int kernel, int stride, int padding)
{
    if (kernel < 1 || stride < 1 || padding < 0 || size + 2 * padding < kernel)
        return 0;
    return (size + 2 * padding - kernel) / stride + 1;
}

/* Positions of a pool's window along one side, as PyTorch computes them. A window must not lie in
 * the padding alone. */
static int pooled(int size, int kernel, int stride, int before, int after, int up)
{
    const int room = size + before + after - kernel;
    if (kernel < 1 || stride < 1 || before < 0 || after < 0 || before >= kernel ||
        after >= kernel || (room < 0 && !up))
        return 0;
    int n = (int)floor((double)(room + (up ? stride - 1 : 0)) / stride) + 1;
    if (up && (n - 1) * stride >= size + before)
        n--;
    return n > 0 ? n : 0;
}

static int is_tensor(const ls_tensor *t)
{
    if (t->rows < 1 || t->c < 1 || t->h < 1 || t->w < 1 || t->layout)
        return 0;
    double bytes = 4.0 * t->rows * t->c * t->h * t->w;
    return bytes < (double)(SIZE_MAX / 4) && (double)t->c * t->h * t->w < INT_MAX;
}

static int alike(const ls_tensor *a, const ls_tensor *b)
{
    return a->dtype == b->dtype && a->rows == b->rows && a->c == b->c && a->h == b->h &&
           a->w == b->w && !a->layout == !b->layout;
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
        if (v->groups < 1 || x->c % v->groups || v->out % v->groups)
            return 0;
        y->h = windows(x->h, span(v->kh, v->dh), v->sh, v->ph);
        y->w = windows(x->w, span(v->kw, v->dw), v->sw, v->pw);
        set_params(op, (size_t)(x->c / v->groups) * (size_t)v->out * (size_t)v->kh * (size_t)v->kw,
                   v->out, v->bias);
        break;
    case LS_OP_DENSE:
        y->c = d->u.dense.out;
        y->h = y->w = 1;
        set_params(op, ref_row(x) * (size_t)y->c, y->c, d->u.dense.bias);
        break;
    case LS_OP_POOL:
        y->h = pooled(x->h, p->kh, p->sh, p->ph, p->ph + p->eh, p->ceil);
        y->w = pooled(x->w, p->kw, p->sw, p->pw, p->pw + p->ew, p->ceil);
        break;
    case LS_OP_BATCHNORM:
        set_params(op, (size_t)x->c, x->c, 1);
        op->base.contribution_floats = 2 * (size_t)x->c;
        break;
    case LS_OP_LAYERNORM:
        op->base.params = 2;
        op->base.param_floats[0] = op->base.param_floats[1] = ref_row(x);
        break;
    case LS_OP_UPSAMPLE:
        y->h = x->h * d->u.upsample.sh;
        y->w = x->w * d->u.upsample.sw;
        break;
    case LS_OP_PAD:
        y->h = x->h + d->u.pad.top + d->u.pad.bottom;
        y->w = x->w + d->u.pad.left + d->u.pad.right;
        break;
    case LS_OP_CONCAT:
        if (d->x2.c < 1 || d->x2.c > INT_MAX - x->c)
            return 0;
        y->c = x->c + d->x2.c;
        break;
    default: break;
    }
    if (!is_tensor(y))
        return 0;
    y->bytes = (size_t)y->rows * ref_row(y) * sizeof(float);
    return 1;
}

/* Returns what is wrong with the numbers of the description, or NULL. */
static const char *senseless(const ls_op_desc *d)
{
    switch (d->kind) {
    case LS_OP_GATHER:
        return d->u.gather.crop < 0 || d->u.gather.crop > d->x.h + d->x.w
                   ? "crop must be in [0, h + w]"
                   : NULL;
    case LS_OP_LAYERNORM: return d->u.layernorm.epsilon > 0 ? NULL : "epsilon must be above 0";
    case LS_OP_UPSAMPLE:
        return d->u.upsample.sh >= 1 && d->u.upsample.sw >= 1 ? NULL : "a scale must be at least 1";
    case LS_OP_CLAMP: return d->u.clamp.least < d->u.clamp.most ? NULL : "least must be below most";
    case LS_OP_PAD:
        return d->u.pad.top >= 0 && d->u.pad.left >= 0 && d->u.pad.bottom >= 0 &&
                       d->u.pad.right >= 0
                   ? NULL
                   : "each padding must be at least 0";
    case LS_OP_DROPOUT:
        return d->u.dropout.p >= 0 && d->u.dropout.p < 1 ? NULL : "p must be in [0, 1)";
    case LS_OP_SOFTMAX_XENT:
        return d->u.softmax_xent.smoothing >= 0 && d->u.softmax_xent.smoothing <= 1
                   ? NULL
                   : "smoothing must be in [0, 1]";
    default: return NULL;
    }
}

static int may_fuse_relu(ls_op_kind kind)
{
    return kind == LS_OP_CONV2D || kind == LS_OP_DENSE || kind == LS_OP_BATCHNORM ||
           kind == LS_OP_ADD;
}

static int refuse_fusion(const ref_op *op, ls_error *err)
{
    const ls_op_desc *d = &op->desc;
    if (d->fuse_pool)
        return ls_fail(err, LS_EUNSUPPORTED, "%s: pooling is not fused here", ref_op_name(op));
    if (d->fuse_relu && !may_fuse_relu(d->kind))
        return ls_fail(err, LS_EUNSUPPORTED, "%s: relu is not fused here", ref_op_name(op));
    if (d->fuse_add && d->kind != LS_OP_BATCHNORM)
        return ls_fail(err, LS_EUNSUPPORTED, "%s: adding is not fused here", ref_op_name(op));
    return LS_OK;
}

int ref_plan(ref_op *op, ls_error *err)
{
    const ls_op_desc *d = &op->desc;
    ls_dtype dtype = d->kind == LS_OP_GATHER && !d->u.gather.floats ? LS_U8 : LS_F32;
    int rc = refuse_fusion(op, err);
    if (rc != LS_OK || ref_is_arena(d->kind))
        return rc;
    if (senseless(d))
        return ls_fail(err, LS_EINVAL, "%s: %s", ref_op_name(op), senseless(d));
    if (d->x.dtype != dtype || !is_tensor(&d->x) || !shape(op))
        return ls_fail(err, LS_EINVAL, "%s: x %d×%d×%d×%d does not fit the description",
                       ref_op_name(op), d->x.rows, d->x.c, d->x.h, d->x.w);
    ls_tensor x2 = d->x2;
    if (d->kind == LS_OP_CONCAT && x2.c > 0)
        x2.c = d->x.c;
    if (d->kind == LS_OP_MULTIPLY && x2.h == 1 && x2.w == 1)
        x2.h = d->x.h, x2.w = d->x.w;
    if (ref_has_x2(d) && !alike(&d->x, &x2))
        return ls_fail(err, LS_EINVAL, "%s: x2 %d×%d×%d×%d is not of the shape of x, %d×%d×%d×%d",
                       ref_op_name(op), d->x2.rows, d->x2.c, d->x2.h, d->x2.w, d->x.rows, d->x.c,
                       d->x.h, d->x.w);
    if (ref_is_loss(d->kind))
        op->base.y = (ls_tensor){.dtype = LS_F32, .rows = d->x.rows};
    const ref_op *twin = (const ref_op *)d->twin;
    if (twin &&
        (twin->desc.kind != d->kind || twin->base.param_floats[0] != op->base.param_floats[0] ||
         twin->base.param_floats[1] != op->base.param_floats[1]))
        return ls_fail(err, LS_EINVAL, "%s: the twin is another layer's", ref_op_name(op));
    return LS_OK;
}
