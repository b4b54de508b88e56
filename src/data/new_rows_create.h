/* SPDX-License-Identifier: MIT */
/* Internals of the reading of new rows (new_rows.h): creating a dataset, for rows from tables
 * (new_rows.c) and from arrays (new_rows_arrays.c). */
#ifndef DATA_NEW_ROWS_CREATE_H
#define DATA_NEW_ROWS_CREATE_H

#include "data/kinds.h"
#include "data/new_rows.h"

/* Creates a dataset of `rows` rows, which are at `values`. The dataset then owns this memory.
 * `values` NULL: the rows get new memory, all 0. `name`: what the rows are read from, "csv" or
 * "npy"; it is not copied. After a failure without a dataset, *out is NULL, and `values` still
 * belongs to the caller. Errors: LS_ENOMEM. */
int ls_new_rows_create(ls_resident **out, const ls_input_format *format, const char *name,
                       const char *source, uint32_t rows, void *values, ls_error *err);

#endif
