#include "records/sink.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "json/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void ls_sinks_init(ls_sinks *sinks, const ls_host *host)
{
    memset(sinks, 0, sizeof *sinks);
    ls_json_writer_init(&sinks->writer, 0, host);
}

static int close_one(ls_sink *sink, ls_error *err)
{
    return sink->close ? sink->close(sink, err) : LS_OK;
}

int ls_sinks_add(ls_sinks *sinks, ls_sink *sink, ls_error *err)
{
    if (sinks->count == LS_SINKS_MAX) {
        (void)close_one(sink, NULL);
        return ls_fail(err, LS_EINVAL, "more than %d sinks for metrics", LS_SINKS_MAX);
    }
    sinks->sink[sinks->count++] = sink;
    return LS_OK;
}

/* Renders the record as JSON, if a sink that has not failed wants text. */
static int render(ls_sinks *sinks, ls_record *record, ls_error *err)
{
    bool wanted = false;
    for (int i = 0; i < sinks->count; i++)
        wanted |= sinks->sink[i]->wants_text && !sinks->failed[i];
    if (!wanted)
        return LS_OK;
    ls_record_write(&sinks->writer, record);
    record->json = ls_json_writer_text(&sinks->writer, &record->length, err);
    return record->json ? LS_OK : LS_ENOMEM;
}

int ls_sinks_emit(ls_sinks *sinks, ls_record *record, ls_error *err)
{
    int status = render(sinks, record, err);
    if (status)
        return status;
    for (int i = 0; i < sinks->count; i++) {
        if (sinks->failed[i])
            continue;
        int emit_status = sinks->sink[i]->emit(sinks->sink[i], record, status ? NULL : err);
        sinks->failed[i] = emit_status != LS_OK;
        if (status == LS_OK)
            status = emit_status;
    }
    return status;
}

/* Looks whether a file's buffered records are due to be written, and writes them if so. */
void ls_sinks_look(ls_sinks *sinks)
{
    for (int i = 0; i < sinks->count; i++)
        if (sinks->sink[i]->file && !sinks->failed[i])
            ls_log_file_flush_if_due(sinks->sink[i]->file);
}

int ls_sinks_sync(const ls_sinks *sinks, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < sinks->count && status == LS_OK; i++)
        if (sinks->sink[i]->file)
            status = ls_log_file_sync(sinks->sink[i]->file, err);
    return status;
}

int ls_sinks_close(ls_sinks *sinks, ls_error *err)
{
    int status = LS_OK;
    sinks->metrics = NULL;
    while (sinks->count > 0) {
        int close_status = close_one(sinks->sink[--sinks->count], status ? NULL : err);
        if (status == LS_OK)
            status = close_status;
    }
    ls_json_writer_fini(&sinks->writer);
    return status;
}

/* ---- a callback ----------------------------------------------------------------------------- */

typedef struct callback_sink {
    ls_sink base;
    int (*record)(void *user, const char *json, size_t length, ls_error *err);
    void *user;
    const ls_host *host;
} callback_sink;

static int callback_emit(ls_sink *base, const ls_record *record, ls_error *err)
{
    const callback_sink *sink = (callback_sink *)base;
    ls_error own = {0}; /* passed to the callback, because err can be NULL */
    const int status = sink->record(sink->user, record->json, record->length, &own);
    return ls_callback_result(err, status, &own, "the callback for records");
}

static int callback_close(ls_sink *base, ls_error *err)
{
    (void)err;
    ls_free(((callback_sink *)base)->host, base);
    return LS_OK;
}

int ls_sink_callback(ls_sink **out,
                     int (*record)(void *user, const char *json, size_t length, ls_error *err),
                     void *user, const ls_host *host, ls_error *err)
{
    callback_sink *sink = ls_alloc(host, sizeof *sink);
    if (!sink)
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    *sink = (callback_sink){
        {.emit = callback_emit, .close = callback_close, .wants_text = true}, record, user, host};
    *out = &sink->base;
    return LS_OK;
}

/* ---- JSON Lines into a file ----------------------------------------------------------------- */

typedef struct jsonl_sink {
    ls_sink base;
    const ls_host *host;
    ls_line_sums sums; /* checksums of all records written to the file */
} jsonl_sink;

static int jsonl_emit(ls_sink *base, const ls_record *record, ls_error *err)
{
    ls_line_sums_add(&((jsonl_sink *)base)->sums, ls_crc32(0, record->json, record->length));
    return ls_log_file_put(base->file, record->json, record->length, err);
}

