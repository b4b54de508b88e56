/* The program `trainer`: arguments, signals, what is printed. Everything else is the library's. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/output.h"

#include <lockstep/cluster.h>
#include <lockstep/trainer.h>
#include <stdint.h>

/* The whole program over a registry of back ends, which it takes over. Returns the exit code. */
int cli_main(int argc, char **argv, ls_registry *registry);
/* Trains by the config that is the file `config`, as `trainer CONFIG` does without options. Returns the exit code. */
int cli_train(const char *config, const ls_registry *registry);

/* ---- arguments ------------------------------------------------------------------------------ */

enum { CLI_SET_MAX = 256 };

/* Values of an option that may be repeated, with room for a few of the program's own. */
typedef struct cli_list {
    int count;
    const char *item[CLI_SET_MAX + 16];
} cli_list;

/* What becomes of an option's value, or of the operand. */
typedef enum cli_kind {
    CLI_FLAG,   /* it has none: `flag` is set */
    CLI_LAST,   /* as CLI_FLAG, and nothing is read behind it */
    CLI_HELP,   /* it has none: `text` is printed, and nothing is read or done behind it */
    CLI_TEXT,   /* goes to `value` */
    CLI_LIST,   /* goes into `list`, which has room for `most` */
    CLI_KEY,    /* `list` gets an assignment of it to `key` of the config, which lies in `room` */
    CLI_NUMBER, /* from `least` to `greatest`, goes to `number`, which stays where it is not given */
    CLI_WHOLE,  /* the same, a whole number, to `whole` */
    CLI_OPERAND /* goes to `value`; `text` asks for it */
} cli_kind;

/* An option of a verb, or its operand. */
typedef struct cli_option {
    cli_kind kind;
    const char *name; /* without "--"; of an operand: what it is */
    char letter;      /* that stands for it behind one "-"; 0: none */
    const char *text, **value, *key;
    bool *flag;
    cli_list *list;
    int most, *whole;
    char *room;
    size_t size; /* of the room */
    double *number, least, greatest;
} cli_option;

/* Reads the arguments of a verb (NULL: of training) by rows: CLI_OPTIONS_MAX options at most, then the operand, or a row
 * without a name: then operands are at argv[optind]. Returns 0; EXIT_USAGE after saying on stderr what is wrong;
 * CLI_HELPED, which a verb returns too, where a help was asked for. */
enum { CLI_OPTIONS_MAX = 24, CLI_HELPED = -1 };
int cli_read_options(const char *verb, const cli_option *rows, int argc, char **argv);
/* Says "trainer VERB: problem…" on stderr; returns EXIT_USAGE. */
int cli_usage(const char *verb, const char *problem, const char *what);

/* "key=\"text\"" into `room`. False where it does not fit, or text is not that of one string. */
bool cli_assignment(char *room, size_t size, const char *key, const char *text);

/* The arguments of training. */
typedef struct cli_arguments {
    bool help, version, print_config, quiet, trace_ops;
    bool config_help;    /* --help config */
    const char *config;  /* NULL: the resumed run's own */
    const char *resume;  /* a run's directory, or "latest"; NULL: a new run */
    const char *metrics; /* NULL: only the run directory */
    const char *trace;   /* NULL: no timeline */
    const char *serve;   /* NULL: no live page */
    /* Where the members of a run meet: this one is the first, or joins it; both NULL: no others, or a launcher's. */
    const char *listen, *join;
    const char *advertise; /* where the others reach this one; NULL: as the first sees it */
    int members;           /* how many there are */
    double wait_s;         /* how long to wait for them; 0: the default */
    const char *secret;    /* a file that all of them have; or NULL, and … */
    int secret_fd;         /* … an open file with it; −1: none */
    cli_list set, inject, serve_host;
    char devices[512]; /* --devices, as an assignment */
} cli_arguments;

int cli_parse(cli_arguments *out, int argc, char **argv);
/* Prints what --help, --help config, every key of a config, or --version asks for. False: none of them was given. */
bool cli_print_help(const cli_arguments *a, const ls_registry *registry);

/* ---- other hosts ---------------------------------------------------------------------------- */

enum { CLI_SECRET_ROOM = 4097 };

typedef struct cli_meeting {
    ls_tcp_place place;
    char secret[CLI_SECRET_ROOM];
} cli_meeting;

/* With --join or --listen: the engine, and what it joins, which lies in *meeting. Errors: of the secret. */
int cli_find_meeting(cli_meeting *meeting, ls_trainer_cluster *cluster, const cli_arguments *a,
                     const ls_host *host, ls_error *err);

/* ---- subcommands ---------------------------------------------------------------------------- */

/* argv[0] is the subcommand's name. They return the exit code. */
typedef int cli_verb(int argc, char **argv, const ls_registry *registry);
cli_verb cli_init, cli_report, cli_pack_verb, cli_sweep, cli_find_lr, cli_devices, cli_bench;

/* ---- signals -------------------------------------------------------------------------------- */

/* From now on a first SIGINT, SIGTERM or SIGHUP, unless that was ignored, interrupts the running trainer, and a second
 * SIGINT or SIGTERM the program. */
void cli_catch_signals(void);
/* ls_trainer_open. A signal ends the program while it waits for other hosts: there is nothing to be saved yet. */
int cli_open(ls_trainer **trainer, const ls_trainer_options *options, ls_error *err);
/* ls_trainer_run, which such a signal interrupts; one that came before, too. */
int cli_run(ls_trainer *trainer, ls_error *err);
bool cli_interrupted(void); /* whether a signal has come */

/* ---- where data lies ------------------------------------------------------------------------ */

/* What the environment says of it. */
typedef struct cli_places {
    const char *data[3]; /* where data may lie */
    char xdg[4096], cache[4096];
} cli_places;

/* The options of a run of `config` with `set`, whose places are in `places`. A config that is "-", the standard input, or a
 * pipe is read here. */
ls_trainer_options cli_options(cli_places *places, const char *config, const cli_list *set,
                               const ls_registry *registry, const ls_host *host);

/* Where things are kept that can be made again: $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep. Whoever
 * keeps something there makes it. NULL when the environment names no place. */
const char *cli_find_cache_dir(char out[4096]);

/* How many bytes of packed images are kept there: $LOCKSTEP_CACHE_GIB, or so many. */
enum { CLI_CACHE_GIB = 20 };
uint64_t cli_cache_bytes(void);

#endif
