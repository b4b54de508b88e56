/* Deflated bytes (RFC 1951), whole, in memory: as in members of ZIP files. Files with gzip's framing are data/files.c's. */
#ifndef HASH_INFLATE_H
#define HASH_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

/* The `packed` bytes at `from`, without a header → the `bytes` bytes at `to`. False: they are damaged, or make fewer or
 * more bytes, or there is no memory. Any thread. */
bool ls_inflate(const void *from, size_t packed, void *to, size_t bytes);

#endif
