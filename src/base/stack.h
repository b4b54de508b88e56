/* Check of the calling thread's remaining stack. */
#ifndef BASE_STACK_H
#define BASE_STACK_H

#include <lockstep/status.h>
#include <stddef.h>

/* Checks that at least `bytes` bytes are left on the calling thread's stack. A stack that the C
 * library does not know, such as a coroutine's, counts as large enough. The first call on a thread
 * asks the C library, which may allocate. Any thread. Errors: LS_EINVAL, whose message names
 * `function` and the bytes that are left. */
int ls_stack_check(size_t bytes, const char *function, ls_error *err);

#endif
