/* SPDX-License-Identifier: MIT */
/* Detects the form of targets in arrays: values, or classes that are numbered from 0 or 1, have a
 * label of their own each, or are one-hot (targets.h). */
#include "data/targets.h"

#include "base/error.h"
#include "base/host.h"
#include "data/new_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLOAT_CLASSES = 100,  /* floats are taken as labels only if all are below this number */
    NAMED_CLASSES = 65536 /* largest number of classes whose labels begin at 1 */
};

static bool is_label(double v)
{
    return v >= 0 && v < 2147483647.0 && v == floor(v);
}

static int fail_label(const ls_array *y, const char *name, uint64_t row, double label,
                      ls_error *err)
{
    return ls_fail(err, LS_EDATA,
                   "%.200s: %s: row %llu: expected a class, a whole number from 0 on, found %g; "
                   "for values set data.labels to \"values\", for a class for each different "
                   "whole number to \"classes\"",
                   y->path, name, (unsigned long long)row, label);
}

/* Returns the index of the single 1 in a row of zeros, or −1. */
static int32_t place_of_one(const ls_array *y, size_t row)
{
    const size_t n = ls_array_row(y);
    int32_t place = -1;
    for (size_t i = 0; i < n; i++) {
        const double v = ls_array_number(y, row * n + i);
        if (v != 0 && (v != 1 || place >= 0))
            return -1;
        place = v != 0 ? (int32_t)i : place;
    }
    return place;
}

static bool all_one_hot(const ls_array *y)
{
    uint64_t row = 0;
    while (ls_array_row(y) > 1 && row < y->dim[0] && place_of_one(y, (size_t)row) >= 0)
        row++;
    return row == y->dim[0];
}

/* Returns whether the targets are labels: all are whole numbers, and every whole number from 0 or 1
 * to the greatest occurs among them. */
static bool are_labels(const ls_array *y)
{
    bool seen[FLOAT_CLASSES] = {false};
    int most = 0;
    for (uint64_t row = 0; row < y->dim[0]; row++) {
        const double v = ls_array_number(y, (size_t)row);
        if (!is_label(v) || v >= FLOAT_CLASSES)
            return false;
        seen[(int)v] = true;
        most = (int)v > most ? (int)v : most;
    }
    for (int k = 1; k <= most; k++)
        if (!seen[k])
            return false;
    return most > (seen[0] ? 0 : 1);
}

/* Finds the smallest and the largest label, and refuses a target that is not a label. */
static int find_range(const ls_array *y, const char *name, int64_t *least, int64_t *most,
                      ls_error *err)
{
    *least = INT32_MAX;
    *most = 0;
    for (uint64_t row = 0; row < y->dim[0]; row++) {
        const double label = ls_array_number(y, (size_t)row);
        if (!is_label(label))
            return fail_label(y, name, row, label, err);
        *least = (int64_t)label < *least ? (int64_t)label : *least;
        *most = (int64_t)label > *most ? (int64_t)label : *most;
    }
    return LS_OK;
}

/* ---- a class for each different label ---------------------------------------------------------
 */

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the class of a label, or −1. */
static int32_t class_of(const ls_target_form *f, double label)
{
    const int32_t wanted = fabs(label) < 2147483647.0 ? (int32_t)label : 0;
    const int32_t *at = (double)wanted != label ? NULL
                                                : bsearch(&wanted, f->label, (size_t)f->classes,
                                                          sizeof wanted, by_number);
    return at ? (int32_t)(at - f->label) : -1;
}

/* Collects the different labels of `y`. Returns false if they are too many or not all whole
 * numbers. */
static bool collect(ls_target_form *out, const ls_array *y)
{
    *out = (ls_target_form){.by_value = true};
    for (uint64_t row = 0; row < y->dim[0]; row++) {
        const double v = ls_array_number(y, (size_t)row);
        if (!(fabs(v) < 2147483647.0) || v != floor(v))
            return false;
        if (class_of(out, v) >= 0)
            continue;
        if (out->classes == LS_TARGET_LABELS)
            return false;
        out->label[out->classes++] = (int32_t)v;
        qsort(out->label, (size_t)out->classes, sizeof *out->label, by_number);
    }
    return true;
}

