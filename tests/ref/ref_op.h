/* What the files of the reference back end share: its device, its op, the table of loops. */
#ifndef REF_REF_OP_H
#define REF_REF_OP_H

#include <lockstep/plugin.h>

typedef struct ref_op ref_op;

typedef int ref_run(ref_op *op, unsigned flags, ls_error *err);
typedef size_t ref_size(const ref_op *op);

#define REF_KINDS (LS_OP_EXPORT + 1)

/* The loops of one flavour, by ls_op_kind. `backward` NULL: the kind has none. `scratch` NULL: it
 * needs none. */
typedef struct ref_kernels {
    const char *name;
    ref_run *forward[REF_KINDS], *backward[REF_KINDS];
    ref_size *scratch[REF_KINDS];
} ref_kernels;

extern const ref_kernels ref_kernels_f32, ref_kernels_f64;

typedef struct ref_device {
    ls_device base;
    const ls_host *host;
    const char *name; /* of the back end */
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

/* Elements of one row of a tensor. */
static inline size_t ref_row(const ls_tensor *t)
{
    return (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

/* The ops without sums, the same in both flavours. */
ref_run ref_gather, ref_relu_forward, ref_relu_backward, ref_export_forward, ref_export_backward;

#endif
