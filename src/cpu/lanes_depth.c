/* SPDX-License-Identifier: MIT */
/* The depthwise convolution: each channel is convolved with a filter of its own. The threads of a
 * team divide the channels. In backward each thread also computes the gradient of its channels'
 * weights. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes_conv.h"

#include <stdbool.h>
#include <string.h>

typedef struct depth_op {
    ls_lanes_op base; /* base; must be first */
    ls_lanes_depth depth;
    int channels, /* number of channels */
        some;     /* number of channels of an item, the work that a thread takes at a time */
    size_t x_plane, y_plane; /* floats of one channel of a packet */
    ls_kept own, *kept;      /* pack for few rows; `kept` points to `own` of this op or its twin */
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
    const size_t packet = item / parts(op) * (size_t)op->channels;
    for (int c = first; c < end_of(op, first); c++) {
        const size_t plane = packet + (size_t)c;
        op->base.kernels->depth->forward(&op->depth, (const float *)b->x + plane * op->x_plane,
                                         (const float *)b->param[0] + (size_t)c * taps_of(op),
                                         op->depth.k.bias ? (const float *)b->param[1] + c : NULL,
                                         (float *)b->y + plane * op->y_plane);
    }
}

/* ---- few rows (few.h): sixteen channels of one row in the lanes -------------------------------
 */

/* Returns the number of floats of the pack: [sixteen][tap][16], then the bias. */
static size_t pack_floats(const depth_op *op)
{
    return ls_few_sixteens(op->channels) * LS_LANES * (taps_of(op) + 1);
}

/* Returns the packed weights, which are computed if they are not valid. */
static const float *packed(const depth_op *op)
{
    ls_kept *kept = op->kept;
    const float *w = op->base.b.param[0];
    const size_t taps = taps_of(op), channels = (size_t)op->channels;
    const size_t sixteens = ls_few_sixteens(op->channels);
    ls_kept_begin(kept, op->base.flags);
    if (ls_kept_is_valid(kept, w, op->base.flags))
        return kept->data;
    for (size_t c = 0; c < channels; c++)
        for (size_t tap = 0; tap < taps; tap++)
            kept->data[(c / LS_LANES * taps + tap) * LS_LANES + c % LS_LANES] = w[c * taps + tap];
    if (op->depth.k.bias)
        memcpy(kept->data + sixteens * LS_LANES * taps, op->base.b.param[1], channels * sizeof *w);
    kept->source = w;
    kept->flags = op->base.flags;
    return kept->data;
}

static void forward_few(ls_lanes_op *base)
{
    const depth_op *op = (const depth_op *)base;
    const size_t taps = taps_of(op), sixteens = ls_few_sixteens(op->channels);
    const float *w = packed(op);
    const float *bias = op->depth.k.bias ? w + sixteens * LS_LANES * taps : NULL;
    const ls_few_finish finish = ls_few_finish_of(base, 0, base->b.scratch);
    for (size_t plane = 0; plane < (size_t)base->op.y.rows * sixteens; plane++) {
        const size_t s = plane % sixteens;
        const ls_few_finish some = ls_few_finish_from(&finish, s * LS_LANES, plane * op->y_plane);
        base->kernels->depth->few(&op->depth, (const float *)base->b.x + plane * op->x_plane,
                                  w + s * taps * LS_LANES, bias ? bias + s * LS_LANES : NULL, &some,
                                  (float *)base->b.y + plane * op->y_plane);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void bias_of_block(const depth_op *op, const float *dy, int c, int packets, int add)
{
    float sums[LS_LANES * LS_LANES] __attribute__((aligned(64))) = {0};
    const ls_lanes_conv plane = {.ow = op->depth.ow};
    const ptrdiff_t line = (ptrdiff_t)op->depth.ow * LS_LANES;
    const ls_lanes_grad g = {dy, (ptrdiff_t)((size_t)op->channels * op->y_plane), 0, line};
    op->base.kernels->conv_bias(&plane, g, packets, 1, 0, op->depth.oh, sums, 0);
    op->base.kernels->sum_lanes((float *)op->base.b.grad[1] + c, sums, 1, add);
}

/* Computes all gradients of one channel for one block, one gradient after another, so that dy stays
 * in the caches. */
static void block_backward(const depth_op *op, int c, int packet, int packets, int add)
{
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_kernels *k = op->base.kernels;
    const size_t x_packet = (size_t)op->channels * op->x_plane;
    const size_t y_packet = (size_t)op->channels * op->y_plane, row = (size_t)packet;
    const size_t x = row * x_packet + (size_t)c * op->x_plane;
    const float *dy = (const float *)b->dy + row * y_packet + (size_t)c * op->y_plane;
    const size_t w = (size_t)c * taps_of(op);
    k->depth->weights(&op->depth, (const float *)b->x + x, dy, (ptrdiff_t)x_packet,
                      (ptrdiff_t)y_packet, packets, (float *)b->grad[0] + w, add);
    if (op->depth.k.bias)
        bias_of_block(op, dy, c, packets, add);
    for (int g = 0; g < packets && op->base.needs_dx; g++)
        k->depth->data(&op->depth, dy + (size_t)g * y_packet, (const float *)b->param[0] + w,
                       (float *)b->dx + x + (size_t)g * x_packet);
}

static void some_backward(void *arg, uint32_t item)
{
    const depth_op *op = arg;
    const int first = (int)item * op->some;
    for (int packet = 0; packet < op->base.packets; packet += LS_LANES_BLOCK_PACKETS)
        for (int c = first; c < end_of(op, first); c++)
            block_backward(op, c, packet, ls_lanes_block(op->base.packets, packet),
                           packet > 0 || op->base.flags & LS_RUN_ACCUMULATE);
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

static int depth_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_kept_begin(((depth_op *)base)->kept, flags);
    return ls_lanes_op_forward(base, stream, flags, err);
}

static int depth_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    ((depth_op *)base)->kept->source = NULL;
    return ls_lanes_op_import(base, index, dst, src, err);
}

static void depth_destroy(ls_op *base)
{
    if (base)
        ls_free(((ls_lanes_op *)base)->host, ((depth_op *)base)->own.data);
    ls_lanes_op_destroy(base);
}

static const ls_op_impl depth_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = depth_forward,
    .backward = ls_lanes_op_backward,
    .import_param = depth_import,
    .export_param = ls_lanes_op_export,
    .destroy = depth_destroy,
};

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
        status = ls_lanes_op_new(&base, sizeof(depth_op), &depth_impl, device, desc, err);
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
    base->forward = (ls_lanes_pass){some_forward, parts(op) * (uint32_t)base->packets};
    base->gradients = (ls_lanes_pass){some_backward, parts(op)};
    ls_lanes_op_set_y(base, op->channels, d.oh, d.ow);
    op->kept = desc->twin ? ((const depth_op *)desc->twin)->kept : &op->own;
    if (ls_few_wanted(desc)) {
        base->few = forward_few;
        base->few_finishes = desc->zero_bias;
        base->few_scratch = ls_few_norm_floats(op->channels) * sizeof(float);
        status = ls_kept_alloc(op->kept, pack_floats(op), base, err);
    }
    if (status) {
        depth_destroy(&base->op);
        return status;
    }
    return ls_lanes_op_finish(out, base, desc, err);
}
