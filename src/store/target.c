/* SPDX-License-Identifier: MIT */
/* Finds out what stands at the path of a file that is to be created or replaced. */
#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"
#include "store/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MOST = 40 /* most links that are followed, as many as Linux follows */ };

/* Returns what a path leads to, for messages; NULL: a regular file or a link. */
static const char *name_special(mode_t mode)
{
    if (S_ISREG(mode) || S_ISLNK(mode))
        return NULL;
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    return S_ISSOCK(mode) ? "a socket" : "a device";
}

static int refuse(const char *path, const char *found, int status, ls_error *err)
{
    return ls_fail(err, status, "\"%s\": expected the name of a file, found %s", ls_io_tail(path),
                   found);
}

int ls_io_check_replaceable(int folder, const char *path, ls_error *err)
{
    struct stat st;
    const char *name = ls_io_base(path), *found = *name ? NULL : "a directory";
    if (!found && ls_io_stat(&st, folder, name) == 0)
        found = name_special(st.st_mode);
    return found ? refuse(path, found, LS_EIO, err) : LS_OK;
}

/* Replaces the path of a link by the path to which the link leads. Sets *followed to false, and
 * leaves the path as it is, if the path is no link. Returns an error number. */
static int follow_one(char path[LS_PATH_BYTES], bool *followed)
{
    char link[LS_PATH_BYTES];
    const ssize_t n = readlink(path, link, sizeof link);
    *followed = n > 0;
    if (!*followed)
        return 0;
    const size_t folder = link[0] == '/' ? 0 : (size_t)(ls_io_base(path) - path);
    if (folder + (size_t)n >= LS_PATH_BYTES)
        return ENAMETOOLONG;
    memcpy(path + folder, link, (size_t)n);
    path[folder + (size_t)n] = '\0';
    return 0;
}

int ls_follow_links(char out[LS_PATH_BYTES], const char *path, ls_error *err)
{
    struct stat st;
    bool followed = true;
    const char *found = stat(path, &st) == 0 ? name_special(st.st_mode) : NULL;
    if (found)
        return refuse(path, found, LS_EINVAL, err);
    int error = strlen(path) < LS_PATH_BYTES ? 0 : ENAMETOOLONG;
    if (!error)
        snprintf(out, LS_PATH_BYTES, "%s", path);
    for (int i = 0; !error && followed; i++)
        error = i > LINKS_MOST ? ELOOP : follow_one(out, &followed);
    if (error)
        return ls_io_fail(err, path, "follow the link", error);
    return *ls_io_base(out) ? LS_OK : refuse(path, "a directory", LS_EINVAL, err);
}
