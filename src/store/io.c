/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for sync_file_range; only this file of the directory needs it */
#include "store/io.h"

#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LINUX_ENOTSUPP 524 /* some network file systems return it in place of EOPNOTSUPP */

enum {
    MESSAGE_PATH = 240, /* bytes of a path in a message */
    WRITE_BACK = 4 << 20
};

/* Sets `result` to what `call` returns when no signal interrupts it. */
#define UNINTERRUPTED(result, call)                                                                \
    do                                                                                             \
        (result) = (call);                                                                         \
    while ((result) == -1 && errno == EINTR)

const char *ls_io_tail(const char *path)
{
    size_t n = strlen(path);
    if (n > MESSAGE_PATH)
        path += n - MESSAGE_PATH;
    /* Skips the rest of a character. */
    while (n > MESSAGE_PATH && ((unsigned char)*path & 0xC0) == 0x80)
        path++;
    return path;
}

int ls_io_fail(ls_error *err, const char *path, const char *operation, int error)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO, "%s: cannot %s: %s", ls_io_tail(path), operation,
                   ls_reason(why, error));
}

const char *ls_io_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int ls_io_open_parent(int *fd, const char *path, ls_error *err)
{
    const int length = (int)(ls_io_base(path) - path);
    char parent[LS_PATH_BYTES] = "./";
    if (length > 0)
        snprintf(parent, sizeof parent, "%.*s", length, path);
    int error = ls_io_open(fd, AT_FDCWD, parent, O_RDONLY | O_DIRECTORY);
    return error ? ls_io_fail(err, parent, "open the directory", error) : LS_OK;
}

int ls_io_open(int *fd, int folder, const char *name, int flags)
{
    UNINTERRUPTED(*fd, openat(folder, name, flags | O_CLOEXEC, 0666));
    return *fd < 0 ? errno : 0;
}

int ls_io_close(int fd)
{
    return close(fd) == 0 || errno == EINTR ? 0 : errno;
}

int ls_io_write(int fd, const void *bytes, size_t count)
{
    const char *p = bytes;
    while (count > 0) {
        ssize_t n;
        UNINTERRUPTED(n, write(fd, p, count));
        if (n < 0)
            return errno;
        if (n == 0) /* impossible for a regular file, and the loop would not end */
            return EIO;
        p += n;
        count -= (size_t)n;
    }
    return 0;
}

int ls_io_read(int fd, void *bytes, size_t count, size_t *done)
{
    char *p = bytes;
    *done = 0;
    while (*done < count) {
        ssize_t n;
        UNINTERRUPTED(n, read(fd, p + *done, count - *done));
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        *done += (size_t)n;
    }
    return 0;
}

void ls_io_write_back(int fd, uint64_t at, size_t count)
{
    const uint64_t from = at / WRITE_BACK * WRITE_BACK, to = (at + count) / WRITE_BACK * WRITE_BACK;
    if (from < to)
        (void)sync_file_range(fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}

int ls_io_sync(int fd)
{
    int failed;
    UNINTERRUPTED(failed, fsync(fd));
    return failed ? errno : 0;
}

int ls_io_sync_folder(int fd)
{
    int error = ls_io_sync(fd);
    return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS || error == LINUX_ENOTSUPP
               ? 0
               : error;
}

int ls_io_stat(struct stat *out, int folder, const char *name)
{
    int failed;
    UNINTERRUPTED(failed, fstatat(folder, name, out, AT_SYMLINK_NOFOLLOW));
    return failed ? errno : 0;
}

int ls_io_make_folder(int folder, const char *name)
{
    int failed;
    UNINTERRUPTED(failed, mkdirat(folder, name, 0777));
    return failed ? errno : 0;
}

int ls_io_remove(int folder, const char *name)
{
    int failed;
    UNINTERRUPTED(failed, unlinkat(folder, name, 0));
    return failed ? errno : 0;
}

int ls_io_rename(int folder, const char *from, const char *to)
{
    int failed;
    UNINTERRUPTED(failed, renameat(folder, from, folder, to));
    return failed ? errno : 0;
}

int ls_io_lock(int fd)
{
    int failed;
    UNINTERRUPTED(failed, flock(fd, LOCK_EX | LOCK_NB));
    return failed ? errno : 0;
}
