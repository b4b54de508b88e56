/* SPDX-License-Identifier: MIT */
/* Ops that mostly move data: concatenation of channels, nearest-neighbour upsampling, and padding
 * with zeros. The gradients of a repeated pixel are added in each lane one after another, in the
 * same order on every CPU, so plain C gives the same bits on every CPU. */
#include "base/error.h"
#include "cpu/few.h"

#include <string.h>

/* ---- concatenation: y has x's channels, then x2's ------------------------------------------- */

typedef struct concat_op {
    ls_lanes_op base;     /* base; must be first */
    size_t first, second; /* floats of x and of x2 in a packet */
} concat_op;

static void join_packet(void *arg, uint32_t packet)
{
    const concat_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    float *y = (float *)b->y + packet * (op->first + op->second);
    memcpy(y, (const float *)b->x + packet * op->first, op->first * sizeof *y);
    memcpy(y + op->first, (const float *)b->x2 + packet * op->second, op->second * sizeof *y);
}

/* Copies `channels` channels of a row, in the layout `few` (few.h), to the channels from `first` on
 * of the row `to`. `pixels`: number of pixels of a channel. */
static void put_channels(float *to, size_t first, const float *from, size_t channels, size_t pixels)
{
    const size_t plane = pixels * LS_LANES;
    if (first % LS_LANES == 0) {
        memcpy(to + first * pixels, from, ls_few_sixteens((int)channels) * plane * sizeof *to);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        const float *x = from + c / LS_LANES * plane + c % LS_LANES;
        float *y = to + (first + c) / LS_LANES * plane + (first + c) % LS_LANES;
        for (size_t i = 0; i < plane; i += LS_LANES)
            y[i] = x[i];
    }
}

static void join_few(ls_lanes_op *op)
{
    const concat_op *self = (const concat_op *)op;
    const ls_tensor *y = &op->op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    ls_tensor x = *y, x2 = *y;
    x.c = (int)(self->first / pixels / LS_LANES);
    x2.c = (int)(self->second / pixels / LS_LANES);
    for (size_t r = 0; r < (size_t)y->rows; r++) {
        float *to = (float *)op->b.y + r * ls_few_row(y);
        put_channels(to, 0, (const float *)op->b.x + r * ls_few_row(&x), (size_t)x.c, pixels);
        put_channels(to, (size_t)x.c, (const float *)op->b.x2 + r * ls_few_row(&x2), (size_t)x2.c,
                     pixels);
    }
}

static void part_packet(void *arg, uint32_t packet)
{
    const concat_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const float *dy = (const float *)b->dy + packet * (op->first + op->second);
    memcpy((float *)b->dx + packet * op->first, dy, op->first * sizeof *dy);
    memcpy((float *)b->dx2 + packet * op->second, dy + op->first, op->second * sizeof *dy);
}