static int jsonl_close(ls_sink *base, ls_error *err)
{
    int status = ls_log_file_close(base->file, err);
    ls_free(((jsonl_sink *)base)->host, base);
    return status;
}

int ls_sinks_flush(ls_sinks *sinks, ls_sink_mark *mark, ls_error *err)
{
    int status = LS_OK;
    uint64_t bytes;
    *mark = (ls_sink_mark){0};
    for (int i = 0; i < sinks->count && status == LS_OK; i++)
        if (sinks->sink[i]->file && !sinks->failed[i])
            status = ls_log_file_flush(sinks->sink[i]->file, &bytes, err);
    if (status || !sinks->metrics)
        return status;
    mark->sums = ((jsonl_sink *)sinks->metrics)->sums;
    return ls_log_file_flush(sinks->metrics->file, &mark->bytes, err);
}

/* ---- check of a resumed file ---------------------------------------------------------------- */

/* Computes the checksums of the lines in the first `bytes` bytes of the file. Bytes after the last
 * newline count as a line. */
static int sum_lines(ls_line_sums *sums, int fd, uint64_t bytes)
{
    char chunk[1 << 14];
    uint32_t crc = 0;
    uint64_t at = 0;
    while (at < bytes) {
        const size_t want = bytes - at < sizeof chunk ? (size_t)(bytes - at) : sizeof chunk;
        const ssize_t n = read(fd, chunk, want);
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

/* Checks that the file is unchanged up to the mark (a position and checksums). If the file is
 * shorter than the mark, this function returns LS_OK, and ls_log_file_open fails later, when it
 * cuts the file to the mark. */
static int check_unchanged(const char *path, const ls_sink_mark *keep, const ls_host *host,
                           ls_error *err)
{
    char why[LS_REASON];
    ls_line_sums found = {0};
    uint64_t size;
    int fd, status = ls_open_to_read(&fd, &size, path, "a metrics file", LS_EDATA, err);
    if (status)
        return status;
    const int error = size < keep->bytes ? 0 : sum_lines(&found, fd, keep->bytes);
    close(fd);
    if (error)
        return ls_fail(err, LS_EIO, "%.300s: cannot be read: %s", path, ls_reason(why, error));
    const uint64_t line = size < keep->bytes ? 0 : ls_line_sums_changed(&keep->sums, &found);
    return line ? fail_changed(path, keep, line, host, err) : LS_OK;
}

int ls_sink_jsonl(ls_sink **out, const char *path, const ls_sink_mark *keep, const ls_host *host,
                  ls_error *err)
{
    static const ls_log_kind lines = {1, "metrics", "free some space, or choose another run_dir"};
    int status = keep ? check_unchanged(path, keep, host, err) : LS_OK;
    if (status)
        return status;
    jsonl_sink *sink = ls_alloc(host, sizeof *sink);
    if (!sink)
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    *sink = (jsonl_sink){{.emit = jsonl_emit, .close = jsonl_close, .wants_text = true}, host, {0}};
    if (keep)
        sink->sums = keep->sums;
    status = ls_log_file_open(&sink->base.file, path, keep ? keep->bytes : LS_LOG_FILE_NEW, &lines,
                              host, err);
    if (status == LS_OK)
        *out = &sink->base;
    else
        ls_free(host, sink);
    return status == LS_EAGAIN ? LS_EIO : status;
}

/* ---- sinks of a run's directory ------------------------------------------------------------- */

int ls_sinks_open_metrics(ls_sinks *sinks, const char *dir, const ls_sink_mark *keep,
                          const ls_host *host, ls_error *err)
{
    ls_sink *sink = NULL;
    char path[LS_PATH_BYTES];
    int status = ls_sink_jsonl(&sink, ls_path_join(path, dir, "metrics.jsonl"), keep, host, err);
    if (status == LS_OK)
        status = ls_sinks_add(sinks, sink, err);
    if (status == LS_OK)
        sinks->metrics = sink;
    return status;
}

int ls_sinks_open_wanted(ls_sinks *sinks, const char *dir, const ls_config *config,
                         const ls_host *host, ls_error *err)
{
#define LS_SINK(name, wanted) {ls_sink_##name, wanted},
    const struct {
        ls_sink_opener *open;
        bool wanted;
    } rows[] = {
#include "records/sinks.def"
    };
#undef LS_SINK
    int status = LS_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == LS_OK; i++) {
        ls_sink *sink;
        if (!rows[i].wanted)
            continue;
        status = rows[i].open(&sink, dir, host, err);
        if (status == LS_OK)
            status = ls_sinks_add(sinks, sink, err);
    }
    return status;
}
