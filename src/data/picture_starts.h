/* SPDX-License-Identifier: MIT */
/* With which bytes picture files begin. Decoders of pictures (room picture) and readers of tables
 * (room data) are in different libraries, so the bytes are in a header. */
#ifndef DATA_PICTURE_STARTS_H
#define DATA_PICTURE_STARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Formats that are read. */
#define LS_STARTS_PNG "\x89PNG"
#define LS_STARTS_JPEG "\xFF\xD8\xFF"
#define LS_STARTS_WEBP "RIFF"
#define LS_STARTS_WEBP_8 "WEBP" /* from the ninth byte on */

/* A format that is not read, but is named in messages. */
typedef struct ls_picture_start {
    size_t at; /* offset of `bytes` in the file */
    const char *bytes, *name;
    bool distinct; /* no table of text begins with these bytes */
} ls_picture_start;

static const ls_picture_start ls_picture_starts[] = {
    {0, "GIF8", "a GIF image", true},
    {0, "II*", "a TIFF image", true}, /* in the other byte order MM and a zero */
    {0, "MM", "a TIFF image", false},
    {4, "ftypavif", "an AVIF image", true},
    {4, "ftypavis", "an AVIF image", true},
    {4, "ftyphe", "a HEIF image (HEIC)", true},
    {4, "ftypmif1", "a HEIF image (HEIC)", true},
    {4, "ftypmsf1", "a HEIF image (HEIC)", true},
    {4, "JXL ", "a JPEG XL image", false},
    {0, "\xFF\x0A", "a JPEG XL image", true},
    {4, "jP  ", "a JPEG 2000 image", false},
    {0, "\xFF\x4F\xFF\x51", "a JPEG 2000 image", true},
    {0, "8BPS", "a Photoshop file", false},
    {0, "%PDF", "a PDF document", false},
    {0, "P1", "a PBM image", false},
    {0, "P2", "a PGM image in text (P2)", false},
    {0, "P3", "a PPM image in text (P3)", false},
    {0, "P4", "a PBM image (P4)", false},
    {0, "P7", "a PAM image (P7)", false},
    {0, "<svg", "an SVG drawing", false},
    {0, "<", "a web page", false},
};

enum { LS_PICTURE_STARTS = sizeof ls_picture_starts / sizeof *ls_picture_starts };

/* Returns whether a file of `n` bytes has the text `bytes` at an offset. */
static inline bool ls_has_at(const void *file, size_t n, size_t at, const char *bytes)
{
    const size_t length = strlen(bytes);
    return n >= at && n - at >= length && memcmp((const char *)file + at, bytes, length) == 0;
}

#endif