int ls_cpu_concat_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    const size_t pixels = (size_t)x->h * (size_t)x->w * LS_LANES;
    ls_lanes_op *op;
    int status = ls_lanes_op_new(&op, sizeof(concat_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    ((concat_op *)op)->first = (size_t)x->c * pixels;
    ((concat_op *)op)->second = (size_t)x2->c * pixels;
    ls_lanes_op_set_y(op, x->c + x2->c, x->h, x->w);
    op->few = join_few;
    op->forward = (ls_lanes_pass){join_packet, (uint32_t)op->packets};
    op->dx = (ls_lanes_pass){part_packet, (uint32_t)op->packets};
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- upsampling: each pixel becomes sh × sw ------------------------------------------------- */

typedef struct upsample_op {
    ls_lanes_op base; /* base; must be first */
    int h, w;         /* size of x */
    ls_upsample by;
} upsample_op;

static void spread_plane(void *arg, uint32_t plane)
{
    const upsample_op *op = arg;
    const size_t line = (size_t)op->w * (size_t)op->by.sw * LS_LANES; /* floats of a line of y */
    const float *x = (const float *)op->base.b.x + plane * (size_t)(op->h * op->w) * LS_LANES;
    float *y = (float *)op->base.b.y + plane * (size_t)(op->h * op->by.sh) * line;
    for (int i = 0; i < op->h; i++) {
        float *first = y, *to = y;
        for (int j = 0; j < op->w; j++, x += LS_LANES)
            for (int k = 0; k < op->by.sw; k++, to += LS_LANES)
                memcpy(to, x, LS_LANES * sizeof *to);
        for (int k = 1; k < op->by.sh; k++)
            memcpy(first + (size_t)k * line, first, line * sizeof *y);
        y += (size_t)op->by.sh * line;
    }
}

/* Does the same for few rows (few.h). */
static void spread_few(ls_lanes_op *op)
{
    const size_t planes = (size_t)op->op.y.rows * ls_few_sixteens(op->op.y.c);
    for (uint32_t plane = 0; plane < planes; plane++)
        spread_plane(op, plane);
}

static void gather_plane(void *arg, uint32_t plane)
{
    const upsample_op *op = arg;
    const size_t line = (size_t)op->w * (size_t)op->by.sw * LS_LANES; /* floats of a line of dy */
    const float *dy = (const float *)op->base.b.dy + plane * (size_t)(op->h * op->by.sh) * line;
    float *dx = (float *)op->base.b.dx + plane * (size_t)(op->h * op->w) * LS_LANES;
    for (int i = 0; i < op->h * op->w; i++, dx += LS_LANES) {
        const float *first = dy + (size_t)(i / op->w * op->by.sh) * line +
                             (size_t)(i % op->w * op->by.sw) * LS_LANES;
        float sum[LS_LANES] = {0};
        for (int k = 0; k < op->by.sh * op->by.sw; k++) {
            const float *from =
                first + (size_t)(k / op->by.sw) * line + (size_t)(k % op->by.sw) * LS_LANES;
            for (int l = 0; l < LS_LANES; l++)
                sum[l] += from[l];
        }
        memcpy(dx, sum, sizeof sum);
    }
}

int ls_cpu_upsample_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                           ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_upsample by = desc->u.upsample;
    ls_lanes_op *op;
    if (by.sh < 1 || by.sw < 1)
        return ls_fail(err, LS_EINVAL, "upsample: a scale of %d×%d; each must be at least 1", by.sh,
                       by.sw);
    int status = ls_lanes_op_new(&op, sizeof(upsample_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    upsample_op *self = (upsample_op *)op;
    self->h = x->h, self->w = x->w;
    self->by = by;
    ls_lanes_op_set_y(op, x->c, x->h * by.sh, x->w * by.sw);
    op->few = spread_few;
    op->forward = (ls_lanes_pass){spread_plane, (uint32_t)(op->packets * x->c)};
    op->dx = (ls_lanes_pass){gather_plane, (uint32_t)(op->packets * x->c)};
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- padding: zeros around x ---------------------------------------------------------------- */

typedef struct pad_op {
    ls_lanes_op base;        /* base; must be first */
    int h;                   /* number of lines of x */
    size_t line;             /* floats of a line of x, */
    size_t left, right;      /* and of the zeros on both sides of it */
    size_t above, below;     /* floats of the zeros above and below the image */
    size_t x_plane, y_plane; /* floats of a channel of a packet of x and of y */
} pad_op;

static float *put_zeros(float *to, size_t count)
{
    memset(to, 0, count * sizeof *to);
    return to + count;
}

static void pad_plane(void *arg, uint32_t plane)
{
    const pad_op *op = arg;
    const float *x = (const float *)op->base.b.x + plane * op->x_plane;
    float *y = put_zeros((float *)op->base.b.y + plane * op->y_plane, op->above);
    for (int i = 0; i < op->h; i++, x += op->line) {
        y = put_zeros(y, op->left);
        memcpy(y, x, op->line * sizeof *y);
        y = put_zeros(y + op->line, op->right);
    }
    put_zeros(y, op->below);
}

/* Does the same for few rows (few.h). */
static void pad_few(ls_lanes_op *op)
{
    const size_t planes = (size_t)op->op.y.rows * ls_few_sixteens(op->op.y.c);
    for (uint32_t plane = 0; plane < planes; plane++)
        pad_plane(op, plane);
}

static void crop_plane(void *arg, uint32_t plane)
{
    const pad_op *op = arg;
    const float *dy = (const float *)op->base.b.dy + plane * op->y_plane + op->above + op->left;
    float *dx = (float *)op->base.b.dx + plane * op->x_plane;
    for (int i = 0; i < op->h; i++, dx += op->line, dy += op->left + op->line + op->right)
        memcpy(dx, dy, op->line * sizeof *dx);
}

int ls_cpu_pad_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_pad pad = desc->u.pad;
    ls_lanes_op *op;
    if (pad.top < 0 || pad.left < 0 || pad.bottom < 0 || pad.right < 0)
        return ls_fail(err, LS_EINVAL, "pad: %d, %d, %d and %d zeros; each must be at least 0",
                       pad.top, pad.left, pad.bottom, pad.right);
    int status = ls_lanes_op_new(&op, sizeof(pad_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    pad_op *self = (pad_op *)op;
    ls_lanes_op_set_y(op, x->c, x->h + pad.top + pad.bottom, x->w + pad.left + pad.right);
    const size_t line = (size_t)op->op.y.w * LS_LANES;
    self->h = x->h;
    self->line = (size_t)x->w * LS_LANES;
    self->left = (size_t)pad.left * LS_LANES, self->right = (size_t)pad.right * LS_LANES;
    self->above = (size_t)pad.top * line, self->below = (size_t)pad.bottom * line;
    self->x_plane = (size_t)x->h * self->line, self->y_plane = (size_t)op->op.y.h * line;
    op->few = pad_few;
    op->forward = (ls_lanes_pass){pad_plane, (uint32_t)(op->packets * x->c)};
    op->dx = (ls_lanes_pass){crop_plane, (uint32_t)(op->packets * x->c)};
    return ls_lanes_op_finish(out, op, desc, err);
}
