#include "tools/report_svg.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 560,
    HEIGHT = 270,
    LEFT = 58,
    RIGHT = 16,
    TOP = 14,
    BOTTOM = 40,
    BAR = 22,
    BAR_GAP = 10
};

/* ---- axes ----------------------------------------------------------------------------------- */

typedef struct axis {
    double lo, hi, step;
    int digits;
    double start, length; /* on the drawing; y lengths are negative */
} axis;

double ls_svg_tick_step(double range, int ticks, int *digits)
{
    if (!(range > 0) || !isfinite(range))
        range = 1;
    double raw = range / ticks, power = pow(10, floor(log10(raw)));
    double step = power * (raw <= power * 1.0001   ? 1
                           : raw <= power * 2.0001 ? 2
                           : raw <= power * 5.0001 ? 5
                                                   : 10);
    int d = -(int)floor(log10(step * 1.0001));
    *digits = d > 0 ? d : 0;
    return step;
}

static double at(const axis *a, double value)
{
    return a->start + a->length * (value - a->lo) / (a->hi - a->lo);
}

/* Widens the axis to whole ticks. */
static void make_nice(axis *a, int ticks, double most)
{
    double room = fabs(a->hi) > fabs(a->lo) ? fabs(a->hi) : fabs(a->lo);
    if (a->hi - a->lo < 1e-9 * room || a->hi == a->lo) {
        a->lo -= room > 0 ? 0.1 * room : 0.5;
        a->hi += room > 0 ? 0.1 * room : 0.5;
    }
    a->step = ls_svg_tick_step(a->hi - a->lo, ticks, &a->digits);
    a->lo = floor(a->lo / a->step + 1e-6) * a->step;
    a->hi = ceil(a->hi / a->step - 1e-6) * a->step;
    if (a->hi > most)
        a->hi = most;
}

static void widen(double *lo, double *hi, double value)
{
    if (!isfinite(value))
        return;
    *lo = value < *lo ? value : *lo;
    *hi = value > *hi ? value : *hi;
}

static int find_axes(axis *x, axis *y, const ls_svg_chart *c)
{
    *x = (axis){.lo = INFINITY, .hi = -INFINITY, .start = LEFT, .length = WIDTH - LEFT - RIGHT};
    *y = (axis){.lo = INFINITY,
                .hi = -INFINITY,
                .start = HEIGHT - BOTTOM,
                .length = -(HEIGHT - TOP - BOTTOM)};
    for (int k = 0; k < c->curves; k++) {
        for (size_t i = 0; i < c->curve[k].count; i++) {
            const ls_svg_point *p = &c->curve[k].point[i];
            if (!isfinite(p->y))
                continue;
            widen(&x->lo, &x->hi, p->from);
            widen(&x->lo, &x->hi, p->x);
            widen(&y->lo, &y->hi, p->y);
        }
    }
    double bound = c->cut_ranges ? 2 * y->hi : INFINITY;
    for (int k = 0; k < c->curves; k++) {
        for (size_t i = 0; i < c->curve[k].count; i++) {
            const ls_svg_point *p = &c->curve[k].point[i];
            widen(&y->lo, &y->hi, p->lo);
            widen(&y->lo, &y->hi, p->hi > bound ? bound : p->hi);
        }
    }
    if (!isfinite(x->lo) || !isfinite(y->lo))
        return 0;
    if (c->from_zero && y->lo > 0)
        y->lo = 0;
    make_nice(y, 5, isnan(c->most) ? INFINITY : c->most);
    /* x counts things: whole ticks inside the data, which fills the width. */
    x->step = ls_svg_tick_step(x->hi - x->lo, 7, &x->digits);
    if (x->step < 1) {
        x->step = 1;
        x->digits = 0;
    }
    if (x->hi == x->lo) {
        x->lo -= 0.5;
        x->hi += 0.5;
    }
    return 1;
}

/* There is room for seven characters: from a million on, in millions. */
static void add_y_number(ls_buffer *b, const axis *y, double value)
{
    const int millions = y->hi >= 1e6;
    int digits = y->digits;
    if (millions)
        ls_svg_tick_step(5 * y->step / 1e6, 5, &digits);
    ls_buffer_number(b, millions ? value / 1e6 : value, digits);
    ls_buffer_put(b, millions ? " M" : "");
}

