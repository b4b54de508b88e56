/* Steps over a whole arena: the optimizers', and that of running statistics. */
#include "cuda/cuda_op.h"

#include <stdio.h>

static int check_arenas(const ls_cuda_op *op, ls_error *err)
{
    const ls_op_buffers *b = &op->b;
    int slots = op->desc.kind == LS_OP_ADAMW ? 2
                : op->desc.kind == LS_OP_SGD ? op->desc.u.sgd.momentum != 0
                                             : 0;
    if (!b->args || !b->param[0] || !b->grad[0])
        return ls_fail(err, LS_EINVAL, "%s: an arena is missing", op->name);
    if (!b->guard != !b->held)
        return ls_fail(err, LS_EINVAL, "%s: guard and held belong together", op->name);
    for (int i = 0; i < slots; i++)
        if (!b->slot[i])
            return ls_fail(err, LS_EINVAL, "%s: slot %d is missing", op->name, i);
    return LS_OK;
}

static cudaError_t step(const ls_cuda_op *op, const ls_k_args *args, cudaStream_t stream)
{
    const ls_op_buffers *b = &op->b;
    const ls_sgd *sgd = &op->desc.u.sgd;
    const ls_adamw *adamw = &op->desc.u.adamw;
    const ls_running *running = &op->desc.u.running;
    const ls_k_guard guard = {b->guard, b->held};
    if (op->desc.kind == LS_OP_RUNNING)
        return ls_k_running(b->param[0], b->grad[0], args, guard, running->momentum, running->count,
                            stream);
    if (op->desc.kind == LS_OP_ADAMW) {
        ls_k_adamw k = {adamw->beta1, adamw->beta2, adamw->epsilon, adamw->weight_decay};
        return ls_k_adamw_step(b->param[0], b->slot[0], b->slot[1], b->grad[0], args, guard, &k,
                               adamw->count, stream);
    }
    return ls_k_sgd(b->param[0], sgd->momentum != 0 ? b->slot[0] : NULL, b->grad[0], args, guard,
                    sgd->momentum, sgd->weight_decay, sgd->nesterov, sgd->count, stream);
}

static int update_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_k_args *args;
    (void)flags;
    int status = check_arenas(op, err);
    if (status == LS_OK && op->desc.kind == LS_OP_ADAMW && op->b.args->step < 1)
        status = ls_fail(err, LS_EINVAL, "adamw: steps are numbered from 1");
    if (status == LS_OK)
        status = ls_cuda_args(&args, op->device, stream, op->b.args, err);
    if (status)
        return status;
    return ls_cuda_done(op, step(op, args, ls_cuda_stream(op->device, stream)), err);
}

int ls_cuda_update_create(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                          ls_error *err)
{
    const char *name = desc->kind == LS_OP_ADAMW     ? "adamw"
                       : desc->kind == LS_OP_RUNNING ? "running"
                                                     : "sgd";
    size_t count = desc->kind == LS_OP_ADAMW ? desc->u.adamw.count : desc->u.sgd.count;
    ls_cuda_op *op;
    if (desc->kind != LS_OP_RUNNING && count % 16 != 0)
        return ls_fail(err, LS_EINVAL, "%s: an arena of %zu floats; a multiple of 16 is needed",
                       name, count);
    int status = ls_cuda_op_new(&op, device, desc, name, err);
    if (status)
        return status;
    op->forward = update_forward;
    snprintf(op->kernel, sizeof op->kernel, "cuda");
    return ls_cuda_op_finish(out, op, LS_OK);
}
