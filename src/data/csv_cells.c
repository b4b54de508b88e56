/* SPDX-License-Identifier: MIT */
/* Reads the cells of a CSV table, field by field, into rows of floats.
 *
 * A table is read row by row (data/table.h). A *field* is the text between two separators; a *cell*
 * is the float that it becomes: a number, the index of a text among the levels of its column, or
 * NaN if the value is missing. The first value of a column of the training table decides whether
 * the column has numbers or texts, unless a key decides it, or a number is a code, such as 01234. A
 * column whose first value is a date has dates (csv_dates.c). Some words, such as "None", are texts
 * in a column of texts, but missing values in a column of numbers. If such a word comes before the
 * kind of the column is known, it is stored as a text, and ls_csv_column.word_line is its line;
 * become_number replaces it by NaN if the column turns out to have numbers. */
#include "base/error.h"
#include "base/host.h"
#include "data/csv.h"
#include "prep/level.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEVELS = 1000,    /* largest number of different texts in a column other than the target */
    CLASSES = 1 << 16 /* largest number of different texts in the target column */
};

/* ---- texts ----------------------------------------------------------------------------------- */

static int fail_levels(const ls_csv *c, const ls_csv_column *col)
{
    if (col == &c->column[c->target])
        return ls_because(
            c->o->err,
            ls_csv_fail_field(
                c, col,
                "at most 65536 classes; if the target is a number, set data.labels to "
                "\"values\""),
            LS_REASON_CLASSES);
    return ls_csv_fail_field(
        c, col,
        c->cells.rows <= LEVELS + 1
            ? "at most 1000 different texts; name the column in data.drop: each row has a "
              "different text, like an id"
            : "at most 1000 different texts; name the column in data.drop");
}

/* Handles the first text of a column of the training table that shows that the column has codes
 * (prep/level.h). If two texts before it were taken for one number, the table must be read once
 * more. */
static void become_codes(ls_csv *c, ls_csv_column *col)
{
    ls_levels_become_codes(&col->levels);
    if (!col->merged)
        return;
    ls_levels_free(&col->levels, c->o->host);
    col->levels.codes = true;
    c->must_reread = true;
}

/* Handles a column of codes that has more texts than a column may have. If all are numbers, they
 * are read as numbers, as amounts with leading zeros are. Returns false if they are not. */
static bool become_numbers(ls_csv *c, ls_csv_column *col)
{
    double value;
    if (!col->digits)
        return false;
    for (int i = 0; i < col->levels.count; i++)
        if (!ls_field_is_number(col->levels.level[i].text, &value))
            return false;
    ls_levels_free(&col->levels, c->o->host);
    col->kind = LS_CSV_NUMBER;
    col->digits = false;
    col->numbers = c->must_reread = true;
    return true;
}

/* Sets *cell to the index of the text among the levels of its column. A new text becomes a new
 * level. The column cannot be used if the text is too long or the column has too
 * many levels: it is dropped (ls_csv_drop), or the function fails. */
