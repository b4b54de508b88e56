/* SPDX-License-Identifier: MIT */
/* The convolution op: runs the passes and their kernels as lanes_conv_plan.c has planned them.
 * lanes_conv.h says which form of a pass is chosen when.
 *
 * Rows. The forward pass computes packet by packet. The backward pass computes block by block, and
 * adds the blocks' gradients of weights and bias in ascending order, because the order of additions
 * decides the bits.
 *
 * Output channels. The threads of the team divide the eights; in forward they divide the image rows
 * instead, unless there are more weights than pixels.
 *
 * stage_gradient computes d from dy and from the mask of signs that forward has saved.
 *
 * The gradient of the weights, which pairs x with d, is computed in one of four forms:
 *
 *     Winograd    ls_wino_gradient, of a whole block
 *     panels      (many channels) a matrix product. d is copied into *panels*: 16 output channels
 *                 by up to 32 pixels, with the channels side by side in a register. Threads divide
 *                 the sets of 16 channels (weights_by_panels).
 *     sums        (few channels) for each weight of an eight one sum per lane, over all pixels;
 *                 finish_weights then adds the 16 lanes of each sum (weights_of_eight). In a large
 *                 image d of an eight is read a few image rows at a time (eight_by_rows)
 *     bands       the same sums, for an op with relu or pool whose dx is not needed, usually that
 *                 of the first layer: d is staged in *bands* of four output channels by as many
 *                 image rows as fit the L1 cache. A band is used while it is in that cache
 *                 (eight_in_bands).
 *
 * dx, if it is needed, is computed from the weights and from d of all output channels, either by
 * Winograd's algorithm for a whole block, or directly for one packet at a time.
 *
 * Transformed weights. The weights do not change from call to call in evaluation (LS_RUN_CONSTANT),
 * nor from one shard of a training step to the next (LS_RUN_SAME). An op therefore keeps the
 * weights' values (wino.h) if the transform takes a noticeable time. Its twins use the same kept
 * values. */
#include "cpu/lanes_conv.h"

#include "base/error.h"
#include "base/host.h"

#include <lockstep/split.h>
#include <string.h>

/* If a pass has more tiles (wino.h) than this, the transform of the weights takes only a small part
 * of its time. */
#define MANY_TILES 64

/* ---- forward --------------------------------------------------------------------------------- */

/* Copies channels first … first + n − 1 of x, with columns of zeros to the left and to the right of
 * each image row. */
static void conv_pad(const ls_lanes_conv *c, const float *x, int first, int n, float *out)
{
    const size_t line = (size_t)c->x_w * LS_LANES, side = (size_t)c->pw * LS_LANES;
    x += (size_t)first * (size_t)c->ih * line;
    out += (size_t)first * (size_t)c->ih * (line + 2 * side);
    for (int i = 0; i < n * c->ih; i++) {
        memset(out, 0, side * sizeof *out);
        memcpy(out + side, x, line * sizeof *out);
        memset(out + side + line, 0, side * sizeof *out);
        out += line + 2 * side;
        x += line;
    }
}

/* Copies the pixels of channels first … first + n − 1 that a 1 × 1 filter with a stride reads. */
static void conv_sample(const ls_conv_op *op, const float *x, int first, int n, float *out)
{
    const size_t line = (size_t)op->x_w * LS_LANES, plane = (size_t)op->x_h * line;
    x += (size_t)first * plane;
    out += (size_t)first * (size_t)op->conv.iw * LS_LANES;
    for (int i = 0; i < n; i++, x += plane)
        for (int y = 0; y < op->x_h; y += op->sh)
            for (int at = 0; at < op->x_w; at += op->sw, out += LS_LANES)
                memcpy(out, x + (size_t)y * line + (size_t)at * LS_LANES, LS_LANES * sizeof *out);
}

/* Writes dx of channels first … first + n − 1: copies to it the gradients of the pixels that
 * conv_sample reads, and sets the gradient of every other pixel to 0. */
