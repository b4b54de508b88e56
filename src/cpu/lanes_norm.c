/* SPDX-License-Identifier: MIT */
/* Batch normalisation, alone, followed by a relu, or followed by an addition and a relu.
 *
 * Reading and writing memory takes most of the time. Therefore the op makes few passes over memory:
 * forward reads x for the statistics, and again for y; backward reads x and dy for two sums, and
 * again for dx. Channels are finished one after another, so that the second pass reads from a
 * cache. Forward keeps three floats and a double per channel for backward. It does not keep the
 * signs of the relu's input. Without an addition, backward computes these signs again from x with
 * the formula of y. After an addition, it reads them from y.
 *
 * Sums are added up in double; each addend is a sum of eight floats. A *piece* is a part of a
 * channel that fits the L1 cache. The variance of a piece is computed around the piece's own mean,
 * and the pieces are combined in the sequence of rows (method of Chan, Golub and LeVeque). */
#include "base/error.h"
#include "cpu/few.h"

#include <math.h>
#include <string.h>

#define PIECE 512 /* number of vectors of a piece: 32 KiB */

/* Numbers that forward saves for backward, for one channel. */
typedef struct channel {
    ls_lanes_norm norm;
    double inverse; /* 1 / √(variance + ε) */
} channel;

typedef struct norm_op {
    ls_lanes_op base; /* base; must be first */
    int channels;
    bool fuse_relu, fuse_add;
    size_t plane; /* number of vectors of a channel of a packet */
    double n;     /* number of values per channel */
    float epsilon;
    channel channel[]; /* [channels] */
} norm_op;

/* Returns the offset in floats of channel c in a packet. */
static size_t plane_at(const norm_op *op, int c, int packet)
{
    return ((size_t)packet * (size_t)op->channels + (size_t)c) * op->plane * LS_LANES;
}

static double sum_lanes(const double *lane, int rows)
{
    double sum = 0;
    for (int l = 0; l < rows; l++)
        sum += lane[l];
    return sum;
}

/* ---- forward --------------------------------------------------------------------------------- */

typedef struct moments {
    double n, mean, squares; /* squares: Σ (x − mean)² */
} moments;

static void add_piece(const norm_op *op, moments *m, const float *x, size_t count, int rows)
{
    const ls_lanes_kernels *k = op->base.kernels;
    double lane[LS_LANES], n = (double)count * rows;
    k->norm_sum(count, x, lane);
    double mean = sum_lanes(lane, rows) / n;
    k->norm_squares(count, x, (float)mean, lane);
    double delta = mean - m->mean, share = n / (m->n + n);
    m->mean += delta * share;
    m->squares += sum_lanes(lane, rows) + delta * delta * (m->n * share);
    m->n += n;
}

static moments moments_of(const norm_op *op, int c)
{
    moments m = {0};
    for (int g = 0; g < op->base.packets; g++) {
        const float *x = (const float *)op->base.b.x + plane_at(op, c, g);
        for (size_t i = 0; i < op->plane; i += PIECE)
            add_piece(op, &m, x + i * LS_LANES, op->plane - i < PIECE ? op->plane - i : PIECE,
                      ls_lanes_rows_of(op->base.op.y.rows, g));
    }
    return m;
}

/* Writes a channel's contribution to the running statistics. If a channel has only one value, it
 * has no variance. The contribution is then the running statistics themselves, so that the update
 * does not change them. */
static void contribute(const norm_op *op, int c, const moments *m, double variance, unsigned flags)
{
    const float *running = m->n > 1 ? NULL : op->base.b.running;
    float *mean = op->base.b.contribution + c, *spread = mean + op->channels;
    const double rows = op->base.op.y.rows;
    const double unbiased = m->n > 1 ? variance * m->n / (m->n - 1) : variance;
    const int add = (flags & LS_RUN_ACCUMULATE) != 0;
    *mean = (add ? *mean : 0.0f) + (running ? running[c] : (float)(rows * m->mean));
    *spread =
        (add ? *spread : 0.0f) + (running ? running[op->channels + c] : (float)(rows * unbiased));
}

/* Sets the coefficients of channel c (ls_lanes_norm), from its running statistics in evaluation and
 * from the batch in training. */
