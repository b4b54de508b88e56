/* SPDX-License-Identifier: MIT */
/* Convolution by Winograd's algorithm (wino.h) of one to eight images in the layout `few` (few.h,
 * few_kernels.h).
 *
 *     values of x                [point][sixteen][tiles][16]
 *     values of the weights      [strip][64 inputs][point][input][outputs of the strip]
 *     products, values of y      [point][sixteen][tiles][16]
 *
 * The weights are one stream of memory: in the last layers of a network their values are far larger
 * than those of x and y, and each is read once. The sums have the same order as in lanes (see
 * wino_product.inc).
 *
 * The tiles of all rows are computed in blocks, so that the values of x and y stay in a cache.
 * Scratch memory: [coefficients of a batch norm][values of x][values of y]. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes_conv.h"

/* size in bytes of the values of x and y of a block, if those of the weights are not larger */
#define BLOCK_BYTES ((size_t)1 << 20)
/* fewest tiles of a block: enough for the products to use all registers */
#define FEWEST 24

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static size_t points_of(const ls_conv_op *op)
{
    return (size_t)op->forward.wino.points;
}

void ls_few_wino_pack(const ls_conv_op *op, float *pack)
{
    const ls_wino *w = &op->forward.wino;
    const ls_lanes_conv *c = &op->few.conv;
    const size_t taps = (size_t)c->kh * (size_t)c->kw * LS_LANES_OC;
    const size_t eight = (size_t)c->ic * taps; /* step from one eight of outputs to the next */
    for (int first = 0, width; first < c->oc; first += width) {
        width = ls_few_conv_strip(op, first);
        for (int i = 0, n; i < c->ic; i += n) {
            n = smaller(c->ic - i, LS_LANES_DEPTH);
            for (int s = 0; s < width; s += LS_LANES) {
                const float *low = op->base.b.param[0] + (size_t)(first + s) / LS_LANES_OC * eight +
                                   (size_t)i * taps;
                w->kernels->few_weights[w->form](
                    pack + s, (size_t)n * (size_t)width, (size_t)width, low,
                    first + s + LS_LANES_OC < c->oc ? low + eight : NULL, n);
            }
            pack += points_of(op) * (size_t)n * (size_t)width;
        }
    }
}

/* Computes the products of a block of `count` tiles. */
static void multiply(const ls_conv_op *op, int count, const float *w, const float *in, float *out)
{
    const ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const size_t sixteen = (size_t)f->tiles * LS_LANES;
    for (int first = 0, width; first < c->oc; first += width) {
        width = ls_few_conv_strip(op, first);
        for (int i = 0, n; i < c->ic; i += n) {
            n = smaller(c->ic - i, LS_LANES_DEPTH);
            for (size_t point = 0; point < points_of(op); point++, w += n * width) {
                const ls_few_product p = {
                    .count = count,
                    .in_at = f->in_at,
                    .out_at = f->in_at,
                    .in = in + point * f->point_x + (size_t)i / LS_LANES * sixteen,
                    .out = out + point * f->point_y + (size_t)first / LS_LANES * sixteen,
                    .inputs = n,
                    .input = 1,
                    .sixteen = (ptrdiff_t)sixteen,
                    .rows = 1,
                    .columns = 1,
                    .w = w,
                    .w_input = width,
                    .outs = width / LS_LANES,
                    .half = ls_few_conv_half(op, first + width),
                    .out_step = (ptrdiff_t)sixteen,
                    .add = i > 0,
                };
                op->base.kernels->few->product(&p);
            }
        }
    }
}

void ls_few_wino(ls_lanes_op *base)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    const ls_few_conv *f = &op->few;
    const ls_wino *w = &op->forward.wino;
    const float *pack = ls_few_conv_packed(op);
    float *norm = base->b.scratch, *in = norm + ls_few_norm_floats(f->conv.oc);
    float *out = in + points_of(op) * f->point_x;
    const ls_few_outputs outputs = {.bias = ls_few_conv_bias(op, pack),
                                    .finish = ls_few_finish_of(base, f->conv.relu, norm),
                                    .pool = f->conv.pool_h > 1};
    const int all = base->op.y.rows * f->y.down * f->y.across;
    for (int first = 0, count; first < all; first += count) {
        count = smaller(all - first, f->block);
        w->kernels->input[w->form]((ls_wino_values){in, f->point_x, f->tiles}, &f->x, base->b.x,
                                   first, count);
        multiply(op, count, pack, in, out);
        w->kernels->few_outputs[w->form](
            base->b.y, &f->y, (ls_wino_values){out, f->point_y, f->tiles}, first, count, &outputs);
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Returns the description of a tensor whose packets are rows and whose channels are sixteens. `of`:
 * the description in lanes; `t`: the shape in memory, after the pool. */
static ls_wino_image image_of(const ls_wino_image *of, const ls_tensor *t)
{
    ls_wino_image image = *of;
    image.channels = image.to = (int)ls_few_sixteens(t->c);
    image.from = 0;
    image.line = (size_t)t->w * LS_LANES;
    image.channel = ls_few_plane(t);
    image.packet = ls_few_row(t);
    return image;
}

/* Returns a step of at least `floats` floats that is not a multiple of 4 KiB, because the
 * transforms write to all points in turn. */
static size_t point_floats(size_t floats)
{
    return (floats + 1023) / 1024 * 1024 + 5 * LS_LANES;
}

int ls_few_wino_plan(ls_conv_op *op, ls_error *err)
{
    ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const ls_wino *w = &op->forward.wino;
    const ls_tensor x = {.rows = op->base.op.y.rows, .c = c->ic, .h = c->ih, .w = c->x_w};
    const size_t in = ls_few_sixteens(c->ic), out = ls_few_sixteens(c->oc);
    const size_t weights = points_of(op) * (size_t)c->ic * out * LS_LANES;
    const size_t tile = points_of(op) * (in + out) * LS_LANES * sizeof(float);
    const size_t bytes =
        weights * sizeof(float) > BLOCK_BYTES ? weights * sizeof(float) : BLOCK_BYTES;
    f->x = image_of(&w->x, &x);
    f->y = image_of(&w->y, &op->base.op.y);
    f->pack = weights + out * LS_LANES;
    f->block = (int)(bytes / tile) < FEWEST ? FEWEST : (int)(bytes / tile);
    f->block = smaller(f->block, x.rows * f->y.down * f->y.across);
    f->tiles = f->block % 8 ? f->block : f->block + 1;
    f->point_x = point_floats(in * (size_t)f->tiles * LS_LANES);
    f->point_y = point_floats(out * (size_t)f->tiles * LS_LANES);
    f->in_at = ls_alloc_array(op->base.host, (size_t)f->block, sizeof *f->in_at);
    if (!f->in_at)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for few rows");
    for (int t = 0; t < f->block; t++)
        f->in_at[t] = t * LS_LANES;
    op->base.few = ls_few_wino;
    op->base.few_scratch =
        (ls_few_norm_floats(c->oc) + points_of(op) * (f->point_x + f->point_y)) * sizeof(float);
    return LS_OK;
}
