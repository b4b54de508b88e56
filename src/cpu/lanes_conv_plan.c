/* SPDX-License-Identifier: MIT */
/* The plan of a convolution: its geometry, the kernels of each pass, and the memory that the
 * kernels need. lanes_op.h, lanes_conv.h and wino.h explain the words. As a number, *products*
 * means multiplications of two numbers. */
#include "cpu/lanes_conv.h"

#include "base/error.h"

#include <limits.h>

/* Largest number of pixels of a *plane* (one channel of a packet of images). The kernels compute
 * offsets within a plane as ints. */
enum { MOST_PIXELS = 1 << 25 };

/* ---- geometry -------------------------------------------------------------------------------- */

/* Returns true if every number that the kernels compute as an int fits an int. These numbers are:
 *
 * - heights and widths of images with padding
 * - positions in an image: a loop ends at a position up to one stride beyond the image
 * - the number of weights of an eight */
static bool fits_ints(const ls_conv2d *k, int inputs)
{
    const int side[] = {k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, k->dh, k->dw};
    bool fits = k->out <= INT_MAX - 15 && (double)inputs * k->kh * k->kw * LS_LANES_OC <= INT_MAX &&
                (double)k->kh * k->dh <= INT_MAX && (double)k->kw * k->dw <= INT_MAX &&
                (double)k->sh * k->dh <= INT_MAX && (double)k->sw * k->dw <= INT_MAX;
    for (size_t i = 0; i < sizeof side / sizeof *side; i++)
        fits = fits && side[i] <= 1 << 24;
    return fits;
}

/* Returns the height of y for an image of height `size`, or its width for an image of width `size`;
 * 0 if the filter is larger than the image with its padding. */
static int outputs(int size, int kernel, int dilation, int stride, int pad)
{
    const int room = size + 2 * pad - (kernel - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

int ls_conv_outputs(int *oh, int *ow, const ls_conv2d *k, const ls_tensor *x, int inputs,
                    ls_error *err)
{
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0 ||
        k->dh < 1 || k->dw < 1)
        /* One of the numbers that the message lists is out of range. */
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d channels, kernel %d×%d, stride %d×%d, padding "
                       "%d×%d, dilation %d×%d",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, k->dh, k->dw);
    if (!fits_ints(k, inputs))
        /* Some size would overflow an int. "of %d" is the number of input channels. */
        return ls_fail(err, LS_EUNSUPPORTED,
                       "conv2d: %d channels, kernel %d×%d of %d, stride %d×%d, padding %d×%d, "
                       "dilation %d×%d: more than the CPU back end counts",
                       k->out, k->kh, k->kw, inputs, k->sh, k->sw, k->ph, k->pw, k->dh, k->dw);
    *oh = outputs(x->h, k->kh, k->dh, k->sh, k->ph);
    *ow = outputs(x->w, k->kw, k->dw, k->sw, k->pw);
    if (*oh < 1 || *ow < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d, dilated by %d×%d, does not fit into %d×%d with "
                       "padding %d×%d",
                       k->kh, k->kw, k->dh, k->dw, x->h, x->w, k->ph, k->pw);
    if ((size_t)*oh * (size_t)*ow > MOST_PIXELS)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "conv2d: %d×%d pixels; the CPU back end takes at most %d in a plane", *oh,
                       *ow, MOST_PIXELS);
    return LS_OK;
}

/* Returns true if the pool can be fused: it is an average over windows that lie side by side. */
static bool pool_fits(const ls_pool2d *p, int oh, int ow)
{
    return !p->max && p->kh >= 1 && p->kw >= 1 && p->kh == p->sh && p->kw == p->sw && p->ph == 0 &&
           p->pw == 0 && p->eh == 0 && p->ew == 0 && !p->ceil && oh >= p->kh && ow >= p->kw;
}