static void conv_unsample(const ls_conv_op *op, const float *d, int first, int n, float *dx)
{
    const size_t pixel = LS_LANES * sizeof *dx;
    d += (size_t)first * (size_t)op->conv.iw * LS_LANES;
    dx += (size_t)first * (size_t)op->x_h * (size_t)op->x_w * LS_LANES;
    for (int line = 0; line < n * op->x_h; line++)
        for (int at = 0; at < op->x_w; at++, dx += LS_LANES) {
            const bool seen = line % op->x_h % op->sh == 0 && at % op->sw == 0;
            if (seen)
                memcpy(dx, d, pixel);
            else
                memset(dx, 0, pixel);
            d += seen ? LS_LANES : 0;
        }
}

/* Returns whether the direct gradient of the weights reads a copy of x, which is padded or
 * sampled. */
static bool copies_x(const ls_conv_op *op)
{
    return op->sampled || op->conv.pw;
}

/* Copies channels first … first + n − 1 of x of one packet to `room`, in the form in which the
 * direct kernels read x. */
static void copy_x(const ls_conv_op *op, int packet, int first, int n, float *room)
{
    const float *x = (const float *)op->base.b.x + (size_t)packet * op->x_packet;
    if (op->sampled)
        conv_sample(op, x, first, n, room);
    else
        conv_pad(&op->conv, x, first, n, room);
}

/* Copies of x of several packets. */
typedef struct conv_copies {
    const ls_conv_op *op;
    int packet;    /* first packet */
    uint32_t cuts; /* number of parts of a packet's channels, each an item */
    float *room;   /* [packets][padded_packet] */
} conv_copies;

static void copy_some(void *arg, uint32_t item)
{
    const conv_copies *k = arg;
    const uint32_t g = item / k->cuts;
    uint32_t first, n;
    ls_split((uint32_t)k->op->conv.ic, k->cuts, item % k->cuts, &first, &n);
    copy_x(k->op, k->packet + (int)g, (int)first, (int)n, k->room + g * k->op->padded_packet);
}

/* Returns x of `packets` packets in the form in which the direct kernels read it: if `copied` is
 * true, copies in `room`, which the team makes, else x itself. */
static const float *x_of_packets(const ls_conv_op *op, bool copied, int packet, int packets,
                                 float *room)
{
    conv_copies k = {.op = op, .packet = packet, .room = room};
    if (!copied)
        return (const float *)op->base.b.x + (size_t)packet * op->x_packet;
    k.cuts = ls_team_cuts(op->base.team, (uint32_t)packets, (uint32_t)op->conv.ic);
    ls_team_run(op->base.team, (uint32_t)packets * k.cuts, copy_some, &k);
    return room;
}

void ls_conv_begin(const ls_conv_op *op)
{
    for (int i = 0; i < LS_CONV_KEPT; i++)
        ls_kept_begin(op->kept[i], op->base.flags);
}

const float *ls_conv_transformed_weights(const ls_conv_op *op, int pass, unsigned flags,
                                         float *room)
{
    const ls_wino *w = pass == LS_CONV_DX ? &op->dx.wino : &op->forward.wino;
    const float *weights = op->base.b.param[0];
    ls_kept *kept = op->kept[pass];
    if (!kept) {
        ls_wino_weights(w, room, weights);
        return room;
    }
    if (!ls_kept_is_valid(kept, weights, flags)) {
        ls_wino_weights(w, kept->data, weights);
        kept->source = weights;
        kept->flags = flags;
    }
    return kept->data;
}

static void forward_by_winograd(const ls_conv_op *op)
{
    const ls_op_buffers *b = &op->base.b;
    const ls_wino *w = &op->forward.wino;
    const ls_wino_finish finish = {.bias = op->bias ? b->param[1] : NULL,
                                   .mask = op->mask_packet ? b->saved : NULL,
                                   .relu = op->conv.relu,
                                   .pool = op->conv.pool_h > 1};
    float *room = b->scratch;
    const float *values = ls_conv_transformed_weights(op, LS_CONV_FORWARD, op->base.flags, room);
    room += op->kept[LS_CONV_FORWARD] ? 0 : ls_wino_weight_floats(w);
    ls_wino_conv(w, op->base.packets, b->y, b->x, &finish, values, room);
}

