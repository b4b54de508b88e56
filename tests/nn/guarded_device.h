/* A back end around the CPU's (or any other in host memory) that watches the writes of ops.
 *
 * Every buffer of an op has guard words before and after it: in the arenas, between the
 * activations, in scratch, after each parameter and its gradient. Before an op runs, its outputs
 * and its scratch are filled with NaN, as the contract allows; after it the guard words are
 * checked. A violation is kept as a text that names the op, its kernel and the buffer, and ends the
 * run.
 *
 * It is for training and evaluation only: a predictor would read logits at the wrong address,
 * because guard words precede them. */
#ifndef TESTS_NN_GUARDED_DEVICE_H
#define TESTS_NN_GUARDED_DEVICE_H

#include <lockstep/sys/plugin.h>

/* Returns the back end "guarded" around `inner`. Only one may exist in a process at a time. */
const ls_backend *guarded_backend(const ls_backend *inner);

/* Returns the first violation since the last call, or "". Valid until the next call. */
const char *guarded_finding(void);

#endif
