/* SPDX-License-Identifier: MIT */
/* The program `trainer`: arguments, signals and output. Everything that other programs can use as
 * well is in the library. A *verb* is a subcommand, such as `init` in `trainer init PATH`. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/output.h"
#include "cli/program.h"
#include "data/pack.h"

#include <lockstep/cluster.h>
#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <stdint.h>

/* Runs the program with the back ends of `registry`, which it destroys. Returns the exit code. */
int cli_main(int argc, char **argv, ls_registry *registry);
/* Trains with the config file `config`, like `trainer CONFIG` without options, but does not print
 * again what `init` has printed: the table of the data's columns, and the messages `said`. Returns
 * the exit code. */
int cli_train(const char *config, cli_said *said, const ls_registry *registry);

/* ---- arguments ------------------------------------------------------------------------------ */

enum { CLI_SET_MAX = 256 };

/* Values of an option that may be repeated: at most CLI_SET_MAX from the command line, and 16 that
 * the program adds. */
typedef struct cli_list {
    int count;
    const char *item[CLI_SET_MAX + 16];
} cli_list;

/* The use of an option and its value, or of the *operand*, the argument that is not an option.
 * In the comments below, *flag, *value and the like are fields of cli_option. */
typedef enum cli_kind {
    CLI_FLAG, /* no value: sets *flag */
    CLI_LAST, /* like CLI_FLAG, but no argument after it is read */
    CLI_HELP, /* no value: prints `text` and ends the program */
    CLI_TEXT, /* stored in *value */
    /* like CLI_TEXT: a file that is written. It must not be one that another argument names
     * (overwrite.h). */
    CLI_OUT,
    CLI_LIST, /* appended to *list; the option may be given at most `most` times */
    /* appended to *list as an assignment KEY="VALUE" to the config's key `key`; the text of the
     * assignment is written to `buffer` */
    CLI_KEY,
    /* a number from `least` to `greatest`, stored in *number; if the option is absent, *number
     * stays unchanged */
    CLI_NUMBER,
    CLI_WHOLE, /* a whole number, otherwise like CLI_NUMBER; stored in *whole */
    /* stored in *value; if the operand is missing, `text` is the message, and `example` has the
     * arguments of a complete command that the message shows; NULL: no command is shown */
    CLI_OPERAND
} cli_kind;

/* An option of a verb, or its operand. */
typedef struct cli_option {
    cli_kind kind;
    const char *name; /* the option's name without "--", or what an operand is, for messages */
    char letter;      /* the letter of the short form, after a single "-"; 0: none */
    const char *text, *example, **value, *key;
    bool *flag;
    cli_list *list;
    int most, *whole;
    char *buffer;
    size_t size; /* size of `buffer` in bytes */
    double *number, least, greatest;
} cli_option;

/* Reads the arguments of a verb; `verb` NULL: those of training. `rows` describes at most
 * CLI_OPTIONS_MAX options. The row after the last option describes the operand; without a name, any
 * number of operands is allowed, from argv[optind] on. Returns 0; EXIT_USAGE after a message about
 * wrong arguments on stderr; or CLI_HELPED after a help text. A verb returns the last two
 * unchanged. */
enum { CLI_OPTIONS_MAX = 24, CLI_HELPED = -1 };
int cli_read_options(const char *verb, const cli_option *rows, int argc, char **argv);
/* Prints "NAME VERB: problem what…", with the name of the program, on stderr and returns
 * EXIT_USAGE. */
int cli_usage(const char *verb, const char *problem, const char *what);
/* Does the same for a missing argument. The message also shows a complete command, which has the
 * arguments `example`. */
int cli_usage_example(const char *verb, const char *problem, const char *example);

/* Writes the assignment KEY="TEXT" to `buffer`, which has `size` bytes. Returns false if
 * the assignment does not fit, or if `text` contains a quote or a backslash. */
bool cli_assignment(char *buffer, size_t size, const char *key, const char *text);

/* Arguments of training. */
typedef struct cli_arguments {
    bool help, version, print_config, quiet, trace_ops;
    cli_said *said;      /* messages that `init` has printed; NULL: there are none */
    bool config_help;    /* --help config is given */
    const char *config;  /* NULL: the config of the resumed run */
    const char *resume;  /* directory of a run, or "latest"; NULL: a new run */
    int resume_at;       /* number of steps of the checkpoint; 0: the newest */
    const char *metrics; /* NULL: records go only to the run directory */
    const char *trace;   /* NULL: no timeline */
    int folds;           /* number of folds; 0: an ordinary run */
    const char *wrong;   /* file for the rows that folds predict wrong */
    const char *serve;   /* NULL: no live page */
    bool serve_after;    /* after the run, the live page stays available until a signal arrives */
    /* A run on several hosts has a process on each host; these processes are its members. --listen:
     * the address at which the first member waits for the others. --join: the address of the first
     * member, given to the others. Both NULL: there are no other members, or a launcher such as
     * mpirun starts them. */
    const char *listen, *join;
    /* address at which other members reach this one; NULL: the address from which this member
     * connects to the first one */
    const char *advertise;
    int members; /* number of members */
    /* how long members wait until all have joined, in seconds; 0: the default */
    double wait_s;
    const char *secret; /* file with the secret that all members have; NULL: see secret_fd */
    int secret_fd;      /* descriptor from which the secret is read; −1: none */
    cli_list set, inject, serve_host;
    char devices[512]; /* the value of --devices, as an assignment to the key `devices` */
} cli_arguments;

