/* The gradient of a bias: dy summed over rows and pixels, channel by channel.
 *
 * oneDNN adds each channel up in one float. In front of batch norm, where thousands of values of
 * either sign cancel to nothing, what that leaves is far from zero. This sums in double, as batch
 * norm does. */
#ifndef CPU_CPU_BIAS_H
#define CPU_CPU_BIAS_H

#include "cpu/cpu_op.h"

/* Appends the step to `op`, whose parameter 1 is the bias: its gradient from the value `dy`, an
 * image of any layout or rows of plain numbers. Takes op->own. Failures go to op->program. */
void ls_cpu_bias_gradient(ls_cpu_op *op, int dy);

#endif
