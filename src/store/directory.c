/* Directories whose names last. */
#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"
#include "store/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEPEST = 4096 /* directories on the way to the root */ };

int ls_sync_directory(const char *path, ls_error *err)
{
    int fd;
    int error = ls_io_open(&fd, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (error)
        return ls_io_fail(err, path, "open the directory", error);
    error = ls_io_sync_folder(fd);
    (void)ls_io_close(fd);
    return error ? ls_io_fail(err, path, "sync the directory", error) : LS_OK;
}

int ls_sync_name(const char *path, const ls_host *host, ls_error *err)
{
    int fd;
    int rc = ls_io_open_parent(&fd, path, host, err);
    if (rc != LS_OK)
        return rc;
    int error = ls_io_sync_folder(fd);
    (void)ls_io_close(fd);
    return error ? ls_io_fail(err, path, "sync its directory", error) : LS_OK;
}

/* Goes from the open directory to the one above. Nonzero: this was the last one of its file system, or
 * one that others may not read, whose entries this process cannot have made. */
static int go_up(int *fd)
{
    struct stat here, there;
    int above;
    if (fstat(*fd, &here) != 0 || ls_io_open(&above, *fd, "..", O_RDONLY | O_DIRECTORY) != 0)
        return -1;
    const int last =
        fstat(above, &there) != 0 || there.st_dev != here.st_dev || there.st_ino == here.st_ino;
    (void)ls_io_close(last ? above : *fd);
    if (!last)
        *fd = above;
    return last;
}

/* A read-only directory above has nothing to lose. */
static int sync_upwards(int *fd)
{
    int error = ls_io_sync_folder(*fd);
    for (int i = 0; !error && i < DEEPEST && go_up(fd) == 0; i++) {
        error = ls_io_sync_folder(*fd);
        error = error == EROFS || error == EACCES || error == EPERM ? 0 : error;
    }
    return error;
}

int ls_sync_path(const char *path, ls_error *err)
{
    int fd;
    int error = ls_io_open(&fd, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (error)
        return ls_io_fail(err, path, "open the directory", error);
    error = sync_upwards(&fd);
    (void)ls_io_close(fd);
    return error ? ls_io_fail(err, path, "sync the directories above it", error) : LS_OK;
}

/* Makes what is missing, `path` last, whose error counts. */
static int make_all(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int error = ls_io_make_folder(AT_FDCWD, path);
        *p = '/';
        if (error && error != EEXIST)
            return error;
    }
    return ls_io_make_folder(AT_FDCWD, path);
}

static int is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int ls_make_directory(const char *path, int *made, const ls_host *host, ls_error *err)
{
    *made = 0;
    char *copy = *path ? ls_strdup(host, path) : NULL;
    if (!copy)
        return *path ? ls_fail(err, LS_ENOMEM, "%s: out of memory for a path", ls_io_tail(path))
                     : ls_io_fail(err, path, "make the directory", ENOENT);
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    int error = make_all(copy);
    ls_free(host, copy);
    *made = error == 0;
    if (error == EEXIST)
        error = is_directory(path) ? 0 : ENOTDIR;
    return error ? ls_io_fail(err, path, "make the directory", error) : ls_sync_path(path, err);
}
