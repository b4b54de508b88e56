#include "data/byte_reader.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    INPUT_BYTES = 64 << 10,
    STEP_BYTES = 256 << 10, /* decompressed at a time, to be hashed out of the cache */
    MAX_RATIO = 1032        /* deflate spends at least 2 bits on 258 bytes */
};

struct ls_byte_reader {
    const ls_host *host;
    const char *path;
    int fd;
    int gzip;
    int stream_ended;      /* the gzip member is complete */
    uint64_t file_bytes;   /* on disk */
    uint64_t offset;       /* decompressed bytes handed out */
    uint64_t input_offset; /* bytes of the file fetched so far */
    const uint8_t *next;   /* of the input */
    size_t left;
    z_stream z;
    ls_sha256 hash;
    uint8_t input[INPUT_BYTES];
    uint8_t scrap[INPUT_BYTES]; /* where skipped bytes go */
};

/* ---- opening ---- */

static int fail_io(const ls_byte_reader *r, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO, "%s: cannot be read: %s", r->path, ls_reason(why, errno));
}

static void *z_alloc(void *host, unsigned count, unsigned size)
{
    return ls_alloc_array(host, count, size);
}

static void z_free(void *host, void *memory)
{
    ls_free(host, memory);
}

static int open_file(ls_byte_reader *r, ls_error *err)
{
    int status = ls_open_to_read(&r->fd, &r->file_bytes, r->path, "a data file", LS_EDATA, err);
    if (status == LS_OK && r->file_bytes == 0)
        return ls_fail(err, LS_EDATA, "%s: expected data, found an empty file; fetch it again",
                       r->path);
    return status;
}

/* Fetches more input when there is none left; the end of the file leaves `left` at 0. */
static int fill(ls_byte_reader *r, ls_error *err)
{
    ssize_t n;
    if (r->left > 0)
        return LS_OK;
    do
        n = read(r->fd, r->input, sizeof r->input);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail_io(r, err);
    r->next = r->input;
    r->left = (size_t)n;
    r->input_offset += (size_t)n;
    return LS_OK;
}

static int detect_gzip(ls_byte_reader *r, ls_error *err)
{
    int rc = fill(r, err);
    if (rc != LS_OK || r->left < 2 || r->input[0] != 0x1F || r->input[1] != 0x8B)
        return rc;
    r->z.zalloc = z_alloc;
    r->z.zfree = z_free;
    r->z.opaque = (void *)r->host;
    if (inflateInit2(&r->z, 15 + 16) != Z_OK) /* the largest window, gzip's framing only */
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", r->path);
    r->gzip = 1;
    return LS_OK;
}

