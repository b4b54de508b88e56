/* Internals of data_csv.c: the columns of a table, which are determined from its header and from
 * the config's keys (csv_header.c), and its cells (csv_cells.c). */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include "data/levels.h"
#include "data/row_blocks.h"
#include "data/table.h"

typedef enum ls_csv_kind {
    LS_CSV_UNKNOWN, /* no value has decided it yet */
    LS_CSV_NUMBER,
    LS_CSV_TEXT,
    LS_CSV_DROPPED
} ls_csv_kind;

typedef struct ls_csv_column {
    char *name;
    ls_csv_kind kind;
    bool named;     /* a key decides what the column is */
    int slot;       /* index of its cell in a row; −1: it is dropped */
    const char *is; /* what its texts look like, if that dropped it ("a date"); else NULL */
    ls_levels levels;
    double mean, deviation; /* statistics of a column of numbers */
    int prepared;           /* index of its column in the preparation; −1: none */
    char decimal;           /* decimal separator if known; else 0 */
    unsigned forms;         /* the forms (LS_FORM_…) in which its numbers were written */
    size_t either_line;     /* line of the first number that has two readings; 0: none */
    char either[32];        /* that number */
    /* kind UNKNOWN: line of its first word, a text or a missing number; 0: none */
    size_t word_line;
} ls_csv_column;

typedef struct ls_csv {
    const ls_opening *o;
    ls_table *t; /* the table that is being read */
    ls_csv_column *column;
    int columns, target;
    int features;  /* number of floats in a row */
    ls_prep *prep; /* the preparation that is learnt */
    bool learning; /* the training table is read, and its columns are determined */
    /* a number was misread before its column's decimal mark was known: read the table again */
    bool again;
    /* Cells of the columns that are not dropped: a number, the index of a text, or NaN if it is
     * missing. */
    ls_row_blocks cells;
    float *row;
} ls_csv;

/* Returns whether the key names the column `name`. */
bool ls_csv_names(const ls_names *key, const char *name);
/* Stores a description of the training table's columns in `r`. The cells must still exist. Errors:
 * LS_ENOMEM. */
int ls_csv_see(const ls_csv *c, ls_resident *r);

/* Fails with LS_ENOMEM. */
int ls_csv_no_memory(const ls_csv *c);
/* Fails with LS_EDATA and file, line, column, what was expected, and the field that was found. */
int ls_csv_fail_field(const ls_csv *c, const ls_csv_column *at, const char *expected);

/* Reads the training table's header and creates the columns. Errors: LS_EDATA; LS_ECONFIG for a key
 * that names no column. */
int ls_csv_read_header(ls_csv *c);
/* Checks another table's header, which must be the same. Errors: LS_EDATA. */
int ls_csv_check_header(ls_csv *c);

/* Reads all rows into `cells`. If it sets c->again, they must be read once more. */
int ls_csv_read_rows(ls_csv *c);

#endif
