/* SPDX-License-Identifier: MIT */
/* Words that depend on a number, for messages. */
#ifndef BASE_PLURAL_H
#define BASE_PLURAL_H

#include <stdint.h>

/* Returns `one` if n is 1, else `many`. Any thread. */
static inline const char *ls_plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