static int read_text(ls_csv *c, ls_csv_column *col, float *cell)
{
    const char *text;
    if (c->t->length >= LS_FIELD_BYTES)
        return ls_csv_drop(c, col, "a long text")
                   ? LS_OK
                   : ls_csv_fail_field(
                         c, col,
                         "a text of less than 4096 bytes; name the column in data.drop, or add "
                         "the closing quote if it is missing");
    int status = ls_table_text(c->t, true, &text);
    if (status)
        return status;
    if (!col->levels.codes && ls_level_is_code(text))
        become_codes(c, col);
    const int nth = ls_levels_find(&col->levels, text);
    *cell = (float)(nth >= 0 ? nth : col->levels.count);
    if (nth >= 0)
        col->merged |= strcmp(text, col->levels.level[nth].text) != 0;
    if (nth >= 0)
        return LS_OK;
    if (col->levels.count == (col == &c->column[c->target] ? CLASSES : LEVELS))
        return become_numbers(c, col) || ls_csv_drop(c, col, NULL) ? LS_OK : fail_levels(c, col);
    return ls_levels_add(&col->levels, text, c->o->host) ? LS_OK : ls_csv_no_memory(c);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void put_number(const ls_csv_column *col, double value, float *cell)
{
    if (col->wide)
        memcpy(cell, &value, sizeof value);
    else
        *cell = (float)value;
}

static bool is_weight(const ls_csv *c, const ls_csv_column *col)
{
    return c->weight >= 0 && col == &c->column[c->weight];
}

/* Stores a number that has been read. */
static int take_value(const ls_csv *c, ls_csv_column *col, double value, float *cell)
{
    if (is_weight(c, col) && !ls_is_row_weight(value))
        return ls_csv_fail_field(c, col, LS_ROW_WEIGHT);
    if (!isfinite((float)value))
        return ls_csv_fail_field(c, col, "a finite number that a float holds");
    col->rounding = fmax(col->rounding, fabs(value - (double)(float)value));
    put_number(col, value, cell);
    return LS_OK;
}

static int fail_missing(const ls_csv *c, const ls_csv_column *col)
{
    if (is_weight(c, col))
        return ls_csv_fail_field(c, col, LS_ROW_WEIGHT);
    return ls_csv_fail_field(
        c, col,
        col == &c->column[c->target]
            ? "a target in each row; remove the rows without a target"
            : "a value; set data.missing to \"zero\" or \"mean\" to replace missing "
              "values");
}

static int take_missing(const ls_csv *c, const ls_csv_column *col, float *cell)
{
    put_number(col, (double)NAN, cell);
    return col == &c->column[c->target] || is_weight(c, col) ||
                   c->o->spec->keys.missing == LS_MISSING_REFUSED
               ? fail_missing(c, col)
               : LS_OK;
}

/* Returns the decimal separator of a column's numbers, or 0 if it is not known yet. */
static char decimal_of(const ls_csv_column *col)
{
    return col->decimal ? col->decimal : ls_form_decimal(col->forms);
}

/* Marks an error: the key data.decimal decides how the number is read. Returns `status`. */
static int blame_decimal(const ls_csv *c, int status)
{
    return ls_because(c->o->err, status, LS_REASON_DECIMAL);
}

/* Fails because of a number that has the other decimal separator than the column. */
static int fail_decimal(const ls_csv *c, const ls_csv_column *col)
{
    char expected[100];
    const bool told = c->o->spec->keys.decimal != LS_DECIMAL_AUTO;
    snprintf(expected, sizeof expected, "a number with a decimal %s, as %s",
             decimal_of(col) == ',' ? "comma" : "point",
             told ? "data.decimal says" : "before in this column");
    int status = ls_csv_fail_field(c, col, expected);
    return told ? blame_decimal(c, status) : status;
}

static int fail_number(const ls_csv *c, const ls_csv_column *col)
{
    char expected[200];
    double value;
    unsigned form = 0;
    const char *looks_like = ls_field_looks_like(c->t->field, c->t->length);
    if (!looks_like && ls_number_read(c->t->field, c->t->length, 0, &value, &form))
        return fail_decimal(c, col);
    if (is_weight(c, col))
        return ls_csv_fail_field(c, col, LS_ROW_WEIGHT);
    if (looks_like)
        snprintf(expected, sizeof expected,
                 "a number, as in the other rows, but this is %s; write it as a plain "
                 "number, or name the column in data.drop or data.categorical",
                 looks_like);
    else
        snprintf(expected, sizeof expected,
                 "a number, as in the other rows; if the column contains texts, name "
                 "it in data.categorical");
    return ls_csv_fail_field(c, col, expected);
}

/* Records the form of a number. A number such as 1,234 can be read in two ways as long as the
 * column's decimal separator is unknown. If a later number shows that the separator is a comma, the
 * numbers before it may have been misread, and the function sets c->must_reread, so that the
 * training table is read once more. */
static int take_form(ls_csv *c, ls_csv_column *col, unsigned form)
{
    static const unsigned either = LS_FORM_POINT_OR_GROUP | LS_FORM_COMMA_OR_GROUP;
    const bool known = decimal_of(col) != 0;
    if (form & either && !known && col->either_line == 0) {
        col->either_line = c->t->line;
        snprintf(col->either, sizeof col->either, "%.*s",
                 (int)(c->t->length < 31 ? c->t->length : 31), c->t->field);
    }
    if (form & LS_FORM_COMMA && !known) {
        col->decimal = ',';
        c->must_reread |= (col->forms & either) != 0;
    }
    col->forms |= form;
    return LS_OK;
}

/* Handles the first number of a column. Now it is known that words such as "None" in earlier rows
 * of the column stand for missing numbers. Their cells become NaN; if data.missing does not allow
 * missing numbers, the function fails. */
static int become_number(ls_csv *c, ls_csv_column *col)
{
    col->kind = LS_CSV_NUMBER;
    if (col->word_line == 0)
        return LS_OK;
    if (c->o->spec->keys.missing == LS_MISSING_REFUSED) {
        const size_t line = c->t->line;
        const char *word = col->levels.level[0].text;
        c->t->line = col->word_line;
        c->t->field = word;
        c->t->length = strlen(word);
        int status = fail_missing(c, col);
        c->t->line = line;
        return status;
    }
    for (size_t row = 0; row + 1 < c->cells.rows; row++)
        put_number(col, (double)NAN, (float *)ls_row_blocks_at(&c->cells, row) + col->slot);
    ls_levels_free(&col->levels, c->o->host);
    return LS_OK;
}

/* Returns whether the field shows that its column has codes, such as 01234 (prep/level.h): it has
 * nothing but digits, and the first of several is 0. */
static bool is_code(const ls_table *t)
{
    size_t i = 0;
    while (i < t->length && t->field[i] >= '0' && t->field[i] <= '9')
        i++;
    return i == t->length && i > 1 && t->field[0] == '0';
}

/* Handles the first code in a column that had only numbers so far. It becomes a column of texts,
 * and the table must be read once more, because its earlier cells are numbers. */
static void number_becomes_code(ls_csv *c, ls_csv_column *col)
{
    ls_log(
        c->o->host, LS_LOG_INFO,
        "%.300s:%zu: column \"%.60s\": \"%.*s\" begins with 0, so the column has codes, which are "
        "texts, not numbers",
        c->t->path, c->t->line, col->name, (int)(c->t->length < 40 ? c->t->length : 40),
        c->t->field);
    col->kind = LS_CSV_TEXT;
    col->digits = true;
    col->wide = false;
    col->forms = 0;
    col->either_line = 0;
    col->rounding = 0;
    ls_levels_free(&col->levels, c->o->host);
    col->levels.codes = true;
    c->must_reread = true;
}

/* Returns whether a number may show that its column has codes. A key that names the column decides
 * otherwise, and so do more codes than a column of texts may have. */
static bool may_be_code(const ls_csv *c, const ls_csv_column *col)
{
    return !col->named && !col->numbers && col != &c->column[c->target];
}

static int take_number(ls_csv *c, ls_csv_column *col, double value, unsigned form, float *cell)
{
    int status = form ? take_form(c, col, form) : LS_OK;
    if (status == LS_OK && col->kind == LS_CSV_UNKNOWN)
        status = become_number(c, col);
    if (status)
        return status;
    return take_value(c, col, value, cell);
}

/* Handles a field of a column of unknown kind that can only be a text, because it is neither a
 * number nor a word for a missing number. The column becomes a column of texts. */
static int become_text(ls_csv *c, ls_csv_column *col, float *cell)
{
    char expected[200];
    double value;
    unsigned form;
    bool is_date;
    int status = ls_csv_take_date(c, col, &value, &is_date);
    if (status || is_date)
        return status;
    const char *looks_like = ls_field_looks_like(c->t->field, c->t->length);
    if (looks_like && ls_csv_drop(c, col, looks_like))
        return LS_OK;
    if (looks_like) {
        snprintf(expected, sizeof expected,
                 "a number or a text, but this is %s; write it as a number, or name the "
                 "column in data.drop to ignore it, or in data.categorical to make each "
                 "distinct value a category",
                 looks_like);
        return ls_csv_fail_field(c, col, expected);
    }
    if (ls_number_read(c->t->field, c->t->length, 0, &value, &form))
        return fail_number(c, col);
    col->kind = LS_CSV_TEXT;
    return read_text(c, col, cell);
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Reads a cell of a column of dates. */
static int read_date(ls_csv *c, ls_csv_column *col, float *cell)
{
    double moment = (double)NAN;
    bool taken;
    if (ls_field_is_missing_number(c->t->field, c->t->length))
        return take_missing(c, col, cell);
    int status = ls_csv_take_date(c, col, &moment, &taken);
    if (status == LS_OK && col->slot >= 0)
        put_number(col, moment, cell);
    return status;
}

static int read_cell(ls_csv *c, ls_csv_column *col, float *cell)
{
    const char *text = c->t->field;
    const size_t n = c->t->length;
    double value;
    unsigned form = 0;
    if (ls_field_is_missing(text, n))
        return take_missing(c, col, cell);
    if (col->kind == LS_CSV_DATE)
        return read_date(c, col, cell);
    if (col->kind == LS_CSV_TEXT)
        return read_text(c, col, cell);
    if (is_code(c->t) && may_be_code(c, col)) {
        number_becomes_code(c, col);
        return LS_OK;
    }
    if (ls_number_read(text, n, decimal_of(col), &value, &form))
        return take_number(c, col, value, form, cell);
    if (ls_field_is_missing_number(text, n)) {
        if (col->kind == LS_CSV_NUMBER)
            return take_missing(c, col, cell);
        col->word_line = col->word_line ? col->word_line : c->t->line;
        return read_text(c, col, cell);
    }
    return col->kind == LS_CSV_NUMBER ? fail_number(c, col) : become_text(c, col, cell);
}

/* Reads the field of column i of the current row. A number in the usual form is read without
 * copying the field. */
static int read_column(void *user, int i)
{
    ls_csv *c = user;
    ls_csv_column *col = &c->column[i];
    float *cell = col->slot >= 0 ? c->row + col->slot : NULL;
    double value;
    unsigned form;
    if (col->kind == LS_CSV_NUMBER && col->decimal != ',' && ls_table_number(c->t, &value, &form)) {
        if (is_code(c->t) && may_be_code(c, col)) {
            number_becomes_code(c, col);
            return LS_OK;
        }
        int status = form & ~col->forms ? take_form(c, col, form) : LS_OK;
        return status ? status : take_value(c, col, value, cell);
    }
    int status = ls_table_field(c->t);
    return status || !cell ? status : read_cell(c, col, cell);
}

/* Fails if all numbers of a column can be read in two ways, such as 1,234. The decimal separator is
 * not guessed. */
static int check_forms(const ls_csv *c)
{
    bool commas = false;
    for (int i = 0; i < c->columns; i++)
        commas |= c->column[i].decimal == ',';
    for (int i = 0; i < c->columns; i++) {
        const ls_csv_column *col = &c->column[i];
        const unsigned doubtful = LS_FORM_COMMA_OR_GROUP | (commas ? LS_FORM_POINT_OR_GROUP : 0u);
        if (col->kind == LS_CSV_NUMBER && !decimal_of(col) && col->forms & doubtful)
            return blame_decimal(
                c, ls_fail(c->o->err, LS_EDATA,
                           "%.300s:%zu: column \"%.60s\": \"%s\" may be a decimal fraction, or "
                           "have a separator of thousands; set data.decimal to \",\" or \".\"",
                           c->t->path, col->either_line, col->name, col->either));
    }
    return LS_OK;
}

/* Gives each column its place in a row of cells. */
static void place_cells(ls_csv *c)
{
    c->slots = 0;
    for (int i = 0; i < c->columns; i++)
        if (c->column[i].slot >= 0) {
            c->column[i].wide |= c->column[i].kind == LS_CSV_DATE;
            c->column[i].slot = c->slots;
            c->slots += c->column[i].wide ? 2 : 1;
        }
    c->cells.width = (size_t)c->slots * sizeof *c->row;
}

/* Measures the columns of numbers, and finds those that need doubles. If there is one, the table
 * must be read once more. */
static int find_wide(ls_csv *c)
{
    int status = ls_csv_measure(c, c->cells.rows);
    for (int i = 0; status == LS_OK && i < c->columns; i++) {
        ls_csv_column *col = &c->column[i];
        const bool wide = col->kind == LS_CSV_NUMBER && col->slot >= 0 &&
                          col->rounding > LS_PREP_CLOSE * col->deviation;
        c->must_reread |= wide && !col->wide;
        col->wide |= wide;
    }
    return status;
}

int ls_csv_read_rows(ls_csv *c)
{
    const uint32_t limit = c->o->spec->limit;
    const uint32_t most = limit ? limit : UINT32_MAX - 1;
    bool more = false;
    place_cells(c);
    int status = ls_table_has_row(c->t, &more);
    while (status == LS_OK && more && c->cells.rows < most) {
        c->row = ls_row_blocks_add(&c->cells);
        status = c->row ? ls_table_row(c->t, c->columns, read_column, c) : ls_csv_no_memory(c);
        if (status == LS_OK)
            status = ls_table_has_row(c->t, &more);
    }
    if (status == LS_OK && c->cells.rows == 0)
        return ls_table_fail(c->t, "expected rows below the header, found none");
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        if (c->column[i].kind == LS_CSV_UNKNOWN)
            c->column[i].kind = c->column[i].levels.count ? LS_CSV_TEXT : LS_CSV_NUMBER;
    if (status || c->must_reread)
        return status;
    status = check_forms(c);
    if (status == LS_OK)
        status = find_wide(c);
    return status ? status : ls_csv_measure_dates(c);
}
