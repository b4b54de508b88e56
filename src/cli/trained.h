/* What a run left behind, ready for use: its config, its model, its weights, and its data.
 *
 *     ls_trained_options o = {.path = "runs/20240131-093000-lenet", .needs_data = true, …};
 *     ls_trained trained;
 *     int status = ls_trained_open(&trained, &o, &err);
 *     …
 *     ls_trained_close(&trained);
 */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "cli/cli.h"
#include "config/card.h"
#include "data/new_rows.h"
#include "nn/replica.h"

#include <stdbool.h>

typedef struct ls_trained_options {
    /* A run's directory (its final weights, or its newest checkpoint where that is newer), or a
     * safetensors file: one that a run has written needs nothing else, others need `config_path`. */
    const char *path;
    bool needs_data; /* the data is opened too */
    bool best;       /* of a run: the checkpoint with the best evaluation */
    /* In place of the run's data: rows that it has not learnt, which become the test data. A table, a folder of
     * folders, a directory of .npy files, a safetensors file; of data that are built in, the directory of their files.
     * NULL: the run's own. */
    const char *new_data;
    bool train; /* new_data: the training rows of such a set, where it has test rows, too */
    /* config_path: instead of the run's own; set; data_dirs; host, which outlives what is opened. */
    ls_trainer_options trainer;
} ls_trained_options;

typedef struct ls_trained {
    const ls_host *host;
    ls_config config;
    ls_card
        card; /* what the weights say of their model; of others' weights, what config and data say */
    bool alone; /* the config is part of the card */
    ls_model *model;
    float *weights;               /* canonical: model->floats */
    ls_dataset *data[LS_SUBSETS]; /* NULL unless asked for */
    char *weights_path;           /* where they came from */
    ls_new_rows as;               /* how the model reads rows */
    const char **class_name;      /* what as.class_name points to */
    char *packed,
        *found
            [2]; /* what the config's data.packed, path and test_path point to, if not to its text */
} ls_trained;

/* Errors: LS_ENOENT (no such run; data or a file missing), LS_EDATA (damaged, or of another model),
 * LS_ECONFIG, LS_EIO, LS_ENOMEM; nothing is left open then. */
int ls_trained_open(ls_trained *out, const ls_trained_options *options, ls_error *err);
void ls_trained_close(ls_trained *trained);

/* What a class is called, or NULL. Lives as long as what is open. */
const char *ls_class_name(const ls_trained *trained, int label);

/* ---- forward passes on every device, no gradients --------------------------------------------- */

typedef struct ls_predict_desc {
    const ls_trained *trained;
    const ls_registry *registry;
    const char *devices;       /* as in ls_device_pool_options; NULL: the config's */
    const float *class_weight; /* NULL: none */
    /* Loss and hits come from the very kernels that a run evaluates with, in the same bits; else from those of a
     * replica that is never trained. */
    bool as_in_training;
    const void *images; /* [rows][c][h][w], bytes or floats; crop and flip are not applied */
    const uint32_t
        *places;        /* [rows]: where they are in images and labels; NULL: one after another */
    uint32_t all;       /* with places: rows of images and labels */
    const void *labels; /* [rows], or targets; not needed for scores */
    uint32_t rows;      /* at least 1 */
} ls_predict_desc;

typedef struct ls_prediction {
    /* Summed over the rows, in the order in which a run sums its evaluation. */
    double loss, correct;
    char devices[512]; /* "[cpu(0), cpu(1)]" */
} ls_prediction;

/* Computes loss and hits, which mean nothing where there are no labels, and fills `scores` ([rows][classes]) unless
 * that is NULL. Blocks the caller. Nothing of what comes out depends on how many devices there are. Errors: those of
 * ls_device_pool_create and of the back end, LS_ENOMEM. */
int ls_predict(ls_prediction *out, float *scores, const ls_predict_desc *desc, ls_error *err);

/* ---- verbs on it: which run, and what to change of its config --------------------------------- */

/* In their help texts. */
#define CLI_TRAINED_HELP                                                                               \
    "  RUN              a run's directory, runs/<time>-<name>, or latest: its final weights, or its\n" \
    "                   newest checkpoint where that is newer; or a checkpoint's or\n"                 \
    "                   weights' file; others' safetensors need --config\n"                            \
    "  --best           the checkpoint with the best evaluation (checkpoint.best keeps it)\n"          \
    "  --config CONFIG  this config instead of the run's own\n"                                        \
    "  --set KEY=VALUE  sets a key of the config: --set data.name=synthetic\n"

typedef struct cli_trained_args {
    const char *verb;
    const char *run;    /* the first argument that is no option */
    const char *config; /* --config */
    const char *devices;
    const char *to;       /* export: --to */
    const char *rows;     /* predict: --rows */
    const char *new_data; /* --data */
    bool json, train, best;
    bool skip_broken; /* predict: --skip-broken */
    bool needs_data;  /* the run's data is opened as well */
    cli_list set;
    char **rest; /* the other arguments */
    int rest_count;
} cli_trained_args;

/* A verb on a trained model. */
typedef struct cli_trained_verb {
    const char *name;
    /* The options that it takes besides: 'k' --skip-broken, 'j' --json, 't' --train, 'r' --rows, 'o' --to, 'd' --devices. */
    const char *letters;
    const char *help;
    /* What else is wrong with the arguments: 0, or EXIT_USAGE after saying it. Sets needs_data. */
    int (*check)(cli_trained_args *a);
    /* Returns the exit code. The registry is the one given below. */
    int (*run)(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry);
} cli_trained_verb;

extern const cli_trained_verb cli_eval, cli_predict, cli_export;

/* Reads the arguments, opens the run and runs the verb, or prints the help text; returns the exit code,
 * with the message of a failure printed. */
int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry);

#endif
