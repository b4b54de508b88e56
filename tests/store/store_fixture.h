/* SPDX-License-Identifier: MIT */
/* Common parts of the tests of src/store. Every function asserts that it succeeded. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include "data/scratch.h"
#include "store/durable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails the test with the message unless `rc` is LS_OK. */
void must(int rc, const ls_error *err);

/* Fails the test unless `rc` is `want` and the message contains `words`. */
void refused(int rc, int want, const ls_error *err, const char *words);

int exists(const char *path);

/* Returns a file's bytes followed by a NUL; the caller frees them with free(). */
char *read_whole(const char *path, size_t *size);

/* Fails the test unless the directory's names, in strcmp's order and separated by spaces, are
 * these. */
void assert_names(const char *directory, const char *want);

/* Changes the byte at `offset` of a file; a negative offset counts from its end. */
void flip(const char *path, long offset);

/* An allocator that counts and fails. */
typedef struct counting {
    ls_host host;
    long live;
    long allocations;
    long fail_at; /* number, from 1, of the allocation that fails; 0: none */
} counting;

void counting_init(counting *c);

#endif
