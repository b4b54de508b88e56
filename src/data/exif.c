/* SPDX-License-Identifier: MIT */
/* Reads the orientation from EXIF data (EXIF 2.32, 4.6): a TIFF header, and a directory of entries
 * of 12 bytes, one of which is the orientation in which the camera was held. */
#include "data/image_kinds.h"

#include <string.h>

enum { ORIENTATION = 0x0112, SHORT = 3, ENTRY = 12, HEADER = 8 };

/* A block of EXIF data. */
typedef struct block {
    const uint8_t *bytes;
    size_t count;
    bool big_endian;
} block;

/* Reads the `n` bytes from offset `at` on as a number. Returns false if the block ends before
 * them. */
static bool read(const block *b, size_t at, size_t n, uint32_t *out)
{
    if (at > b->count || n > b->count - at)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out << 8 | b->bytes[at + (b->big_endian ? i : n - 1 - i)];
    return true;
}

int ls_exif_orientation(const uint8_t *exif, size_t count)
{
    uint32_t at, entries, tag, type, value;
    block b = {exif, count, false};
    if (count < HEADER || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0))
        return 1;
    b.big_endian = exif[0] == 'M';
    if (!read(&b, 4, 4, &at) || !read(&b, at, 2, &entries))
        return 1;
    for (size_t entry = (size_t)at + 2; entries > 0; entries--, entry += ENTRY) {
        if (!read(&b, entry, 2, &tag) || !read(&b, entry + 2, 2, &type) ||
            !read(&b, entry + 8, 2, &value))
            return 1;
        if (tag == ORIENTATION)
            return type == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
