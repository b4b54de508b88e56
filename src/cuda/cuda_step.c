/* SPDX-License-Identifier: MIT */
/* The ops of a training step that are no layers:
 * - the gather, which copies dataset rows into a batch in channels-last order
 * - the losses: softmax with cross-entropy, and the losses of target vectors
 * - the ops over whole arenas: optimizers, clipping, running statistics and digests */
#include "base/augment.h"
#include "cuda/cuda_op.h"

#include <string.h>

/* ---- dataset rows to a batch ----------------------------------------------------------------- */

static int gather_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_tensor *y = &op->op.y;
    const int random = op->desc.training;
    const ls_k_args *args;
    int status = ls_cuda_args(&args, op->device, on, op->b.args, err);
    if (status)
        return status;
    ls_k_gather k = {
        .images = op->b.x,
        .labels = op->b.labels,
        .labels_out = op->b.labels_out,
        .weights = op->b.weights,
        .weights_out = op->b.weights_out,
        .y = op->b.y,
        .args = args,
        .rows = y->rows,
        .c = y->c,
        .h = y->h,
        .w = y->w,
        .crop = random ? g->crop : 0,
        .flip = random ? g->flip : 0,
        .rotate = random ? g->rotate : 0,
        .erase = random ? g->erase : 0,
        .brightness = random ? g->brightness : 0,
        .mixup = random ? g->mixup : 0,
        .part = random ? g->part : 0,
        .floats = g->floats,
        .words = g->targets > 0 ? g->targets : 1,
        .vectors = g->targets > 0,
    };
    memcpy(k.mean, g->mean, sizeof k.mean);
    memcpy(k.std, g->std, sizeof k.std);
    return ls_cuda_done(op, ls_k_gather_rows(&k, on->cuda), err);
}

static int check_gather(const ls_op_desc *d, ls_error *err)
{
    const ls_gather *g = &d->u.gather;
    for (int c = 0; c < 4 && c < d->x.c; c++)
        if (!(g->std[c] > 0))
            return ls_fail(err, LS_EINVAL, "gather: std[%d] is %g; it must be above 0", c,
                           (double)g->std[c]);
    if (g->crop < 0 || g->crop > d->x.h + d->x.w)
        return ls_fail(err, LS_EINVAL,
                       "gather: crop is %d pixels; it must be from 0 to %d, height plus width",
                       g->crop, d->x.h + d->x.w);
    if (!ls_augment_fits(g->rotate, g->erase, g->brightness, g->mixup, g->part))
        return ls_fail(
            err, LS_EINVAL,
            "gather: rotate must be at most 45, brightness at most 256, mixup at most 128 and part "
            "at most 65536");
    return LS_OK;
}

int ls_cuda_gather_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    op->op.y = ls_cuda_tensor(x->rows, x->c, x->h, x->w, LS_FORM_LAST);
    op->forward.pass = gather_forward;
    op->op.kernel = "cuda nhwc";
    return check_gather(&op->desc, err);
}

/* ---- loss ------------------------------------------------------------------------------------ */

static int loss_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_op_buffers *b = &op->b;
    ls_k_xent k = {
        .x = b->x,
        .labels = b->labels,
        .weight = op->desc.u.softmax_xent.weighted ? b->class_weight : NULL,
        .row_weight = b->weights,
        .dx = op->desc.needs_dx ? b->dx : NULL,
        .stats = b->stats,
        .row = ls_cuda_at(op, &op->work),
        .fault = op->device->fault,
        .rows = x->rows,
        .classes = x->c,
        .smoothing = op->desc.u.softmax_xent.smoothing,
        .add = ls_cuda_accumulates(op),
    };
    if (!b->x || !b->labels || !b->stats || (op->desc.needs_dx && !b->dx))
        return ls_fail(err, LS_EINVAL, "softmax_xent: a buffer is missing");
    if (op->desc.u.softmax_xent.weighted && !b->class_weight)
        return ls_fail(err, LS_EINVAL, "softmax_xent: `weighted` is set, but class_weight is NULL");
    return ls_cuda_done(op, ls_k_softmax_xent(&k, on->cuda), err);
}

