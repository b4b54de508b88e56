/* SPDX-License-Identifier: MIT */
/* Decides which kind of data lies at a path, by the names and the form of its files, and which
 * files have the rows and the targets. */
#include "data/inspect_parts.h"

#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "formats/arrays.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool ls_inspect_is_file(const char *folder, const char *name)
{
    char path[4400];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", name);
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* l->path is a file of rows, such as "x.npy" or "X_train.npy". Finds the file of its targets in the
 * same folder, unless data.y names it. */
static int find_pair(ls_inspection *l, ls_error *err)
{
    const char *slash = strrchr(l->path, '/'), *name = slash ? slash + 1 : l->path;
    snprintf(l->folder, sizeof l->folder, "%.*s", slash ? (int)(slash - l->path) : 0, l->path);
    snprintf(l->x, sizeof l->x, "%.250s", name);
    if (ls_inspect_is_given(l, "y"))
        return LS_OK;
    snprintf(l->y, sizeof l->y, "%.250s", name);
    char *mark = strpbrk(l->y, "xX");
    if (mark)
        *mark = *mark == 'x' ? 'y' : 'Y';
    if (mark && !ls_inspect_is_file(l->folder, l->y))
        *mark = 'y';
    if (mark && ls_inspect_is_file(l->folder, l->y))
        return LS_OK;
    return ls_fail(err, LS_ENOENT,
                   "%.300s: expected the targets of these rows beside it, in %.200s; name the two "
                   "files x.npy and y.npy, or set data.y to the name of the file of targets",
                   l->path, mark ? l->y : "y.npy");
}

/* Returns whether, by its name, a file is one of the files of a public dataset, such as
 * "train-images-idx3-ubyte.gz" or "data_batch_1.bin". */
static bool is_of_several(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strstr(name, "-ubyte") || strncmp(name, "data_batch_", 11) == 0 ||
           strncmp(name, "test_batch", 10) == 0;
}

/* Returns the kind that the name and the form of the path suggest. */
static const ls_dataset_about *guess_kind(const ls_inspection *l, bool directory)
{
    const char *x = l->given.keys.x;
    if (directory &&
        (ls_inspect_is_file(l->path, "x.npy") || (x && ls_inspect_is_file(l->path, x))))
        return &ls_dataset_npy.about;
    if (directory)
        return &ls_dataset_folder.about;
    if (ls_path_ends_with(l->path, ".safetensors"))
        return &ls_dataset_safetensors.about;
    return ls_path_is_npz(l->path) || ls_path_ends_with(l->path, ".npy") ? &ls_dataset_npy.about
                                                                         : &ls_dataset_csv.about;
}

/* Returns the kind that data.name names, or NULL if it has no files. */
static const ls_dataset_about *named_kind(const char *name)
{
    for (const ls_dataset_kind *const *kind = ls_dataset_kinds; *kind; kind++)
        if (strcmp((*kind)->about.name, name) == 0 && (*kind)->about.form != LS_DATA_GENERATED)
            return &(*kind)->about;
    return NULL;
}

/* Checks the keys that the user has set: each must be one that data of this kind have. */
static int check_given(const ls_inspection *l, ls_error *err)
{
    const ls_dataset_spec spec = {.name = l->kind->name};
    const cJSON *key;
    int status = LS_OK;
    cJSON_ArrayForEach(key, l->given.set)
    {
        if (status == LS_OK)
            status = ls_dataset_check_key(&spec, key->string, err);
    }
    if (status == LS_OK && ls_inspect_is_given(l, "path"))
        status = ls_fail(err, LS_EINVAL,
                         "data.path: expected the path of the data as the argument of init, which "
                         "is %.300s, not as a key",
                         l->path);
    return status;
}

/* Finds the names of the files of arrays: those that the user has set, else the usual ones. */
static int find_arrays(ls_inspection *l, bool directory, ls_error *err)
{
    const ls_data_keys *k = &l->given.keys;
    int status = LS_OK;
    if (directory) {
        snprintf(l->folder, sizeof l->folder, "%.4000s", l->path);
        strcpy(l->x, "x.npy");
        strcpy(l->y, "y.npy");
    } else if (ls_path_ends_with(l->path, ".npy"))
        status = find_pair(l, err);
    else if (k->x)
        snprintf(l->folder, sizeof l->folder, "%.4000s", l->path);
    if (l->x[0] && ls_inspect_is_file(l->folder, "test_x.npy") &&
        ls_inspect_is_file(l->folder, "test_y.npy")) {
        strcpy(l->test_x, "test_x.npy");
        strcpy(l->test_y, "test_y.npy");
    }
    const char *const given[4] = {k->x, k->y, k->test_x, k->test_y};
    char *const to[4] = {l->x, l->y, l->test_x, l->test_y};
    for (int i = 0; i < 4; i++)
        if (given[i])
            snprintf(to[i], sizeof l->x, "%.250s", given[i]);
    return status;
}

/* Fails if an option that is about a table was given for other data. */
static int check_options(const ls_inspection *l, ls_error *err)
{
    const char *option = l->target      ? "--target"
                         : l->decimal   ? "--decimal"
                         : l->separator ? "--separator"
                         : l->encoding  ? "--encoding"
                                        : NULL;
    return option && l->kind->form != LS_DATA_TABLE
               ? ls_fail(err, LS_EINVAL, "%s: is about a table; %.300s is none", option, l->path)
               : LS_OK;
}

static int find_kind(ls_inspection *l, ls_error *err)
{
    struct stat st;
    if (stat(l->path, &st) != 0)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no such file or directory; expected a table (.csv), a folder with "
                       "a sub-folder of pictures for each class, or arrays (x.npy with y.npy)",
                       l->path);
    const bool directory = S_ISDIR(st.st_mode);
    if (!directory && is_of_several(l->path))
        return ls_fail(err, LS_EINVAL,
                       "%.300s: one of the files of a data set; name the directory that has all of "
                       "them",
                       l->path);
    l->kind = ls_inspect_is_given(l, "name") ? named_kind(l->given.name) : guess_kind(l, directory);
    if (!l->kind)
        return ls_fail(err, LS_EINVAL,
                       "data.name: expected the kind of the data in %.300s, such as csv, npy or "
                       "folder, found \"%.60s\"",
                       l->path, l->given.name);
    int status = check_options(l, err);
    if (status == LS_OK && l->kind == &ls_dataset_npy.about)
        status = find_arrays(l, directory, err);
    if (status == LS_OK && l->kind == &ls_dataset_safetensors.about)
        status = find_arrays(l, false, err);
    return status;
}

