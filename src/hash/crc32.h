/* CRC-32, the one of zlib, gzip and PNG: quick enough for whole arenas, and good against accidents
 * only. Any thread; never fails; allocates nothing. */
#ifndef HASH_CRC32_H
#define HASH_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `count` bytes that follow those whose checksum is `seed`; 0 for the first. */
uint32_t ls_crc32(uint32_t seed, const void *bytes, size_t count);

#endif
