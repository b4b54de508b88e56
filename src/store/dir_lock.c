#include "store/dir_lock.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "store/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number that the holder has written, or 0. */
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
    static const char fix[] = "wait for it to end, stop it, or choose another directory";
    long pid = holder(fd);
    if (pid > 0)
        return ls_fail(err, LS_EAGAIN, "%s: in use by process %ld; %s", ls_io_tail(directory), pid,
                       fix);
    return ls_fail(err, LS_EAGAIN, "%s: in use by another process; %s", ls_io_tail(directory), fix);
}

/* A lock without a name in it is a lock all the same. */
static void write_holder(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0)
        (void)ls_io_write(fd, text, (size_t)n);
}

static int lock_file(int fd, const char *directory, ls_error *err)
{
    int error = ls_io_lock(fd, 1);
    if (error == EWOULDBLOCK)
        return fail_held(fd, directory, err);
    if (error == EOPNOTSUPP)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%s: its file system has no locks, so nobody else may use this directory",
                       ls_io_tail(directory));
    return error ? ls_io_fail(err, directory, "lock", error) : LS_OK;
}

int ls_dir_lock_take(ls_dir_lock *lock, const char *directory, const ls_host *host, ls_error *err)
{
    int fd;
    memset(lock, 0, sizeof *lock);
    char *path = ls_io_join(directory, "lock", host);
    if (!path)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a path", ls_io_tail(directory));
    int rc = ls_open_to_write(&fd, path, O_RDWR | O_CREAT, err);
    if (rc == LS_OK)
        rc = lock_file(fd, directory, err);
    ls_free(host, path);
    if (rc == LS_OK) {
        write_holder(fd);
        lock->held = 1;
        lock->fd = fd;
    } else if (fd >= 0) {
        (void)ls_io_close(fd);
    }
    return rc;
}

void ls_dir_lock_release(ls_dir_lock *lock)
{
    if (lock->held)
        (void)ls_io_close(lock->fd);
    lock->held = 0;
}