/* ---- public datasets with known file names --------------------------------------------------- */

/* Returns the kind of a directory with the files of MNIST: the files of Fashion-MNIST have the same
 * names. */
static const ls_dataset_about *which_mnist(const ls_inspection *l)
{
    return ls_dataset_describe(l->split[0])->payload == LS_PAYLOAD_PUBLISHED ||
                   strstr(l->path, "ashion")
               ? &ls_dataset_fashion_mnist.about
               : &ls_dataset_mnist.about;
}

/* Tries to open the directory as each of the public datasets. If it contains the files of none of
 * them, sets l->kind to that of a folder of images. */
static int look_for_known(ls_inspection *l, ls_error *err)
{
    int status = LS_ENOENT;
    l->silent = *l->host;
    l->silent.log = NULL;
    for (const ls_dataset_kind *const *kind = ls_dataset_kinds; *kind; kind++) {
        if ((*kind)->about.form != LS_DATA_PUBLIC)
            continue;
        l->kind = &(*kind)->about;
        status = ls_inspect_open(l, &l->silent, err);
        if (status == LS_OK || err->reason != LS_REASON_NO_FILES)
            break;
        l->kind = &ls_dataset_folder.about;
    }
    if (l->kind->form == LS_DATA_FOLDER)
        return LS_OK;
    if (status == LS_OK &&
        (l->kind == &ls_dataset_mnist.about || l->kind == &ls_dataset_fashion_mnist.about))
        l->kind = which_mnist(l);
    return status;
}

int ls_inspect_kind(ls_inspection *l, ls_error *err)
{
    int status = find_kind(l, err);
    if (status == LS_OK && l->kind->form == LS_DATA_FOLDER && !ls_inspect_is_given(l, "name"))
        status = look_for_known(l, err);
    if (status == LS_OK)
        status = check_given(l, err);
    return status;
}
