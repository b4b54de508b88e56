/* SPDX-License-Identifier: MIT */
/* Creates directories whose names survive a loss of power, and locks directories. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "store/durable.h"
#include "store/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 4096 /* largest number of directories on the path to the root */ };

int ls_sync_parent(const char *path, ls_error *err)
{
    int fd;
    int status = ls_io_open_parent(&fd, path, err);
    if (status)
        return status;
    int error = ls_io_sync_folder(fd);
    (void)ls_io_close(fd);
    return error ? ls_io_fail(err, path, "sync its directory", error) : LS_OK;
}

/* Replaces the open directory *fd by its parent and returns 0. Returns non-zero, and leaves *fd as
 * it is, in two cases: the directory is the root of its file system, or its parent cannot be read.
 * (A parent that this process cannot read need not be synced. The process cannot have created
 * entries there.) */
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

/* Syncs the directory and all directories above it. Errors of a read-only directory above it are
 * ignored, because nothing was written there. */
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

/* Creates the missing directories above `path`, and then `path`. Returns the error number of the
 * last mkdir, or 0. */
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

int ls_make_directory(const char *path, int *made, ls_error *err)
{
    char copy[LS_PATH_BYTES];
    *made = 0;
    if (!*path)
        return ls_io_fail(err, path, "make the directory", ENOENT);
    snprintf(copy, sizeof copy, "%s", path);
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    int error = make_all(copy);
    *made = error == 0;
    if (error == EEXIST)
        error = ls_is_directory(path) ? 0 : ENOTDIR;
    return error ? ls_io_fail(err, path, "make the directory", error) : ls_sync_path(path, err);
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* Returns the process number that the lock's holder has written to the lock file, or 0. */
static long holder(int fd)
{
    char text[32];
    size_t count;
    if (ls_io_read(fd, text, sizeof text - 1, &count) != 0)
        return 0;
    text[count] = '\0';
    return strtol(text, NULL, 10);
}

static int fail_held(int fd, const char *directory, ls_error *err)
{
    static const char advice[] = "wait for it to end, stop it, or choose another directory";
    long pid = holder(fd);
    if (pid > 0)
        return ls_fail(err, LS_EAGAIN, "%s: in use by process %ld; %s", ls_io_tail(directory), pid,
                       advice);
    return ls_fail(err, LS_EAGAIN, "%s: in use by another process; %s", ls_io_tail(directory),
                   advice);
}

/* Writes this process's number to the lock file, for messages. The lock works without the number,
 * so a failure is ignored. */
static void write_holder(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0)
        (void)ls_io_write(fd, text, (size_t)n);
}

/* Takes the lock. If the file system has no locks, only logs a warning: the lock prevents a second
 * run in the directory, but files are complete without it. */
static int lock_file(int fd, const char *directory, const ls_host *host, ls_error *err)
{
    char why[LS_REASON];
    const int error = ls_io_lock(fd);
    if (error == EWOULDBLOCK)
        return fail_held(fd, directory, err);
    if (error)
        ls_log(
            host, LS_LOG_WARNING,
            "%s: its file system gives no lock (%s), so a second run in this directory would not "
            "be prevented",
            ls_io_tail(directory), ls_reason(why, error));
    return LS_OK;
}

int ls_dir_lock_take(ls_dir_lock *lock, const char *directory, const ls_host *host, ls_error *err)
{
    char path[LS_PATH_BYTES];
    int fd;
    memset(lock, 0, sizeof *lock);
    int status =
        ls_open_to_write(&fd, ls_path_join(path, directory, "lock"), O_RDWR | O_CREAT, err);
    if (status == LS_OK)
        status = lock_file(fd, directory, host, err);
    if (status == LS_OK) {
        write_holder(fd);
        lock->held = true;
        lock->fd = fd;
    } else if (fd >= 0) {
        (void)ls_io_close(fd);
    }
    return status;
}

void ls_dir_lock_release(ls_dir_lock *lock)
{
    if (lock->held)
        (void)ls_io_close(lock->fd);
    lock->held = false;
}
