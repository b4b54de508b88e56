#include "cli/output.h"

#include "store/durable.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int fail(cli_output *out, ls_error *err)
{
    int reason = errno;
    if (out->stream && out->stream != stdout)
        fclose(out->stream);
    out->stream = NULL;
    if (reason == EPIPE)
        return LS_OK;
    err->status = LS_EIO;
    snprintf(err->text, sizeof err->text, "--metrics %s: cannot write: %s", out->path,
             strerror(reason));
    return LS_EIO;
}

int cli_output_open(cli_output *out, const char *path, ls_error *err)
{
    out->path = path;
    out->stream = !path ? NULL : strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    return path && !out->stream ? fail(out, err) : LS_OK;
}

int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err)
{
    if (!out->stream)
        return LS_OK;
    int failed = fwrite(text, 1, length, out->stream) != length || fputc('\n', out->stream) == EOF;
    if (!failed && out->stream == stdout)
        failed = fflush(stdout) != 0; /* somebody may be reading along */
    return failed ? fail(out, err) : LS_OK;
}

/* A pipe, say, has nothing to sync. */
static int sync_stream(FILE *stream, const char *path)
{
    if (fsync(fileno(stream)) == 0)
        return ls_sync_name(path, NULL, NULL) == LS_OK ? 0 : -1;
    return errno == EINVAL || errno == EROFS ? 0 : -1;
}

int cli_output_close(cli_output *out, ls_error *err)
{
    if (!out->stream)
        return LS_OK;
    if (fflush(out->stream) != 0)
        return fail(out, err);
    FILE *stream = out->stream;
    if (stream != stdout && sync_stream(stream, out->path) != 0)
        return fail(out, err);
    out->stream = NULL;
    return stream != stdout && fclose(stream) != 0 ? fail(out, err) : LS_OK;
}