int ls_conv_geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d filled = ls_conv2d_filled(desc->u.conv2d), *k = &filled;
    int oh = 0, ow = 0;
    int status = ls_conv_outputs(&oh, &ow, k, &desc->x, desc->x.c, err);
    if (status)
        return status;
    if (desc->fuse_pool && !pool_fits(&desc->pool, oh, ow))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "lanes: only averages over windows side by side are "
                       "fused into a convolution");
    *c = (ls_lanes_conv){
        .ic = desc->x.c,
        .ih = desc->x.h,
        .iw = desc->x.w + 2 * k->pw,
        .oc = k->out,
        .kh = k->kh,
        .kw = k->kw,
        .sh = k->sh,
        .sw = k->sw,
        .ph = k->ph,
        .dh = k->dh,
        .dw = k->dw,
        .x_w = desc->x.w,
        .pw = k->pw,
        .relu = desc->fuse_relu,
        .pool_h = desc->fuse_pool ? desc->pool.kh : 1,
        .pool_w = desc->fuse_pool ? desc->pool.kw : 1,
    };
    c->y_h = oh / c->pool_h;
    c->y_w = ow / c->pool_w;
    /* Pixels that no window of the pool covers are not computed. */
    c->oh = c->y_h * c->pool_h;
    c->ow = c->y_w * c->pool_w;
    return LS_OK;
}

/* ---- the choice of kernels ------------------------------------------------------------------- */

/* Winograd's algorithm and its rounding errors. F(m×m, r×r) computes m × m outputs of an r × r
 * filter at a time (wino.h). F(2×2, 3×3) has smaller errors than the direct form. F(4×4, 3×3) has
 * three times the errors of F(2×2, 3×3) and takes three quarters of its time. F(2×2, 5×5), which
 * has the same points as F(4×4, 3×3), has twice the errors of F(2×2, 3×3), or 1.5 times those of
 * the direct form (bench/RESULTS.md).
 *
 * F(2×2, 5×5) in halves (wino.h) splits each 5 × 5 filter into parts of three and two weights in
 * each direction, and adds the results of the parts. It takes more products than F(2×2, 5×5), but
 * has less than half of the direct form's errors.
 *
 *     y    If a number is near zero, an error in y can change its sign. Then the relu that follows
 *          passes the number instead of 0, or 0 instead of the number. This changes the gradients
 *          of all earlier layers far more than the error itself would. Therefore y uses only forms
 *          whose errors are at most those of the direct form: F(2×2, 3×3) for 3 × 3 filters, and
 *          F(2×2, 5×5) in halves for 5 × 5 filters.
 *     dx   An error in dx does not grow, but it enters the gradients of all earlier layers.
 *          5 × 5 filters use F(2×2, 5×5). 3 × 3 filters use F(4×4, 3×3) if two conditions hold:
 *          - F(4×4, 3×3) takes less than two thirds of the products of F(2×2, 3×3). An image of
 *            14 × 14 does not meet this condition: its tiles of 4 × 4 cover 16 × 16 pixels, and
 *            the products for the pixels outside the image are wasted.
 *          - The image has more than one tile. Images of one tile belong to the late layers of a
 *            network, which have many channels. There the errors of F(4×4, 3×3) were too large for
 *            the bounds that the tests of ResNet-18's gradients set.
 *          Otherwise 3 × 3 filters use F(2×2, 3×3).
 *          A pass divides either dx or dy into tiles. If there are tiles of dy, each tile's result
 *          is added to dx (a *spread pass*; wino.h). A spread pass is used if it takes fewer
 *          products.
 *     dw   An error in the gradient of the weights stays in this gradient. The gradient is a sum
 *          over many images, in which errors partly cancel. Therefore the fastest form is used. */

/* Returns the number of products that a pass with h × w results takes for one pair of channels. A
 * tile has m × m results and takes n × n products. */
