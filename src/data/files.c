/* SPDX-License-Identifier: MIT */
/* Finds the files of a dataset, and reads their bytes, which may be compressed. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "data/beside.h"
#include "data/kinds.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- finding --------------------------------------------------------------------------------- */

char *ls_data_path(const ls_opening *o, const char *file)
{
    char path[LS_PATH_BYTES];
    const bool below = o->spec->path && file[0] != '/';
    return ls_strdup(o->host, below ? ls_path_join(path, o->spec->path, file) : file);
}

/* Returns whether there is a file or a directory at `path`, readable or not. Opening it later
 * reports why it is not readable. */
static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Looks for the file `name` or `name`.gz in `directory`, and in the folder `directory`/`name`,
 * which some archives contain. Stores the path of the file in `path` and returns true if there is
 * one. */
static bool find_named(char path[LS_PATH_BYTES], const char *directory, const char *name)
{
    char gz[64], inner[LS_PATH_BYTES];
    snprintf(gz, sizeof gz, "%s.gz", name);
    if (!exists(ls_path_join(path, directory, name)))
        return exists(ls_path_join(path, directory, gz));
    if (ls_is_directory(path) &&
        (exists(ls_path_join(inner, path, name)) || exists(ls_path_join(inner, path, gz))))
        memcpy(path, inner, sizeof inner);
    return true;
}

/* Sets *out to the path of the file `name` in `directory`; *out stays NULL if there is no such
 * file. The name of an IDX file may have a dot in place of the dash: "train-images.idx3-ubyte". */
static int find_file(char **out, const char *directory, const char *name, const ls_opening *o)
{
    char path[LS_PATH_BYTES], dotted[64];
    snprintf(dotted, sizeof dotted, "%s", name);
    char *dash = strstr(dotted, "-idx");
    if (dash)
        *dash = '.';
    if (!find_named(path, directory, name) && !(dash && find_named(path, directory, dotted)))
        return LS_OK;
    *out = ls_strdup(o->host, path);
    return *out ? LS_OK : ls_fail(o->err, LS_ENOMEM, "%s: out of memory", directory);
}

/* Looks for all files in one directory. Fails if the directory contains the first file of the set
 * but not all of them. */
static int try_directory(ls_located *p, const ls_file_set *files, const char *directory,
                         const ls_opening *o)
{
    for (int i = 0; i < files->count; i++) {
        int status = find_file(&p->file[i], directory, files->name[i], o);
        if (status || (i == 0 && !p->file[0]))
            return status;
        if (!p->file[i])
            return ls_fail(o->err, LS_ENOENT,
                           "%s: no %s[.gz] beside %s; the dataset is incomplete, fetch it again",
                           directory, files->name[i], files->name[0]);
    }
    p->directory = ls_strdup(o->host, directory);
    return p->directory ? LS_OK : ls_fail(o->err, LS_ENOMEM, "%s: out of memory", directory);
}

/* Appends to `text`, a buffer of `size` bytes. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format,
                                                      ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* Reports missing files. The remedy comes first because a long list of directories is truncated at
 * its end. */
static int fail_not_found(const ls_file_set *files, const ls_opening *o)
{
    const ls_dataset_spec *spec = o->spec;
    char text[LS_ERROR_TEXT] = "";
    add(text, sizeof text, "%s not found; ", o->kind->about.name);
    if (files->remedy)
        add(text, sizeof text, "%s, ", files->remedy);
    add(text, sizeof text,
        "name the directory of the files with --set data.path=DIR, or try --set "
        "data.name=synthetic; no %s[.gz] in ",
        files->name[0]);
    if (spec->path)
        add(text, sizeof text, "%s", spec->path);
    for (size_t i = 0; !spec->path && i < spec->search_count; i++)
        add(text, sizeof text, "%s%s", i > 0 ? ", " : "", spec->search[i]);
    if (!spec->path && spec->search_count == 0)
        add(text, sizeof text, "any directory, as none was to be searched");
    else if (!spec->path)
        add(text, sizeof text, " (each also as DIR/%s and DIR/%s)", files->folders[0],
            files->folders[1]);
    return ls_because(o->err, ls_fail(o->err, LS_ENOENT, "%s", text), LS_REASON_NO_FILES);
}

/* Looks for the files in a directory and in the usual folders below it, such as "MNIST/raw", and
 * "raw" if the directory is MNIST itself. `itself_first`: looks in the directory before the
 * folders. */
static int try_around(ls_located *out, const ls_file_set *files, const char *directory,
                      bool itself_first, const ls_opening *o)
{
    const char *slash = strrchr(files->folders[1], '/');
    const char *const inner[] = {files->folders[0], files->folders[1],
                                 slash ? slash + 1 : files->folders[1]};
    char path[LS_PATH_BYTES];
    int status = itself_first ? try_directory(out, files, directory, o) : LS_OK;
    for (int i = 0; status == LS_OK && !out->directory && i < (itself_first ? 3 : 2); i++)
        status = try_directory(out, files, ls_path_join(path, directory, inner[i]), o);
    return status || out->directory || itself_first ? status
                                                    : try_directory(out, files, directory, o);
}

