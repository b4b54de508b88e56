/* Compares names of columns, levels and classes of a model's file with those of training rows. */
#include "train/taken_over.h"

#include "base/host.h"
#include "config/card.h"

#include <stdio.h>
#include <string.h>

/* Differences of one kind: the first in words, and their number. */
typedef struct differences {
    char first[320];
    int count;
} differences;

/* Counts a difference between the names `there` (in the file) and `here` if they are not the same.
 * `what`: the place, such as "class 2", which `where` may follow. */
static void compare(differences *d, const char *there, const char *here, const char *what, int nth,
                    const char *where)
{
    if (ls_prep_is_name(there, here))
        return;
    if (d->count++ == 0)
        snprintf(d->first, sizeof d->first, "%s %d%s%.60s%s is \"%.60s\" there and \"%.60s\" here",
                 what, nth, where ? " of column \"" : "", where ? where : "", where ? "\"" : "",
                 there, here);
}

/* Compares the inputs of a column that both tables have in the same place. */
static void compare_column(differences *d, const ls_prep_column *there, const ls_prep_column *here)
{
    const int least = there->levels < here->levels ? there->levels : here->levels;
    for (int k = 0; k < least; k++)
        compare(d, there->level[k], here->level[k], "level", k + 1, here->name);
    for (int k = 0; k < there->parts && k < here->parts; k++)
        compare(d, ls_date_part_names[there->part[k].is], ls_date_part_names[here->part[k].is],
                "number", k + 1, here->name);
    if (ls_prep_width(there) == ls_prep_width(here) && !there->levels == !here->levels)
        return;
    if (d->count++ == 0)
        snprintf(d->first, sizeof d->first,
                 "column \"%.60s\" has %d input%s there and %d here, or other kinds of values",
                 here->name, ls_prep_width(there), ls_prep_width(there) == 1 ? "" : "s",
                 ls_prep_width(here));
}

static void compare_columns(differences *d, const ls_prep *there, const ls_prep *here)
{
    for (int i = 0; i < there->columns && i < here->columns; i++) {
        compare(d, there->column[i].name, here->column[i].name, "column", i + 1, NULL);
        compare_column(d, &there->column[i], &here->column[i]);
    }
}

static void warn(const differences *d, const char *path, const char *what, const ls_host *host)
{
    if (d->count == 0)
        return;
    ls_log(host, LS_LOG_WARNING,
           "init.weights: %.200s: weights are taken over by position, not by name, but %s%s; the "
           "weights of %d %s were trained for others",
           path, d->first, d->count > 1 ? ", and so on" : "", d->count, what);
}

void ls_warn_of_other_names(const char *path, const ls_dataset_info *train, const ls_host *host)
{
    ls_card card = {0};
    ls_error why;
    differences inputs = {.count = 0}, classes = {.count = 0};
    const ls_prep *here = train->prep;
    const int status = ls_card_read(&card, path, host, &why);
    const ls_prep *there = status ? NULL : card.prep;
    if (there && here && there->kind == LS_PREP_TABLE && here->kind == LS_PREP_TABLE &&
        there->features == here->features)
        compare_columns(&inputs, there, here);
    if (!status && card.names && train->class_name && card.classes == train->classes)
        for (int k = 0; k < train->classes; k++)
            compare(&classes, ls_card_class_name(&card, k), train->class_name[k], "class", k + 1,
                    NULL);
    warn(&inputs, path, inputs.count > 1 ? "columns and levels" : "column or level", host);
    warn(&classes, path, classes.count > 1 ? "classes" : "class", host);
    ls_card_fini(&card);
}
