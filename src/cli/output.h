/* SPDX-License-Identifier: MIT */
/* Output of the program: results and errors, the progress of a run on stderr, and records on a
 * stream (--metrics). */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/said.h"
#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- results and failures -------------------------------------------------------------------- */

/* Exit codes. Those from 64 to 78 have the values of sysexits.h. */
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
/* Prints "NAME: TEXT", with the name of the program, on stderr and returns the exit code for
 * `status`. If memory ran out, the limits of the process's memory are named too. */
int cli_fail(int status, const char *text);
/* Does the same for a command that reads a model or data of the user: what the library cannot do
 * with them (LS_EUNSUPPORTED) is a fault of these files, EXIT_DATA, and not of a device. */
int cli_fail_files(int status, const char *text);
/* Flushes stdout, because a failed write, for example to a full disk, can be reported only by the
 * flush. Returns 0, or EXIT_IO after a message. It is no error if stdout is a pipe whose reader has
 * closed it. */
int cli_flush(void);
/* Prints a text on stdout and flushes it. Returns what cli_flush returns. If the text is longer
 * than stdout's buffer, a failure is reported here only: a later flush has nothing left to write.
 */
int cli_put_text(const char *text);
/* Prints a help text on stdout, with the program's name in place of each "{}". Returns what
 * cli_put_text returns. */
int cli_put_help(const char *text);
/* Writes a text to the file `path`; "-" is stdout. `option`: the option that names the file, for
 * messages. Returns the exit code, after a message if writing failed. */
int cli_write(const char *option, const char *path, const char *text, size_t length);
/* Writes the text of `w` and a newline, like cli_write, and destroys `w`. */
int cli_write_json(const char *option, const char *path, ls_json_writer *w);
/* Prints the text of `w` and a newline on stdout, and destroys `w`. */
void cli_put_json(ls_json_writer *w);

/* ---- the view: a run's progress for people, on stderr ---------------------------------------- */

/* State of the view. */
typedef struct cli_view {
    bool quiet;
    bool no_tables; /* tables in log messages are not printed */
    cli_said *said; /* messages that are not printed again; NULL: all are printed */
    bool tty;       /* stderr is a terminal: the progress line is redrawn in place */
    bool colour;
    const char *rows;      /* "images" or "rows" */
    const char *judged_by; /* name of the rows that are evaluated: "test" or "validation" */
    /* accuracy of random guesses, which a network with small initial weights has at first; 0: the
     * initial weights are not small */
    double chance;
    double init_std;   /* standard deviation of the initial weights */
    bool drawn;        /* the terminal shows a progress line */
    uint64_t drawn_at; /* time at which the line was drawn, in ns of ls_now_ns */
} cli_view;

/* Initialises the view. Colours and redrawing depend on whether stderr is a terminal, and on the
 * environment (TERM, NO_COLOR). `quiet`: only warnings and errors are printed. */
void cli_view_init(cli_view *view, bool quiet);
/* Returns whether text on the stream may be coloured: it is a terminal, and NO_COLOR is not set. */
bool cli_has_colour(FILE *stream);
/* Takes the names of a run's rows. Call it before the run starts. */
void cli_view_name_rows(cli_view *view, const ls_summary *summary);
/* Prints the description of a run and its model at the start. Calls cli_view_name_rows. */
void cli_view_start(cli_view *view, const ls_summary *summary, const ls_trainer *trainer);
/* Prints a line with a label and a formatted text. On a terminal, the text is broken into lines of
 * the terminal's width.
 */
void cli_view_fact(const cli_view *view, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints a label and commands, each of which is a line of `commands` that ends with a newline. No
 * command is broken into several lines, so that it can be copied. If a command is too wide beside
 * the label, all commands begin below it. */
void cli_view_commands(const cli_view *view, const char *label, const char *commands);
/* The progress callback of a run. Prints a line at the end of an epoch. On a terminal, it also
 * redraws the progress line during an epoch. */
void cli_view_progress(cli_view *view, const ls_progress *progress);
/* Removes the progress line, so that something else can be printed. */
void cli_view_clear(cli_view *view);
/* A function for ls_host.log; `user` is the view. */
void cli_view_log(void *user, ls_log_level level, const char *text);

/* ---- records onto a stream (--metrics) ------------------------------------------------------- */

/* The stream of --metrics. */
typedef struct cli_output {
    /* NULL: --metrics is not given, or the stream is a pipe whose reader has closed it */
    FILE *stream;
    const char *path;
} cli_output;

/* Opens the file `path` for the records. NULL: no records are written; "-": stdout. Errors:
 * LS_EIO. */
int cli_output_open(cli_output *out, const char *path, ls_error *err);
/* Writes one line. If the stream is a pipe whose reader has closed it, this line and all later
 * lines are discarded, and the function returns LS_OK. Errors: LS_EIO. */
int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err);
/* Flushes, syncs and closes the stream; stdout stays open. Errors: LS_EIO. */
int cli_output_close(cli_output *out, ls_error *err);

#endif
