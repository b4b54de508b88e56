/* SPDX-License-Identifier: MIT */
/* Writes files that are either complete or absent after a crash: the contents go to a file with a
 * hidden name, which then replaces the old file. */
#include "store/durable.h"

#include "base/error.h"
#include "base/host.h"
#include "store/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- hidden names of incomplete files --------------------------------------------------------
 *
 * While the file NAME is being written, it has the hidden name ".NAME.lockstep-PID-N" in the same
 * directory, and the writing process holds a lock on it. A file without a lock can be removed: its
 * process was killed. The functions that open or lock files here return errno values, or 0. */

#define HIDDEN_NAME 256 /* capacity for a hidden name in bytes, the zero included */

static const char mark[] = ".lockstep-";

enum { BASE = 128 /* largest number of bytes of NAME in a hidden name */, TRIES = 100000 };

/* Returns how many bytes of the file name `base` are part of its hidden name: at most BASE, and
 * only whole UTF-8 characters. */
static int base_length(const char *base)
{
    size_t n = strlen(base);
    if (n <= BASE)
        return (int)n;
    for (n = BASE; n > 0 && ((unsigned char)base[n] & 0xC0) == 0x80;)
        n--;
    return (int)n;
}

static void hidden_name(char out[HIDDEN_NAME], const char *base, int n)
{
    snprintf(out, HIDDEN_NAME, ".%.*s%s%ld-%d", base_length(base), base, mark, (long)getpid(), n);
}

/* Returns the position after a run of digits, or NULL if there is none. */
static const char *skip_digits(const char *p)
{
    const char *start = p;
    while (*p >= '0' && *p <= '9')
        p++;
    return p == start ? NULL : p;
}

static bool is_hidden_name(const char *name)
{
    const char *p = NULL;
    if (name[0] != '.')
        return false;
    for (const char *at = name; (at = strstr(at, mark)) != NULL; at++)
        p = at + sizeof mark -
            1; /* the last ".lockstep-" is used, because NAME can contain this text too */
    p = p ? skip_digits(p) : NULL;
    p = p && *p == '-' ? skip_digits(p + 1) : NULL;
    return p && *p == '\0';
}

/* Returns whether `name` still refers to the file that is open as `fd`. */
static bool still_there(int parent, const char *name, int fd)
{
    struct stat there, open_one;
    return ls_io_stat(&there, parent, name) == 0 && fstat(fd, &open_one) == 0 &&
           there.st_dev == open_one.st_dev && there.st_ino == open_one.st_ino;
}

/* Locks a file that was just created. Between creation and lock, another process can have taken the
 * file for that of a killed process and removed it. The function then returns EEXIST, and the
 * caller tries another name. */
static int lock_created(int parent, const char *name, int fd)
{
    int error = ls_io_lock(fd);
    /* An error other than EWOULDBLOCK means that the file system has no locks. Then no other
     * process removes the file, because sweep_one removes only a file that it has locked. */
    if (error && error != EWOULDBLOCK)
        return 0;
    return !error && still_there(parent, name, fd) ? 0 : EEXIST;
}

static int create_file(int *fd, int parent, const char *name)
{
    int error = ls_io_open(fd, parent, name, O_WRONLY | O_CREAT | O_EXCL);
    if (error)
        return error;
    error = lock_created(parent, name, *fd);
    if (error) {
        (void)ls_io_close(*fd);
        if (error != EEXIST)
            (void)ls_io_remove(parent, name);
    }
    return error;
}

/* Creates and locks a file with a hidden name in the directory `parent`. *fd is open for
 * writing. */
static int temporary_file(int *fd, char name[HIDDEN_NAME], int parent, const char *base)
{
    int error = EEXIST;
    for (int n = 1; n < TRIES && error == EEXIST; n++) {
        hidden_name(name, base, n);
        error = create_file(fd, parent, name);
    }
    if (error)
        *fd = -1;
    return error;
}

