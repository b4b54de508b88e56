/* SPDX-License-Identifier: MIT */
/* Creates run directories. A run is not put into a directory that another run has used. */
#include "checkpoint/run_dir.h"

#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define FIX "choose another run_dir, or --set run_dir=null for none"

void ls_run_dir_name(char *path, size_t size, time_t begun, const char *name, int n)
{
    char stamp[32], behind[16] = "";
    struct tm utc;
    gmtime_r(&begun, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
    if (n > 1)
        snprintf(behind, sizeof behind, "-%d", n);
    snprintf(path, size, "runs/%s-%.200s%s", stamp, name, behind);
}

static int make_fresh(char *path, size_t size, const char *name, ls_error *err)
{
    const time_t now = time(NULL);
    int made = 0, status = LS_OK;
    for (int n = 1; n < 1000 && status == LS_OK && !made; n++) {
        ls_run_dir_name(path, size, now, name, n);
        status = ls_make_directory(path, &made, err);
    }
    return made || status
               ? status
               : ls_fail(err, LS_EIO, "%.300s: is taken, and so are all before it", path);
}

/* Returns the name of a file by which one sees that a run has used the directory, or NULL if there
 * is no such file. */
static const char *trace_of_a_run(const char *path)
{
    static const char *const traces[] = {"metrics.jsonl", "weights.safetensors", "config.json"};
    char file[LS_PATH_BYTES];
    struct stat st;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (stat(ls_path_join(file, path, traces[i]), &st) == 0)
            return traces[i];
    return NULL;
}

static int check_unused(const char *dir, ls_error *err)
{
    const char *trace = trace_of_a_run(dir);
    return trace
               ? ls_fail(err, LS_EIO, "%.300s: already holds a run (%s), which would be lost; " FIX,
                         dir, trace)
               : LS_OK;
}

/* ---- creation ------------------------------------------------------------------------------- */

static int write_config(const char *dir, const ls_config *config, const ls_host *host,
                        ls_error *err)
{
    char *text, path[LS_PATH_BYTES];
    int status = ls_config_text(&text, config, host, err);
    if (status)
        return status;
    status = ls_replace_file(ls_path_join(path, dir, "config.json"), text, strlen(text), host, err);
    ls_free(host, text);
    return status;
}

int ls_run_dir_make(ls_run_files *files, const char *wanted, const ls_config *config,
                    const ls_host *host, ls_error *err)
{
    char path[PATH_BYTES];
    ls_error why;
    int made, status;
    if (wanted && strlen(wanted) >= sizeof path)
        return ls_fail(err, LS_EIO, "run_dir: the path is longer than %d bytes", PATH_BYTES - 1);
    if (wanted) {
        snprintf(path, sizeof path, "%s", wanted);
        status = ls_make_directory(path, &made, &why);
    } else {
        status = make_fresh(path, sizeof path, config->name, &why);
    }
    if (status)
        return ls_fail(err, status, "%.400s; " FIX, why.text);
    status = ls_path_copy(&files->path, path, host, err);
    if (status == LS_OK)
        status = check_unused(path, err);
    if (status == LS_OK)
        status = ls_dir_lock_take(&files->lock, path, host, err);
    if (status ==
        LS_OK) /* another run can have begun and ended there before this process took the lock */
        status = check_unused(path, err);
    return status ? status : write_config(files->path, config, host, err);
}

enum { MOST_APART = 1000 };

int ls_run_dir_make_apart(ls_run_files *files, int member, const ls_config *config,
                          const ls_host *host, ls_error *err)
{
    char wanted[PATH_BYTES];
    int n = snprintf(wanted, sizeof wanted, "%.2000s%s%.200s.member-%d",
                     config->run_dir ? config->run_dir : "", config->run_dir ? "" : "runs/",
                     config->run_dir ? "" : config->name, member);
    /* This member can have made such a directory before, after the loss of another member in an
     * earlier part of the run. The new directory then gets a name that ends with -2, -3 and so
     * on. */
    for (int i = 2; trace_of_a_run(wanted) && i < MOST_APART; i++)
        snprintf(wanted + n, sizeof wanted - (size_t)n, "-%d", i);
    return ls_run_dir_make(files, wanted, config, host, err);
}
