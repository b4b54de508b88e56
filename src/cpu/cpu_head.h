/* A dense layer of few outputs: y = weight · x + bias, summed in double.
 *
 * That is a network's last layer. Every gradient is made out of its outputs, so that their rounding
 * errors are in all of them: oneDNN's, which adds a row's products up in one float, were the largest
 * errors of ResNet-18's last layers, and take the same time. */
#ifndef CPU_CPU_HEAD_H
#define CPU_CPU_HEAD_H

#include "cpu/cpu_op.h"

#define LS_HEAD_OUTPUTS 16 /* at most; of more, oneDNN's matrix product is faster */

/* Appends the forward step to `op`, whose parameters are set: the value `y`, plain, from `x` and
 * `weight` of any layout, and the bias if there is one. Failures go to op->program. */
void ls_cpu_head_forward(ls_cpu_op *op, const ls_md *plain_x, int x, int weight, int y);

#endif
