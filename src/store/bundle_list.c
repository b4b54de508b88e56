#include "base/error.h"
#include "base/host.h"
#include "store/bundle.h"
#include "store/folder.h"
#include "store/io.h"
#include "store/manifest.h"
#include "store/natural.h"
#include "store/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- listing -------------------------------------------------------------------------------- */

static int add_name(ls_bundle_names *names, size_t *capacity, const char *name)
{
    if (names->count == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 16;
        char **list = ls_alloc_array(names->host, more, sizeof *list);
        if (!list)
            return LS_ENOMEM;
        if (names->count > 0)
            memcpy(list, names->name, names->count * sizeof *list);
        ls_free(names->host, names->name);
        names->name = list;
        *capacity = more;
    }
    names->name[names->count] = ls_strdup(names->host, name);
    if (!names->name[names->count])
        return LS_ENOMEM;
    names->count++;
    return LS_OK;
}

/* NAME.replaced stands for NAME as long as there is no NAME. */
static int is_listed(int parent, const char *name)
{
    char original[LS_BUNDLE_NAME + 1];
    size_t n = ls_folder_original(name);
    if (n == 0)
        return ls_bundle_name_allowed(name) && ls_folder_is_bundle(parent, name);
    if (n >= sizeof original)
        return 0;
    memcpy(original, name, n);
    original[n] = '\0';
    return ls_bundle_name_allowed(original) && ls_folder_is_bundle(parent, name) &&
           !ls_folder_is_bundle(parent, original);
}

static int compare_names(const void *a, const void *b)
{
    return ls_natural_order(*(char *const *)a, *(char *const *)b);
}

static int read_names(ls_bundle_names *names, int parent, const char *path, ls_error *err)
{
    int own;
    int rc = LS_OK;
    size_t capacity = 0;
    int error = ls_io_open(&own, parent, ".", O_RDONLY | O_DIRECTORY);
    DIR *stream = error ? NULL : fdopendir(own);
    if (!stream) {
        rc = ls_io_fail(err, path, "read the directory", error ? error : errno);
        if (!error)
            (void)ls_io_close(own);
        return rc;
    }
    errno = 0;
    for (const struct dirent *e; rc == LS_OK && (e = readdir(stream)) != NULL; errno = 0)
        if (is_listed(parent, e->d_name))
            rc = add_name(names, &capacity, e->d_name);
    if (rc != LS_OK)
        rc = ls_fail(err, rc, "%s: out of memory to list it", ls_io_tail(path));
    else if (errno != 0)
        rc = ls_io_fail(err, path, "read the directory", errno);
    closedir(stream);
    return rc;
}