/* Computes output channels first … first + n − 1 of one packet; `first` is a multiple of eight.
 * `part` and `parts`: as in conv_forward. */
static void forward_of(const ls_conv_op *op, int packet, const float *x, int first, int n, int part,
                       int parts, float *tile)
{
    const ls_op_buffers *b = &op->base.b;
    ls_lanes_conv c = op->conv;
    const size_t taps = (size_t)(c.ic * c.kh * c.kw), plane = (size_t)c.y_h * (size_t)c.y_w;
    uint8_t *mask = op->mask_packet ? (uint8_t *)b->saved + (size_t)packet * op->mask_packet : NULL;
    if (mask)
        mask += (size_t)first * (op->mask_packet / (size_t)c.oc);
    c.oc = n;
    op->base.kernels->conv_forward(&c, x, (const float *)b->param[0] + (size_t)first * taps,
                                   op->bias ? (const float *)b->param[1] + first : NULL,
                                   (float *)b->y + (size_t)packet * op->y_packet +
                                       (size_t)first * plane * LS_LANES,
                                   mask, tile, part, parts);
}

/* A forward pass by the direct kernels. */
typedef struct conv_forward_job {
    const ls_conv_op *op;
    uint32_t cuts;  /* number of parts of a packet's y, each a part of the job */
    const float *x; /* x of all packets as the kernels read it; NULL: each part copies its packet */
} conv_forward_job;

static void forward_part(void *arg, uint32_t slot, uint32_t part)
{
    const conv_forward_job *k = arg;
    const ls_conv_op *op = k->op;
    float *const tile = (float *)op->base.b.scratch + slot * op->at.forward;
    const size_t step = op->cut.forward_copies ? op->padded_packet : op->x_packet;
    const int packet = (int)(part / k->cuts), oc = op->conv.oc;
    uint32_t eight = 0, count = op->cut.eights;
    if (op->cut.by_eights)
        ls_split(op->cut.eights, k->cuts, part % k->cuts, &eight, &count);
    const int first = (int)eight * LS_LANES_OC, end = first + (int)count * LS_LANES_OC;
    const float *x = k->x ? k->x + (size_t)packet * step : NULL;
    if (!x) {
        float *room = (float *)op->base.b.scratch + op->at.forward_x + slot * op->padded_packet;
        copy_x(op, packet, 0, op->conv.ic, room);
        x = room;
    }
    forward_of(op, packet, x, first, (end < oc ? end : oc) - first,
               op->cut.by_eights ? 0 : (int)(part % k->cuts), op->cut.by_eights ? 1 : (int)k->cuts,
               tile);
}

static void forward_directly(const ls_conv_op *op)
{
    ls_team *team = op->base.team;
    const bool copied = op->cut.forward_copies;
    conv_forward_job k = {.op = op, .cuts = op->cut.forward_parts};
    if (k.cuts > 1 || !copied)
        k.x = x_of_packets(op, copied, 0, op->base.packets,
                           (float *)op->base.b.scratch + op->at.forward_x);
    ls_team_run_parts(team, (uint32_t)op->base.packets * k.cuts, forward_part, &k);
}

static int conv_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_conv_op *op = (ls_conv_op *)base;
    (void)stream;
    (void)err;
    op->base.flags = flags;
    ls_conv_begin(op);
    if (op->forward.by_winograd)
        forward_by_winograd(op);
    else
        forward_directly(op);
    return LS_OK;
}

/* ---- weights for conv_data; lanes_kernels.h has the layouts ---------------------------------- */

/* Packs the weights for conv_data as ls_lanes_packs describes: four input channels side by side. If
 * the number of input channels is not a multiple of four, the elements of the missing channels are
 * not written, and conv_data does not read them. */
