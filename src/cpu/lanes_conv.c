/* The convolution op: geometry, creation and forward.
 *
 * Forward scratch: [a tile][one group of x with padded columns, if there is padding].
 */
#include "cpu/lanes_conv.h"

#include "base/error.h"

#include <string.h>

static ls_lanes_conv_op *self_of(ls_op *op)
{
    return (ls_lanes_conv_op *)op;
}

void ls_lanes_conv_pad(const ls_lanes_conv *c, const float *x, float *out)
{
    const size_t line = (size_t)c->x_w * LS_LANES, side = (size_t)c->pw * LS_LANES;
    for (int i = 0; i < c->ic * c->ih; i++) {
        memset(out, 0, side * sizeof *out);
        memcpy(out + side, x, line * sizeof *out);
        memset(out + side + line, 0, side * sizeof *out);
        out += line + 2 * side;
        x += line;
    }
}

static int conv_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_lanes_conv_op *op = self_of(base);
    const ls_op_buffers *b = &op->base.b;
    float *tile = b->scratch, *padded = tile + LS_LANES_TILE;
    (void)stream;
    (void)flags;
    (void)err;
    for (int g = 0; g < op->base.groups; g++) {
        const float *x = (const float *)b->x + (size_t)g * op->x_group;
        uint8_t *mask = op->mask_group ? (uint8_t *)b->saved + (size_t)g * op->mask_group : NULL;
        if (op->conv.pw) {
            ls_lanes_conv_pad(&op->conv, x, padded);
            x = padded;
        }
        op->base.kernels->conv_forward(&op->conv, x, b->param[0], op->bias ? b->param[1] : NULL,
                                       (float *)b->y + (size_t)g * op->y_group, mask, tile);
    }
    return LS_OK;
}

static const ls_op_impl conv_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = conv_forward,
    .backward = ls_lanes_conv_backward,
    .import_param = ls_lanes_conv_import,
    .export_param = ls_lanes_conv_export,
    .destroy = ls_lanes_op_destroy,
};

/* ---- creation ------------------------------------------------------------------------------- */

static int outputs(int size, int kernel, int stride, int pad)
{
    int room = size + 2 * pad - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

/* Only averages over windows that tile the output can be fused. */
static int pool_fits(const ls_pool2d *p, int oh, int ow)
{
    return !p->max && p->kh >= 1 && p->kw >= 1 && p->kh == p->sh && p->kw == p->sw && p->ph == 0 &&
           p->pw == 0 && oh >= p->kh && ow >= p->kw;
}

static int geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d *k = &desc->u.conv2d;
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d channels, kernel %d×%d, stride %d×%d, padding "
                       "%d×%d",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw);
    int oh = outputs(desc->x.h, k->kh, k->sh, k->ph), ow = outputs(desc->x.w, k->kw, k->sw, k->pw);
    if (oh < 1 || ow < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d does not fit into %d×%d with "
                       "padding %d×%d",
                       k->kh, k->kw, desc->x.h, desc->x.w, k->ph, k->pw);
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
        .x_w = desc->x.w,
        .pw = k->pw,
        .relu = desc->fuse_relu,
        .pool_h = desc->fuse_pool ? desc->pool.kh : 1,
        .pool_w = desc->fuse_pool ? desc->pool.kw : 1,
    };
    c->y_h = oh / c->pool_h;
    c->y_w = ow / c->pool_w;
    c->oh = c->y_h * c->pool_h; /* the pool drops what is beyond: it is not computed */
    c->ow = c->y_w * c->pool_w;
    return LS_OK;
}

static void set_sizes(ls_lanes_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    ls_op *o = &op->base.op;
    op->x_group = (size_t)c->ic * (size_t)c->ih * (size_t)c->x_w * LS_LANES;
    op->padded_group = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * LS_LANES;
    op->y_group = (size_t)c->oc * (size_t)c->y_h * (size_t)c->y_w * LS_LANES;
    op->d_group = (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * LS_LANES;
    op->staged = c->relu || c->pool_h * c->pool_w > 1;
    if (op->base.training && c->relu)
        op->mask_group = op->d_group / LS_LANES * (size_t)op->base.kernels->mask_bytes;
    o->params = op->bias ? 2 : 1;
    o->param_floats[0] = ls_lanes_conv_weight_floats(c);
    o->param_floats[1] = op->bias ? ls_lanes_conv_bias_floats(c) : 0;
    o->saved_bytes = (size_t)op->base.groups * op->mask_group;
    size_t forward = LS_LANES_TILE + (c->pw ? op->padded_group : 0);
    size_t backward = op->base.training ? ls_lanes_conv_backward_floats(op) : 0;
    o->scratch_bytes = (forward > backward ? forward : backward) * sizeof(float);
}

int ls_lanes_conv_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                         const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_conv c;
    ls_lanes_op *base;
    int status = geometry(&c, desc, err);
    if (!status)
        status =
            ls_lanes_op_new(&base, sizeof(ls_lanes_conv_op), &conv_impl, host, kernels, desc, err);
    if (status)
        return status;
    ls_lanes_conv_op *op = (ls_lanes_conv_op *)base;
    op->conv = c;
    op->bias = desc->u.conv2d.bias;
    ls_lanes_op_set_y(base, c.oc, c.y_h, c.y_w);
    set_sizes(op);
    return ls_lanes_op_finish(out, base, desc, err);
}
