#define _DEFAULT_SOURCE /* realpath, DT_REG; this file alone in the room */
#include "cli/pack.h"

#include "base/error.h"
#include "base/host.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

int cli_pack_no_memory(const cli_packing *k)
{
    return ls_fail(k->err, LS_ENOMEM, "%.300s: out of memory", k->p->folder);
}

/* ---- texts -------------------------------------------------------------------------------------- */

enum { TEXTS = 64 << 10 };

/* Some of them, one behind the other, and those before. */
struct cli_texts {
    cli_texts *before;
    size_t used, room;
    char text[];
};

/* → "FOLDER/NAME", which lives as long as the packing; NULL: no memory. */
static const char *keep_path(cli_packing *k, const char *folder, const char *name)
{
    const size_t n = strlen(folder), m = strlen(name) + 1, need = n + 1 + m;
    if (!k->texts || k->texts->room - k->texts->used < need) {
        const size_t room = need > TEXTS ? need : TEXTS;
        cli_texts *more = ls_alloc(k->host, sizeof *more + room);
        if (!more)
            return NULL;
        *more = (cli_texts){.before = k->texts, .room = room};
        k->texts = more;
    }
    char *path = k->texts->text + k->texts->used;
    memcpy(path, folder, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m);
    k->texts->used += need;
    return path;
}

static const char *name_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* ---- folders ------------------------------------------------------------------------------------ */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const cli_entry *)a)->path, ((const cli_entry *)b)->path);
}

static int add_entry(cli_packing *k, cli_listing *l, const char *folder, const struct dirent *e,
                     int32_t label)
{
    cli_entry *entry = ls_grown(k->host, l->entry, l->count, &l->room, sizeof *entry);
    l->entry = entry ? entry : l->entry;
    const char *path = entry ? keep_path(k, folder, e->d_name) : NULL;
    if (!path)
        return cli_pack_no_memory(k);
    l->entry[l->count++] = (cli_entry){path, label, e->d_type == DT_REG};
    return LS_OK;
}

/* Appends what is in a directory and `wanted`, hidden names left out, sorted by bytes: the same on every machine. */
static int list_folder(cli_listing *out, cli_packing *k, const char *path, int32_t label,
                       bool (*wanted)(const char *name))
{
    char why[LS_REASON];
    const struct dirent *e;
    const size_t begin = out->count;
    DIR *d = opendir(path);
    if (!d)
        return ls_fail(k->err, errno == ENOENT ? LS_ENOENT : LS_EIO, "%.300s: cannot be read: %s",
                       path, ls_reason(why, errno));
    int status = LS_OK;
    while (status == LS_OK && (e = readdir(d)))
        if (e->d_name[0] != '.' && wanted && !wanted(e->d_name))
            out->others++;
        else if (e->d_name[0] != '.')
            status = add_entry(k, out, path, e, label);
    closedir(d);
    if (status == LS_OK && out->count > begin)
        qsort(out->entry + begin, out->count - begin, sizeof *out->entry, by_path);
    return status;
}