static void pack(const ls_lanes_conv *c, const float *w, float *packed)
{
    const int taps = c->kh * c->kw;
    const size_t elements = (size_t)taps, oc = (size_t)c->oc;
    for (int i = 0; i < c->ic; i++) {
        float *to = packed + (size_t)(i / 4) * elements * oc * 4 + i % 4;
        for (int o = 0; o < c->oc; o++)
            for (int e = 0; e < taps; e++)
                to[((size_t)e * oc + (size_t)o) * 4] =
                    w[ls_lanes_place(LS_LANES_OC, c->ic * taps, o, i * taps + e)];
    }
}

/* ---- parts of the gradients ------------------------------------------------------------------ */

/* Computes d from dy, for one packet, for the output channels first … first + n − 1 and the image
 * rows y0 … y1 − 1. Writes the result to `d` and returns its layout. */
static ls_lanes_grad stage_gradient(const ls_conv_op *op, int packet, int first, int n, int y0,
                                    int y1, float *d)
{
    const ls_op_buffers *b = &op->base.b;
    const ptrdiff_t line = (ptrdiff_t)op->conv.ow * LS_LANES;
    const uint8_t *mask =
        op->mask_packet ? (const uint8_t *)b->saved + (size_t)packet * op->mask_packet : NULL;
    op->base.kernels->conv_unpool(&op->conv, (const float *)b->dy + (size_t)packet * op->y_packet,
                                  mask, first, n, y0, y1, d);
    return (ls_lanes_grad){d, (ptrdiff_t)op->d_packet, line, n * line};
}

/* A block of packets, the unit of the backward pass. */
typedef struct conv_block {
    const ls_conv_op *op;
    int packet, packets; /* first packet of the block, and number of packets */
    int add;             /* non-zero: adds to the gradients of the parameters */
    uint32_t cuts;       /* number of parts of a packet, each an item of the current job */
    const float *x;      /* x of the block as the direct kernels read it */
    /* weights for dx, transformed for Winograd's algorithm; NULL for the direct kernels */
    const float *dx_weights;
    ls_lanes_grad g; /* d of the block; not set if d is staged in bands */
} conv_block;

/* Stages d of some image rows of one packet: those of whole pooling windows. */
static void stage_some(void *arg, uint32_t item)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const ls_lanes_conv *c = &op->conv;
    const uint32_t g = item / k->cuts;
    uint32_t first, n;
    ls_split((uint32_t)c->y_h, k->cuts, item % k->cuts, &first, &n);
    const int y0 = (int)first * c->pool_h, y1 = y0 + (int)n * c->pool_h;
    float *d = (float *)op->base.b.scratch + op->at.d + g * op->d_packet;
    stage_gradient(op, k->packet + (int)g, 0, c->oc, y0, y1,
                   d + (size_t)y0 * (size_t)c->oc * (size_t)c->ow * LS_LANES);
}

/* Returns d of a block: staged in scratch memory if there is a relu or a pool, else dy itself. */
static ls_lanes_grad block_gradient(const ls_conv_op *op, int packet, int packets)
{
    const ls_lanes_conv *c = &op->conv;
    const ptrdiff_t line = (ptrdiff_t)c->ow * LS_LANES;
    float *d = (float *)op->base.b.scratch + op->at.d;
    ls_lanes_grad as_is = {(const float *)op->base.b.dy + (size_t)packet * op->y_packet,
                           (ptrdiff_t)op->y_packet, c->oh * line, line};
    if (!op->staged)
        return as_is;
    conv_block block = {.op = op, .packet = packet, .packets = packets};
    block.cuts = ls_team_cuts(op->base.team, (uint32_t)packets, (uint32_t)c->y_h);
    ls_team_run(op->base.team, (uint32_t)packets * block.cuts, stage_some, &block);
    return (ls_lanes_grad){d, (ptrdiff_t)op->d_packet, line, c->oc * line};
}

/* Returns the number of the slot, the memory for sums, that the eight beginning with channel
 * `first` uses. */
static size_t slot_of(const ls_conv_op *op, int first)
{
    return (size_t)(first / LS_LANES_OC) % op->cut.slots;
}

