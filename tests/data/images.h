/* SPDX-License-Identifier: MIT */
/* Common parts of the tests of images: writes an image file to a temporary directory, and reads its
 * pixels. Each source file that includes this header has its own copy of the functions and
 * variables. */
#ifndef TESTS_DATA_IMAGES_H
#define TESTS_DATA_IMAGES_H

#include "data/image.h"
#include "data/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static scratch room;
typedef struct shape {
    int c, h, w;
} shape;
__attribute__((unused)) static const shape grey_2x3 = {1, 2, 3}, colour_2x3 = {3, 2, 3};
static const char *path = "image";
static ls_image_memory kept; /* reused by all tests */

static inline int enter(void **state)
{
    (void)state;
    scratch_begin(&room);
    return chdir(room.directory);
}

static inline int leave(void **state)
{
    (void)state;
    scratch_end(&room);
    ls_image_memory_free(&kept, NULL);
    return chdir("/");
}

static inline void write_file(const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static inline int read_bytes(uint8_t *out, const shape *s, const void *bytes, size_t count,
                             ls_error *err)
{
    write_file(bytes, count);
    return ls_image_read(out, s->c, s->h, s->w, path, NULL, err);
}

#define READ(out, shape, literal, err) read_bytes(out, shape, literal, sizeof(literal) - 1, err)

static inline int draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 8);
}

#endif
