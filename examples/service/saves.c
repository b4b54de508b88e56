#include "saves.h"

#include "record.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "step-%012llu-example-%012llu.safetensors"
enum { PATH_BYTES = 4096, KEPT = 2 };

/* ---- the names ------------------------------------------------------------------------------ */

static int read_name(const char *name, unsigned long long *step, unsigned long long *position)
{
    char again[64];
    if (sscanf(name, "step-%llu-example-%llu", step, position) != 2)
        return 0;
    snprintf(again, sizeof again, NAME, *step, *position);
    return strcmp(name, again) == 0;
}

static int is_save(const struct dirent *entry)
{
    unsigned long long step, position;
    return read_name(entry->d_name, &step, &position);
}

/* The numbers have leading zeros: the newest is first. */
static int newest_first(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*b)->d_name, (*a)->d_name);
}

static int list(struct dirent ***names, const char *directory, ls_error *err)
{
    *names = NULL;
    int count = scandir(directory, names, is_save, newest_first);
    if (count < 0)
        fail(err, LS_EIO, "%.300s: cannot list it: %s", directory, strerror(errno));
    return count;
}

static void free_list(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

int saves_known(const char *directory, uint64_t *position, ls_error *err)
{
    struct dirent **names;
    unsigned long long step, at;
    *position = 0;
    if (access(directory, F_OK) != 0 && errno == ENOENT)
        return LS_OK;
    const int count = list(&names, directory, err);
    for (int i = 0; i < count; i++)
        if (read_name(names[i]->d_name, &step, &at) && at > *position)
            *position = at;
    free_list(names, count);
    return count < 0 ? LS_EIO : LS_OK;
}

/* ---- loading -------------------------------------------------------------------------------- */

static int load_one(ls_trainer *trainer, const char *directory, const char *name,
                    uint64_t *position, ls_error *err)
{
    char path[PATH_BYTES];
    unsigned long long step, at;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int status = ls_trainer_load(trainer, path, err);
    if (status == LS_OK && read_name(name, &step, &at))
        *position = at;
    if (status == LS_EDATA || status == LS_ENOENT)
        say(LS_LOG_WARNING, "save %s is damaged: %.400s", name, err->text);
    return status;
}

/* Out of the way of the saves to come, which may get the same names. */
static void set_aside(const char *directory, const char *name)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    snprintf(from, sizeof from, "%s/%s", directory, name);
    snprintf(to, sizeof to, "%s/damaged-%s", directory, name);
    if (rename(from, to) != 0)
        say(LS_LOG_WARNING, "%.300s: cannot be renamed: %s", from, strerror(errno));
}

int saves_load(ls_trainer *trainer, const char *directory, uint64_t *position, ls_error *err)
{
    struct dirent **names;
    *position = 0;
    const int error = file_make_directory(directory);
    if (error)
        return fail(err, LS_EIO, "%.300s: cannot be made: %s", directory, strerror(error));
    int count = list(&names, directory, err), status = count < 0 ? LS_EIO : LS_OK, used = 0;
    for (; used < count; used++) {
        status = load_one(trainer, directory, names[used]->d_name, position, err);
        if (status != LS_EDATA && status != LS_ENOENT)
            break;
    }
    for (int i = 0; status == LS_OK && i < used; i++)
        set_aside(directory, names[i]->d_name);
    free_list(names, count);
    return status;
}

/* ---- saving --------------------------------------------------------------------------------- */

static void remove_save(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (unlink(path) != 0)
        say(LS_LOG_WARNING, "%.300s: the old save cannot be removed: %s", path, strerror(errno));
}

static void prune(const char *directory)
{
    struct dirent **names;
    int count = list(&names, directory, NULL);
    for (int i = KEPT; i < count; i++)
        remove_save(directory, names[i]->d_name);
    free_list(names, count);
}

int saves_write(ls_trainer *trainer, const char *directory, uint64_t position, ls_error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/" NAME, directory,
             (unsigned long long)ls_trainer_result(trainer)->steps, (unsigned long long)position);
    int status = ls_trainer_save(trainer, path, err);
    if (status == LS_OK)
        prune(directory);
    return status;
}
