/* Output of the program: results and failures, a run's progress for people, and records on a
 * stream. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- results and failures -------------------------------------------------------------------- */

/* Exit codes, from sysexits.h where it has one. */
enum {
    EXIT_USAGE = 64,       /* wrong arguments */
    EXIT_DATA = 65,        /* a data file is damaged */
    EXIT_NO_INPUT = 66,    /* a data file or config is missing */
    EXIT_BUG = 70,         /* a bug in Lockstep */
    EXIT_OS = 71,          /* failure of the operating system or a device */
    EXIT_IO = 74,          /* failure of reading or writing */
    EXIT_SAVED = 75,       /* stopped early, with a checkpoint saved; --resume continues */
    EXIT_CONFIG = 78,      /* the config is wrong */
    EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM, and nothing was saved */
};

/* Returns the exit code for a status of the library. */
int cli_exit_code(int status);
/* Prints "trainer: TEXT" on stderr and returns the exit code for `status`. */
int cli_fail(int status, const char *text);
/* Flushes stdout, because output is complete only then. Returns 0, or EXIT_IO after a message. A
 * reader that closed its pipe is not an error. */
int cli_flush(void);
/* Writes the file that `option` names; "-" is stdout. Returns the exit code, after a message if it
 * fails. */
int cli_write(const char *option, const char *path, const char *text, size_t length);
/* Like cli_write, for a writer's text and a newline. Destroys the writer. */
int cli_write_json(const char *option, const char *path, ls_json_writer *w);
/* Prints a writer's text and a newline on stdout. Destroys the writer. */
void cli_put_json(ls_json_writer *w);

/* ---- the view: a run's progress for people, on stderr ---------------------------------------- */

typedef struct cli_view {
    bool quiet;
    bool tty; /* stderr is a terminal: the progress line is redrawn in place */
    bool colour;
    const char *rows;      /* "images" or "rows"; NULL: "images" */
    const char *judged_by; /* the split that is evaluated: "test" or "validation"; NULL: "test" */
    double chance;         /* accuracy of random answers; 0: the init does not begin there */
    double init_std;       /* standard deviation of the initial weights */
    bool drawn;            /* a progress line is on the terminal */
    uint64_t drawn_at;
} cli_view;

/* Initialises the view according to stderr and the environment (TERM, NO_COLOR). `quiet`: only
 * warnings and errors are printed. */
void cli_view_init(cli_view *view, bool quiet);
/* Prints the description of a run and its model at the start. */
void cli_view_start(cli_view *view, const ls_summary *summary, const ls_trainer *trainer);
/* Prints a line with a label and a formatted text. On a terminal the text is broken at its width.
 */
void cli_view_fact(const cli_view *view, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints a line at the end of an epoch; on a terminal, redraws the progress line in between. */
void cli_view_progress(cli_view *view, const ls_progress *progress);
/* Removes the progress line, so that something else can be printed. */
void cli_view_clear(cli_view *view);
/* A function for ls_host.log; `user` is the view. */
void cli_view_log(void *user, ls_log_level level, const char *text);

/* ---- records onto a stream (--metrics) ------------------------------------------------------- */

typedef struct cli_output {
    FILE *stream; /* NULL: no records are wanted, or the reader of a pipe has closed it */
    const char *path;
} cli_output;

/* Opens `path`. NULL: no records; "-": stdout. Errors: LS_EIO. */
int cli_output_open(cli_output *out, const char *path, ls_error *err);
/* Writes one line. A reader that closed its pipe is not an error: later lines are discarded.
 * Errors: LS_EIO. */
int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err);
/* Flushes, syncs and closes the stream; stdout stays open. Errors: LS_EIO. */
int cli_output_close(cli_output *out, ls_error *err);

#endif
