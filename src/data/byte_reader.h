/* Reading the bytes of a file that may be compressed with gzip, straight into the caller's
 * memory.
 *
 * Whether a file is compressed is told by its content, not by its name. Every byte read is
 * hashed on the way, while it is still in the cache. Damage is noticed wherever it is: a stream
 * that ends early, a wrong check sum, bytes after the end. One thread at a time.
 */
#ifndef DATA_BYTE_READER_H
#define DATA_BYTE_READER_H

#include "hash/hash.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_byte_reader ls_byte_reader;

/* Opens a plain or gzip file; `path` is kept, not copied. Errors: LS_ENOENT (no such file,
 * nothing else), LS_EIO, LS_EDATA (a directory, a device, an empty file), LS_ENOMEM. */
int ls_byte_reader_open(ls_byte_reader **out, const char *path, const ls_host *host, ls_error *err);

/* The next `count` bytes. Errors: LS_EDATA when the file ends before, `what` being what the
 * bytes are, as in "expected `what`", or is damaged; LS_EIO; LS_ENOMEM. */
int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what,
                        ls_error *err);

/* Reads past `count` bytes, hashed all the same. Errors as ls_byte_reader_read. */
int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err);

/* Checks that the file ends here, and gives the SHA-256 of its decompressed bytes. Errors:
 * LS_EDATA for bytes that follow; LS_EIO. */
int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err);

/* Bytes read so far, and a bound on all bytes the file can hold (from its size, and deflate's
 * best ratio): what a header promises beyond it cannot be true. */
uint64_t ls_byte_reader_offset(const ls_byte_reader *r);
uint64_t ls_byte_reader_bound(const ls_byte_reader *r);

const char *ls_byte_reader_path(const ls_byte_reader *r);

/* NULL is allowed. */
void ls_byte_reader_close(ls_byte_reader *r);

#endif
