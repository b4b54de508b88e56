/* Batch normalisation, alone, with a relu, or with an addition and a relu behind it.
 *
 * The work is reading and writing memory, so that what counts is how often. Forward reads x for
 * the statistics and again for y; backward reads x and dy for two sums and again for dx. Channels
 * are finished block after block, so that the second reading comes from a cache. Nothing but a
 * few numbers per channel is kept: the relu's sign is computed again from x by the formula that y
 * was computed by, or, behind an addition, is read from y.
 *
 * Sums are made in double, out of a few floats at a time. The variance of a piece (cpu_layout.h) is
 * taken around its own mean; pieces are put together in order of rows (Chan, Golub and LeVeque).
 */
#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_isa.h"
#include "cpu/cpu_op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LANES LS_RUN_LANES

/* One value per lane of each part: channel c is lane c % planes.channels of part c /
 * planes.channels; where a part is one channel, all its lanes say the same. */
typedef struct norm_state {
    ls_cpu_op *op;
    const ls_cpu_kernels *kernels;
    ls_pieces pieces;
    int channels;
    bool training, needs_dx, fuse_relu, fuse_add;
    float epsilon;
    double n;                    /* values per channel */
    int x, x2, y, dy, dx, dx2;   /* values of the program */
    float *mean, *scale, *shift; /* [parts][16] */
    float *to;                   /* [parts][3][16]: dx = a·g + b·(x − mean) + c */
    double *inverse;             /* [parts][16]: 1 / √(variance + ε) */
    double *first, *second; /* [parts][16]: mean and Σ(x − mean)², or Σg and Σg·(x − mean) */
} norm_state;

static float *at(const norm_state *s, int value, size_t offset)
{
    float *memory = ls_program_memory(&s->op->program, value);
    return memory ? memory + offset : NULL;
}

static ls_norm norm_of(const norm_state *s, int part)
{
    size_t i = (size_t)part * LANES;
    return (ls_norm){s->mean + i, s->scale + i, s->shift + i};
}

static double sum_lanes(const double *lane)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Adds a piece of `n` values with its mean and squares to what `before` values have given. */
static void put_together(double *mean, double *squares, double before, double n, int lanes,
                         const double *piece_mean, const double *piece_squares)
{
    double share = n / (before + n), weight = before * share;
    for (int l = 0; l < lanes; l++) {
        double delta = piece_mean[l] - mean[l];
        mean[l] += delta * share;
        squares[l] += piece_squares[l] + delta * delta * weight;
    }
}

static void visit_stats(void *self, const ls_piece *piece)
{
    norm_state *s = self;
    const ls_cpu_kernels *k = s->kernels;
    const float *x = at(s, s->x, piece->at), *tail = at(s, s->x, piece->tail_at);
    const int alone = s->pieces.planes.channels == 1;
    double n = piece->values, mean[LANES], sum[LANES] = {0}, squares[LANES] = {0};
    float center[LANES];
    size_t first = (size_t)piece->part * LANES;
    k->sum(&piece->run, x, sum);
    if (piece->tail.count)
        k->sum(&piece->tail, tail, sum);
    double all = alone ? sum_lanes(sum) / n : 0;
    for (int l = 0; l < LANES; l++) {
        mean[l] = alone ? all : sum[l] / n;
        center[l] = (float)mean[l];
    }
    k->squares(&piece->run, x, center, squares);
    if (piece->tail.count)
        k->squares(&piece->tail, tail, center, squares);
    if (alone)
        squares[0] = sum_lanes(squares);
    put_together(s->first + first, s->second + first, piece->before, n, alone ? 1 : LANES, mean,
                 squares);
}

static void visit_normalise(void *self, const ls_piece *piece)
{
    norm_state *s = self;
    ls_norm norm = norm_of(s, piece->part);
    ls_run run = piece->run;
    if (piece->padded)
        run.width = LANES; /* y is finite beyond the last row, too */
    const float *x2 = s->fuse_add ? at(s, s->x2, piece->at) : NULL;
    s->kernels->normalise(&run, &norm, at(s, s->x, piece->at), x2, at(s, s->y, piece->at),
                          s->fuse_relu);
    if (!piece->tail.count)
        return;
    size_t o = piece->tail_at;
    s->kernels->normalise(&piece->tail, &norm, at(s, s->x, o), x2 ? at(s, s->x2, o) : NULL,
                          at(s, s->y, o), s->fuse_relu);
}

