/* SPDX-License-Identifier: MIT */
/* Appends records to a file through a buffer that is written about once a second. */
#include "store/log_file.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "store/durable.h"
#include "store/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define WRITE_EVERY_NS 1000000000u
enum { BUFFER = 1 << 16 };

struct ls_log_file {
    const ls_host *host;
    const ls_log_kind *kind;
    char *path;
    int fd;
    uint64_t written_at; /* time of ls_now_ns of the last write from the buffer to the file */
    uint64_t length;     /* length of the file, without the buffer's contents */
    bool was_cut;        /* another program has made the file shorter (ls_log_file_was_cut) */
    ls_error failure;    /* the first write that failed; status 0: none */
    size_t used;         /* number of bytes in the buffer */
    char buffer[BUFFER];
};

/* ---- writing -------------------------------------------------------------------------------- */

/* Returns how many of the first `written` bytes of `data` belong to whole records. `data` begins at
 * the first byte of a record. If records are not lines, returns 0, because this file does not know
 * where such a record ends. */
static size_t whole_records(const ls_log_file *f, const char *data, size_t written)
{
    if (!f->kind->lines)
        return 0;
    while (written > 0 && data[written - 1] != '\n')
        written--;
    return written;
}

/* Copies the stored failure to `err`, and returns its status. */
static int pass_on(const ls_log_file *f, ls_error *err)
{
    if (f->failure.status && err)
        *err = f->failure;
    return f->failure.status;
}

/* Cuts the file after its first `length` bytes, where the next write then begins. A file that
 * another program has made shorter meanwhile is not made longer. */
static void cut_back(ls_log_file *f, uint64_t length)
{
    struct stat st;
    f->length = length;
    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > length)
        (void)!ftruncate(f->fd, (off_t)length);
}

/* Notices that another program has made the file shorter, as logrotate does with copytruncate. The
 * next write then appends to what is left (O_APPEND). */
static void notice_cut(ls_log_file *f)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size >= f->length)
        return;
    ls_log(f->host, LS_LOG_WARNING,
           "%s: another program has cut the file from %llu to %llu bytes; earlier %s are no longer "
           "in it",
           ls_io_tail(f->path), (unsigned long long)f->length, (unsigned long long)st.st_size,
           f->kind->what);
    f->length = (uint64_t)st.st_size;
    f->was_cut = true;
}

/* Writes `data` to the file. `data` begins at the first byte of a record, or is the newline after a
 * long record. After a failure in the middle of a record, cuts the partial record off. */
static int write_all(ls_log_file *f, const char *data, size_t count, ls_error *err)
{
    char why[LS_REASON];
    if (f->failure.status)
        return pass_on(f, err);
    struct stat st;
    const uint64_t before = f->length;
    const int error = ls_io_write(f->fd, data, count);
    f->length = before + count;
    if (!error)
        return LS_OK;
    const bool known = fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > before;
    f->length = known && (uint64_t)st.st_size < f->length ? (uint64_t)st.st_size : before;
    cut_back(f, before + whole_records(f, data, (size_t)(f->length - before)));
    ls_fail(&f->failure, LS_EIO, "%s: cannot write %s: %s; %s", ls_io_tail(f->path), f->kind->what,
            ls_reason(why, error), f->kind->advice);
    return pass_on(f, err);
}

/* Writes the buffer to the file and empties the buffer. */
static int write_out(ls_log_file *f, ls_error *err)
{
    const size_t count = f->used;
    notice_cut(f);
    f->used = 0;
    f->written_at = ls_now_ns();
    return write_all(f, f->buffer, count, err);
}

/* Returns whether the buffer was last written more than a second ago. */
static bool is_due(const ls_log_file *f)
{
    return ls_now_ns() - f->written_at > WRITE_EVERY_NS;
}

/* Writes a record that is too long for the buffer directly to the file. If only its newline cannot
 * be written, cuts the record off, because without the newline it is not complete. */
static int put_long(ls_log_file *f, const void *record, size_t count, ls_error *err)
{
    const uint64_t before = f->length;
    int status = write_all(f, record, count, err);
    if (status || !f->kind->lines)
        return status;
    status = write_all(f, "\n", 1, err);
    if (status)
        cut_back(f, before);
    return status;
}

