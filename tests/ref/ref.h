/* SPDX-License-Identifier: MIT */
/* The reference back end: every op as plain loops over row-major arrays.
 *
 * Other back ends are compared with it, and a thread sanitizer sees all of it. It uses one thread,
 * no library and no layout of its own. Two flavours differ in one thing:
 *
 *     ref     sums are fp32
 *     ref64   sums are double and are rounded once, when they are stored as fp32
 *
 * Orders of summation. Forward: channel, kernel row, kernel column, starting from the bias.
 * Gradients of parameters: pixels in order within a row, then rows in order; then, if it
 * accumulates, the sum is added to the old value. dx: output channels in order for each tap, then
 * taps in order. Loss: rows in order.
 *
 * Batch norm: the variance is summed in a second pass, as squares of the differences from the mean;
 * pixels, then rows. Exponentials, roots and powers are double in both flavours.
 *
 * It implements every kind with every option, and every fused form except fuse_pool, which is
 * declined with LS_EUNSUPPORTED. Both flavours report that 64 devices can be opened; `ref:3`
 * requests three of them. Threads: any thread may call these two functions; the tables are
 * constant. */
#ifndef REF_REF_H
#define REF_REF_H

#include <lockstep/sys/plugin.h>

#define REF_DEVICES 64

const ls_backend *ls_ref_backend(void);
const ls_backend *ls_ref64_backend(void);

#endif
