/* SPDX-License-Identifier: MIT */
/* Columns of dates of a training table (csv.h).
 *
 * A column whose first value is a date or a time has dates, unless a key names the column. Each
 * date is a moment (prep/date.h), a double, and becomes several numbers, its parts: those that
 * differ among the rows.
 *
 * Whether the day or the month is first is not guessed: one date of the column, such as 31.12.2024,
 * must show it. Until then dates are read with the day first. The table is read once more after the
 * first date of a column, because a cell of a double has another size. */
#include "base/error.h"
#include "base/host.h"
#include "data/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DATES = 1 << LS_DATE_YMD | 1 << LS_DATE_DMY | 1 << LS_DATE_MDY };

ls_date_form ls_csv_date_form(const ls_csv_column *col)
{
    const unsigned either = 1u << LS_DATE_DMY | 1u << LS_DATE_MDY;
    if (col->date_forms & 1u << LS_DATE_YMD)
        return LS_DATE_YMD;
    if (col->date_forms == either)
        return LS_DATE_NONE;
    for (int form = LS_DATE_DMY; form < LS_DATE_FORMS; form++)
        if (col->date_forms == 1u << form)
            return (ls_date_form)form;
    return LS_DATE_NONE;
}

/* Keeps a date that shows the form of the dates of its column, or the first date. */
static void keep_shown(const ls_csv *c, ls_csv_column *col, unsigned forms)
{
    const bool shows = (forms & (forms - 1)) == 0;
    if (col->shown_line > 0 || (col->shown[0] && !shows))
        return;
    col->shown_line = shows ? c->t->line : 0;
    snprintf(col->shown, sizeof col->shown, "%.*s", (int)(c->t->length < 31 ? c->t->length : 31),
             c->t->field);
}

/* Handles a field in a column of dates that is none, or is written in another form. */
static int refuse(ls_csv *c, ls_csv_column *col, unsigned forms)
{
    char expected[200];
    if (ls_csv_drop(c, col, NULL)) {
        col->wrong_dates =
            forms & DATES ? "has dates with the day first, and others with the month first"
                          : "has dates, but also texts that are no dates, or dates that do not "
                            "exist";
        return LS_OK;
    }
    snprintf(expected, sizeof expected,
             "a %s like \"%s\" before; write it in the same form, leave it empty, or name the "
             "column in data.drop or data.categorical",
             col->date_forms & DATES ? "date that exists," : "time", col->shown);
    return ls_csv_fail_field(c, col, expected);
}

int ls_csv_take_date(ls_csv *c, ls_csv_column *col, double *moment, bool *taken)
{
    const unsigned forms = ls_date_forms(c->t->field, c->t->length);
    *taken = true;
    if (col->kind != LS_CSV_DATE && forms == 0) {
        *taken = false;
        return LS_OK;
    }
    if (col->kind != LS_CSV_DATE) {
        col->kind = LS_CSV_DATE;
        col->date_forms = forms;
        ls_levels_free(&col->levels, c->o->host); /* words for missing values before it */
        c->must_reread = true;
    }
    if ((col->date_forms & forms) == 0)
        return refuse(c, col, forms);
    col->date_forms &= forms;
    keep_shown(c, col, forms);
    const ls_date_form form = ls_csv_date_form(col);
    ls_date_read(c->t->field, c->t->length, form ? form : LS_DATE_DMY, moment);
    return LS_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Computes mean and deviation of a part. Returns whether it differs among the rows. */
static bool measure_part(const ls_csv *c, const ls_csv_column *col, ls_prep_column *part)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t r = 0; r < c->cells.rows; r++) {
            const double moment = ls_csv_number(col, ls_row_blocks_at(&c->cells, r));
            const double v = ls_date_part_of(part->is, moment, col->since);
            if (isnan(v))
                continue;
            count += pass == 0;
            sum += pass == 0 ? v : 0;
            squares += pass == 1 ? (v - part->mean) * (v - part->mean) : 0;
            least = fmin(least, v);
            most = fmax(most, v);
        }
        part->mean = count > 0 ? sum / (double)count : 0;
    }
    part->deviation = squares > 0 ? sqrt(squares / (double)count) : 1;
    return least < most;
}

