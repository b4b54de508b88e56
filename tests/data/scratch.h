/* SPDX-License-Identifier: MIT */
/* A temporary directory for a test, and files in it. Every function asserts that it succeeded. */
#ifndef TESTS_DATA_SCRATCH_H
#define TESTS_DATA_SCRATCH_H

#include <stddef.h>

typedef struct scratch {
    char directory[256];
    char path[16][512]; /* results of scratch_path, which uses the entries in turn */
    int next;
} scratch;

/* Create an empty directory below $TMPDIR or /tmp, and remove it with everything in it. */
void scratch_begin(scratch *s);
void scratch_end(scratch *s);

/* Set-up and tear-down functions of a cmocka test; *state is the test's own scratch. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

/* Returns "DIRECTORY/name", which is valid during the next fifteen calls. */
const char *scratch_path(scratch *s, const char *name);

void scratch_directory(scratch *s, const char *name);
void scratch_file(scratch *s, const char *name, const void *bytes, size_t count);

/* Does the same as scratch_file, and compresses the bytes with gzip. */
void scratch_gzip(scratch *s, const char *name, const void *bytes, size_t count);

/* Creates a symbolic link to itself: opening it fails with ELOOP, also for root. */
void scratch_loop(scratch *s, const char *name);

/* From this call on the process cannot write files of more than `bytes` bytes; 0: no limit. */
void scratch_limit(unsigned long bytes);

#endif
