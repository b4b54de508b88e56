/* SPDX-License-Identifier: MIT */
/* Common parts of the targets for datasets: two files in memory that are opened as a dataset's, and
 * tables. */
#ifndef TESTS_FUZZ_FUZZ_DATASET_H
#define TESTS_FUZZ_FUZZ_DATASET_H

#include "data/dataset.h"
#include "fuzz/fuzz.h"

/* Bits of the switches. */
enum {
    FUZZ_GZIP_FIRST = 1,  /* compress the first file: its bytes are the decompressed content */
    FUZZ_GZIP_SECOND = 2, /* compress the second file */
    FUZZ_LIMIT_SHIFT = 2, /* two bits: the limit of training rows */
    FUZZ_LIMIT_MASK = 3
};

void fuzz_fill_pair(const fuzz_file file[2], const fuzz_pair *pair);

/* Returns whether the reader saw the bytes of file `i` as they are in the input. */
int fuzz_is_plain(const fuzz_pair *pair, int i);

/* Checks a refusal: its message begins with the name of one of the files, or is about the limit. */
void fuzz_check_data_refusal(int status, const ls_error *err, const fuzz_file file[2]);

/* Checks all rows of an accepted dataset against the bytes from which they came (NULL: unknown),
 * `step` bytes from one row to the next. */
void fuzz_check_rows(const ls_dataset *ds, const uint8_t *images, size_t image_step,
                     const uint8_t *labels, size_t label_step);

/* Checks that every line of an accepted table has as many commas as the first one. Returns the
 * number of lines that are not empty, or 0 if there are quotes, within which commas and line ends
 * are allowed. */
size_t fuzz_check_commas(const uint8_t *data, size_t size);

void fuzz_check_finite(const float *values, size_t count);

#endif
