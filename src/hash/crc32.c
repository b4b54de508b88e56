#include "hash/crc32.h"

#include <zlib.h>

uint32_t ls_crc32(uint32_t seed, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    uLong crc = seed;
    while (count > 0) { /* zlib's length is an unsigned int */
        uInt part = count < 1u << 30 ? (uInt)count : 1u << 30;
        crc = crc32(crc, next, part);
        next += part;
        count -= part;
    }
    return (uint32_t)crc;
}
