/* What `eval`, `predict` and `export` share: which run, and what to change of its config. */
#ifndef CLI_TRAINED_ARGS_H
#define CLI_TRAINED_ARGS_H

#include "cli/cli.h"
#include "tools/predict.h"
#include "tools/trained.h"

typedef struct cli_trained_args {
    const char *verb;
    const char *run;    /* the first argument that is no option */
    const char *config; /* --config */
    const char *devices;
    const char *to;   /* export: --to */
    const char *rows; /* predict: --rows */
    int json, train, quiet, help;
    int set_count;
    const char *set[CLI_SET_MAX + 1];
    char data[4200]; /* --data, as an assignment */
    char **rest;     /* the other arguments */
    int rest_count;
} cli_trained_args;

/* The help text of the options that all of them have. */
extern const char cli_trained_help[];

/* `allowed` has the letters of the options that this verb takes besides: 'j' --json, 't' --train,
 * 'r' --rows, 'o' --to, 'd' --devices. Returns 0, or EXIT_USAGE after saying what is wrong. */
int cli_trained_parse(cli_trained_args *a, const char *verb, const char *allowed, int argc,
                      char **argv);

/* Says "trainer VERB: problem…" on stderr; returns EXIT_USAGE. */
int cli_verb_usage(const char *verb, const char *problem, const char *what);

/* Opens the run; the message of a failure has been printed, and the exit code is returned. */
int cli_trained_open(ls_trained *out, const cli_trained_args *a, int needs_data,
                     const ls_host *host);

/* A description of what is to be predicted, without images. */
ls_predict_desc cli_predict_desc(const ls_trained *t, const cli_trained_args *a,
                                 const ls_registry *registry, const ls_host *host,
                                 char cache[4096]);

/* Prints "trainer: TEXT" and returns the exit code of `status`. */
int cli_fail(int status, const ls_error *err);
/* What was printed is only out when the flush says so: 0 or EXIT_IO. */
int cli_flush(void);

#endif
