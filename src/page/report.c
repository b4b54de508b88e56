#include "page/report.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/thread_state.h"
#include "page/page.h"
#include "store/durable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
enum { CHUNK = 1 << 16, LINE_MOST = 16 << 20 };

/* ---- reading -------------------------------------------------------------------------------- */

static int check_directory(const char *dir, ls_error *err)
{
    char why[LS_REASON];
    struct stat st;
    if (stat(dir, &st) != 0)
        return ls_fail(
            err, errno == ENOENT || errno == ENOTDIR ? LS_ENOENT : LS_EIO,
            "%.300s: %s; expected the directory of a run, such as runs/<time>-<name>", dir,
            errno == ENOENT || errno == ENOTDIR ? "no such directory" : ls_reason(why, errno));
    if (!S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ENOENT,
                       "%.300s: expected the directory of a run, found a file; "
                       "name the directory it is in",
                       dir);
    return LS_OK;
}

/* "DIR/file" */
static int join(char path[PATH_BYTES], const char *dir, const char *file, ls_error *err)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s", dir, file);
    return n >= 0 && n < PATH_BYTES ? LS_OK
                                    : ls_fail(err, LS_EIO, "%.300s…: the path is too long", dir);
}

/* One line, without its newline. A last one that is no record was cut off. */
static int take_line(ls_run_log *log, const char *path, int number, const char *line, size_t length,
                     int last, ls_error *err)
{
    ls_error cause = {0};
    int status = ls_run_log_line(log, line, length, &cause);
    /* What a power cut took of a file's new end reads as zeros, where something behind it was kept. */
    if (status == LS_EDATA && (last || memchr(line, '\0', length))) {
        log->cut_line = number;
        return LS_OK;
    }
    /* A document without a name calls its first line ":1:": the column and the message follow. */
    return status == LS_EDATA
               ? ls_fail(err, status, "%.200s:%d:%.250s", path, number, cause.text + 3)
           : status ? ls_fail(err, status, "%s", cause.text)
                    : LS_OK;
}

/* All whole lines of `text`, which are then gone from it; at the file's end also the last one. A line is known
 * to be the last only when nothing follows it. */
static int take_lines(ls_run_log *log, const char *path, int *number, ls_buffer *text, int ended,
                      ls_error *err)
{
    size_t at = 0;
    int status = LS_OK;
    while (status == LS_OK && at < text->length && !log->cut_line) {
        const char *line = text->text + at, *end = memchr(line, '\n', text->length - at);
        const size_t length = end ? (size_t)(end - line) : text->length - at;
        const int last = at + length + (end != NULL) == text->length;
        if (last && !ended)
            break;
        status = take_line(log, path, ++*number, line, length, last, err);
        at += length + (end != NULL);
    }
    text->length -= at;
    if (at > 0)
        memmove(text->text, text->text + at, text->length);
    if (status == LS_OK && text->length > LINE_MOST)
        status = ls_fail(err, LS_EDATA,
                         "%.300s:%d:1: a line of more than %d MiB; this is no metrics file of a "
                         "run",
                         path, *number + 1, LINE_MOST >> 20);
    return status;
}

static int read_lines(ls_run_log *log, const char *path, int fd, ls_error *err)
{
    char chunk[CHUNK], why[LS_REASON];
    ls_buffer text;
    int status = LS_OK, number = 0;
    ssize_t n = 1;
    ls_buffer_init(&text, log->host);
    while (status == LS_OK && n > 0 && !log->cut_line) {
        do
            n = read(fd, chunk, sizeof chunk);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            status =
                ls_fail(err, LS_EIO, "%.300s: cannot be read: %s", path, ls_reason(why, errno));
        ls_buffer_add(&text, chunk, n > 0 ? (size_t)n : 0);
        if (status == LS_OK)
            status = ls_buffer_status(&text, err);
        if (status == LS_OK)
            status = take_lines(log, path, &number, &text, n == 0, err);
    }
    ls_buffer_fini(&text);
    return status;
}

int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err)
{
    char path[PATH_BYTES];
    uint64_t size;
    int fd, status = check_directory(run_dir, err);
    if (status == LS_OK)
        status = join(path, run_dir, "metrics.jsonl", err);
    if (status)
        return status;
    status = ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, err);
    if (status == LS_ENOENT)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no metrics.jsonl here; expected the directory of a run, such as "
                       "runs/<time>-<name>",
                       run_dir);
    if (status)
        return status;
    status = read_lines(log, path, fd, err);
    close(fd);
    if (status == LS_OK && log->records == 0)
        status =
            ls_fail(err, LS_EDATA,
                    "%.300s: holds no complete record yet; wait until the run has begun", path);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* In the run's own directory nothing but a plain file is meant. */
static int write_page(const char *path, int chosen, const ls_buffer *page, const ls_host *host,
                      ls_error *err)
{
    ls_error why;
    int status = chosen ? ls_write_file(path, page->text, page->length, host, &why)
                        : ls_replace_file(path, page->text, page->length, host, &why);
    return status ? ls_fail(err, status, "%.400s; choose another place with -o FILE", why.text)
                  : LS_OK;
}

int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err)
{
    char path[PATH_BYTES];
    ls_buffer page;
    ls_run_log log;
    ls_run_log_init(&log, 0, host);
    ls_buffer_init(&page, host);
    int status = ls_report_read(&log, run_dir, err);
    if (status == LS_OK) {
        ls_c_locale locale = ls_c_locale_enter();
        status = ls_page_write(&page, &log, err);
        ls_c_locale_leave(locale);
    }
    if (status == LS_OK && !out_path)
        status = join(path, run_dir, "report.html", err);
    if (status == LS_OK)
        status = write_page(out_path ? out_path : path, out_path != NULL, &page, host, err);
    ls_buffer_fini(&page);
    ls_run_log_fini(&log);
    return status;
}
