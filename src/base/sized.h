/* Structures that a caller fills in begin with their `size`, and this is the one rule for it: members that the
 * caller's header does not have yet are zero, and members that this library does not have yet must be zero. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <lockstep/status.h>
#include <stddef.h>

/* *out, of `known` bytes, ← *given, whose first member is its size_t size. `type` names the structure in the message.
 * Any thread. Errors: LS_EINVAL (there is none, its size was not set, or it has a member set that this library does
 * not know); *out is zero then. */
int ls_sized_take(void *out, size_t known, const void *given, const char *type, ls_error *err);

#endif
