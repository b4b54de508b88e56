/* SPDX-License-Identifier: MIT */
/* Structures that a caller fills in or receives begin with a field `size` (<lockstep/status.h>,
 * "Sizes"). A field that the caller's older header lacks counts as zero; a field that this older
 * library lacks must be zero. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>

/* Copies the caller's structure to this library's structure of the same type, by the two rules
 * above.
 *
 * - out, known: this library's structure, and its size in bytes
 * - given: the caller's structure, whose first field is `size_t size`
 * - type: name of the structure, for messages
 *
 * Any thread. Errors:
 * LS_EINVAL (`given` is NULL, its size is not set, or a field is set that this library does not
 * know); *out is zeroed then. */
int ls_sized_take(void *out, size_t known, const void *given, const char *type, ls_error *err);

/* Does the same with an element of an array, whose structure has no field `size`: the caller passes
 * the size of all elements. */
int ls_sized_take_element(void *out, size_t known, const void *given, size_t size, const char *type,
                          ls_error *err);

/* Copies a result to the caller's structure, whose field `size` the caller has set and keeps. If
 * the caller's header is older than this library, the fields that it does not have are left out; if
 * it is newer, the fields that this library does not have are zeroed.
 *
 * - out: the caller's structure, whose first field is `size_t size`
 * - found, known: this library's structure of the same type, and its size in bytes
 *
 * Any thread. Errors: LS_EINVAL (`out` is NULL or its size is not set); *out is not written then.
 */
int ls_sized_give(void *out, const void *found, size_t known, const char *type, ls_error *err);

/* Checks that the caller's structure, which this library reads where it lies, has set its size and
 * no field that this library does not know. NULL is allowed. Any thread. Errors: LS_EINVAL. */
int ls_sized_check(const void *given, size_t known, const char *type, ls_error *err);

/* Checks a caller's host: ls_sized_check for ls_host. NULL is allowed. */
int ls_host_check(const ls_host *host, ls_error *err);

#endif
