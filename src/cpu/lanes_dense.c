/* The dense op. Scratch of backward: [dz][its transpose]. */
#include "base/error.h"
#include "cpu/lanes_op.h"

#include <string.h>

typedef struct dense_op {
    ls_lanes_op base;    /* first */
    int in, out, padded; /* padded: outputs rounded up to sixteen */
    int bias, relu;
} dense_op;

static dense_op *self_of(ls_op *op)
{
    return (dense_op *)op;
}

/* Sixteens that a thread of the team takes at a time. */
#define SOME 4

static uint32_t items(int n)
{
    return (uint32_t)((n + SOME * LS_LANES - 1) / (SOME * LS_LANES));
}

/* A pass over some groups, divided among the team by outputs, or by inputs. */
typedef struct dense_job {
    const dense_op *op;
    int groups, add;
    const float *dz, *dzt;
} dense_job;

static ls_lanes_dense part_of(const dense_job *job, uint32_t item, int of)
{
    const int from = (int)item * SOME, all = (of + LS_LANES - 1) / LS_LANES;
    return (ls_lanes_dense){job->op->in, job->op->out, job->groups, from,
                            from + SOME < all ? from + SOME : all};
}

static void forward_some(void *arg, uint32_t item)
{
    const dense_job *job = arg;
    const dense_op *op = job->op;
    const ls_op_buffers *b = &op->base.b;
    const ls_lanes_dense l = part_of(job, item, op->out);
    op->base.kernels->dense_forward(&l, b->x, b->param[0], op->bias ? b->param[1] : NULL, op->relu,
                                    b->y);
}

static int dense_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const dense_op *op = self_of(base);
    dense_job job = {.op = op, .groups = op->base.groups};
    (void)stream;
    (void)flags;
    (void)err;
    ls_team_run(op->base.team, items(op->out), forward_some, &job);
    return LS_OK;
}

static void weights_some(void *arg, uint32_t item)
{
    const dense_job *job = arg;
    const ls_op_buffers *b = &job->op->base.b;
    const ls_lanes_dense l = part_of(job, item, job->op->out);
    job->op->base.kernels->dense_weights(&l, b->x, job->dzt, b->grad[0],
                                         job->op->bias ? b->grad[1] : NULL, job->add);
}

static void data_some(void *arg, uint32_t item)
{
    const dense_job *job = arg;
    const ls_op_buffers *b = &job->op->base.b;
    const ls_lanes_dense l = part_of(job, item, job->op->in);
    job->op->base.kernels->dense_data(&l, job->dz, b->param[0], b->dx);
}

static int dense_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const dense_op *op = self_of(base);
    const ls_op_buffers *b = &op->base.b;
    float *dz = b->scratch;
    float *dzt = dz + (size_t)op->base.groups * LS_LANES * (size_t)op->padded;
    dense_job job = {op, op->base.groups, (flags & LS_RUN_ACCUMULATE) != 0, dz, dzt};
    const ls_lanes_dense l = {op->in, op->out, job.groups, 0, op->padded / LS_LANES};
    (void)stream;
    (void)err;
    op->base.kernels->dense_grad(&l, b->dy, op->relu ? b->y : NULL, dz, dzt);
    ls_team_run(op->base.team, items(op->out), weights_some, &job);
    if (op->base.needs_dx)
        ls_team_run(op->base.team, items(op->in), data_some, &job);
    return LS_OK;
}

/* ---- parameters: weight [out / 16][in][16], bias [out], both zero-padded --------------------- */

static size_t place(const dense_op *op, int o, int i)
{
    return ((size_t)(o / LS_LANES_OUT) * (size_t)op->in + (size_t)i) * LS_LANES_OUT +
           (size_t)(o % LS_LANES_OUT);
}

static int dense_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    const dense_op *op = self_of(base);
    float *to = dst;
    if (index < 0 || index >= base->params)
        return ls_fail(err, LS_EINVAL, "dense has no parameter %d", index);
    memset(to, 0, base->param_floats[index] * sizeof *to);
    if (index == 1) {
        memcpy(to, src, (size_t)op->out * sizeof *to);
        return LS_OK;
    }
    for (int o = 0; o < op->out; o++)
        for (int i = 0; i < op->in; i++)
            to[place(op, o, i)] = *src++;
    return LS_OK;
}

static int dense_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    const dense_op *op = self_of(base);
    const float *from = src;
    if (index < 0 || index >= base->params)
        return ls_fail(err, LS_EINVAL, "dense has no parameter %d", index);
    if (index == 1) {
        memcpy(dst, from, (size_t)op->out * sizeof *dst);
        return LS_OK;
    }
    for (int o = 0; o < op->out; o++)
        for (int i = 0; i < op->in; i++)
            *dst++ = from[place(op, o, i)];
    return LS_OK;
}

static const ls_op_impl dense_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = dense_forward,
    .backward = dense_backward,
    .import_param = dense_import,
    .export_param = dense_export,
    .destroy = ls_lanes_op_destroy,
};

int ls_cpu_dense_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *base;
    if (desc->u.dense.out < 1)
        return ls_fail(err, LS_EINVAL, "dense: %d outputs", desc->u.dense.out);
    int status = ls_lanes_op_new(&base, sizeof(dense_op), &dense_impl, device, desc, err);
    if (status)
        return status;
    dense_op *op = (dense_op *)base;
    ls_op *o = &base->op;
    op->in = desc->x.c * desc->x.h * desc->x.w;
    op->out = desc->u.dense.out;
    op->padded = (op->out + LS_LANES_OUT - 1) / LS_LANES_OUT * LS_LANES_OUT;
    op->bias = desc->u.dense.bias;
    op->relu = desc->fuse_relu;
    ls_lanes_op_set_y(base, op->out, 1, 1);
    o->params = op->bias ? 2 : 1;
    o->param_floats[0] = (size_t)op->padded * (size_t)op->in;
    o->param_floats[1] = op->bias ? (size_t)op->padded : 0;
    if (base->training)
        o->scratch_bytes =
            (size_t)2 * (size_t)base->groups * LS_LANES * (size_t)op->padded * sizeof(float);
    return ls_lanes_op_finish(out, base, desc, err);
}
