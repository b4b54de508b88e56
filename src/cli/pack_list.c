#define _XOPEN_SOURCE 700 /* realpath; this file alone in the room */
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

static void free_names(cli_names *n, const ls_host *host)
{
    for (size_t i = 0; i < n->count; i++)
        ls_free(host, n->name[i]);
    ls_free(host, n->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is in a directory, hidden names left out, sorted by bytes: the same on every machine. */
static int list_names(cli_names *out, const cli_packing *k, const char *path)
{
    char why[LS_REASON];
    const struct dirent *e;
    *out = (cli_names){0};
    DIR *d = opendir(path);
    if (!d)
        return ls_fail(k->err, errno == ENOENT ? LS_ENOENT : LS_EIO, "%.300s: cannot be read: %s",
                       path, ls_reason(why, errno));
    int status = LS_OK;
    while (status == LS_OK && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            char **name = ls_grown(k->host, out->name, out->count, &out->room, sizeof *name);
            out->name = name ? name : out->name;
            if (!name || !(name[out->count++] = ls_strdup(k->host, e->d_name)))
                status = cli_pack_no_memory(k);
        }
    closedir(d);
    if (status == LS_OK && out->count)
        qsort(out->name, out->count, sizeof *out->name, by_name);
    return status;
}

static bool is_folder(const char *path)
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
static void add_state(cli_packing *k, const char *path, const char *name, int32_t label)
{
    struct stat st = {.st_size = -1};
    char text[96];
    if (stat(path, &st) != 0)
        st = (struct stat){.st_size = -1};
    const int n =
        snprintf(text, sizeof text, "|%d|%lld|%lld.%09ld\n", (int)label, (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    ls_sha256_update(&k->state, name, strlen(name));
    ls_sha256_update(&k->state, text, (size_t)n);
}

static int add_file(cli_packing *k, int test, char *path, const char *name, int32_t label)
{
    cli_listing *l = &k->split[test];
    cli_entry *entry = ls_grown(k->host, l->entry, l->count, &l->room, sizeof *entry);
    if (!entry) {
        ls_free(k->host, path);
        return cli_pack_no_memory(k);
    }
    l->entry = entry;
    l->entry[l->count++] = (cli_entry){path, label};
    if (k->known_by_state)
        add_state(k, path, name, label);
    return LS_OK;
}

static int list_class(cli_packing *k, int test, const char *folder, int32_t label)
{
    cli_names files;
    int status = list_names(&files, k, folder);
    char *real = realpath(folder, NULL); /* however the config's path came there */
    const char *known = real ? real : folder;
    ls_sha256_update(&k->state, known, strlen(known) + 1);
    free(real);
    for (size_t i = 0; status == LS_OK && i < files.count; i++) {
        if (!is_image(files.name[i])) {
            k->split[test].others++;
            continue;
        }
        char *path = ls_path_join(folder, files.name[i], k->host);
        status = path ? add_file(k, test, path, files.name[i], label) : cli_pack_no_memory(k);
    }
    free_names(&files, k->host);
    return status;
}

/* The class of a sub-folder's name; of the training images each is a new one. */
static int find_class(cli_packing *k, int test, const char *folder, char **name, int32_t *label)
{
    for (size_t i = 0; test && i < k->classes.count; i++)
        if (strcmp(k->classes.name[i], *name) == 0) {
            *label = (int32_t)i;
            return LS_OK;
        }
    if (test)
        return ls_fail(
            k->err, LS_EDATA,
            "%.300s/%.100s: expected sub-folders of the same names as the training images'", folder,
            *name);
    cli_names *c = &k->classes;
    char **names = ls_grown(k->host, c->name, c->count, &c->room, sizeof *names);
    if (!names)
        return cli_pack_no_memory(k);
    c->name = names;
    *label = (int32_t)c->count;
    c->name[c->count++] = *name;
    *name = NULL;
    return LS_OK;
}

static int list_split(cli_packing *k, int test, const char *folder)
{
    cli_names all;
    int status = list_names(&all, k, folder);
    for (size_t i = 0; status == LS_OK && i < all.count; i++) {
        char *path = ls_path_join(folder, all.name[i], k->host);
        int32_t label = 0;
        if (!path)
            status = cli_pack_no_memory(k);
        else if (!is_folder(path))
            k->split[test].others++;
        else if ((status = find_class(k, test, folder, &all.name[i], &label)) == LS_OK)
            status = list_class(k, test, path, label);
        ls_free(k->host, path);
    }
    free_names(&all, k->host);
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

int cli_pack_list(cli_packing *k)
{
    char *inner[3] = {ls_path_join(k->p->folder, "train", k->host),
                      ls_path_join(k->p->folder, "test", k->host),
                      ls_path_join(k->p->folder, "val", k->host)};
    const bool complete = inner[0] && inner[1] && inner[2];
    int status = complete ? LS_OK : cli_pack_no_memory(k);
    ls_sha256_init(&k->state);
    if (status == LS_OK) {
        const char *test = k->p->test_folder, *train = k->p->folder;
        const char *beside = is_folder(inner[1]) ? inner[1] : is_folder(inner[2]) ? inner[2] : NULL;
        if (!test && is_folder(inner[0]) && beside) {
            train = inner[0];
            test = beside;
        }
        status = list_split(k, 0, train);
        if (status == LS_OK && test)
            status = list_split(k, 1, test);
    }
    for (int i = 0; i < 3; i++)
        ls_free(k->host, inner[i]);
    return status;
}

void cli_pack_forget(cli_packing *k)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < k->split[s].count; i++)
            ls_free(k->host, k->split[s].entry[i].path);
        ls_free(k->host, k->split[s].entry);
    }
    free_names(&k->classes, k->host);
}
