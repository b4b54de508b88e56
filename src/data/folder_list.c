/* SPDX-License-Identifier: MIT */
/* Lists the images in a folder and finds their classes, the names of its subfolders. Computes the
 * state of the folder (folder.h). */
#define _DEFAULT_SOURCE /* for realpath and DT_REG; only this file of the directory needs it */
#include "data/folder.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/plural.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

int ls_folder_no_memory(const ls_folder *k)
{
    return ls_fail(k->err, LS_ENOMEM, "%.300s: out of memory", k->p->folder);
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum { TEXTS = 64 << 10 };

/* A block of memory with texts, one after another. The blocks are a linked list, the newest
 * first. */
struct ls_folder_texts {
    ls_folder_texts *before;
    size_t used, capacity; /* number of bytes of `text` that are used; its size in bytes */
    char text[];
};

/* Returns the text "FOLDER/NAME", which belongs to the packing; NULL if there is no memory. */
static const char *keep_path(ls_folder *k, const char *folder, const char *name)
{
    const size_t n = strlen(folder), m = strlen(name) + 1, need = n + 1 + m;
    if (!k->texts || k->texts->capacity - k->texts->used < need) {
        const size_t capacity = need > TEXTS ? need : TEXTS;
        ls_folder_texts *more = ls_alloc(k->host, sizeof *more + capacity);
        if (!more)
            return NULL;
        *more = (ls_folder_texts){.before = k->texts, .capacity = capacity};
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

/* ---- folders --------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const ls_folder_entry *)a)->path, ((const ls_folder_entry *)b)->path);
}

static int add_entry(ls_folder *k, ls_folder_listing *l, const char *folder, const struct dirent *e,
                     int32_t label)
{
    ls_folder_entry *entry = ls_grown(k->host, l->entry, l->count, &l->capacity, sizeof *entry);
    l->entry = entry ? entry : l->entry;
    const char *path = entry ? keep_path(k, folder, e->d_name) : NULL;
    if (!path)
        return ls_folder_no_memory(k);
    l->entry[l->count++] = (ls_folder_entry){path, label, k->folders, e->d_type == DT_REG};
    return LS_OK;
}

/* Returns whether a file is ignored because of its name: hidden files, and directories that
 * archives and file servers create. */
static bool is_ignored(const char *name)
{
    return name[0] == '.' || strcmp(name, "__MACOSX") == 0 || strcmp(name, "@eaDir") == 0;
}

/* Lists a directory. The entries are sorted by the bytes of their names, so that the order is the
 * same on every machine. The caller frees the entries. */
static int list_folder(ls_folder_listing *out, ls_folder *k, const char *path, int32_t label)
{
    char why[LS_REASON];
    const struct dirent *e;
    DIR *d = opendir(path);
    *out = (ls_folder_listing){0};
    k->folders++;
    if (!d)
        return ls_fail(k->err, errno == ENOENT ? LS_ENOENT : LS_EIO, "%.300s: cannot be read: %s",
                       path, ls_reason(why, errno));
    int status = LS_OK;
    while (status == LS_OK && (e = readdir(d)))
        if (!is_ignored(e->d_name))
            status = add_entry(k, out, path, e, label);
    closedir(d);
    if (status == LS_OK && out->count > 0)
        qsort(out->entry, out->count, sizeof *out->entry, by_path);
    return status;
}

static bool ends_as(const char *name, const char *const end[])
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && end[i]; i++)
        if (strcasecmp(dot, end[i]) == 0)
            return true;
    return false;
}

static bool is_image(const char *name)
{
    static const char *const end[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".pgm",
                                      ".ppm", ".pnm",  ".bmp", ".webp", NULL};
    return ends_as(name, end);
}

/* Returns whether a file is an image of a format that is not supported. */
static bool is_foreign(const char *name)
{
    static const char *const end[] = {".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2",
                                      ".jxl", ".svg", ".psd",  ".dng",  ".cr2",  ".nef",  ".arw",
                                      ".pbm", ".pam", ".exr",  ".hdr",  ".apng", NULL};
    return ends_as(name, end);
}

/* Counts an image of a format that is not supported. */
static void count_foreign(ls_folder_listing *l, const char *name)
{
    const char *end = strrchr(name, '.') + 1;
    const size_t used = strlen(l->foreign_ends), left = sizeof l->foreign_ends - used;
    l->foreign++;
    if (!strstr(l->foreign_ends, end) && strlen(end) + 2 < left)
        snprintf(l->foreign_ends + used, left, "%s%s", used ? ", " : "", end);
}

/* Adds name, size and time of an image to k->state. An error of stat() is ignored here, because
 * reading the file will report it. */
static void add_state(ls_folder *k, const ls_folder_entry *e)
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

enum { DEEPEST = 16 }; /* largest number of levels of nested folders */

static int fail_depth(const ls_folder *k, const char *folder)
{
    return ls_fail(k->err, LS_EDATA,
                   "%.300s: expected at most %d levels of folders; does a symbolic link lead "
                   "back to a folder above it?",
                   folder, DEEPEST);
}

/* Adds the real path of a folder to k->state. The real path does not depend on how the config names
 * the folder. */
static void add_place(ls_folder *k, const char *folder)
{
    char *real = k->wants_state ? realpath(folder, NULL) : NULL;
    const char *known = real ? real : folder;
    if (k->wants_state)
        ls_sha256_update(&k->state, known, strlen(known) + 1);
    free(real);
}

static int take_image(ls_folder *k, ls_folder_listing *l, const ls_folder_entry *e)
{
    ls_folder_entry *all = ls_grown(k->host, l->entry, l->count, &l->capacity, sizeof *all);
    l->entry = all ? all : l->entry;
    if (!all)
        return ls_folder_no_memory(k);
    all[l->count++] = *e;
    if (k->wants_state)
        add_state(k, e);
    return LS_OK;
}

/* Appends the images in a folder and its subfolders to `l`. `depth`: level of the folder; 0 is the
 * first. */
static int list_images(ls_folder *k, ls_folder_listing *l, const char *folder, int32_t label,
                       int depth)
{
    ls_folder_listing inside;
    if (depth == DEEPEST)
        return fail_depth(k, folder);
    int status = list_folder(&inside, k, folder, label);
    if (status == LS_OK)
        add_place(k, folder);
    for (size_t i = 0; status == LS_OK && i < inside.count; i++) {
        const ls_folder_entry *e = &inside.entry[i];
        if (is_image(e->path))
            status = take_image(k, l, e);
        else if (!e->is_plain && ls_is_directory(e->path))
            status = list_images(k, l, e->path, label, depth + 1);
        else if (is_foreign(e->path))
            count_foreign(l, e->path);
        else
            l->others++;
        if (status == LS_OK && depth > 0 && is_image(e->path))
            l->deeper++;
    }
    ls_free(k->host, inside.entry);
    return status;
}

/* Returns whether a subfolder has the name of a class; the two may be in different Unicode normal
 * forms. Only the names of a model have U+FFFD in place of bytes that are invalid UTF-8. */
static bool is_class(const ls_folder *k, const char *class_name, const char *name)
{
    return k->fixed ? ls_prep_is_name(class_name, name) : ls_text_is_same(class_name, name);
}

/* Finds the class whose name is that of the subfolder `folder`. If there is none, and the folder is
 * one of the training images, a new class is added. */
static int find_class(ls_folder *k, int test, const char *folder, int32_t *label)
{
    ls_folder_names *all = &k->classes;
    const char *name = name_of(folder);
    for (size_t i = 0; i < all->count; i++)
        if (is_class(k, all->name[i], name)) {
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
    const char **names = ls_grown(k->host, all->name, all->count, &all->capacity, sizeof *names);
    if (!names)
        return ls_folder_no_memory(k);
    all->name = names;
    *label = (int32_t)all->count;
    all->name[all->count++] = name;
    return LS_OK;
}

/* The names of subfolders without images, as many as fit in `text`, and their number. */
typedef struct empties {
    char text[240];
    size_t count;
} empties;

static void add_empty(empties *e, const char *folder)
{
    const size_t used = strlen(e->text), left = sizeof e->text - used;
    if (e->count++ < 6)
        snprintf(e->text + used, left, "%s%.60s", used ? ", " : "", name_of(folder));
    else if (e->count == 7)
        snprintf(e->text + used, left, ", …");
}

/* Appends the images of a subfolder, which is one class. A subfolder without images is no class. A
 * class need not have test images. */
static int list_class(ls_folder *k, int test, const char *folder, empties *empty)
{
    ls_folder_listing *l = &k->split[test];
    const size_t first = l->count, known = k->classes.count;
    int32_t label = 0;
    ls_error why;
    const int unknown = find_class(k, test, folder, &label);
    if (unknown && k->err)
        why = *k->err;
    if (unknown == LS_ENOMEM)
        return unknown;
    int status = list_images(k, l, folder, label, 0);
    if (status == LS_OK && l->count == first) {
        add_empty(empty, folder);
        k->classes.count = known;
    } else if (status == LS_OK && unknown) {
        status = unknown;
        if (k->err)
            *k->err = why;
    }
    return status;
}

static void remark_split(ls_folder *k, int test, const empties *empty)
{
    const ls_folder_listing *l = &k->split[test];
    const char *of = test ? "test " : "";
    if (empty->count && !test)
        ls_folder_remark(k, "%zu %s: %s", empty->count,
                         ls_plural(empty->count, "sub-folder has no images and is no class",
                                   "sub-folders have no images and are no classes"),
                         empty->text);
    else if (empty->count)
        ls_folder_remark(k, "%zu %s no test images: %s", empty->count,
                         ls_plural(empty->count, "class has", "classes have"), empty->text);
    if (l->others)
        ls_folder_remark(k, "%zu %s%s no jpg, png, bmp, webp, pgm or ppm and %s left out",
                         l->others, of, ls_plural(l->others, "file is", "files are"),
                         ls_plural(l->others, "was", "were"));
    if (l->loose)
        ls_folder_remark(k, "%zu %s%s beside the folders of the classes and %s left out", l->loose,
                         of, ls_plural(l->loose, "image is", "images are"),
                         ls_plural(l->loose, "was", "were"));
    if (l->foreign)
        ls_folder_remark(
            k, "%zu %s%s not read (%s) and %s", l->foreign, of,
            ls_plural(l->foreign, "file is an image of a kind that is",
                      "files are images of kinds that are"),
            l->foreign_ends,
            ls_plural(l->foreign, "was left out; convert it", "were left out; convert them"));
    if (l->deeper)
        ls_folder_remark(k, "%zu %s%s of it", l->deeper, of,
                         ls_plural(l->deeper,
                                   "image lies in a folder of its class's folder, and is",
                                   "images lie in folders of their class's folder, and are"));
}

static int check_split(const ls_folder *k, int test, const char *folder)
{
    const size_t loose = k->split[test].loose;
    if (k->split[test].count == 0 && loose > 0)
        return ls_fail(k->err, LS_EDATA,
                       "%.300s: expected a sub-folder with images for each class, found none, but "
                       "%zu %s in the folder itself; put the images of each class into a "
                       "sub-folder with the name of the class",
                       folder, loose, ls_plural(loose, "image", "images"));
    if (k->split[test].count == 0)
        return ls_fail(k->err, LS_EDATA,
                       "%.300s: expected a sub-folder for each class with images (jpg, png, bmp, "
                       "webp, pgm, ppm) in it, found none",
                       folder);
    if (k->classes.count < 2)
        return ls_fail(k->err, LS_EDATA,
                       "%.300s: expected at least two sub-folders with images, one a class, found "
                       "\"%.60s\" alone",
                       folder, k->classes.name[0]);
    ls_error why;
    const int status =
        ls_prep_check_names(k->classes.name, (int)k->classes.count, "class", k->host, &why);
    return status ? ls_fail(k->err, status, "%.300s: %s", folder, why.text) : LS_OK;
}

static int list_split(ls_folder *k, int test, const char *folder)
{
    ls_folder_listing inside;
    empties empty = {.count = 0};
    int status = list_folder(&inside, k, folder, 0);
    for (size_t i = 0; status == LS_OK && i < inside.count; i++) {
        const char *path = inside.entry[i].path;
        if (ls_is_directory(path))
            status = list_class(k, test, path, &empty);
        else if (is_image(path))
            k->split[test].loose++;
        else
            k->split[test].others++;
    }
    ls_free(k->host, inside.entry);
    if (status == LS_OK)
        status = check_split(k, test, folder);
    if (status == LS_OK)
        remark_split(k, test, &empty);
    return status;
}

int ls_folder_list_all(ls_folder *k, const char *folder)
{
    return list_images(k, &k->split[0], folder, 0, 0);
}

/* ---- the splits of a folder ------------------------------------------------------------------ */

static const char *const train_names[] = {"train", "training", NULL};
static const char *const test_names[] = {"test", "testing", "val", "valid", "validation", NULL};

/* Returns the subfolder if a folder contains exactly one subfolder and no images, as in many
 * unpacked archives; otherwise NULL. */
static const char *only_folder(const ls_folder_listing *inside)
{
    const char *found = NULL;
    for (size_t i = 0; i < inside->count; i++) {
        const char *path = inside->entry[i].path;
        const bool is_folder = ls_is_directory(path);
        if ((found && is_folder) || (!is_folder && is_image(path)))
            return NULL;
        found = is_folder ? path : found;
    }
    return found;
}

static bool has_folders(ls_folder *k, const char *folder)
{
    ls_folder_listing inside;
    bool found = false;
    const int status = list_folder(&inside, k, folder, 0);
    for (size_t i = 0; status == LS_OK && !found && i < inside.count; i++)
        found = ls_is_directory(inside.entry[i].path);
    ls_free(k->host, inside.entry);
    return found;
}

/* Returns a subfolder that has one of these names, in upper or lower case, and has subfolders
 * itself; otherwise NULL. If there are several, the name that comes first in `names` decides. */
static const char *find_named(ls_folder *k, const ls_folder_listing *inside,
                              const char *const names[])
{
    for (size_t n = 0; names[n]; n++)
        for (size_t i = 0; i < inside->count; i++) {
            const char *path = inside->entry[i].path;
            if (strcasecmp(name_of(path), names[n]) == 0 && ls_is_directory(path) &&
                has_folders(k, path))
                return path;
        }
    return NULL;
}

static size_t count_folders(const ls_folder_listing *inside)
{
    size_t n = 0;
    for (size_t i = 0; i < inside->count; i++)
        n += ls_is_directory(inside->entry[i].path);
    return n;
}

static void remark_splits(ls_folder *k, const char *train, const char *test, size_t folders)
{
    const char *rest = folders > (test ? 2u : 1u) ? "; others beside them are not used" : "";
    if (test)
        ls_folder_remark(k, "the folder %.60s is the training images, %.60s the test images%s",
                         name_of(train), name_of(test), rest);
    else
        ls_folder_remark(k, "the folder %.60s is the training images%s", name_of(train), rest);
}

/* Finds the folders of training and test images. If *train has a subfolder `train`, that subfolder
 * replaces it, and a subfolder `test` beside it becomes *test. If *train contains a single folder
 * and no images, that folder is searched in the same way. Otherwise both stay unchanged. */
static int find_splits(ls_folder *k, const char **train, const char **test, int depth)
{
    ls_folder_listing inside;
    int status = list_folder(&inside, k, *train, 0);
    if (status == LS_OK) {
        const char *learn = find_named(k, &inside, train_names),
                   *judge = *test ? NULL : find_named(k, &inside, test_names),
                   *inner = only_folder(&inside);
        if (learn) {
            remark_splits(k, learn, judge, count_folders(&inside));
            *train = learn;
            *test = *test ? *test : judge;
        } else if (inner && depth < DEEPEST && has_folders(k, inner)) {
            ls_folder_remark(k, "all images lie in its only folder, %.200s", name_of(inner));
            *train = inner;
            status = find_splits(k, train, test, depth + 1);
        }
    }
    ls_free(k->host, inside.entry);
    return status;
}

int ls_folder_list(ls_folder *k)
{
    const char *train = k->p->folder, *test = k->p->test_folder;
    int status = find_splits(k, &train, &test, 0);
    ls_sha256_init(&k->state);
    if (status == LS_OK)
        status = list_split(k, 0, train);
    return status || !test ? status : list_split(k, 1, test);
}

void ls_folder_remark(ls_folder *k, const char *format, ...)
{
    va_list arguments;
    if (k->remarks.count == LS_FOLDER_REMARKS)
        return;
    char *text = k->remarks.text[k->remarks.count++];
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is on the line before */
    vsnprintf(text, sizeof k->remarks.text[0], format, arguments);
    va_end(arguments);
}

void ls_folder_fini(ls_folder *k)
{
    for (int s = 0; s < 2; s++)
        ls_free(k->host, k->split[s].entry);
    ls_free(k->host, k->classes.name);
    while (k->texts) {
        ls_folder_texts *all = k->texts;
        k->texts = all->before;
        ls_free(k->host, all);
    }
}