static size_t products(int form, int h, int w)
{
    const int m = form == LS_WINO_4_3 ? 4 : 2;
    const size_t n = form == LS_WINO_2_3 ? 4 : form == LS_WINO_2_5_HALVES ? 7 : 6;
    return (size_t)((h + m - 1) / m) * (size_t)((w + m - 1) / m) * n * n;
}

/* fewest channels for which Winograd's algorithm, transforms included, is faster */
#define CHANNELS 16

/* Returns true if this form of Winograd's algorithm computes the pass faster than the direct form.
 * h × w: the image that is divided into tiles. */
static bool winograd_fits(const ls_lanes_conv *c, int form, int h, int w)
{
    const int taps = c->kh * c->kw, side = form == LS_WINO_2_3 || form == LS_WINO_4_3 ? 3 : 5;
    return c->kh == side && c->kw == side && c->sh == 1 && c->sw == 1 && c->dh == 1 && c->dw == 1 &&
           c->ph < side && c->pw < side && c->ic >= CHANNELS && c->oc >= CHANNELS &&
           (c->pool_h * c->pool_w == 1 || (c->pool_h == 2 && c->pool_w == 2)) &&
           3 * products(form, h, w) < (size_t)(2 * taps) * (size_t)c->oh * (size_t)c->ow;
}

/* If d is staged, sets the steps of the image `d` to those of staged d, which is stored as
 * [image row][channel][column]. */
static void set_staged_steps(const ls_conv_op *op, ls_wino_image *d)
{
    if (!op->staged)
        return;
    d->channel = (size_t)op->conv.ow * LS_LANES;
    d->line = (size_t)op->conv.oc * d->channel;
    d->packet = op->d_packet;
}

/* Chooses for each pass the direct form or a form of Winograd's algorithm, and plans the latter. */
static void choose_winograd(ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_wino_kernels *k = op->base.kernels->wino;
    const ls_wino_shape s = {c->ic, c->oc, c->ih, c->x_w, c->oh, c->ow, c->ph, c->pw};
    const int small = c->kh == 5 ? LS_WINO_2_5 : LS_WINO_2_3;
    const size_t two = products(LS_WINO_2_3, c->oh, c->ow),
                 four = products(LS_WINO_4_3, c->oh, c->ow);
    const int for_weights = c->kh == 3 && four < two ? LS_WINO_4_3 : small;
    const bool one_tile = c->oh <= 4 && c->ow <= 4;
    const int for_data = c->kh == 3 && 3 * four < 2 * two && !one_tile ? LS_WINO_4_3 : small;
    const int for_y = c->kh == 5 ? LS_WINO_2_5_HALVES : LS_WINO_2_3;
    op->forward.by_winograd = winograd_fits(c, for_y, c->oh, c->ow);
    op->weights.by_winograd = winograd_fits(c, for_weights, c->oh, c->ow);
    const bool spread = products(for_data, c->oh, c->ow) < products(for_data, c->ih, c->x_w);
    op->dx.by_winograd =
        winograd_fits(c, for_data, spread ? c->oh : c->ih, spread ? c->ow : c->x_w);
    ls_wino_init(&op->forward.wino, k, for_y, &s);
    ls_wino_init_gradient(&op->weights.wino, k, for_weights, &s, LS_LANES_BLOCK_PACKETS);
    ls_wino_init_data(&op->dx.wino, k, for_data, &s);
    ls_wino_fit(&op->forward.wino, op->base.packets);
    ls_wino_fit(&op->dx.wino, LS_LANES_BLOCK_PACKETS);
    /* Sets y's steps to those after the fused pool; ls_wino_init has set those without it. */
    op->forward.wino.y.line = (size_t)c->y_w * LS_LANES;
    op->forward.wino.y.channel = (size_t)c->y_h * op->forward.wino.y.line;
    op->forward.wino.y.packet = op->y_packet;
    set_staged_steps(op, &op->weights.wino.y);
    set_staged_steps(op, &op->dx.wino.x);
    op->forward.wino.team = op->weights.wino.team = op->dx.wino.team = op->base.team;
}

