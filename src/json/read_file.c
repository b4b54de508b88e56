#include "json/json.h"

#include "base/error.h"
#include "base/host.h"
#include "json/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* strerror may use a buffer that threads share. */
static const char *reason(int error, char out[128])
{
    if (strerror_r(error, out, 128) != 0)
        return "unknown error";
    return out;
}

/* Opens without waiting for the writer of a pipe, and refuses everything but plain files. */
static int open_file(int *fd, size_t *size, const char *path, size_t limit, ls_error *err)
{
    char why[128];
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ls_fail(err, LS_ENOENT, "%s: no such file", path);
    if (*fd < 0 || fstat(*fd, &st) != 0)
        return ls_fail(err, LS_EIO, "%s: cannot be read: %s", path, reason(errno, why));
    if (S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ECONFIG, "%s: expected a JSON file, found a directory; name a file",
                       path);
    if (!S_ISREG(st.st_mode))
        return ls_fail(err, LS_ECONFIG,
                       "%s: expected a JSON file, found a device or a pipe; copy "
                       "it to a file first",
                       path);
    if (st.st_size == 0)
        return ls_fail(err, LS_ECONFIG, "%s: expected JSON, found an empty file", path);
    if ((uint64_t)st.st_size > limit)
        return ls_fail(err, LS_ECONFIG, "%s: expected at most %zu bytes, found %lld", path, limit,
                       (long long)st.st_size);
    *size = (size_t)st.st_size;
    return LS_OK;
}

/* Fewer bytes than asked for when the file has become shorter since. */
static int read_all(int fd, char *text, size_t size, size_t *count, const char *path, ls_error *err)
{
    char why[128];
    *count = 0;
    while (*count < size) {
        ssize_t n = read(fd, text + *count, size - *count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_fail(err, LS_EIO, "%s: cannot be read: %s", path, reason(errno, why));
        if (n == 0)
            break;
        *count += (size_t)n;
    }
    return LS_OK;
}

int ls_json_read_file_limited(ls_json **out, const char *path, const ls_json_limits *limits,
                              const ls_host *host, ls_error *err)
{
    int fd = -1;
    size_t size = 0;
    char *text = NULL;
    size_t limit = limits && limits->bytes ? limits->bytes : (size_t)16 << 20;
    *out = NULL;
    int rc = open_file(&fd, &size, path, limit, err);
    if (rc != LS_OK)
        goto out;
    text = ls_alloc(host, size);
    if (!text) {
        rc = ls_fail(err, LS_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    rc = read_all(fd, text, size, &size, path, err);
    if (rc == LS_OK)
        rc = ls_json_parse_limited(out, path, text, size, limits, host, err);
out:
    ls_free(host, text);
    if (fd >= 0)
        close(fd);
    if (rc != LS_OK && err)
        ls_json_tidy(err->text); /* paths come from configs, too */
    return rc;
}

int ls_json_read_file(ls_json **out, const char *path, const ls_host *host, ls_error *err)
{
    return ls_json_read_file_limited(out, path, NULL, host, err);
}
