/* The program `trainer`: arguments, signals, what is printed. Everything else is the library's. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <lockstep/trainer.h>

/* Exit codes, after sysexits.h where it has one. */
enum {
    EXIT_USAGE = 64,       /* wrong arguments */
    EXIT_DATA = 65,        /* a data file is damaged */
    EXIT_NO_INPUT = 66,    /* a data file or config is missing */
    EXIT_BUG = 70,         /* a bug in Lockstep */
    EXIT_OS = 71,          /* the operating system or a device failed */
    EXIT_IO = 74,          /* reading or writing failed */
    EXIT_CONFIG = 78,      /* the config is wrong */
    EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM */
};

/* The whole program over a registry of back ends, which it takes over. Returns the exit code. */
int cli_main(int argc, char **argv, ls_registry *registry);

/* ---- arguments ------------------------------------------------------------------------------ */

typedef enum cli_action { CLI_TRAIN, CLI_HELP, CLI_VERSION, CLI_PRINT_CONFIG } cli_action;

#define CLI_SET_MAX 256

typedef struct cli_arguments {
    cli_action action;
    const char *config;
    const char *metrics; /* NULL: only the run directory */
    int quiet;
    int set_count;
    const char *set[CLI_SET_MAX];
    char devices[512]; /* --devices, as an assignment */
} cli_arguments;

/* Returns 0, or EXIT_USAGE after saying on stderr what is wrong. */
int cli_parse(cli_arguments *out, int argc, char **argv);
void cli_print_help(void);
void cli_print_version(const ls_registry *registry);

/* ---- the view: what a person sees of a run -------------------------------------------------- */

typedef struct cli_view {
    int quiet;
    int tty;            /* stderr is a terminal: the progress line is redrawn in place */
    int colour;
    int drawn;          /* a progress line stands on the terminal */
    uint64_t drawn_at;
} cli_view;

void cli_view_init(cli_view *view, int quiet);
void cli_view_start(const cli_view *view, const ls_summary *summary);
void cli_view_progress(cli_view *view, const ls_progress *progress);
/* Takes the progress line away, so that something else can be printed. */
void cli_view_clear(cli_view *view);
void cli_view_log(cli_view *view, ls_log_level level, const char *text);

#endif
