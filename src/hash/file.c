/* SPDX-License-Identifier: MIT */
/* The SHA-256 of a file (hash.h). */
#include "base/error.h"
#include "base/plain_file.h"
#include "hash/hash.h"

#include <errno.h>
#include <unistd.h>

enum { PIECE = 16384 }; /* number of bytes that are read at once */

int ls_sha256_of_file(char hex[LS_SHA256_HEX], const char *path, const char *what, ls_error *err)
{
    uint8_t bytes[PIECE];
    char why[LS_REASON];
    ls_sha256 hash;
    uint64_t size;
    ssize_t n = 1;
    int fd, status = ls_open_to_read(&fd, &size, path, what, LS_EDATA, err);
    ls_sha256_init(&hash);
    while (status == LS_OK && n != 0) {
        n = read(fd, bytes, sizeof bytes);
        if (n > 0)
            ls_sha256_update(&hash, bytes, (size_t)n);
        else if (n < 0 && errno != EINTR)
            status = ls_fail(err, LS_EIO, "%.300s: cannot read: %s", path, ls_reason(why, errno));
    }
    if (fd >= 0)
        close(fd);
    ls_sha256_final_hex(&hash, hex);
    return status;
}
