/* An op of the CPU back end that is a program: what conv2d, dense, pool, relu, loss and export
 * have in common. A builder makes one with ls_cpu_op_create, fills `program`, `op.y` and the
 * parameters, and ends with ls_cpu_op_finish. */
#ifndef CPU_CPU_OP_H
#define CPU_CPU_OP_H

#include "cpu/cpu_program.h"

typedef struct ls_cpu_op {
    ls_op op; /* first */
    ls_cpu_device *device;
    ls_op_kind kind;
    ls_layout y_layout; /* op.y.layout points here unless it is NULL or lanes */
    ls_md y_md;
    ls_md param[LS_OP_PARAMS];       /* as they lie in the arena */
    ls_md param_plain[LS_OP_PARAMS]; /* canonical */
    int choice;                      /* linear ops: which candidate was taken */
    double smoothing;                /* the loss */
    int head_weight;                 /* of ls_cpu_head_forward: the value of its plain weights */
    void *own;                       /* what a kind keeps besides; freed with the op */
    ls_op_buffers buffers;
    char kernel[160];
    ls_program program;
} ls_cpu_op;

/* A new op without steps; `name` is used in messages and must be static. */
int ls_cpu_op_create(ls_cpu_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                     const char *name, ls_error *err);

/* Sets op.y to rows × c × h × w arranged as `md` (NULL layout where that is plain). */
void ls_cpu_op_set_y(ls_cpu_op *op, int rows, int c, int h, int w, const ls_md *md);

/* Sets op.y to a tensor of x's shape and layout. */
void ls_cpu_op_set_y_like(ls_cpu_op *op, const ls_tensor *x);

/* Declares parameter `index`. */
void ls_cpu_op_set_param(ls_cpu_op *op, int index, const ls_md *md, const ls_md *plain);

/* Hands the op over in `*out`, or destroys it and returns the program's first failure. */
int ls_cpu_op_finish(ls_op **out, ls_cpu_op *op);

/* desc->twin as one of these, NULL when there is none. LS_EUNSUPPORTED when the twin is of another
 * family of kernels, whose parameters lie differently. */
int ls_cpu_op_twin(const ls_cpu_op **out, const ls_op_desc *desc, ls_error *err);

void ls_cpu_op_destroy(ls_op *op);

/* The creators, one per kind. They take x in any layout. */
typedef int ls_cpu_create(ls_op **out, ls_cpu_device *d, const ls_op_desc *desc, ls_error *err);
#define LS_CPU_OP(kind, name) ls_cpu_create ls_cpu_##name##_create;
#define LS_CPU_ALSO(kind, name)
#include "cpu/ops.def"
#undef LS_CPU_OP
#undef LS_CPU_ALSO

/* An op around an op of the lanes family whose x lies differently: x is packed into lanes before
 * forward, dx unpacked after it is made. Kernels so need to know no layout but their own. */
/* Creates the lanes op of `desc` for x in lanes layout and wraps it. Errors: the lanes op's
 * (LS_EUNSUPPORTED when it declines), LS_ENOMEM, LS_EDEVICE. */
int ls_cpu_adapt_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err);

/* The op inside when `op` is one of these, else `op` itself; for twins. NULL is allowed. */
const ls_op *ls_cpu_adapt_inner(const ls_op *op);

#endif
