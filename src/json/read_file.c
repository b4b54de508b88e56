#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "json/json.h"
#include "json/utf8.h"

int ls_json_read_file_limited(ls_json **out, const char *path, const ls_json_limits *limits,
                              const ls_host *host, ls_error *err)
{
    const size_t most = limits && limits->bytes ? limits->bytes : LS_JSON_BYTES;
    void *text;
    size_t size;
    *out = NULL;
    int status = ls_read_plain_file(&text, &size, path, "a JSON file", LS_ECONFIG, most, host, err);
    if (status == LS_OK)
        status = ls_json_parse_limited(out, path, text, size, limits, host, err);
    ls_free(host, text);
    if (status && err)
        ls_json_tidy(err->text); /* paths come from configs, too */
    return status;
}

int ls_json_read_file(ls_json **out, const char *path, const ls_host *host, ls_error *err)
{
    return ls_json_read_file_limited(out, path, NULL, host, err);
}
