/* SPDX-License-Identifier: MIT */
#include "records/sink.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "records/kept.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
    jsonl_sink *jsonl = (jsonl_sink *)sinks->metrics;
    status = ls_log_file_flush(jsonl->base.file, &mark->bytes, err);
    if (status == LS_OK && ls_log_file_was_cut(jsonl->base.file)) {
        ls_line_sums left = {0};
        if (ls_kept_sum(&left, ls_log_file_descriptor(jsonl->base.file), mark->bytes) == 0)
            jsonl->sums = left;
    }
    mark->sums = jsonl->sums;
    return status;
}

/* ---- opening a file of records ----------------------------------------------------------------
 */

int ls_sink_jsonl(ls_sink **out, const char *path, const ls_sink_mark *keep, const ls_host *host,
                  ls_error *err)
{
    static const ls_log_kind lines = {
        1, "metrics",
        "free some space, or copy the run directory to another disk, and go on with "
        "--resume COPY; a run without a checkpoint has to begin "
        "anew, with another run_dir"};
    int status = keep ? ls_kept_check(path, keep, host, err) : LS_OK;
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

/* Renames a file to NAME.cut or, if such a file exists, to NAME.cut-2, -3 and so on. */
static int set_aside(char to[LS_PATH_BYTES], const char *path, ls_error *err)
{
    char why[LS_REASON];
    struct stat st;
    snprintf(to, LS_PATH_BYTES, "%.4200s.cut", path);
    for (int n = 2; lstat(to, &st) == 0; n++)
        snprintf(to, LS_PATH_BYTES, "%.4200s.cut-%d", path, n);
    return rename(path, to) == 0
               ? LS_OK
               : ls_fail(err, LS_EIO, "%.300s: cannot rename: %s", path, ls_reason(why, errno));
}

/* Prepares the file of a resumed run. If another program has moved or cut the file, the records
 * before the mark are not in it any more; the run then goes on with a new file, and sinks->missing
 * becomes their number. Sets *keep to the part of the file that stays; NULL: a new file. */
static int prepare_metrics(ls_sinks *sinks, const char *path, const ls_sink_mark **keep,
                           const ls_host *host, ls_error *err)
{
    static const ls_sink_mark nothing;
    char aside[LS_PATH_BYTES] = "";
    const ls_kept kept = ls_kept_look(path, *keep, host);
    const unsigned long long missing = (*keep)->sums.lines;
    int status = LS_OK;
    sinks->lacks_start = kept != LS_KEPT_WHOLE;
    if (kept == LS_KEPT_WHOLE || kept == LS_KEPT_END) {
        ls_kept_end(&sinks->ended, path, *keep, host);
        if (sinks->ended.error[0])
            ls_log(host, LS_LOG_WARNING, "the run had failed before it was resumed: %.440s",
                   sinks->ended.error);
        return LS_OK;
    }
    if (kept == LS_KEPT_CUT)
        status = set_aside(aside, path, err);
    if (status)
        return status;
    *keep = kept == LS_KEPT_EMPTY ? &nothing : NULL;
    sinks->missing = missing < INT_MAX ? (int)missing : INT_MAX;
    ls_log(host, LS_LOG_WARNING,
           "%.300s %s%s%.300s; a new file begins without the %llu records before the checkpoint",
           path, kept == LS_KEPT_NO_FILE ? "was moved or removed" : "was cut by another program",
           aside[0] ? ", and is kept as " : "", aside, missing);
    return LS_OK;
}

int ls_sinks_open_metrics(ls_sinks *sinks, const char *dir, const ls_sink_mark *keep,
                          const ls_host *host, ls_error *err)
{
    ls_sink *sink = NULL;
    char path[LS_PATH_BYTES];
    ls_path_join(path, dir, "metrics.jsonl");
    int status = keep ? prepare_metrics(sinks, path, &keep, host, err) : LS_OK;
    if (status == LS_OK)
        status = ls_sink_jsonl(&sink, path, keep, host, err);
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
