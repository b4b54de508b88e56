/* SPDX-License-Identifier: MIT */
/* The rows that a model predicts wrong, those with the least probable labels first, or the largest
 * errors of a model that predicts values. Wrong labels are usually among the first.
 *
 *     ls_wrong wrong = {.host = host};
 *     status = ls_wrong_add(&wrong, &trained, false, evaluation.scores, &err);   // for each model
 *     if (status == LS_OK)
 *         status = ls_wrong_write(&wrong, "wrong.csv", &err);
 *     ls_wrong_free(&wrong);          // after a failure too */
#ifndef MODEL_WRONG_H
#define MODEL_WRONG_H

#include "base/buffer.h"
#include "model/rows.h"

/* A wrong prediction. */
typedef struct ls_wrong_row {
    char *file;    /* path of the image; NULL: none, or not known */
    uint32_t line; /* line of the table; 0: none, or not known */
    uint32_t row;  /* number of the row in the file or the data set, from 0 */
    int target;    /* number of the target, if a row has several */
    char *label, *prediction;
    /* probability of the prediction and of the label; of a value its error, |prediction − label|,
     * and NaN */
    double size, of_label;
} ls_wrong_row;

/* The wrong predictions of one or several models of the same kind. The caller sets `host`, and
 * zeroes everything else. */
typedef struct ls_wrong {
    const ls_host *host;
    ls_wrong_row *row;
    size_t count, capacity; /* number of entries; size of the array `row` */
    uint64_t rows;          /* number of rows that were predicted */
    bool values;            /* the predictions are values, all of which are entries */
    int targets;            /* number of targets of a row; 1 for classes */
} ls_wrong;

/* Adds the wrong predictions of the test rows, or of the training rows if `train` is true.
 * `scores`: [rows][outputs] as ls_trained_evaluate stores them. Errors: LS_ENOMEM. */
int ls_wrong_add(ls_wrong *w, const ls_trained *t, bool train, const float *scores, ls_error *err);
/* Sorts the entries: the smallest `of_label` first, of values the greatest `size`; of equal ones
 * that of the lower row. */
void ls_wrong_sort(ls_wrong *w);
/* Sorts the entries and writes them to a .csv file (docs/data.md). Errors: LS_EIO, LS_ENOMEM. */
int ls_wrong_write(ls_wrong *w, const char *to, ls_error *err);
/* Frees the entries. */
void ls_wrong_free(ls_wrong *w);

/* Appends `before` and a field of a .csv file, in quotes if RFC 4180 requires them. */
void ls_put_csv_field(ls_buffer *b, const char *before, const char *text);

#endif
