#include "cli/output.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/plural.h"
#include "store/durable.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- results and failures -------------------------------------------------------------------- */

int cli_exit_code(int status)
{
    switch (status) {
    case LS_OK: return 0;
    case LS_EDATA: return EXIT_DATA;
    case LS_ENOENT: return EXIT_NO_INPUT;
    case LS_EIO: return EXIT_IO;
    case LS_ECONFIG: return EXIT_CONFIG;
    case LS_EINVAL: return EXIT_USAGE; /* for example a --set without '=' */
    case LS_ENOMEM:
    case LS_EDEVICE:
    case LS_EUNSUPPORTED:
    case LS_ESYSTEM:
    case LS_EABORTED:
    case LS_ETIMEDOUT:
    case LS_EDIVERGED:
    case LS_EAGAIN: /* another process trains in that directory */
    case LS_ESTALLED: return EXIT_OS;
    case LS_ENONFINITE: return EXIT_DATA;
    case LS_EINTERRUPTED: return EXIT_INTERRUPTED;
    default: return EXIT_BUG;
    }
}

int cli_fail(int status, const char *text)
{
    fprintf(stderr, "trainer: %s\n", text);
    return cli_exit_code(status);
}

int cli_flush(void)
{
    if (fflush(stdout) == 0 || errno == EPIPE)
        return 0;
    fprintf(stderr, "trainer: standard output: cannot write: %s\n", strerror(errno));
    return EXIT_IO;
}

int cli_write(const char *option, const char *path, const char *text, size_t length)
{
    ls_error err;
    char why[LS_ERROR_TEXT];
    const bool to_stdout = strcmp(path, "-") == 0;
    int status = to_stdout ? fputs(text, stdout) == EOF || fflush(stdout) != 0
                           : ls_write_file(path, text, length, NULL, &err);
    if (!status || (to_stdout && errno == EPIPE))
        return 0;
    snprintf(why, sizeof why, "%s %.400s", option, to_stdout ? "-: cannot write" : err.text);
    return cli_fail(LS_EIO, why);
}

int cli_write_json(const char *option, const char *path, ls_json_writer *w)
{
    size_t length;
    ls_error err;
    ls_buffer_put(&w->out, "\n");
    const char *text = ls_json_writer_text(w, &length, &err);
    const int code = text ? cli_write(option, path, text, length) : cli_fail(LS_ENOMEM, err.text);
    ls_json_writer_fini(w);
    return code;
}

void cli_put_json(ls_json_writer *w)
{
    const char *text = ls_json_writer_text(w, NULL, NULL);
    if (text)
        puts(text);
    ls_json_writer_fini(w);
}

/* ---- the view: animated only on a terminal --------------------------------------------------- */

#define REDRAW_NS 100000000u
#define BAR 16

void cli_view_init(cli_view *view, bool quiet)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    memset(view, 0, sizeof *view);
    view->quiet = quiet;
    view->tty = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    view->colour = view->tty && !(no_colour && no_colour[0]);
}

static const char *style(const cli_view *view, const char *code)
{
    return view->colour ? code : "";
}

void cli_view_start(cli_view *view, const ls_summary *s)
{
    view->rows = s->images ? "images" : "rows";
    const char *row = s->images ? "image" : "row";
    view->judged_by = s->judged_by;
    if (view->quiet)
        return;
    const char *bold = style(view, "\033[1m"), *plain = style(view, "\033[0m");
    fprintf(stderr, "%s%s%s on %s%s%s\n", bold, s->name, plain, bold, s->devices, plain);
    fprintf(stderr, "  data        %s\n", s->data);
    if (s->synthetic)
        fprintf(stderr, "              made up by the program: results say nothing of real data\n");
    fprintf(stderr, "  model       %zu parameters, %zu bytes\n", s->parameters, s->parameter_bytes);
    fprintf(stderr, "  minibatch   %d %s, %d per device, in %d %s\n", s->batch_size,
            s->batch_size == 1 ? row : view->rows, s->batch_per_device, s->shards,
            ls_plural((uint64_t)s->shards, "shard", "shards"));
    fprintf(stderr, "  device      %s, %s%s%s\n", s->device_model, s->library,
            s->isa[0] ? ", " : "", s->isa);
    fprintf(stderr, "  memory      %.1f MB per device\n", (double)s->device_bytes / 1e6);
    if (s->run_dir[0])
        fprintf(stderr, "  run         %s\n", s->run_dir);
    if (s->resumed_from[0])
        fprintf(stderr, "  resumed     after step %llu, from %s\n",
                (unsigned long long)s->resumed_steps, s->resumed_from);
}