int ls_log_file_put(ls_log_file *f, const void *record, size_t count, ls_error *err)
{
    const size_t all = count + (f->kind->lines != 0);
    int status = f->used + all > BUFFER ? write_out(f, err) : LS_OK;
    if (status == LS_OK && all > BUFFER)
        return put_long(f, record, count, err);
    if (status)
        return status;
    memcpy(f->buffer + f->used, record, count);
    if (f->kind->lines)
        f->buffer[f->used + count] = '\n';
    f->used += all;
    return is_due(f) ? write_out(f, err) : LS_OK;
}

void ls_log_file_flush_if_due(ls_log_file *f)
{
    if (f->used > 0 && is_due(f))
        (void)write_out(f, NULL); /* the failure is stored and reported by the next call */
}

int ls_log_file_flush(ls_log_file *f, uint64_t *bytes, ls_error *err)
{
    int status = write_out(f, err);
    *bytes = f->length;
    return status;
}

bool ls_log_file_was_cut(ls_log_file *f)
{
    const bool was_cut = f->was_cut;
    f->was_cut = false;
    return was_cut;
}

int ls_log_file_descriptor(const ls_log_file *f)
{
    return f->fd;
}

/* Returns LS_OK for a file that cannot be synced, such as a pipe. */
int ls_log_file_sync(const ls_log_file *f, ls_error *err)
{
    int error = ls_io_sync(f->fd);
    return error == 0 || error == EINVAL || error == EROFS
               ? LS_OK
               : ls_io_fail(err, f->path, "sync", error);
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Removes everything after the first `keep` bytes. Then syncs the file, because otherwise a loss of
 * power can leave a mixture of removed and new records in the file. */
static int cut(ls_log_file *f, uint64_t keep, ls_error *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return ls_io_fail(err, f->path, "read", errno);
    if ((uint64_t)st.st_size < keep)
        return ls_fail(err, LS_EDATA,
                       "%s: has %lld bytes, but the checkpoint counts on %llu; put the file "
                       "back, or begin a new run",
                       ls_io_tail(f->path), (long long)st.st_size, (unsigned long long)keep);
    if (ftruncate(f->fd, (off_t)keep) != 0)
        return ls_io_fail(err, f->path, "cut", errno);
    f->length = keep;
    return ls_log_file_sync(f, err);
}

/* Opens or creates the file. LS_EAGAIN: a file that was to be created exists already. */
static int open_file(ls_log_file *f, uint64_t keep, ls_error *err)
{
    struct stat st;
    const int create = keep == LS_LOG_FILE_NEW;
    int status =
        ls_open_to_write(&f->fd, f->path, O_RDWR | O_APPEND | (create ? O_CREAT | O_EXCL : 0), err);
    if (status)
        return create && ls_io_stat(&st, AT_FDCWD, f->path) == 0 ? LS_EAGAIN : status;
    if (!create)
        status = cut(f, keep, err);
    return status ? status : ls_sync_parent(f->path, err);
}

static void release(ls_log_file *f)
{
    ls_free(f->host, f->path);
    ls_free(f->host, f);
}

int ls_log_file_open(ls_log_file **out, const char *path, uint64_t keep, const ls_log_kind *kind,
                     const ls_host *host, ls_error *err)
{
    ls_log_file *f = ls_alloc(host, sizeof *f);
    char *copy = f ? ls_strdup(host, path) : NULL;
    if (!copy) {
        ls_free(host, f);
        return ls_fail(err, LS_ENOMEM, "out of memory for %s", kind->what);
    }
    f->host = host;
    f->kind = kind;
    f->path = copy;
    f->written_at = ls_now_ns();
    int status = open_file(f, keep, err);
    if (status == LS_OK) {
        *out = f;
        return LS_OK;
    }
    if (f->fd >= 0)
        (void)ls_io_close(f->fd);
    release(f);
    return status;
}

int ls_log_file_close(ls_log_file *f, ls_error *err)
{
    int status = write_out(f, err);
    int synced = ls_log_file_sync(f, status ? NULL : err);
    int error = ls_io_close(f->fd);
    if (status == LS_OK)
        status = synced;
    if (status == LS_OK && error)
        status = ls_io_fail(err, f->path, "close", error);
    release(f);
    return status;
}
