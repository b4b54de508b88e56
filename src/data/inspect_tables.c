/* SPDX-License-Identifier: MIT */
/* Inspects a table: decides whether its target is a class or a number, and which columns are left
 * out because they cannot help to predict new rows. */
#include "data/inspect_parts.h"

#include "base/error.h"
#include "base/host.h"

#include <stdlib.h>
#include <string.h>

static const ls_column_summary *target_of(const ls_dataset_info *info)
{
    for (int i = 0; i < info->columns; i++)
        if (info->column[i].use == LS_COLUMN_CLASS || info->column[i].use == LS_COLUMN_VALUE)
            return &info->column[i];
    return NULL;
}

/* Returns whether the target is taken as a number: its column has only numbers, and they are too
 * many for classes, or some have a fraction. */
static bool are_values(const ls_dataset_info *info)
{
    const ls_column_summary *target = target_of(info);
    if (!target || target->use != LS_COLUMN_CLASS || target->numeric < target->levels)
        return false;
    return target->broken > 0 || target->levels > LS_MOST_CLASSES;
}

/* Returns the reason why a column cannot help to predict new rows; NULL: there is no such
 * reason. */
static const char *useless(const ls_column_summary *c, uint32_t rows)
{
    const uint32_t present = rows - c->missing;
    if (c->use == LS_COLUMN_DROPPED && c->wrong_dates)
        return c->wrong_dates;
    if (c->use == LS_COLUMN_DROPPED && c->looks_like)
        return "has texts that are neither names of something nor numbers, such as ";
    if (c->use == LS_COLUMN_DROPPED) /* a column without a name, which is always left out */
        return c->levels > 0 ? "has more than 1000 different texts" : NULL;
    if (c->constant && present == 0)
        return "has no value in any row";
    if (c->constant)
        return c->missing == 0
                   ? "has the same value in every row"
                   : "has the same value in every row that has one; data.categorical makes it tell "
                     "which rows have one";
    if (c->counts)
        return "counts the rows";
    if (c->use == LS_COLUMN_LEVELS && present >= 20 && 2 * (uint32_t)c->levels > present)
        return "has nearly as many different texts as rows";
    return NULL;
}

/* Adds the columns that cannot help to l->drop, and the reasons to l->left_out_why, unless the user
 * has said which columns to leave out. Returns the number of these columns. */
static int drop_useless(ls_inspection *l, const ls_dataset_info *info)
{
    const bool chosen = ls_inspect_is_given(l, "drop");
    int dropped = 0;
    for (int i = 0; i < info->columns; i++) {
        const ls_column_summary *c = &info->column[i];
        const char *why = useless(c, info->rows);
        l->fills |= c->missing > 0 && (!why || chosen);
        if (!why && c->use == LS_COLUMN_NUMBER && c->step != 0 && info->columns > 2)
            ls_buffer_format(&l->left_out_why,
                             "  %.60s goes %s evenly from row to row, as a time or an id does "
                             "(data.drop leaves it out)\n",
                             c->name, c->step > 0 ? "up" : "down");
        if (c->unread_date[0])
            ls_buffer_format(&l->left_out_why,
                             "  %.60s looks like dates (%s), but has %s; dates are read if they "
                             "are written as 2024-12-31\n",
                             c->name, c->unread_date,
                             c->use == LS_COLUMN_NUMBER ? "numbers" : "texts");
        if (!why || chosen || c->use == LS_COLUMN_CLASS || c->use == LS_COLUMN_VALUE ||
            c->use == LS_COLUMN_WEIGHT)
            continue;
        cJSON_AddItemToArray(l->drop, cJSON_CreateString(c->name));
        l->commas |= strchr(c->name, ',') != NULL;
        ls_buffer_format(&l->left_out_why, "  %.60s is left out (data.drop): it %s%s\n", c->name,
                         why, c->looks_like ? c->looks_like : "");
        dropped++;
    }
    return dropped;
}

static bool is_number(const char *text)
{
    char *end;
    (void)strtod(text, &end);
    return end != text && text[strspn(text, "+-.,0123456789eE")] == '\0';
}

/* Warns if the names of all columns are numbers: the table has probably no header. Names that count
 * the columns, from 0 or 1 on, are those of a program. */
static void warn_of_header(const ls_inspection *l, const ls_dataset_info *info)
{
    bool counts[2] = {true, true};
    for (int i = 0; i < info->columns; i++) {
        const char *name = info->column[i].name;
        if (!is_number(name))
            return;
        for (int k = 0; k < 2; k++)
            counts[k] = counts[k] && strtod(name, NULL) == i + k;
    }
    if (counts[0] || counts[1])
        return;
    ls_log(l->host, LS_LOG_WARNING,
           "%.300s: the first line looks like data (\"%.40s\", \"%.40s\"), but is taken for the "
           "names of the columns and not learnt; put a line with names before it",
           l->path, info->column[0].name, info->column[info->columns - 1].name);
}

int ls_inspect_table(ls_inspection *l, ls_error *err)
{
    const bool chosen = l->given.keys.labels != LS_LABELS_AUTO;
    int status = ls_inspect_open(l, l->host, err);
    if (status && err->reason == LS_REASON_CLASSES && !chosen) {
        l->values = true;
        status = ls_inspect_open(l, l->host, err);
    }
    if (status)
        return status;
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    const bool values = !chosen && are_values(info);
    const int dropped = drop_useless(l, info);
    l->values_why = values;
    l->values |= values || l->given.keys.labels == LS_LABELS_VALUES;
    warn_of_header(l, info);
    l->target_name = cJSON_CreateString(target_of(info)->name);
    l->target = l->target_name->valuestring;
    const bool again =
        values || dropped || ls_inspect_is_given(l, "drop") || l->given.keys.test_path;
    status = again ? ls_inspect_open(l, l->host, err) : LS_OK;
    if (status && dropped && err &&
        l->left_out_why.text) { /* say why the first column was left out */
        const ls_error cause = *err;
        const char *why = l->left_out_why.text + strspn(l->left_out_why.text, " ");
        ls_fail(err, status, "%.300s; %.*s", cause.text, (int)strcspn(why, "\n"), why);
    }
    return status;
}