static float *bias_sums(const ls_conv_op *op, int first)
{
    return (float *)op->base.b.scratch + op->at.bias + slot_of(op, first) * LS_CONV_BIAS_SUMS;
}

static float *sums_of(const ls_conv_op *op, int first)
{
    return (float *)op->base.b.scratch + op->at.weights + slot_of(op, first) * op->cut.sum_floats;
}

/* Adds the 16 lanes of each sum, and writes the results to the gradient of the weights of the eight
 * that begins with output channel `first` and of the input channels i … i + inputs − 1 (as
 * ls_lanes_conv_inputs counts input channels). */
static void finish_weights(const ls_conv_op *op, int first, int i, int inputs, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const float *sums = sums_of(op, first);
    size_t each = (size_t)c->kh * (size_t)ls_lanes_conv_columns(c) * LS_LANES_OC;
    size_t at = (size_t)(first / LS_LANES_OC) * (size_t)ls_lanes_conv_inputs(c) + (size_t)i;
    op->base.kernels->sum_lanes(op->base.b.grad[0] + at * each, sums, inputs * (int)each, add);
}

static void finish_bias(const ls_conv_op *op, int first, int add)
{
    op->base.kernels->sum_lanes(op->base.b.grad[1] + first, bias_sums(op, first), LS_LANES_OC, add);
}

/* ---- the gradient of the weights ------------------------------------------------------------- */

/* Returns the number of output channels of the eight that begins with channel `first`. */
static int eight_or_less(const ls_conv_op *op, int first)
{
    int left = op->conv.oc - first;
    return left < LS_LANES_OC ? left : LS_LANES_OC;
}

static void bias_of_eight(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    float *sums = bias_sums(op, first);
    ls_lanes_grad of = k->g;
    of.d += first * of.channel;
    if (n < LS_LANES_OC)
        memset(sums, 0, LS_CONV_BIAS_SUMS * sizeof *sums);
    op->base.kernels->conv_bias(&op->conv, of, k->packets, n, 0, op->conv.oh, sums, 0);
    finish_bias(op, first, k->add);
}

/* Computes the gradient `gw` of the weights of c->oc output channels, whose d is `g`, and of inputs
 * i0 … i1 − 1. For up to 32 pixels at a time, it copies d of the block to panels and multiplies the
 * panels with x. `panels`: memory for the panels of these pixels. */
static void panels_of(const conv_block *k, const ls_lanes_conv *c, ls_lanes_grad g, int i0, int i1,
                      float *panels, float *gw)
{
    const ls_lanes_kernels *kernels = k->op->base.kernels;
    const ls_conv_cut *cut = &k->op->cut;
    const int width = c->ow;
    ls_lanes_conv some = *c;
    int add = k->add;
    for (int y0 = 0; y0 < c->oh; y0 += cut->panel_rows)
        for (int x0 = 0; x0 < width; x0 += cut->panel_columns, add = 1) {
            const int y1 = y0 + cut->panel_rows < c->oh ? y0 + cut->panel_rows : c->oh;
            ls_lanes_grad from = g;
            from.d += (ptrdiff_t)x0 * LS_LANES;
            some.ow = width - x0 < cut->panel_columns ? width - x0 : cut->panel_columns;
            kernels->conv_panels(&some, from, k->packets, y0, y1, panels);
            kernels->conv_weights(&some, k->x + (ptrdiff_t)x0 * c->sw * LS_LANES, panels,
                                  k->packets, i0, i1, y0, y1, gw, add);
        }
}

/* Computes the gradient of the weights for one part of the sets of 16 output channels and of the
 * inputs. Parts of the same outputs each make the panels of these outputs. */
