/* SPDX-License-Identifier: MIT */
/* Check of the calling thread's remaining stack. */
#ifndef BASE_STACK_H
#define BASE_STACK_H

#include <lockstep/status.h>
#include <stddef.h>

/* Free stack in bytes that a public function needs. Each function that uses more than a few
 * kilobytes checks it before it does anything else. The sizes are about twice the measured need
 * (tests/embed/test_stack.c). */
#define LS_CALL_STACK_BYTES ((size_t)48 << 10)    /* functions of a trainer, pools, model files */
#define LS_OPEN_STACK_BYTES ((size_t)80 << 10)    /* opening a trainer, a config, rows; ls_verify */
#define LS_PREDICT_STACK_BYTES ((size_t)96 << 10) /* a prediction; opening a model */

/* Size in KiB of a thread's stack that is enough for each of these functions. Messages,
 * trainer.h, model.h and the documentation name this size. */
#define LS_THREAD_STACK_KIB 128

/* Marks the rest of a public function, which is called after the check and stays out of it: the
 * memory of its variables is taken only then. */
#define LS_AFTER_STACK_CHECK __attribute__((noinline))

/* Checks that at least `bytes` bytes of the calling thread's stack are free. A stack that the C
 * library does not know, such as that of a coroutine, counts as large enough. The first call on a
 * thread can allocate memory in the C library. Any thread. Errors: LS_EINVAL (the message names
 * `function`). */
int ls_stack_check(size_t bytes, const char *function, ls_error *err);

#endif
