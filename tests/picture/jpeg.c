/* SPDX-License-Identifier: MIT */
#include "picture/jpeg.h"

#include <stdio.h>
#include <stdlib.h>
/* libjpeg's header needs stdio.h before it. */
#include <jpeglib.h>

unsigned char *jpeg_make(int width, int height, int channels, size_t *count)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    JSAMPROW row = malloc((size_t)width * (size_t)channels);
    if (!row)
        abort();
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, &length);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = channels;
    c.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        for (int i = 0; i < width * channels; i++)
            row[i] = (JSAMPLE)(7 * i + 11 * y);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *count = length;
    return bytes;
}
