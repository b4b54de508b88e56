/* Which kernels, which ops, and what they share. */
#include "cpu/lanes.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_isa.h"
#include "cpu/lanes_op.h"

#include <stdio.h>
#include <string.h>

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

int ls_lanes_op_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "there is no parameter %d", index);
    memcpy(dst, src, op->param_floats[index] * sizeof *src);
    return LS_OK;
}

int ls_lanes_op_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "there is no parameter %d", index);
    memcpy(dst, src, op->param_floats[index] * sizeof *dst);
    return LS_OK;
}

int ls_lanes_check_x2(const char *name, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    if (x->rows != x2->rows || x->c != x2->c || x->h != x2->h || x->w != x2->w)
        return ls_fail(err, LS_EINVAL, "%s: %d rows of %d×%d×%d plus %d rows of %d×%d×%d", name,
                       x->rows, x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
    if (!ls_layout_is_lanes(x2->layout))
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the second tensor does not lie in lanes");
    return LS_OK;
}

/* ---- the choice ------------------------------------------------------------------------------ */

int ls_lanes_op_create_with(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                            const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    switch (desc->kind) {
    case LS_OP_CONV2D: return ls_lanes_conv_create(out, host, kernels, desc, err);
    case LS_OP_DENSE: return ls_lanes_dense_create(out, host, kernels, desc, err);
    case LS_OP_POOL: return ls_lanes_pool_create(out, host, kernels, desc, err);
    case LS_OP_RELU:
    case LS_OP_SIGMOID:
    case LS_OP_TANH: return ls_lanes_curve_create(out, host, kernels, desc, err);
    case LS_OP_ADD: return ls_lanes_add_create(out, host, kernels, desc, err);
    case LS_OP_BATCHNORM: return ls_lanes_norm_create(out, host, kernels, desc, err);
    case LS_OP_DROPOUT: return ls_lanes_dropout_create(out, host, kernels, desc, err);
    case LS_OP_EXPORT: return ls_lanes_export_create(out, host, kernels, desc, err);
    case LS_OP_SOFTMAX_XENT: return ls_lanes_loss_create(out, host, kernels, desc, err);
    default: return ls_fail(err, LS_EUNSUPPORTED, "lanes: no op of kind %d", desc->kind);
    }
}

int ls_lanes_op_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (device->family == LS_CPU_FAMILY_DNNL)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the device is to use oneDNN only");
    if (device->family == LS_CPU_FAMILY_LANES) {
        const ls_lanes_kernels *k = &ls_cpu_isa_at(0)->lanes;
        ls_op_desc own = *desc;
        own.twin = ls_lanes_inner(desc->twin);
        return ls_lanes_are_plain(desc) ? ls_lanes_plain_create(out, device->host, k, &own, err)
                                        : ls_lanes_op_create_with(out, device->host, k, &own, err);
    }
    return ls_lanes_op_create_with(out, device->host, &ls_cpu_isa_at(0)->lanes, desc, err);
}

const ls_layout *ls_lanes_preferred(const ls_cpu_device *device, const ls_op_desc *desc)
{
    bool wanted = false;
    if (device->family == LS_CPU_FAMILY_LANES)
        wanted = true;
    if (device->family == LS_CPU_FAMILY_AUTO)
        wanted = desc->kind == LS_OP_CONV2D;
    return wanted ? &ls_layout_lanes : NULL;
}
