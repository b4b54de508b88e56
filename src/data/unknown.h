/* SPDX-License-Identifier: MIT */
/* Rows of new data with values that are unknown to the model (prep/prep.h), or that it cannot read:
 * which they are, and the words in which the first of them are reported. */
#ifndef DATA_UNKNOWN_H
#define DATA_UNKNOWN_H

#include "prep/prep.h"

/* A row that cannot be predicted. */
typedef struct ls_unknown_row {
    uint32_t row; /* number of the row in its table or array, from 0 */
    char *why;    /* the message about its first unknown value */
} ls_unknown_row;

/* The places of some rows, for a message. */
typedef struct ls_unknown_places {
    char text[320];
    int count; /* number of rows, those included that are not in `text` */
} ls_unknown_places;

/* The rows of a table or array with unknown values. */
typedef struct ls_unknown_rows {
    const ls_host *host;
    ls_unknown_row *row; /* [count], in the order of the table */
    size_t count, capacity;
    uint32_t zeroed; /* number of rows in which unknown texts were replaced by zeros */
    bool refused;    /* one of these rows has a value that the model cannot read */
    bool numbers;    /* one of these rows has an unknown value that is not of a column of texts */
    /* places of the first rows that cannot be predicted, and of the first with zeros */
    ls_unknown_places places, zeroed_places;
} ls_unknown_rows;

/* Place of an unknown value. */
typedef struct ls_unknown_place {
    const char *unit; /* unit of `number`: "line" or "row" */
    size_t number;
    const char *column; /* name of the column; NULL: `text` has it */
    const char *text;   /* the value; without a column: a message that names both */
    bool other_coding;  /* the value is a text that is not UTF-8 */
    bool refused;       /* the value is no number, in a column of numbers */
    bool is_text;       /* the value is one of a column of texts */
} ls_unknown_place;

/* Adds row number `row` of the table, whose values are `found`, unless that is LS_PREP_KNOWN.
 * `why`: the message about the row's first unknown value. The caller initialises *u with
 * {.host = …}. Errors: LS_ENOMEM. */
int ls_unknown_rows_add(ls_unknown_rows *u, uint32_t row, ls_prep_found found,
                        const ls_unknown_place *place, const char *why, ls_error *err);
/* Returns why the rows have no prediction, in the words of a message: "no training row has …". */
const char *ls_unknown_rows_why(const ls_unknown_rows *u);
/* Logs a warning, with the number of rows in which unknown texts were replaced by zeros, if there
 * are such rows. `rows`: number of rows of the table `source`. */
void ls_unknown_rows_tell_zeroed(const ls_unknown_rows *u, const char *source, size_t rows);
/* Logs a warning, with the number of rows that were left out, if there are such rows. Errors:
 * LS_EDATA (all of them were left out; the message is that about the first row, or has `cure` if
 * all their unknown values are texts). `cure`: what then helps; NULL: nothing. */
int ls_unknown_rows_tell_left_out(const ls_unknown_rows *u, const char *source, size_t rows,
                                  const char *cure, ls_error *err);
/* Frees the list and zeroes *u. */
void ls_unknown_rows_free(ls_unknown_rows *u);

#endif
