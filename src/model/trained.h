/* SPDX-License-Identifier: MIT */
/* Opens a finished run for use: its config, its model, its weights and its data.
 *
 *     ls_trained_options o = {.path = "runs/20240131-093000-lenet", .needs_data = true, …};
 *     ls_trained trained;
 *     int status = ls_trained_open(&trained, &o, &err);
 *     …
 *     ls_trained_close(&trained); */
#ifndef MODEL_TRAINED_H
#define MODEL_TRAINED_H

#include "checkpoint/run_dir.h"
#include "config/card.h"
#include "data/new_rows.h"
#include "data/pack.h"
#include "nn/replica.h"

#include <lockstep/trainer.h>
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
    /* rows and pictures that cannot be read are left out (ls_input_format, ls_folder_desc) */
    bool skip_broken;
    const char *skip_option; /* as in ls_input_format */
    /* Only these members are used: config_path (a config that replaces the run's config), set,
     * data_dirs, cache_dir, cache_bytes, sys and host. Their values must stay valid until
     * ls_trained_close. */
    ls_trainer_options trainer;
} ls_trained_options;

/* An opened run, or an opened file of weights. */
typedef struct ls_trained {
    const ls_host *host;
    const char *cache_dir; /* directory for devices' choices of kernels; NULL: none */
    /* how pictures are read: pictures, watch and program of the options, and data.skip_broken */
    ls_folder_desc folder;
    ls_config config;
    /* Description of the model (config/card.h). It is read from the file of weights. If that file
     * was written by another program and has no description, the description is made from the
     * config and the data. */
    ls_card card;
    /* `config` was read from the card, not from a config file, and belongs to the card; it must not
     * be freed separately */
    bool config_in_card;
    ls_network *model;
    float *weights; /* [model->floats], in the canonical layout (nn/network.h) */
    /* the training and the test split; NULL: the data was not requested, or has no such split */
    ls_dataset *data[LS_SUBSETS];
    bool is_new;                  /* `data` is that of ls_trained_options.new_data */
    char *weights_path;           /* file from which the weights were read */
    ls_tensor_file *weights_file; /* the opened file; NULL in a view */
    ls_input_format input_format; /* how the model reads rows */
    const char **class_name;      /* owned array, input_format.class_name */
} ls_trained;

/* Finds the run that a user names, and returns its path, which the caller frees. If nothing is
 * called "latest", that word stands for the newest run in runs/ that has what is needed
 * (ls_run_latest). Errors: those of ls_run_latest, LS_ENOMEM. */
int ls_run_find(char **out, const char *name, ls_run_needs needs, const ls_host *host,
                ls_error *err);
/* Opens a run. Errors: LS_ENOENT (no such run; data or a file is missing), LS_EDATA (a file is
 * damaged, or belongs to another model), LS_EINVAL (the options contradict each other or the run),
 * LS_ECONFIG, LS_EIO, LS_ENOMEM. After a failure nothing is open. */
int ls_trained_open(ls_trained *out, const ls_trained_options *options, ls_error *err);
/* Logs a warning if the opened data are not those of the run in the directory `run_dir`: another
 * number of rows, or files with another checksum. */
void ls_warn_of_changed_data(const ls_trained *trained, const char *run_dir);
/* Closes everything that ls_trained_open has opened. */
void ls_trained_close(ls_trained *trained);

/* Makes *out a view of a model in memory, for rows and evaluations: it refers to the card, the
 * network and the weights of the model, which must outlive it. `weights`: [model->floats]. Errors:
 * LS_ENOMEM, those of ls_config_folder. ls_trained_view_end frees what the view itself has. */
int ls_trained_view(ls_trained *out, const ls_card *card, ls_network *model, float *weights,
                    const ls_host *host, ls_error *err);
/* Opens rows with targets for a view, as ls_trained_options.new_data. Errors: those of
 * ls_trained_open. */
int ls_trained_view_data(ls_trained *view, const char *path, ls_error *err);
void ls_trained_view_end(ls_trained *view);

/* Describes the rows of the training or the test split of the opened data. NULL: they are not open.
 */
const ls_dataset_info *ls_trained_data(const ls_trained *trained, bool train);

/* Returns the name of a class, or NULL. The text is valid until ls_trained_close. */
const char *ls_class_name(const ls_trained *trained, int label);

#endif