static void contribute(const norm_state *s, int c, double mean, double variance, unsigned flags)
{
    float *to = s->op->buffers.contribution;
    double rows = s->op->op.y.rows;
    double unbiased = s->n > 1 ? variance * s->n / (s->n - 1) : variance;
    float *m = &to[c], *v = &to[s->channels + c];
    int add = (flags & LS_RUN_ACCUMULATE) != 0;
    *m = (add ? *m : 0.0f) + (float)(rows * mean);
    *v = (add ? *v : 0.0f) + (float)(rows * unbiased);
}

/* All lanes say what the first says, where a part is one channel. */
static void spread(const norm_state *s, float *lane)
{
    if (s->pieces.planes.channels == 1)
        for (int l = 1; l < LANES; l++)
            lane[l] = lane[0];
}

/* The formula of y from the statistics of a part; zeros where there is no channel. */
static void settle_forward(norm_state *s, int part, unsigned flags)
{
    const ls_op_buffers *b = &s->op->buffers;
    size_t first = (size_t)part * LANES;
    for (int l = 0; l < LANES; l++) {
        size_t i = first + (size_t)l;
        int c = ls_pieces_channel(&s->pieces, s->channels, part, l);
        s->mean[i] = s->scale[i] = s->shift[i] = 0;
        if (c < 0)
            continue;
        double mean = s->first[i], variance = s->second[i] / s->n;
        if (flags & LS_RUN_EVALUATE) {
            mean = (double)b->running[c];
            variance = (double)b->running[s->channels + c];
        } else if (s->training) {
            contribute(s, c, mean, variance, flags);
        }
        s->inverse[i] = 1 / sqrt(variance + (double)s->epsilon);
        s->mean[i] = (float)mean;
        s->scale[i] = (float)((double)b->param[0][c] * s->inverse[i]);
        s->shift[i] = b->param[1][c];
    }
    spread(s, s->mean + first);
    spread(s, s->scale + first);
    spread(s, s->shift + first);
}

static void clear_sums(norm_state *s, int part, int end)
{
    size_t first = (size_t)part * LANES, bytes = (size_t)(end - part) * LANES * sizeof(double);
    memset(s->first + first, 0, bytes);
    memset(s->second + first, 0, bytes);
}

static void forward_parts(void *self, int part, int end, unsigned flags)
{
    norm_state *s = self;
    if (!(flags & LS_RUN_EVALUATE)) {
        clear_sums(s, part, end);
        ls_pieces_walk(&s->pieces, part, end, s, visit_stats);
    }
    for (int i = part; i < end; i++)
        settle_forward(s, i, flags);
    ls_pieces_walk(&s->pieces, part, end, s, visit_normalise);
}

/* ---- backward -------------------------------------------------------------------------------- */

static ls_norm_mask mask_of(const norm_state *s)
{
    return !s->fuse_relu ? LS_NORM_ALL : s->fuse_add ? LS_NORM_OF_Y : LS_NORM_OF_X;
}

static void clear_plane(float *plane, const ls_run *run)
{
    memset(plane, 0, run->count * run->step * sizeof(float));
}

static void visit_sums(void *self, const ls_piece *piece)
{
    norm_state *s = self;
    ls_norm norm = norm_of(s, piece->part);
    int with_dx2 = s->fuse_add && s->needs_dx;
    double sum[2 * LANES] = {0};
    float *dx2 = with_dx2 ? at(s, s->dx2, piece->at) : NULL;
    size_t o = piece->at, first = (size_t)piece->part * LANES;
    if (dx2 && piece->padded)
        clear_plane(dx2, &piece->run);
    s->kernels->norm_sums(&piece->run, &norm, mask_of(s), at(s, s->x, o), at(s, s->y, o),
                          at(s, s->dy, o), dx2, sum);
    if (piece->tail.count) {
        o = piece->tail_at;
        s->kernels->norm_sums(&piece->tail, &norm, mask_of(s), at(s, s->x, o), at(s, s->y, o),
                              at(s, s->dy, o), with_dx2 ? at(s, s->dx2, o) : NULL, sum);
    }
    for (int l = 0; l < LANES; l++) {
        s->first[first + (size_t)l] += sum[l];
        s->second[first + (size_t)l] += sum[LANES + l];
    }
}

/* With an addition, dx2 is dy behind the mask. */
static void visit_dx(void *self, const ls_piece *piece)
{
    norm_state *s = self;
    ls_norm norm = norm_of(s, piece->part);
    ls_norm_mask mask = s->fuse_add ? LS_NORM_ALL : mask_of(s);
    int dy = s->fuse_add ? s->dx2 : s->dy;
    const float *to = s->to + (size_t)piece->part * 3 * LANES;
    size_t o = piece->at;
    if (piece->padded)
        clear_plane(at(s, s->dx, o), &piece->run);
    s->kernels->norm_dx(&piece->run, &norm, mask, at(s, s->x, o), at(s, s->y, o), at(s, dy, o), to,
                        at(s, s->dx, o));
    if (!piece->tail.count)
        return;
    o = piece->tail_at;
    s->kernels->norm_dx(&piece->tail, &norm, mask, at(s, s->x, o), at(s, s->y, o), at(s, dy, o), to,
                        at(s, s->dx, o));
}

