#include "train/sink.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

void ls_sinks_init(ls_sinks *sinks, const ls_host *host)
{
    memset(sinks, 0, sizeof *sinks);
    ls_json_writer_init(&sinks->writer, 0, host);
}

int ls_sinks_add(ls_sinks *sinks, ls_sink *sink, ls_error *err)
{
    if (sinks->count == LS_SINKS_MAX) {
        sink->close(sink, NULL);
        return ls_fail(err, LS_EINVAL, "more than %d sinks for metrics", LS_SINKS_MAX);
    }
    sinks->sink[sinks->count++] = sink;
    return LS_OK;
}

static int render(ls_sinks *sinks, ls_record *record, ls_error *err)
{
    int wanted = 0;
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
    int first = render(sinks, record, err);
    if (first)
        return first;
    for (int i = 0; i < sinks->count; i++) {
        if (sinks->failed[i])
            continue;
        int status = sinks->sink[i]->emit(sinks->sink[i], record, first ? NULL : err);
        sinks->failed[i] = status != LS_OK;
        if (first == LS_OK)
            first = status;
    }
    return first;
}

int ls_sinks_flush(ls_sinks *sinks, ls_error *err)
{
    int first = LS_OK;
    uint64_t bytes;
    for (int i = 0; i < sinks->count; i++)
        if (sinks->sink[i]->file && !sinks->failed[i] && first == LS_OK)
            first = ls_log_file_flush(sinks->sink[i]->file, &bytes, err);
    return first;
}

int ls_sinks_sync(const ls_sinks *sinks, ls_error *err)
{
    int first = LS_OK;
    for (int i = 0; i < sinks->count; i++)
        if (sinks->sink[i]->file && first == LS_OK)
            first = ls_log_file_sync(sinks->sink[i]->file, err);
    return first;
}

int ls_sinks_close(ls_sinks *sinks, ls_error *err)
{
    int first = LS_OK;
    while (sinks->count > 0) {
        ls_sink *sink = sinks->sink[--sinks->count];
        int status = sink->close(sink, first ? NULL : err);
        if (first == LS_OK)
            first = status;
    }
    ls_json_writer_fini(&sinks->writer);
    return first;
}

typedef struct callback_sink {
    ls_sink base;
    int (*record)(void *user, const char *json, size_t length, ls_error *err);
    void *user;
    const ls_host *host;
} callback_sink;

static int callback_emit(ls_sink *base, const ls_record *record, ls_error *err)
{
    callback_sink *sink = (callback_sink *)base;
    return sink->record(sink->user, record->json, record->length, err);
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
        {.emit = callback_emit, .close = callback_close, .wants_text = 1}, record, user, host};
    *out = &sink->base;
    return LS_OK;
}
