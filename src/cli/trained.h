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

/* Says what to open. */
typedef struct ls_trained_options {
    /* Directory of a run, or a safetensors file with weights. In a directory, the final weights are
     * used, or the newest checkpoint if it is newer. A safetensors file that another program has
     * written needs a config (trainer.config_path) as well. */
    const char *path;
    bool needs_data; /* true: also open the data of the run, or `new_data` in its place */
    /* if `path` is the directory of a run, use the checkpoint with the best evaluation */
    bool best;
    /* Path of data that replaces the run's data: a table, a folder of images with a subfolder for
     * each class, a directory of .npy files or a safetensors file; if the run's data is a built-in
     * dataset, the directory of its files. Its rows become data[LS_TEST], or data[LS_TRAIN] if
     * `training_rows` is set. NULL: the run's data is opened. */
    const char *new_data;
    /* if `new_data` has training and test rows, use its training rows instead of its test rows */
    bool training_rows;
    /* Only these members are used: config_path (a config that replaces the run's config), set,
     * data_dirs and host. Their values must stay valid until ls_trained_close. */
    ls_trainer_options trainer;
} ls_trained_options;

/* An opened run, or an opened file of weights. */
typedef struct ls_trained {
    const ls_host *host;
    ls_config config;
    /* Description of the model (config/card.h). It is read from the file of weights. If that file
     * was written by another program and has no description, the description is made from the
     * config and the data. */
    ls_card card;
    /* `config` was read from the card, not from a config file, and belongs to the card; it must not
     * be freed separately */
    bool config_in_card;
    ls_model *model;
    float *weights; /* [model->floats], in the canonical layout (nn/model.h) */
    /* the training and the test split; NULL: the data was not requested, or has no such split */
    ls_dataset *data[LS_SUBSETS];
    char *weights_path;           /* file from which the weights were read */
    ls_input_format input_format; /* how the model reads rows */
    const char **class_name;      /* owned array, input_format.class_name */
    /* Owned paths: if data.packed, data.path or data.test_path was not taken from the config's text
     * but found elsewhere, `packed`, found[0] or found[1] is its value. */
    char *packed, *found[2];
} ls_trained;

/* Opens a run. Errors: LS_ENOENT (no such run; data or a file is missing), LS_EDATA (a file is
 * damaged, or belongs to another model), LS_EINVAL (the options contradict each other or the run),
 * LS_ECONFIG, LS_EIO, LS_ENOMEM. After a failure nothing is open. */
int ls_trained_open(ls_trained *out, const ls_trained_options *options, ls_error *err);
/* Logs a warning if the opened data are not those of the run in the directory `run_dir`: another
 * number of rows, or files with another checksum. */
void cli_warn_of_changed_data(const ls_trained *trained, const char *run_dir);
/* Closes everything that ls_trained_open has opened. */
void ls_trained_close(ls_trained *trained);

/* Returns the name of a class, or NULL. The text is valid until ls_trained_close. */
const char *ls_class_name(const ls_trained *trained, int label);
/* Prints `before` and a class: its number and its name, or the number alone if the class has no
 * name or is called as its number is. */
void ls_class_print(const char *before, const ls_trained *trained, int label);

/* ---- forward passes on all devices, without gradients ---------------------------------------- */

/* Describes the rows to predict. */
typedef struct ls_predict_desc {
    const ls_trained *trained;
    const ls_registry *registry;
    const char *devices;       /* as in ls_device_pool_options; NULL: those of the config */
    const float *class_weight; /* NULL: none */
    /* true: use the kernels that a run uses for its evaluations, so that loss and number of correct
     * rows are bit-identical to those in the run's records. false: use the kernels of a model that
     * is only used for predictions. */
    bool as_in_training;
    /* [rows][c][h][w], or [total_rows][c][h][w] with `row_index`; bytes or floats; crop and flip
     * are not applied */
    const void *images;
    /* [rows]: the rows to predict, as row numbers in `images` and `labels`; NULL: rows
     * 0 … rows − 1 */
    const uint32_t *row_index;
    uint32_t total_rows; /* with `row_index`: number of rows in `images` and `labels` */
    /* classes or target vectors of the rows in `images`; NULL: not known, and only the scores are
     * valid */
    const void *labels;
    uint32_t rows; /* number of rows to predict, at least 1 */
} ls_predict_desc;

typedef struct ls_prediction {
    /* Sum of the rows' losses, and number of correctly predicted rows. Both are added in the same
     * order as in a run's evaluation. */
    double loss, correct;
    char devices[512]; /* names of the devices: "[cpu(0), cpu(1)]" */
} ls_prediction;

/* Predicts rows. Stores loss and number of correct rows in *out; these two numbers are meaningless
 * if desc->labels is NULL. Stores the model's outputs in `scores` [rows][classes], unless it is
 * NULL. Returns when all devices have finished. The results are bit-identical for any number of
 * devices. Errors: those of ls_device_pool_create and of the back end, LS_ENOMEM. */
int ls_predict(ls_prediction *out, float *scores, const ls_predict_desc *desc, ls_error *err);

/* ---- verbs: options that select a run and change its config ---------------------------------- */

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
    bool json, train, best;
    bool skip_broken; /* predict: --skip-broken */
    bool needs_data;  /* open the run's data as well */
    cli_list set;
    char **rest; /* the arguments after RUN that are not options */
    int rest_count;
} cli_trained_args;

/* A verb that uses a trained model. */
typedef struct cli_trained_verb {
    const char *name;
    /* Letters of the options that the verb accepts: 'k' --skip-broken, 'j' --json, 't' --train, 'r'
     * --rows, 'o' --to, 'd' --devices, 'n' --data. */
    const char *letters;
    const char *help;
    /* Checks the arguments that only this verb has, and sets needs_data. Returns 0, or EXIT_USAGE
     * after a message. */
    int (*check)(cli_trained_args *a);
    /* Runs the verb with the opened model, and returns the exit code. */
    int (*run)(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry);
} cli_trained_verb;

extern const cli_trained_verb cli_eval, cli_predict, cli_export;

/* Reads the arguments of a verb, opens the trained model and runs the verb, or prints the verb's
 * help text. Returns the exit code, after a message if it fails. `registry`: the back ends. */
int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry);

#endif
