/* SPDX-License-Identifier: MIT */
/* Convolution of one to eight images in the layout `few` (few.h). A *run* is pixels of y that leave
 * out the same filter rows; a *window* is the pixels of which a fused pool computes one average.
 *
 * The kernel `product` multiplies one number of a pixel of x with the weights of all outputs of a
 * strip. Each sum has the same terms in the same order as in lanes, and therefore the same bits: 64
 * inputs at a time; input, filter row, filter column. (The sums of 64 inputs each are added in y.)
 * Filter rows over the padding above and below an image are left out of the sums, so all pixels of
 * a call must leave out the same ones: a run. Filter columns over the padding at the left and right
 * are multiplied with zeros. For this, x is copied with columns of zeros.
 *
 * Scratch memory: [copy of x][sums of one strip, if a pool is fused, or the coefficients of a batch
 * norm]; with Winograd's algorithm see few_wino.c. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes_conv.h"

#include <limits.h>
#include <string.h>

/* number of pixels that are computed with all inputs before the next pixels, if the filter is 1 ×
 * 1: their x stays in the L1 cache */
#define PIXELS 48

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static size_t taps_of(const ls_lanes_conv *c)
{
    return (size_t)c->kh * (size_t)c->kw;
}

/* Returns the shape of x. */
static ls_tensor x_of(const ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->few.conv;
    return (ls_tensor){.rows = op->base.op.y.rows, .c = c->ic, .h = c->ih, .w = c->x_w};
}

static bool is_pooled(const ls_lanes_conv *c)
{
    return c->pool_h * c->pool_w > 1;
}

/* Returns the number of pixels of all rows before the pool. */
static size_t pixels_of(const ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->few.conv;
    return (size_t)op->base.op.y.rows * (size_t)c->oh * (size_t)c->ow;
}

/* ---- the pack -------------------------------------------------------------------------------- */

int ls_few_conv_strip(const ls_conv_op *op, int first)
{
    const int strip = op->base.kernels->few->strip * LS_LANES;
    return smaller(strip, (int)ls_few_sixteens(op->few.conv.oc) * LS_LANES - first);
}

int ls_few_conv_half(const ls_conv_op *op, int end)
{
    return end - op->few.conv.oc >= LS_LANES / 2;
}

/* Packs the weights of the direct form: [strip][input][tap][outputs of the strip]. */
static void pack_direct(const ls_conv_op *op, float *pack)
{
    const ls_lanes_conv *c = &op->few.conv;
    const int elements = c->ic * (int)taps_of(c);
    const float *w = op->base.b.param[0];
    for (int first = 0, width; first < c->oc; first += width) {
        width = ls_few_conv_strip(op, first);
        for (int e = 0; e < elements; e++)
            for (int o = first; o < first + width; o++)
                *pack++ = o < c->oc ? w[ls_lanes_place(LS_LANES_OC, elements, o, e)] : 0;
    }
}

/* Returns the place of the bias in the pack. */
static float *bias_in(const ls_conv_op *op, float *pack)
{
    return pack + op->few.pack - ls_few_sixteens(op->few.conv.oc) * LS_LANES;
}

const float *ls_few_conv_bias(const ls_conv_op *op, const float *pack)
{
    return op->bias ? bias_in(op, (float *)pack) : NULL;
}

const float *ls_few_conv_packed(const ls_conv_op *op)
{
    ls_kept *kept = op->kept[LS_CONV_FEW];
    const float *weights = op->base.b.param[0];
    const size_t oc = (size_t)op->few.conv.oc;
    ls_conv_begin(op);
    if (ls_kept_is_valid(kept, weights, op->base.flags))
        return kept->data;
    (op->forward.by_winograd ? ls_few_wino_pack : pack_direct)(op, kept->data);
    if (op->bias)
        memcpy(bias_in(op, kept->data), op->base.b.param[1], oc * sizeof *weights);
    kept->source = weights;
    kept->flags = op->base.flags;
    return kept->data;
}

int ls_few_conv_keep(ls_conv_op *op, ls_error *err)
{
    return op->base.few ? ls_kept_alloc(op->kept[LS_CONV_FEW], op->few.pack, &op->base, err)
                        : LS_OK;
}

/* ---- the direct form ------------------------------------------------------------------------- */

/* Copies x to `to`, with columns of zeros to the left and to the right of each image row. */
static void pad(const ls_conv_op *op, float *copy)
{
    const ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const ls_tensor x = x_of(op);
    const size_t width = (size_t)x.w * f->pixel, side = (size_t)c->pw * f->pixel;
    const size_t planes = f->flat ? (size_t)c->ic : ls_few_sixteens(c->ic);
    for (int r = 0; r < x.rows; r++) {
        const float *from =
            (const float *)op->base.b.x + (size_t)r * (f->flat ? ls_flat_row(&x) : ls_few_row(&x));
        float *to = copy + (size_t)r * f->row;
        for (size_t line = 0; line < planes * (size_t)c->ih; line++) {
            memset(to, 0, side * sizeof *to);
            memcpy(to + side, from, width * sizeof *to);
            memset(to + side + width, 0, side * sizeof *to);
            to += width + 2 * side;
            from += width;
        }
    }
}

