/* SPDX-License-Identifier: MIT */
/* Common parts of the fuzz targets.
 *
 * A target is one file with LLVMFuzzerTestOneInput. It passes the bytes to a reader and checks the
 * reader's promises: input that is refused has an error with a status, a name and a place; input
 * that is accepted means what its bytes say. A broken promise ends the process, so that a fuzzer
 * counts it as a crash. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

/* The target. `data` has exactly `size` bytes. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unless `kept`, prints the broken promise and aborts. */
void fuzz_check(int kept, const char *promise);

/* Checks the error of a refusal: its status, and one line of UTF-8 that begins with `name`. */
void fuzz_check_refusal(int status, const ls_error *err, const char *name);

/* Returns whether a message names the place in the file: "NAME:LINE:COLUMN:", "byte N", "offset
 * N". */
int fuzz_names_place(const char *text, const char *name);

/* Corrects the checksums of the chunks of a PNG file, because otherwise hardly any mutant would
 * pass them. */
void fuzz_mend_png(uint8_t *data, size_t size);

/* An unlinked file, with a path that readers can open. */
typedef struct fuzz_file {
    int fd;
    char name[16]; /* its name in FUZZ_FOLDER */
    char path[32];
} fuzz_file;

#define FUZZ_FOLDER "/proc/self/fd"

void fuzz_file_open(fuzz_file *f);
void fuzz_file_fill(const fuzz_file *f, const uint8_t *data, size_t size);
void fuzz_file_fill_gzip(const fuzz_file *f, const uint8_t *data, size_t size);

/* An input that encodes two files and some switches:
 *     byte 0     switches
 *     byte 1     size of the first file, little-endian; if it is too large, all bytes belong to it
 *     byte 3     the first file, then the second */
typedef struct fuzz_pair {
    unsigned switches;
    const uint8_t *data[2];
    size_t size[2];
} fuzz_pair;

/* Returns 0 if the input is too short. */
int fuzz_split(fuzz_pair *out, const uint8_t *data, size_t size);

#endif
