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
    bool winograd;     /* all passes are ls_wino_op_*, which say how the tensors lie */
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

/* ---- Winograd's form ------------------------------------------------------------------------- */

/* A 3 × 3 convolution by wino.h as the steps of an op, in place of oneDNN's.
 *
 * F(2×2, 3×3) has rounding errors smaller than the direct form's; F(4×4, 3×3) has three times as
 * much and takes three quarters of the time, with 512 channels two thirds.
 *
 *   y    Errors decide which side of a relu a number near zero falls on, and a unit on the wrong
 *        side moves all gradients below by a thousand times as much: F(2×2, 3×3).
 *   dx   Errors stay what they are, but go into all gradients below: F(4×4, 3×3) where it saves a
 *        third of the products, which it does not where tiles reach far beyond the image (14 × 14).
 *   dw   Errors stay in this gradient alone, and sums over rows average them: F(4×4, 3×3). */

/* Whether it is possible: 3 × 3, stride 1, padding at most 1, multiples of 16 channels. */
bool ls_wino_op_fits(const ls_op_desc *desc);

/* How the kernels want the tensors; `weight` as parameter and as gradient. */
ls_md ls_wino_op_image(const ls_md *plain);
ls_md ls_wino_op_weight(const ls_md *plain);

/* Plans the passes: once, before anything below. Errors: LS_ENOMEM. */
int ls_wino_op_plan(ls_cpu_op *op, const ls_op_desc *desc, ls_error *err);

/* Append steps, whose failures go to op->program, on values that are arranged so: y from x and
 * `weight`, dw from x and dy, dx from dy and `weight`, which here is LS_MD_IN_LAST. The bias is the
 * op's parameter 1. */
void ls_wino_op_forward(ls_cpu_op *op, int x, int weight, int y);
void ls_wino_op_weights(ls_cpu_op *op, int x, int dy, int dw);
void ls_wino_op_data(ls_cpu_op *op, int dy, int weight, int dx);

/* "F(2,3) avx512", the forward kernel. */
void ls_wino_op_name(const ls_cpu_op *op, char *out, size_t size);

#endif