void cli_view_clear(cli_view *view)
{
    if (view->drawn)
        fputs("\r\033[K", stderr);
    view->drawn = false;
}

/* Writes a duration such as "1:05" or "2:03:09". */
static void format_duration(char *text, size_t size, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

static void draw_progress(cli_view *view, const ls_progress *p)
{
    char left[32], bar[BAR * 3 + 1];
    size_t used = 0;
    int full = (int)((uint64_t)BAR * p->step / p->steps);
    for (int i = 0; i < BAR; i++) {
        const char *cell = i < full ? "━" : "╌";
        memcpy(bar + used, cell, strlen(cell));
        used += strlen(cell);
    }
    bar[used] = '\0';
    format_duration(left, sizeof left, p->remaining_s);
    /* Wrapping is turned off: a line that is wider than the terminal is cut and stays one line. */
    fprintf(stderr, "\r\033[?7l  epoch %d/%d %s%s%s loss %.4f", p->epoch, p->epochs,
            style(view, "\033[36m"), bar, style(view, "\033[0m"), p->loss);
    if (!isnan(p->accuracy))
        fprintf(stderr, "  acc %.3f", p->accuracy);
    fprintf(stderr, "  %.0f %s/s  %s left\033[K\033[?7h", p->images_per_s,
            view->rows ? view->rows : "images", left);
    fflush(stderr);
    view->drawn = true;
    view->drawn_at = ls_now_ns();
}

/* Returns the short name of a metric. */
static const char *short_name(const char *metric)
{
    return strcmp(metric, "accuracy") == 0 ? "acc" : metric;
}

static void print_epoch(cli_view *view, const ls_progress *p)
{
    cli_view_clear(view);
    fprintf(stderr, "  epoch %2d/%d  loss %.4f", p->epoch, p->epochs, p->loss);
    if (!isnan(p->accuracy))
        fprintf(stderr, "  acc %.4f", p->accuracy);
    fprintf(stderr, "  %.0f %s/s", p->images_per_s, view->rows ? view->rows : "images");
    if (p->evaluated)
        fprintf(stderr, "  %s %.4f", view->judged_by ? view->judged_by : "test", p->test_loss);
    if (p->evaluated && strcmp(p->metric, "loss") != 0)
        fprintf(stderr, "  %s%s %.4f%s", style(view, "\033[1m"), short_name(p->metric),
                p->test_metric, style(view, "\033[0m"));
    fputc('\n', stderr);
}

void cli_view_progress(cli_view *view, const ls_progress *p)
{
    if (view->quiet)
        return;
    if (p->epoch_done)
        print_epoch(view, p);
    else if (view->tty && (!view->drawn || ls_now_ns() - view->drawn_at > REDRAW_NS))
        draw_progress(view, p);
}

void cli_view_log(void *user, ls_log_level level, const char *text)
{
    cli_view *view = user;
    if (level == LS_LOG_DEBUG || (view->quiet && level == LS_LOG_INFO))
        return;
    cli_view_clear(view);
    const char *kind = "";
    if (level == LS_LOG_WARNING)
        kind = "warning: ";
    else if (level == LS_LOG_ERROR)
        kind = "error: ";
    if (level == LS_LOG_INFO && strncmp(text, "  ", 2) == 0) /* a line of a table */
        fprintf(stderr, "%s\n", text);
    else
        fprintf(stderr, "trainer: %s%s\n", kind, text);
}

/* ---- curves ---------------------------------------------------------------------------------- */

enum {
    ROWS = 5, /* lines of text in the plot */
    CELLS = 26,
    LABEL = 6, /* columns for a number before the axis */
    PANEL = LABEL + 1 + CELLS
};

/* A plot of dots: one for each cell in ASCII, 2 × 4 for each cell in braille. */
typedef struct panel {
    const char *title;
    double lo, hi, last;
    unsigned char cell[ROWS][CELLS]; /* braille: bits of the character U+2800 + x; ASCII: 0 or 1 */
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
        c->point[c->count++] =
            (cli_curve_point){p->epoch, (float)p->loss, p->evaluated ? (float)p->test_metric : NAN};
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

/* Sets a dot. `x` and `y` count dots from the left and from the bottom. */
static void set_dot(panel *out, int x, int y, bool utf8)
{
    static const unsigned char bits[4][2] = {
        {0x40, 0x80}, {0x04, 0x20}, {0x02, 0x10}, {0x01, 0x08}};
    if (utf8)
        out->cell[ROWS - 1 - y / 4][x / 2] |= bits[y % 4][x % 2];
    else
        out->cell[ROWS - 1 - y][x] = 1;
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
    int width = utf8 ? 2 * CELLS : CELLS, height = utf8 ? 4 * ROWS : ROWS;
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

/* Prints a number in five columns, if its magnitude allows: "0.832". */
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
    const bool labelled = flat ? row == ROWS / 2 : row == 0 || row == ROWS - 1;
    if (labelled)
        print_number(stream, row == 0 ? p->hi : p->lo);
    else
        fprintf(stream, "%*s", LABEL - 1, "");
    if (utf8)
        fputs(labelled ? " ┤" : " │", stream);
    else
        fputs(" |", stream);
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

static void print_base(FILE *stream, bool utf8)
{
    fprintf(stream, "%*s%s", LABEL, "", utf8 ? "└" : "+");
    for (int i = 0; i < CELLS; i++)
        fputs(utf8 ? "─" : "-", stream);
}

static void print_epochs(FILE *stream, const cli_curve *c)
{
    char ends[2][16];
    snprintf(ends[0], sizeof ends[0], "%d", c->point[0].epoch);
    snprintf(ends[1], sizeof ends[1], "%d", c->point[c->count - 1].epoch);
    int middle = CELLS - (int)strlen(ends[0]) - (int)strlen(ends[1]);
    int before = (middle - 5) / 2;
    fprintf(stream, "%*s%s%*s%s%*s%s", LABEL + 1, "", ends[0], before, "", "epoch",
            middle - 5 - before, "", ends[1]);
}

static void print_title(FILE *stream, const panel *p)
{
    char text[PANEL + 1];
    const int digits = fabs(p->last) < 1000 ? 4 : 0;
    const int n =
        snprintf(text, sizeof text, "%*s %s, last %.*f", LABEL, "", p->title, digits, p->last);
    if (n > PANEL)
        snprintf(text, sizeof text, "%*s %s %.*f", LABEL, "", p->title, digits, p->last);
    fprintf(stream, "%-*s", PANEL, text);
}

void cli_curve_print(const cli_curve *c, FILE *stream, bool utf8)
{
    if (c->evaluated < 2 || c->count < 2)
        return;
    char test[32];
    snprintf(test, sizeof test, "%s %s", c->judged_by ? c->judged_by : "test", c->metric);
    panel side[2] = {{.title = test}, {.title = "training loss"}};
    for (int i = 0; i < 2; i++)
        draw(&side[i], c, i == 1, utf8);
    if (!isfinite(side[0].lo) || !isfinite(side[1].lo))
        return;
    for (int line = 0; line < ROWS + 3; line++) {
        for (int i = 0; i < 2; i++) {
            fprintf(stream, "%*s", i ? 4 : 2, "");
            if (line == 0)
                print_title(stream, &side[i]);
            else if (line <= ROWS)
                print_cells(stream, &side[i], line - 1, utf8);
            else if (line == ROWS + 1)
                print_base(stream, utf8);
            else
                print_epochs(stream, c);
        }
        fputc('\n', stream);
    }
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

/* ---- records onto a stream ------------------------------------------------------------------- */

static int fail_stream(cli_output *out, ls_error *err)
{
    int reason = errno;
    if (out->stream && out->stream != stdout)
        fclose(out->stream);
    out->stream = NULL;
    if (reason == EPIPE)
        return LS_OK;
    return ls_fail(err, LS_EIO, "--metrics %s: cannot write: %s", out->path, strerror(reason));
}

int cli_output_open(cli_output *out, const char *path, ls_error *err)
{
    out->path = path;
    out->stream = NULL;
    if (!path)
        return LS_OK;
    out->stream = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    return out->stream ? LS_OK : fail_stream(out, err);
}

int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err)
{
    if (!out->stream)
        return LS_OK;
    int failed = fwrite(text, 1, length, out->stream) != length || fputc('\n', out->stream) == EOF;
    if (!failed && out->stream == stdout)
        failed = fflush(stdout) != 0; /* a reader of the pipe follows the run */
    return failed ? fail_stream(out, err) : LS_OK;
}

/* Syncs a stream. A stream that cannot be synced, such as a pipe, is not an error. */
static bool sync_stream(FILE *stream, const char *path)
{
    if (fsync(fileno(stream)) == 0)
        return ls_sync_name(path, NULL) == LS_OK;
    return errno == EINVAL || errno == EROFS;
}

int cli_output_close(cli_output *out, ls_error *err)
{
    if (!out->stream)
        return LS_OK;
    if (fflush(out->stream) != 0)
        return fail_stream(out, err);
    FILE *stream = out->stream;
    if (stream != stdout && !sync_stream(stream, out->path))
        return fail_stream(out, err);
    out->stream = NULL;
    return stream != stdout && fclose(stream) != 0 ? fail_stream(out, err) : LS_OK;
}
