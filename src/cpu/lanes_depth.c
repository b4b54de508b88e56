/* The depthwise convolution: each channel is convolved with a filter of its own. The threads of a
 * team divide the channels. In backward each thread also computes the gradient of its channels'
 * weights. In this file a row is an example of the batch, and a line of pixels is an image row. A
 * lane is one of the sixteen positions of a vector, a group is sixteen rows, one in each lane, and
 * a block is two groups (lanes_op.h). */
#include "base/error.h"
#include "cpu/lanes_conv.h"

#include <stdbool.h>
#include <string.h>

typedef struct depth_op {
    ls_lanes_op base; /* base; must be first */
    ls_lanes_depth depth;
    int channels, /* number of channels */
        some;     /* number of channels of an item, the work that a thread takes at a time */
    size_t x_plane, y_plane; /* floats of one channel of a group */
} depth_op;

#define PIXELS 1024 /* smallest number of pixels of an item */

static uint32_t parts(const depth_op *op)
{
    return (uint32_t)((op->channels + op->some - 1) / op->some);
}

static int end_of(const depth_op *op, int first)
{
    return first + op->some < op->channels ? first + op->some : op->channels;
}

static size_t taps_of(const depth_op *op)
{
    return (size_t)op->depth.k.kh * (size_t)op->depth.k.kw;
}

static void some_forward(void *arg, uint32_t item)
{
    const depth_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const int first = (int)(item % parts(op)) * op->some;
    const size_t group = item / parts(op) * (size_t)op->channels;
    for (int c = first; c < end_of(op, first); c++) {
        const size_t plane = group + (size_t)c;
        op->base.kernels->depth->forward(&op->depth, (const float *)b->x + plane * op->x_plane,
                                         (const float *)b->param[0] + (size_t)c * taps_of(op),
                                         op->depth.k.bias ? (const float *)b->param[1] + c : NULL,
                                         (float *)b->y + plane * op->y_plane);
    }
}

/* ---- few rows ------------------------------------------------------------------------------
 *
 * Forward of one to eight rows that are stored one after another (few.h). A vector holds sixteen
 * pixels of one channel. The channel is copied with zeros to the left and to the right of each
 * image row. Image rows of y whose sums use the same rows of the filter are computed as one long
 * image row. With a stride of 1 the pixels of this long row are adjacent; the results for the zeros
 * between two image rows are not used.
 *
 * Scratch memory: [copy of one channel of x, and the floats beyond it that are read][y][offsets of
 * the pixels]. */

enum { BEYOND = 64 };

static size_t wide_of(const ls_lanes_depth *d)
{
    return (size_t)d->iw + 2 * (size_t)d->k.pw;
}

static bool is_dense(const ls_lanes_depth *d)
{
    return d->k.sh == 1 && d->k.sw == 1;
}

static size_t to_sixteens(size_t n)
{
    return (n + 15) / 16 * 16;
}

static size_t copy_floats(const ls_lanes_depth *d)
{
    const size_t reach = (size_t)(d->k.kw - 1) * (size_t)d->k.dw;
    return to_sixteens((size_t)d->ih * wide_of(d) + reach + BEYOND);
}

static size_t sum_floats(const ls_lanes_depth *d)
{
    return to_sixteens((size_t)d->oh * (is_dense(d) ? wide_of(d) : (size_t)d->ow)) + BEYOND;
}

/* Finds the image rows of y, from image row `first` on, whose sums use the same rows of the filter.
 * Stores the first of these filter rows in `*up`, and the number of these filter rows in `*rows`.
 * Returns the image row after the last one found. */
static int same_lines(const ls_lanes_depth *d, int first, int *up, int *rows)
{
    int line = first;
    for (int from, to; line < d->oh; line++) {
        ls_lanes_taps_inside(line * d->k.sh - d->k.ph, d->k.kh, d->k.dh, d->ih, &from, &to);
        if (line == first)
            *up = from, *rows = to - from;
        else if (from != *up || to - from != *rows)
            break;
    }
    return line;
}

/* Computes image rows first … end − 1 of channel c, which has been copied into `room`. `up` and
 * `rows`: as same_lines stores them. */
static void few_lines(const depth_op *op, int c, int first, int end, int up, int rows, float *room,
                      float *y)
{
    const ls_lanes_depth *d = &op->depth;
    const ls_conv2d *k = &d->k;
    const int wide = (int)wide_of(d), step = is_dense(d) ? wide : d->ow;
    float *sums = room + copy_floats(d);
    int32_t *index = (int32_t *)(void *)(sums + sum_floats(d));
    const int pixels = (end - first) * step;
    const float *w = (const float *)op->base.b.param[0] + (size_t)c * taps_of(op);
    ls_few_depth few = {.n = (pixels + 15) / 16,
                        .rows = rows,
                        .columns = k->kw,
                        .row = (ptrdiff_t)k->dh * wide,
                        .column = k->dw,
                        .x = room + (ptrdiff_t)(first * k->sh - k->ph + up * k->dh) * wide,
                        .w = w + (ptrdiff_t)up * k->kw,
                        .init = k->bias ? op->base.b.param[1][c] : 0,
                        .y = sums};
    if (!is_dense(d)) {
        for (int p = 0; p < few.n * LS_LANES; p++) {
            const int at = p < pixels ? p : pixels - 1;
            index[p] = at / d->ow * k->sh * wide + at % d->ow * k->sw;
        }
        few.index = index;
    }
    if (rows > 0)
        op->base.kernels->few->depth(&few);
    for (int line = first; line < end; line++)
        for (int x = 0; x < d->ow; x++)
            y[line * d->ow + x] = rows > 0 ? sums[(line - first) * step + x] : few.init;
}

