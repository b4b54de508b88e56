/* The pool, relu and loss ops. */
#include "base/error.h"
#include "cpu/lanes_op.h"

typedef struct pool_op {
    ls_lanes_op base; /* first */
    ls_lanes_pool pool;
    size_t x_group, y_group; /* floats */
} pool_op;

static uint16_t *which_of(const pool_op *op, int group)
{
    if (!op->base.op.saved_bytes)
        return NULL;
    return (uint16_t *)op->base.b.saved + (size_t)group * op->y_group;
}

static int pool_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    pool_op *op = (pool_op *)base;
    (void)stream;
    (void)flags;
    (void)err;
    for (int g = 0; g < op->base.groups; g++)
        op->base.kernels->pool_forward(
            &op->pool, (const float *)op->base.b.x + (size_t)g * op->x_group,
            (float *)op->base.b.y + (size_t)g * op->y_group, which_of(op, g));
    return LS_OK;
}

static int pool_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    pool_op *op = (pool_op *)base;
    (void)stream;
    (void)flags;
    (void)err;
    for (int g = 0; op->base.needs_dx && g < op->base.groups; g++)
        op->base.kernels->pool_backward(
            &op->pool, (const float *)op->base.b.dy + (size_t)g * op->y_group, which_of(op, g),
            (float *)op->base.b.dx + (size_t)g * op->x_group);
    return LS_OK;
}

static const ls_op_impl pool_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = pool_forward,
    .backward = pool_backward,
    .destroy = ls_lanes_op_destroy,
};

static int pool_geometry(ls_lanes_pool *p, const ls_op_desc *desc, ls_error *err)
{
    const ls_pool2d *k = &desc->pool;
    if (k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0 ||
        desc->x.h + 2 * k->ph < k->kh || desc->x.w + 2 * k->pw < k->kw)
        return ls_fail(err, LS_EINVAL,
                       "pool: a window of %d×%d, stride %d×%d, padding %d×%d on "
                       "%d×%d",
                       k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, desc->x.h, desc->x.w);
    if (k->max && k->kh * k->kw > UINT16_MAX)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: a maximum over %d×%d pixels", k->kh, k->kw);
    *p = (ls_lanes_pool){
        .c = desc->x.c,
        .ih = desc->x.h,
        .iw = desc->x.w,
        .oh = (desc->x.h + 2 * k->ph - k->kh) / k->sh + 1,
        .ow = (desc->x.w + 2 * k->pw - k->kw) / k->sw + 1,
        .p = *k,
    };
    return LS_OK;
}

int ls_lanes_pool_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                         const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_pool p;
    ls_lanes_op *base;
    int status = pool_geometry(&p, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(pool_op), &pool_impl, host, kernels, desc, err);
    if (status)
        return status;
    pool_op *op = (pool_op *)base;
    op->pool = p;
    ls_lanes_op_set_y(base, p.c, p.oh, p.ow);
    op->x_group = (size_t)p.c * (size_t)p.ih * (size_t)p.iw * LS_LANES;
    op->y_group = (size_t)p.c * (size_t)p.oh * (size_t)p.ow * LS_LANES;
    if (base->training && p.p.max)
        base->op.saved_bytes = (size_t)base->groups * op->y_group * sizeof(uint16_t);
    return ls_lanes_op_finish(out, base, desc, err);
}

/* ---- relu ------------------------------------------------------------------------------------ */

/* Sixteens in the whole tensor. */
static size_t sixteens(const ls_lanes_op *op)
{
    return op->op.y.bytes / (LS_LANES * sizeof(float));
}

static int relu_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_lanes_op *op = (ls_lanes_op *)base;
    (void)stream;
    (void)flags;
    (void)err;
    op->kernels->relu_forward(sixteens(op), op->b.x, op->b.y,
                              base->saved_bytes ? op->b.saved : NULL);
    return LS_OK;
}

static int relu_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_lanes_op *op = (ls_lanes_op *)base;
    (void)stream;
    (void)flags;
    (void)err;
    if (op->needs_dx)
        op->kernels->relu_backward(sixteens(op), op->b.dy, op->b.saved, op->b.dx);
    return LS_OK;
}

static const ls_op_impl relu_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = relu_forward,
    .backward = relu_backward,
    .destroy = ls_lanes_op_destroy,
};

int ls_lanes_relu_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                         const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *op;
    if (desc->u.relu.slope != 0)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: a relu with a slope is oneDNN's");
    int status = ls_lanes_op_new(&op, sizeof *op, &relu_impl, host, kernels, desc, err);
    if (status)
        return status;
    ls_lanes_op_set_y(op, desc->x.c, desc->x.h, desc->x.w);
    if (op->training)
        op->op.saved_bytes = sixteens(op) * (size_t)kernels->mask_bytes;
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- loss ------------------------------------------------------------------------------------ */

typedef struct loss_op {
    ls_lanes_op base; /* first */
    int classes;
} loss_op;

static int check_labels(const int32_t *labels, int rows, int classes, ls_error *err)
{
    for (int r = 0; r < rows; r++)
        if (labels[r] < 0 || labels[r] >= classes)
            return ls_fail(err, LS_EDATA, "softmax: row %d has label %d, but there are %d classes",
                           r, labels[r], classes);
    return LS_OK;
}

/* One group; adds to the block's sums. */
static void group_loss(const loss_op *op, int group, double *loss, double *correct)
{
    const ls_op_buffers *b = &op->base.b;
    const size_t floats = (size_t)op->classes * LS_LANES, at = (size_t)group * floats;
    int left = op->base.op.y.rows - group * LS_LANES, rows = left < LS_LANES ? left : LS_LANES;
    float row_loss[LS_LANES] = {0}, row_correct[LS_LANES] = {0};
    op->base.kernels->loss(op->classes, rows, (const float *)b->x + at,
                           b->labels + group * LS_LANES,
                           op->base.needs_dx ? (float *)b->dx + at : NULL, row_loss, row_correct);
    for (int r = 0; r < rows; r++) {
        *loss += (double)row_loss[r];
        *correct += (double)row_correct[r];
    }
}

static int loss_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    loss_op *op = (loss_op *)base;
    float *stats = op->base.b.stats;
    (void)stream;
    int status = check_labels(op->base.b.labels, base->y.rows, op->classes, err);
    if (status)
        return status;
    for (int group = 0; group < op->base.groups; group += LS_LANES_BLOCK_GROUPS) {
        int end = group + ls_lanes_block(&op->base, group);
        int add = group > 0 || (flags & LS_RUN_ACCUMULATE);
        double loss = 0, correct = 0;
        for (int g = group; g < end; g++)
            group_loss(op, g, &loss, &correct);
        stats[0] = (add ? stats[0] : 0) + (float)loss;
        stats[1] = (add ? stats[1] : 0) + (float)correct;
    }
    return LS_OK;
}

static const ls_op_impl loss_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = loss_forward,
    .destroy = ls_lanes_op_destroy,
};

int ls_lanes_loss_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                         const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *op;
    if (desc->x.h != 1 || desc->x.w != 1)
        return ls_fail(err, LS_EINVAL, "softmax: logits must be vectors, not %d×%d×%d", desc->x.c,
                       desc->x.h, desc->x.w);
    if (desc->u.softmax_xent.smoothing != 0)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the loss has no label smoothing");
    int status = ls_lanes_op_new(&op, sizeof(loss_op), &loss_impl, host, kernels, desc, err);
    if (status)
        return status;
    ((loss_op *)op)->classes = desc->x.c;
    return ls_lanes_op_finish(out, op, desc, err);
}