/* Returns whether the labels are a class each, because they are not the whole numbers from 0 or 1
 * on, and stores the form in *out. */
static bool are_by_value(ls_target_form *out, const ls_array *y, const ls_data_keys *keys)
{
    if (keys->labels != LS_LABELS_CLASSES || keys->classes || !collect(out, y) || out->classes < 2)
        return false;
    const int64_t least = out->label[0], most = out->label[out->classes - 1];
    return !((least == 0 || least == 1) && most - least + 1 == out->classes);
}

static int count_one_hot(ls_target_form *out, const ls_array *y, const char *name,
                         const ls_data_keys *keys, const ls_host *host, ls_error *err)
{
    const size_t n = ls_array_row(y);
    *out = (ls_target_form){.classes = (int)n, .one_hot = true};
    if (keys->classes && keys->classes != (int)n)
        return ls_fail(err, LS_EDATA,
                       "%.200s: %s: expected %d classes, as data.classes says, found rows of %zu "
                       "numbers with one 1 each; remove the key",
                       y->path, name, keys->classes, n);
    if (!keys->input_format)
        ls_log(
            host, LS_LOG_INFO,
            "%.200s: %s: rows of zeros with one 1 each are taken as %zu classes; for vectors set "
            "data.labels to \"values\"",
            y->path, name, n);
    return LS_OK;
}

static int count_labels(ls_target_form *out, const ls_array *y, const char *name,
                        const ls_data_keys *keys, const ls_host *host, ls_error *err)
{
    int64_t least, most;
    if (are_by_value(out, y, keys))
        return LS_OK;
    *out = (ls_target_form){0};
    int status = find_range(y, name, &least, &most, err);
    if (status)
        return status;
    out->first = most <= NAMED_CLASSES &&
                 (keys->classes ? least >= 1 && most == keys->classes : least == 1 && most > 1);
    out->classes = keys->classes       ? keys->classes
                   : most > out->first ? (int)(most + 1 - out->first)
                                       : 2;
    if (out->first && !keys->input_format)
        ls_log(host, LS_LOG_INFO,
               "%.200s: %s: labels are 1 to %lld, which are the names of the "
               "%d classes",
               y->path, name, (long long)most, out->classes);
    if (most - out->first < out->classes)
        return LS_OK;
    return ls_fail(err, LS_EDATA, "%.200s: %s: expected labels from 0 to %d, found %lld; %s",
                   y->path, name, out->classes - 1, (long long)most,
                   keys->input_format ? "the model has learnt no other labels"
                                      : "set data.classes to the number of classes");
}

int ls_targets_find(ls_target_form *out, const ls_array *y, const char *name,
                    const ls_data_keys *keys, const ls_host *host, ls_error *err)
{
    const bool single = ls_array_row(y) == 1,
               may = keys->labels == LS_LABELS_CLASSES ||
                     (keys->labels == LS_LABELS_AUTO && !keys->vectors);
    *out = (ls_target_form){0};
    if (keys->labels == LS_LABELS_VALUES)
        return LS_OK;
    if (!single && may && all_one_hot(y))
        return count_one_hot(out, y, name, keys, host, err);
    if (!single && keys->labels == LS_LABELS_CLASSES)
        return ls_fail(err, LS_EDATA,
                       "%.200s: %s: expected a class for each row, found %zu numbers; set "
                       "data.labels to \"values\"",
                       y->path, name, ls_array_row(y));
    if (!single)
        return LS_OK;
    if (keys->labels == LS_LABELS_AUTO && !ls_array_is_whole(y)) {
        if (!may || !are_labels(y))
            return LS_OK;
        ls_log(host, LS_LOG_INFO,
               "%.200s: %s: the %s are all whole numbers from 0 or 1 on, and are taken as classes; "
               "for values set data.labels to \"values\"",
               y->path, name, ls_array_type_name(y->type));
    }
    if (keys->input_format && keys->input_format->classes) {
        *out = ls_targets_of_model(y, keys->input_format->classes, keys->input_format->class_name);
        return ls_targets_check(out, y, name, "the model has learnt no other labels", err);
    }
    return count_labels(out, y, name, keys, host, err);
}