static void settle_forward(norm_op *op, int c, unsigned flags)
{
    const ls_op_buffers *b = &op->base.b;
    double mean, variance;
    if (flags & LS_RUN_EVALUATE) {
        mean = (double)b->running[c];
        variance = (double)b->running[op->channels + c];
    } else {
        moments m = moments_of(op, c);
        mean = m.mean;
        variance = m.squares / m.n;
        if (op->base.training)
            contribute(op, c, &m, variance, flags);
    }
    channel *to = &op->channel[c];
    to->inverse = 1 / sqrt(variance + (double)op->epsilon);
    to->norm =
        (ls_lanes_norm){(float)mean, (float)((double)b->param[0][c] * to->inverse), b->param[1][c]};
}

/* Clears the lanes that hold no row, so that their numbers stay finite. (If many layers scaled
 * these numbers in turn, they could overflow, and infinity times a gradient of zero is NaN.) */
static void clear_rest(float *y, size_t plane, int rows)
{
    for (size_t i = 0; rows < LS_LANES && i < plane; i++, y += LS_LANES)
        memset(y + rows, 0, (size_t)(LS_LANES - rows) * sizeof *y);
}

static void forward_channel(void *arg, uint32_t c)
{
    norm_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    settle_forward(op, (int)c, op->base.flags);
    for (int g = 0; g < op->base.packets; g++) {
        const size_t at = plane_at(op, (int)c, g);
        op->base.kernels->normalise(op->plane, &op->channel[c].norm, (const float *)b->x + at,
                                    op->fuse_add ? (const float *)b->x2 + at : NULL,
                                    (float *)b->y + at, op->fuse_relu);
        clear_rest((float *)b->y + at, op->plane, ls_lanes_rows_of(op->base.op.y.rows, g));
    }
}

ls_few_finish ls_few_norm_finish(const ls_lanes_op *norm, float *room)
{
    const norm_op *op = (const norm_op *)norm;
    const ls_op_buffers *b = &norm->b;
    const size_t n = ls_few_sixteens(op->channels) * LS_LANES;
    const size_t bytes = (size_t)op->channels * sizeof(float);
    float *mean = room, *scale = mean + n, *shift = scale + n;
    memset(mean, 0, 3 * n * sizeof *mean);
    memcpy(mean, b->running, bytes);
    memcpy(shift, b->param[1], bytes);
    norm->kernels->few->scales(op->channels, op->epsilon, b->param[0], b->running + op->channels,
                               scale);
    return (ls_few_finish){mean, scale, shift, op->fuse_add ? b->x2 : NULL, op->fuse_relu};
}

/* Forward of few rows (few.h): sixteen channels in the lanes. */
static void forward_few(ls_lanes_op *base)
{
    const ls_op_buffers *b = &base->b;
    const ls_tensor *y = &base->op.y;
    const size_t sixteens = ls_few_sixteens(y->c), plane = ls_few_plane(y);
    const ls_few_finish finish = ls_few_norm_finish(base, b->scratch);
    for (size_t s = 0; s < (size_t)y->rows * sixteens; s++) {
        const ls_few_finish some = ls_few_finish_from(&finish, s % sixteens * LS_LANES, s * plane);
        base->kernels->few->apply(plane / LS_LANES, &some, (const float *)b->x + s * plane,
                                  (float *)b->y + s * plane);
    }
}

static int norm_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const norm_op *op = (const norm_op *)base;
    const ls_op_buffers *b = &op->base.b;
    if ((flags & LS_RUN_EVALUATE) && !b->running)
        return ls_fail(err, LS_EINVAL, "batchnorm: evaluation without running statistics");
    if (!(flags & LS_RUN_EVALUATE) && op->base.training && !b->contribution)
        return ls_fail(err, LS_EINVAL, "batchnorm: no room for the contribution");
    return ls_lanes_op_forward(base, stream, flags, err);
}

/* ---- backward -------------------------------------------------------------------------------- */

