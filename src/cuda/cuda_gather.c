/* Dataset rows to a batch, channels last. */
#include "cuda/cuda_op.h"

#include <stdio.h>
#include <string.h>

static int gather_forward(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_tensor *y = &op->op.y;
    const int random = op->desc.training;
    const ls_k_args *args;
    (void)flags;
    int status = ls_cuda_args(&args, op->device, stream, op->b.args, err);
    if (status)
        return status;
    ls_k_gather k = {
        .images = op->b.x,
        .labels = op->b.labels,
        .labels_out = op->b.labels_out,
        .y = op->b.y,
        .args = args,
        .rows = y->rows,
        .c = y->c,
        .h = y->h,
        .w = y->w,
        .crop = random ? g->crop : 0,
        .flip = random ? g->flip : 0,
    };
    memcpy(k.mean, g->mean, sizeof k.mean);
    memcpy(k.std, g->std, sizeof k.std);
    return ls_cuda_done(op, ls_k_gather_rows(&k, ls_cuda_stream(op->device, stream)), err);
}

static int check(const ls_op_desc *d, ls_error *err)
{
    const ls_gather *g = &d->u.gather;
    for (int c = 0; c < 4 && c < d->x.c; c++)
        if (!(g->std[c] > 0))
            return ls_fail(err, LS_EINVAL, "gather: std[%d] is %g; it must be above 0", c,
                           (double)g->std[c]);
    if (g->crop < 0 || g->crop > d->x.h + d->x.w)
        return ls_fail(err, LS_EINVAL, "gather: a crop of %d pixels for images of %d×%d", g->crop,
                       d->x.h, d->x.w);
    return LS_OK;
}

int ls_cuda_gather_create(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                          ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_cuda_op *op;
    int status = check(desc, err);
    if (status == LS_OK)
        status = ls_cuda_op_new(&op, device, desc, "gather", err);
    if (status)
        return status;
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h, x->w, LS_FORM_LAST);
    op->forward = gather_forward;
    snprintf(op->kernel, sizeof op->kernel, "cuda nhwc");
    return ls_cuda_op_finish(out, op, LS_OK);
}
