/* The optimizer's step over a whole arena. Element-wise, without fused multiply-adds, so that the
 * bits depend neither on the instruction set nor on the size of the team. */
#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"

typedef struct update_op {
    ls_op op; /* first */
    ls_cpu_device *device;
    ls_op_buffers buffers;
    ls_sgd sgd;
} update_op;

static int update_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    const update_op *u = (const update_op *)op;
    if (!buffers->args || !buffers->param[0] || !buffers->grad[0] ||
        (u->sgd.momentum != 0 && !buffers->slot[0]))
        return ls_fail(err, LS_EINVAL, "sgd: an arena is missing");
    ((update_op *)op)->buffers = *buffers;
    return LS_OK;
}

static void step_plain(const update_op *u, float lr, float scale)
{
    float *w = u->buffers.param[0];
    const float *g = u->buffers.grad[0];
    float decay = u->sgd.weight_decay;
    int team = u->device->threads;
    size_t n = u->sgd.count;
#pragma omp parallel for simd if (team > 1) num_threads(team) schedule(static)
    for (size_t i = 0; i < n; i++)
        w[i] -= lr * (g[i] * scale + decay * w[i]);
}

static void step_momentum(const update_op *u, float lr, float scale)
{
    float *w = u->buffers.param[0], *v = u->buffers.slot[0];
    const float *g = u->buffers.grad[0];
    float decay = u->sgd.weight_decay, momentum = u->sgd.momentum;
    int team = u->device->threads;
    size_t n = u->sgd.count;
#pragma omp parallel for simd if (team > 1) num_threads(team) schedule(static)
    for (size_t i = 0; i < n; i++) {
        v[i] = momentum * v[i] + (g[i] * scale + decay * w[i]);
        w[i] -= lr * v[i];
    }
}

static void step_nesterov(const update_op *u, float lr, float scale)
{
    float *w = u->buffers.param[0], *v = u->buffers.slot[0];
    const float *g = u->buffers.grad[0];
    float decay = u->sgd.weight_decay, momentum = u->sgd.momentum;
    int team = u->device->threads;
    size_t n = u->sgd.count;
#pragma omp parallel for simd if (team > 1) num_threads(team) schedule(static)
    for (size_t i = 0; i < n; i++) {
        float gradient = g[i] * scale + decay * w[i];
        v[i] = momentum * v[i] + gradient;
        w[i] -= lr * (gradient + momentum * v[i]);
    }
}

static int update_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const update_op *u = (const update_op *)op;
    const ls_step_args *args = u->buffers.args;
    (void)stream;
    (void)flags;
    (void)err;
    if (u->sgd.momentum != 0 && u->sgd.nesterov)
        step_nesterov(u, args->lr, args->scale);
    else if (u->sgd.momentum != 0)
        step_momentum(u, args->lr, args->scale);
    else
        step_plain(u, args->lr, args->scale);
    return LS_OK;
}

static void update_destroy(ls_op *op)
{
    if (op)
        ls_free(((update_op *)op)->device->host, op);
}

static const ls_op_impl update_impl = {
    .size = sizeof(ls_op_impl),
    .bind = update_bind,
    .forward = update_forward,
    .destroy = update_destroy,
};

int ls_cpu_update_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (desc->u.sgd.count % 16 != 0)
        return ls_fail(err, LS_EINVAL, "sgd: an arena of %zu floats; a multiple of 16 is needed",
                       desc->u.sgd.count);
    update_op *u = ls_alloc(device->host, sizeof *u);
    if (!u)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of sgd");
    u->device = device;
    u->sgd = desc->u.sgd;
    u->op.impl = &update_impl;
    u->op.kernel = "plain C";
    *out = &u->op;
    return LS_OK;
}
