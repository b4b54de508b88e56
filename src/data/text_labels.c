/* SPDX-License-Identifier: MIT */
/* Makes numbers of labels that are texts (text_labels.h). */
#include "data/text_labels.h"

#include "base/error.h"
#include "base/host.h"
#include "prep/level.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 65536 };

/* Returns whether the text is a whole number that is written as programs write it. */
static bool is_whole(const char *text, int32_t *number)
{
    char again[16];
    const long long value = strtoll(text, NULL, 10);
    *number = value > INT32_MIN && value < INT32_MAX ? (int32_t)value : 0;
    snprintf(again, sizeof again, "%d", (int)*number);
    return strcmp(again, text) == 0;
}

static int collect(ls_levels *found, const ls_array *y, char *text, const char *name,
                   const ls_host *host, ls_error *err)
{
    for (size_t i = 0; i < y->dim[0]; i++) {
        ls_array_text(text, y, i);
        if (ls_levels_find(found, text) >= 0)
            continue;
        if (found->count == MOST_LABELS)
            return ls_fail(err, LS_EDATA,
                           "%.200s: %s: expected at most %d different texts as labels", y->path,
                           name, MOST_LABELS);
        if (!ls_levels_add(found, text, host))
            return ls_fail(err, LS_ENOMEM, "%.200s: out of memory for labels", y->path);
    }
    return ls_levels_sort(found, host)
               ? LS_OK
               : ls_fail(err, LS_ENOMEM, "%.200s: out of memory for labels", y->path);
}

/* Returns the class of a text, or −1. */
static int class_of(const ls_levels *found, const char *text, const char *const *class_name,
                    int classes)
{
    if (class_name) {
        int k = 0;
        while (k < classes && !ls_level_is_same(class_name[k], text, false))
            k++;
        return k < classes ? k : -1;
    }
    const int at = ls_levels_find(found, text);
    return at < 0 ? -1 : found->level[at].position;
}

/* Returns whether all texts among which the labels are, are whole numbers. */
static bool are_whole(const ls_levels *found, const char *const *class_name, int classes)
{
    int32_t unused;
    bool whole = true;
    for (int k = 0; k < (class_name ? classes : found->count) && whole; k++)
        whole = is_whole(class_name ? class_name[k] : found->level[k].text, &unused);
    return whole;
}

/* Writes the numbers of the labels to label[rows]. */
static int number(int32_t *label, const ls_array *y, const ls_levels *found, char *text,
                  const char *name, const char *const *class_name, int classes, ls_error *err)
{
    const bool whole = are_whole(found, class_name, classes);
    for (size_t i = 0; i < y->dim[0]; i++) {
        ls_array_text(text, y, i);
        label[i] = whole ? 0 : class_of(found, text, class_name, classes);
        if (whole ? !is_whole(text, &label[i]) : label[i] < 0)
            return ls_fail(err, LS_EDATA,
                           "%.200s: %s: row %zu: expected a label of the training rows, found "
                           "\"%.60s\"",
                           y->path, name, i, text);
    }
    return LS_OK;
}

int ls_text_labels(ls_array *y, ls_levels *found, bool training, const char *name,
                   const char *const *class_name, int classes, const ls_host *host, ls_error *err)
{
    int status = LS_OK;
    if (y->type != LS_ARRAY_TEXT)
        return LS_OK;
    if (ls_array_row(y) != 1)
        return ls_fail(err, LS_EDATA, "%.200s: %s: expected one text for each row, found %zu",
                       y->path, name, ls_array_row(y));
    char *text = ls_alloc(host, ls_array_text_bytes(y));
    int32_t *label = ls_alloc_array(host, (size_t)y->dim[0], sizeof *label);
    if (!text || !label)
        status = ls_fail(err, LS_ENOMEM, "%.200s: out of memory for labels", y->path);
    if (status == LS_OK && training && !class_name)
        status = collect(found, y, text, name, host, err);
    if (status == LS_OK)
        status = number(label, y, found, text, name, class_name, classes, err);
    if (status == LS_OK)
        status = ls_array_become_labels(y, label, err);
    if (status == LS_OK && are_whole(found, NULL, 0))
        ls_levels_free(found, host);
    ls_free(host, text);
    ls_free(host, label);
    return status;
}