static void weights_by_panels(void *arg, uint32_t item)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const ls_conv_cut *cut = &op->cut;
    const uint32_t inputs = item / cut->panel_parts;
    ls_lanes_conv c = op->conv;
    ls_lanes_grad g = k->g;
    uint32_t first, count, i, n;
    ls_split(cut->sixteens, cut->panel_parts, item % cut->panel_parts, &first, &count);
    ls_split((uint32_t)c.ic, cut->input_parts, inputs, &i, &n);
    const int left = c.oc - (int)first * 16;
    c.oc = (int)count * 16 < left ? (int)count * 16 : left;
    g.d += (ptrdiff_t)first * 16 * g.channel;
    panels_of(k, &c, g, (int)i, (int)(i + n),
              (float *)op->base.b.scratch + op->at.weights +
                  (inputs * cut->sixteens + first) * cut->panel_floats,
              op->base.b.grad[0] + first * 16 * (size_t)(c.ic * c.kh * c.kw));
}

/* Clears the sums of an eight that has fewer than eight channels. The sums of the missing channels
 * are not written later: they stay zero, and therefore the padding of the gradient is zero. The
 * sums of the other channels are written before they are read. */
static void clear_sums(const ls_conv_op *op, int first)
{
    memset(bias_sums(op, first), 0, LS_CONV_BIAS_SUMS * sizeof(float));
    memset(sums_of(op, first), 0, op->cut.sum_floats * sizeof(float));
}

/* Computes the gradient of the weights of one eight from d of a block, a few image rows after
 * another. d and x are used for all inputs while they are in the cache. */
static void eight_by_rows(const conv_block *k, ls_lanes_grad g, int first, int n)
{
    const ls_conv_op *op = k->op;
    const ls_lanes_conv *c = &op->conv;
    const int rows = op->cut.resume_rows, inputs = ls_lanes_conv_inputs(c);
    int add = 0;
    for (int packet = 0; packet < k->packets; packet++)
        for (int y0 = 0; y0 < c->oh; y0 += rows, add = LS_LANES_RESUME) {
            ls_lanes_grad some = g;
            some.d += packet * g.packet + y0 * g.row;
            op->base.kernels->conv_correlate(
                c, k->x + (size_t)packet * op->padded_packet, some, 1, n, 0, inputs, y0,
                y0 + rows < c->oh ? y0 + rows : c->oh, sums_of(op, first), add);
        }
    finish_weights(op, first, 0, inputs, k->add);
}

/* Computes the gradient of the weights of one eight from d of a block, one input channel after
 * another if not by rows. */
static void weights_of_eight(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const ls_lanes_conv *c = &op->conv;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    ls_lanes_grad g = k->g;
    g.d += first * g.channel;
    if (n < LS_LANES_OC)
        clear_sums(op, first);
    if (op->cut.resume_rows > 0) {
        eight_by_rows(k, g, first, n);
        return;
    }
    for (int i = 0; i < ls_lanes_conv_inputs(c); i++) {
        op->base.kernels->conv_correlate(c, k->x, g, k->packets, n, i, i + 1, 0, c->oh,
                                         sums_of(op, first), 0);
        finish_weights(op, first, i, 1, k->add);
    }
}

/* Adds the contribution of one packet and of up to four output channels, `first` … first + n − 1,
 * to the sums of their eight. d is staged band by band; a band is `rows` image rows of these
 * channels. */
static void four_in_bands(const ls_conv_op *op, const float *x, int packet, int first, int n,
                          int add)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_lanes_kernels *k = op->base.kernels;
    const int rows = op->cut.band_rows;
    float *band = (float *)op->base.b.scratch + op->at.d + slot_of(op, first) * op->cut.band_floats;
    size_t at = (size_t)(first % LS_LANES_OC) * LS_LANES;
    for (int y0 = 0; y0 < c->oh; y0 += rows, add = 1) {
        int y1 = y0 + rows < c->oh ? y0 + rows : c->oh;
        ls_lanes_grad g = stage_gradient(op, packet, first, n, y0, y1, band);
        if (op->bias)
            k->conv_bias(c, g, 1, n, y0, y1, bias_sums(op, first) + at, add);
        k->conv_correlate(c, x, g, 1, n, 0, ls_lanes_conv_inputs(c), y0, y1,
                          sums_of(op, first) + at, add);
    }
}