/* Sets y (logits or outputs, one vector per row) and reserves two floats of work per row. */
static int set_loss(ls_cuda_op *op, ls_cuda_pass *forward)
{
    const ls_tensor *x = &op->desc.x;
    op->op.y = (ls_tensor){LS_F32, x->rows, x->c, 1, 1, NULL, 0};
    op->work = ls_cuda_scratch(op, 2 * (size_t)x->rows * sizeof(float));
    op->forward.pass = forward;
    return LS_OK;
}

int ls_cuda_loss_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const double smoothing = (double)op->desc.u.softmax_xent.smoothing;
    if (x->h != 1 || x->w != 1)
        return ls_fail(err, LS_EINVAL, "softmax: logits must be vectors, not %d×%d×%d", x->c, x->h,
                       x->w);
    if (!(smoothing >= 0 && smoothing <= 1))
        return ls_fail(err, LS_EINVAL, "softmax: smoothing of %g; it must be from 0 to 1",
                       smoothing);
    return set_loss(op, loss_forward);
}

_Static_assert((int)LS_K_MSE == (int)LS_VECTOR_MSE && (int)LS_K_BCE == (int)LS_VECTOR_BCE &&
                   (int)LS_K_MAE == (int)LS_VECTOR_MAE && (int)LS_K_HUBER == (int)LS_VECTOR_HUBER &&
                   (int)LS_K_QUANTILE == (int)LS_VECTOR_QUANTILE &&
                   (int)LS_K_POISSON == (int)LS_VECTOR_POISSON &&
                   (int)LS_K_QUANTILES == (int)LS_QUANTILES_MOST,
               "the kernels' rules are the plugin's");

/* Returns the number of outputs for each target. */
static int parts_of(const ls_vector_loss *v)
{
    return v->rule == LS_VECTOR_QUANTILE ? v->quantiles : 1;
}

static int vector_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_op_buffers *b = &op->b;
    const ls_vector_loss *v = &op->desc.u.vector_loss;
    ls_k_vector_loss k = {
        .x = b->x,
        .targets = (const float *)(const void *)b->labels,
        .row_weight = b->weights,
        .dx = op->desc.needs_dx ? b->dx : NULL,
        .stats = b->stats,
        .row = ls_cuda_at(op, &op->work),
        .rows = x->rows,
        .n = x->c,
        .each = x->c / parts_of(v),
        .rule = (int)v->rule,
        .add = ls_cuda_accumulates(op),
        .delta = v->delta,
    };
    memcpy(k.quantile, v->quantile, sizeof k.quantile);
    if (!b->x || !b->labels || !b->stats || (op->desc.needs_dx && !b->dx))
        return ls_fail(err, LS_EINVAL, "vector loss: a buffer is missing");
    return ls_cuda_done(op, ls_k_vector_loss_of(&k, on->cuda), err);
}

int ls_cuda_vector_loss_setup(ls_cuda_op *op, ls_error *err)
{
    const ls_tensor *x = &op->desc.x;
    const ls_vector_loss *v = &op->desc.u.vector_loss;
    const int rule = (int)v->rule, parts = parts_of(v);
    if (x->h != 1 || x->w != 1 || x->layout)
        return ls_fail(err, LS_EINVAL, "vector loss: outputs must be row-major vectors");
    if (rule < 0 || rule >= LS_K_RULES)
        return ls_fail(err, LS_EUNSUPPORTED, "vector loss: the CUDA back end has no rule %d", rule);
    if (parts < 1 || parts > LS_QUANTILES_MOST || x->c % parts != 0)
        return ls_fail(err, LS_EINVAL, "vector loss: %d outputs for %d quantiles", x->c, parts);
    return set_loss(op, vector_forward);
}

/* ---- updates of arenas ----------------------------------------------------------------------- */

