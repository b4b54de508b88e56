#include "base/error.h"
#include "base/host.h"
#include "store/io.h"
#include "store/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 16, MAX_MANIFEST = 1 << 20 /* bytes */ };

#define FIX "the bundle is damaged: use another one"

struct ls_bundle_reader {
    const ls_host *host;
    char *path;
    int folder; /* -1: not open */
    ls_manifest manifest;
    ls_bundle_file *file; /* as many as the manifest has */
};

static int fail_memory(const char *path, ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "%s: out of memory for a bundle", ls_io_tail(path));
}

/* Opens a plain file of the bundle and tells its size. */
static int open_member(int *fd, uint64_t *size, int folder, const char *path, ls_error *err)
{
    struct stat st;
    int error = ls_io_open(fd, folder, ls_io_base(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (error == ENOENT)
        return ls_fail(err, LS_EDATA, "%s: expected this file, found none; " FIX, ls_io_tail(path));
    if (error == ELOOP)
        return ls_fail(err, LS_EDATA, "%s: expected a plain file, found a symbolic link; " FIX,
                       ls_io_tail(path));
    if (error)
        return ls_io_fail(err, path, "open", error);
    int rc = LS_OK;
    if (fstat(*fd, &st) != 0)
        rc = ls_io_fail(err, path, "open", errno);
    else if (!S_ISREG(st.st_mode))
        rc = ls_fail(err, LS_EDATA, "%s: expected a plain file, found something else; " FIX,
                     ls_io_tail(path));
    else
        *size = (uint64_t)st.st_size;
    if (rc != LS_OK)
        (void)ls_io_close(*fd);
    return rc;
}

static int fail_size(const char *path, const ls_manifest_file *file, uint64_t found, ls_error *err)
{
    uint64_t offset = found < file->bytes ? found : file->bytes;
    return ls_fail(err, LS_EDATA, "%s: offset %llu: expected %llu bytes (%s:%d), found %llu; " FIX,
                   ls_io_tail(path), (unsigned long long)offset, (unsigned long long)file->bytes,
                   LS_BUNDLE_MANIFEST, file->line, (unsigned long long)found);
}

static int check_hash(ls_sha256 *hash, const char *path, const ls_manifest_file *file,
                      ls_error *err)
{
    char found[LS_SHA256_HEX];
    ls_sha256_final_hex(hash, found);
    if (strcmp(found, file->sha256) == 0)
        return LS_OK;
    return ls_fail(err, LS_EDATA, "%s: expected SHA-256 %.16s... (%s:%d), found %.16s...; " FIX,
                   ls_io_tail(path), file->sha256, LS_BUNDLE_MANIFEST, file->line, found);
}

/* Reads the open file to its end through `buffer`. */
static int hash_member(int fd, char *buffer, const char *path, const ls_manifest_file *file,
                       ls_error *err)
{
    ls_sha256 hash;
    uint64_t total = 0;
    size_t n = CHUNK;
    ls_sha256_init(&hash);
    while (n == CHUNK) {
        int error = ls_io_read(fd, buffer, CHUNK, &n);
        if (error)
            return ls_io_fail(err, path, "read", error);
        ls_sha256_update(&hash, buffer, n);
        total += n;
    }
    return total == file->bytes ? check_hash(&hash, path, file, err)
                                : fail_size(path, file, total, err);
}

static int verify_member(const ls_bundle_reader *r, size_t index, char *buffer, ls_error *err)
{
    const ls_manifest_file *file = &r->manifest.file[index];
    const char *path = r->file[index].path;
    uint64_t size = 0;
    int fd;
    int rc = open_member(&fd, &size, r->folder, path, err);
    if (rc != LS_OK)
        return rc;
    rc = size == file->bytes ? hash_member(fd, buffer, path, file, err)
                             : fail_size(path, file, size, err);
    (void)ls_io_close(fd);
    return rc;
}

static int verify(const ls_bundle_reader *r, ls_error *err)
{
    int rc = LS_OK;
    char *buffer = ls_alloc(r->host, CHUNK);
    if (!buffer)
        return fail_memory(r->path, err);
    for (size_t i = 0; i < r->manifest.count && rc == LS_OK; i++)
        rc = verify_member(r, i, buffer, err);
    ls_free(r->host, buffer);
    return rc;
}

/* Reads exactly `size` bytes of an open file into a new block with a zero behind them. */
static int read_member(char **out, int fd, size_t size, const char *path, const ls_host *host,
                       ls_error *err)
{
    size_t n;
    char *bytes = ls_alloc(host, size + 1);
    if (!bytes)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory to read it", ls_io_tail(path));
    int error = ls_io_read(fd, bytes, size, &n);
    int rc = LS_OK;
    if (error)
        rc = ls_io_fail(err, path, "read", error);
    else if (n != size)
        rc = ls_fail(err, LS_EDATA, "%s: offset %zu: expected %zu bytes, found %zu; " FIX,
                     ls_io_tail(path), n, size, n);
    if (rc == LS_OK)
        *out = bytes;
    else
        ls_free(host, bytes);
    return rc;
}

static int read_manifest(ls_bundle_reader *r, ls_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    int fd = -1;
    char *path = ls_io_join(r->path, LS_BUNDLE_MANIFEST, r->host);
    int rc = path ? open_member(&fd, &size, r->folder, path, err) : fail_memory(r->path, err);
    if (rc != LS_OK) {
        ls_free(r->host, path);
        return rc;
    }
    if (size > MAX_MANIFEST)
        rc = ls_fail(err, LS_EDATA, "%s: offset %d: expected at most %d bytes, found %llu; " FIX,
                     ls_io_tail(path), MAX_MANIFEST, MAX_MANIFEST, (unsigned long long)size);
    if (rc == LS_OK)
        rc = read_member(&text, fd, (size_t)size, path, r->host, err);
    if (rc == LS_OK)
        rc = ls_manifest_parse(&r->manifest, path, text, (size_t)size, r->host, err);
    ls_free(r->host, text);
    (void)ls_io_close(fd);
    ls_free(r->host, path);
    return rc;
}

static int describe_members(ls_bundle_reader *r, ls_error *err)
{
    r->file = ls_alloc_array(r->host, r->manifest.count, sizeof *r->file);
    if (!r->file)
        return fail_memory(r->path, err);
    for (size_t i = 0; i < r->manifest.count; i++) {
        const ls_manifest_file *file = &r->manifest.file[i];
        char *path = ls_io_join(r->path, file->name, r->host);
        if (!path)
            return fail_memory(r->path, err);
        r->file[i] = (ls_bundle_file){file->name, path, file->bytes, file->sha256};
    }
    return LS_OK;
}

static int open_folder(ls_bundle_reader *r, ls_error *err)
{
    int error = ls_io_open(&r->folder, AT_FDCWD, r->path, O_RDONLY | O_DIRECTORY);
    if (!error) {
        (void)ls_io_lock(r->folder, 0); /* refused only while it is being removed */
        return LS_OK;
    }
    r->folder = -1;
    if (error == ENOENT)
        return ls_fail(err, LS_ENOENT, "%s: no such directory", ls_io_tail(r->path));
    if (error == ENOTDIR)
        return ls_fail(err, LS_ENOENT, "%s: expected a directory, found none", ls_io_tail(r->path));
    return ls_io_fail(err, r->path, "open the directory", error);
}

int ls_bundle_open(ls_bundle_reader **out, const char *path, const ls_host *host, ls_error *err)
{
    *out = NULL;
    ls_bundle_reader *r = ls_alloc(host, sizeof *r);
    if (!r)
        return fail_memory(path, err);
    r->host = host;
    r->folder = -1;
    r->path = ls_strdup(host, path);
    int rc = r->path ? LS_OK : fail_memory(path, err);
    if (rc == LS_OK) {
        for (size_t n = strlen(r->path); n > 1 && r->path[n - 1] == '/'; n--)
            r->path[n - 1] = '\0';
        rc = open_folder(r, err);
    }
    if (rc == LS_OK)
        rc = read_manifest(r, err);
    if (rc == LS_OK)
        rc = describe_members(r, err);
    if (rc == LS_OK)
        rc = verify(r, err);
    if (rc == LS_OK)
        *out = r;
    else
        ls_bundle_close(r);
    return rc;
}

void ls_bundle_close(ls_bundle_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->file && i < r->manifest.count; i++)
        ls_free(r->host, (char *)r->file[i].path);
    ls_free(r->host, r->file);
    ls_manifest_fini(&r->manifest);
    if (r->folder >= 0)
        (void)ls_io_close(r->folder);
    ls_free(r->host, r->path);
    ls_free(r->host, r);
}

const char *ls_bundle_path(const ls_bundle_reader *r)
{
    return r->path;
}

const char *ls_bundle_name(const ls_bundle_reader *r)
{
    return ls_io_base(r->path);
}

size_t ls_bundle_files(const ls_bundle_reader *r)
{
    return r->manifest.count;
}

const ls_bundle_file *ls_bundle_file_at(const ls_bundle_reader *r, size_t index)
{
    return index < r->manifest.count ? &r->file[index] : NULL;
}

int ls_bundle_find(const ls_bundle_file **out, const ls_bundle_reader *r, const char *name,
                   ls_error *err)
{
    const ls_manifest_file *file = ls_manifest_find(&r->manifest, name);
    *out = file ? &r->file[file - r->manifest.file] : NULL;
    if (file)
        return LS_OK;
    return ls_fail(err, LS_EDATA, "%s/%s: there is no file \"%s\" in this bundle; use another one",
                   ls_io_tail(r->path), LS_BUNDLE_MANIFEST, name);
}

int ls_bundle_read(char **out, size_t *count, const ls_bundle_reader *r, const char *name,
                   size_t limit, ls_error *err)
{
    const ls_bundle_file *file;
    uint64_t size = 0;
    int fd;
    *out = NULL;
    *count = 0;
    int rc = ls_bundle_find(&file, r, name, err);
    if (rc != LS_OK)
        return rc;
    if (file->bytes > limit || file->bytes >= SIZE_MAX)
        return ls_fail(err, LS_EDATA, "%s: expected at most %zu bytes, found %llu",
                       ls_io_tail(file->path), limit, (unsigned long long)file->bytes);
    rc = open_member(&fd, &size, r->folder, file->path, err);
    if (rc != LS_OK)
        return rc;
    rc = read_member(out, fd, (size_t)file->bytes, file->path, r->host, err);
    (void)ls_io_close(fd);
    if (rc != LS_OK)
        return rc;
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, *out, (size_t)file->bytes);
    rc = check_hash(&hash, file->path, ls_manifest_find(&r->manifest, name), err);
    if (rc == LS_OK) {
        *count = (size_t)file->bytes;
    } else {
        ls_free(r->host, *out);
        *out = NULL;
    }
    return rc;
}