/* Computes the gradients of weights and bias of one eight, with d staged in bands. */
static void eight_in_bands(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    if (n < LS_LANES_OC)
        clear_sums(op, first);
    for (int g = 0; g < k->packets; g++) {
        const float *of_packet = k->x + (size_t)g * op->padded_packet;
        for (int o = 0; o < n; o += LS_CONV_BAND)
            four_in_bands(op, of_packet, k->packet + g, first + o,
                          n - o < LS_CONV_BAND ? n - o : LS_CONV_BAND, g > 0);
    }
    if (op->bias)
        finish_bias(op, first, k->add);
    finish_weights(op, first, 0, ls_lanes_conv_inputs(&op->conv), k->add);
}

/* Computes the gradients of weights and bias from d of a block (k->g). */
static void weights_of_block(conv_block *k)
{
    const ls_conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    if (op->bias)
        ls_team_run(op->base.team, op->cut.eights, bias_of_eight, k);
    if (op->weights.by_winograd) {
        ls_wino_gradient(&op->weights.wino, k->packets, b->grad[0],
                         (const float *)b->x + (size_t)k->packet * op->x_packet, k->g.d, k->add,
                         (float *)b->scratch + op->at.weights);
        return;
    }
    k->x = x_of_packets(op, copies_x(op), k->packet, k->packets, (float *)b->scratch + op->at.x);
    if (op->panels)
        ls_team_run(op->base.team, op->cut.panel_parts * op->cut.input_parts, weights_by_panels, k);
    else
        ls_team_run(op->base.team, op->cut.eights, weights_of_eight, k);
}

/* ---- the gradient of x ----------------------------------------------------------------------- */

/* Computes dx of some input channels of one packet of a block by the direct kernels. */
static void dx_of_some(void *arg, uint32_t item)
{
    const conv_block *k = arg;
    const ls_conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    const uint32_t i = item / k->cuts;
    uint32_t four, count;
    ls_split((uint32_t)(op->conv.ic + 3) / 4, k->cuts, item % k->cuts, &four, &count);
    const int first = (int)four * 4, left = op->conv.ic - first;
    const int n = (int)count * 4 < left ? (int)count * 4 : left;
    float *dx = (float *)b->dx + (size_t)(k->packet + (int)i) * op->x_packet;
    float *room = (float *)b->scratch + op->at.sampled_dx + i * op->padded_packet;
    const float *w =
        ls_lanes_packs(&op->conv) ? (const float *)b->scratch + op->at.dx_weights : b->param[0];
    ls_lanes_grad g = k->g;
    g.d += (ptrdiff_t)i * g.packet;
    op->base.kernels->conv_data(&op->conv, g, w, first, first + n, op->sampled ? room : dx);
    if (op->sampled)
        conv_unsample(op, room, first, n, dx);
}

static void dx_of_block(conv_block *k)
{
    const ls_conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    const ls_wino_finish nothing = {0};
    if (op->dx.by_winograd)
        ls_wino_conv(&op->dx.wino, k->packets, (float *)b->dx + (size_t)k->packet * op->x_packet,
                     k->g.d, &nothing, k->dx_weights, (float *)b->scratch + op->at.dx_values);
    else {
        k->cuts =
            ls_team_cuts(op->base.team, (uint32_t)k->packets, (uint32_t)(op->conv.ic + 3) / 4);
        ls_team_run(op->base.team, (uint32_t)k->packets * k->cuts, dx_of_some, k);
    }
}

/* Prepares the weights for dx. For Winograd's algorithm it returns the transformed weights. For the
 * direct kernels it packs the weights if necessary, and returns NULL. */
static const float *prepare_weights(const ls_conv_op *op, unsigned flags)
{
    float *room = (float *)op->base.b.scratch + op->at.dx_weights;
    if (op->dx.by_winograd)
        return ls_conv_transformed_weights(op, LS_CONV_DX, flags, room);
    if (ls_lanes_packs(&op->conv))
        pack(&op->conv, op->base.b.param[0], room);
    return NULL;
}

