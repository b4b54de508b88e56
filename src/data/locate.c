#include "data/locate.h"

#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* "a/b/c" from up to three parts, without doubled slashes for an empty middle. */
static char *join(const ls_host *host, const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 3;
    char *path = ls_alloc(host, n);
    if (path)
        snprintf(path, n, "%s%s%s%s%s", a, *b ? "/" : "", b, *c ? "/" : "", c);
    return path;
}

/* Whether something is there, readable or not: opening it tells what is wrong with it. */
static int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* *out is the path of a file, with or without ".gz", or NULL when neither exists. */
static int find_file(char **out, const char *directory, const char *name, const ls_host *host,
                     ls_error *err)
{
    char gz[64];
    snprintf(gz, sizeof gz, "%s.gz", name);
    for (int i = 0; i < 2; i++) {
        *out = join(host, directory, "", i == 0 ? name : gz);
        if (!*out)
            return ls_fail(err, LS_ENOMEM, "%s: out of memory", directory);
        if (exists(*out))
            return LS_OK;
        ls_free(host, *out);
        *out = NULL;
    }
    return LS_OK;
}

/* Tries one directory; the first file in it decides, and then all must be there. */
static int try_directory(ls_located *p, const ls_file_set *files, const char *directory,
                         const ls_host *host, ls_error *err)
{
    for (int i = 0; i < files->count; i++) {
        int rc = find_file(&p->file[i], directory, files->name[i], host, err);
        if (rc != LS_OK || (i == 0 && !p->file[0]))
            return rc;
        if (!p->file[i])
            return ls_fail(err, LS_ENOENT,
                           "%s: no %s[.gz] beside %s; the dataset is incomplete, fetch it again",
                           directory, files->name[i], files->name[0]);
    }
    p->directory = ls_strdup(host, directory);
    return p->directory ? LS_OK : ls_fail(err, LS_ENOMEM, "%s: out of memory", directory);
}

/* Adds to `text`, of `size` bytes. */
static void add(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* The remedy stands first, because long lists of directories are cut at their end. */
static int fail_not_found(const ls_file_set *files, const char *dataset,
                          const ls_dataset_spec *spec, ls_error *err)
{
    char text[LS_ERROR_TEXT] = "";
    add(text, sizeof text, "%s not found; ", dataset);
    if (files->remedy)
        add(text, sizeof text, "%s, ", files->remedy);
    add(text, sizeof text,
        "name the directory of the files with --set data.path=DIR, or try --set "
        "data.name=synthetic; no %s[.gz] in ",
        files->name[0]);
    if (spec->path)
        return ls_fail(err, LS_ENOENT, "%s%s", text, spec->path);
    for (size_t i = 0; i < spec->search_count; i++)
        add(text, sizeof text, "%s%s", i > 0 ? ", " : "", spec->search[i]);
    if (spec->search_count == 0)
        add(text, sizeof text, "any directory, as none was to be searched");
    else
        add(text, sizeof text, " (each also as DIR/%s and DIR/%s)", files->folders[0],
            files->folders[1]);
    return ls_fail(err, LS_ENOENT, "%s", text);
}

static int check_given_path(const ls_dataset_spec *spec, ls_error *err)
{
    struct stat st;
    if (stat(spec->path, &st) == 0 && !S_ISDIR(st.st_mode))
        return ls_dataset_refuse(
            spec, "data.path", err,
            "expected a directory, found the file %s; name the directory it is in", spec->path);
    return LS_OK;
}

int ls_locate(ls_located *out, const ls_file_set *files, const char *dataset,
              const ls_dataset_spec *spec, const ls_host *host, ls_error *err)
{
    int rc;
    *out = (ls_located){0};
    if (spec->path) {
        rc = check_given_path(spec, err);
        if (rc == LS_OK)
            rc = try_directory(out, files, spec->path, host, err);
        return rc != LS_OK || out->directory ? rc : fail_not_found(files, dataset, spec, err);
    }
    for (size_t i = 0; i < spec->search_count; i++) {
        const char *below[3] = {files->folders[0], files->folders[1], ""};
        for (int j = 0; j < 3; j++) {
            char *directory = join(host, spec->search[i], below[j], "");
            if (!directory)
                return ls_fail(err, LS_ENOMEM, "%s: out of memory", dataset);
            rc = try_directory(out, files, directory, host, err);
            ls_free(host, directory);
            if (rc != LS_OK || out->directory)
                return rc;
        }
    }
    return fail_not_found(files, dataset, spec, err);
}

void ls_located_free(ls_located *located, const ls_host *host)
{
    for (int i = 0; i < LS_FILES_MAX; i++)
        ls_free(host, located->file[i]);
    ls_free(host, located->directory);
    *located = (ls_located){0};
}
