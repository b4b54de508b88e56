/* What a person sees of a run: on stderr, animated only on a terminal. */
#include "base/clock.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_NS 100000000u
#define BAR 16

void cli_view_init(cli_view *view, int quiet)
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

void cli_view_start(const cli_view *view, const ls_summary *s)
{
    if (view->quiet)
        return;
    const char *bold = style(view, "\033[1m"), *plain = style(view, "\033[0m");
    fprintf(stderr, "%s%s%s on %s%s%s\n", bold, s->name, plain, bold, s->devices, plain);
    fprintf(stderr, "  data        %s\n", s->data);
    if (s->synthetic)
        fprintf(stderr, "              made up by the program: results say nothing of real data\n");
    fprintf(stderr, "  model       %zu parameters, %zu bytes\n", s->parameters, s->parameter_bytes);
    fprintf(stderr, "  minibatch   %d images, %d per device, in %d shards\n", s->batch_size,
            s->batch_per_device, s->shards);
    fprintf(stderr, "  device      %s, %s, %s\n", s->device_model, s->library, s->isa);
    fprintf(stderr, "  memory      %.1f MB per device\n", (double)s->device_bytes / 1e6);
    if (s->run_dir[0])
        fprintf(stderr, "  run         %s\n", s->run_dir);
    if (s->resumed_from[0])
        fprintf(stderr, "  resumed     behind step %llu, from %s\n",
                (unsigned long long)s->resumed_steps, s->resumed_from);
}

void cli_view_clear(cli_view *view)
{
    if (view->drawn)
        fputs("\r\033[K", stderr);
    view->drawn = 0;
}

/* "1:05" or "2:03:09" */
static void format_duration(char *text, size_t size, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

static void draw_line(cli_view *view, const ls_progress *p)
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
    /* Without wrapping: a line that is wider than the terminal is cut, and stays one line. */
    fprintf(stderr,
            "\r\033[?7l  epoch %d/%d %s%s%s loss %.4f  acc %.3f  %.0f images/s  %s left\033[K"
            "\033[?7h",
            p->epoch, p->epochs, style(view, "\033[36m"), bar, style(view, "\033[0m"), p->loss,
            p->accuracy, p->images_per_s, left);
    fflush(stderr);
    view->drawn = 1;
    view->drawn_at = ls_now_ns();
}

static void print_epoch(cli_view *view, const ls_progress *p)
{
    cli_view_clear(view);
    fprintf(stderr, "  epoch %2d/%d  loss %.4f  acc %.4f  %.0f images/s", p->epoch, p->epochs,
            p->loss, p->accuracy, p->images_per_s);
    if (p->evaluated)
        fprintf(stderr, "  test %.4f  %sacc %.4f%s", p->test_loss, style(view, "\033[1m"),
                p->test_accuracy, style(view, "\033[0m"));
    fputc('\n', stderr);
}

void cli_view_progress(cli_view *view, const ls_progress *p)
{
    if (view->quiet)
        return;
    if (p->epoch_done)
        print_epoch(view, p);
    else if (view->tty && (!view->drawn || ls_now_ns() - view->drawn_at > REDRAW_NS))
        draw_line(view, p);
}

void cli_view_log(cli_view *view, ls_log_level level, const char *text)
{
    if (level == LS_LOG_DEBUG || (view->quiet && level == LS_LOG_INFO))
        return;
    cli_view_clear(view);
    fprintf(stderr, "trainer: %s%s\n",
            level == LS_LOG_WARNING ? "warning: "
            : level == LS_LOG_ERROR ? "error: "
                                    : "",
            text);
}
