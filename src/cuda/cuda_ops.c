/* SPDX-License-Identifier: MIT */
/* Creates ops: checks what every op's description must fulfil, then calls the setup function of its
 * kind. */
#include "cuda/cuda_op.h"

/* Returns true for ops on arenas (arrays of all parameters or of all gradients), which have no
 * tensors. */
static bool is_arena(ls_op_kind kind)
{
    return kind == LS_OP_SGD || kind == LS_OP_ADAMW || kind == LS_OP_RUNNING ||
           kind == LS_OP_CLIP || kind == LS_OP_DIGEST;
}

static int check_tensor(const ls_tensor *t, const char *what, ls_dtype dtype, ls_error *err)
{
    if (t->rows < 1 || t->c < 1 || t->h < 1 || t->w < 1 || t->dtype != dtype)
        return ls_fail(err, LS_EINVAL, "op_create: %s of %d rows of %d×%d×%d%s", what, t->rows,
                       t->c, t->h, t->w, t->dtype == dtype ? "" : ", of another type");
    if ((double)t->rows * t->c * t->h * t->w > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "op_create: %s of %d rows of %d×%d×%d is too large",
                       what, t->rows, t->c, t->h, t->w);
    if (t->layout && t->layout != &ls_cuda_channels_last &&
        t->layout != &ls_cuda_channels_last_half)
        return ls_fail(err, LS_EINVAL, "op_create: %s has a layout of another back end", what);
    return LS_OK;
}

static bool has_x2(const ls_op_desc *d)
{
    return d->kind == LS_OP_ADD || d->kind == LS_OP_CONCAT || d->kind == LS_OP_MULTIPLY ||
           d->fuse_add;
}

static int check_x2(const ls_op_desc *d, ls_error *err)
{
    const ls_tensor *x = &d->x, *x2 = &d->x2;
    int status = check_tensor(x2, "a second input", LS_F32, err);
    if (status)
        return status;
    if (d->kind == LS_OP_CONCAT &&
        (double)x->rows * x->h * x->w * ((double)x->c + x2->c) > LS_CUDA_MOST_ELEMENTS)
        return ls_fail(err, LS_EUNSUPPORTED, "op_create: %d rows of (%d + %d)×%d×%d are too large",
                       x->rows, x->c, x2->c, x->h, x->w);
    const bool factors = d->kind == LS_OP_MULTIPLY && x2->h == 1 && x2->w == 1;
    if (x->rows == x2->rows && (x->c == x2->c || d->kind == LS_OP_CONCAT) &&
        ((x->h == x2->h && x->w == x2->w) || factors))
        return LS_OK;
    return ls_fail(
        err, LS_EINVAL,
        "op_create: x has %d rows of %d×%d×%d and x2 %d rows of %d×%d×%d; they do not fit", x->rows,
        x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
}

static int refuse_fusion(const ls_op_desc *d, ls_error *err)
{
    const bool relu = d->kind == LS_OP_CONV2D || d->kind == LS_OP_DENSE ||
                      d->kind == LS_OP_BATCHNORM || d->kind == LS_OP_ADD;
    if (d->fuse_pool && d->kind != LS_OP_CONV2D)
        return ls_fail(err, LS_EUNSUPPORTED, "pooling is not fused into this kind of op");
    if (d->fuse_relu && !relu)
        return ls_fail(err, LS_EUNSUPPORTED, "relu is not fused into this kind of op");
    if (d->fuse_add && d->kind != LS_OP_BATCHNORM)
        return ls_fail(err, LS_EUNSUPPORTED, "adding is not fused into this kind of op");
    return LS_OK;
}

static int check_desc(const ls_op_desc *d, ls_error *err)
{
    if (d->size != sizeof *d)
        return ls_fail(err, LS_EINVAL, "op_create: the description has %zu bytes instead of %zu",
                       d->size, sizeof *d);
    int status = refuse_fusion(d, err);
    if (status || is_arena(d->kind))
        return status;
    const int bytes = d->kind == LS_OP_GATHER && !d->u.gather.floats;
    status = check_tensor(&d->x, "an input", bytes ? LS_U8 : LS_F32, err);
    return status == LS_OK && has_x2(d) ? check_x2(d, err) : status;
}

int ls_cuda_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    static const struct {
        const char *name;
        ls_cuda_setup *setup;
    } kinds[] = {
        [LS_OP_GATHER] = {"gather", ls_cuda_gather_setup},
        [LS_OP_CONV2D] = {"conv2d", ls_cuda_conv_setup},
        [LS_OP_DENSE] = {"dense", ls_cuda_dense_setup},
        [LS_OP_POOL] = {"pool", ls_cuda_pool_setup},
        [LS_OP_RELU] = {"relu", ls_cuda_pointwise_setup},
        [LS_OP_SOFTMAX_XENT] = {"softmax_xent", ls_cuda_loss_setup},
        [LS_OP_SGD] = {"sgd", ls_cuda_update_setup},
        [LS_OP_EXPORT] = {"export", ls_cuda_pointwise_setup},
        [LS_OP_BATCHNORM] = {"batchnorm", ls_cuda_norm_setup},
        [LS_OP_ADD] = {"add", ls_cuda_pointwise_setup},
        [LS_OP_SIGMOID] = {"sigmoid", ls_cuda_pointwise_setup},
        [LS_OP_TANH] = {"tanh", ls_cuda_pointwise_setup},
        [LS_OP_LAYERNORM] = {"layernorm", ls_cuda_layer_norm_setup},
        [LS_OP_UPSAMPLE] = {"upsample", ls_cuda_upsample_setup},
        [LS_OP_PAD] = {"pad", ls_cuda_pad_setup},
        [LS_OP_CONCAT] = {"concat", ls_cuda_pointwise_setup},
        [LS_OP_MULTIPLY] = {"multiply", ls_cuda_pointwise_setup},
        [LS_OP_GELU] = {"gelu", ls_cuda_pointwise_setup},
        [LS_OP_SILU] = {"silu", ls_cuda_pointwise_setup},
        [LS_OP_CLAMP] = {"clamp", ls_cuda_pointwise_setup},
        [LS_OP_HARD_SIGMOID] = {"hard_sigmoid", ls_cuda_pointwise_setup},
        [LS_OP_HARD_SWISH] = {"hard_swish", ls_cuda_pointwise_setup},
        [LS_OP_GELU_TANH] = {"gelu_tanh", ls_cuda_pointwise_setup},
        [LS_OP_AFFINE] = {"affine", ls_cuda_pointwise_setup},
        [LS_OP_DROPOUT] = {"dropout", ls_cuda_pointwise_setup},
        [LS_OP_ADAMW] = {"adamw", ls_cuda_update_setup},
        [LS_OP_RUNNING] = {"running", ls_cuda_update_setup},
        [LS_OP_VECTOR_LOSS] = {"vector_loss", ls_cuda_vector_loss_setup},
        [LS_OP_CLIP] = {"clip", ls_cuda_update_setup},
        [LS_OP_DIGEST] = {"digest", ls_cuda_update_setup},
    };
    const int kind = (int)desc->kind, count = (int)(sizeof kinds / sizeof *kinds);
    *out = NULL;
    if (kind < 1 || kind >= count || !kinds[kind].setup)
        return ls_fail(err, LS_EUNSUPPORTED, "the CUDA back end has no op of kind %d", kind);
    int status = check_desc(desc, err);
    return status ? status
                  : ls_cuda_op_make(out, ls_cuda_device_of(device), desc, kinds[kind].name,
                                    kinds[kind].setup, err);
}
