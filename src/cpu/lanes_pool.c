/* SPDX-License-Identifier: MIT */
/* The pool op. */
#include "base/error.h"
#include "cpu/few.h"

typedef struct pool_op {
    ls_lanes_op base; /* base; must be first */
    ls_lanes_pool pool;
    size_t x_packet, y_packet; /* floats of a packet */
} pool_op;

/* Returns the memory for the position of each maximum in its window; NULL if it is not saved. */
static uint16_t *which_of(const pool_op *op, uint32_t packet)
{
    if (!op->base.op.saved_bytes)
        return NULL;
    return (uint16_t *)op->base.b.saved + packet * op->y_packet;
}

static void forward_packet(void *arg, uint32_t packet)
{
    const pool_op *op = arg;
    op->base.kernels->pool_forward(&op->pool, (const float *)op->base.b.x + packet * op->x_packet,
                                   (float *)op->base.b.y + packet * op->y_packet,
                                   which_of(op, packet));
}

static void backward_packet(void *arg, uint32_t packet)
{
    const pool_op *op = arg;
    op->base.kernels->pool_backward(&op->pool, (const float *)op->base.b.dy + packet * op->y_packet,
                                    which_of(op, packet),
                                    (float *)op->base.b.dx + packet * op->x_packet);
}

/* Forward of few rows (few.h): sixteen channels in the lanes. */
static void forward_few(ls_lanes_op *base)
{
    const pool_op *op = (const pool_op *)base;
    ls_lanes_pool planes = op->pool;
    planes.c = base->op.y.rows * (int)ls_few_sixteens(op->pool.c);
    base->kernels->pool_forward(&planes, base->b.x, base->b.y, NULL);
}

static int pool_geometry(ls_lanes_pool *p, const ls_op_desc *desc, ls_error *err)
{
    const ls_pool2d *k = &desc->pool;
    const bool fits = k->kh >= 1 && k->kw >= 1 && k->sh >= 1 && k->sw >= 1 && k->ph >= 0 &&
                      k->pw >= 0 && k->ph + k->eh >= 0 && k->pw + k->ew >= 0;
    const int oh = fits ? ls_windows(desc->x.h, k->kh, k->sh, k->ph, k->ph + k->eh, k->ceil) : 0;
    const int ow = fits ? ls_windows(desc->x.w, k->kw, k->sw, k->pw, k->pw + k->ew, k->ceil) : 0;
    if (oh < 1 || ow < 1)
        return ls_fail(err, LS_EINVAL,
                       "pool: a window of %d×%d, stride %d×%d, padding %d×%d and %d×%d on "
                       "%d×%d",
                       k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, k->ph + k->eh, k->pw + k->ew,
                       desc->x.h, desc->x.w);
    if (k->max && k->kh * k->kw > UINT16_MAX)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: a maximum over %d×%d pixels", k->kh, k->kw);
    *p = (ls_lanes_pool){
        .c = desc->x.c,
        .ih = desc->x.h,
        .iw = desc->x.w,
        .oh = oh,
        .ow = ow,
        .p = *k,
    };
    return LS_OK;
}

int ls_cpu_pool_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_pool p;
    ls_lanes_op *base;
    int status = pool_geometry(&p, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(pool_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    pool_op *op = (pool_op *)base;
    op->pool = p;
    ls_lanes_op_set_y(base, p.c, p.oh, p.ow);
    base->forward = (ls_lanes_pass){forward_packet, (uint32_t)base->packets};
    base->dx = (ls_lanes_pass){backward_packet, (uint32_t)base->packets};
    op->x_packet = (size_t)p.c * (size_t)p.ih * (size_t)p.iw * LS_LANES;
    op->y_packet = (size_t)p.c * (size_t)p.oh * (size_t)p.ow * LS_LANES;
    if (base->training && p.p.max)
        base->op.saved_bytes = (size_t)base->packets * op->y_packet * sizeof(uint16_t);
    base->few = forward_few;
    return ls_lanes_op_finish(out, base, desc, err);
}