static int conv_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    (void)stream;
    (void)err;
    const float *dx_weights = op->base.needs_dx ? prepare_weights(op, flags) : NULL;
    for (int packet = 0; packet < op->base.packets; packet += LS_LANES_BLOCK_PACKETS) {
        conv_block k = {.op = op, .packet = packet, .dx_weights = dx_weights};
        k.packets = ls_lanes_block(op->base.packets, packet);
        k.add = packet > 0 || (flags & LS_RUN_ACCUMULATE);
        if (op->banded) {
            k.x = x_of_packets(op, copies_x(op), packet, k.packets,
                               (float *)op->base.b.scratch + op->at.x);
            ls_team_run(op->base.team, op->cut.eights, eight_in_bands, &k);
            continue;
        }
        k.g = block_gradient(op, packet, k.packets);
        weights_of_block(&k);
        if (op->base.needs_dx)
            dx_of_block(&k);
    }
    return LS_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

static int conv_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    for (int pass = 0; pass < LS_CONV_KEPT; pass++)
        if (op->kept[pass])
            op->kept[pass]->source = NULL;
    return ls_lanes_op_import(base, index, dst, src, err);
}

static void conv_destroy(ls_op *base)
{
    ls_conv_op *op = (ls_conv_op *)base;
    if (op) {
        ls_few_conv_fini(op);
        for (int pass = 0; pass < LS_CONV_KEPT; pass++)
            ls_free(op->base.host, op->own[pass].data);
    }
    ls_lanes_op_destroy(base);
}

static const ls_op_impl conv_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = conv_forward,
    .backward = conv_backward,
    .import_param = conv_import,
    .export_param = ls_lanes_op_export,
    .destroy = conv_destroy,
};

/* Returns whether an op without a twin keeps the transformed weights of a pass. An op that is only
 * evaluated keeps those of forward. An op that is trained keeps those of forward and of dx, if the
 * pass has at most MANY_TILES tiles, so that the transform of the weights takes a large part of
 * it. */
static bool keeps(const ls_conv_op *op, const ls_conv_wino *pass, bool dx)
{
    const int tiles = op->base.packets * pass->wino.y.down * pass->wino.y.across;
    if (!op->base.training)
        return pass->by_winograd && !dx;
    return pass->by_winograd && tiles <= MANY_TILES && (!dx || op->base.needs_dx);
}

/* Decides what is kept, and allocates its memory. What an op and its twins keep belongs to the
 * first of them, so that one place says whether it is valid. Memory is allocated for the first op
 * that needs it. (The pack for few rows: ls_few_conv_keep.) */
static int keep_transformed_weights(ls_conv_op *op, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv_op *twin = (const ls_conv_op *)desc->twin;
    const ls_conv_wino *const passes[] = {&op->forward, &op->dx};
    int status = LS_OK;
    op->kept[LS_CONV_FEW] = twin ? twin->kept[LS_CONV_FEW] : &op->own[LS_CONV_FEW];
    for (int pass = 0; pass < LS_CONV_FEW && status == LS_OK; pass++) {
        if (twin)
            op->kept[pass] = twin->kept[pass];
        else if (keeps(op, passes[pass], pass == LS_CONV_DX))
            op->kept[pass] = &op->own[pass];
        if (op->kept[pass] && !op->base.few)
            status = ls_kept_alloc(op->kept[pass], ls_wino_weight_floats(&passes[pass]->wino),
                                   &op->base, err);
    }
    return status;
}

int ls_lanes_conv_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_conv c = {0};
    ls_lanes_op *base;
    int status = ls_conv_geometry(&c, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(ls_conv_op), &conv_impl, device, desc, err);
    if (status)
        return status;
    ls_conv_op *op = (ls_conv_op *)base;
    ls_conv_plan(op, &c, desc->u.conv2d.bias);
    if (ls_few_wanted(desc))
        status = ls_few_conv_plan(op, desc, err);
    if (status == LS_OK)
        status = keep_transformed_weights(op, desc, err);
    ls_conv_plan_memory(op);
    if (status) {
        conv_destroy(&base->op);
        return status;
    }
    return ls_lanes_op_finish(out, base, desc, err);
}
