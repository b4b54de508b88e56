/* A back end around another back end in host memory, such as the CPU's, which checks where ops
 * write.
 *
 * Every buffer of an op has guard words before and after it: in the arenas, between the
 * activations, in scratch, after each parameter and its gradient. Before an op runs, its outputs
 * and its scratch are filled with NaN, because ops must not rely on their contents. After the op
 * has run, the guard words are checked. If one has changed, a text that names the op, its kernel
 * and the buffer is stored, and the run ends.
 *
 * The back end is for training and evaluation only. A predictor would read logits at the wrong
 * address, because guard words precede the logits. */
#ifndef TESTS_NN_GUARDED_DEVICE_H
#define TESTS_NN_GUARDED_DEVICE_H

#include <lockstep/sys/plugin.h>

/* Returns the back end "guarded" around `inner`. Only one may exist in a process at a time. */
const ls_backend *guarded_backend(const ls_backend *inner);

/* Returns the text of the first overwritten guard since the last call, or "" if there is none. The
 * text is valid until the next call. */
const char *guarded_finding(void);

#endif
