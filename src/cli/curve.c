#include "cli/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    ROWS = 5, /* of text, in the plot */
    CELLS = 26,
    LABEL = 6, /* columns for a number in front of the axis */
    PANEL = LABEL + 1 + CELLS
};

/* Dots that are set; one for each cell in ASCII, 2 × 4 for each in braille. */
typedef struct panel {
    const char *title;
    double lo, hi, last;
    int first_epoch, last_epoch;
    unsigned char cell[ROWS][CELLS]; /* braille: the bits of U+2800 + x; ASCII: zero or not */
} panel;

void cli_curve_add(cli_curve *c, const ls_progress *p)
{
    if (!p->epoch_done)
        return;
    if (c->stride == 0)
        c->stride = 1;
    c->evaluated += p->evaluated != 0;
    if (c->count == CLI_CURVE_POINTS) {
        for (int i = 0; i < CLI_CURVE_POINTS / 2; i++)
            c->point[i] = c->point[2 * i + 1];
        c->count /= 2;
        c->stride *= 2;
    }
    if (p->epoch % c->stride == 0 || p->epoch == p->epochs)
        c->point[c->count++] = (cli_curve_point){p->epoch, (float)p->loss,
                                                 p->evaluated ? (float)p->test_accuracy : NAN};
}

static double value_of(const cli_curve_point *p, int loss)
{
    return loss ? p->loss : p->test_accuracy;
}

static void find_range(panel *out, const cli_curve *c, int loss)
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

/* `x` and `y` in dots from the left and the bottom. */
static void set_dot(panel *out, int x, int y, int utf8)
{
    static const unsigned char bits[4][2] = {
        {0x40, 0x80}, {0x04, 0x20}, {0x02, 0x10}, {0x01, 0x08}};
    if (utf8)
        out->cell[ROWS - 1 - y / 4][x / 2] |= bits[y % 4][x % 2];
    else
        out->cell[ROWS - 1 - y][x] = 1;
}

static void draw_line(panel *out, int x0, int y0, int x1, int y1, int utf8)
{
    int dx = x1 - x0, dy = y1 - y0, steps = dx > abs(dy) ? dx : abs(dy);
    for (int i = 0; i <= steps; i++)
        set_dot(out, x0 + (steps ? (2 * i * dx + steps) / (2 * steps) : 0),
                y0 + (steps ? (int)lround((double)i * dy / steps) : 0), utf8);
}

static void draw(panel *out, const cli_curve *c, int loss, int utf8)
{
    int width = utf8 ? 2 * CELLS : CELLS, height = utf8 ? 4 * ROWS : ROWS;
    int x0 = -1, y0 = 0, first = c->point[0].epoch, last = c->point[c->count - 1].epoch;
    out->first_epoch = first;
    out->last_epoch = last;
    find_range(out, c, loss);
    for (int i = 0; i < c->count; i++) {
        double v = value_of(&c->point[i], loss);
        if (!isfinite(v))
            continue;
        double share = out->hi > out->lo ? (v - out->lo) / (out->hi - out->lo) : 0.5;
        int x = (int)((double)(c->point[i].epoch - first) / (last - first) * (width - 1) + 0.5);
        int y = (int)(share * (height - 1) + 0.5);
        draw_line(out, x0 < 0 ? x : x0, x0 < 0 ? y : y0, x, y, utf8);
        x0 = x;
        y0 = y;
    }
}

/* ---- text ----------------------------------------------------------------------------------- */

/* "0.832", five columns for whatever is of that order. */
static void print_number(FILE *stream, double v)
{
    int digits = fabs(v) < 9.9995 ? 3 : fabs(v) < 999.5 ? 1 : -1;
    if (digits >= 0)
        fprintf(stream, "%*.*f", LABEL - 1, digits, v);
    else
        fprintf(stream, "%*.0e", LABEL - 1, v);
}

static void print_row(FILE *stream, const panel *p, int row, int utf8)
{
    int flat = !(p->hi > p->lo);
    int labelled = flat ? row == ROWS / 2 : row == 0 || row == ROWS - 1;
    if (labelled)
        print_number(stream, row == 0 ? p->hi : p->lo);
    else
        fprintf(stream, "%*s", LABEL - 1, "");
    fputs(!utf8 ? " |" : labelled ? " ┤" : " │", stream);
    for (int i = 0; i < CELLS; i++) {
        unsigned char bits = p->cell[row][i];
        if (!utf8)
            fputc(bits ? '*' : ' ', stream);
        else if (bits)
            fprintf(stream, "\xE2%c%c", 0xA0 + (bits >> 6), 0x80 + (bits & 0x3F));
        else
            fputc(' ', stream);
    }
}

static void print_base(FILE *stream, int utf8)
{
    fprintf(stream, "%*s%s", LABEL, "", utf8 ? "└" : "+");
    for (int i = 0; i < CELLS; i++)
        fputs(utf8 ? "─" : "-", stream);
}

static void print_epochs(FILE *stream, const panel *p)
{
    char ends[2][16];
    snprintf(ends[0], sizeof ends[0], "%d", p->first_epoch);
    snprintf(ends[1], sizeof ends[1], "%d", p->last_epoch);
    int middle = CELLS - (int)strlen(ends[0]) - (int)strlen(ends[1]);
    int before = (middle - 5) / 2;
    fprintf(stream, "%*s%s%*s%s%*s%s", LABEL + 1, "", ends[0], before, "", "epoch",
            middle - 5 - before, "", ends[1]);
}

static void print_title(FILE *stream, const panel *p)
{
    char text[PANEL + 1];
    snprintf(text, sizeof text, "%*s %s, last %.*f", LABEL, "", p->title,
             fabs(p->last) < 1000 ? 4 : 0, p->last);
    fprintf(stream, "%-*s", PANEL, text);
}

void cli_curve_print(const cli_curve *c, FILE *stream, int utf8)
{
    if (c->evaluated < 2 || c->count < 2)
        return;
    panel side[2] = {{.title = "test accuracy"}, {.title = "training loss"}};
    for (int i = 0; i < 2; i++)
        draw(&side[i], c, i, utf8);
    if (!isfinite(side[0].lo) || !isfinite(side[1].lo))
        return;
    for (int line = 0; line < ROWS + 3; line++) {
        for (int i = 0; i < 2; i++) {
            fprintf(stream, "%*s", i ? 4 : 2, "");
            if (line == 0)
                print_title(stream, &side[i]);
            else if (line <= ROWS)
                print_row(stream, &side[i], line - 1, utf8);
            else if (line == ROWS + 1)
                print_base(stream, utf8);
            else
                print_epochs(stream, &side[i]);
        }
        fputc('\n', stream);
    }
}

int cli_curve_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *term = getenv("TERM"), *locale = NULL;
    for (int i = 0; i < 3 && !(locale && *locale); i++)
        locale = getenv(names[i]);
    if (!locale || (term && strcmp(term, "dumb") == 0))
        return 0;
    const char *charset = strchr(locale, '.');
    return charset &&
           (strncasecmp(charset, ".utf-8", 6) == 0 || strncasecmp(charset, ".utf8", 5) == 0);
}
