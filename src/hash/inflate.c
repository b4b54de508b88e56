/* SPDX-License-Identifier: MIT */
#include "hash/inflate.h"

#include <stdint.h>
#include <zlib.h>

enum { PIECE = 1 << 30 }; /* zlib's lengths are unsigned ints */

bool ls_inflate(const void *from, size_t packed, void *to, size_t bytes)
{
    z_stream z = {0};
    int result = inflateInit2(&z, -15); /* a negative value: no header */
    if (result != Z_OK)
        return false;
    z.next_in = (uint8_t *)(uintptr_t)from;
    z.next_out = to;
    while (result == Z_OK) {
        const uInt in = packed < PIECE ? (uInt)packed : PIECE,
                   out = bytes < PIECE ? (uInt)bytes : PIECE;
        z.avail_in = in;
        z.avail_out = out;
        result = inflate(&z, Z_NO_FLUSH);
        packed -= in - z.avail_in;
        bytes -= out - z.avail_out;
        if (result == Z_OK && z.avail_in == in && z.avail_out == out)
            break;
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && packed == 0 && bytes == 0;
}