static void forward_few(ls_lanes_op *base)
{
    const depth_op *op = (const depth_op *)base;
    const ls_lanes_depth *d = &op->depth;
    const ls_tensor *t = &base->op.y, x = {.c = t->c, .h = d->ih, .w = d->iw};
    float *room = base->b.scratch;
    memset(room, 0, copy_floats(d) * sizeof *room);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->c; c++) {
            const float *from = (const float *)base->b.x + (size_t)r * ls_few_row(&x) +
                                (size_t)c * ls_few_plane(&x);
            float *y = (float *)base->b.y + (size_t)r * ls_few_row(t) + (size_t)c * ls_few_plane(t);
            for (int i = 0; i < d->ih; i++)
                memcpy(room + (size_t)i * wide_of(d) + d->k.pw, from + (size_t)i * (size_t)d->iw,
                       (size_t)d->iw * sizeof *room);
            for (int first = 0, end, up = 0, rows = 0; first < d->oh; first = end) {
                end = same_lines(d, first, &up, &rows);
                few_lines(op, c, first, end, up, rows, room, y);
            }
        }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void bias_of_block(const depth_op *op, const float *dy, int c, int groups, int add)
{
    float sums[LS_LANES * LS_LANES] __attribute__((aligned(64))) = {0};
    const ls_lanes_conv plane = {.ow = op->depth.ow};
    const ptrdiff_t line = (ptrdiff_t)op->depth.ow * LS_LANES;
    const ls_lanes_grad g = {dy, (ptrdiff_t)((size_t)op->channels * op->y_plane), 0, line};
    op->base.kernels->conv_bias(&plane, g, groups, 1, 0, op->depth.oh, sums, 0);
    op->base.kernels->sum_lanes((float *)op->base.b.grad[1] + c, sums, 1, add);
}

/* Computes all gradients of one channel for one block, one gradient after another, so that dy stays
 * in the caches. */
static void block_backward(const depth_op *op, int c, int group, int groups, int add)
{
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_kernels *k = op->base.kernels;
    const size_t x_group = (size_t)op->channels * op->x_plane;
    const size_t y_group = (size_t)op->channels * op->y_plane, row = (size_t)group;
    const size_t x = row * x_group + (size_t)c * op->x_plane;
    const float *dy = (const float *)b->dy + row * y_group + (size_t)c * op->y_plane;
    const size_t w = (size_t)c * taps_of(op);
    k->depth->weights(&op->depth, (const float *)b->x + x, dy, (ptrdiff_t)x_group,
                      (ptrdiff_t)y_group, groups, (float *)b->grad[0] + w, add);
    if (op->depth.k.bias)
        bias_of_block(op, dy, c, groups, add);
    for (int g = 0; g < groups && op->base.needs_dx; g++)
        k->depth->data(&op->depth, dy + (size_t)g * y_group, (const float *)b->param[0] + w,
                       (float *)b->dx + x + (size_t)g * x_group);
}

static void some_backward(void *arg, uint32_t item)
{
    const depth_op *op = arg;
    const int first = (int)item * op->some;
    for (int group = 0; group < op->base.groups; group += LS_LANES_BLOCK_GROUPS)
        for (int c = first; c < end_of(op, first); c++)
            block_backward(op, c, group, ls_lanes_block(op->base.groups, group),
                           group > 0 || op->base.flags & LS_RUN_ACCUMULATE);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int geometry(ls_lanes_depth *d, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d k = ls_conv2d_filled(desc->u.conv2d);
    *d = (ls_lanes_depth){.ih = desc->x.h, .iw = desc->x.w, .k = k};
    const int status = ls_conv_outputs(&d->oh, &d->ow, &k, &desc->x, 1, err);
    if (status)
        return status;
    if (desc->fuse_relu || desc->fuse_pool)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: nothing is fused after a depthwise conv2d");
    return LS_OK;
}

bool ls_lanes_is_depthwise(const ls_op_desc *desc)
{
    const ls_conv2d *k = &desc->u.conv2d;
    return k->groups > 1 && k->groups == desc->x.c && k->out == desc->x.c &&
           (double)k->kh * k->kw <= LS_LANES_DEPTH_TAPS;
}

int ls_lanes_depth_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_depth d;
    ls_lanes_op *base;
    int status = geometry(&d, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(depth_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    depth_op *op = (depth_op *)base;
    op->depth = d;
    op->channels = desc->x.c;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a geometry that fits has pixels */
    op->some = 1 + PIXELS / (d.oh * d.ow);
    op->x_plane = (size_t)d.ih * (size_t)d.iw * LS_LANES;
    op->y_plane = (size_t)d.oh * (size_t)d.ow * LS_LANES;
    ls_lanes_op_set_params(base, op->channels, d.k.kh * d.k.kw, 1, d.k.bias);
    base->forward = (ls_lanes_pass){some_forward, parts(op) * (uint32_t)base->groups};
    base->gradients = (ls_lanes_pass){some_backward, parts(op)};
    ls_lanes_op_set_y(base, op->channels, d.oh, d.ow);
    base->few = forward_few;
    base->few_scratch = (copy_floats(&d) + 2 * sum_floats(&d)) * sizeof(float);
    return ls_lanes_op_finish(out, base, desc, err);
}
