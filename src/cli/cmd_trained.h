/* What `eval`, `predict` and `export` share: which run, and what to change of its config. */
#ifndef CLI_CMD_TRAINED_H
#define CLI_CMD_TRAINED_H

#include "cli/cli.h"
#include "cli/trained.h"

typedef struct cli_trained_args {
    const char *verb;
    const char *run;    /* the first argument that is no option */
    const char *config; /* --config */
    const char *devices;
    const char *to;   /* export: --to */
    const char *rows; /* predict: --rows */
    bool json, train, best, help;
    bool needs_data; /* the run's data is opened as well */
    cli_list set;
    char data[4200]; /* --data, as an assignment */
    char **rest;     /* the other arguments */
    int rest_count;
} cli_trained_args;

/* A verb on a trained model. */
typedef struct cli_trained_verb {
    const char *name;
    /* The options that it takes besides: 'j' --json, 't' --train, 'r' --rows, 'o' --to, 'd' --devices. */
    const char *letters;
    const char *help; /* its own text, in front of the options that all verbs have */
    const char *more; /* and the options that not all have */
    /* What else is wrong with the arguments: 0, or EXIT_USAGE after saying it. Sets needs_data. */
    int (*check)(cli_trained_args *a);
    /* Returns the exit code. The registry is the one given below. */
    int (*run)(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry);
} cli_trained_verb;

/* Reads the arguments, opens the run and runs the verb, or prints the help text; returns the exit code,
 * with the message of a failure printed. */
int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry);

/* A description of what is to be predicted, without images. */
ls_predict_desc cli_predict_desc(const ls_trained *t, const cli_trained_args *a,
                                 const ls_registry *registry, char cache[4096]);

#endif