static void add_y_axis(ls_buffer *b, const axis *y)
{
    int ticks = (int)floor((y->hi - y->lo) / y->step + 1e-6);
    for (int i = 0; i <= ticks; i++) {
        double value = y->lo + i * y->step, py = at(y, value);
        if (fabs(value) < y->step * 1e-6)
            value = 0;
        ls_buffer_format(b, "<path class=\"%s\" d=\"M%d %.1fH%d\"/>", i ? "grid" : "axis", LEFT, py,
                         WIDTH - RIGHT);
        ls_buffer_format(b, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">",
                         LEFT - 8, py + 4);
        add_y_number(b, y, value);
        ls_buffer_put(b, "</text>");
    }
    ls_buffer_put(b, "\n");
}

static void add_x_axis(ls_buffer *b, const axis *x, const char *name, int bottom)
{
    double first = ceil(x->lo / x->step - 1e-6) * x->step;
    int ticks = (int)floor((x->hi - first) / x->step + 1e-6);
    for (int i = 0; i <= ticks; i++) {
        double value = first + i * x->step, px = at(x, value);
        ls_buffer_format(b, "<path class=\"axis\" d=\"M%.1f %dv4\"/>", px, bottom);
        ls_buffer_format(b, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">", px,
                         bottom + 17);
        ls_buffer_number(b, value, x->digits);
        ls_buffer_put(b, "</text>");
    }
    ls_buffer_format(b, "<text class=\"name\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">",
                     x->start + x->length / 2, bottom + 35);
    ls_buffer_escape(b, name);
    ls_buffer_put(b, "</text>\n");
}

/* ---- curves --------------------------------------------------------------------------------- */

static void add_line(ls_buffer *b, const ls_svg_curve *c, const axis *x, const axis *y)
{
    int open = 0;
    ls_buffer_format(b, "<path class=\"line c%d\" d=\"", c->colour);
    for (size_t i = 0; i < c->count; i++) {
        const ls_svg_point *p = &c->point[i];
        if (isfinite(p->y))
            ls_buffer_format(b, "%c%.1f %.1f", open ? 'L' : 'M', at(x, p->x), at(y, p->y));
        open = isfinite(p->y);
    }
    ls_buffer_put(b, "\"/>\n");
}

/* Between `lo` and `hi`: there along the upper edge, back along the lower one. */
static void add_band(ls_buffer *b, const ls_svg_curve *c, const axis *x, const axis *y)
{
    size_t i = 0;
    while (i < c->count) {
        while (i < c->count && !isfinite(c->point[i].lo))
            i++;
        size_t end = i;
        while (end < c->count && isfinite(c->point[end].lo))
            end++;
        if (end - i > 1) {
            ls_buffer_format(b, "<path class=\"band c%d\" d=\"", c->colour);
            for (size_t k = i; k < end; k++)
                ls_buffer_format(b, "%c%.1f %.1f", k > i ? 'L' : 'M', at(x, c->point[k].x),
                                 at(y, fmin(c->point[k].hi, y->hi)));
            for (size_t k = end; k-- > i;)
                ls_buffer_format(b, "L%.1f %.1f", at(x, c->point[k].x), at(y, c->point[k].lo));
            ls_buffer_put(b, "Z\"/>\n");
        }
        i = end;
    }
}

static void add_dots(ls_buffer *b, const ls_svg_curve *c, const axis *x, const axis *y)
{
    /* Many dots stand on each other's feet: smaller ones, or none on a line that shows it all. */
    double radius = c->count <= 40 ? 3.2 : 1.8;
    if (c->count > 150 && !c->no_line)
        return;
    for (size_t i = 0; i < c->count; i++)
        if (isfinite(c->point[i].y))
            ls_buffer_format(b, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>",
                             c->colour, at(x, c->point[i].x), at(y, c->point[i].y), radius);
    ls_buffer_put(b, "\n");
}

/* ---- what pointing at a chart shows --------------------------------------------------------- */

static void add_value(ls_buffer *b, const ls_svg_chart *c, const ls_svg_curve *curve,
                      const ls_svg_point *p)
{
    ls_buffer_put(b, "\n");
    ls_buffer_escape(b, curve->name);
    ls_buffer_put(b, ": ");
    ls_buffer_number(b, p->y, c->digits);
    if (isfinite(p->lo) && p->lo < p->hi) {
        ls_buffer_put(b, " (");
        ls_buffer_number(b, p->lo, c->digits);
        ls_buffer_put(b, " to ");
        ls_buffer_number(b, p->hi, c->digits);
        ls_buffer_put(b, ")");
    }
    if (*c->unit) {
        ls_buffer_put(b, " ");
        ls_buffer_escape(b, c->unit);
    }
}

