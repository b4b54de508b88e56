/* SPDX-License-Identifier: MIT */
/* Creates JPEG files for tests with libjpeg. */
#ifndef TESTS_DATA_IMAGE_JPEGS_H
#define TESTS_DATA_IMAGE_JPEGS_H

#include "data/images.h"
#include "runner.h"

#include <math.h>
#include <stdlib.h>
/* libjpeg's header needs stdio.h first. */
#include <jpeglib.h>

typedef uint8_t sample_at(int x, int y, int k);

static inline uint8_t edges(int x, int y, int k)
{
    return (uint8_t)((x < 8 ? 40 + 60 * k : 200 - 50 * k) + x / 16 * 7 + y / 8 * 11);
}

/* Encodes the pixels that `of` returns as a JPEG file in memory, in grey or in colours, progressive
 * or not. */
static inline size_t write_jpeg(unsigned char **bytes, sample_at *of, int width, int height,
                                int colours, int progressive)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned long count = 0;
    uint8_t line[3 * 200];
    JSAMPROW row = line;
    *bytes = NULL;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, bytes, &count);
    c.image_width = (unsigned)width;
    c.image_height = (unsigned)height;
    c.input_components = colours ? 3 : 1;
    c.in_color_space = colours ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 100, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            for (int k = 0; k < c.input_components; k++)
                line[x * c.input_components + k] = of(x, y, k);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return count;
}

static inline size_t make_jpeg_of(unsigned char **bytes, int width, int height, int colours,
                                  int progressive)
{
    return write_jpeg(bytes, edges, width, height, colours, progressive);
}

static inline size_t make_jpeg(unsigned char **bytes, int colours, int progressive)
{
    return make_jpeg_of(bytes, 16, 8, colours, progressive);
}

#endif
