/* SPDX-License-Identifier: MIT */
/* Creates JPEG files in memory: a gradient of colours. */
#ifndef TESTS_PICTURE_JPEG_H
#define TESTS_PICTURE_JPEG_H

#include <stddef.h>

/* Returns the bytes of a file, allocated by malloc. channels 1: grey; 3: colours; 4: CMYK. */
unsigned char *jpeg_make(int width, int height, int channels, size_t *count);

#endif
