/* SPDX-License-Identifier: MIT */
/* Compares a run's file of records with the mark in the run's checkpoint. */
#include "records/kept.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "json/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ls_kept_sum(ls_line_sums *sums, int fd, uint64_t bytes)
{
    char chunk[1 << 14];
    uint32_t crc = 0;
    uint64_t at = 0;
    while (at < bytes) {
        const size_t want = bytes - at < sizeof chunk ? (size_t)(bytes - at) : sizeof chunk;
        const ssize_t n = pread(fd, chunk, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        const char *p = chunk, *end = chunk + n, *newline;
        for (; (newline = memchr(p, '\n', (size_t)(end - p))) != NULL; p = newline + 1, crc = 0)
            ls_line_sums_add(sums, ls_crc32(crc, p, (size_t)(newline - p)));
        crc = ls_crc32(crc, p, (size_t)(end - p));
        at += (uint64_t)n;
        if (at == bytes && p < end)
            ls_line_sums_add(sums, crc);
    }
    return 0;
}

/* Returns the number of the first line that is not JSON. Returns 0 if all lines are JSON, or if
 * memory ran out. */
static uint64_t first_broken_line(const char *path, uint64_t bytes, const ls_host *host)
{
    void *text;
    size_t count;
    uint64_t number = 0, broken = 0;
    if (ls_read_file_start(&text, &count, path, "a metrics file", LS_EDATA, (size_t)bytes, host,
                           NULL) != LS_OK)
        return 0;
    const char *p = text, *end = p + count;
    while (p < end && !broken) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const size_t length = newline ? (size_t)(newline - p) : (size_t)(end - p);
        ls_json *doc;
        number++;
        if (ls_json_parse(&doc, "", p, length, host, NULL) != LS_OK)
            broken = number;
        ls_json_destroy(doc);
        p += length + 1;
    }
    ls_free(host, text);
    return broken;
}

/* Reports that the file has changed. `line`: number of the changed line; UINT64_MAX: several lines
 * have changed, and the checksums do not tell which. The message then names the first line that is
 * not JSON, if there is one, and says that more of the file can have changed. */
static int fail_changed(const char *path, const ls_sink_mark *keep, uint64_t line,
                        const ls_host *host, ls_error *err)
{
    static const char fix[] = "put the file back, or begin a new run with the checkpoint's weights "
                              "(init.weights)";
    const bool single = line != UINT64_MAX;
    if (!single)
        line = first_broken_line(path, keep->bytes, host);
    if (line)
        return ls_fail(
            err, LS_EDATA,
            "%.300s:%llu:1: %s not the record that was written before the checkpoint; %s", path,
            (unsigned long long)line, single ? "this is" : "this, and maybe more of the file, is",
            fix);
    return ls_fail(err, LS_EDATA,
                   "%.300s: several of its first %llu lines are not the records that were written "
                   "before the checkpoint; %s",
                   path, (unsigned long long)keep->sums.lines, fix);
}

/* If the file is shorter than the mark, ls_log_file_open fails later, when it cuts the file. */
int ls_kept_check(const char *path, const ls_sink_mark *keep, const ls_host *host, ls_error *err)
{
    char why[LS_REASON];
    ls_line_sums found = {0};
    uint64_t size;
    int fd, status = ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, err);
    if (status)
        return status;
    const int error = size < keep->bytes ? 0 : ls_kept_sum(&found, fd, keep->bytes);
    close(fd);
    if (error)
        return ls_fail(err, LS_EIO, "%.300s: cannot be read: %s", path, ls_reason(why, error));
    const uint64_t line = size < keep->bytes ? 0 : ls_line_sums_changed(&keep->sums, &found);
    return line ? fail_changed(path, keep, line, host, err) : LS_OK;
}

/* ---- the end that is cut off ----------------------------------------------------------------- */

enum { LINE_MOST = 1 << 16 /* largest length of a line that is read for the end of a run */ };

/* Reads the end from a line, if the line is a record of the type and has an end. */
static void take_end(ls_former_end *out, const char *line, size_t length, ls_record_type type,
                     const ls_host *host)
{
    ls_json *doc;
    if (length == 0 || ls_json_parse(&doc, "", line, length, host, NULL) != LS_OK)
        return;
    const cJSON *r = ls_json_root(doc);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r, "type"));
    if (name && strcmp(name, ls_record_names[type]) == 0) {
        r = type == LS_RECORD_RESUME ? cJSON_GetObjectItemCaseSensitive(r, "ended") : r;
        ls_json_copy_text(out->status, sizeof out->status, r, "status");
        ls_json_copy_text(out->time, sizeof out->time, r, "time");
        ls_json_copy_text(out->error, sizeof out->error, r, "error");
    }
    ls_json_destroy(doc);
}

void ls_kept_end(ls_former_end *out, const char *path, const ls_sink_mark *keep,
                 const ls_host *host)
{
    uint64_t size = 0;
    int fd = -1;
    char *text = ls_alloc(host, LINE_MOST);
    *out = (ls_former_end){.status = ""};
    if (text && ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, NULL) == LS_OK &&
        size > keep->bytes) {
        const uint64_t rest = size - keep->bytes;
        const size_t count = rest < LINE_MOST ? (size_t)rest : LINE_MOST;
        ssize_t n = pread(fd, text, count, (off_t)(size - count));
        if (n > 1 && text[n - 1] == '\n') {
            const char *line = text + n - 1;
            while (line > text && line[-1] != '\n')
                line--;
            take_end(out, line, (size_t)(text + n - 1 - line), LS_RECORD_RUN_END, host);
        }
        n = out->status[0] ? 0 : pread(fd, text, count, (off_t)keep->bytes);
        const char *newline = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
        if (newline)
            take_end(out, text, (size_t)(newline - text), LS_RECORD_RESUME, host);
    }
    if (fd >= 0)
        close(fd);
    ls_free(host, text);
}

/* ---- files that another program has moved or cut --------------------------------------------- */

/* Returns whether a line is the beginning of a record that cannot be the first of a run. */
static bool is_later_record(const char *line)
{
    char start[48];
    for (int type = 0; type < LS_RECORD_TYPES; type++) {
        snprintf(start, sizeof start, "{\"type\":\"%s\",", ls_record_names[type]);
        if (type != LS_RECORD_RUN_START && type != LS_RECORD_RESUME &&
            strncmp(line, start, strlen(start)) == 0)
            return true;
    }
    return false;
}

ls_kept ls_kept_look(const char *path, const ls_sink_mark *keep, const ls_host *host)
{
    char line[64] = "";
    struct stat st;
    uint64_t size;
    int fd;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? LS_KEPT_NO_FILE : LS_KEPT_WHOLE;
    if (!S_ISREG(st.st_mode) ||
        ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, NULL) != LS_OK)
        return LS_KEPT_WHOLE; /* the error is reported when the file is opened for writing */
    const ssize_t n = pread(fd, line, sizeof line - 1, 0);
    close(fd);
    if (n < 0 || keep->bytes == 0)
        return LS_KEPT_WHOLE;
    if (n == 0)
        return LS_KEPT_EMPTY;
    if (size < keep->bytes || line[0] == '\0')
        return LS_KEPT_CUT;
    if (!is_later_record(line))
        return LS_KEPT_WHOLE;
    return ls_kept_check(path, keep, host, NULL) == LS_OK ? LS_KEPT_END : LS_KEPT_CUT;
}
