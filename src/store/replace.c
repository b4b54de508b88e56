#include "store/durable.h"

#include "base/error.h"
#include "base/host.h"
#include "store/io.h"
#include "store/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- a file being written ------------------------------------------------------------------- */

static void start(ls_file_writer *w, const ls_host *host)
{
    memset(w, 0, sizeof *w);
    w->host = host;
    w->folder = AT_FDCWD;
    w->fd = w->lock = -1;
}

static void release(ls_file_writer *w)
{
    if (w->lock >= 0)
        (void)ls_io_close(w->lock);
    if (w->target)
        (void)ls_io_close(w->folder);
    ls_free(w->host, w->target);
    ls_free(w->host, w->path);
    w->path = w->target = NULL;
    w->fd = w->lock = -1;
}

/* Reports the writer's first failure, which `error` is if there was none before. */
static int fail(ls_file_writer *w, const char *operation, int error, ls_error *err)
{
    if (w->failure.status == LS_OK)
        ls_io_fail(&w->failure, w->path, operation, error);
    return ls_fail(err, w->failure.status, "%s", w->failure.text);
}

int ls_file_writer_write(ls_file_writer *w, const void *bytes, size_t count, ls_error *err)
{
    int error = 0;
    if (w->failure.status == LS_OK && count == 0)
        return LS_OK;
    if (w->failure.status == LS_OK) {
        error = UINT64_MAX - w->bytes < count ? EFBIG : ls_io_write(w->fd, bytes, count);
        if (!error) {
            w->bytes += count;
            return LS_OK;
        }
    }
    return fail(w, "write", error, err);
}

/* Syncs and closes; a failure abandons the writer. */
static int settle(ls_file_writer *w, ls_error *err)
{
    int error = 0;
    const char *operation = "sync";
    if (w->failure.status == LS_OK)
        error = ls_io_sync(w->fd);
    if (w->failure.status == LS_OK && !error) {
        operation = "close";
        error = ls_io_close(w->fd);
        w->fd = -1;
    }
    if (error || w->failure.status != LS_OK) {
        int rc = fail(w, operation, error, err);
        ls_file_writer_abandon(w);
        return rc;
    }
    return LS_OK;
}

void ls_file_writer_abandon(ls_file_writer *w)
{
    if (!w->path)
        return;
    if (w->fd >= 0)
        (void)ls_io_close(w->fd);
    (void)ls_io_remove(w->folder, ls_io_base(w->path));
    release(w);
}

/* ---- in the place of another ---------------------------------------------------------------- */

/* The hidden file's path, which only messages see. */
static char *beside(const char *path, const char *name, const ls_host *host)
{
    size_t folder = (size_t)(ls_io_base(path) - path);
    char *out = ls_alloc(host, folder + strlen(name) + 1);
    if (out) {
        memcpy(out, path, folder);
        memcpy(out + folder, name, strlen(name));
    }
    return out;
}

/* w->folder and w->target are set. */
static int open_beside(ls_file_writer *w, ls_error *err)
{
    char name[LS_TEMPORARY_NAME];
    int error;
    ls_temporary_sweep(w->folder);
    error = ls_temporary_file(&w->fd, name, w->folder, ls_io_base(w->target));
    if (error)
        return ls_io_fail(err, w->target, "create a file beside it", error);
    w->path = beside(w->target, name, w->host);
    if (!w->path) {
        (void)ls_io_close(w->fd);
        (void)ls_io_remove(w->folder, name);
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", ls_io_tail(w->target));
    }
    /* The same open file: its lock lasts until both descriptors are closed. */
    w->lock = fcntl(w->fd, F_DUPFD_CLOEXEC, 0);
    if (w->lock >= 0)
        return LS_OK;
    int rc = ls_io_fail(err, w->path, "open", errno);
    (void)ls_io_close(w->fd);
    (void)ls_io_remove(w->folder, name);
    return rc;
}

int ls_replace_begin(ls_file_writer *w, const char *path, const ls_host *host, ls_error *err)
{
    start(w, host);
    if (*ls_io_base(path) == '\0')
        return ls_io_fail(err, path, "replace", EISDIR);
    char *target = ls_strdup(host, path);
    if (!target)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", ls_io_tail(path));
    int rc = ls_io_open_parent(&w->folder, path, host, err);
    if (rc != LS_OK) {
        ls_free(host, target);
        return rc;
    }
    w->target = target;
    rc = open_beside(w, err);
    if (rc != LS_OK)
        release(w);
    return rc;
}

int ls_replace_commit(ls_file_writer *w, ls_error *err)
{
    int rc = settle(w, err);
    if (rc != LS_OK)
        return rc;
    int error = ls_io_rename(w->folder, ls_io_base(w->path), ls_io_base(w->target));
    if (error) {
        rc = ls_io_fail(err, w->target, "replace", error);
        ls_file_writer_abandon(w);
        return rc;
    }
    error = ls_io_sync_folder(w->folder);
    if (error)
        rc = ls_io_fail(err, w->target, "sync its directory", error);
    release(w);
    return rc;
}

int ls_replace_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                    ls_error *err)
{
    ls_file_writer w;
    int rc = ls_replace_begin(&w, path, host, err);
    if (rc == LS_OK)
        rc = ls_file_writer_write(&w, bytes, count, err);
    if (rc == LS_OK)
        rc = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return rc;
}

static int write_through(const char *path, const void *bytes, size_t count, ls_error *err)
{
    int fd;
    const char *operation = "open";
    int error = ls_io_open(&fd, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!error) {
        operation = "write";
        error = ls_io_write(fd, bytes, count);
        if (!error)
            error = ls_io_sync(fd);
        if (error == EINVAL || error == EROFS) /* nothing to sync */
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
        return write_through(path, bytes, count, err);
    return ls_replace_file(path, bytes, count, host, err);
}

int ls_remove_file(const char *path, ls_error *err)
{
    int error = ls_io_remove(AT_FDCWD, path);
    return error && error != ENOENT ? ls_io_fail(err, path, "remove", error) : LS_OK;
}
