/* SPDX-License-Identifier: MIT */
/* Tables and texts that fit the width of the terminal. */
#ifndef CLI_COLUMNS_H
#define CLI_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Returns the number of columns of the terminal that `stream` writes to, at least CLI_NARROW. If
 * COLUMNS is set to a number, returns that number. Returns `otherwise` if the stream is not a
 * terminal, or the terminal's width is not known. */
enum { CLI_NARROW = 40, CLI_TEXT_WIDTH = 80, CLI_WIDE = 160 };
int cli_columns(FILE *stream, int otherwise);

/* Returns the number of characters of a UTF-8 text. */
int cli_width(const char *text);

/* Prints a text, padded with spaces to `width` columns. If the text is longer, its middle is
 * replaced by an ellipsis. */
void cli_put_padded(FILE *stream, const char *text, int width, bool to_the_right);

/* Prints a text. If it is longer than `most` columns, its middle is replaced by an ellipsis. */
void cli_put_cut(FILE *stream, const char *text, int most);

/* Prints a text and a newline, in lines of at most `width` columns, which are broken at spaces.
 * `before` columns of the first line have been printed already; the other lines begin with `indent`
 * spaces.
 */
void cli_put_wrapped(FILE *stream, const char *text, int before, int indent, int width);

/* A column of a table. */
typedef struct cli_column {
    const char *heading;
    /* if the table is too wide, the columns with the highest rank are left out first; 0: never left
     * out */
    int rank;
    int least;    /* smallest width to which the texts are cut; 0: they are not cut */
    bool numbers; /* the texts are aligned to the right */
} cli_column;

/* Prints a table of texts [rows][columns] that is at most `width` characters wide, with two spaces
 * between columns. A column without any text is left out. */
void cli_print_table(FILE *stream, const cli_column *column, int columns, const char *const *texts,
                     int rows, int width);

#endif
