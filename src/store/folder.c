#include "store/folder.h"

#include "store/bundle.h"
#include "store/io.h"
#include "store/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { NAME = LS_BUNDLE_NAME + sizeof LS_FOLDER_REPLACED, TRIES = 100 };

size_t ls_folder_original(const char *name)
{
    size_t n = strlen(name);
    size_t suffix = sizeof LS_FOLDER_REPLACED - 1;
    return n > suffix && strcmp(name + n - suffix, LS_FOLDER_REPLACED) == 0 ? n - suffix : 0;
}

int ls_folder_is_bundle(int parent, const char *name)
{
    struct stat st;
    int fd;
    if (ls_io_open_folder(&fd, parent, name) != 0)
        return 0;
    int found = ls_io_stat(&st, fd, LS_BUNDLE_MANIFEST) == 0 && S_ISREG(st.st_mode);
    (void)ls_io_close(fd);
    return found;
}

static void replaced_name(char out[NAME], const char *name)
{
    size_t n = strlen(name);
    memcpy(out, name, n);
    memcpy(out + n, LS_FOLDER_REPLACED, sizeof LS_FOLDER_REPLACED);
}

/* Two renames; between them the older one counts as `name`. */
static int install_in_two(int parent, const char *hidden, const char *name)
{
    char replaced[NAME];
    replaced_name(replaced, name);
    int error = ls_io_rename(parent, name, replaced);
    if (error)
        return error == EEXIST ? ENOTEMPTY : error;
    error = ls_io_rename(parent, hidden, name);
    if (error)
        (void)ls_io_rename(parent, replaced, name);
    return error;
}

static int install(int parent, const char *hidden, const char *name)
{
    int error = ls_io_rename(parent, hidden, name);
    if (error != ENOTEMPTY && error != EEXIST) /* which of the two depends on the file system */
        return error;
    if (!ls_folder_is_bundle(parent, name))
        return ENOTEMPTY;
    error = ls_io_exchange(parent, hidden, name);
    return error == EOPNOTSUPP ? install_in_two(parent, hidden, name) : error;
}

/* Removes a directory that nobody has open. */
static void remove_unused(int parent, const char *name, int hidden)
{
    int fd;
    if (ls_io_open_folder(&fd, parent, name) != 0)
        return;
    int error = ls_io_lock(fd, 1);
    if (error == 0 || error == EOPNOTSUPP)
        (void)(hidden ? ls_temporary_remove(parent, name, fd)
                      : ls_temporary_discard(parent, name, fd));
    (void)ls_io_close(fd);
}

static int install_locked(int parent, const char *hidden, const char *name)
{
    int error = ls_io_lock_names(parent);
    if (error)
        return error;
    error = install(parent, hidden, name);
    ls_io_unlock_names(parent);
    return error;
}

int ls_folder_install(int parent, const char *hidden, const char *name)
{
    char replaced[NAME];
    int error = ENOTEMPTY;
    replaced_name(replaced, name);
    for (int i = 0; i < TRIES && error == ENOTEMPTY; i++) {
        error = install_locked(parent, hidden, name);
        /* What somebody else has just replaced may be in the way of what is replaced now. */
        if (error != ENOTEMPTY || !ls_folder_is_bundle(parent, replaced) ||
            ls_io_sync_folder(parent) != 0)
            break;
        remove_unused(parent, replaced, 0);
    }
    return error;
}

void ls_folder_forget(int parent, const char *hidden, const char *name)
{
    char replaced[NAME];
    replaced_name(replaced, name);
    remove_unused(parent, hidden, 1);
    if (ls_folder_is_bundle(parent, replaced))
        remove_unused(parent, replaced, 0);
}

/* Gives NAME.replaced its name back unless that is taken. Whether it is. */
static int restore(int parent, const char *replaced, const char *name)
{
    struct stat st;
    if (ls_io_lock_names(parent) != 0) /* a living process is at it */
        return 0;
    int error = ls_io_stat(&st, parent, name);
    if (error == ENOENT)
        (void)ls_io_rename(parent, replaced, name);
    ls_io_unlock_names(parent);
    return !error && ls_folder_is_bundle(parent, name);
}

static void recover_one(int parent, const char *replaced)
{
    char name[NAME];
    size_t n = ls_folder_original(replaced);
    if (n >= sizeof name || !ls_folder_is_bundle(parent, replaced))
        return;
    memcpy(name, replaced, n);
    name[n] = '\0';
    if (restore(parent, replaced, name) && ls_io_sync_folder(parent) == 0)
        remove_unused(parent, replaced, 0);
}

void ls_folder_recover(int parent)
{
    int own;
    if (ls_io_open(&own, parent, ".", O_RDONLY | O_DIRECTORY) != 0)
        return;
    DIR *stream = fdopendir(own);
    if (!stream) {
        (void)ls_io_close(own);
        return;
    }
    for (const struct dirent *e; (e = readdir(stream)) != NULL;)
        if (ls_folder_original(e->d_name) > 0)
            recover_one(parent, e->d_name);
    closedir(stream);
}
