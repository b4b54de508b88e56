/* The lanes family: layers vectorised over the rows of a minibatch.
 *
 * Libraries that put channels into vector registers pad them to sixteen: 20 channels cost as much
 * as 32. Here a register holds the same element of sixteen rows (cpu_layout.h), so that any
 * number of channels, any kernel, stride and padding runs at full width. Convolution, dense,
 * pool, relu and the loss exist in this form, each in one source file; the loops are in
 * lanes_*_kernel.h, compiled once per instruction set and chosen at run time.
 *
 * Numbers: a result depends on rows, parameters, the op's description and the instruction set.
 * Gradients of parameters are summed in blocks of 32 rows, block after block, whether the blocks
 * come in one call or in several with LS_RUN_ACCUMULATE. With AVX2 and up, products are added
 * with one rounding (fused multiply-add).
 */
#ifndef CPU_LANES_H
#define CPU_LANES_H

#include "cpu/cpu_device.h"

struct ls_lanes_kernels; /* lanes_kernels.h */

/* Creates the op when this family has a form of it: x must be in lanes layout.
 * Thread: the worker's. Errors: LS_EUNSUPPORTED when it declines, LS_EINVAL, LS_ENOMEM. */
int ls_lanes_op_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err);

/* The lanes layout when x had better be converted to it for this op, whatever layout it has; NULL
 * when lanes are only taken if they are there already. x's layout is not looked at. */
const ls_layout *ls_lanes_preferred(const ls_cpu_device *device, const ls_op_desc *desc);

/* ---- for tests ------------------------------------------------------------------------------- */

/* ls_lanes_op_create with given kernels, whatever the number of channels. */
int ls_lanes_op_create_with(ls_op **out, const ls_host *host,
                            const struct ls_lanes_kernels *kernels, const ls_op_desc *desc,
                            ls_error *err);

#endif
