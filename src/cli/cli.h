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
    EXIT_SAVED = 75,       /* stopped early with a checkpoint saved: --resume goes on */
    EXIT_CONFIG = 78,      /* the config is wrong */
    EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM, and nothing saved */
};

/* The exit code for a library's status. */
int cli_exit_code(int status);
/* Likewise of a run: EXIT_SAVED where `result` says that it can go on where it stopped. */
int cli_run_exit_code(int status, const ls_result *result);

/* The whole program over a registry of back ends, which it takes over. Returns the exit code. */
int cli_main(int argc, char **argv, ls_registry *registry);

/* ---- arguments ------------------------------------------------------------------------------ */

typedef enum cli_action {
    CLI_TRAIN,
    CLI_HELP,
    CLI_HELP_CONFIG,
    CLI_VERSION,
    CLI_PRINT_CONFIG
} cli_action;

#define CLI_SET_MAX 256
#define CLI_INJECT_MAX 16
#define CLI_SERVE_HOST_MAX 16

typedef struct cli_arguments {
    cli_action action;
    const char *config;  /* NULL: the resumed run's own */
    const char *resume;  /* a run's directory, or "latest"; NULL: a new run */
    const char *metrics; /* NULL: only the run directory */
    const char *trace;   /* NULL: no timeline */
    int trace_ops;
    const char *serve; /* NULL: no live page */
    int serve_host_count;
    const char *serve_host[CLI_SERVE_HOST_MAX];
    int inject_count;
    const char *inject[CLI_INJECT_MAX];
    int quiet;
    int set_count;
    const char *set[CLI_SET_MAX];
    char devices[512]; /* --devices, as an assignment */
} cli_arguments;

/* Returns 0, or EXIT_USAGE after saying on stderr what is wrong. */
int cli_parse(cli_arguments *out, int argc, char **argv);
void cli_print_help(void);
void cli_print_config_help(void); /* every key of a config */
void cli_print_version(const ls_registry *registry);

/* ---- subcommands ---------------------------------------------------------------------------- */

/* argv[0] is the subcommand's name. They return the exit code. */
int cli_report(int argc, char **argv);
int cli_sweep(int argc, char **argv, const ls_registry *registry);
int cli_eval(int argc, char **argv, const ls_registry *registry);
int cli_predict(int argc, char **argv, const ls_registry *registry);
int cli_export(int argc, char **argv);
int cli_devices(int argc, char **argv, const ls_registry *registry);
int cli_bench(int argc, char **argv, const ls_registry *registry);

/* ---- signals -------------------------------------------------------------------------------- */

/* From now on a first SIGINT or SIGTERM interrupts the running trainer, a second one the program. */
void cli_catch_signals(void);
/* The trainer that is running, or NULL. A signal that came before counts. */
void cli_set_running(ls_trainer *trainer);
int cli_interrupted(void); /* whether a signal has come */

/* ---- where data lies ------------------------------------------------------------------------ */

#define CLI_DATA_DIRS 3

typedef struct cli_data_dirs {
    const char *dir[CLI_DATA_DIRS];
    int count;
    char xdg[4096];
} cli_data_dirs;

/* Asks the environment. */
void cli_find_data_dirs(cli_data_dirs *out);

/* Where things are kept that can be made again: $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep. Whoever
 * keeps something there makes it. NULL when the environment names no place. */
const char *cli_find_cache_dir(char out[4096]);

/* ---- the view: what a person sees of a run -------------------------------------------------- */

typedef struct cli_view {
    int quiet;
    int tty; /* stderr is a terminal: the progress line is redrawn in place */
    int colour;
    int drawn; /* a progress line stands on the terminal */
    uint64_t drawn_at;
} cli_view;

void cli_view_init(cli_view *view, int quiet);
void cli_view_start(const cli_view *view, const ls_summary *summary);
void cli_view_progress(cli_view *view, const ls_progress *progress);
/* Takes the progress line away, so that something else can be printed. */
void cli_view_clear(cli_view *view);
void cli_view_log(cli_view *view, ls_log_level level, const char *text);

#endif
