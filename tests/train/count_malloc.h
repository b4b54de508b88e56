/* SPDX-License-Identifier: MIT */
/* Counts all calls of the C library's allocator, from any thread and any library of the process.
 * Replaces the allocator's functions by functions that count. Needs glibc. */
#ifndef TESTS_TRAIN_COUNT_MALLOC_H
#define TESTS_TRAIN_COUNT_MALLOC_H

/* Returns the number of calls of malloc, calloc, realloc, free and the aligned variants since the
 * process began. */
long count_malloc_calls(void);

#endif