/* Looks for the files at spec->path, which must be a directory. */
static int try_path(ls_located *out, const ls_file_set *files, const ls_opening *o)
{
    struct stat st;
    const char *path = o->spec->path;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return ls_dataset_refuse(
            o, "data.path", "expected a directory, found the file %s; name the directory it is in",
            path);
    return try_around(out, files, path, true, o);
}

int ls_locate(ls_located *out, const ls_file_set *files, const ls_opening *o)
{
    const ls_dataset_spec *spec = o->spec;
    *out = (ls_located){0};
    int status = spec->path ? try_path(out, files, o) : LS_OK;
    for (size_t i = 0; !spec->path && status == LS_OK && !out->directory && i < spec->search_count;
         i++)
        status = try_around(out, files, spec->search[i], false, o);
    return status || out->directory ? status : fail_not_found(files, o);
}

void ls_located_free(ls_located *located, const ls_host *host)
{
    for (int i = 0; i < LS_FILES_MAX; i++)
        ls_free(host, located->file[i]);
    ls_free(host, located->directory);
    *located = (ls_located){0};
}

enum {
    INPUT_BYTES = 64 << 10,
    /* bytes that are decompressed and then hashed at a time, few enough to stay in the cache */
    STEP_BYTES = 256 << 10,
    LONG_READ = 16 << 20, /* reads of at least so many bytes are hashed by another thread */
    MAX_RATIO = 1032      /* deflate needs at least 2 bits for 258 bytes */
};

/* A file that is being read. */
struct ls_byte_reader {
    const ls_host *host;
    const char *path;
    int fd;
    bool gzip;
    bool hashed;           /* the SHA-256 is computed */
    bool stream_ended;     /* the gzip stream is complete */
    uint64_t file_bytes;   /* size on disk */
    uint64_t offset;       /* number of decompressed bytes that the caller has received */
    uint64_t input_offset; /* number of bytes of the file read so far */
    const uint8_t *next;   /* unused part of `input`, of `left` bytes */
    size_t left;
    z_stream z;
    ls_sha256 hash;
    uint8_t input[INPUT_BYTES];
    uint8_t scrap[INPUT_BYTES]; /* buffer for skipped bytes */
};

/* ---- reading: opening a file ----------------------------------------------------------------- */

static void *z_alloc(void *host, unsigned count, unsigned size)
{
    return ls_alloc_array(host, count, size);
}

static void z_free(void *host, void *memory)
{
    ls_free(host, memory);
}

/* Reads more of the file into `input` if `input` is used up. At the end of the file `left` stays
 * 0. */
static int fill(ls_byte_reader *r, ls_error *err)
{
    char why[LS_REASON];
    ssize_t n;
    if (r->left > 0)
        return LS_OK;
    do
        n = read(r->fd, r->input, sizeof r->input);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return ls_fail(err, LS_EIO, "%s: cannot be read: %s", r->path, ls_reason(why, errno));
    r->next = r->input;
    r->left = (size_t)n;
    r->input_offset += (size_t)n;
    return LS_OK;
}

