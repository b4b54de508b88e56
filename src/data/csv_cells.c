#include "base/error.h"
#include "base/host.h"
#include "data/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEVELS = 1000,    /* limit of different texts in a column of the row */
    CLASSES = 1 << 16 /* limit of different texts in the target column */
};

/* ---- texts ----------------------------------------------------------------------------------- */

static int fail_levels(const ls_csv *c, const ls_csv_column *at)
{
    if (at == &c->column[c->target])
        return ls_csv_fail_field(
            c, at, "at most 65536 classes; for numbers set data.labels to \"values\"");
    return ls_csv_fail_field(
        c, at,
        c->cells.rows <= LEVELS + 1
            ? "at most 1000 different texts; name the column in data.drop, as each row has "
              "another text, as of an id"
            : "at most 1000 different texts; name the column in data.drop");
}

/* Inspection (keys.lenient): drops a column, other than the target, that cannot be part of a row.
 * Returns false otherwise; the caller then fails. `is`: see ls_csv_column. */
static bool leave_out(ls_csv *c, ls_csv_column *at, const char *is)
{
    if (!c->o->spec->keys.lenient || at == &c->column[c->target])
        return false;
    at->kind = LS_CSV_DROPPED;
    at->slot = -1;
    at->is = is;
    return true;
}

/* Stores the index of the text among the levels of its column. Only the training table adds levels;
 * its column with too long or too many texts is dropped or refused. */