/* One strip of outputs, and the memory that its products use. */
typedef struct few_strip {
    const ls_conv_op *op;
    ls_few_product product; /* without the fields that depend on run and inputs */
    const float *w;         /* packed weights of the strip */
    ls_few_finish finish;   /* operations on the strip's results */
} few_strip;

/* Adds the products of up to 64 inputs, from `first` on, for `count` pixels of a run, from pixel
 * `from` on. */
static void add_inputs(const few_strip *s, const ls_few_run *run, int from, int count, int first)
{
    const ls_few_conv *f = &s->op->few;
    const ls_lanes_conv *c = &f->conv;
    const bool last = first + LS_LANES_DEPTH >= c->ic;
    ls_few_product p = s->product;
    p.count = count;
    p.in_at += run->first + from;
    p.out_at += run->first + from;
    p.in += (size_t)first / LS_LANES * f->sixteen;
    p.in += (ptrdiff_t)run->tap_row * p.row;
    p.inputs = smaller(c->ic - first, LS_LANES_DEPTH);
    p.rows = run->rows;
    p.w = s->w + (ptrdiff_t)first * p.w_input + run->tap_row * p.w_row;
    p.bias = first == 0 ? p.bias : NULL;
    p.add = first > 0;
    p.finish = last ? &s->finish : NULL;
    s->op->base.kernels->few->product(&p);
}

/* Computes the sums of a strip. */
static void run_strip(const few_strip *s)
{
    const ls_few_conv *f = &s->op->few;
    const int ic = f->conv.ic;
    if (f->runs == 1 && taps_of(&f->conv) == 1) {
        const int all = f->run[0].count;
        int pieces = (all + PIXELS - 1) / PIXELS; /* pieces of nearly equal size */
        for (int from = 0, n; pieces > 0; from += n, pieces--) {
            n = (all - from) / pieces;
            for (int first = 0; first < ic; first += LS_LANES_DEPTH)
                add_inputs(s, &f->run[0], from, n, first);
        }
        return;
    }
    for (int first = 0; first < ic; first += LS_LANES_DEPTH)
        for (int i = 0; i < f->runs; i++)
            add_inputs(s, &f->run[i], 0, f->run[i].count, first);
}

/* Computes y of a strip from its sums before the pool. */
static void pool_strip(const few_strip *s, int first)
{
    const ls_conv_op *op = s->op;
    const ls_lanes_conv *c = &op->few.conv;
    const ls_tensor *y = &op->base.op.y;
    const size_t image = (size_t)c->oh * (size_t)c->ow * LS_LANES;
    for (int k = 0; k < s->product.outs; k++)
        for (int r = 0; r < y->rows; r++)
            op->base.kernels->few->average(
                c->oh, c->ow, c->pool_h, c->pool_w,
                s->product.out + (size_t)k * (size_t)s->product.out_step + (size_t)r * image,
                (float *)op->base.b.y + (size_t)r * ls_few_row(y) +
                    ((size_t)first / LS_LANES + (size_t)k) * ls_few_plane(y));
}