/* An invisible strip for each point of the longest curve, with the values of all in its title. */
static void add_strips(ls_buffer *b, const ls_svg_chart *c, const axis *x)
{
    const ls_svg_curve *longest = &c->curve[0];
    size_t next[LS_SVG_CURVES] = {0};
    for (int k = 1; k < c->curves; k++)
        if (c->curve[k].count > longest->count)
            longest = &c->curve[k];
    double right = LEFT;
    for (size_t i = 0; i < longest->count; i++) {
        const ls_svg_point *p = &longest->point[i];
        int last = i + 1 == longest->count;
        double until = last ? INFINITY : (p->x + longest->point[i + 1].from) / 2, left = right;
        right = last ? WIDTH - RIGHT : at(x, until);
        ls_buffer_format(b,
                         "<rect class=\"strip\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                         "height=\"%d\"><title>",
                         left, TOP, right - left, HEIGHT - TOP - BOTTOM);
        ls_buffer_escape(b, c->x_name);
        ls_buffer_put(b, " ");
        if (p->from < p->x) {
            ls_buffer_number(b, p->from, 0);
            ls_buffer_put(b, " to ");
        }
        ls_buffer_number(b, p->x, 0);
        for (int k = 0; k < c->curves; k++)
            for (; next[k] < c->curve[k].count && c->curve[k].point[next[k]].x < until; next[k]++)
                if (isfinite(c->curve[k].point[next[k]].y))
                    add_value(b, c, &c->curve[k], &c->curve[k].point[next[k]]);
        ls_buffer_put(b, "</title></rect>\n");
    }
}

/* ---- the figure ----------------------------------------------------------------------------- */

static void add_caption(ls_buffer *b, const char *title, const char *unit)
{
    ls_buffer_put(b, "<figure><figcaption>");
    ls_buffer_escape(b, title);
    if (*unit) {
        ls_buffer_put(b, " <small>");
        ls_buffer_escape(b, unit);
        ls_buffer_put(b, "</small>");
    }
    ls_buffer_put(b, "</figcaption>\n");
}

static void add_key(ls_buffer *b, int colour, const char *shape, const char *name)
{
    ls_buffer_format(b, "<span class=\"key\"><i class=\"%s c%d\"></i>", shape, colour);
    ls_buffer_escape(b, name);
}

static void add_curve_legend(ls_buffer *b, const ls_svg_chart *c)
{
    ls_buffer_put(b, "<p class=\"legend\">");
    for (int k = 0; k < c->curves; k++) {
        const ls_svg_curve *curve = &c->curve[k];
        size_t last = curve->count;
        while (last > 0 && !isfinite(curve->point[last - 1].y))
            last--;
        if (last == 0)
            continue;
        add_key(b, curve->colour, curve->no_line ? "mark" : "stroke", curve->name);
        if (!curve->unnamed_last) {
            ls_buffer_put(b, ", last <b>");
            ls_buffer_number(b, curve->point[last - 1].y, c->digits);
            ls_buffer_put(b, "</b>");
        }
        ls_buffer_put(b, "</span>");
    }
    ls_buffer_put(b, "</p>\n");
}

void ls_svg_chart_add(ls_buffer *b, const ls_svg_chart *chart)
{
    axis x, y;
    add_caption(b, chart->title, chart->unit);
    if (!find_axes(&x, &y, chart)) {
        ls_buffer_put(b, "<p class=\"none\">No values were recorded.</p></figure>\n");
        return;
    }
    add_curve_legend(b, chart);
    ls_buffer_format(b,
                     "<div class=\"scroll\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                     "aria-label=\"",
                     WIDTH, HEIGHT);
    ls_buffer_escape(b, chart->title);
    ls_buffer_put(b, "\">\n");
    add_y_axis(b, &y);
    add_x_axis(b, &x, chart->x_name, HEIGHT - BOTTOM);
    for (int k = 0; k < chart->curves; k++)
        add_band(b, &chart->curve[k], &x, &y);
    for (int k = 0; k < chart->curves; k++) {
        if (!chart->curve[k].no_line)
            add_line(b, &chart->curve[k], &x, &y);
        if (chart->curve[k].dots)
            add_dots(b, &chart->curve[k], &x, &y);
    }
    add_strips(b, chart, &x);
    ls_buffer_put(b, "</svg></div></figure>\n");
}

