/* What the program prints: results and failures, what a person sees of a run, its course as curves, and
 * records onto a stream of the caller's choosing. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- results and failures -------------------------------------------------------------------- */

/* Exit codes, after sysexits.h where it has one. */
enum {
    EXIT_USAGE = 64,       /* wrong arguments */
    EXIT_DATA = 65,        /* a data file is damaged */
    EXIT_NO_INPUT = 66,    /* a data file or config is missing */
    EXIT_BUG = 70,         /* a bug in Lockstep */
    EXIT_OS = 71,          /* the operating system or a device failed */
    EXIT_IO = 74,          /* reading or writing failed */
    EXIT_SAVED = 75,       /* stopped early with a checkpoint saved: --resume goes on */
    EXIT_CONFIG = 78,      /* the config is wrong */
    EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM, and nothing saved */
};

/* The exit code for a library's status. */
int cli_exit_code(int status);
/* Prints "trainer: TEXT" on stderr and returns the exit code of `status`. */
int cli_fail(int status, const char *text);
/* What was printed on stdout is only out when the flush says so: 0 or EXIT_IO. A reader that left early
 * is no error. */
int cli_flush(void);
/* Writes the file that an option names; "-" is stdout. Returns the exit code, a failure said. */
int cli_write(const char *option, const char *path, const char *text, size_t length);
/* The same of a writer's text, as a line; ends the writer. */
int cli_write_json(const char *option, const char *path, ls_json_writer *w);
/* Prints a writer's text on stdout, as a line, and ends the writer. */
void cli_put_json(ls_json_writer *w);

/* ---- the view: what a person sees of a run, on stderr ----------------------------------------- */

typedef struct cli_view {
    bool quiet;
    bool tty; /* stderr is a terminal: the progress line is redrawn in place */
    bool colour;
    const char *rows;      /* "images" or "rows"; NULL: images */
    const char *judged_by; /* "test" or "validation"; NULL: test */
    bool drawn;            /* a progress line stands on the terminal */
    uint64_t drawn_at;
} cli_view;

void cli_view_init(cli_view *view, bool quiet);
void cli_view_start(cli_view *view, const ls_summary *summary);
void cli_view_progress(cli_view *view, const ls_progress *progress);
/* Takes the progress line away, so that something else can be printed. */
void cli_view_clear(cli_view *view);
/* As ls_host.log; `user` is the view. */
void cli_view_log(void *user, ls_log_level level, const char *text);

/* ---- the course of a run in a few lines of text, printed when it is over ---------------------- */

#define CLI_CURVE_POINTS 512

typedef struct cli_curve_point {
    int epoch;
    float loss;        /* of the training rows */
    float test_metric; /* NaN: not evaluated in this epoch */
} cli_curve_point;

/* Zeroed to begin with. */
typedef struct cli_curve {
    int count;
    int stride; /* every stride-th epoch is kept, so that any number of them fits; 0: every one */
    int evaluated;
    const char *metric;    /* what the test rows are judged by */
    const char *judged_by; /* "test" or "validation"; NULL: test */
    cli_curve_point point[CLI_CURVE_POINTS];
} cli_curve;

/* Takes in what the progress callback says. */
void cli_curve_add(cli_curve *curve, const ls_progress *progress);

/* Test accuracy, or what is told in its place, and training loss side by side, in 8 lines of at most 72 columns; nothing when
 * fewer than 2 epochs were evaluated. Without `utf8` in ASCII. */
void cli_curve_print(const cli_curve *curve, FILE *stream, bool utf8);

/* Whether the terminal shows UTF-8, by what the environment says. */
bool cli_curve_utf8(void);

/* ---- records onto a stream (--metrics) --------------------------------------------------------- */

typedef struct cli_output {
    FILE *stream; /* NULL: none wanted, or the reader of a pipe has gone */
    const char *path;
} cli_output;

/* `path` NULL: none; "-": stdout. Errors: LS_EIO. */
int cli_output_open(cli_output *out, const char *path, ls_error *err);
/* One line. A reader that closed its pipe is no error: the run goes on without it. */
int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err);
int cli_output_close(cli_output *out, ls_error *err);

#endif
