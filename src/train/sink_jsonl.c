/* JSON Lines into a file. Records are gathered in a buffer of our own, so that a step costs no
 * system call, and written out once a second and at the end. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "train/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (1u << 16)
#define WRITE_EVERY_NS 1000000000u

typedef struct jsonl_sink {
    ls_sink base;
    const ls_host *host;
    char *path;
    int fd;
    uint64_t written_at;
    ls_error failure; /* of the first write that failed; status 0: none has */
    size_t used;
    char buffer[BUFFER];
} jsonl_sink;

/* A disk that fills up cuts a line in two: takes the half away, so that every line of the file is
 * a record. What cannot be cut (a pipe) stays as it is. */
static void drop_half_line(const jsonl_sink *sink, const char *data, size_t written)
{
    size_t half = 0;
    while (half < written && data[written - half - 1] != '\n')
        half++;
    off_t end = lseek(sink->fd, 0, SEEK_CUR);
    if (half > 0 && end >= (off_t)half && ftruncate(sink->fd, end - (off_t)half) == 0)
        lseek(sink->fd, end - (off_t)half, SEEK_SET);
}

static int fail(jsonl_sink *sink, int reason)
{
    return ls_fail(&sink->failure, LS_EIO,
                   "%.300s: cannot write metrics: %s; free some space, or choose another run_dir",
                   sink->path, strerror(reason));
}

/* `data` begins a line. Nothing is written behind a failure, even if there is room again: what was lost
 * would be a gap, and a file that is cut short is an honest one. */
static int write_all(jsonl_sink *sink, const char *data, size_t length, ls_error *err)
{
    size_t written = 0;
    if (sink->failure.status && err)
        *err = sink->failure;
    if (sink->failure.status)
        return sink->failure.status;
    while (written < length) {
        ssize_t n = write(sink->fd, data + written, length - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            drop_half_line(sink, data, written);
            fail(sink, reason);
            if (err)
                *err = sink->failure;
            return sink->failure.status;
        }
        written += (size_t)n;
    }
    return LS_OK;
}

static int write_out(jsonl_sink *sink, ls_error *err)
{
    size_t length = sink->used;
    sink->used = 0;
    sink->written_at = ls_now_ns();
    return write_all(sink, sink->buffer, length, err);
}

static int jsonl_emit(ls_sink *base, const char *json, size_t length, ls_error *err)
{
    jsonl_sink *sink = (jsonl_sink *)base;
    int status = LS_OK;
    if (sink->used + length + 1 > BUFFER)
        status = write_out(sink, err);
    if (status == LS_OK && length + 1 > BUFFER) { /* one long record: straight to the file */
        status = write_all(sink, json, length, err);
        return status ? status : write_all(sink, "\n", 1, err);
    }
    if (status)
        return status;
    memcpy(sink->buffer + sink->used, json, length);
    sink->buffer[sink->used + length] = '\n';
    sink->used += length + 1;
    return ls_now_ns() - sink->written_at > WRITE_EVERY_NS ? write_out(sink, err) : LS_OK;
}

static int jsonl_close(ls_sink *base, ls_error *err)
{
    jsonl_sink *sink = (jsonl_sink *)base;
    int status = write_out(sink, err);
    if (close(sink->fd) != 0 && status == LS_OK)
        status = ls_fail(err, LS_EIO, "%s: cannot write metrics: %s", sink->path, strerror(errno));
    ls_free(sink->host, sink->path);
    ls_free(sink->host, sink);
    return status;
}

int ls_sink_jsonl_flush(ls_sink *base, uint64_t *bytes, ls_error *err)
{
    jsonl_sink *sink = (jsonl_sink *)base;
    int status = write_out(sink, err);
    const off_t end = status ? 0 : lseek(sink->fd, 0, SEEK_CUR);
    *bytes = end > 0 ? (uint64_t)end : 0;
    return status;
}

/* What cannot be synced, a pipe say, is none of our business. */
int ls_sink_jsonl_sync(const ls_sink *base, ls_error *err)
{
    const jsonl_sink *sink = (const jsonl_sink *)base;
    if (fsync(sink->fd) == 0 || errno == EINVAL || errno == EROFS)
        return LS_OK;
    return ls_fail(err, LS_EIO, "%.300s: cannot sync metrics: %s", sink->path, strerror(errno));
}

/* Everything behind the first `keep` bytes was written after the checkpoint that a run resumes from:
 * it will be written once more. */
static int cut(const jsonl_sink *sink, uint64_t keep, ls_error *err)
{
    struct stat st;
    if (fstat(sink->fd, &st) != 0)
        return ls_fail(err, LS_EIO, "%.300s: cannot read: %s", sink->path, strerror(errno));
    if ((uint64_t)st.st_size < keep)
        return ls_fail(err, LS_EDATA,
                       "%.300s: has %lld bytes, but the checkpoint counts on %llu; put the file "
                       "back, or begin a new run",
                       sink->path, (long long)st.st_size, (unsigned long long)keep);
    if (ftruncate(sink->fd, (off_t)keep) != 0 || lseek(sink->fd, 0, SEEK_END) < 0)
        return ls_fail(err, LS_EIO, "%.300s: cannot cut to %llu bytes: %s", sink->path,
                       (unsigned long long)keep, strerror(errno));
    return LS_OK;
}

static int open_file(jsonl_sink *sink, uint64_t keep, ls_error *err)
{
    const int how = keep == LS_SINK_NEW ? O_CREAT | O_EXCL : 0;
    int status = ls_open_to_write(&sink->fd, sink->path, O_WRONLY | how, err);
    if (status || how)
        return status;
    status = cut(sink, keep, err);
    if (status)
        close(sink->fd);
    return status;
}

int ls_sink_jsonl(ls_sink **out, const char *path, uint64_t keep, const ls_host *host,
                  ls_error *err)
{
    jsonl_sink *sink = ls_alloc(host, sizeof *sink);
    char *copy = sink ? ls_strdup(host, path) : NULL;
    if (!copy) {
        ls_free(host, sink);
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    }
    sink->base.emit = jsonl_emit;
    sink->base.close = jsonl_close;
    sink->host = host;
    sink->path = copy;
    sink->written_at = ls_now_ns();
    int status = open_file(sink, keep, err);
    if (status) {
        ls_free(host, copy);
        ls_free(host, sink);
        return status;
    }
    *out = &sink->base;
    return LS_OK;
}