static int detect_gzip(ls_byte_reader *r, ls_error *err)
{
    int status = fill(r, err);
    if (status || r->left < 2 || r->input[0] != 0x1F || r->input[1] != 0x8B)
        return status;
    r->z.zalloc = z_alloc;
    r->z.zfree = z_free;
    r->z.opaque = (void *)r->host;
    if (inflateInit2(&r->z, 15 + 16) != Z_OK) /* largest window, gzip framing only */
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", r->path);
    r->gzip = true;
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
    r->hashed = true;
    ls_sha256_init(&r->hash);
    int status = ls_open_to_read(&r->fd, &r->file_bytes, path, "a data file", LS_EDATA, err);
    if (status == LS_OK && r->file_bytes == 0)
        status = ls_fail(err, LS_EDATA,
                         "%s: expected data, found an empty file; save or fetch it again", path);
    if (status == LS_OK)
        status = detect_gzip(r, err);
    if (status == LS_OK)
        *out = r;
    else
        ls_byte_reader_close(r);
    return status;
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

/* ---- reading: bytes -------------------------------------------------------------------------- */

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

/* Handles the end of a gzip member. If another member follows, its data continues that of this
 * one. */
static int end_member(ls_byte_reader *r, ls_error *err)
{
    int status = fill(r, err);
    if (status)
        return status;
    if (r->left > 0 && *r->next == 0x1F)
        return inflateReset(&r->z) == Z_OK ? LS_OK : fail_gzip(r, Z_DATA_ERROR, err);
    r->stream_ended = true;
    return LS_OK;
}

/* Decompresses up to `count` bytes, at least 1, and stores their number in *got, which is 0 only at
 * the end of the stream. */
static int inflate_some(ls_byte_reader *r, uint8_t *out, size_t count, size_t *got, ls_error *err)
{
    r->z.next_out = out;
    r->z.avail_out = (unsigned)count;
    while (!r->stream_ended && r->z.avail_out > 0) {
        int status = fill(r, err);
        if (status)
            return status;
        if (r->left == 0)
            return ls_fail(err, LS_EDATA,
                           "%s: expected more compressed data, found the end of the file at byte "
                           "%llu; the gzip file is truncated, fetch it again",
                           r->path, (unsigned long long)r->input_offset);
        r->z.next_in = (uint8_t *)r->next;
        r->z.avail_in = (unsigned)r->left;
        int z = inflate(&r->z, Z_NO_FLUSH);
        r->next = r->z.next_in;
        r->left = r->z.avail_in;
        if (z == Z_STREAM_END)
            status = end_member(r, err);
        else if (z != Z_OK)
            status = fail_gzip(r, z, err);
        if (status)
            return status;
    }
    *got = count - r->z.avail_out;
    return LS_OK;
}

static int copy_some(ls_byte_reader *r, uint8_t *out, size_t count, size_t *got, ls_error *err)
{
    int status = fill(r, err);
    if (status)
        return status;
    *got = count < r->left ? count : r->left;
    memcpy(out, r->next, *got);
    r->next += *got;
    r->left -= *got;
    return LS_OK;
}

static int read_some(ls_byte_reader *r, uint8_t *out, size_t count, size_t *got, ls_error *err)
{
    return r->gzip ? inflate_some(r, out, count, got, err) : copy_some(r, out, count, got, err);
}

void ls_byte_reader_disable_hash(ls_byte_reader *r)
{
    r->hashed = false;
}

/* Reads `count` bytes. If `behind` is NULL, this function also hashes them, unless hashing is off.
 * Otherwise it reports them to the hashing thread `behind`. */
static int read_all(ls_byte_reader *r, uint8_t *to, size_t count, const char *what,
                    ls_hash_behind *behind, ls_error *err)
{
    const uint8_t *const start = to;
    while (count > 0) {
        size_t want = count < STEP_BYTES ? count : STEP_BYTES;
        size_t got = 0;
        int status = read_some(r, to, want, &got, err);
        if (status)
            return status;
        if (got == 0)
            return ls_fail(err, LS_EDATA,
                           "%s: expected %s, found the end of the data at byte %llu; fetch the "
                           "file again",
                           r->path, what, (unsigned long long)r->offset);
        if (behind)
            ls_hash_behind_reach(behind, (size_t)(to - start) + got);
        else if (r->hashed)
            ls_sha256_update(&r->hash, to, got);
        r->offset += got;
        to += got;
        count -= got;
    }
    return LS_OK;
}

int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what, ls_error *err)
{
    ls_hash_behind behind;
    if (count < LONG_READ || !r->hashed)
        return read_all(r, out, count, what, NULL, err);
    ls_hash_behind_begin(&behind, &r->hash, out);
    int status = read_all(r, out, count, what, &behind, err);
    ls_hash_behind_end(&behind);
    return status;
}

int ls_byte_reader_some(ls_byte_reader *r, void *out, size_t count, size_t *got, ls_error *err)
{
    int status = read_some(r, out, count < STEP_BYTES ? count : STEP_BYTES, got, err);
    if (status)
        return status;
    if (r->hashed)
        ls_sha256_update(&r->hash, out, *got);
    r->offset += *got;
    return LS_OK;
}

int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err)
{
    int status = LS_OK;
    while (count > 0 && status == LS_OK) {
        size_t n = count < sizeof r->scrap ? (size_t)count : sizeof r->scrap;
        status = ls_byte_reader_read(r, r->scrap, n, what, err);
        count -= n;
    }
    return status;
}

int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err)
{
    uint64_t end = r->offset;
    uint8_t byte;
    size_t got = 0;
    int status = read_some(r, &byte, 1, &got, err);
    if (status)
        return status;
    if (got > 0)
        return ls_fail(err, LS_EDATA,
                       "%s: expected the end of the data at byte %llu, found more; fetch the file "
                       "again",
                       r->path, (unsigned long long)end);
    status = fill(r, err);
    if (status)
        return status;
    if (r->left > 0)
        return ls_fail(err, LS_EDATA,
                       "%s: expected the end of the file at compressed byte %llu, found more; "
                       "fetch the file again",
                       r->path, (unsigned long long)(r->input_offset - r->left));
    ls_sha256_final_hex(&r->hash, sha256);
    return LS_OK;
}

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
