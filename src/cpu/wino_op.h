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
#ifndef CPU_WINO_OP_H
#define CPU_WINO_OP_H

#include "cpu/cpu_op.h"

/* Whether it is possible: 3 × 3, stride 1, padding at most 1, multiples of 16 channels. */
int ls_wino_op_fits(const ls_op_desc *desc);

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