/* Reads the arguments of training and checks them. Returns 0; EXIT_USAGE after a message on
 * stderr. */
int cli_parse(cli_arguments *out, int argc, char **argv);
/* Prints what --help, --help config or --version asks for. Returns CLI_HELPED; 0 if none of them is
 * given; EXIT_IO after a message if printing failed. */
int cli_print_help(const cli_arguments *a, const ls_registry *registry);
/* Prints every key of a config. */
void cli_print_config_help(void);

/* ---- other hosts ---------------------------------------------------------------------------- */

enum { CLI_SECRET_BYTES = 4097 }; /* size of the buffer for the secret */

/* How the members of a run over TCP find each other, and their secret. */
typedef struct cli_rendezvous {
    ls_tcp_place place;
    char secret[CLI_SECRET_BYTES];
} cli_rendezvous;

/* With --join or --listen, sets *cluster to use the TCP transport, with the addresses and the
 * secret in *meeting, which must outlive the run. Without these options, changes nothing. Errors,
 * all about reading the secret: LS_ENOENT, LS_EIO, LS_EDATA, LS_ENOMEM. */
int cli_set_rendezvous(cli_rendezvous *meeting, ls_trainer_cluster *cluster, const cli_arguments *a,
                       const ls_host *host, ls_error *err);

/* ---- subcommands ---------------------------------------------------------------------------- */

/* A verb. argv[0] is its name. Returns the exit code. */
typedef int cli_verb(int argc, char **argv, const ls_registry *registry);
cli_verb cli_init, cli_report, cli_pack_verb, cli_sweep_verb, cli_find_lr, cli_verify, cli_devices,
    cli_bench;
cli_verb cli_runs, cli_compare;

/* ---- signals -------------------------------------------------------------------------------- */

/* Installs the signal handlers. The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP interrupts the running
 * trainer, which then saves a checkpoint. If SIGHUP was ignored when the program started (nohup),
 * it stays ignored. A second signal ends the program at once if it is SIGINT or SIGTERM. */
void cli_catch_signals(void);
/* Lets a write beyond a limit on the size of files (ulimit -f) fail with an error, as a write to a
 * full disk does. Otherwise the signal SIGXFSZ would end the program without a message. */
void cli_survive_file_limit(void);
/* Calls ls_trainer_open. If a signal arrives while ls_trainer_open waits for other hosts, the
 * program ends at once, because there is nothing to save yet. */
int cli_open(ls_trainer **trainer, const ls_trainer_options *options, ls_error *err);
/* Calls ls_trainer_run. A signal interrupts the run, even if it arrived before this call. */
int cli_run(ls_trainer *trainer, ls_error *err);
bool cli_interrupted(void); /* returns whether a signal has arrived */
/* Waits until a signal has arrived. The caller must not have a run in progress. */
void cli_wait_for_signal(void);

/* ---- directories ----------------------------------------------------------------------------- */

/* How the program shows the packing of a folder of images. */
typedef struct cli_folder_view {
    ls_folder_watch watch;
    bool quiet;     /* no progress is printed */
    uint64_t shown; /* time at which the progress was last printed, in ns of ls_now_ns */
} cli_folder_view;

/* Initialises the view. `quiet`: only broken images and removed files are printed. */
void cli_watch_folder(cli_folder_view *view, bool quiet);

/* Directories that the environment variables of the process select, and what the program lends to
 * the library. */
typedef struct cli_directories {
    const char *data[3]; /* directories in which data is looked for */
    char xdg[4096], cache[4096];
    cli_folder_view folder;
    ls_trainer_sys sys;
} cli_directories;

/* Returns the options of a run with the config file `config` and the assignments `set`. The options
 * point into *places, which must outlive them. If `config` is "-" (standard input) or a pipe, its
 * text is read here. `quiet`: the progress of packing a folder is not printed. */
ls_trainer_options cli_options(cli_directories *places, const char *config, const cli_list *set,
                               const ls_registry *registry, bool quiet, const ls_host *host);

/* Returns the directory for data that can be regenerated: $XDG_CACHE_HOME/lockstep, else
 * ~/.cache/lockstep. It need not exist; the caller creates it. Returns NULL if neither
 * XDG_CACHE_HOME nor HOME is usable. */
const char *cli_find_cache_dir(char out[4096]);

#endif