/* The gradients of a part's parameters, and the formula of dx. */
static void settle_backward(norm_state *s, int part, unsigned flags)
{
    const ls_op_buffers *b = &s->op->buffers;
    size_t first = (size_t)part * LANES;
    float *to = s->to + (size_t)part * 3 * LANES;
    int add = (flags & LS_RUN_ACCUMULATE) != 0;
    if (s->pieces.planes.channels == 1)
        for (int l = 1; l < LANES; l++) {
            s->first[first] += s->first[first + (size_t)l];
            s->second[first] += s->second[first + (size_t)l];
        }
    for (int l = 0; l < LANES; l++) {
        size_t i = first + (size_t)l;
        int c = ls_pieces_channel(&s->pieces, s->channels, part, l);
        to[l] = to[LANES + l] = to[2 * LANES + l] = 0;
        if (c < 0)
            continue;
        double inverse = s->inverse[i], slope = (double)b->param[0][c] * inverse;
        float weight = (float)(s->second[i] * inverse), bias = (float)s->first[i];
        b->grad[0][c] = add ? b->grad[0][c] + weight : weight;
        b->grad[1][c] = add ? b->grad[1][c] + bias : bias;
        to[l] = (float)slope;
        to[LANES + l] = (float)(-slope * inverse * inverse * s->second[i] / s->n);
        to[2 * LANES + l] = (float)(-slope * s->first[i] / s->n);
    }
    for (int k = 0; k < 3; k++)
        spread(s, to + k * LANES);
}

static void backward_parts(void *self, int part, int end, unsigned flags)
{
    norm_state *s = self;
    clear_sums(s, part, end);
    ls_pieces_walk(&s->pieces, part, end, s, visit_sums);
    for (int i = part; i < end; i++)
        settle_backward(s, i, flags);
    if (s->needs_dx)
        ls_pieces_walk(&s->pieces, part, end, s, visit_dx);
}

/* ---- the op ---------------------------------------------------------------------------------- */

static int norm_forward(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    norm_state *s = ((ls_cpu_op *)self)->own;
    (void)a;
    (void)b;
    if ((flags & LS_RUN_EVALUATE) && !s->op->buffers.running)
        return ls_fail(err, LS_EINVAL, "batchnorm: evaluation without running statistics");
    if (!(flags & LS_RUN_EVALUATE) && s->training && !s->op->buffers.contribution)
        return ls_fail(err, LS_EINVAL, "batchnorm: no room for the contribution");
    ls_pieces_share(&s->pieces, s, flags, forward_parts);
    return LS_OK;
}

static int norm_backward(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    norm_state *s = ((ls_cpu_op *)self)->own;
    (void)a;
    (void)b;
    (void)err;
    ls_pieces_share(&s->pieces, s, flags, backward_parts);
    return LS_OK;
}

static size_t lane_floats(const ls_planes *p)
{
    return (size_t)p->parts * LS_RUN_LANES;
}

