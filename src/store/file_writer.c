#include "base/error.h"
#include "base/host.h"
#include "store/io.h"
#include "store/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The name to hand to the system together with w->folder. */
static const char *entry(const ls_file_writer *w)
{
    return w->folder == AT_FDCWD ? w->path : ls_io_base(w->path);
}

void ls_file_writer_start(ls_file_writer *w, const ls_host *host)
{
    memset(w, 0, sizeof *w);
    w->host = host;
    w->folder = AT_FDCWD;
    w->fd = w->lock = -1;
    ls_sha256_init(&w->hash);
}

void ls_file_writer_release(ls_file_writer *w)
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

int ls_file_writer_open_at(ls_file_writer *w, int folder, const char *path, const ls_host *host,
                           ls_error *err)
{
    ls_file_writer_start(w, host);
    w->folder = folder;
    w->path = ls_strdup(host, path);
    if (!w->path)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", ls_io_tail(path));
    int error = ls_io_open(&w->fd, folder, entry(w), O_WRONLY | O_CREAT | O_EXCL);
    if (!error)
        return LS_OK;
    ls_file_writer_release(w);
    return ls_io_fail(err, path, "create", error);
}

int ls_file_writer_open(ls_file_writer *w, const char *path, const ls_host *host, ls_error *err)
{
    return ls_file_writer_open_at(w, AT_FDCWD, path, host, err);
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
            ls_sha256_update(&w->hash, bytes, count);
            w->bytes += count;
            return LS_OK;
        }
    }
    return fail(w, "write", error, err);
}

int ls_file_writer_settle(ls_file_writer *w, char sha256[LS_SHA256_HEX], ls_error *err)
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
    if (sha256)
        ls_sha256_final_hex(&w->hash, sha256);
    return LS_OK;
}

int ls_file_writer_finish(ls_file_writer *w, char sha256[LS_SHA256_HEX], ls_error *err)
{
    int rc = ls_file_writer_settle(w, sha256, err);
    if (rc == LS_OK)
        ls_file_writer_release(w);
    return rc;
}

void ls_file_writer_abandon(ls_file_writer *w)
{
    if (!w->path)
        return;
    if (w->fd >= 0)
        (void)ls_io_close(w->fd);
    (void)ls_io_remove(w->folder, entry(w));
    ls_file_writer_release(w);
}
