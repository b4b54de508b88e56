/* Common parts of the targets for datasets: two files in memory that are opened as a dataset's, and
 * tables. */
#ifndef TESTS_FUZZ_FUZZ_DATASET_H
#define TESTS_FUZZ_FUZZ_DATASET_H

#include "data/dataset.h"
#include "fuzz/fuzz.h"

/* Bits of the switches. */
enum {
    FUZZ_GZIP_FIRST = 1,  /* compress the first file: its bytes are what inflates */
    FUZZ_GZIP_SECOND = 2, /* likewise the second */
    FUZZ_LIMIT_SHIFT = 2, /* two bits: the limit of training rows */
    FUZZ_LIMIT_MASK = 3
};

void fuzz_fill_pair(const fuzz_file file[2], const fuzz_pair *pair);

/* Whether the reader saw the bytes of file `i` as they stand in the input. */
int fuzz_is_plain(const fuzz_pair *pair, int i);

/* Checks a refusal: it begins with one of the files, or it is about the limit. */
void fuzz_check_data_refusal(int status, const ls_error *err, const fuzz_file file[2]);

/* Checks all rows of an accepted dataset against the bytes they came from (NULL: unknown), `step`
 * bytes from one row to the next. */
void fuzz_check_rows(const ls_dataset *ds, const uint8_t *images, size_t image_step,
                     const uint8_t *labels, size_t label_step);

/* Of a table that was accepted: every line has as many commas as the first one. Returns how many lines are not empty,
 * or 0 where there are quotes, in which commas and ends of lines may stand. */
size_t fuzz_check_commas(const uint8_t *data, size_t size);

void fuzz_check_finite(const float *values, size_t count);

#endif
