/* SPDX-License-Identifier: MIT */
/* Reads a file from front to back while another thread already reads, decompresses and hashes the
 * bytes that follow. A file of less than 64 KiB is read without another thread.
 *
 *     ls_read_ahead *r;
 *     int status = ls_read_ahead_open(&r, path, host, err);
 *     do
 *         status = ls_read_ahead_some(r, out, count, &got, err);   // uses got bytes at out
 *     while (status == LS_OK && got > 0);
 *     status = ls_read_ahead_end(r, sha256, err);
 *     ls_read_ahead_close(r);
 *
 * The caller reads from one of two blocks while the other thread fills the other. For the memory
 * order see ls_beside (beside.h), by which that thread is started and joined for each block. Only
 * one thread may use an ls_read_ahead. */
#ifndef DATA_READ_AHEAD_H
#define DATA_READ_AHEAD_H

#include "data/kinds.h"

typedef struct ls_read_ahead ls_read_ahead;

/* Opens a plain or gzip file. `path` is not copied. Errors: those of ls_byte_reader_open. */
int ls_read_ahead_open(ls_read_ahead **out, const char *path, const ls_host *host, ls_error *err);
void ls_read_ahead_close(ls_read_ahead *r); /* NULL is allowed */

/* Reads up to `count` bytes into `out` and stores their number in *got, which is 0 only at the end
 * of the file. Errors: those of ls_byte_reader_some. */
int ls_read_ahead_some(ls_read_ahead *r, void *out, size_t count, size_t *got, ls_error *err);

/* Must be called after the last byte was read. Stores the SHA-256 of the decompressed file. Errors:
 * those of ls_byte_reader_end. */
int ls_read_ahead_end(ls_read_ahead *r, char sha256[LS_SHA256_HEX], ls_error *err);

#endif
