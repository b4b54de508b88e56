/* Which kernels, which ops, and what they share. */
#include "cpu/lanes.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_isa.h"
#include "cpu/lanes_op.h"

#include <stdio.h>

/* ---- ops ------------------------------------------------------------------------------------- */

void ls_lanes_op_set_y(ls_lanes_op *op, int c, int h, int w)
{
    ls_tensor y = {LS_F32, op->op.y.rows, c, h, w, NULL, 0};
    op->op.y = ls_lanes_tensor(&y);
}

int ls_lanes_op_new(ls_lanes_op **out, size_t size, const ls_op_impl *impl, const ls_host *host,
                    const ls_lanes_kernels *kernels, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (!ls_layout_is_lanes(desc->x.layout))
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the tensor does not lie in lanes");
    if (desc->twin && desc->twin->impl != impl)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "lanes: the op's twin uses other kernels, whose parameters lie differently");
    ls_lanes_op *op = ls_alloc(host, size);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for an op");
    op->op.impl = impl;
    op->op.y.rows = desc->x.rows;
    op->host = host;
    op->kernels = kernels;
    op->groups = (int)ls_lanes_groups(desc->x.rows);
    op->training = desc->training;
    op->needs_dx = desc->needs_dx;
    snprintf(op->kernel, sizeof op->kernel, "lanes:%s", kernels->name);
    op->op.kernel = op->kernel;
    *out = op;
    return LS_OK;
}

int ls_lanes_op_finish(ls_op **out, ls_lanes_op *op, const ls_op_desc *desc, ls_error *err)
{
    for (int i = 0; desc->twin && i < LS_OP_PARAMS; i++) {
        if (desc->twin->param_floats[i] == op->op.param_floats[i])
            continue;
        ls_lanes_op_destroy(&op->op);
        return ls_fail(err, LS_EINVAL, "lanes: the twin is another layer's");
    }
    *out = &op->op;
    return LS_OK;
}

int ls_lanes_op_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    (void)err;
    ((ls_lanes_op *)op)->b = *buffers;
    return LS_OK;
}

void ls_lanes_op_destroy(ls_op *op)
{
    if (op)
        ls_free(((ls_lanes_op *)op)->host, op);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static int rounded(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Lanes compute exactly the channels there are, at about 9/10 of the CPU's peak. oneDNN pads
 * output channels to sixteen, and input channels unless they are so few that it takes its kernel
 * for first layers; for many channels it also knows Winograd's algorithm. Rows do not enter: all
 * replicas must choose alike, whatever the size of their shards. */
static bool worth_it(const ls_op_desc *desc)
{
    int in = desc->x.c, out = desc->u.conv2d.out;
    if (in > 64 || out > 64)
        return false;
    double useful = (double)out / rounded(out, 16);
    if (in > 3)
        useful *= (double)in / rounded(in, 16);
    return useful < 0.8;
}

int ls_lanes_op_create_with(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                            const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    switch (desc->kind) {
    case LS_OP_CONV2D: return ls_lanes_conv_create(out, host, kernels, desc, err);
    case LS_OP_DENSE: return ls_lanes_dense_create(out, host, kernels, desc, err);
    case LS_OP_POOL: return ls_lanes_pool_create(out, host, kernels, desc, err);
    case LS_OP_RELU: return ls_lanes_relu_create(out, host, kernels, desc, err);
    case LS_OP_SOFTMAX_XENT: return ls_lanes_loss_create(out, host, kernels, desc, err);
    default: return ls_fail(err, LS_EUNSUPPORTED, "lanes: no op of kind %d", desc->kind);
    }
}

int ls_lanes_op_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (device->family == LS_CPU_FAMILY_DNNL)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the device is to use oneDNN only");
    if (device->family == LS_CPU_FAMILY_AUTO && desc->kind == LS_OP_CONV2D && !worth_it(desc))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "lanes: a convolution of %d to %d channels is oneDNN's", desc->x.c,
                       desc->u.conv2d.out);
    return ls_lanes_op_create_with(out, device->host, &ls_cpu_isa_at(0)->lanes, desc, err);
}

static bool has_form(ls_op_kind kind)
{
    switch (kind) {
    case LS_OP_CONV2D:
    case LS_OP_DENSE:
    case LS_OP_POOL:
    case LS_OP_RELU:
    case LS_OP_SOFTMAX_XENT: return true;
    default: return false;
    }
}

const ls_layout *ls_lanes_preferred(const ls_cpu_device *device, const ls_op_desc *desc)
{
    bool wanted = false;
    if (device->family == LS_CPU_FAMILY_LANES)
        wanted = has_form(desc->kind);
    if (device->family == LS_CPU_FAMILY_AUTO)
        wanted = desc->kind == LS_OP_CONV2D && worth_it(desc);
    return wanted ? &ls_layout_lanes : NULL;
}
