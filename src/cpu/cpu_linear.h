/* What convolution and the dense layer share: y = weight · x + bias with an optional relu behind
 * it, and the two gradients. A *candidate* is one way to arrange the tensors; candidates are
 * offered best guess first, and the first whose worst kernel has the highest rank is taken
 * (ls_pd_rank), so that oneDNN's reference loops are used only when nothing else exists. */
#ifndef CPU_CPU_LINEAR_H
#define CPU_CPU_LINEAR_H

#include "cpu/cpu_op.h"

/* Makes the kernel of one pass for the given arrangement. */
typedef int (*ls_linear_make)(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc,
                              ls_pass pass, const ls_linear_mds *mds, ls_pd hint, ls_error *err);

typedef struct ls_linear_candidate {
    ls_md_format x, y; /* LS_MD_ANY: oneDNN's choice */
    bool x_as_is;      /* x in the layout it has, whatever `x` says */
} ls_linear_candidate;

typedef struct ls_linear {
    const char *name;
    ls_linear_make make;
    const ls_linear_candidate *candidates;
    int count;
    ls_linear_mds plain; /* every tensor's dimensions, row-major */
    int c, h, w;         /* of y */
    bool head;           /* forward is ls_cpu_head_forward's */
} ls_linear;

/* Builds the op. Errors: LS_EUNSUPPORTED when no candidate has a kernel; as ls_pd_*. */
int ls_cpu_linear_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                         const ls_linear *linear, ls_error *err);

#define LS_HEAD_OUTPUTS 16 /* at most; of more, oneDNN's matrix product is faster */

/* Appends the forward step to `op`, whose parameters are set: the value `y`, plain, from `x` and
 * `weight` of any layout, and the bias if there is one. Failures go to op->program. */
void ls_cpu_head_forward(ls_cpu_op *op, const ls_md *plain_x, int x, int weight, int y);

#endif