static ls_lanes_norm_pass pass_of(const norm_op *op, int c, int packet)
{
    const ls_op_buffers *b = &op->base.b;
    const size_t at = plane_at(op, c, packet);
    const ls_lanes_mask with_relu = op->fuse_add ? LS_LANES_MASK_Y : LS_LANES_MASK_X;
    return (ls_lanes_norm_pass){
        .n = op->plane,
        .rows = ls_lanes_rows_of(op->base.op.y.rows, packet),
        .mask = op->fuse_relu ? with_relu : LS_LANES_MASK_NONE,
        .norm = op->channel[c].norm,
        .x = (const float *)b->x + at,
        .y = (const float *)b->y + at,
        .dy = (const float *)b->dy + at,
        .dx = op->base.needs_dx ? (float *)b->dx + at : NULL,
        .dx2 = op->base.needs_dx && op->fuse_add ? (float *)b->dx2 + at : NULL,
    };
}

/* Computes the two sums of the backward pass for channel c. The sums run over all lanes, because dy
 * is zero in lanes that hold no row. */
static void sums_of(const norm_op *op, int c, double *sum_g, double *sum_gx)
{
    *sum_g = *sum_gx = 0;
    for (int g = 0; g < op->base.packets; g++) {
        ls_lanes_norm_pass whole = pass_of(op, c, g);
        double lane[2 * LS_LANES];
        op->base.kernels->norm_sums(&whole, lane);
        *sum_g += sum_lanes(lane, LS_LANES);
        *sum_gx += sum_lanes(lane + LS_LANES, LS_LANES);
    }
}

static void backward_channel(void *arg, uint32_t item)
{
    const norm_op *op = arg;
    const int c = (int)item;
    const ls_op_buffers *b = &op->base.b;
    const double inverse = op->channel[c].inverse, slope = (double)b->param[0][c] * inverse;
    const int add = (op->base.flags & LS_RUN_ACCUMULATE) != 0;
    double sum_g, sum_gx;
    sums_of(op, c, &sum_g, &sum_gx);
    b->grad[0][c] = (add ? b->grad[0][c] : 0.0f) + (float)(sum_gx * inverse);
    b->grad[1][c] = (add ? b->grad[1][c] : 0.0f) + (float)sum_g;
    for (int g = 0; op->base.needs_dx && g < op->base.packets; g++) {
        ls_lanes_norm_pass pass = pass_of(op, c, g);
        pass.a = (float)slope;
        pass.b = (float)(-slope * inverse * inverse * sum_gx / op->n);
        pass.c = (float)(-slope * sum_g / op->n);
        if (pass.dx2) { /* dx2 already is dy with the mask applied */
            pass.mask = LS_LANES_MASK_NONE;
            pass.dy = pass.dx2;
        }
        op->base.kernels->norm_dx(&pass);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

static const ls_op_impl norm_impl = LS_LANES_IMPL(norm_forward, ls_lanes_op_backward);

int ls_cpu_norm_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_lanes_op *base;
    if (!(desc->u.batchnorm.epsilon >= 0))
        return ls_fail(err, LS_EINVAL, "batchnorm: an epsilon of %g; it must not be negative",
                       (double)desc->u.batchnorm.epsilon);
    int status = ls_lanes_op_new(&base, sizeof(norm_op) + (size_t)x->c * sizeof(channel),
                                 &norm_impl, device, desc, err);
    if (status)
        return status;
    norm_op *op = (norm_op *)base;
    op->channels = x->c;
    op->fuse_relu = desc->fuse_relu;
    op->fuse_add = desc->fuse_add;
    op->plane = (size_t)x->h * (size_t)x->w;
    op->n = (double)x->rows * x->h * x->w;
    op->epsilon = desc->u.batchnorm.epsilon;
    ls_lanes_op_set_y(base, x->c, x->h, x->w);
    ls_lanes_op_set_params(base, x->c, 1, 1, true);
    base->forward = (ls_lanes_pass){forward_channel, (uint32_t)x->c};
    base->gradients = (ls_lanes_pass){backward_channel, (uint32_t)x->c};
    base->op.contribution_floats = 2 * (size_t)x->c;
    base->few = forward_few;
    base->few_scratch = ls_few_norm_floats(x->c) * sizeof(float);
    return ls_lanes_op_finish(out, base, desc, err);
}
