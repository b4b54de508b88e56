/* SPDX-License-Identifier: MIT */
/* Creates .npy files in memory, byte by byte, for tests. */
#ifndef TESTS_DATA_NPY_H
#define TESTS_DATA_NPY_H

#include "data/dataset.h"
#include "data/scratch.h"

#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
    uint8_t at[8192];
    size_t count;
} bytes;

void bytes_add(bytes *b, const void *from, size_t count);

/* Returns a file as numpy.save writes it, with a header of 128 bytes: the dictionary's text, then
 * `count` bytes of numbers. */
bytes bytes_npy(const char *dictionary, const void *data, size_t count);

void bytes_put(scratch *s, const char *name, bytes b);

/* The numbers 1, 2, … 24: pixels for rows, so that no two pixels are equal. */
extern const uint8_t npy_pixels[24];

/* Closes both splits of a dataset. */
void close_splits(ls_dataset *const split[2]);

#endif
