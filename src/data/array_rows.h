/* SPDX-License-Identifier: MIT */
/* Internals of data_arrays.c, which opens datasets of arrays in files: how the numbers of the
 * arrays become the rows and targets of a dataset (array_rows.c). */
#ifndef DATA_ARRAY_ROWS_H
#define DATA_ARRAY_ROWS_H

#include "data/kinds.h"
#include "data/levels.h"
#include "data/targets.h"
#include "formats/arrays.h"

/* The arrays x and y of one split. */
typedef struct ls_array_pair {
    ls_array x, y;
    const char *x_name, *y_name; /* names for messages */
} ls_array_pair;

/* State of opening a dataset of arrays. */
typedef struct ls_arrays {
    const ls_opening *o;
    char *path[4];  /* owned paths of the files with x, y, test x and test y */
    ls_tensors all; /* the safetensors file */
    bool tensors;
    ls_array_pair split[2];
    bool has_test;
    ls_target_form targets;
    ls_levels texts; /* labels that are texts; empty: they are numbers */
    /* [numbers of a row]: mean of each number over the training rows; NULL: not needed */
    double *mean;
    /* preparation of the training rows; the training split owns it when that is open */
    ls_prep *prep;
    /* the preparation by which values are scaled: that above, or that of the trained model whose
     * rows are opened; NULL: values are not scaled */
    const ls_prep *scale;
} ls_arrays;

/* Returns whether the rows in the file are [height][width][channels]. */
bool ls_array_rows_last(const ls_arrays *a, const ls_array_pair *p);

/* Computes the mean of each number of a row over the training rows, a->mean, if missing numbers are
 * replaced by these means. Errors: LS_ENOMEM. */
int ls_array_rows_means(ls_arrays *a);
/* Finds the scale of the values, a->scale: that of the trained model whose rows these are, or the
 * one for which the config asks, which is stored in a->prep. `info` describes the training rows.
 * Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_array_rows_scale(ls_arrays *a, const ls_dataset_info *info);

/* Creates the dataset of a split. If its rows are used in place, they lie in a second mapping of
 * the file, which the dataset owns. Errors: LS_EDATA, LS_EIO, LS_ENOENT, LS_ENOMEM. */
int ls_array_rows_create(const ls_arrays *a, ls_array_pair *p, const ls_dataset_info *info,
                         ls_resident **out);
/* Fills the rows and targets of a split. Of rows in a mapping only missing numbers are replaced.
 * Rows with unknown numbers are refused in training rows, and left out of tests and evaluations.
 * If targets are values, r->exact must have room for them. Errors: LS_EDATA, LS_ENOMEM. */
int ls_array_rows_fill(const ls_arrays *a, const ls_array_pair *p, ls_resident *r);

#endif
