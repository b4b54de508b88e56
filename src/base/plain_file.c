/* SPDX-License-Identifier: MIT */
#include "base/plain_file.h"

#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Format of a path in a message: at most 300 bytes. */
#define PATH "%.300s"

/* Opens a file relative to `folder` without waiting for the other end of a pipe. *fd is −1 after a
 * failure. */
static void open_file(int *fd, int folder, const char *path, int flags)
{
    do
        *fd = openat(folder, path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    while (*fd < 0 && errno == EINTR);
}

/* Closes the file if `status` is an error. Returns `status`. */
static int drop(int *fd, int status)
{
    if (status && *fd >= 0)
        close(*fd);
    if (status)
        *fd = -1;
    return status;
}

static int fail_reading(const char *path, int error, ls_error *err)
{
    char why[LS_REASON];
    return error == ENOENT || error == ENOTDIR
               ? ls_fail(err, LS_ENOENT, PATH ": no such file", path)
               : ls_fail(err, LS_EIO, PATH ": cannot be read: %s", path, ls_reason(why, error));
}

int ls_open_to_read(int *fd, uint64_t *size, const char *path, const char *what, int wrong,
                    ls_error *err)
{
    struct stat st;
    int status = LS_OK;
    open_file(fd, AT_FDCWD, path, O_RDONLY);
    if (*fd < 0 || fstat(*fd, &st) != 0)
        status = fail_reading(path, errno, err);
    else if (S_ISDIR(st.st_mode))
        status =
            ls_fail(err, wrong, PATH ": expected %s, found a directory; name a file", path, what);
    else if (!S_ISREG(st.st_mode))
        status = ls_fail(err, wrong,
                         PATH ": expected %s, found a device or a pipe; copy it to a file first",
                         path, what);
    else
        *size = (uint64_t)st.st_size;
    return drop(fd, status);
}

/* Reads `size` bytes, or fewer if the file has become shorter since it was opened. */
static int read_all(int fd, uint8_t *bytes, size_t size, size_t *count, const char *path,
                    ls_error *err)
{
    *count = 0;
    while (*count < size) {
        ssize_t n = read(fd, bytes + *count, size - *count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_reading(path, errno, err);
        if (n == 0)
            break;
        *count += (size_t)n;
    }
    return LS_OK;
}

/* Makes *out a block of at least `bytes` bytes; keeps the present block if it suffices. */
static bool has_room(void **out, size_t *room, size_t bytes, const ls_host *host)
{
    if (*room >= bytes)
        return true;
    ls_free(host, *out);
    *out = ls_alloc(host, bytes);
    *room = *out ? bytes : 0;
    return *out;
}

/* Reads up to `most` bytes into *memory, which is enlarged if necessary. If `whole` is true, a file
 * of more than `most` bytes is an error. */
static int read_file(void **out, size_t *room, size_t *count, const char *path, const char *what,
                     int wrong, size_t most, bool whole, const ls_host *host, ls_error *err)
{
    int fd;
    uint64_t size;
    int status = ls_open_to_read(&fd, &size, path, what, wrong, err);
    if (status)
        return status;
    const size_t want = size < most ? (size_t)size : most;
    if (size == 0)
        status = ls_fail(err, wrong, PATH ": expected %s, found an empty file", path, what);
    else if (size > most && whole)
        status = ls_fail(err, wrong, PATH ": expected %s of at most %zu bytes, found %llu", path,
                         what, most, (unsigned long long)size);
    else if (!has_room(out, room, want, host))
        status = ls_fail(err, LS_ENOMEM, PATH ": out of memory", path);
    else
        status = read_all(fd, *out, want, count, path, err);
    close(fd);
    return status;
}

/* Reads a file as read_file does, but into a new block, which is freed on failure. */
static int read_new(void **out, size_t *count, const char *path, const char *what, int wrong,
                    size_t most, bool whole, const ls_host *host, ls_error *err)
{
    size_t room = 0;
    *out = NULL;
    int status = read_file(out, &room, count, path, what, wrong, most, whole, host, err);
    if (status) {
        ls_free(host, *out);
        *out = NULL;
    }
    return status;
}

int ls_read_plain_file(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err)
{
    return read_new(out, count, path, what, wrong, most, true, host, err);
}

/* Returns the name of a file relative to `folder`, as ls_read_plain_file_into defines it. */
static const char *name_in(int folder, const char *path)
{
    const char *slash = folder == AT_FDCWD ? NULL : strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Reads up to `room` bytes of a file without asking the system for its size, which saves a system
 * call. Returns what the last call of read(2) returned: 0 at the end of the file, and a negative
 * number if the file cannot be opened or read. */
static ssize_t read_some(void *memory, size_t room, size_t *count, int folder, const char *name)
{
    int fd;
    ssize_t n = -1;
    open_file(&fd, folder, name, O_RDONLY);
    *count = 0;
    while (fd >= 0 && *count < room && (n = read(fd, (char *)memory + *count, room - *count)) > 0)
        *count += (size_t)n;
    if (fd >= 0)
        close(fd);
    return n;
}

size_t ls_read_start_into(void *bytes, size_t most, int folder, const char *path)
{
    size_t count;
    read_some(bytes, most, &count, folder, name_in(folder, path));
    return count;
}

int ls_read_plain_file_into(void **memory, size_t *room, size_t *count, int folder,
                            const char *path, const char *what, int wrong, size_t most,
                            const ls_host *host, ls_error *err)
{
    /* a file that fills the memory can be longer than the memory */
    if (folder != AT_FDCWD &&
        read_some(*memory, *room, count, folder, name_in(folder, path)) == 0 && *count > 0)
        return LS_OK;
    return read_file(memory, room, count, path, what, wrong, most, true, host, err);
}

int ls_read_file_start(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err)
{
    return read_new(out, count, path, what, wrong, most, false, host, err);
}

bool ls_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int ls_open_to_write(int *fd, const char *path, int flags, ls_error *err)
{
    char why[LS_REASON];
    struct stat st;
    int status = LS_OK;
    open_file(fd, AT_FDCWD, path, flags | O_NOFOLLOW);
    if (*fd < 0 && errno == ELOOP)
        status = ls_fail(err, LS_EIO,
                         PATH ": is a symbolic link, which is not followed for writing; put the "
                              "file itself there, or remove the link",
                         path);
    else if (*fd < 0 || fstat(*fd, &st) != 0)
        status =
            ls_fail(err, LS_EIO, PATH ": cannot open for writing: %s", path, ls_reason(why, errno));
    else if (!S_ISREG(st.st_mode))
        status = ls_fail(err, LS_EIO,
                         PATH ": expected a plain file, found something else; "
                              "remove it",
                         path);
    return drop(fd, status);
}
