/* Creates files of arrays byte by byte. */
#ifndef TESTS_DATA_NPY_H
#define TESTS_DATA_NPY_H

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

#endif
