#include "train/run_dir.h"

#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PATH_BYTES 4096
#define FIX "choose another run_dir, or --set run_dir=null for none"

/* Makes every directory on the way. Returns 0, or −1 with errno. EEXIST of the last one is passed
 * on only when `fresh` asks for a new directory. */
static int make_directories(char *path, int fresh)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int failed = mkdir(path, 0777) != 0 && errno != EEXIST;
        *p = '/';
        if (failed)
            return -1;
    }
    if (mkdir(path, 0777) == 0)
        return 0;
    struct stat st;
    if (fresh || errno != EEXIST || stat(path, &st) != 0)
        return -1;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode) ? 0 : -1;
}

/* runs/20240131-093000-lenet, with -2, -3 … behind it where that is taken. */
static int make_fresh(char *path, size_t size, const char *name)
{
    char stamp[32];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
    for (int n = 1; n < 1000; n++) {
        if (n == 1)
            snprintf(path, size, "runs/%s-%.200s", stamp, name);
        else
            snprintf(path, size, "runs/%s-%.200s-%d", stamp, name, n);
        if (make_directories(path, 1) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* The file that says that a run was here, or NULL. */
static const char *trace_of_a_run(const char *path)
{
    static const char *const traces[] = {"metrics.jsonl", "weights.safetensors", "config.json"};
    char file[PATH_BYTES + 32];
    struct stat st;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        snprintf(file, sizeof file, "%s/%s", path, traces[i]);
        if (stat(file, &st) == 0)
            return traces[i];
    }
    return NULL;
}

int ls_run_dir_make(char **out, const char *wanted, const char *name, const ls_host *host,
                    ls_error *err)
{
    char path[PATH_BYTES];
    int failed;
    if (wanted && strlen(wanted) >= sizeof path)
        return ls_fail(err, LS_EIO, "run_dir: the path is longer than %d bytes", PATH_BYTES - 1);
    if (wanted) {
        snprintf(path, sizeof path, "%s", wanted);
        failed = make_directories(path, 0);
    } else {
        failed = make_fresh(path, sizeof path, name);
    }
    if (failed)
        return ls_fail(err, LS_EIO, "%.300s: cannot make the run directory: %s; " FIX, path,
                       strerror(errno));
    const char *trace = trace_of_a_run(path);
    if (trace)
        return ls_fail(err, LS_EIO, "%.300s: already holds a run (%s), which would be lost; " FIX,
                       path, trace);
    *out = ls_strdup(host, path);
    return *out ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a path");
}

char *ls_run_dir_path(const char *dir, const char *file, const ls_host *host)
{
    size_t size = strlen(dir) + strlen(file) + 2;
    char *path = ls_alloc(host, size);
    if (path)
        snprintf(path, size, "%s/%s", dir, file);
    return path;
}

int ls_run_dir_write(const char *dir, const char *file, const char *text, const ls_host *host,
                     ls_error *err)
{
    char *path = ls_run_dir_path(dir, file, host);
    if (!path)
        return ls_fail(err, LS_ENOMEM, "out of memory for a path");
    int status = LS_OK;
    FILE *f = fopen(path, "wxe");
    int reason = !f || fputs(text, f) == EOF ? errno : 0;
    if (f && fclose(f) != 0 && !reason)
        reason = errno;
    if (reason) {
        status = ls_fail(err, LS_EIO, "%.300s: cannot write: %s; " FIX, path, strerror(reason));
        if (f)
            remove(path);
    }
    ls_free(host, path);
    return status;
}
