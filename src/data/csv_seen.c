/* SPDX-License-Identifier: MIT */
/* Writes the summary of each column of a training table (ls_column_summary), after its rows were
 * read. */
#include "base/host.h"
#include "data/csv.h"
#include "prep/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ls_column_use use_of(const ls_csv *c, int i)
{
    const ls_csv_kind kind = c->column[i].kind;
    if (i == c->weight)
        return LS_COLUMN_WEIGHT;
    if (i == c->target)
        return kind == LS_CSV_TEXT ? LS_COLUMN_CLASS : LS_COLUMN_VALUE;
    return kind == LS_CSV_TEXT      ? LS_COLUMN_LEVELS
           : kind == LS_CSV_DATE    ? LS_COLUMN_DATE
           : kind == LS_CSV_DROPPED ? LS_COLUMN_DROPPED
                                    : LS_COLUMN_NUMBER;
}

/* Increments seen->numeric if the level `text` is a number, and seen->broken if that number can be
 * read with a fraction. A number with a comma counts as a number only in the target column, because
 * the decimal separator of that column can be unknown. */
static void see_level(const ls_csv *c, int i, const char *text, ls_column_summary *seen)
{
    const unsigned commas = LS_FORM_COMMA | LS_FORM_COMMA_OR_GROUP | LS_FORM_COMMA_GROUPS;
    double value;
    unsigned form = 0;
    if (!ls_number_read(text, strlen(text), c->column[i].decimal, &value, &form) ||
        (form & commas && i != c->target))
        return;
    seen->numeric++;
    seen->broken += value != floor(value) || form & commas;
}

/* Finds out whether all values of a column look like dates in a form that is not read. */
static void see_dates(const ls_csv *c, const ls_csv_column *at, ls_column_summary *seen)
{
    const bool texts = seen->use == LS_COLUMN_LEVELS, numbers = seen->use == LS_COLUMN_NUMBER;
    bool dates = texts ? at->levels.count > 0 : numbers && ls_date_is_number(at->least);
    for (int k = 0; texts && dates && k < at->levels.count; k++) {
        const char *text = at->levels.level[k].text;
        dates = ls_date_is_unread(text, strlen(text));
    }
    for (size_t row = 0; numbers && dates && row < c->cells.rows; row++) {
        const double number = ls_csv_number(at, ls_row_blocks_at(&c->cells, row));
        dates = isnan(number) || ls_date_is_number(number);
    }
    if (dates && texts)
        snprintf(seen->unread_date, sizeof seen->unread_date, "%.23s", at->levels.level[0].text);
    else if (dates)
        snprintf(seen->unread_date, sizeof seen->unread_date, "%.0f", at->least);
}

static void see_column(const ls_csv *c, int i, ls_column_summary *seen)
{
    const ls_csv_column *at = &c->column[i];
    seen->use = use_of(c, i);
    seen->rows = (uint32_t)c->cells.rows;
    seen->looks_like = at->looks_like;
    seen->wrong_dates = at->wrong_dates;
    for (int k = 0; k < at->parts; k++)
        seen->part[seen->parts++] = ls_date_part_names[at->part[k].is];
    seen->levels = at->kind == LS_CSV_NUMBER || at->kind == LS_CSV_DATE ? 0 : at->levels.count;
    for (int k = 0; k < seen->levels; k++)
        see_level(c, i, at->levels.level[k].text, seen);
    seen->named = ls_csv_names(&c->o->spec->keys.categorical, at->name);
    see_dates(c, at, seen);
    seen->mean = at->mean;
    seen->deviation = at->deviation;
}

/* Returns the largest rounding error of a number as large as `a` or `b` in the cells of a column; 0
 * if cells of that size represent every whole number. */
static double rounding_error(const ls_csv_column *col, double a, double b)
{
    const double size = fmax(fabs(a), fabs(b));
    if (col->wide)
        return size < 0x1p53 ? 0 : size / 0x1p52;
    return size < 1 << 24 ? 0 : size / (1 << 23);
}

/* Returns the difference between successive numbers of column i if it is constant, as in a column
 * of times, ids or row numbers. It is computed from the first and the last number; see_cells checks
 * the assumption. Returns 0 for a column of other values, of fewer than 10 rows or that hardly
 * changes, or if a number is not whole. */
static double step_of(const ls_csv *c, int i)
{
    const size_t rows = c->cells.rows;
    const ls_csv_column *col = &c->column[i];
    if (col->kind != LS_CSV_NUMBER || col->slot < 0 || rows < 10)
        return 0;
    const double first = ls_csv_number(col, ls_row_blocks_at(&c->cells, 0));
    const double last = ls_csv_number(col, ls_row_blocks_at(&c->cells, rows - 1));
    const double step = (last - first) / (double)(rows - 1);
    const double error = rounding_error(col, first, last);
    const bool whole = first == floor(first) && (error > 0 || step == floor(step));
    return whole && fabs(last - first) > 8 * error ? step : 0;
}

/* Returns whether the numbers of a column that goes up by 1 from row to row are years, which tell
 * something about new rows, other than the numbers of rows. */
static bool are_years(const ls_csv_column *col)
{
    enum { EARLIEST = 1500, LATEST = 2200 };
    return col->least >= EARLIEST && col->most <= LATEST;
}

/* Returns whether a column of the summary `seen` says nothing about its row. */
static bool is_constant(const ls_csv_column *col, const ls_column_summary *seen)
{
    if (col->slot < 0 || seen->missing == seen->rows)
        return col->slot >= 0;
    return col->kind == LS_CSV_TEXT ? seen->levels == 1 && seen->missing == 0
                                    : col->least == col->most;
}

/* Counts the missing cells of each column, and checks that the difference step_of is the same
 * between all rows. The outer loop is over rows, because cells are stored row by row. */
static void see_cells(const ls_csv *c, ls_column_summary *seen)
{
    const float *start = c->cells.rows ? ls_row_blocks_at(&c->cells, 0) : NULL;
    for (int i = 0; i < c->columns; i++)
        seen[i].step = step_of(c, i);
    for (size_t r = 0; r < c->cells.rows; r++) {
        const float *row = ls_row_blocks_at(&c->cells, r);
        for (int i = 0; i < c->columns; i++) {
            const ls_csv_column *col = &c->column[i];
            if (col->slot < 0)
                continue;
            if (isnan(ls_csv_number(col, row)))
                seen[i].missing++;
            if (seen[i].step == 0)
                continue;
            const double first = ls_csv_number(col, start);
            const double even = first + (double)r * seen[i].step;
            if (!(fabs(ls_csv_number(col, row) - even) <= rounding_error(col, first, even)))
                seen[i].step = 0;
        }
    }
    for (int i = 0; i < c->columns; i++) {
        seen[i].counts = fabs(seen[i].step - 1) < 0.1 && !are_years(&c->column[i]);
        seen[i].constant = is_constant(&c->column[i], &seen[i]);
    }
}

int ls_csv_summarise(const ls_csv *c, ls_resident *r)
{
    r->seen = ls_alloc_array(c->o->host, (size_t)c->columns, sizeof *r->seen);
    if (!r->seen)
        return ls_csv_no_memory(c);
    r->base.info.column = r->seen;
    for (int i = 0; i < c->columns; i++) {
        r->base.info.columns = i + 1;
        r->seen[i].name = ls_strdup(c->o->host, c->column[i].name);
        if (!r->seen[i].name)
            return ls_csv_no_memory(c);
        see_column(c, i, &r->seen[i]);
    }
    see_cells(c, r->seen);
    return LS_OK;
}