bool cli_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_image(const char *name)
{
    static const char *const end[] = {".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof end / sizeof *end; i++)
        if (strcasecmp(dot, end[i]) == 0)
            return true;
    return false;
}

/* A file whose size cannot be told: reading it says why. */
static void add_state(cli_packing *k, const cli_entry *e)
{
    struct stat st;
    char text[96];
    if (stat(e->path, &st) != 0)
        st = (struct stat){.st_size = -1};
    const char *name = name_of(e->path);
    const int n =
        snprintf(text, sizeof text, "|%d|%lld|%lld.%09ld\n", (int)e->label, (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    ls_sha256_update(&k->state, name, strlen(name));
    ls_sha256_update(&k->state, text, (size_t)n);
}

static int list_class(cli_packing *k, int test, const char *folder, int32_t label)
{
    cli_listing *l = &k->split[test];
    size_t first = l->count;
    const int status = list_folder(l, k, folder, label, is_image);
    if (status || !k->known_by_state)
        return status;
    char *real = realpath(folder, NULL); /* however the config's path came there */
    const char *known = real ? real : folder;
    ls_sha256_update(&k->state, known, strlen(known) + 1);
    free(real);
    for (; first < l->count; first++)
        add_state(k, &l->entry[first]);
    return LS_OK;
}

/* The class of a sub-folder's name; of the training images each is a new one. */
static int find_class(cli_packing *k, int test, const char *folder, int32_t *label)
{
    cli_names *all = &k->classes;
    const char *name = name_of(folder);
    for (size_t i = 0; (test || k->fixed) && i < all->count; i++)
        if (strcmp(all->name[i], name) == 0) {
            *label = (int32_t)i;
            return LS_OK;
        }
    if (k->fixed)
        return ls_fail(k->err, LS_EDATA,
                       "%.400s: expected sub-folders named as classes of the model, which are "
                       "\"%.60s\", \"%.60s\"%s",
                       folder, all->name[0], all->name[1], all->count > 2 ? ", …" : "");
    if (test)
        return ls_fail(k->err, LS_EDATA,
                       "%.400s: expected sub-folders of the same names as the training images'",
                       folder);
    const char **names = ls_grown(k->host, all->name, all->count, &all->room, sizeof *names);
    if (!names)
        return cli_pack_no_memory(k);
    all->name = names;
    *label = (int32_t)all->count;
    all->name[all->count++] = name;
    return LS_OK;
}

static int list_split(cli_packing *k, int test, const char *folder)
{
    cli_listing inside = {0};
    int status = list_folder(&inside, k, folder, 0, NULL);
    for (size_t i = 0; status == LS_OK && i < inside.count; i++) {
        const char *path = inside.entry[i].path;
        int32_t label = 0;
        if (!cli_is_folder(path))
            k->split[test].others++;
        else if ((status = find_class(k, test, path, &label)) == LS_OK)
            status = list_class(k, test, path, label);
    }
    ls_free(k->host, inside.entry);
    if (status == LS_OK && k->split[test].count == 0)
        status =
            ls_fail(k->err, LS_EDATA,
                    "%.300s: expected a sub-folder for each class with images (jpg, png, pgm, ppm) "
                    "in it, found none",
                    folder);
    if (status == LS_OK && k->classes.count < 2)
        status = ls_fail(k->err, LS_EDATA, "%.300s: expected at least two sub-folders, one a class",
                         folder);
    return status;
}

int cli_pack_list_all(cli_packing *k, const char *folder)
{
    cli_listing inside = {0}, *l = &k->split[0];
    int status = list_folder(&inside, k, folder, 0, NULL);
    for (size_t i = 0; status == LS_OK && i < inside.count; i++) {
        const cli_entry *e = &inside.entry[i];
        if (cli_is_folder(e->path))
            status = cli_pack_list_all(k, e->path);
        else if (!is_image(e->path))
            l->others++;
        else {
            cli_entry *all = ls_grown(k->host, l->entry, l->count, &l->room, sizeof *all);
            l->entry = all ? all : l->entry;
            status = all ? LS_OK : cli_pack_no_memory(k);
            if (all)
                all[l->count++] = *e;
        }
    }
    ls_free(k->host, inside.entry);
    return status;
}

int cli_pack_list(cli_packing *k)
{
    const char *train = k->p->folder, *test = k->p->test_folder;
    const char *inner[3] = {keep_path(k, train, "train"), keep_path(k, train, "test"),
                            keep_path(k, train, "val")};
    if (!inner[0] || !inner[1] || !inner[2])
        return cli_pack_no_memory(k);
    const char *beside = NULL;
    for (int i = 2; i > 0; i--) /* "test" before "val" */
        if (cli_is_folder(inner[i]))
            beside = inner[i];
    if (!test && cli_is_folder(inner[0]) && beside) {
        train = inner[0];
        test = beside;
    }
    ls_sha256_init(&k->state);
    int status = list_split(k, 0, train);
    return status || !test ? status : list_split(k, 1, test);
}

void cli_pack_forget(cli_packing *k)
{
    for (int s = 0; s < 2; s++)
        ls_free(k->host, k->split[s].entry);
    ls_free(k->host, k->classes.name);
    while (k->texts) {
        cli_texts *all = k->texts;
        k->texts = all->before;
        ls_free(k->host, all);
    }
}
