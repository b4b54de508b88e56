/* SPDX-License-Identifier: MIT */
/* A back end around another back end (the *inner* back end) in host memory, such as the CPU's. It
 * checks where the ops of the inner back end write.
 *
 * Every buffer of an op has guard words before and after it: in the arenas, between the
 * activations, in scratch, after each parameter and its gradient. Before an op runs, its outputs
 * and its scratch are filled with NaN, because ops must not rely on their contents. After the op
 * has run, the guard words are checked. If a guard word has changed, the back end stores a text
 * that names the op, its kernel and the buffer, and the op fails.
 *
 * The back end is for training and evaluation only. It does not work for predictions, because guard
 * words precede the logits, so a predictor would read the logits at a wrong address. */
#ifndef TESTS_NN_GUARDED_DEVICE_H
#define TESTS_NN_GUARDED_DEVICE_H

#include <lockstep/sys/plugin.h>

/* Returns the back end "guarded" around `inner`. Only one such back end may exist in a process at a
 * time. */
const ls_backend *guarded_backend(const ls_backend *inner);

/* Returns the text about the first guard that was overwritten since the last call, or "" if no
 * guard was overwritten. The text is valid until the next call. */
const char *guarded_finding(void);

#endif