/* ---- stacked bars --------------------------------------------------------------------------- */

static double row_sum(const ls_svg_bars *s, int row)
{
    double sum = 0;
    for (int p = 0; p < s->parts; p++)
        sum += s->value[row * s->parts + p];
    return sum;
}

static void add_bar(ls_buffer *b, const ls_svg_bars *s, int row, const axis *x)
{
    double y = TOP + row * (BAR + BAR_GAP), sum = 0, total = row_sum(s, row);
    ls_buffer_format(b, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">", LEFT + 14,
                     y + BAR / 2.0 + 4);
    ls_buffer_escape(b, s->row_name);
    ls_buffer_format(b, " %d</text>", row);
    for (int p = 0; p < s->parts; p++) {
        double value = s->value[row * s->parts + p], left = at(x, sum), right = at(x, sum + value);
        sum += value;
        /* A thread of background between neighbours, but not where that would hide a part. */
        double gap = right - left > 3 ? 1 : 0;
        ls_buffer_format(b,
                         "<rect class=\"part c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                         "height=\"%d\"><title>",
                         p + 1, left, y, right - left - gap, BAR);
        ls_buffer_escape(b, s->row_name);
        ls_buffer_format(b, " %d, ", row);
        ls_buffer_escape(b, s->names[p]);
        ls_buffer_format(b, ": %.3f ", value);
        ls_buffer_escape(b, s->x_name);
        ls_buffer_format(b, " (%.1f%%)</title></rect>\n", total > 0 ? 100 * value / total : 0);
    }
}

static void add_table(ls_buffer *b, const ls_svg_bars *s)
{
    ls_buffer_put(b, "<div class=\"scroll\"><table><thead><tr><th>");
    ls_buffer_escape(b, s->row_name);
    ls_buffer_put(b, "</th>");
    for (int p = 0; p < s->parts; p++) {
        ls_buffer_put(b, "<th>");
        ls_buffer_escape(b, s->names[p]);
        ls_buffer_put(b, "</th>");
    }
    ls_buffer_put(b, "<th>sum</th></tr></thead><tbody>\n");
    for (int row = 0; row < s->rows; row++) {
        ls_buffer_format(b, "<tr><th>%d</th>", row);
        for (int p = 0; p < s->parts; p++)
            ls_buffer_format(b, "<td>%.2f</td>", s->value[row * s->parts + p]);
        ls_buffer_format(b, "<td>%.2f</td></tr>\n", row_sum(s, row));
    }
    ls_buffer_put(b, "</tbody></table></div>\n");
}

void ls_svg_bars_add(ls_buffer *b, const ls_svg_bars *s)
{
    axis x = {.lo = 0, .hi = 0, .start = LEFT + 24, .length = WIDTH - RIGHT - LEFT - 24};
    int bottom = TOP + s->rows * (BAR + BAR_GAP);
    add_caption(b, s->title, "");
    for (int row = 0; row < s->rows; row++)
        widen(&x.lo, &x.hi, row_sum(s, row));
    if (!(x.hi > 0)) {
        ls_buffer_put(b, "<p class=\"none\">No values were recorded.</p></figure>\n");
        return;
    }
    x.step = ls_svg_tick_step(x.hi, 7, &x.digits);
    ls_buffer_put(b, "<p class=\"legend\">");
    for (int p = 0; p < s->parts; p++) {
        add_key(b, p + 1, "box", s->names[p]);
        ls_buffer_put(b, "</span>");
    }
    ls_buffer_format(b,
                     "</p>\n<div class=\"scroll\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                     "aria-label=\"",
                     WIDTH, bottom + BOTTOM);
    ls_buffer_escape(b, s->title);
    ls_buffer_put(b, "\">\n");
    for (int row = 0; row < s->rows; row++)
        add_bar(b, s, row, &x);
    ls_buffer_format(b, "<path class=\"axis\" d=\"M%.1f %dH%d\"/>", x.start, bottom, WIDTH - RIGHT);
    add_x_axis(b, &x, s->x_name, bottom);
    ls_buffer_put(b, "</svg></div>\n");
    add_table(b, s);
    ls_buffer_put(b, "</figure>\n");
}
