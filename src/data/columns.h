/* The columns of a table as people are shown them: `trainer init` prints them, a run logs them. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include "data/dataset.h"

enum { LS_COLUMN_LINE = 128 };

/* The first line, with what stands beneath; no newline behind it. */
void ls_column_head(char out[LS_COLUMN_LINE]);

/* The line of a column: name, kind, levels, missing values, mean and deviation; "-" for what it has not. */
void ls_column_line(char out[LS_COLUMN_LINE], const ls_column_seen *column);

#endif
