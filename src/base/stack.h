/* How much of its stack the calling thread has left. */
#ifndef BASE_STACK_H
#define BASE_STACK_H

#include <lockstep/status.h>
#include <stddef.h>

/* Whether `bytes` are left on the calling thread's stack. A stack that the C library knows nothing of, such as a
 * coroutine's, counts as large enough. The first call on a thread asks the C library, which may allocate. Any thread.
 * Errors: LS_EINVAL, which names `function` and says how much is left. */
int ls_stack_check(size_t bytes, const char *function, ls_error *err);

#endif
