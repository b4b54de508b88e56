/* Inside of data_csv.c: a table's columns, as its header and its keys say (csv_header.c), and its cells (csv_cells.c). */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include "data/levels.h"
#include "data/row_blocks.h"
#include "data/table.h"

typedef enum ls_csv_kind {
    LS_CSV_UNKNOWN, /* until a value tells */
    LS_CSV_NUMBER,
    LS_CSV_TEXT,
    LS_CSV_DROPPED
} ls_csv_kind;

typedef struct ls_csv_column {
    char *name;
    ls_csv_kind kind;
    bool named;     /* a key says what it is */
    int slot;       /* its cell in a row; −1: it is dropped */
    const char *is; /* "a date": why it was left out without being named; else NULL */
    ls_levels levels;
    double mean, deviation; /* of numbers */
    int prepared;           /* which column of the preparation it is; −1: none */
    char decimal;           /* the decimal mark, where it is known; else 0 */
    unsigned forms;         /* in which its numbers were written */
    size_t either_line;     /* where the first one was that can be read both ways, */
    char either[32];        /* and that number */
    size_t word_line; /* UNKNOWN: where the first word was that is a text or a missing number */
} ls_csv_column;

typedef struct ls_csv {
    const ls_opening *o;
    ls_table *t; /* the table that is read */
    ls_csv_column *column;
    int columns, target;
    int features;  /* of a row */
    ls_prep *prep; /* what is learnt */
    bool learning; /* what columns are: the training table is read */
    bool again;    /* a number was read the wrong way, before its column told: from the front */
    ls_row_blocks
        cells; /* numbers, numbers of texts, NaN where one is missing; of those that are not dropped */
    float *row;
} ls_csv;

/* Whether a key names the column. */
bool ls_csv_names(const ls_names *key, const char *name);
/* What the columns of the training table are, for whoever tells it, while its cells are still there. */
int ls_csv_see(const ls_csv *c, ls_resident *r);

int ls_csv_no_memory(const ls_csv *c);
/* Fails with LS_EDATA, file, line, column, what was expected and what was found. */
int ls_csv_fail_field(const ls_csv *c, const ls_csv_column *at, const char *expected);

/* The training table's header → columns. Errors: LS_EDATA; LS_ECONFIG for a key that names no column. */
int ls_csv_read_header(ls_csv *c);
/* Another table's header, which must be the same. */
int ls_csv_check_header(ls_csv *c);

/* All rows → cells; `c->again`: they must be read once more. */
int ls_csv_read_rows(ls_csv *c);

#endif