/* `parent` gets a descriptor of the directory, or −1 when there is none. */
static int list(ls_bundle_names *out, int *parent, const char *path, const ls_host *host,
                ls_error *err)
{
    memset(out, 0, sizeof *out);
    out->host = host;
    int error = ls_io_open(parent, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (error) {
        *parent = -1;
        return error == ENOENT ? LS_OK : ls_io_fail(err, path, "open the directory", error);
    }
    int rc = read_names(out, *parent, path, err);
    if (rc != LS_OK)
        ls_bundle_names_fini(out);
    else if (out->count > 1)
        qsort(out->name, out->count, sizeof *out->name, compare_names);
    return rc;
}

int ls_bundle_list(ls_bundle_names *out, const char *parent, const ls_host *host, ls_error *err)
{
    int fd;
    int rc = list(out, &fd, parent, host, err);
    if (fd >= 0)
        (void)ls_io_close(fd);
    return rc;
}

void ls_bundle_names_fini(ls_bundle_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        ls_free(names->host, names->name[i]);
    ls_free(names->host, names->name);
    names->name = NULL;
    names->count = 0;
}

/* ---- the newest that is whole --------------------------------------------------------------- */

static int open_named(ls_bundle_reader **out, const char *parent, const char *name,
                      const ls_host *host, ls_error *err)
{
    *out = NULL;
    char *path = ls_io_join(parent, name, host);
    if (!path)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a path", ls_io_tail(parent));
    int rc = ls_bundle_open(out, path, host, err);
    ls_free(host, path);
    return rc;
}

int ls_bundle_latest(ls_bundle_reader **out, const char *parent, ls_bundle_skipped *skipped,
                     void *context, const ls_host *host, ls_error *err)
{
    ls_bundle_names names;
    ls_error why = {0};
    *out = NULL;
    int rc = ls_bundle_list(&names, parent, host, err);
    if (rc != LS_OK)
        return rc;
    size_t broken = 0;
    for (size_t i = names.count; i > 0 && !*out; i--) {
        rc = open_named(out, parent, names.name[i - 1], host, &why);
        if (rc == LS_ENOMEM) {
            rc = ls_fail(err, rc, "%s", why.text);
            goto out;
        }
        if (rc != LS_OK) {
            broken++;
            if (skipped)
                skipped(context, names.name[i - 1], &why);
        }
    }
    if (!*out && broken == 0)
        rc = ls_fail(err, LS_ENOENT, "%s: there is nothing saved here", ls_io_tail(parent));
    else if (!*out)
        rc = ls_fail(err, LS_EDATA, "%s: nothing here is whole; the oldest: %s", ls_io_tail(parent),
                     why.text);
out:
    ls_bundle_names_fini(&names);
    return rc;
}

/* ---- pruning -------------------------------------------------------------------------------- */

/* How many of the names, from the oldest, may go: all but the newest `keep`, and nothing from the
 * newest whole one on. */
static int count_spare(size_t *spare, const ls_bundle_names *names, size_t keep, const char *parent,
                       ls_error *err)
{
    ls_error why = {0};
    size_t limit = names->count > keep ? names->count - keep : 0;
    *spare = 0;
    for (size_t i = names->count; i > 0 && limit > 0; i--) {
        ls_bundle_reader *r;
        int rc = open_named(&r, parent, names->name[i - 1], names->host, &why);
        ls_bundle_close(r);
        if (rc == LS_ENOMEM)
            return ls_fail(err, rc, "%s", why.text);
        if (rc == LS_OK) {
            *spare = i - 1 < limit ? i - 1 : limit;
            break;
        }
    }
    return LS_OK;
}

/* One that somebody has open stays. */
static int discard(int parent, const char *name, const char *parent_path, ls_error *err)
{
    int fd;
    int error = ls_io_open_folder(&fd, parent, name);
    if (error == ENOENT)
        return LS_OK;
    if (!error) {
        int locked = ls_io_lock(fd, 1);
        if (locked == 0 || locked == EOPNOTSUPP)
            error = ls_temporary_discard(parent, name, fd);
        else if (locked != EWOULDBLOCK)
            error = locked;
        (void)ls_io_close(fd);
    }
    if (!error || error == ENOENT)
        return LS_OK;
    ls_error why = {0};
    ls_io_fail(&why, parent_path, "remove", error);
    return ls_fail(err, LS_EIO, "%s (%s)", why.text, name);
}

int ls_bundle_prune(const char *parent, size_t keep, const ls_host *host, ls_error *err)
{
    ls_bundle_names names;
    size_t spare = 0;
    int fd;
    if (keep < 1)
        return ls_fail(err, LS_EINVAL, "%s: expected to keep at least 1", ls_io_tail(parent));
    int error = ls_io_open(&fd, AT_FDCWD, parent, O_RDONLY | O_DIRECTORY);
    if (error == ENOENT)
        return LS_OK;
    if (error)
        return ls_io_fail(err, parent, "open the directory", error);
    ls_folder_recover(fd);
    ls_temporary_sweep(fd);
    (void)ls_io_close(fd);
    int rc = list(&names, &fd, parent, host, err);
    if (rc == LS_OK)
        rc = count_spare(&spare, &names, keep, parent, err);
    for (size_t i = 0; i < spare; i++) {
        int failed = discard(fd, names.name[i], parent, rc == LS_OK ? err : NULL);
        rc = rc == LS_OK ? failed : rc;
    }
    ls_bundle_names_fini(&names);
    if (fd >= 0)
        (void)ls_io_close(fd);
    return rc;
}