/* Forward in the direct form (ls_lanes_op.few). */
static void direct(ls_lanes_op *base)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    const ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const float *pack = ls_few_conv_packed(op), *bias = ls_few_conv_bias(op, pack);
    const ptrdiff_t plane = (ptrdiff_t)ls_few_plane(&base->op.y), taps = (ptrdiff_t)taps_of(c);
    float *copy = base->b.scratch, *sums = copy;
    if (f->copied) {
        pad(op, copy);
        sums += (size_t)base->op.y.rows * f->row;
    }
    const ls_few_finish finish = ls_few_finish_of(base, c->relu, sums);
    few_strip s = {.op = op, .w = pack};
    for (int first = 0, width; first < c->oc; first += width) {
        width = ls_few_conv_strip(op, first);
        s.finish =
            ls_few_finish_from(&finish, (size_t)first, (size_t)first / LS_LANES * (size_t)plane);
        s.product = (ls_few_product){
            .in_at = f->in_at,
            .out_at = f->out_at,
            .in = f->copied ? copy : base->b.x,
            .out = is_pooled(c) ? sums : (float *)base->b.y + (ptrdiff_t)first / LS_LANES * plane,
            .input = (ptrdiff_t)f->input,
            .sixteen = (ptrdiff_t)f->sixteen,
            .columns = c->kw,
            .row = (ptrdiff_t)(f->line * (size_t)c->dh),
            .column = (ptrdiff_t)(f->pixel * (size_t)c->dw),
            .w_input = taps * width,
            .w_row = (ptrdiff_t)c->kw * width,
            .outs = width / LS_LANES,
            .half = ls_few_conv_half(op, first + width),
            .out_step = is_pooled(c) ? (ptrdiff_t)pixels_of(op) * LS_LANES : plane,
            .bias = bias ? bias + first : NULL,
        };
        run_strip(&s);
        if (is_pooled(c))
            pool_strip(&s, first);
        s.w += (ptrdiff_t)c->ic * taps * width;
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

void ls_few_conv_fini(ls_conv_op *op)
{
    const ls_host *host = op->base.host;
    ls_free(host, op->few.in_at);
    ls_free(host, op->few.out_at);
    ls_free(host, op->few.run);
}

/* Sets the steps of x, or of its copy. */
static void set_steps(ls_conv_op *op)
{
    ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    f->copied = c->pw > 0;
    f->pixel = f->flat ? 1 : LS_LANES;
    f->line = (size_t)c->iw * f->pixel;
    const size_t plane = (size_t)c->ih * f->line;
    f->input = f->flat ? plane : 1;
    f->sixteen = f->flat ? LS_LANES * plane : plane;
    f->row = (f->flat ? (size_t)c->ic : ls_few_sixteens(c->ic)) * plane;
    f->row = (f->row + LS_LANES - 1) / LS_LANES * LS_LANES; /* the copy ends at a cache line */
}

/* Fills the offsets of the pixels of y, and divides the pixels into runs. */
static void fill(ls_conv_op *op)
{
    ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const ls_tensor *y = &op->base.op.y;
    const ptrdiff_t row =
        is_pooled(c) ? (ptrdiff_t)c->oh * c->ow * LS_LANES : (ptrdiff_t)ls_few_row(y);
    int n = 0;
    for (int line = 0, end; line < c->oh; line = end) {
        int from, to, other_from, other_to;
        ls_lanes_taps_inside(line * c->sh - c->ph, c->kh, c->dh, c->ih, &from, &to);
        for (end = line + 1; end < c->oh; end++) {
            ls_lanes_taps_inside(end * c->sh - c->ph, c->kh, c->dh, c->ih, &other_from, &other_to);
            if (other_from != from || other_to != to)
                break;
        }
        ls_few_run *run = &f->run[f->runs++];
        *run = (ls_few_run){.first = n, .tap_row = from, .rows = to - from};
        for (int r = 0; r < y->rows; r++)
            for (int i = line; i < end; i++)
                for (int j = 0; j < c->ow; j++, n++) {
                    f->in_at[n] = (int32_t)((ptrdiff_t)r * (ptrdiff_t)f->row +
                                            (ptrdiff_t)(i * c->sh - c->ph) * (ptrdiff_t)f->line +
                                            (ptrdiff_t)j * c->sw * (ptrdiff_t)f->pixel);
                    f->out_at[n] = (int32_t)(r * row + ((ptrdiff_t)i * c->ow + j) * LS_LANES);
                }
        run->count = n - run->first;
    }
}

static int plan_direct(ls_conv_op *op, ls_error *err)
{
    ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &f->conv;
    const size_t pixels = pixels_of(op), oc = ls_few_sixteens(c->oc) * LS_LANES;
    const size_t rows = (size_t)op->base.op.y.rows;
    const size_t strip = (size_t)ls_few_conv_strip(op, 0);
    set_steps(op);
    f->pack = oc * ((size_t)c->ic * taps_of(c) + 1);
    f->in_at = ls_alloc_array(op->base.host, pixels, sizeof *f->in_at);
    f->out_at = ls_alloc_array(op->base.host, pixels, sizeof *f->out_at);
    f->run = ls_alloc_array(op->base.host, (size_t)c->oh, sizeof *f->run);
    if (!f->in_at || !f->out_at || !f->run)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for few rows");
    fill(op);
    op->base.few = direct;
    op->base.few_scratch = ((f->copied ? rows * f->row : 0) +
                            (is_pooled(c) ? pixels * strip : ls_few_norm_floats(c->oc))) *
                           sizeof(float);
    return LS_OK;
}

/* Returns true if all offsets within x, its copy and y fit the plan's ints. */
static bool fits(const ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->few.conv;
    const double in = (double)ls_few_sixteens(c->ic) * LS_LANES * (c->ih + 2.0 * c->ph) * c->iw;
    const double out = (double)ls_few_sixteens(c->oc) * LS_LANES * c->oh * c->ow;
    return (double)op->base.op.y.rows * (in > out ? in : out) <= INT_MAX;
}

int ls_few_conv_plan(ls_conv_op *op, const ls_op_desc *desc, ls_error *err)
{
    /* The geometry as it is described. (In op->conv, ls_conv_plan has turned a convolution with a
     * 1 × 1 filter into a product over one long image row.) */
    int status = ls_conv_geometry(&op->few.conv, desc, err);
    if (status || !fits(op))
        return status;
    op->few.flat = ls_few_is_flat(desc) && !op->forward.by_winograd;
    op->base.few_reads_flat = op->few.flat;
    op->base.few_finishes = desc->zero_bias && !is_pooled(&op->few.conv);
    return op->forward.by_winograd ? ls_few_wino_plan(op, err) : plan_direct(op, err);
}