int ls_targets_check(const ls_target_form *f, const ls_array *y, const char *name, const char *cure,
                     ls_error *err)
{
    if (f->classes == 0)
        return LS_OK;
    if (ls_array_row(y) != (f->one_hot ? (size_t)f->classes : 1))
        return ls_fail(err, LS_EDATA,
                       "%.200s: %s: expected a class for each row, found %zu numbers", y->path,
                       name, ls_array_row(y));
    for (uint64_t row = 0; row < y->dim[0]; row++) {
        if (f->one_hot && place_of_one(y, (size_t)row) < 0)
            return ls_fail(err, LS_EDATA,
                           "%.200s: %s: row %llu: expected zeros and one 1, as the training rows "
                           "have",
                           y->path, name, (unsigned long long)row);
        const double label = f->one_hot ? f->first : ls_array_number(y, (size_t)row);
        if (f->by_value && class_of(f, label) >= 0)
            continue;
        if (f->by_value)
            return ls_fail(err, LS_EDATA,
                           "%.200s: %s: row %llu: expected one of the %d labels from %d to %d that "
                           "the training rows have, found %g",
                           y->path, name, (unsigned long long)row, f->classes, f->label[0],
                           f->label[f->classes - 1], label);
        if (!is_label(label))
            return fail_label(y, name, row, label, err);
        if (label < f->first || label - f->first >= f->classes)
            return ls_fail(err, LS_EDATA,
                           "%.200s: %s: row %llu: expected labels from %d to %d, found %.0f; %s",
                           y->path, name, (unsigned long long)row, f->first,
                           f->classes - 1 + f->first, label, cure);
    }
    return LS_OK;
}

int32_t ls_target_class(const ls_target_form *f, const ls_array *y, size_t row)
{
    const double label = f->one_hot ? 0 : ls_array_number(y, row);
    return f->one_hot    ? place_of_one(y, row)
           : f->by_value ? class_of(f, label)
                         : (int32_t)label - f->first;
}

/* Stores the names of a model's classes as the labels of a form. Returns false if they are not
 * ascending whole numbers, or a label of `y` is not among them. */
static bool take_names(ls_target_form *out, const ls_array *y, int classes,
                       const char *const *class_name)
{
    char again[16];
    *out = (ls_target_form){.classes = classes, .by_value = true};
    if (!class_name || classes > LS_TARGET_LABELS || ls_array_row(y) != 1)
        return false;
    for (int i = 0; i < classes; i++) {
        out->label[i] = (int32_t)strtol(class_name[i], NULL, 10);
        snprintf(again, sizeof again, "%d", (int)out->label[i]);
        if (strcmp(again, class_name[i]) != 0 || (i > 0 && out->label[i] <= out->label[i - 1]))
            return false;
    }
    uint64_t row = 0;
    while (row < y->dim[0] && class_of(out, ls_array_number(y, (size_t)row)) >= 0)
        row++;
    return (out->label[0] < 0 || row == y->dim[0]) &&
           (out->label[0] != 1 || out->label[classes - 1] != classes);
}

ls_target_form ls_targets_of_model(const ls_array *y, int classes, const char *const *class_name)
{
    char last[16];
    ls_target_form by_value;
    if (take_names(&by_value, y, classes, class_name))
        return by_value;
    snprintf(last, sizeof last, "%d", classes);
    return (ls_target_form){.classes = classes,
                            .first = class_name && strcmp(class_name[0], "1") == 0 &&
                                     strcmp(class_name[classes - 1], last) == 0,
                            .one_hot = classes > 1 && ls_array_row(y) == (size_t)classes};
}
