/* SPDX-License-Identifier: MIT */
/* Verbs that use a trained model: eval, predict, export. Their common options select a run and
 * change its config. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "cli/cli.h"
#include "model/trained.h"

/* Help text of the common options. */
#define CLI_TRAINED_HELP                                                                           \
    "  RUN              the directory of a run, runs/<time>-<name>, or the word latest for\n"      \
    "                   the newest run that has weights or a checkpoint. Its final weights\n"      \
    "                   are used, or its newest checkpoint if that is newer. RUN may also be\n"    \
    "                   the file of a checkpoint or of weights; files of other programs\n"         \
    "                   need --config\n"                                                           \
    "  --best           takes the checkpoint with the best evaluation (see checkpoint.best)\n"     \
    "  --config CONFIG  uses this config instead of the run's own\n"                               \
    "  --set KEY=VALUE  sets a key of the config: --set data.name=synthetic\n"

/* Arguments of a verb that uses a trained model. */
typedef struct cli_trained_args {
    const char *verb;
    const char *run;    /* the first argument that is not an option: RUN */
    const char *config; /* --config */
    const char *devices;
    const char *to;       /* export: --to */
    const char *rows;     /* predict: --rows */
    const char *new_data; /* --data */
    const char *wrong;    /* eval: --wrong */
    double threshold;     /* eval: --threshold; 0: none */
    bool keep;            /* eval: --keep */
    bool json, train, best;
    bool skip_broken; /* predict, eval: --skip-broken */
    bool needs_data;  /* open the run's data as well */
    cli_list set;
    char **rest; /* the arguments after RUN that are not options */
    int rest_count;
} cli_trained_args;

/* A verb that uses a trained model. */
typedef struct cli_trained_verb {
    const char *name;
    /* Letters of the options that the verb accepts: 'k' --skip-broken, 'j' --json, 't' --train, 'r'
     * --rows, 'o' --to, 'd' --devices, 'n' --data, 'w' --wrong, 'h' --threshold and --keep. */
    const char *letters;
    const char *help;
    /* Checks the arguments that only this verb has, and sets needs_data. Returns 0, or EXIT_USAGE
     * after a message. */
    int (*check)(cli_trained_args *a);
    /* Runs the verb with the opened model, and returns the exit code. */
    int (*run)(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry);
} cli_trained_verb;

/* Prints `before` and a class: its number and its name, or the number alone if the class has no
 * name or is called as its number is. */
void cli_class_print(const char *before, const ls_trained *trained, int label);
/* Returns the number of digits with which a person is shown a number: `least`, or more for a number
 * with a longer whole part. */
int cli_digits(double value, int least);

extern const cli_trained_verb cli_eval, cli_predict, cli_export;

/* Reads the arguments of a verb, opens the trained model and runs the verb, or prints the verb's
 * help text. Returns the exit code, after a message if it fails. `registry`: the back ends. */
int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry);

#endif
