/* The reference back end: every op as plain loops over row-major arrays.
 *
 * It is what the other back ends are compared with, and what a thread sanitizer can see into. It
 * uses one thread, no library and no layout of its own. Two flavours differ in one thing:
 *
 *     ref     sums are fp32
 *     ref64   sums are double and are rounded once, when they are stored as fp32
 *
 * Orders of summation. Forward: channel, kernel row, kernel column, starting from the bias.
 * Gradients of parameters: pixels in order within a row, then rows in order, then (accumulating)
 * the sum is added to what was there. dx: output channels in order for each tap, then taps in
 * order. Loss: rows in order.
 *
 * Batch norm: the variance is summed in a second pass, from the mean on; pixels, then rows.
 * Exponentials, roots and powers are double in both flavours.
 *
 * Built is every kind with every option, and every fused form but fuse_pool, which is declined with
 * LS_EUNSUPPORTED. Both flavours say that 64 devices can be opened, `ref:3` asks for three of them.
 * Any thread may call these two functions; the tables are constant.
 */
#ifndef REF_REF_H
#define REF_REF_H

#include <lockstep/sys/plugin.h>

#define REF_DEVICES 64

const ls_backend *ls_ref_backend(void);
const ls_backend *ls_ref64_backend(void);

#endif
