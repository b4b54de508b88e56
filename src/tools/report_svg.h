/* Charts as inline SVG: axes, curves, stacked bars. Colours are classes (c1 … c6) that the page's
 * style sheet defines for light and dark; nothing here knows what is drawn. All functions expect
 * the thread to be in the "C" locale (json/c_locale.h). */
#ifndef TOOLS_REPORT_SVG_H
#define TOOLS_REPORT_SVG_H

#include "tools/buffer.h"

#include <stddef.h>

/* One point of a curve. NaN: there is none, and the curve has a gap. */
typedef struct ls_svg_point {
    double x, y;
    double lo, hi; /* the range that y stands for; NaN: y alone */
    double from;   /* the first x that y stands for; the last is x */
} ls_svg_point;

typedef struct ls_svg_curve {
    const char *name;
    int colour;       /* 1 … 6 */
    int dots;         /* non-zero: every point is marked */
    int no_line;      /* non-zero: marks only */
    int unnamed_last; /* non-zero: the legend does not give the last value */
    const ls_svg_point *point;
    size_t count; /* in the order of x */
} ls_svg_curve;

#define LS_SVG_CURVES 4

typedef struct ls_svg_chart {
    const char *title;
    const char *x_name; /* "step": what one unit of x is */
    const char *unit;   /* of y: "images/s"; "" for a plain number */
    int digits;         /* of y where a value is written out */
    int from_zero;      /* the y axis begins at zero */
    int cut_ranges;     /* ranges do not stretch the axis beyond twice the highest y */
    double most;        /* y never needs more than this; NaN: no such bound */
    ls_svg_curve curve[LS_SVG_CURVES];
    int curves;
} ls_svg_chart;

/* A <figure> with a caption, a legend that names the last values, and the chart. Pointing at it
 * shows the values there. */
void ls_svg_chart_add(ls_buffer *b, const ls_svg_chart *chart);

typedef struct ls_svg_bars {
    const char *title;
    const char *x_name;       /* "ms per step" */
    const char *row_name;     /* "worker": the rows are numbered from 0 */
    const char *const *names; /* of the parts */
    int parts;                /* at most 6 */
    int rows;
    const double *value; /* [rows][parts], none negative */
} ls_svg_bars;

/* A <figure> with one stacked bar for each row, and a table of the same numbers. */
void ls_svg_bars_add(ls_buffer *b, const ls_svg_bars *bars);

/* The distance between ticks, 1, 2 or 5 times a power of ten, that gives at most `ticks` steps over
 * `range`; and the decimals that its multiples need. */
double ls_svg_tick_step(double range, int ticks, int *digits);

#endif
