/* SPDX-License-Identifier: MIT */
#include "cli/columns.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_MAX = 16, GAP = 2 };

int cli_columns(FILE *stream, int otherwise)
{
    struct winsize size = {0};
    const char *text = getenv("COLUMNS");
    long columns = text ? strtol(text, NULL, 10) : 0;
    const int fd = fileno(stream);
    if (columns <= 0 && fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    if (columns <= 0)
        return otherwise;
    return columns < CLI_NARROW ? CLI_NARROW : columns > 10000 ? 10000 : (int)columns;
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

int cli_width(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += begins_character(*text);
    return width;
}

/* Prints `count` characters of the text, from character number `from`. */
static void put_part(FILE *stream, const char *text, int from, int count)
{
    int at = -1;
    for (; *text; text++) {
        at += begins_character(*text);
        if (at >= from && at < from + count)
            fputc(*text, stream);
    }
}

void cli_put_padded(FILE *stream, const char *text, int width, bool to_the_right)
{
    const int length = cli_width(text);
    if (length > width && width > 0) {
        const int end = (width - 1) / 2;
        put_part(stream, text, 0, width - 1 - end);
        fputs("…", stream);
        put_part(stream, text, length - end, end);
        return;
    }
    const int pad = width > length ? width - length : 0;
    fprintf(stream, "%*s%s%*s", to_the_right ? pad : 0, "", text, to_the_right ? 0 : pad, "");
}

void cli_put_cut(FILE *stream, const char *text, int most)
{
    const int length = cli_width(text);
    cli_put_padded(stream, text, length < most ? length : most, false);
}

/* Returns the length in bytes of the text's first line: as many words as fit in `most` columns, but
 * at least one. */
static size_t line_length(const char *text, int most)
{
    size_t fits = strcspn(text, " ");
    for (size_t end = fits; text[end] == ' ';) {
        end += 1 + strcspn(text + end + 1, " ");
        int width = 0;
        for (size_t i = 0; i < end; i++)
            width += begins_character(text[i]);
        if (width > most)
            break;
        fits = end;
    }
    return fits;
}

void cli_put_wrapped(FILE *stream, const char *text, int before, int indent, int width)
{
    size_t n = line_length(text, width - before);
    fprintf(stream, "%.*s\n", (int)n, text);
    for (text += n; *text == ' '; text += n) {
        text++;
        n = line_length(text, width - indent);
        fprintf(stream, "%*s%.*s\n", indent, "", (int)n, text);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Returns the width that a column needs, or 0 if it has no text. */
static int full_width(const cli_column *column, const char *const *texts, int rows, int columns)
{
    int width = 0;
    for (int r = 0; r < rows; r++) {
        const int n = cli_width(texts[r * columns]);
        width = n > width ? n : width;
    }
    const int heading = cli_width(column->heading);
    return width && heading > width ? heading : width;
}

static int total(const int *width, int columns)
{
    int sum = -GAP;
    for (int c = 0; c < columns; c++)
        sum += width[c] ? width[c] + GAP : 0;
    return sum;
}

/* Returns the shown column with the highest rank; −1: all shown columns have rank 0. */
static int least_wanted(const cli_column *column, const int *width, int columns)
{
    int worst = -1;
    for (int c = 0; c < columns; c++)
        if (width[c] && column[c].rank > 0 && (worst < 0 || column[c].rank > column[worst].rank))
            worst = c;
    return worst;
}

/* Makes columns that may be cut narrower until the table fits: always the widest of them, by one
 * character. */
static void cut(const cli_column *column, int *width, int columns, int most)
{
    while (total(width, columns) > most) {
        int widest = -1;
        for (int c = 0; c < columns; c++)
            if (column[c].least && width[c] > column[c].least &&
                (widest < 0 || width[c] > width[widest]))
                widest = c;
        if (widest < 0)
            return;
        width[widest]--;
    }
}

/* Returns the width of the table if all columns that may be cut are cut. */
static int narrowest(const cli_column *column, const int *width, int columns)
{
    int sum = -GAP;
    for (int c = 0; c < columns; c++) {
        const int least = column[c].least;
        sum += width[c] ? GAP + (least && least < width[c] ? least : width[c]) : 0;
    }
    return sum;
}

static void print_row(FILE *stream, const cli_column *column, const int *width, int columns,
                      const char *const *text)
{
    int pending = 0; /* spaces before the next text, so that no line ends with any */
    for (int c = 0; c < columns; c++) {
        if (!width[c])
            continue;
        const char *shown = text ? text[c] : column[c].heading;
        const int length = cli_width(shown), padding = width[c] > length ? width[c] - length : 0;
        if (length > 0) {
            fprintf(stream, "%*s", pending + (column[c].numbers ? padding : 0), "");
            cli_put_cut(stream, shown, width[c]);
            pending = column[c].numbers ? GAP : padding + GAP;
        } else {
            pending += width[c] + GAP;
        }
    }
    fputc('\n', stream);
}

void cli_print_table(FILE *stream, const cli_column *column, int columns, const char *const *texts,
                     int rows, int width)
{
    int of[COLUMNS_MAX];
    for (int c = 0; c < columns; c++)
        of[c] = full_width(&column[c], texts + c, rows, columns);
    for (int worst; narrowest(column, of, columns) > width &&
                    (worst = least_wanted(column, of, columns)) >= 0;)
        of[worst] = 0;
    cut(column, of, columns, width);
    print_row(stream, column, of, columns, NULL);
    for (int r = 0; r < rows; r++)
        print_row(stream, column, of, columns, texts + (size_t)r * (size_t)columns);
}
