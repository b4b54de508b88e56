#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"

static ls_cpu_op *self_of(ls_op *op)
{
    return (ls_cpu_op *)op;
}

static int op_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    self_of(op)->buffers = *buffers;
    return ls_program_bind(&self_of(op)->program, buffers, err);
}

static int op_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    (void)stream;
    return ls_program_forward(&self_of(op)->program, flags, err);
}

static int op_backward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    (void)stream;
    return ls_program_run_backward(&self_of(op)->program, flags, err);
}

/* One conversion between two descriptors, outside any program. */
static int reorder_once(const ls_cpu_op *op, const ls_md *from, const void *src, const ls_md *to,
                        void *dst, ls_error *err)
{
    const ls_cpu_device *device = op->device;
    ls_op_buffers buffers = {.x = src, .y = dst};
    ls_program p;
    ls_program_init(&p, device, "a parameter", err);
    int a = ls_program_value(&p, from, LS_AT_X);
    int b = ls_program_value(&p, to, LS_AT_Y);
    ls_program_copy(&p, a, b);
    int status = p.status;
    if (status == LS_OK) {
        buffers.scratch = ls_alloc(device->host, ls_program_scratch_bytes(&p));
        status = buffers.scratch ? ls_program_bind(&p, &buffers, err)
                                 : ls_fail(err, LS_ENOMEM, "out of memory for a parameter");
    }
    if (status == LS_OK)
        status = ls_program_forward(&p, 0, err);
    ls_free(device->host, buffers.scratch);
    ls_program_fini(&p);
    return status;
}

static int op_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    const ls_cpu_op *o = self_of(op);
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "%s has no parameter %d", o->program.op, index);
    return reorder_once(o, &o->param_plain[index], src, &o->param[index], dst, err);
}

static int op_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    const ls_cpu_op *o = self_of(op);
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "%s has no parameter %d", o->program.op, index);
    return reorder_once(o, &o->param[index], src, &o->param_plain[index], dst, err);
}

static const ls_op_impl op_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .backward = op_backward,
    .import_param = op_import,
    .export_param = op_export,
    .destroy = ls_cpu_op_destroy,
};

int ls_cpu_op_create(ls_cpu_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                     const char *name, ls_error *err)
{
    ls_cpu_op *op = ls_alloc(device->host, sizeof *op);
    *out = op;
    if (!op)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of %s", name);
    op->op.impl = &op_impl;
    op->op.kernel = op->kernel;
    op->op.y.dtype = LS_F32;
    op->op.y.rows = desc->x.rows;
    op->device = device;
    op->kind = desc->kind;
    ls_program_init(&op->program, device, name, err);
    return LS_OK;
}

void ls_cpu_op_set_y(ls_cpu_op *op, int rows, int c, int h, int w, const ls_md *md)
{
    ls_md plain = ls_md_image(rows, c, h, w, LS_MD_PLAIN);
    op->y_md = *md;
    op->y_layout = (ls_layout){LS_CPU_DNNL, &op->y_md};
    op->op.y = (ls_tensor){LS_F32, rows, c, h, w, &op->y_layout, ls_md_bytes(md)};
    if (ls_md_rank(md) != 4 || ls_md_same_memory(md, &plain))
        op->op.y.layout = NULL;
}

void ls_cpu_op_set_y_like(ls_cpu_op *op, const ls_tensor *x)
{
    if (ls_layout_is_lanes(x->layout)) {
        op->op.y = ls_lanes_tensor(x);
    } else {
        ls_md md = ls_md_of(x);
        ls_cpu_op_set_y(op, x->rows, x->c, x->h, x->w, &md);
    }
}

void ls_cpu_op_set_param(ls_cpu_op *op, int index, const ls_md *md, const ls_md *plain)
{
    op->param[index] = *md;
    op->param_plain[index] = *plain;
    op->op.param_floats[index] = ls_md_bytes(md) / sizeof(float);
    if (op->op.params <= index)
        op->op.params = index + 1;
}

int ls_cpu_op_finish(ls_op **out, ls_cpu_op *op)
{
    int status = op->program.status;
    *out = NULL;
    op->program.err = NULL;
    if (status) {
        ls_cpu_op_destroy(&op->op);
        return status;
    }
    op->op.saved_bytes = op->program.saved_bytes;
    op->op.scratch_bytes = ls_program_scratch_bytes(&op->program);
    *out = &op->op;
    return LS_OK;
}

int ls_cpu_op_twin(const ls_cpu_op **out, const ls_op_desc *desc, ls_error *err)
{
    *out = (const ls_cpu_op *)desc->twin;
    if (!desc->twin || (desc->twin->impl == &op_impl && (*out)->kind == desc->kind))
        return LS_OK;
    *out = NULL;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "the op's twin uses other kernels, whose parameters lie differently");
}

void ls_cpu_op_destroy(ls_op *op)
{
    if (!op)
        return;
    const ls_host *host = self_of(op)->device->host;
    ls_program_fini(&self_of(op)->program);
    ls_free(host, self_of(op)->own);
    ls_free(host, op);
}
