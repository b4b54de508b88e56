/* SPDX-License-Identifier: MIT */
#include "cli/curve.h"

#include "cli/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    ROWS = 5, /* lines of text in the plot */
    ROWS_WIDE = 8,
    WIDE = 110,     /* if the terminal has at least this many columns, plots have ROWS_WIDE lines */
    CELLS_MAX = 70, /* columns of a plot */
    LABEL = 6,      /* columns for a number before the axis */
    MARGIN = 2,
    GAP = 4, /* columns between two plots side by side */
};

/* A plot of dots. A cell, one character of the terminal, has one dot in ASCII, and 2 × 4 dots in
 * braille. */
typedef struct panel {
    const char *title;
    int rows, cells;
    double lo, hi, last; /* smallest, largest and last value of the curve */
    unsigned char cell[ROWS_WIDE]
                      [CELLS_MAX]; /* braille: bits of the character U+2800 + x; ASCII: 0 or 1 */
} panel;

void cli_curve_add(cli_curve *c, const ls_progress *p)
{
    if (!p->epoch_done)
        return;
    if (c->stride == 0)
        c->stride = 1;
    if (p->evaluated)
        c->evaluated++;
    c->metric = p->metric;
    if (c->count == CLI_CURVE_POINTS) {
        for (int i = 0; i < CLI_CURVE_POINTS / 2; i++)
            c->point[i] = c->point[2 * i + 1];
        c->count /= 2;
        c->stride *= 2;
    }
    if (p->epoch % c->stride == 0 || p->epoch == p->epochs)
        c->point[c->count++] = (cli_curve_point){p->epoch, (float)p->loss,
                                                 p->evaluated ? (float)p->metric_value : NAN};
}

static double value_of(const cli_curve_point *p, bool loss)
{
    return loss ? p->loss : p->test_metric;
}

static void find_range(panel *out, const cli_curve *c, bool loss)
{
    out->lo = INFINITY;
    out->hi = -INFINITY;
    for (int i = 0; i < c->count; i++) {
        double v = value_of(&c->point[i], loss);
        if (!isfinite(v))
            continue;
        out->lo = v < out->lo ? v : out->lo;
        out->hi = v > out->hi ? v : out->hi;
        out->last = v;
    }
}

/* Sets the dot number `x` from the left and number `y` from the bottom. */
static void set_dot(panel *out, int x, int y, bool utf8)
{
    static const unsigned char bits[4][2] = {
        {0x40, 0x80}, {0x04, 0x20}, {0x02, 0x10}, {0x01, 0x08}};
    if (utf8)
        out->cell[out->rows - 1 - y / 4][x / 2] |= bits[y % 4][x % 2];
    else
        out->cell[out->rows - 1 - y][x] = 1;
}

static void connect(panel *out, int x0, int y0, int x1, int y1, bool utf8)
{
    int dx = x1 - x0, dy = y1 - y0, steps = dx > abs(dy) ? dx : abs(dy);
    for (int i = 0; i <= steps; i++)
        set_dot(out, x0 + (steps ? (2 * i * dx + steps) / (2 * steps) : 0),
                y0 + (steps ? (int)lround((double)i * dy / steps) : 0), utf8);
}

static void draw(panel *out, const cli_curve *c, bool loss, bool utf8)
{
    const int width = utf8 ? 2 * out->cells : out->cells;
    const int height = utf8 ? 4 * out->rows : out->rows;
    int x0 = -1, y0 = 0, first = c->point[0].epoch, last = c->point[c->count - 1].epoch;
    find_range(out, c, loss);
    for (int i = 0; i < c->count; i++) {
        double v = value_of(&c->point[i], loss);
        if (!isfinite(v))
            continue;
        double share = out->hi > out->lo ? (v - out->lo) / (out->hi - out->lo) : 0.5;
        int x = (int)((double)(c->point[i].epoch - first) / (last - first) * (width - 1) + 0.5);
        int y = (int)(share * (height - 1) + 0.5);
        connect(out, x0 < 0 ? x : x0, x0 < 0 ? y : y0, x, y, utf8);
        x0 = x;
        y0 = y;
    }
}

/* Prints a number with as many digits as fit in five columns: "0.832". */
static void print_number(FILE *stream, double v)
{
    int digits = -1;
    if (fabs(v) < 9.9995)
        digits = 3;
    else if (fabs(v) < 999.5)
        digits = 1;
    if (v < 0 && digits > 0)
        digits--; /* the sign takes a column */
    if (digits >= 0)
        fprintf(stream, "%*.*f", LABEL - 1, digits, v);
    else
        fprintf(stream, "%*.0e", LABEL - 1, v);
}

