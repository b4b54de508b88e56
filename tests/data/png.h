/* SPDX-License-Identifier: MIT */
/* Creates PNG files in memory. */
#ifndef TESTS_DATA_PNG_H
#define TESTS_DATA_PNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct png_bytes {
    uint8_t bytes[2048];
    size_t count;
} png_bytes;

/* Append bytes, or a chunk with its checksum. */
void png_put(png_bytes *p, const void *bytes, size_t count);
void png_put_chunk(png_bytes *p, const char *type, const void *data, size_t count);

/* Begins a file: returns the PNG signature and the header chunk. */
png_bytes png_begin(uint32_t width, uint32_t height, int depth, int type, int interlaced);

/* Returns a complete file. `rows`: `count` bytes of uncompressed rows, each with its filter byte
 * before the pixels. `palette`: colours of three bytes each, or NULL. */
png_bytes png_make(uint32_t width, uint32_t height, int depth, int type, int interlaced,
                   const void *rows, size_t count, const char *palette);

#endif
