#include "base/plain_file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a path that a message names. */
#define PATH "%.300s"

static void open_file(int *fd, const char *path, int flags)
{
    do
        *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    while (*fd < 0 && errno == EINTR);
}

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
    open_file(fd, path, O_RDONLY);
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

int ls_open_to_write(int *fd, const char *path, int flags, ls_error *err)
{
    char why[LS_REASON];
    struct stat st;
    int status = LS_OK;
    open_file(fd, path, flags | O_NOFOLLOW);
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