static void print_cells(FILE *stream, const panel *p, int row, bool utf8)
{
    const bool flat = !(p->hi > p->lo);
    const bool labelled = flat ? row == (p->rows - 1) / 2 : row == 0 || row == p->rows - 1;
    if (labelled)
        print_number(stream, row == 0 ? p->hi : p->lo);
    else
        fprintf(stream, "%*s", LABEL - 1, "");
    if (utf8)
        fputs(labelled ? " ┤" : " │", stream);
    else
        fputs(" |", stream);
    for (int i = 0; i < p->cells; i++) {
        unsigned char bits = p->cell[row][i];
        if (!utf8)
            fputc(bits ? '*' : ' ', stream);
        else if (bits)
            fprintf(stream, "\xE2%c%c", 0xA0 + (bits >> 6), 0x80 + (bits & 0x3F));
        else
            fputc(' ', stream);
    }
}

static void print_base(FILE *stream, const panel *p, bool utf8)
{
    fprintf(stream, "%*s%s", LABEL, "", utf8 ? "└" : "+");
    for (int i = 0; i < p->cells; i++)
        fputs(utf8 ? "─" : "-", stream);
}

static void print_epochs(FILE *stream, const panel *p, const cli_curve *c)
{
    char ends[2][16];
    snprintf(ends[0], sizeof ends[0], "%d", c->point[0].epoch);
    snprintf(ends[1], sizeof ends[1], "%d", c->point[c->count - 1].epoch);
    int middle = p->cells - (int)strlen(ends[0]) - (int)strlen(ends[1]);
    int before = (middle - 5) / 2;
    fprintf(stream, "%*s%s%*s%s%*s%s", LABEL + 1, "", ends[0], before, "", "epoch",
            middle - 5 - before, "", ends[1]);
}

static void print_title(FILE *stream, const panel *p)
{
    char text[128];
    const int width = LABEL + 1 + p->cells, digits = fabs(p->last) < 1000 ? 4 : 0;
    const int n =
        snprintf(text, sizeof text, "%*s %s, last %.*f", LABEL, "", p->title, digits, p->last);
    if (n > width)
        snprintf(text, sizeof text, "%*s %s %.*f", LABEL, "", p->title, digits, p->last);
    fprintf(stream, "%-*s", width, text);
}

static void print_line(FILE *stream, const panel *p, int line, const cli_curve *c, bool utf8)
{
    if (line == 0)
        print_title(stream, p);
    else if (line <= p->rows)
        print_cells(stream, p, line - 1, utf8);
    else if (line == p->rows + 1)
        print_base(stream, p, utf8);
    else
        print_epochs(stream, p, c);
}

/* Prints `count` plots beside each other. */
static void print_plots(FILE *stream, const panel *p, int count, const cli_curve *c, bool utf8)
{
    for (int line = 0; line < p->rows + 3; line++) {
        for (int i = 0; i < count; i++) {
            fprintf(stream, "%*s", i ? GAP : MARGIN, "");
            print_line(stream, &p[i], line, c, utf8);
        }
        fputc('\n', stream);
    }
}

void cli_curve_print(const cli_curve *c, FILE *stream, bool utf8, int width)
{
    if (c->evaluated < 2 || c->count < 2)
        return;
    char test[32];
    const bool beside = width >= CLI_CURVE_BESIDE;
    int cells = beside ? (width - MARGIN - GAP) / 2 - LABEL - 1 : width - MARGIN - LABEL - 1;
    cells = cells > CELLS_MAX ? CELLS_MAX : cells;
    const int rows = width >= WIDE ? ROWS_WIDE : ROWS;
    snprintf(test, sizeof test, "%s %s", c->judged_by, c->metric);
    panel side[2] = {{.title = test, .rows = rows, .cells = cells},
                     {.title = "training loss", .rows = rows, .cells = cells}};
    for (int i = 0; i < 2; i++)
        draw(&side[i], c, i == 1, utf8);
    if (!isfinite(side[0].lo) || !isfinite(side[1].lo))
        return;
    print_plots(stream, side, beside ? 2 : 1, c, utf8);
    if (!beside)
        print_plots(stream, &side[1], 1, c, utf8);
}

bool cli_curve_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *term = getenv("TERM"), *locale = NULL;
    for (int i = 0; i < 3 && !(locale && *locale); i++)
        locale = getenv(names[i]);
    if (!locale || (term && strcmp(term, "dumb") == 0))
        return false;
    const char *charset = strchr(locale, '.');
    return charset &&
           (strncasecmp(charset, ".utf-8", 6) == 0 || strncasecmp(charset, ".utf8", 5) == 0);
}