/* The direct gradient of the weights is computed in one of two ways (lanes_conv.h):
 *
 * - sums per lane: each lane sums the gradient of its own image, and at the end the sixteen sums of
 *   each weight are added
 * - by panels: d is transposed to panels, and matrices are multiplied: panels and x
 *
 * Returns true if panels are faster. They are if there are at least eight input channels, and of
 * the sixteen places of each panel at least 14 have an output channel (on average). With strides,
 * and for 1 × 1 filters, sums per lane are slow, so 12 of the sixteen places are enough. */
static bool panels_pay(const ls_lanes_conv *c)
{
    const int panels = (c->oc + 15) / 16, least = c->sw > 1 || c->kh * c->kw == 1 ? 12 : 14;
    return c->ic >= 8 && c->oc >= least * panels;
}

/* Turns a convolution with a 1 × 1 filter, without padding and pool, into a matrix product over
 * pixels, which are treated as one image row. With a stride `sampled` is set: the pixels that are
 * not skipped are first copied side by side, and dx is first computed for them alone. */
static void flatten(ls_conv_op *op)
{
    ls_lanes_conv *c = &op->conv;
    if (c->kh * c->kw != 1 || c->ph || c->pw || c->pool_h * c->pool_w > 1)
        return;
    op->sampled = c->sh > 1 || c->sw > 1;
    c->iw = c->x_w = c->ow = c->y_w = c->oh * c->ow;
    c->ih = c->oh = c->y_h = c->sh = c->sw = 1;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

#define BAND_FLOATS 6144 /* floats of a band: half of a 48 KB L1 cache */
#define PANEL_PIXELS 32  /* largest number of pixels that are copied to panels at a time */

static size_t ceil_to(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Sets the sizes of a packet in memory. */
static void set_packets(ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    op->x_packet = (size_t)c->ic * (size_t)op->x_h * (size_t)op->x_w * LS_LANES;
    op->padded_packet = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * LS_LANES;
    op->y_packet = (size_t)c->oc * (size_t)c->y_h * (size_t)c->y_w * LS_LANES;
    op->d_packet = (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * LS_LANES;
    op->staged = c->relu || c->pool_h * c->pool_w > 1;
    if (op->base.training && c->relu)
        op->mask_packet = op->d_packet / LS_LANES * (size_t)op->base.kernels->mask_bytes;
}

/* Returns the number of image rows of a band: as many whole pooling windows as fit into
 * BAND_FLOATS. */
static int band_rows(const ls_lanes_conv *c)
{
    const size_t row = (size_t)LS_CONV_BAND * (size_t)c->ow * LS_LANES;
    const int rows = (int)(BAND_FLOATS / row) / c->pool_h * c->pool_h;
    return rows < c->pool_h ? c->pool_h : rows < c->oh ? rows : c->oh;
}

#define RESUME_BYTES ((size_t)512 << 10) /* half of an L2 cache */
#define RESUME_INPUTS 8                  /* largest number of inputs whose sums stay in the cache */

/* Returns the number of image rows that are multiplied with all inputs at a time, if d of an eight
 * does not stay in the cache; else 0. */
static int resume_rows(const ls_lanes_conv *c)
{
    const size_t d = (size_t)LS_LANES_OC * (size_t)c->ow * LS_LANES * sizeof(float);
    const size_t x = (size_t)c->ic * (size_t)c->sh * (size_t)c->iw * LS_LANES * sizeof(float);
    if (c->kh * c->kw == 1 || c->ic > RESUME_INPUTS || d * (size_t)c->oh <= RESUME_BYTES)
        return 0;
    const int rows = (int)(RESUME_BYTES / (d + x));
    return rows < 1 ? 1 : rows < c->oh ? rows : c->oh;
}

/* Divides the work on the direct forward. If the kernel's outer loops run over the pixels, each
 * part reads only its own image rows of x; parts of channels would each read the whole of it. */
static void cut_forward(ls_conv_op *op)
{
    ls_lanes_conv *c = &op->conv;
    const uint32_t rows = (uint32_t)ls_lanes_forward_parts(c), packets = (uint32_t)op->base.packets;
    ls_conv_cut *cut = &op->cut;
    cut->by_eights = rows == 1;
    cut->forward_parts = ls_team_cuts(op->base.team, packets, cut->by_eights ? cut->eights : rows);
    c->patches = ls_lanes_patches(c);
    cut->forward_copies = op->sampled || (c->pw && !c->patches);
}

/* Divides the work of the direct kernels (ls_conv_cut). */
static void set_cut(ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    ls_conv_cut *cut = &op->cut;
    const size_t sums = (size_t)c->kh * (size_t)ls_lanes_conv_columns(c) * LS_LANES_OC;
    const uint32_t threads = (uint32_t)ls_team_size(op->base.team);
    op->banded = op->staged && !op->base.needs_dx && !op->weights.by_winograd && !op->panels;
    cut->eights = (uint32_t)(c->oc + LS_LANES_OC - 1) / LS_LANES_OC;
    cut->sixteens = (uint32_t)(c->oc + 15) / 16;
    cut_forward(op);
    /* A slot is memory for the sums of one eight. With a team of threads each eight has its own
     * slot. A single thread computes one eight after another in the same slot, so that the slot
     * stays in the cache. */
    cut->slots = ls_team_size(op->base.team) > 1 ? cut->eights : 1;
    /* A band, or some image rows, are multiplied with all input channels while they are in the
     * cache, so the sums of all input channels exist at the same time. */
    cut->resume_rows = op->banded || op->panels ? 0 : resume_rows(c);
    cut->inputs = op->banded || cut->resume_rows > 0 ? ls_lanes_conv_inputs(c) : 1;
    cut->band_rows = band_rows(c);
    /* Whole image rows of at most PANEL_PIXELS pixels in all, or nearly equal parts of one image
     * row, are copied to panels at a time. */
    const int parts = (c->ow + PANEL_PIXELS - 1) / PANEL_PIXELS, rows = PANEL_PIXELS / c->ow;
    cut->panel_columns = (c->ow + parts - 1) / parts;
    cut->panel_rows = rows < 1 ? 1 : rows < c->oh ? rows : c->oh;
    cut->panel_parts = cut->sixteens < threads ? cut->sixteens : threads;
    cut->input_parts = threads / cut->panel_parts;
    if (cut->input_parts > (uint32_t)(c->ic + 7) / 8)
        cut->input_parts = (uint32_t)(c->ic + 7) / 8;
    cut->band_floats = (size_t)LS_CONV_BAND * (size_t)cut->band_rows * (size_t)c->ow * LS_LANES;
    cut->panel_floats =
        (size_t)(LS_LANES_BLOCK_PACKETS * cut->panel_rows * cut->panel_columns) * LS_LANES * 16;
    cut->sum_floats = ceil_to((size_t)cut->inputs * sums, 16) * LS_LANES;
}

/* Returns the number of floats of scratch memory for staged d. */
static size_t staged_floats(const ls_conv_op *op)
{
    if (op->banded)
        return op->cut.slots * op->cut.band_floats;
    return op->staged ? LS_LANES_BLOCK_PACKETS * op->d_packet : 0;
}

/* Returns the number of floats of working memory for the gradient of the weights. */
static size_t weights_floats(const ls_conv_op *op)
{
    if (op->weights.by_winograd)
        return ls_wino_gradient_floats(&op->weights.wino);
    return op->panels ? op->cut.input_parts * op->cut.sixteens * op->cut.panel_floats
                      : op->cut.slots * op->cut.sum_floats;
}

/* Returns the number of floats of scratch memory for the weights in the form that dx reads:
 *
 * - by Winograd's algorithm: the transformed weights. The result is 0 if the op keeps them from one
 *   call to the next in memory of its own (ls_conv_kept).
 * - in the direct form: the weights in another order, if ls_lanes_packs asks for it; else 0 */
static size_t dx_weight_floats(const ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    if (op->dx.by_winograd)
        return op->kept[LS_CONV_DX] ? 0 : ls_wino_weight_floats(&op->dx.wino);
    return ls_lanes_packs(c) ? ceil_to((size_t)c->ic, 4) * (size_t)c->oc * (size_t)(c->kh * c->kw)
                             : 0;
}

/* Returns the number of floats of a copy of one packet of x; 0 if the direct kernels read x
 * itself. */
static size_t copied_floats(const ls_conv_op *op, bool copied)
{
    return copied ? op->padded_packet : 0;
}

/* Returns the number of floats of forward's scratch memory. */
static size_t forward_floats(ls_conv_op *op)
{
    if (op->forward.by_winograd)
        return (op->kept[LS_CONV_FORWARD] ? 0 : ls_wino_weight_floats(&op->forward.wino)) +
               ls_wino_conv_floats(&op->forward.wino);
    /* Each thread copies the packet that it computes; or all packets are copied first, if several
     * threads compute the same packet. */
    const size_t threads = (size_t)ls_team_size(op->base.team), packets = (size_t)op->base.packets;
    const bool one_each = op->cut.forward_parts == 1;
    op->at.forward = ceil_to(ls_lanes_tile_floats(&op->conv), 16);
    op->at.forward_x = threads * op->at.forward;
    return op->at.forward_x +
           (one_each ? threads : packets) * copied_floats(op, op->cut.forward_copies);
}

/* Lays out the parts of backward's scratch memory one after another. Returns the number of floats
 * of all parts. */
static size_t backward_floats(ls_conv_op *op)
{
    /* dx of the pixels that the filter reads */
    const size_t sampled_dx = op->sampled && op->base.needs_dx ? op->padded_packet : 0;
    ls_conv_scratch *at = &op->at;
    if (!op->base.training)
        return 0;
    at->d = at->x + LS_LANES_BLOCK_PACKETS * copied_floats(op, op->sampled || op->conv.pw);
    at->bias = at->d + staged_floats(op);
    at->weights = at->bias + op->cut.slots * LS_CONV_BIAS_SUMS;
    at->sampled_dx = at->weights + ceil_to(weights_floats(op), 16);
    at->dx_weights = at->sampled_dx + LS_LANES_BLOCK_PACKETS * sampled_dx;
    if (!op->base.needs_dx)
        return at->dx_weights;
    at->dx_values = at->dx_weights + ceil_to(dx_weight_floats(op), 16);
    return at->dx_values + (op->dx.by_winograd ? ls_wino_conv_floats(&op->dx.wino) : 0);
}

void ls_conv_plan(ls_conv_op *op, const ls_lanes_conv *c, int bias)
{
    op->conv = *c;
    op->bias = bias;
    op->x_h = c->ih;
    op->x_w = c->x_w;
    op->sh = c->sh;
    op->sw = c->sw;
    flatten(op);
    ls_lanes_op_set_y(&op->base, c->oc, c->y_h, c->y_w);
    set_packets(op);
    choose_winograd(op);
    op->panels = panels_pay(&op->conv);
    set_cut(op);
    ls_lanes_op_set_params(&op->base, c->oc, c->ic * c->kh * c->kw, LS_LANES_OC, bias);
}

void ls_conv_plan_memory(ls_conv_op *op)
{
    ls_op *o = &op->base.op;
    o->saved_bytes = (size_t)op->base.packets * op->mask_packet;
    const size_t forward = forward_floats(op), backward = backward_floats(op);
    o->scratch_bytes = (forward > backward ? forward : backward) * sizeof(float);
}
