/* SPDX-License-Identifier: MIT */
/* A summary of a CSV table, one line of text for each of its columns. `trainer init` prints these
 * lines, and a training run logs them. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include "data/dataset.h"

enum { LS_COLUMN_LINE = 160 };

/* Writes the heading of the summary, without a newline. */
void ls_column_head(char out[LS_COLUMN_LINE]);

/* Writes the line of one column: its name, its kind, the number of different texts in it (its
 * levels), the number of missing values, and mean and deviation of its numbers. A figure that does
 * not apply to the column is "-". After that, the names of the numbers that dates become. */
void ls_column_line(char out[LS_COLUMN_LINE], const ls_column_summary *column);

#endif
