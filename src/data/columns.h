/* Formats the columns of a table for people: `trainer init` prints them, and a run logs them. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include "data/dataset.h"

enum { LS_COLUMN_LINE = 128 };

/* Writes the heading of the lines of ls_column_line, without a newline. */
void ls_column_head(char out[LS_COLUMN_LINE]);

/* Writes a column's line: name, kind, levels, missing values, mean and deviation; "-" where there
 * is none. */
void ls_column_line(char out[LS_COLUMN_LINE], const ls_column_seen *column);

#endif
