/* SPDX-License-Identifier: MIT */
/* Prints results, errors and the progress of a run (the *view*), and writes records, the JSON lines
 * about a run, to the stream of --metrics. */
#include "cli/output.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "cli/columns.h"
#include "cli/notes.h"
#include "cli/program.h"
#include "store/durable.h"
#include "train/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
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
    char limits[LS_MEMORY_LIMITS];
    if (status == LS_ENOMEM && ls_memory_limits(limits)[0])
        cli_say("%s; the memory of this process is limited (%s): raise the limit", text, limits);
    else
        cli_say("%s", text);
    return cli_exit_code(status);
}

int cli_fail_files(int status, const char *text)
{
    const int code = cli_fail(status, text);
    return status == LS_EUNSUPPORTED ? EXIT_DATA : code;
}

int cli_flush(void)
{
    return cli_put_text("");
}

int cli_put_text(const char *text)
{
    if ((fputs(text, stdout) != EOF && fflush(stdout) == 0) || errno == EPIPE)
        return 0;
    cli_say("standard output: cannot write: %s", strerror(errno));
    return EXIT_IO;
}

int cli_put_help(const char *text)
{
    ls_buffer whole;
    ls_buffer_init(&whole, NULL);
    for (const char *at; (at = strstr(text, "{}")) != NULL; text = at + 2) {
        ls_buffer_add(&whole, text, (size_t)(at - text));
        ls_buffer_put(&whole, cli_name());
    }
    ls_buffer_put(&whole, text);
    const int code = whole.failed ? cli_fail(LS_ENOMEM, "out of memory for the help text")
                                  : cli_put_text(whole.text);
    ls_buffer_fini(&whole);
    return code;
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

enum {
    FACT = 14, /* column at which the texts after labels begin */
    UNLIMITED = 1 << 20,
    BAR = 16,
    BAR_MAX = 40,
    WIDTH_SHORT = 52,    /* from this width of the terminal on, lines show the evaluation's loss */
    WIDTH_ACCURACY = 64, /* from this width on, they show the training accuracy */
    WIDTH_RATE = 80,     /* from this width on, they show the rate */
};

static bool is_terminal(FILE *stream)
{
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && !(term && strcmp(term, "dumb") == 0);
}

bool cli_has_colour(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR");
    return is_terminal(stream) && !(no_colour && no_colour[0]);
}

void cli_view_init(cli_view *view, bool quiet)
{
    memset(view, 0, sizeof *view);
    view->quiet = quiet;
    view->tty = is_terminal(stderr);
    view->colour = cli_has_colour(stderr);
}

static const char *style(const cli_view *view, const char *code)
{
    return view->colour ? code : "";
}

/* Returns the width at which lines are broken: the terminal's. Lines are not broken if stderr is
 * not a terminal. */
static int wrap_width(const cli_view *view)
{
    return view->tty ? cli_columns(stderr, CLI_TEXT_WIDTH) : UNLIMITED;
}

void cli_view_fact(const cli_view *view, const char *label, const char *format, ...)
{
    char text[LS_ERROR_TEXT + LS_PATH_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    const int width = wrap_width(view), indent = width < WIDTH_SHORT ? 4 : FACT;
    fprintf(stderr, "  %-*s", FACT - 2, label);
    cli_put_wrapped(stderr, text, FACT, indent, width);
}

void cli_view_commands(const cli_view *view, const char *label, const char *commands)
{
    int widest = 0;
    for (const char *line = commands; *line; line += strcspn(line, "\n") + 1) {
        const int length = (int)strcspn(line, "\n");
        widest = length > widest ? length : widest;
    }
    const bool beside = FACT + widest <= wrap_width(view);
    if (beside)
        fprintf(stderr, "  %-*s", FACT - 2, label);
    else
        fprintf(stderr, "  %s\n", label);
    for (const char *line = commands; *line; line += strcspn(line, "\n") + 1) {
        const int indent = !beside ? 4 : line == commands ? 0 : FACT;
        fprintf(stderr, "%*s%.*s\n", indent, "", (int)strcspn(line, "\n"), line);
    }
}

void cli_view_name_rows(cli_view *view, const ls_summary *summary)
{
    view->rows = summary->row_type == LS_ROW_U8 ? "images" : "rows";
    view->judged_by = summary->judged_by;
}

void cli_view_start(cli_view *view, const ls_summary *s, const ls_trainer *trainer)
{
    const char *row = s->row_type == LS_ROW_U8 ? "image" : "row";
    cli_view_name_rows(view, s);
    view->chance = ls_trainer_chance(trainer, &view->init_std);
    if (view->quiet)
        return;
    const char *bold = style(view, "\033[1m"), *plain = style(view, "\033[0m");
    fprintf(stderr, "%s%s%s on %s%s%s\n", bold, s->name, plain, bold, s->devices, plain);
    cli_view_fact(view, "data", "%s", s->data);
    if (s->synthetic)
        cli_view_fact(view, "", "made up by the program: results say nothing of real data");
    cli_view_fact(view, "model", "%zu parameters, %zu bytes", s->parameters, s->parameter_bytes);
    cli_print_layers(trainer, cli_columns(stderr, CLI_TEXT_WIDTH));
    cli_view_fact(view, "minibatch", "%d %s, %d per device, in %d %s", s->batch_size,
                  s->batch_size == 1 ? row : view->rows, s->batch_per_device, s->shards,
                  ls_plural((uint64_t)s->shards, "shard", "shards"));
    cli_view_fact(view, "device", "%s, %s%s%s", s->device_model, s->library, s->isa[0] ? ", " : "",
                  s->isa);
    cli_view_fact(view, "memory", "%.1f MB per device", (double)s->device_bytes / 1e6);
    if (s->run_dir[0])
        cli_view_fact(view, "run", "%s", s->run_dir);
    if (s->resumed_from[0])
        cli_view_fact(view, "resumed", "after step %llu, from %s",
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

/* Writes a bar of `cells` characters. `share`: fraction of them that is filled. */
static void put_bar(cli_view *view, int cells, double share)
{
    fputs(style(view, "\033[36m"), stderr);
    for (int i = 0; i < cells; i++)
        fputs(i < (int)(share * cells) ? "━" : "╌", stderr);
    fputs(style(view, "\033[0m"), stderr);
}

/* Prints a loss; a dash if it is not known, because all steps of the epoch were skipped. */
static void print_loss(const char *before, double loss)
{
    if (isnan(loss))
        fprintf(stderr, "%s -", before);
    else
        fprintf(stderr, "%s %.4f", before, loss);
}

/* Draws the progress line, which adapts to the width of the terminal: if that is small, the rate
 * and then the accuracy are left out, and the bar is shorter. */
static void draw_progress(cli_view *view, const ls_progress *p)
{
    char left[32];
    const int width = cli_columns(stderr, CLI_TEXT_WIDTH);
    const bool wide = width >= WIDTH_RATE, narrow = width < WIDTH_SHORT;
    int bar = wide ? BAR + (width - WIDTH_RATE) / 2 : narrow ? width - 32 : width - 49;
    bar = bar > BAR_MAX ? BAR_MAX : bar < 4 ? 4 : bar;
    bar = !wide && bar > BAR ? BAR : bar;
    format_duration(left, sizeof left, p->remaining_s);
    /* Turns off the terminal's wrapping, so that a line that is too wide is cut instead of becoming
     * two lines. */
    fprintf(stderr, "\r\033[?7l  %s%d/%d ", narrow ? "" : "epoch ", p->epoch, p->epochs);
    put_bar(view, bar, (double)p->step / p->steps);
    print_loss(" loss", p->loss);
    if (!isnan(p->accuracy) && !narrow)
        fprintf(stderr, "  acc %.3f", p->accuracy);
    if (wide)
        fprintf(stderr, "  %.0f %s/s", p->rows_per_s, view->rows);
    fprintf(stderr, "  %s left\033[K\033[?7h", left);
    fflush(stderr);
    view->drawn = true;
    view->drawn_at = ls_now_ns();
}

/* Returns the short name of a metric. */
static const char *short_name(const char *metric)
{
    return strcmp(metric, "accuracy") == 0 ? "acc" : metric;
}

/* If the accuracy after the first epoch is still that of guessing, prints that this is normal with
 * small initial weights. */
static void explain_chance(const cli_view *view, const ls_progress *p)
{
    char text[240];
    if (p->epoch != 1 || !p->evaluated || view->chance <= 0 || p->epochs == 1 ||
        strcmp(p->metric, "accuracy") != 0 || p->metric_value > 1.1 * view->chance + 0.01)
        return;
    snprintf(
        text, sizeof text,
        "%.4f is chance. The book's init (normal, std %g) begins like this and learns in later "
        "epochs; --set init=kaiming begins faster.",
        p->metric_value, view->init_std);
    fputs("  ", stderr);
    cli_put_wrapped(stderr, text, 2, 2, cli_columns(stderr, CLI_TEXT_WIDTH));
}

static void print_epoch(cli_view *view, const ls_progress *p)
{
    const int width = view->tty ? cli_columns(stderr, CLI_TEXT_WIDTH) : CLI_WIDE;
    const bool narrow = width < WIDTH_SHORT, metric = strcmp(p->metric, "loss") != 0;
    const char *judged = view->judged_by;
    cli_view_clear(view);
    fprintf(stderr, narrow ? "  %d/%d" : "  epoch %2d/%d", p->epoch, p->epochs);
    print_loss("  loss", p->loss);
    if (!isnan(p->accuracy) && width >= WIDTH_ACCURACY)
        fprintf(stderr, "  acc %.4f", p->accuracy);
    if (width >= WIDTH_RATE)
        fprintf(stderr, "  %.0f %s/s", p->rows_per_s, view->rows);
    if (p->evaluated && (!narrow || !metric))
        fprintf(stderr, "  %s %.4f", judged, p->test_loss);
    if (p->evaluated && metric)
        fprintf(stderr, "  %s%s%s%s %.4f%s", style(view, "\033[1m"), narrow ? judged : "",
                narrow ? " " : "", short_name(p->metric), p->metric_value, style(view, "\033[0m"));
    fputc('\n', stderr);
    explain_chance(view, p);
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
    const bool table = level == LS_LOG_INFO && strncmp(text, "  ", 2) == 0;
    if (table ? view->no_tables : view->said && cli_was_said(view->said, text))
        return;
    cli_view_clear(view);
    const char *kind = "";
    if (level == LS_LOG_WARNING)
        kind = "warning: ";
    else if (level == LS_LOG_ERROR)
        kind = "error: ";
    if (table) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    const int before = fprintf(stderr, "%s: %s", cli_name(), kind);
    cli_put_wrapped(stderr, text, before, 2, wrap_width(view));
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
    if (!out->stream)
        return fail_stream(out, err);
    /* Another program may cut the file, as logrotate does with copytruncate. Each write then
     * appends to what is left, and leaves no gap. */
    if (out->stream != stdout)
        (void)fcntl(fileno(out->stream), F_SETFL, O_WRONLY | O_APPEND);
    return LS_OK;
}

int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err)
{
    if (!out->stream)
        return LS_OK;
    int failed = fwrite(text, 1, length, out->stream) != length || fputc('\n', out->stream) == EOF;
    if (!failed && out->stream == stdout)
        /* flushed, so that a reader of the pipe gets each line at once */
        failed = fflush(stdout) != 0;
    return failed ? fail_stream(out, err) : LS_OK;
}

/* Syncs a stream. Returns true as well for a stream that cannot be synced, such as a pipe. */
static bool sync_stream(FILE *stream, const char *path)
{
    if (fsync(fileno(stream)) == 0)
        return ls_sync_parent(path, NULL) == LS_OK;
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
