/* Softmax and cross-entropy. */
#include "cuda/cuda_op.h"

#include <stdio.h>

static int loss_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_op_buffers *b = &op->b;
    ls_k_xent k = {
        .x = b->x,
        .labels = b->labels,
        .dx = op->desc.needs_dx ? b->dx : NULL,
        .stats = b->stats,
        .row = ls_cuda_at(op, &op->work),
        .fault = op->device->fault,
        .rows = x->rows,
        .classes = x->c,
        .smoothing = op->desc.u.softmax_xent.smoothing,
        .add = (flags & LS_RUN_ACCUMULATE) != 0,
    };
    if (!b->x || !b->labels || !b->stats || (op->desc.needs_dx && !b->dx))
        return ls_fail(err, LS_EINVAL, "softmax_xent: a buffer is missing");
    return ls_cuda_done(op, ls_k_softmax_xent(&k, ls_cuda_stream(op->device, stream)), err);
}

int ls_cuda_loss_create(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const double smoothing = (double)desc->u.softmax_xent.smoothing;
    ls_cuda_op *op;
    if (x->h != 1 || x->w != 1)
        return ls_fail(err, LS_EINVAL, "softmax: logits must be vectors, not %d×%d×%d", x->c, x->h,
                       x->w);
    if (!(smoothing >= 0 && smoothing <= 1))
        return ls_fail(err, LS_EINVAL, "softmax: smoothing of %g; it must be from 0 to 1",
                       smoothing);
    int status = ls_cuda_op_new(&op, device, desc, "softmax_xent", err);
    if (status)
        return status;
    op->op.y = (ls_tensor){LS_F32, x->rows, x->c, 1, 1, NULL, 0};
    op->work = ls_cuda_scratch(op, 2 * (size_t)x->rows * sizeof(float));
    op->forward = loss_forward;
    snprintf(op->kernel, sizeof op->kernel, "cuda");
    return ls_cuda_op_finish(out, op, LS_OK);
}
