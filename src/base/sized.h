/* Structures that a caller fills in begin with a field `size`, for compatibility between versions.
 * The rule: fields that the caller's older header does not have are zero, and fields that this
 * library does not have must be zero. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <lockstep/status.h>
#include <stddef.h>

/* Copies the caller's structure `given`, whose first field is `size_t size`, to `out`, which has
 * `known` bytes, by the rule above. `type` names the structure in messages. Any thread. Errors:
 * LS_EINVAL (`given` is NULL, its size is not set, or a field is set that this library does not
 * know); *out is zeroed then. */
int ls_sized_take(void *out, size_t known, const void *given, const char *type, ls_error *err);

#endif
