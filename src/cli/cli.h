/* The program `trainer`: arguments, signals and output. Everything else is in the library. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/output.h"

#include <lockstep/cluster.h>
#include <lockstep/trainer.h>
#include <stdint.h>

/* Runs the program with the back ends of `registry`, which it destroys. Returns the exit code. */
int cli_main(int argc, char **argv, ls_registry *registry);
/* Trains by the file `config`, as `trainer CONFIG` does without options. Returns the exit code. */
int cli_train(const char *config, const ls_registry *registry);

/* ---- arguments ------------------------------------------------------------------------------ */

enum { CLI_SET_MAX = 256 };

/* Values of an option that may be repeated, with room for a few values of the program's own. */
typedef struct cli_list {
    int count;
    const char *item[CLI_SET_MAX + 16];
} cli_list;

/* How the value of an option, or the operand, is used. */
typedef enum cli_kind {
    CLI_FLAG, /* no value: sets *flag */
    CLI_LAST, /* like CLI_FLAG; the arguments after it are not read */
    CLI_HELP, /* no value: prints `text` and ends the program */
    CLI_TEXT, /* stored in *value */
    CLI_LIST, /* appended to `list`, which accepts at most `most` values */
    /* appended to `list` as an assignment to `key` of the config; `room` holds its text */
    CLI_KEY,
    /* number from `least` to `greatest`, stored in *number, which is unchanged if the option is
     * absent */
    CLI_NUMBER,
    CLI_WHOLE,  /* like CLI_NUMBER; a whole number, stored in *whole */
    CLI_OPERAND /* stored in *value; `text` is the message if it is missing */
} cli_kind;

/* An option of a verb, or its operand. */
typedef struct cli_option {
    cli_kind kind;
    const char *name; /* name without "--"; of an operand: what it is */
    char letter;      /* short form after a single "-"; 0: none */
    const char *text, **value, *key;
    bool *flag;
    cli_list *list;
    int most, *whole;
    char *room;
    size_t size; /* size of `room` in bytes */
    double *number, least, greatest;
} cli_option;

/* Reads the arguments of a verb (NULL: of training). `rows` describes at most CLI_OPTIONS_MAX
 * options, followed by the operand or by a row without a name; in the latter case the operands are
 * at argv[optind]. Returns 0; EXIT_USAGE after a message on stderr; or CLI_HELPED after printing a
 * help text, which a verb passes on to its caller. */
enum { CLI_OPTIONS_MAX = 24, CLI_HELPED = -1 };
int cli_read_options(const char *verb, const cli_option *rows, int argc, char **argv);
/* Prints "trainer VERB: problem what…" on stderr and returns EXIT_USAGE. */
int cli_usage(const char *verb, const char *problem, const char *what);

/* Writes key="text" to `room`. Returns false if it does not fit, or if the text contains a quote or
 * a backslash. */
bool cli_assignment(char *room, size_t size, const char *key, const char *text);

/* Arguments of training. */
typedef struct cli_arguments {
    bool help, version, print_config, quiet, trace_ops;
    bool config_help;    /* --help config is given */
    const char *config;  /* NULL: the config of the resumed run */
    const char *resume;  /* directory of a run, or "latest"; NULL: a new run */
    const char *metrics; /* NULL: records go only to the run directory */
    const char *trace;   /* NULL: no timeline */
    const char *serve;   /* NULL: no live page */
    bool serve_after;    /* the live page stays after the run, until a signal arrives */
    /* Address at which the members of a run meet: the first member listens there, the others join
     * it. Both NULL: there are no other members, or a launcher starts them. */
    const char *listen, *join;
    /* address at which other members reach this one; NULL: as the first member sees it */
    const char *advertise;
    int members;        /* number of members */
    double wait_s;      /* time limit in seconds for all to join; 0: the default */
    const char *secret; /* file with the secret that all members have; NULL: see secret_fd */
    int secret_fd;      /* open file with the secret; −1: none */
    cli_list set, inject, serve_host;
    char command[2048]; /* the program's name and arguments as they would be typed, cut if longer */
    char devices[512];  /* --devices, as an assignment to a key */
} cli_arguments;

/* Reads the arguments of training and checks them. Returns 0; EXIT_USAGE after a message on
 * stderr. */
int cli_parse(cli_arguments *out, int argc, char **argv);
/* Prints what --help, --help config or --version asks for. Returns false if none of them is
 * given. */
bool cli_print_help(const cli_arguments *a, const ls_registry *registry);
/* Prints every key of a config. */
void cli_print_config_help(void);

/* ---- other hosts ---------------------------------------------------------------------------- */

enum { CLI_SECRET_ROOM = 4097 };

typedef struct cli_meeting {
    ls_tcp_place place;
    char secret[CLI_SECRET_ROOM];
} cli_meeting;

/* With --join or --listen, selects the TCP transport and fills *meeting, which it uses. Errors:
 * those of reading the secret: LS_ENOENT, LS_EIO, LS_EDATA, LS_ENOMEM. */
int cli_find_meeting(cli_meeting *meeting, ls_trainer_cluster *cluster, const cli_arguments *a,
                     const ls_host *host, ls_error *err);

/* ---- subcommands ---------------------------------------------------------------------------- */

/* A verb. argv[0] is its name. Returns the exit code. */
typedef int cli_verb(int argc, char **argv, const ls_registry *registry);
cli_verb cli_init, cli_report, cli_pack_verb, cli_sweep, cli_find_lr, cli_devices, cli_bench;
cli_verb cli_runs, cli_compare;

/* ---- signals -------------------------------------------------------------------------------- */

/* Installs the signal handlers. A first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (unless SIGHUP was
 * ignored) interrupts the running trainer; a second SIGINT or SIGTERM ends the program. */
void cli_catch_signals(void);
/* Calls ls_trainer_open. While it waits for other hosts a signal ends the program, because there is
 * nothing to save yet. */
int cli_open(ls_trainer **trainer, const ls_trainer_options *options, ls_error *err);
/* Calls ls_trainer_run, which a signal interrupts; also a signal that arrived before. */
int cli_run(ls_trainer *trainer, ls_error *err);
bool cli_interrupted(void); /* whether a signal has arrived */
/* Waits until a signal has arrived. Called when no run is in progress. */
void cli_wait_for_signal(void);

/* ---- directories ----------------------------------------------------------------------------- */

/* Directories that the environment names. */
typedef struct cli_places {
    const char *data[3]; /* directories in which data is looked for */
    char xdg[4096], cache[4096];
} cli_places;

/* Returns the options of a run of `config` with the assignments `set`. Its directories are stored
 * in `places`. A config that is "-" (standard input) or a pipe is read here. */
ls_trainer_options cli_options(cli_places *places, const char *config, const cli_list *set,
                               const ls_registry *registry, const ls_host *host);

/* Returns the directory for data that can be regenerated: $XDG_CACHE_HOME/lockstep, else
 * ~/.cache/lockstep. It need not exist; the caller creates it. Returns NULL if the environment
 * names no place. */
const char *cli_find_cache_dir(char out[4096]);

/* Returns the size limit in bytes of packed images in the cache: $LOCKSTEP_CACHE_GIB, by default
 * CLI_CACHE_GIB. */
enum { CLI_CACHE_GIB = 20 };
uint64_t cli_cache_bytes(void);

#endif