static norm_state *new_state(ls_cpu_op *op, const ls_planes *planes)
{
    size_t n = lane_floats(planes),
           head = (sizeof(norm_state) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    char *memory = ls_alloc(op->device->host, head + n * (6 * sizeof(float) + 3 * sizeof(double)));
    norm_state *s = (norm_state *)(void *)memory;
    op->own = s;
    if (!s)
        return NULL;
    double *doubles = (double *)(void *)(memory + head);
    float *floats = (float *)(void *)(doubles + 3 * n);
    s->op = op;
    s->pieces = ls_pieces_of(planes, op->device->threads);
    s->inverse = doubles;
    s->first = doubles + n;
    s->second = doubles + 2 * n;
    s->mean = floats;
    s->scale = floats + n;
    s->shift = floats + 2 * n;
    s->to = floats + 3 * n;
    return s;
}

static void describe_desc(norm_state *s, const ls_op_desc *desc)
{
    const ls_tensor *x = &desc->x;
    s->kernels = &ls_cpu_isa_at(0)->kernels;
    s->channels = x->c;
    s->training = desc->training;
    s->needs_dx = desc->training && desc->needs_dx;
    s->fuse_relu = desc->fuse_relu;
    s->fuse_add = desc->fuse_add;
    s->epsilon = desc->u.batchnorm.epsilon;
    s->n = (double)x->rows * x->h * x->w;
}

/* x as it lies, or in channels last where its arrangement is none of ours. */
static int planes_of(ls_planes *out, ls_md *md, const ls_tensor *x)
{
    *md = ls_md_of(x);
    if (ls_layout_is_lanes(x->layout)) {
        *out = ls_planes_of_lanes(x->rows, x->c, x->h, x->w);
        return LS_OK;
    }
    if (ls_md_planes(out, md) == LS_OK)
        return LS_OK;
    *md = ls_md_as(md, LS_MD_NHWC);
    return ls_md_planes(out, md);
}

static void add_steps(norm_state *s, const ls_op_desc *desc, const ls_md *md)
{
    ls_cpu_op *op = s->op;
    ls_program *p = &op->program;
    int lanes = ls_layout_is_lanes(desc->x.layout);
    int x = ls_program_tensor(p, &desc->x, LS_AT_X);
    s->x = lanes ? x : ls_program_convert(p, x, md, LS_AT_SAVED);
    s->y = ls_program_tensor(p, &op->op.y, LS_AT_Y);
    if (s->fuse_add)
        s->x2 =
            ls_program_convert_like(p, ls_program_tensor(p, &desc->x2, LS_AT_X2), s->x, LS_AT_TEMP);
    ls_program_call(p, norm_forward, op, s->x, s->y);
    if (!desc->training)
        return;
    ls_program_backward(p);
    s->dy = ls_program_tensor(p, &op->op.y, LS_AT_DY);
    int dx = 0, dx2 = 0;
    if (s->needs_dx) {
        dx = ls_program_tensor(p, &desc->x, LS_AT_DX);
        s->dx = ls_program_target_like(p, dx, s->x);
    }
    if (s->needs_dx && s->fuse_add) {
        dx2 = ls_program_tensor(p, &desc->x2, LS_AT_DX2);
        s->dx2 = ls_program_target_like(p, dx2, s->x);
    }
    ls_program_call(p, norm_backward, op, s->x, s->dy);
    if (s->needs_dx)
        ls_program_deliver(p, s->dx, dx);
    if (s->needs_dx && s->fuse_add)
        ls_program_deliver(p, s->dx2, dx2);
}

static int same_shape(const ls_tensor *a, const ls_tensor *b)
{
    return a->rows == b->rows && a->c == b->c && a->h == b->h && a->w == b->w;
}

static int check(const ls_op_desc *desc, const ls_cpu_op *twin, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    if (!(desc->u.batchnorm.epsilon >= 0))
        return ls_fail(err, LS_EINVAL, "batchnorm: an epsilon of %g; it must not be negative",
                       (double)desc->u.batchnorm.epsilon);
    if (desc->fuse_add && !same_shape(x, x2))
        return ls_fail(err, LS_EINVAL, "batchnorm: %d rows of %d×%d×%d plus %d rows of %d×%d×%d",
                       x->rows, x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
    if (twin && twin->op.param_floats[0] != (size_t)x->c)
        return ls_fail(err, LS_EINVAL, "batchnorm: the twin is another layer's");
    return LS_OK;
}

int ls_cpu_norm_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_cpu_op *twin;
    ls_cpu_op *op;
    ls_planes planes;
    ls_md md, channels = ls_md_make(1, &x->c, LS_MD_PLAIN);
    *out = NULL;
    int status = ls_cpu_op_twin(&twin, desc, err);
    if (status == LS_OK)
        status = check(desc, twin, err);
    if (status == LS_OK && planes_of(&planes, &md, x) != LS_OK)
        status = ls_fail(err, LS_EUNSUPPORTED, "batchnorm: x lies in an unknown way");
    if (status == LS_OK)
        status = ls_cpu_op_create(&op, device, desc, "batchnorm", err);
    if (status)
        return status;
    norm_state *s = new_state(op, &planes);
    if (!s) {
        ls_cpu_op_destroy(&op->op);
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of batchnorm");
    }
    for (int i = 0; i < 2; i++)
        ls_cpu_op_set_param(op, i, &channels, &channels);
    op->op.contribution_floats = 2 * (size_t)x->c;
    if (planes.lanes)
        ls_cpu_op_set_y_like(op, x);
    else
        ls_cpu_op_set_y(op, x->rows, x->c, x->h, x->w, &md);
    snprintf(op->kernel, sizeof op->kernel, "%s %s", ls_cpu_isa_at(0)->name,
             planes.lanes ? "lanes" : ls_md_name(&md));
    describe_desc(s, desc);
    add_steps(s, desc, &md);
    return ls_cpu_op_finish(out, op);
}