int ls_byte_reader_open(ls_byte_reader **out, const char *path, const ls_host *host, ls_error *err)
{
    *out = NULL;
    ls_byte_reader *r = ls_alloc(host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", path);
    r->host = host;
    r->path = path;
    r->fd = -1;
    ls_sha256_init(&r->hash);
    int rc = open_file(r, err);
    if (rc == LS_OK)
        rc = detect_gzip(r, err);
    if (rc == LS_OK)
        *out = r;
    else
        ls_byte_reader_close(r);
    return rc;
}

void ls_byte_reader_close(ls_byte_reader *r)
{
    if (!r)
        return;
    if (r->gzip)
        inflateEnd(&r->z);
    if (r->fd >= 0)
        close(r->fd);
    ls_free(r->host, r);
}

/* ---- reading ---- */

static int fail_gzip(const ls_byte_reader *r, int z_status, ls_error *err)
{
    if (z_status == Z_MEM_ERROR)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", r->path);
    return ls_fail(err, LS_EDATA,
                   "%s: expected gzip data, found damage near compressed byte %llu (%s); fetch the "
                   "file again",
                   r->path, (unsigned long long)(r->input_offset - r->left),
                   r->z.msg ? r->z.msg : "the stream needs a dictionary");
}

static int fail_truncated_gzip(const ls_byte_reader *r, ls_error *err)
{
    return ls_fail(err, LS_EDATA,
                   "%s: expected more compressed data, found the end of the file at byte %llu; the "
                   "gzip file is truncated, fetch it again",
                   r->path, (unsigned long long)r->input_offset);
}

/* After the end of a gzip member: another one may follow, which goes on where this one ended. */
static int end_member(ls_byte_reader *r, ls_error *err)
{
    int rc = fill(r, err);
    if (rc != LS_OK)
        return rc;
    if (r->left > 0 && *r->next == 0x1F)
        return inflateReset(&r->z) == Z_OK ? LS_OK : fail_gzip(r, Z_DATA_ERROR, err);
    r->stream_ended = 1;
    return LS_OK;
}

/* Up to `count` ≥ 1 decompressed bytes, 0 at the end of the stream. */
static int inflate_some(ls_byte_reader *r, uint8_t *out, size_t count, size_t *got, ls_error *err)
{
    r->z.next_out = out;
    r->z.avail_out = (unsigned)count;
    while (!r->stream_ended && r->z.avail_out > 0) {
        int rc = fill(r, err);
        if (rc != LS_OK)
            return rc;
        if (r->left == 0)
            return fail_truncated_gzip(r, err);
        r->z.next_in = (uint8_t *)r->next;
        r->z.avail_in = (unsigned)r->left;
        int z = inflate(&r->z, Z_NO_FLUSH);
        r->next = r->z.next_in;
        r->left = r->z.avail_in;
        if (z == Z_STREAM_END)
            rc = end_member(r, err);
        else if (z != Z_OK)
            rc = fail_gzip(r, z, err);
        if (rc != LS_OK)
            return rc;
    }
    *got = count - r->z.avail_out;
    return LS_OK;
}

static int copy_some(ls_byte_reader *r, uint8_t *out, size_t count, size_t *got, ls_error *err)
{
    int rc = fill(r, err);
    if (rc != LS_OK)
        return rc;
    *got = count < r->left ? count : r->left;
    memcpy(out, r->next, *got);
    r->next += *got;
    r->left -= *got;
    return LS_OK;
}

int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what, ls_error *err)
{
    uint8_t *to = out;
    while (count > 0) {
        size_t want = count < STEP_BYTES ? count : STEP_BYTES;
        size_t got = 0;
        int rc = r->gzip ? inflate_some(r, to, want, &got, err) : copy_some(r, to, want, &got, err);
        if (rc != LS_OK)
            return rc;
        if (got == 0)
            return ls_fail(err, LS_EDATA,
                           "%s: expected %s, found the end of the data at byte %llu; fetch the "
                           "file again",
                           r->path, what, (unsigned long long)r->offset);
        ls_sha256_update(&r->hash, to, got);
        r->offset += got;
        to += got;
        count -= got;
    }
    return LS_OK;
}

int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err)
{
    int rc = LS_OK;
    while (count > 0 && rc == LS_OK) {
        size_t n = count < sizeof r->scrap ? (size_t)count : sizeof r->scrap;
        rc = ls_byte_reader_read(r, r->scrap, n, what, err);
        count -= n;
    }
    return rc;
}

int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err)
{
    uint64_t end = r->offset;
    uint8_t byte;
    size_t got = 0;
    int rc = r->gzip ? inflate_some(r, &byte, 1, &got, err) : copy_some(r, &byte, 1, &got, err);
    if (rc != LS_OK)
        return rc;
    if (got > 0)
        return ls_fail(err, LS_EDATA,
                       "%s: expected the end of the data at byte %llu, found more; fetch the file "
                       "again",
                       r->path, (unsigned long long)end);
    rc = fill(r, err);
    if (rc != LS_OK)
        return rc;
    if (r->left > 0)
        return ls_fail(err, LS_EDATA,
                       "%s: expected the end of the file at compressed byte %llu, found more; "
                       "fetch the file again",
                       r->path, (unsigned long long)(r->input_offset - r->left));
    ls_sha256_final_hex(&r->hash, sha256);
    return LS_OK;
}

/* ---- asking ---- */

uint64_t ls_byte_reader_offset(const ls_byte_reader *r)
{
    return r->offset;
}

uint64_t ls_byte_reader_bound(const ls_byte_reader *r)
{
    if (!r->gzip)
        return r->file_bytes;
    return r->file_bytes > UINT64_MAX / MAX_RATIO ? UINT64_MAX : r->file_bytes * MAX_RATIO;
}

const char *ls_byte_reader_path(const ls_byte_reader *r)
{
    return r->path;
}