static int read_text(ls_csv *c, ls_csv_column *at, float *cell)
{
    const char *text;
    if (c->learning && c->t->length >= LS_FIELD_BYTES)
        return leave_out(c, at, "a long text")
                   ? LS_OK
                   : ls_csv_fail_field(c, at,
                                       "a text of less than 4096 bytes; name the column in "
                                       "data.drop, unless a quote does not end");
    int status = ls_table_text(c->t, true, &text);
    if (status)
        return status;
    const int nth = ls_levels_find(&at->levels, text);
    *cell = (float)(nth >= 0 ? nth : at->levels.count);
    if (nth >= 0)
        return LS_OK;
    if (!c->learning)
        return ls_csv_fail_field(c, at, "a text that the training rows have, too");
    if (at->levels.count == (at == &c->column[c->target] ? CLASSES : LEVELS))
        return leave_out(c, at, NULL) ? LS_OK : fail_levels(c, at);
    return ls_levels_add(&at->levels, text, c->o->host) ? LS_OK : ls_csv_no_memory(c);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int fail_missing(const ls_csv *c, const ls_csv_column *at)
{
    return ls_csv_fail_field(c, at,
                             at == &c->column[c->target]
                                 ? "a target in each row; remove the rows that have none"
                                 : "a value; data.missing says what else to do: \"zero\" or "
                                   "\"mean\"");
}

static int take_missing(const ls_csv *c, const ls_csv_column *at, float *cell)
{
    *cell = NAN;
    return at == &c->column[c->target] || c->o->spec->keys.missing == LS_MISSING_REFUSED
               ? fail_missing(c, at)
               : LS_OK;
}

/* Returns the decimal separator of a column's numbers as far as it is known; else 0. */
static char decimal_of(const ls_csv_column *at)
{
    return at->decimal ? at->decimal : ls_form_decimal(at->forms);
}

static int fail_number(const ls_csv *c, const ls_csv_column *at)
{
    char expected[200];
    double value;
    unsigned form = 0;
    const char *is = ls_field_looks_like(c->t->field, c->t->length);
    if (is)
        snprintf(
            expected, sizeof expected,
            "a number, as before, and this is %s; write numbers without a sign or unit, or name "
            "the column in data.drop or data.categorical",
            is);
    else if (ls_number_read(c->t->field, c->t->length, 0, &value, &form))
        snprintf(expected, sizeof expected, "a number with a decimal %s, as %s",
                 decimal_of(at) == ',' ? "comma" : "point",
                 c->o->spec->keys.decimal ? "data.decimal says" : "before in this column");
    else
        snprintf(expected, sizeof expected,
                 "a number, as before; if it has texts name it in data.categorical");
    return ls_csv_fail_field(c, at, expected);
}

/* Records the form of a number. When the decimal separator turns out to be a comma after numbers
 * with two readings, these may have been misread: requests that the training table be read
 * again. */
static int take_form(ls_csv *c, ls_csv_column *at, unsigned form)
{
    static const unsigned either = LS_FORM_POINT_OR_GROUP | LS_FORM_COMMA_OR_GROUP;
    const bool known = decimal_of(at) != 0;
    if (form & either && !known && at->either_line == 0) {
        at->either_line = c->t->line;
        snprintf(at->either, sizeof at->either, "%.*s",
                 (int)(c->t->length < 31 ? c->t->length : 31), c->t->field);
    }
    if (form & LS_FORM_COMMA_OR_GROUP && !known && !c->learning)
        return ls_csv_fail_field(c, at,
                                 "a number that can be read in one way alone; set data.decimal");
    if (form & LS_FORM_COMMA && !known) {
        at->decimal = ',';
        c->again |= c->learning && (at->forms & either) != 0;
    }
    at->forms |= form;
    return LS_OK;
}

/* Handles the first number of a column. The words before it stood for missing numbers. */
static int become_number(ls_csv *c, ls_csv_column *at)
{
    at->kind = LS_CSV_NUMBER;
    if (at->word_line == 0)
        return LS_OK;
    if (c->o->spec->keys.missing == LS_MISSING_REFUSED) {
        const size_t line = c->t->line;
        const char *word = at->levels.level[0].text;
        c->t->line = at->word_line;
        c->t->field = word;
        c->t->length = strlen(word);
        int status = fail_missing(c, at);
        c->t->line = line;
        return status;
    }
    for (size_t row = 0; row + 1 < c->cells.rows; row++)
        ls_row_blocks_at(&c->cells, row)[at->slot] = NAN;
    ls_levels_free(&at->levels, c->o->host);
    return LS_OK;
}

static int take_number(ls_csv *c, ls_csv_column *at, double value, unsigned form, float *cell)
{
    int status = form ? take_form(c, at, form) : LS_OK;
    if (status == LS_OK && at->kind == LS_CSV_UNKNOWN)
        status = become_number(c, at);
    if (status)
        return status;
    *cell = (float)value;
    return isfinite(*cell) ? LS_OK : ls_csv_fail_field(c, at, "a finite number");
}

/* Handles a column's first value that is neither a number nor a word for a missing one. */
static int become_text(ls_csv *c, ls_csv_column *at, float *cell)
{
    char expected[200];
    double value;
    unsigned form;
    const char *is = ls_field_looks_like(c->t->field, c->t->length);
    if (is && leave_out(c, at, is))
        return LS_OK;
    if (is) {
        snprintf(expected, sizeof expected,
                 "a number or a text, and this is %s; write it as a number, or name the column in "
                 "data.drop, or in data.categorical, where each is a text of its own",
                 is);
        return ls_csv_fail_field(c, at, expected);
    }
    if (ls_number_read(c->t->field, c->t->length, 0, &value, &form))
        return fail_number(c, at);
    at->kind = LS_CSV_TEXT;
    return read_text(c, at, cell);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static int read_cell(ls_csv *c, ls_csv_column *at, float *cell)
{
    const char *text = c->t->field;
    const size_t n = c->t->length;
    double value;
    unsigned form = 0;
    if (ls_field_is_missing(text, n))
        return take_missing(c, at, cell);
    if (at->kind == LS_CSV_TEXT)
        return read_text(c, at, cell);
    if (ls_number_read(text, n, decimal_of(at), &value, &form))
        return take_number(c, at, value, form, cell);
    if (ls_field_is_no_number(text, n)) {
        if (at->kind == LS_CSV_NUMBER)
            return take_missing(c, at, cell);
        at->word_line = at->word_line ? at->word_line : c->t->line;
        return read_text(c, at, cell);
    }
    return at->kind == LS_CSV_NUMBER ? fail_number(c, at) : become_text(c, at, cell);
}

static int take(void *user, int i)
{
    ls_csv *c = user;
    ls_csv_column *at = &c->column[i];
    float *cell = at->slot >= 0 ? c->row + at->slot : NULL;
    unsigned form;
    if (at->kind == LS_CSV_NUMBER && at->decimal != ',' && ls_table_number(c->t, cell, &form)) {
        int status = form & ~at->forms ? take_form(c, at, form) : LS_OK;
        return status || isfinite(*cell) ? status : ls_csv_fail_field(c, at, "a finite number");
    }
    int status = ls_table_field(c->t);
    return status || !cell ? status : read_cell(c, at, cell);
}

/* Refuses a column all of whose numbers have two readings: the decimal separator is not guessed. */
static int check_forms(const ls_csv *c)
{
    bool commas = false;
    for (int i = 0; i < c->columns; i++)
        commas |= c->column[i].decimal == ',';
    for (int i = 0; i < c->columns; i++) {
        const ls_csv_column *at = &c->column[i];
        const unsigned doubtful = LS_FORM_COMMA_OR_GROUP | (commas ? LS_FORM_POINT_OR_GROUP : 0u);
        if (at->kind == LS_CSV_NUMBER && !decimal_of(at) && at->forms & doubtful)
            return ls_fail(
                c->o->err, LS_EDATA,
                "%.300s:%zu: column \"%.60s\": \"%s\" may be a decimal fraction, or have a mark "
                "between thousands; set data.decimal to \",\" or \".\"",
                c->t->path, at->either_line, at->name, at->either);
    }
    return LS_OK;
}

int ls_csv_read_rows(ls_csv *c)
{
    bool more = false;
    int status = ls_table_has_row(c->t, &more);
    while (status == LS_OK && more && c->cells.rows < UINT32_MAX - 1) {
        c->row = ls_row_blocks_add(&c->cells);
        status = c->row ? ls_table_row(c->t, c->columns, take, c) : ls_csv_no_memory(c);
        if (status == LS_OK)
            status = ls_table_has_row(c->t, &more);
    }
    if (status == LS_OK && c->cells.rows == 0)
        return ls_table_fail(c->t, "expected rows below the header, found none");
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        if (c->column[i].kind == LS_CSV_UNKNOWN)
            c->column[i].kind = c->column[i].levels.count ? LS_CSV_TEXT : LS_CSV_NUMBER;
    return status || c->again || !c->learning ? status : check_forms(c);
}
