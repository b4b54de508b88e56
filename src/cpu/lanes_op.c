#include "cpu/lanes_op.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

void ls_lanes_op_set_y(ls_lanes_op *op, int c, int h, int w)
{
    ls_tensor y = {LS_F32, op->op.y.rows, c, h, w, NULL, 0};
    op->op.y = ls_lanes_tensor(&y);
}

int ls_lanes_op_new(ls_lanes_op **out, size_t size, const ls_op_impl *impl,
                    const ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (!ls_layout_is_lanes(desc->x.layout))
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the tensor does not lie in lanes");
    if (desc->twin && desc->twin->impl != impl)
        return ls_fail(err, LS_EINVAL, "lanes: the twin is an op of another kind");
    ls_lanes_op *op = ls_alloc(device->host, size);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for an op");
    op->op.impl = impl;
    op->op.y.rows = desc->x.rows;
    op->host = device->host;
    op->kernels = device->kernels;
    op->team = device->team;
    op->groups = (int)ls_lanes_groups(desc->x.rows);
    op->training = desc->training;
    op->needs_dx = desc->needs_dx;
    snprintf(op->kernel, sizeof op->kernel, "lanes:%s", op->kernels->name);
    op->op.kernel = op->kernel;
    *out = op;
    return LS_OK;
}

int ls_lanes_op_finish(ls_op **out, ls_lanes_op *op, const ls_op_desc *desc, ls_error *err)
{
    for (int i = 0; desc->twin && i < LS_OP_PARAMS; i++) {
        if (desc->twin->param_floats[i] == op->op.param_floats[i])
            continue;
        op->op.impl->destroy(&op->op); /* with what a kind keeps in it */
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
