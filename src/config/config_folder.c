/* SPDX-License-Identifier: MIT */
/* Packs the folder of images that a config names (data/folder.h), and finds data that was moved
 * together with a run. The config then names the packed file and the new paths. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/sized.h"
#include "config/config.h"
#include "data/folder.h"

#include <lockstep/sys/trainer.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* largest total size of the packed files in the cache in bytes, if the options do not say */
#define CACHE_BYTES ((uint64_t)20 << 30)

/* Returns whether the path `packed` is below the cache directory. */
static bool is_own(const char *packed, const char *cache)
{
    const size_t n = cache ? strlen(cache) : 0;
    return packed && n > 0 && strncmp(packed, cache, n) == 0 &&
           (packed[n] == '/' || cache[n - 1] == '/');
}

int ls_config_folder(ls_folder_desc *out, const ls_config *c, const ls_trainer_options *o,
                     ls_error *err)
{
    ls_trainer_sys sys = {.size = sizeof sys};
    int status = o->sys ? ls_sized_take(&sys, sizeof sys, o->sys, "ls_trainer_sys", err) : LS_OK;
    *out = (ls_folder_desc){.folder = c->data_path,
                            .test_folder = c->data_keys.test_path,
                            .form = ls_form_of_keys(&c->data_keys),
                            .skip_broken = c->data_keys.skip_broken,
                            .pictures = sys.pictures,
                            .watch = sys.folder_watch,
                            .program = sys.program};
    return status;
}

/* Packs the folder of `c` into the cache, and has the config name the packed file. */
static int pack(ls_config *c, const ls_trainer_options *o, const ls_folder_desc *p,
                const ls_input_format *format, ls_error *err)
{
    char path[LS_FOLDER_PATH];
    int status = ls_folder_pack_cached(
        path, o->cache_dir, o->cache_bytes ? o->cache_bytes : CACHE_BYTES, p, format, o->host, err);
    if (status)
        return status;
    ls_free(c->host, c->found[LS_FOUND_PACKED]);
    status = ls_path_copy(&c->found[LS_FOUND_PACKED], path, c->host, err);
    c->data_keys.packed = c->found[LS_FOUND_PACKED];
    return status;
}

int ls_config_pack(ls_config *c, const ls_trainer_options *o, ls_error *err)
{
    ls_folder_desc p;
    const char *packed = c->data_keys.packed;
    /* If the config is that of an earlier run, its packed file in the cache can belong to an older
     * state of the folder. */
    if (ls_dataset_form_of(c->data_name) != LS_DATA_FOLDER || !c->data_path ||
        (packed && !is_own(packed, o->cache_dir)))
        return LS_OK;
    int status = ls_config_folder(&p, c, o, err);
    if (status)
        return status;
    if (c->data_keys.channels == 2)
        return ls_config_fail(err, c, "data.channels", LS_ECONFIG,
                              "data.channels: expected 3 for colours or 1 for grey, found 2");
    if (!o->cache_dir && p.program)
        return ls_fail(err, LS_ENOENT,
                       "there is no place for a cache: set XDG_CACHE_HOME or HOME, or pack %.200s "
                       "with `%.200s pack`",
                       c->data_path, p.program);
    if (!o->cache_dir)
        return ls_fail(err, LS_ENOENT,
                       "there is no place for the packed images of %.200s: set "
                       "options.cache_dir",
                       c->data_path);
    return pack(c, o, &p, NULL, err);
}

int ls_config_pack_again(ls_config *c, const ls_trainer_options *o, const ls_input_format *format,
                         bool other_folder, ls_error *err)
{
    ls_folder_desc p;
    const char *file = c->data_keys.packed;
    if (file && !is_own(file, o->cache_dir))
        return LS_OK;
    int status = ls_config_folder(&p, c, o, err);
    if (status == LS_OK && c->data_path && ls_is_directory(c->data_path) && o->cache_dir)
        return pack(c, o, &p, format, err);
    if (status || (file && !other_folder && access(file, R_OK) == 0))
        return status;
    return ls_fail(
        err, LS_ENOENT,
        "%.300s: the folder of the run's images is not there%s%.300s%s; name where it is "
        "now: --set data.path=FOLDER",
        c->data_path ? c->data_path : "",
        file && !other_folder ? ", nor are they in the cache (" : "",
        file && !other_folder ? file : "", file && !other_folder ? ")" : "");
}

/* ---- data that was moved --------------------------------------------------------------------- */

/* Looks for a run's data whose relative path `path` does not exist in the current directory. It is
 * relative to the directory in which the run was started, so the parents of the run's directory are
 * tried. `config`: path of the run's config. Returns the path of the data, which the caller frees,
 * or NULL. */
static char *beside_run(const char *path, const char *config, const ls_host *host)
{
    static const char *const up[] = {"../..", "..", "../../.."};
    char beside[LS_PATH_BYTES], way[LS_PATH_BYTES];
    const char *slash = config ? strrchr(config, '/') : NULL;
    struct stat run, st;
    if (!path || *path == '/' || !slash || access(path, F_OK) == 0)
        return NULL;
    snprintf(way, sizeof way, "%.*s", (int)(slash - config), config);
    if (stat(way, &run) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof up / sizeof *up; i++) {
        snprintf(way, sizeof way, "%.*s/%s", (int)(slash - config), config, up[i]);
        if (stat(ls_path_join(beside, way, path), &st) == 0 &&
            (st.st_dev != run.st_dev || st.st_ino != run.st_ino)) /* not the run's own directory */
            return ls_strdup(host, beside);
    }
    return NULL;
}

void ls_config_find_beside(ls_config *c, const char *config_path)
{
    const char **const path[2] = {&c->data_path, &c->data_keys.test_path};
    for (int i = 0; i < 2; i++) {
        char *found = beside_run(*path[i], config_path, c->host);
        if (!found)
            continue;
        ls_free(c->host, c->found[i]);
        c->found[i] = found;
        *path[i] = found;
    }
}

int ls_config_find_run_data(ls_config *c, const char *config_path, const ls_trainer_options *o,
                            ls_error *err)
{
    ls_folder_desc p;
    const char *packed = c->data_keys.packed;
    ls_config_find_beside(c, config_path);
    if (ls_dataset_form_of(c->data_name) != LS_DATA_FOLDER || !packed || access(packed, R_OK) == 0)
        return LS_OK;
    if (!c->data_path || !ls_is_directory(c->data_path) || !o->cache_dir)
        return ls_fail(
            err, LS_ENOENT,
            "%.300s: the packed images of the run are gone, and %.300s, from which they can be "
            "packed again, is not there; name where the folder is now: --set data.path=FOLDER",
            packed, c->data_path ? c->data_path : "their folder");
    int status = ls_config_folder(&p, c, o, err);
    return status ? status : pack(c, o, &p, NULL, err);
}