static int check_arenas(const ls_cuda_op *op, ls_error *err)
{
    const ls_op_buffers *b = &op->b;
    int slots = op->desc.kind == LS_OP_ADAMW ? 2
                : op->desc.kind == LS_OP_SGD ? op->desc.u.sgd.momentum != 0
                                             : 0;
    if (!b->args || !b->param[0] || (!b->grad[0] && op->desc.kind != LS_OP_DIGEST))
        return ls_fail(err, LS_EINVAL, "%s: an arena is missing", op->name);
    if (op->desc.kind == LS_OP_CLIP && !b->clip)
        return ls_fail(err, LS_EINVAL, "%s: the buffer `clip` is missing", op->name);
    if (!b->guard != !b->skip)
        return ls_fail(err, LS_EINVAL, "%s: guard and skip must both be set or both be NULL",
                       op->name);
    for (int i = 0; i < slots; i++)
        if (!b->slot[i])
            return ls_fail(err, LS_EINVAL, "%s: slot %d is missing", op->name, i);
    return LS_OK;
}

static cudaError_t apply_step(const ls_cuda_op *op, const ls_k_args *args, cudaStream_t stream)
{
    const ls_op_buffers *b = &op->b;
    const ls_sgd *sgd = &op->desc.u.sgd;
    const ls_adamw *adamw = &op->desc.u.adamw;
    const ls_running *running = &op->desc.u.running;
    ls_k_update u = {.w = b->param[0],
                     .grad = b->grad[0],
                     .shadow = b->shadow[0],
                     .shadow_grad = b->shadow_grad[0],
                     .in_shadow = b->in_shadow,
                     .args = args,
                     .count = op->desc.count,
                     .guard = {b->guard, b->skip, b->clip, op->desc.rate},
                     .sums = b->args->digest != NULL,
                     .digest_at = {b->digest_at[0], b->digest_at[1], b->digest_at[2]}};
    if (op->desc.kind == LS_OP_DIGEST)
        return ls_k_digest(u.w, args, u.digest_at[0], u.count, stream);
    if (op->desc.kind == LS_OP_RUNNING)
        return ls_k_running(&u, running->momentum, running->of_weights, stream);
    if (op->desc.kind == LS_OP_SGD) {
        u.slot[0] = sgd->momentum != 0 ? b->slot[0] : NULL;
        return ls_k_sgd(&u, sgd->momentum, sgd->weight_decay, sgd->nesterov, stream);
    }
    ls_k_adamw k = {adamw->beta1, adamw->beta2, adamw->epsilon, adamw->weight_decay};
    u.slot[0] = b->slot[0];
    u.slot[1] = b->slot[1];
    return ls_k_adamw_step(&u, &k, stream);
}

static int update_forward(ls_cuda_op *op, ls_stream *on, ls_error *err)
{
    const ls_k_args *args;
    int status = check_arenas(op, err);
    if (status == LS_OK && op->desc.kind == LS_OP_ADAMW && op->b.args->step < 1)
        status = ls_fail(err, LS_EINVAL, "adamw: steps are numbered from 1");
    if (status == LS_OK)
        status = ls_cuda_args(&args, op->device, on, op->b.args, err);
    if (status)
        return status;
    if (op->desc.kind == LS_OP_CLIP)
        return ls_cuda_done(op,
                            ls_k_clip(op->b.clip, ls_cuda_at(op, &op->work), op->b.grad[0], args,
                                      op->desc.u.clip.most, ls_cuda_accumulates(op), op->desc.count,
                                      on->cuda),
                            err);
    return ls_cuda_done(op, apply_step(op, args, on->cuda), err);
}

int ls_cuda_update_setup(ls_cuda_op *op, ls_error *err)
{
    const bool whole = op->desc.kind != LS_OP_RUNNING && op->desc.kind != LS_OP_DIGEST;
    if (whole && op->desc.count % 16 != 0)
        return ls_fail(err, LS_EINVAL, "%s: an arena of %zu floats; a multiple of 16 is needed",
                       op->name, op->desc.count);
    if (op->desc.kind == LS_OP_CLIP)
        op->work = ls_cuda_scratch(op, LS_K_CLIP_SUMS * sizeof(double));
    op->forward.pass = update_forward;
    return LS_OK;
}
