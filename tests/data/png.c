/* SPDX-License-Identifier: MIT */
#include "data/png.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

void png_put(png_bytes *p, const void *bytes, size_t count)
{
    if (count > sizeof p->bytes - p->count)
        abort();
    memcpy(p->bytes + p->count, bytes, count);
    p->count += count;
}

static void put_u32(png_bytes *p, uint32_t v)
{
    const uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    png_put(p, b, 4);
}

void png_put_chunk(png_bytes *p, const char *type, const void *data, size_t count)
{
    put_u32(p, (uint32_t)count);
    const size_t from = p->count;
    png_put(p, type, 4);
    png_put(p, data, count);
    put_u32(p, (uint32_t)crc32(0, p->bytes + from, (uInt)(p->count - from)));
}

png_bytes png_begin(uint32_t width, uint32_t height, int depth, int type, int interlaced)
{
    png_bytes p = {.count = 0}, header = {.count = 0};
    const uint8_t rest[5] = {(uint8_t)depth, (uint8_t)type, 0, 0, (uint8_t)interlaced};
    put_u32(&header, width);
    put_u32(&header, height);
    png_put(&header, rest, sizeof rest);
    png_put(&p, "\x89PNG\r\n\x1a\n", 8);
    png_put_chunk(&p, "IHDR", header.bytes, header.count);
    return p;
}

png_bytes png_make(uint32_t width, uint32_t height, int depth, int type, int interlaced,
                   const void *rows, size_t count, const char *palette)
{
    png_bytes p = png_begin(width, height, depth, type, interlaced);
    uint8_t packed[1024];
    uLongf length = sizeof packed;
    if (compress(packed, &length, rows, count) != Z_OK)
        abort();
    if (palette)
        png_put_chunk(&p, "PLTE", palette, strlen(palette));
    png_put_chunk(&p, "IDAT", packed, length / 2); /* in two IDAT chunks, which the format allows */
    png_put_chunk(&p, "IDAT", packed + length / 2, length - length / 2);
    png_put_chunk(&p, "IEND", "", 0);
    return p;
}
