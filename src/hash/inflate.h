/* SPDX-License-Identifier: MIT */
/* Decompresses deflate data (RFC 1951) that is completely in memory, such as a member of a ZIP
 * file. data/files.c reads files in the gzip format. */
#ifndef HASH_INFLATE_H
#define HASH_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

/* Decompresses the `packed` bytes at `from`, which have no zlib or gzip header, to exactly `bytes`
 * bytes at `to`. Returns false if the data is damaged, if it decompresses to another number of
 * bytes, or if there is no memory. Any thread. */
bool ls_inflate(const void *from, size_t packed, void *to, size_t bytes);

#endif
