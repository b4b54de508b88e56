/* SPDX-License-Identifier: MIT */
/* Inspects arrays and tensors in files: decides whether targets are classes or values, which
 * dimension of the rows has the channels, and which arrays are not used. */
#include "data/inspect_parts.h"

#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "formats/arrays.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    /* Whole numbers that are more than LS_MOST_CLASSES different ones are taken as classes only if
     * they are those from 0 on, fewer than this, and each occurs in at least FEWEST_ROWS rows. */
    MOST_NUMBERED = 1 << 16,
    FEWEST_ROWS = 5
};

/* Returns whether the last dimension is probably the channels: it is 1, 3 or 4, and the two others
 * are larger. */
static bool may_be_last(const ls_dataset_info *info)
{
    return (info->width == 1 || info->width == 3 || info->width == 4) && info->height > 4 &&
           info->channels > 4;
}

/* Counts the rows of each target, where `target` are [rows] whole numbers, and returns whether
 * they are the numbers from 0 on, each in at least FEWEST_ROWS rows. */
static bool are_numbered(const ls_inspection *l, const float *target, uint32_t rows)
{
    if (l->least != 0 || l->most >= MOST_NUMBERED)
        return false;
    const size_t n = (size_t)l->most + 1;
    uint32_t *count = ls_alloc_array(l->host, n, sizeof *count);
    for (uint32_t i = 0; count && i < rows; i++)
        count[(size_t)target[i]]++;
    size_t k = 0;
    while (count && k < n && count[k] >= FEWEST_ROWS)
        k++;
    ls_free(l->host, count);
    return count && k == n;
}

/* Finds out whether the targets, one number for each row, are whole, and counts the different ones
 * up to LS_MOST_CLASSES + 1. */
static void count_targets(ls_inspection *l, const float *target, uint32_t rows)
{
    float seen[LS_MOST_CLASSES + 1];
    l->whole = true;
    l->least = l->most = (double)target[0];
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t k = 0;
        while (k < l->different && seen[k] != target[i])
            k++;
        if (k == l->different && k <= LS_MOST_CLASSES)
            seen[l->different++] = target[i];
        l->whole = l->whole && target[i] == floorf(target[i]);
        l->least = fmin(l->least, (double)target[i]);
        l->most = fmax(l->most, (double)target[i]);
    }
}

/* Decides whether targets that are one number for each row, and were read as values, are classes.
 * The rule for tables is the same (inspect_tables.c), except that a table's classes are at most
 * LS_MOST_CLASSES. */
static int choose_labels(ls_inspection *l, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    const float *target = ls_dataset_resident(l->split[0]).targets;
    if (info->targets != 1) {
        l->labels = LS_LABELS_AUTO;
        return LS_OK;
    }
    count_targets(l, target, info->rows);
    if (l->different < 2)
        return ls_fail(err, LS_EDATA,
                       "%.300s: expected at least two different targets, found %g in each of the "
                       "%u rows",
                       l->path, l->least, (unsigned)info->rows);
    if (l->whole && (l->different <= LS_MOST_CLASSES || are_numbered(l, target, info->rows)))
        l->labels = LS_LABELS_CLASSES;
    return LS_OK;
}

/* Returns whether the targets of arrays are texts, which are classes. */
static bool are_texts(const ls_inspection *l)
{
    char path[LS_PATH_BYTES];
    ls_array y;
    ls_error why; /* opening the data reports it */
    const char *base = l->x[0] ? l->folder : l->path;
    if (l->kind != &ls_dataset_npy.about ||
        ls_array_open_labels(&y,
                             !l->y[0]          ? l->path
                             : base[0] == '\0' ? l->y
                                               : ls_path_join(path, base, l->y),
                             ls_names_of_targets, &why) != LS_OK)
        return false;
    const bool texts = y.type == LS_ARRAY_TEXT;
    ls_array_close(&y);
    return texts;
}

/* Opens arrays for the first time: targets are values unless they are texts, or the user has said
 * what they are. */
static int open_arrays(ls_inspection *l, ls_error *err)
{
    l->silent = *l->host;
    l->silent.log = NULL;
    l->labels = l->given.keys.labels != LS_LABELS_AUTO ? LS_LABELS_AUTO
                : are_texts(l)                         ? LS_LABELS_CLASSES
                                                       : LS_LABELS_VALUES;
    int status = ls_inspect_open(l, &l->silent, err);
    if (status == LS_EDATA && !ls_inspect_is_given(l, "missing")) {
        l->fills = true; /* if that is what is wrong, the data can be opened now */
        status = ls_inspect_open(l, &l->silent, err);
    }
    if (status == LS_OK && l->labels == LS_LABELS_VALUES)
        status = choose_labels(l, err);
    return status;
}

/* Returns whether the data have an array `name`; `all`: the open safetensors file, if it is one. */
static bool has_array(const ls_inspection *l, const ls_tensors *all, const char *name)
{
    const char *const names[] = {name, NULL};
    char file[64];
    if (l->kind == &ls_dataset_safetensors.about)
        return ls_tensors_has(all, name);
    if (ls_path_is_npz(l->path))
        return ls_array_is_there(l->path, names);
    snprintf(file, sizeof file, "%.50s.npy", name);
    return ls_inspect_is_file(l->folder, file);
}

/* Returns whether `name` is the array, or the file `name`.npy, with the test rows. */
static bool is_test_array(const ls_inspection *l, const char *name)
{
    const bool files = l->kind == &ls_dataset_npy.about && !ls_path_is_npz(l->path);
    const char *used = l->test_x[0] || files ? l->test_x : "test_x";
    const size_t n = strlen(name);
    return strncmp(used, name, n) == 0 && (used[n] == '\0' || strcmp(used + n, ".npy") == 0);
}

/* Adds a line about arrays of rows that have the names of test or validation rows, and are not
 * used. */
static int find_spare_arrays(ls_inspection *l, ls_error *err)
{
    ls_tensors all = {0};
    ls_buffer text;
    const bool tensors = l->kind == &ls_dataset_safetensors.about;
    /* from an .npz file a run takes the first of these arrays, unless the user has named one */
    bool taken = tensors || !ls_path_is_npz(l->path) || l->test_x[0];
    int spare = 0, status = tensors ? ls_tensors_open(&all, l->path, l->host, err) : LS_OK;
    ls_buffer_init(&text, l->host);
    for (const char *const *name = ls_names_of_test_rows; status == LS_OK && *name; name++) {
        if (!has_array(l, &all, *name))
            continue;
        if (taken && !is_test_array(l, *name))
            ls_buffer_format(&text, "%s%s", spare++ ? ", " : "", *name);
        taken = true;
    }
    ls_tensors_close(&all);
    if (spare > 0)
        ls_buffer_format(&l->left_out_why,
                         "  %s %s not used (data.test_x and data.test_y name the rows that are)\n",
                         text.text ? text.text : "", spare > 1 ? "are" : "is");
    ls_buffer_fini(&text);
    return status;
}

int ls_inspect_arrays(ls_inspection *l, ls_error *err)
{
    int status = open_arrays(l, err);
    if (status == LS_OK)
        status = find_spare_arrays(l, err);
    if (status)
        return status;
    l->last = ls_inspect_is_given(l, "layout") ? l->given.keys.layout == LS_CHANNELS_LAST
                                               : may_be_last(ls_dataset_describe(l->split[0]));
    return ls_inspect_open(l, l->host, err);
}
