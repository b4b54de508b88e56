/* SPDX-License-Identifier: MIT */
/* Lines of the summary of a CSV table. The kinds of columns are, in the table's words:
 *
 *     number, texts    inputs; each different text of a column is a *level*
 *     dates            an input of numbers: year, month and the like
 *     left out         a column that is not used
 *     class, value     the target: a class, whose different texts are levels, or a number
 *     weight           the weights of the rows */
#include "data/columns.h"

#include <stdio.h>

void ls_column_head(char out[LS_COLUMN_LINE])
{
    snprintf(out, LS_COLUMN_LINE, "  %-24s %-8s %6s %8s %10s %10s", "column", "kind", "levels",
             "missing", "mean", "deviation");
}

void ls_column_line(char out[LS_COLUMN_LINE], const ls_column_summary *c)
{
    static const char *const uses[] = {"number", "texts",  "left out", "class",
                                       "value",  "weight", "dates"};
    char levels[16] = "-", mean[24] = "-", deviation[24] = "-";
    if (c->use == LS_COLUMN_LEVELS || c->use == LS_COLUMN_CLASS)
        snprintf(levels, sizeof levels, "%d", c->levels);
    if (c->use == LS_COLUMN_NUMBER || c->use == LS_COLUMN_VALUE || c->use == LS_COLUMN_WEIGHT) {
        snprintf(mean, sizeof mean, "%.4g", c->mean);
        snprintf(deviation, sizeof deviation, "%.4g", c->deviation);
    }
    int n = snprintf(out, LS_COLUMN_LINE, "  %-24.24s %-8s %6s %8u %10s %10s",
                     c->name[0] ? c->name : "(no name)", uses[c->use], levels, (unsigned)c->missing,
                     mean, deviation);
    for (int i = 0; i < c->parts && n < LS_COLUMN_LINE; i++)
        n += snprintf(out + n, (size_t)(LS_COLUMN_LINE - n), "%s%s", i ? ", " : "  ", c->part[i]);
}
