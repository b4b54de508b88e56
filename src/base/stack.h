/* SPDX-License-Identifier: MIT */
/* Check of the calling thread's remaining stack. */
#ifndef BASE_STACK_H
#define BASE_STACK_H

#include <lockstep/status.h>
#include <stddef.h>

/* Checks that at least `bytes` bytes of the calling thread's stack are free. A stack that the C
 * library does not know, such as that of a coroutine, counts as large enough. The first call on a
 * thread can allocate memory in the C library. Any thread. Errors: LS_EINVAL (the message names
 * `function`). */
int ls_stack_check(size_t bytes, const char *function, ls_error *err);

#endif
