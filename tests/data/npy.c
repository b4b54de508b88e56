/* SPDX-License-Identifier: MIT */
#include "data/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void bytes_add(bytes *b, const void *from, size_t count)
{
    assert_true(b->count + count <= sizeof b->at);
    memcpy(b->at + b->count, from, count);
    b->count += count;
}

bytes bytes_npy(const char *dictionary, const void *data, size_t count)
{
    bytes b = {.count = 0};
    char header[128];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
    assert_true(strlen(dictionary) < 117);
    memcpy(header + 10, dictionary, strlen(dictionary));
    header[127] = '\n';
    bytes_add(&b, header, 128);
    bytes_add(&b, data, count);
    return b;
}

void bytes_put(scratch *s, const char *name, bytes b)
{
    scratch_file(s, name, b.at, b.count);
}

const uint8_t npy_pixels[24] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

void close_splits(ls_dataset *const split[2])
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}