/* Finds the parts of a column. A column whose dates are all equal keeps its last part. */
static void measure_column(const ls_csv *c, ls_csv_column *col)
{
    const bool times = ls_csv_date_form(col) == LS_DATE_TIME;
    const int first = times ? LS_PART_HOUR : LS_PART_YEAR;
    const int last = times ? LS_PART_HOUR : LS_PART_DAYS;
    col->since = times ? 0 : ls_date_day(col->least);
    col->parts = 0;
    for (int is = first; is <= last; is++) {
        ls_prep_column *part = &col->part[col->parts];
        *part = (ls_prep_column){.is = (ls_date_part)is};
        if (measure_part(c, col, part) || (is == last && col->parts == 0))
            col->parts++;
    }
}

int ls_csv_measure_dates(ls_csv *c)
{
    for (int i = 0; i < c->columns; i++) {
        ls_csv_column *col = &c->column[i];
        if (col->kind != LS_CSV_DATE)
            continue;
        if (ls_csv_date_form(col) != LS_DATE_NONE) {
            measure_column(c, col);
            continue;
        }
        if (!ls_csv_drop(c, col, NULL))
            return ls_fail(
                c->o->err, LS_EDATA,
                "%.300s: column \"%.60s\": expected dates that can be read in one way, found "
                "\"%s\", and no date whose day is above 12; write them as 2024-12-31, or name the "
                "column in data.drop or data.categorical",
                c->t->path, col->name, col->shown);
        col->wrong_dates = "has dates that can be read in two ways, because no day is above 12 "
                           "(write them as 2024-12-31)";
    }
    return LS_OK;
}

int ls_csv_prepare_dates(ls_csv *c, ls_csv_column *at)
{
    const ls_data_keys *k = &c->o->spec->keys;
    ls_date_part is[LS_DATE_PARTS];
    for (int i = 0; i < at->parts; i++)
        is[i] = at->part[i].is;
    int status = ls_prep_add_dates(c->prep, at->name, ls_csv_date_form(at), at->since, is,
                                   at->parts, c->o->err);
    if (status)
        return status;
    at->prep_column = c->prep->columns - 1;
    ls_prep_column *to = &c->prep->column[at->prep_column];
    to->allows_missing = k->missing != LS_MISSING_REFUSED;
    for (int i = 0; i < at->parts; i++) {
        ls_prep_column *part = &to->part[i];
        part->allows_missing = to->allows_missing;
        part->missing = to->allows_missing ? at->part[i].mean : 0;
        part->scaled = k->standardize != 0;
        part->mean = part->scaled ? at->part[i].mean : 0;
        part->deviation = part->scaled ? at->part[i].deviation : 1;
        part->clip = part->scaled ? k->clip : 0;
    }
    return LS_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void log_column(const ls_csv *c, const ls_csv_column *col)
{
    static const char *const order[LS_DATE_FORMS] = {
        [LS_DATE_DMY] = ", with the day first", [LS_DATE_MDY] = ", with the month first"};
    char parts[80] = "", shown[LS_DATE_SHOWN], because[80] = "";
    const ls_date_form form = ls_csv_date_form(col);
    for (int i = 0; i < col->parts; i++)
        snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%s%s", i ? ", " : "",
                 ls_date_part_names[col->part[i].is]);
    if (order[form])
        snprintf(because, sizeof because, "%s, as \"%s\" in line %zu shows", order[form],
                 col->shown, col->shown_line);
    ls_date_show(shown, col->since);
    const bool counts = form != LS_DATE_TIME;
    ls_log(c->o->host, LS_LOG_INFO,
           "%.300s: column \"%.60s\" has %s%s; they become numbers: %s%s%s", c->t->path, col->name,
           counts ? "dates" : "times", because, parts, counts ? ", counted from " : "",
           counts ? shown : "");
}

void ls_csv_log_dates(const ls_csv *c)
{
    for (int i = 0; i < c->columns; i++)
        if (c->column[i].kind == LS_CSV_DATE)
            log_column(c, &c->column[i]);
}
