/* Opens a finished run for use: its config, its model, its weights and its data.
 *
 *     ls_trained_options o = {.path = "runs/20240131-093000-lenet", .needs_data = true, …};
 *     ls_trained trained;
 *     int status = ls_trained_open(&trained, &o, &err);
 *     …
 *     ls_trained_close(&trained); */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "cli/cli.h"
#include "config/card.h"
#include "data/new_rows.h"
#include "nn/replica.h"

#include <stdbool.h>

typedef struct ls_trained_options {
    /* Directory of a run, whose final weights are used, or its newest checkpoint if that is newer;
     * or a safetensors file. A file that a run has written needs nothing else; other files need a
     * config. */
    const char *path;
    bool needs_data; /* open the data as well */
    bool best;       /* directory of a run: use the checkpoint with the best evaluation */
    /* Rows that the model has not learnt, which become the test data instead of the run's data: a
     * table, a folder of folders, a directory of .npy files or a safetensors file; for a built-in
     * dataset, the directory of its files. NULL: the run's data. */
    const char *new_data;
    bool train; /* new_data: use its training rows if it has test rows as well */
    /* The members that are used: config_path (instead of the run's config), set, data_dirs and
     * host, which must outlive the opened run. */
    ls_trainer_options trainer;
} ls_trained_options;

typedef struct ls_trained {
    const ls_host *host;
    ls_config config;
    /* Description of the model in the file of weights; for files of other programs, from config and
     * data. */
    ls_card card;
    bool alone; /* `config` is part of `card` */
    ls_model *model;
    float *weights;               /* canonical: [model->floats] */
    ls_dataset *data[LS_SUBSETS]; /* NULL unless requested */
    char *weights_path;           /* file from which the weights were read */
    ls_new_rows as;               /* how the model reads rows */
    const char **class_name;      /* memory of as.class_name */
    /* Memory of the config's data.packed, data.path and data.test_path, if they are not in its
     * text. */
    char *packed, *found[2];
} ls_trained;

/* Opens a run. Errors: LS_ENOENT (no such run; data or a file is missing), LS_EDATA (damaged, or of
 * another model), LS_EINVAL (options that do not fit), LS_ECONFIG, LS_EIO, LS_ENOMEM. After a
 * failure nothing is open. */
int ls_trained_open(ls_trained *out, const ls_trained_options *options, ls_error *err);
/* Closes everything that ls_trained_open has opened. */
void ls_trained_close(ls_trained *trained);

/* Returns the name of a class, or NULL. The text is valid until ls_trained_close. */
const char *ls_class_name(const ls_trained *trained, int label);

/* ---- forward passes on all devices, without gradients ---------------------------------------- */

typedef struct ls_predict_desc {
    const ls_trained *trained;
    const ls_registry *registry;
    const char *devices;       /* as in ls_device_pool_options; NULL: those of the config */
    const float *class_weight; /* NULL: none */
    /* Compute loss and hits with the same kernels, and so to the same bits, as the evaluation in a
     * run; else with the kernels of a replica that is never trained. */
    bool as_in_training;
    const void *images; /* [rows][c][h][w], bytes or floats; crop and flip are not applied */
    /* [rows]: row numbers in `images` and `labels`; NULL: rows 0 … rows − 1 */
    const uint32_t *places;
    uint32_t all;       /* with `places`: number of rows in `images` and `labels` */
    const void *labels; /* [rows], or targets; not needed for scores */
    uint32_t rows;      /* number of rows, at least 1 */
} ls_predict_desc;

typedef struct ls_prediction {
    /* Sums over the rows, added in the same order as in a run's evaluation. */
    double loss, correct;
    char devices[512]; /* names of the devices: "[cpu(0), cpu(1)]" */
} ls_prediction;

/* Computes loss and hits, which are meaningless without labels, and fills `scores` [rows][classes]
 * unless it is NULL. Blocks the caller. The results do not depend on the number of devices. Errors:
 * those of ls_device_pool_create and of the back end, LS_ENOMEM. */
int ls_predict(ls_prediction *out, float *scores, const ls_predict_desc *desc, ls_error *err);

/* ---- verbs: options that select a run and change its config ---------------------------------- */

/* Help text of the common options. */
#define CLI_TRAINED_HELP                                                                           \
    "  RUN              a run's directory, runs/<time>-<name>, or latest: its final weights,\n"    \
    "                   or its newest checkpoint if that is newer; or the file of a\n"             \
    "                   checkpoint or of weights; safetensors files of other programs need\n"      \
    "                   --config\n"                                                                \
    "  --best           takes the checkpoint with the best evaluation (see checkpoint.best)\n"     \
    "  --config CONFIG  uses this config instead of the run's own\n"                               \
    "  --set KEY=VALUE  sets a key of the config: --set data.name=synthetic\n"

typedef struct cli_trained_args {
    const char *verb;
    const char *run;    /* first argument that is not an option */
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

/* A verb for a trained model. */
typedef struct cli_trained_verb {
    const char *name;
    /* Letters of the options that the verb accepts: 'k' --skip-broken, 'j' --json, 't' --train, 'r'
     * --rows, 'o' --to, 'd' --devices, 'n' --data. */
    const char *letters;
    const char *help;
    /* Checks the arguments further and sets needs_data. Returns 0, or EXIT_USAGE after a
     * message. */
    int (*check)(cli_trained_args *a);
    /* Runs the verb and returns the exit code. `registry` is that of cli_trained_run. */
    int (*run)(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry);
} cli_trained_verb;

extern const cli_trained_verb cli_eval, cli_predict, cli_export;

/* Reads the arguments, opens the run and runs the verb, or prints its help text. Returns the exit
 * code, after a message if it fails. */
int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry);

#endif
