/* JSON Lines into a file. */
#include "base/error.h"
#include "base/host.h"
#include "train/sink.h"

typedef struct jsonl_sink {
    ls_sink base;
    const ls_host *host;
} jsonl_sink;

static int jsonl_emit(ls_sink *base, const char *json, size_t length, ls_error *err)
{
    return ls_log_file_put(base->file, json, length, err);
}

static int jsonl_close(ls_sink *base, ls_error *err)
{
    int status = ls_log_file_close(base->file, err);
    ls_free(((jsonl_sink *)base)->host, base);
    return status;
}

int ls_sink_jsonl(ls_sink **out, const char *path, uint64_t keep, const ls_host *host,
                  ls_error *err)
{
    static const ls_log_kind kind = {1, "metrics", "free some space, or choose another run_dir"};
    jsonl_sink *sink = ls_alloc(host, sizeof *sink);
    if (!sink)
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    *sink = (jsonl_sink){{.emit = jsonl_emit, .close = jsonl_close}, host};
    int status = ls_log_file_open(&sink->base.file, path, keep, &kind, host, err);
    if (status == LS_OK)
        *out = &sink->base;
    else
        ls_free(host, sink);
    return status == LS_EAGAIN ? LS_EIO : status;
}
