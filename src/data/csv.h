/* SPDX-License-Identifier: MIT */
/* Internals of data_csv.c, which reads a CSV table: its columns, as determined from the header and
 * from the config's keys (csv_header.c), its cells (csv_cells.c defines field, cell and level), and
 * its columns of dates (csv_dates.c). */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include "data/levels.h"
#include "data/row_blocks.h"
#include "data/table.h"

#include <string.h>

typedef enum ls_csv_kind {
    LS_CSV_UNKNOWN, /* the column has had no value yet that shows its kind */
    LS_CSV_NUMBER,
    LS_CSV_TEXT,
    LS_CSV_DATE,
    LS_CSV_DROPPED
} ls_csv_kind;

/* A column of a table. */
typedef struct ls_csv_column {
    char *name;
    ls_csv_kind kind;
    bool named; /* a key of the config names the column, so the key decides its kind */
    /* index of the column's cell in a row of `cells` (ls_csv); −1: the column is dropped */
    int slot;
    /* for a column that was dropped because of a text, the kind of that text ("a date"); else
     * NULL */
    const char *looks_like;
    /* for a column that was dropped because of its dates, what is wrong with them; else NULL */
    const char *wrong_dates;
    bool digits;  /* it is a column of texts because a number in it is a code, such as 01234 */
    bool numbers; /* codes in it are numbers, because there are too many for texts */
    ls_levels levels;
    bool merged;            /* a text that differs from the text of its level has been read */
    double mean, deviation; /* mean and deviation of the numbers over the training rows */
    double least, most;     /* smallest and largest number of the training rows */
    /* all training rows have the same number, also after missing ones are replaced by 0, if they
     * are */
    bool constant;
    double rounding; /* largest distance between a number of the table and the nearest float */
    /* For a column of dates: the forms in which all of its dates so far can be read, a bit 1 <<
     * form for each; line of the first that shows whether the day or the month is first, 0: there
     * is none; that date, or the first of all. */
    unsigned date_forms;
    size_t shown_line;
    char shown[32];
    ls_prep_column part[LS_DATE_PARTS]; /* the parts of its dates: .is, and scales */
    int parts;
    double since; /* day of the earliest date, in days since 1970-01-01 */
    /* The column's numbers need doubles (ls_prep_column.wide). Its cells are then doubles, each of
     * which has two floats of a row. */
    bool wide;
    /* index of the column in the preparation (ls_prep); −1: it is not in the preparation */
    int prep_column;
    char decimal;   /* decimal separator of its numbers if known; else 0 */
    unsigned forms; /* the forms of its numbers, LS_FORM_… (prep/number.h) */
    /* line of the first number that can be read in two ways, such as 1,234 (1.234 or 1234); 0:
     * none */
    size_t either_line;
    char either[32]; /* that number */
    /* while the kind is UNKNOWN: line of the first word that is either a text or stands for a
     * missing number, such as "None"; 0: none */
    size_t word_line;
} ls_csv_column;

/* State of reading the training table. */
typedef struct ls_csv {
    const ls_opening *o;
    ls_table *t; /* the table that is being read */
    ls_csv_column *column;
    int columns, target; /* number of columns; index of the target column */
    int weight;          /* index of the column of weights; −1: none */
    int slots;           /* number of floats in a row of `cells` */
    int features;        /* number of floats in a row */
    ls_prep *prep;       /* the preparation that is computed from the training table */
    /* the table must be read once more, because a number may have been misread before the decimal
     * separator of its column was known, a text before its column was known to have codes, or
     * numbers were rounded before it was known that their column needs doubles */
    bool must_reread;
    /* Cells of the columns that are not dropped. A cell is a number, the index of a text among its
     * column's levels, or NaN for a missing value. */
    ls_row_blocks cells;
    float *row; /* the row of cells that is being read */
} ls_csv;

/* Returns a number of a row of cells. */
static inline double ls_csv_number(const ls_csv_column *column, const float *row)
{
    double wide;
    if (!column->wide)
        return (double)row[column->slot];
    memcpy(&wide, row + column->slot, sizeof wide);
    return wide;
}

/* Returns whether `key`, a key of the config, names the column `name`. */
bool ls_csv_names(const ls_names *key, const char *name);
/* Stores a summary of each column of the training table in `r`, as info.column. Must be called
 * before c->cells are freed. Errors: LS_ENOMEM. */
int ls_csv_summarise(const ls_csv *c, ls_resident *r);

/* Fails with LS_ENOMEM. */
int ls_csv_no_memory(const ls_csv *c);
/* Fails with LS_EDATA and file, line, column, what was expected, and the field that was found. */
int ls_csv_fail_field(const ls_csv *c, const ls_csv_column *at, const char *expected);

/* Reads the training table's header and creates the columns. Errors: LS_EDATA; LS_ECONFIG for a key
 * that names no column. */
int ls_csv_read_header(ls_csv *c);
/* Reads the header once more. Errors: LS_EDATA (it has changed meanwhile). */
int ls_csv_check_header(ls_csv *c);

/* Reads the rows into c->cells: all of them, or, of the training table, as many as data.limit
 * takes. The rows after these are not parsed. If the function sets c->must_reread, the caller must
 * open the table anew and call it once more. */
int ls_csv_read_rows(ls_csv *c);

/* Handles a date in a column of dates, or the first value of a column, if it is a date. Its cell is
 * the date's moment (prep/date.h). If *taken becomes false, the field is no date and was not
 * handled. */
int ls_csv_take_date(ls_csv *c, ls_csv_column *column, double *moment, bool *taken);
/* Returns the form of the dates of a column; LS_DATE_NONE: it cannot be told, because all of them
 * can be read in two ways. */
ls_date_form ls_csv_date_form(const ls_csv_column *column);
/* Finds the parts of the dates of each column that differ among the rows, and their scales, after
 * all rows were read. Errors: LS_EDATA (the form of the dates of a column cannot be told, and the
 * table is not only inspected). */
int ls_csv_measure_dates(ls_csv *c);
/* Adds a column of dates to the preparation. Errors: LS_ENOMEM. */
int ls_csv_prepare_dates(ls_csv *c, ls_csv_column *column);
/* Logs what the dates of each column become. */
void ls_csv_log_dates(const ls_csv *c);

/* Drops a column that cannot be used and returns true, if the table is only inspected
 * (keys.lenient) and the column is not the target. Otherwise returns false, and the caller must
 * fail. `looks_like`: what the column's text looks like (ls_csv_column.looks_like). */
bool ls_csv_drop(ls_csv *c, ls_csv_column *column, const char *looks_like);

/* Computes mean and deviation of each column of numbers over the first `rows` rows, without the
 * missing values. Errors: LS_ENOMEM. */
int ls_csv_measure(ls_csv *c, size_t rows);

#endif