/* Opens a stream of the directory `fd`. Does not change the file position of `fd`. */
static DIR *open_stream(int fd)
{
    int own;
    if (ls_io_open(&own, fd, ".", O_RDONLY | O_DIRECTORY) != 0)
        return NULL;
    DIR *stream = fdopendir(own);
    if (!stream)
        (void)ls_io_close(own);
    return stream;
}

/* Removes a hidden file if its writer is dead (if this process can lock the file). */
static void sweep_one(int parent, const char *name)
{
    int fd;
    if (ls_io_open(&fd, parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0)
        return;
    if (ls_io_lock(fd) == 0 && still_there(parent, name, fd))
        (void)ls_io_remove(parent, name);
    (void)ls_io_close(fd);
}

/* Removes all hidden files of killed processes in the directory. Ignores files that cannot be
 * removed. */
static void sweep_temporaries(int parent)
{
    DIR *stream = open_stream(parent);
    if (!stream)
        return;
    for (const struct dirent *e; (e = readdir(stream)) != NULL;)
        if (is_hidden_name(e->d_name))
            sweep_one(parent, e->d_name);
    closedir(stream);
}

/* ---- writing a file -------------------------------------------------------------------------- */

static void start(ls_file_writer *w, const ls_host *host)
{
    *w = (ls_file_writer){.host = host, .folder = AT_FDCWD, .fd = -1, .lock = -1};
}

static void release(ls_file_writer *w)
{
    if (w->lock >= 0)
        (void)ls_io_close(w->lock);
    if (w->target)
        (void)ls_io_close(w->folder);
    ls_free(w->host, w->target);
    ls_free(w->host, w->hidden);
    w->hidden = w->target = NULL;
    w->fd = w->lock = -1;
}

/* Returns the writer's first failure. If there was no failure before, `error` becomes the first
 * failure. */
static int fail(ls_file_writer *w, const char *operation, int error, ls_error *err)
{
    if (w->failure.status == LS_OK)
        ls_io_fail(&w->failure, w->target, operation, error);
    return ls_fail(err, w->failure.status, "%s", w->failure.text);
}

int ls_file_writer_write(ls_file_writer *w, const void *bytes, size_t count, ls_error *err)
{
    if (w->failure.status)
        return fail(w, "write", 0, err);
    const int error = UINT64_MAX - w->bytes < count ? EFBIG : ls_io_write(w->fd, bytes, count);
    if (error)
        return fail(w, "write", error, err);
    ls_io_write_back(w->fd, w->bytes, count);
    w->bytes += count;
    return LS_OK;
}

int ls_file_writer_overwrite(ls_file_writer *w, uint64_t at, const void *bytes, size_t count,
                             ls_error *err)
{
    if (w->failure.status)
        return fail(w, "write", 0, err);
    int error = at > w->bytes || count > w->bytes - at ? EINVAL : 0;
    if (!error)
        error = lseek(w->fd, (off_t)at, SEEK_SET) < 0 ? errno : ls_io_write(w->fd, bytes, count);
    if (!error && lseek(w->fd, 0, SEEK_END) < 0)
        error = errno;
    return error ? fail(w, "write", error, err) : LS_OK;
}

/* Syncs and closes the hidden file. After a failure calls ls_file_writer_abandon. */
static int settle(ls_file_writer *w, ls_error *err)
{
    const char *operation = "sync";
    int error = w->failure.status ? 0 : ls_io_sync(w->fd);
    if (w->failure.status == LS_OK && !error) {
        operation = "close";
        error = ls_io_close(w->fd);
        w->fd = -1;
    }
    if (!error && w->failure.status == LS_OK)
        return LS_OK;
    int status = fail(w, operation, error, err);
    ls_file_writer_abandon(w);
    return status;
}

void ls_file_writer_abandon(ls_file_writer *w)
{
    if (!w->hidden)
        return;
    if (w->fd >= 0)
        (void)ls_io_close(w->fd);
    (void)ls_io_remove(w->folder, ls_io_base(w->hidden));
    release(w);
}

/* ---- replacing a file ------------------------------------------------------------------------ */

/* Returns the path of the hidden file `name`, which is in the directory of `path`. The directory in
 * that path is only for messages, because system calls use the descriptor w->folder. */
static char *hidden_path(const char *path, const char *name, const ls_host *host)
{
    const size_t folder = (size_t)(ls_io_base(path) - path), bytes = folder + strlen(name) + 1;
    char *out = ls_alloc(host, bytes);
    if (out)
        snprintf(out, bytes, "%.*s%s", (int)folder, path, name);
    return out;
}

/* Creates the hidden file. w->folder and w->target must be set. */
static int create_hidden(ls_file_writer *w, ls_error *err)
{
    char name[HIDDEN_NAME];
    sweep_temporaries(w->folder);
    const int error = temporary_file(&w->fd, name, w->folder, ls_io_base(w->target));
    if (error)
        return ls_io_fail(err, w->target, "create a file beside it", error);
    w->hidden = hidden_path(w->target, name, w->host);
    if (!w->hidden) {
        (void)ls_io_close(w->fd);
        (void)ls_io_remove(w->folder, name);
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", ls_io_tail(w->target));
    }
    /* w->lock is a duplicate of w->fd, so both descriptors have the same lock. The lock lasts until
     * both are closed: w->fd is closed before the rename, and w->lock after the rename. */
    w->lock = fcntl(w->fd, F_DUPFD_CLOEXEC, 0);
    return w->lock >= 0 ? LS_OK : ls_io_fail(err, w->target, "open", errno);
}

int ls_replace_begin(ls_file_writer *w, const char *path, const ls_host *host, ls_error *err)
{
    start(w, host);
    char *target = ls_strdup(host, path);
    if (!target)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", ls_io_tail(path));
    int status = ls_io_open_parent(&w->folder, path, err);
    if (status) {
        ls_free(host, target);
        return status;
    }
    w->target = target;
    status = ls_io_check_replaceable(w->folder, target, err);
    if (status == LS_OK)
        status = create_hidden(w, err);
    if (status && w->hidden)
        ls_file_writer_abandon(w);
    else if (status)
        release(w);
    return status;
}

int ls_replace_commit(ls_file_writer *w, ls_error *err)
{
    int status = settle(w, err);
    if (status)
        return status;
    status = ls_io_check_replaceable(w->folder, w->target, err);
    int error = status ? 0 : ls_io_rename(w->folder, ls_io_base(w->hidden), ls_io_base(w->target));
    if (error)
        status = ls_io_fail(err, w->target, "replace", error);
    if (status) {
        ls_file_writer_abandon(w);
        return status;
    }
    error = ls_io_sync_folder(w->folder);
    if (error)
        status = ls_io_fail(err, w->target, "sync its directory", error);
    release(w);
    return status;
}

int ls_replace_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                    ls_error *err)
{
    ls_file_writer w;
    int status = ls_replace_begin(&w, path, host, err);
    if (status == LS_OK)
        status = ls_file_writer_write(&w, bytes, count, err);
    if (status == LS_OK)
        status = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return status;
}

/* Writes the bytes to the file `path` itself, without a hidden file. For devices, pipes and
 * symbolic links, which must not be replaced. */
static int write_in_place(const char *path, const void *bytes, size_t count, ls_error *err)
{
    int fd;
    const char *operation = "open";
    int error = ls_io_open(&fd, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!error) {
        operation = "write";
        error = ls_io_write(fd, bytes, count);
        if (!error)
            error = ls_io_sync(fd);
        if (error == EINVAL || error == EROFS) /* the file cannot be synced */
            error = 0;
        (void)ls_io_close(fd);
    }
    return error ? ls_io_fail(err, path, operation, error) : LS_OK;
}

int ls_write_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                  ls_error *err)
{
    struct stat st;
    if (ls_io_stat(&st, AT_FDCWD, path) == 0 && !S_ISREG(st.st_mode))
        return write_in_place(path, bytes, count, err);
    return ls_replace_file(path, bytes, count, host, err);
}

int ls_remove_file(const char *path, ls_error *err)
{
    int error = ls_io_remove(AT_FDCWD, path);
    return error && error != ENOENT ? ls_io_fail(err, path, "remove", error) : LS_OK;
}
