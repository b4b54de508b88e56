/* SPDX-License-Identifier: MIT */
/* Common parts of the files of the reference back end: its device, its op, the table of loops. */
#ifndef REF_REF_OP_H
#define REF_REF_OP_H

#include <lockstep/sys/plugin.h>

typedef struct ref_op ref_op;

typedef int ref_run(ref_op *op, unsigned flags, ls_error *err);
typedef size_t ref_size(const ref_op *op);

/* The loops of one kind. `backward` NULL: the kind has no backward pass. `scratch` and `saved`
 * return sizes in bytes; NULL: 0. */
typedef struct ref_loops {
    const char *name;
    ref_run *forward, *backward;
    ref_size *scratch, *saved;
} ref_loops;

/* The loops of one flavour, indexed by ls_op_kind. */
typedef struct ref_kernels {
    const char *name;
    ref_loops of[LS_OP_KINDS];
} ref_kernels;

extern const ref_kernels ref_kernels_f32, ref_kernels_f64;

typedef struct ref_device {
    ls_device base;
    const ls_host *host;
    const char *name; /* name of the back end */
    int index;
    const ref_kernels *kernels;
} ref_device;

struct ref_op {
    ls_op base;
    const ls_host *host;
    const ref_kernels *kernels;
    ls_op_desc desc;
    ls_op_buffers b; /* all NULL until bind */
    int bound;
};

/* The device table's op_create. */
int ref_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err);

/* Checks the description and fills the op's y and parameters. Errors: LS_EUNSUPPORTED (a fused form
 * that is not implemented), LS_EINVAL (an invalid description). */
int ref_plan(ref_op *op, ls_error *err);

/* Returns the name of the op's kind, such as "conv2d". */
static inline const char *ref_op_name(const ref_op *op)
{
    return op->kernels->of[op->desc.kind].name;
}

/* Returns the number of elements in one row of a tensor. */
static inline size_t ref_row(const ls_tensor *t)
{
    return (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

/* Returns whether there is a second input. */
static inline int ref_has_x2(const ls_op_desc *d)
{
    return d->kind == LS_OP_ADD || d->kind == LS_OP_CONCAT || d->kind == LS_OP_MULTIPLY ||
           d->fuse_add;
}

/* Returns whether the op is a loss. */
static inline int ref_is_loss(ls_op_kind kind)
{
    return kind == LS_OP_SOFTMAX_XENT || kind == LS_OP_VECTOR_LOSS;
}

/* Returns whether the op steps over an arena: it has neither x nor y. */
static inline int ref_is_arena(ls_op_kind kind)
{
    return kind == LS_OP_SGD || kind == LS_OP_ADAMW || kind == LS_OP_RUNNING ||
           kind == LS_OP_CLIP || kind == LS_OP_DIGEST;
}

/* Ops without sums, which are the same in both flavours. */
ref_run ref_gather, ref_relu_forward, ref_relu_backward, ref_export_forward, ref_export_backward;
ref_run ref_curve_forward, ref_curve_backward; /* without parameters */
ref_run ref_hard_sigmoid_forward, ref_hard_sigmoid_backward;
ref_run ref_clamp_forward, ref_clamp_backward, ref_affine_forward, ref_affine_backward;
ref_run ref_add_forward, ref_add_backward, ref_dropout_forward, ref_dropout_backward;
ref_run ref_multiply_forward, ref_multiply_backward;
ref_run ref_upsample_forward, ref_pad_forward, ref_pad_backward;
ref_run ref_concat_forward, ref_concat_backward;
ref_run ref_digest;
ref_size ref_dropout_saved;

#endif
