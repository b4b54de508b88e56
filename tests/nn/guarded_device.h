/* A back end around the CPU's (or any whose memory is the host's) that watches what ops write.
 *
 * Every buffer of an op gets words before and behind it that nobody may touch: in the arenas, between
 * the activations, in scratch, behind each parameter and its gradient. Before an op runs, what it is
 * to write and its scratch hold numbers that are none, as the contract allows; behind it the words are
 * looked at. What was found is kept as a text that names the op, its kernel and the buffer; the run that
 * it happened in ends.
 *
 * For training and evaluation: a predictor reads logits where they are not, with words before them.
 */
#ifndef TESTS_NN_GUARDED_DEVICE_H
#define TESTS_NN_GUARDED_DEVICE_H

#include <lockstep/sys/plugin.h>

/* The back end "guarded", around `inner`; one at a time in a process. */
const ls_backend *guarded_backend(const ls_backend *inner);

/* The first thing that was found since the last call, or "". Good until the next call. */
const char *guarded_finding(void);

#endif
