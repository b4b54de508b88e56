/* SPDX-License-Identifier: MIT */
/* The config of a run: the checked values of the config file, with `--set` and the defaults
 * applied.
 *
 * Each key is one row of a table (config_rows.c). Reading, writing, the comparison of recipes and
 * the documentation all use this table. In this file, the row of a *key* is its row in that table;
 * any other row is an example of the data. Reading happens in two steps: ls_config_read needs only
 * the file; ls_config_fit_data sets the values that depend on the data.
 *
 * Threads: a config is not shared while it is written; any thread may read it. */
#ifndef CONFIG_H
#define CONFIG_H

#include "comm/comm.h"
#include "config/keys.h"
#include "config/metrics.h"
#include "data/dataset.h"
#include "device/registry.h"
#include "nn/loss.h"
#include "nn/network.h"
#include "nn/optimizer.h"
#include "json/fields.h"

#include <lockstep/trainer.h>
#include <stdbool.h>

/* How the learning rate changes during a run. */
typedef enum ls_schedule_rule {
    LS_SCHEDULE_CONSTANT, /* the full rate in all steps */
    LS_SCHEDULE_STEP,     /* the rate is multiplied by `gamma` after every `every` epochs */
    /* The rate follows half a cosine from the full rate to `minimum`, up to the end of the run. */
    LS_SCHEDULE_COSINE,
    /* The rate follows half a cosine up from `start`, then one down to `minimum`. */
    LS_SCHEDULE_ONE_CYCLE,
    /* In each period of `every` epochs, the rate grows linearly from `minimum` to the full rate and
     * falls back to `minimum`. */
    LS_SCHEDULE_TRIANGULAR,
    /* The rate grows from `minimum` to the full rate in the first `steps` steps, by the same factor
     * in each. Afterwards it is the full rate. */
    LS_SCHEDULE_EXPONENTIAL
} ls_schedule_rule;

/* A schedule. Which fields are used depends on the rule. The *full rate* is the result of
 * ls_config_lr. */
typedef struct ls_schedule {
    ls_schedule_rule rule;
    double warmup; /* number of epochs in which the rate grows linearly from 0 to the full rate */
    double every;  /* period in epochs */
    double gamma;  /* factor of the rate after each period */
    double minimum, start; /* lowest rate and first rate, as fractions of the full rate */
    double peak;           /* fraction of the run at which the full rate is reached */
    /* LS_SCHEDULE_EXPONENTIAL: number of steps in which the rate grows; the last of them has the
     * full rate */
    double steps;
    double epoch_steps; /* number of steps that the rule takes for an epoch; 0: that of the data */
} ls_schedule;

/* Value of checkpoint.final: the weights that weights.safetensors has at the end of a run. */
typedef enum ls_final_weights {
    LS_FINAL_LAST,
    LS_FINAL_BEST /* the weights of the best evaluation */
} ls_final_weights;

/* Value of cluster.transport: the library that connects the processes of a run. The key is not used
 * for connections by TCP, which the caller requests with ls_trainer_cluster.tcp. */
typedef enum ls_process_transport {
    /* MPI if an MPI launcher has started several processes; otherwise there is one process */
    LS_PROCESSES_AUTO,
    LS_PROCESSES_NONE,
    LS_PROCESSES_MPI
} ls_process_transport;

/* Indices of ls_config.found. */
enum { LS_FOUND_DATA, LS_FOUND_TEST, LS_FOUND_PACKED, LS_FOUND_PATHS };

/* All values of a config. A field without a comment has the value of the key of the same name
 * (docs/config.md describes the keys). */
typedef struct ls_config {
    /* parsed text, owned by the config; the texts and nodes (cJSON) of the fields below belong to
     * it */
    ls_json *doc;
    const cJSON *node; /* object of `doc` that has the keys; NULL: its root */
    /* true: Lockstep wrote the text, as the config.json of a run or as a saved recipe. If version
     * 0.2 or an older one wrote it, some keys have the names of that version. false: the user wrote
     * the text. */
    bool written;
    ls_json *model_doc; /* parsed model file, owned; NULL: the model is in `doc` */
    const cJSON *model; /* the object of the key `model`, in `doc` or in `model_doc` */
    /* path of the model file, as in the config; NULL: the model is in `doc` */
    const char *model_path;
    /* the model that `"model": {"onnx": FILE}` has read, with its weights; owned. NULL: none */
    struct ls_onnx_net *onnx;
    const char *name;
    const char *data_name, *data_path; /* data_path NULL: the data is searched for */
    int data_limit;                    /* largest number of training rows; 0: all */
    ls_data_keys data_keys; /* keys of `data` that describe the user's own files, such as data.x and
                             * data.target */
    const char *devices;
    int precision; /* an ls_precision */
    int batch_size, epochs, eval_every, threads;
    /* Number of shards of a minibatch; 0: one for each device; −1: the config does not have the
     * key, and ls_config_shards computes the default when the model is known. */
    int shards;
    uint64_t seed;
    /* Non-zero: the sum of the rows' gradients is divided by batch_size, even in a minibatch with
     * fewer rows; 0: by the minibatch's number of rows. */
    int nominal;
    /* name of a communicator; which names exist depends on the kind of devices */
    const char *allreduce;
    ls_optimizer optimizer;
    ls_init init;
    /* path of a safetensors file with the weights before the first step; NULL: `init` computes
     * them */
    const char *init_weights;
    /* Non-zero: the file init_weights need not fit the whole model. Its tensors that fit are used,
     * and `init` computes the other parameters. */
    int init_partial;
    ls_schedule schedule;
    /* values of the keys freeze and lr_factors: patterns of parameter names, as in
     * ls_network_set_rates; NULL: none */
    const cJSON *freeze, *lr_factors;
    int freeze_epochs; /* number of epochs for which `freeze` holds; 0: the whole run */
    /* Non-zero: optimizer.lr is the rate for a minibatch of 256 rows, and is multiplied by
     * batch_size / 256. */
    int linear_scaling;
    const char *loss_name; /* value of the key `loss`; "auto": the loss that fits the data */
    /* The loss. ls_config_fit_data sets it, and also those fields of `preprocessing` that describe
     * a row. */
    const ls_loss *loss;
    double label_smoothing;
    double huber_delta;     /* delta of the loss huber */
    const cJSON *quantiles; /* value of the key `quantiles`; NULL: none */
    /* parameters of a loss of vectors; set by ls_config_fit_data */
    ls_vector_loss vector_loss;
    const cJSON *class_weights; /* value of class_weights; NULL: none */
    ls_gather preprocessing;    /* normalisation, and augmentation of training rows */
    /* values of the keys brightness and mixup; `preprocessing` has them in units of 1/256 */
    double brightness, mixup;
    double resized_crop; /* value of the key; `preprocessing` has it in units of 1/65536 */
    int capacities;      /* number of entries of `capacity`; 0: all devices are equally fast */
    double capacity[LS_DEVICES_MAX]; /* [capacities]: relative speed of each device */
    const char *run_dir;             /* path; "": no directory; NULL: runs/<time>-<name> */
    int receipt;                     /* non-zero: the run keeps a chain (checkpoint/chain.h) */
    int tensorboard;                 /* non-zero: the run writes event files to its directory */
    /* value of metrics.names; NULL: the metrics that fit the loss */
    const cJSON *metric_names;
    /* the metrics that are measured, a bit mask of 1 << ls_metric; set by ls_config_fit_data */
    unsigned metrics;
    /* Name of the metric by which the best evaluation is found; "auto": chosen by the loss. */
    const char *monitor_name;
    ls_metric monitor; /* that metric; set by ls_config_fit_data */
    /* The run ends after this number of consecutive evaluations in which `monitor` does not
     * improve; 0: it does not end early. */
    int patience;
    struct {
        /* number of steps from one checkpoint to the next; 0: steps cause no checkpoint */
        int every_steps;
        /* number of epochs from one checkpoint to the next; 0: epochs cause no checkpoint */
        int every_epochs;
        /* time in seconds that must have passed since the last checkpoint before one that is due is
         * written; until then it is kept in memory. 0: it is written at once */
        double every_seconds;
        int keep;  /* number of checkpoints that are kept, ≥ 1 */
        int async; /* non-zero: training goes on while a checkpoint is written */
        int best;  /* non-zero: the checkpoint of the best evaluation is also kept */
        int final; /* an ls_final_weights */
    } checkpoint;
    struct {
        int transport; /* an ls_process_transport */
        /* another host counts as lost if no message has come from it for this time in seconds; 0:
         * 30 seconds */
        double deadline_s;
        /* non-zero: if a process of the run is lost, the others continue; 0: the run stops */
        int survives_loss;
        int admits; /* non-zero: further hosts are admitted at the end of an epoch */
    } cluster;
    /* a worker (the thread of one device) counts as failed if it makes no progress for this time in
     * seconds; 0: the time is computed from the measured duration of steps */
    double deadline_s;
    /* Number of steps between checks that all devices have the same weights; 0: checked at
     * checkpoints and at the end of each epoch. */
    int verify_every_steps;
    /* non-zero: the run stops when a device is lost; 0: it continues on the other devices */
    int stop_on_device_loss;
    /* Non-zero: if the loss of a step is not finite, the weights are not updated in this step, and
     * the run continues; 0: the run stops. */
    int skip_nonfinite;
    /* Owned paths, or NULL: values of data.path, data.test_path and data.packed that are not from
     * the config's text (config_folder.c). */
    char *found[LS_FOUND_PATHS];
    const ls_host *host;
} ls_config;

/* Checks the arrays in the caller's options: an array whose count is not 0 must exist, and none of
 * its entries may be NULL. Errors: LS_EINVAL; the message names the entry. */
int ls_config_check_options(const ls_trainer_options *options, ls_error *err);
/* Checks an array of `count` texts like ls_config_check_options. Messages call the array
 * options.`name`. Errors: those of ls_config_check_options. */
int ls_config_check_texts(const char *const *text, int count, const char *name, ls_error *err);
/* Returns whether the config sets cluster.transport to "none". The config may be wrong otherwise,
 * and the file may be missing; the options must be checked. */
bool ls_config_trains_alone(const ls_trainer_options *options);

/* Reads and checks a config. The model's layers are not checked, because that requires the shape of
 * the data. The caller frees it with ls_config_fini. Errors: LS_ECONFIG with file, line and column;
 * LS_EDATA (an ONNX file is damaged, or has something that is not read), LS_ENOENT, LS_EIO,
 * LS_EINVAL, LS_ENOMEM. */
int ls_config_read(ls_config *out, const ls_trainer_options *options, ls_error *err);
/* Sets run_dir if the config does not: the program's runs get a directory below runs/, and the runs
 * of any other caller none. Errors: LS_EINVAL (options->sys). */
int ls_config_choose_run_dir(ls_config *config, const ls_trainer_options *options, ls_error *err);
/* Reads the config.json of a run's directory, at `path`, in place of the options' config. Keys in
 * the file may have the names of older versions. Keys in options->set must have their present
 * names. Errors: those of ls_config_read. */
int ls_config_read_of_run(ls_config *out, const char *path, const ls_trainer_options *options,
                          ls_error *err);
/* Frees a config's contents. A zeroed config is allowed. */
void ls_config_fini(ls_config *config);

/* Returns the learning rate before the schedule: optimizer.lr, scaled with batch_size if lr_scaling
 * is "linear". */
double ls_config_lr(const ls_config *config);

/* Returns the value of data.`key`, where `key` is "standardize" or "standardize_target". `set` is
 * the value in the config, 0 or 1, or −1 if the config does not have the key. The default is true
 * if the kind of data that data.name selects has the key, else false. */
bool ls_config_standardizes(const ls_config *config, const char *key, int set);

/* Returns the learning rate of step number `step`, from 0, according to the schedule. `full`: the
 * full rate, such as that of ls_config_lr. */
double ls_config_rate(const ls_config *config, double full, uint64_t step,
                      uint32_t steps_per_epoch);

/* Returns the default of the key `shards` for a minibatch of `rows` rows.
 *
 * More shards let more devices compute, but each shard has a gradient that must be added to the
 * sum. A number of shards is *worth while* if the time to compute a shard exceeds the time to add
 * its gradient. The function assumes this if
 *
 * - each shard has at least LS_SHARD_ROWS rows, and
 * - with two shards: each shard uses each weight at least LS_SHARD_USES times, or computes at least
 *   LS_SHARD_PRODUCTS products of an input and a weight in a forward pass;
 *   with more shards: each shard uses each weight at least 2 · LS_SHARD_USES times.
 *
 * The default is usually the largest power of two up to 8 that is worth while, or 1. But CPUs
 * compute sixteen rows at once, so a shard is padded to a multiple of sixteen rows. Another number
 * up to 8 is chosen instead (3 shards for 48 rows, 6 for 96) if
 *
 * - it is worth while,
 * - the padded shards of the minibatch then have fewer rows in total, and
 * - the busiest worker then has no more padded rows, in a run with two workers and in a run with
 *   eight.
 *
 * `uses`: how often one row uses a weight, on average over all weights: once in a dense layer, once
 * for each output pixel in a convolution. `weights`: number of weights of the model. */
enum { LS_SHARD_ROWS = 16, LS_SHARD_USES = 64, LS_SHARD_PRODUCTS = 500000 };
int ls_shards_for(int rows, double uses, double weights);
/* Returns the default of the key `shards` for a model: ls_shards_for, with `uses` and `weights` of
 * this model. */
int ls_shards_of(int rows, const ls_network *model);
/* Returns how often one row uses a weight, on average over all weights (`uses` of
 * ls_shards_for). */
double ls_uses_of_weights(const ls_network *model);
/* Returns the value of the key `shards`: a number, or 0 for one shard per device. If the config
 * does not have the key, returns the default for batch_size and this model. */
int ls_config_shards(const ls_config *config, const ls_network *model);

/* Sets the learning-rate factors of the model's parameters (ls_network_set_rates). `held`: those of
 * the first freeze_epochs epochs, in which `freeze` holds; otherwise those of the rest of the run,
 * with `freeze` only if freeze_epochs is 0. Errors: those of ls_network_set_rates; LS_ECONFIG if
 * freeze_epochs has nothing to release. */
int ls_config_set_rates(ls_network *model, const ls_config *config, bool held, ls_error *err);

/* Returns the document to which the model's nodes belong. */
const ls_json *ls_config_model_doc(const ls_config *config);

/* Fails with a message that begins with file, line and column of a key such as "data.limit", or
 * with the file alone if the config does not have the key. Returns `status`. */
int ls_config_fail(ls_error *err, const ls_config *config, const char *key, int status,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Returns whether the config names a loss that compares vectors, so that targets are values or
 * yes-or-no answers, not classes. */
bool ls_config_loss_is_of_vectors(const ls_config *config);

/* Opens both splits of the data that a config names. `options` contain the directories to search
 * and the caller's own data sources. `labels_only`: as in ls_dataset_spec. Errors: those of
 * ls_dataset_open, with LS_EDATA for a file that has something that is not read; LS_ECONFIG with
 * line and column of the key. */
int ls_config_open_data(ls_dataset **train, ls_dataset **test, const ls_config *config,
                        bool labels_only, const ls_trainer_options *options, ls_error *err);
/* If the data is a folder of images, makes sure that options->cache_dir has a packed file of the
 * folder's present state (data/folder.h), and sets data.packed to its path. Does nothing for other
 * data, or if the config names a packed file outside the cache. Errors: those of
 * ls_folder_pack_cached; LS_ECONFIG with line and column of the key; LS_ENOENT (no cache). */
int ls_config_pack(ls_config *config, const ls_trainer_options *options, ls_error *err);
/* Describes the folder of images that the config names, with the functions and callbacks of
 * options->sys. Errors: LS_EINVAL (another version of ls_trainer_sys). */
struct ls_folder_desc;
int ls_config_folder(struct ls_folder_desc *out, const ls_config *config,
                     const ls_trainer_options *options, ls_error *err);
/* For a run that is resumed with its own config, which was read from `config_path`: finds the run's
 * data where it is now.
 *
 * - If the folder or the table was moved together with the run's directory, sets its new path.
 * - If the data is a folder of images whose packed file in the cache no longer exists, packs the
 *   folder once more, or fails with a message about what is missing.
 *
 * Errors: those of ls_config_pack. */
int ls_config_find_run_data(ls_config *config, const char *config_path,
                            const ls_trainer_options *options, ls_error *err);
/* Does only the first of the two things that ls_config_find_run_data does. `config_path` NULL: does
 * nothing. */
void ls_config_find_beside(ls_config *config, const char *config_path);
/* For a trained model: packs the folder of the config once more, with the classes of the model,
 * which `format` describes. Does nothing if data.packed is not in the cache, or if only the packed
 * file exists. `other_folder`: the user has named another folder than that of data.packed, which
 * must exist. Errors: those of ls_config_pack. */
struct ls_input_format;
int ls_config_pack_again(ls_config *config, const ls_trainer_options *options,
                         const struct ls_input_format *format, bool other_folder, ls_error *err);
/* Sets the values of the config that depend on the data: the preprocessing of bytes or floats, the
 * loss for classes or vectors, and the metrics. `rows`: number of rows of an evaluation. Errors:
 * LS_ECONFIG (the loss, a metric, an augmentation or the smoothing of labels does not suit the
 * data). */
int ls_config_fit_data(ls_config *config, const ls_dataset_info *info, uint32_t rows,
                       ls_error *err);
/* Returns the number of outputs that the model has for each target: the number of quantiles if the
 * loss is `quantile`, else 1. May be called before ls_config_fit_data, which checks the quantiles.
 */
int ls_config_parts(const ls_config *config);
/* Returns the number of outputs of a model that learns this data. */
int ls_config_outputs(const ls_config *config, const ls_dataset_info *info);
/* Returns the metrics that an evaluation of `rows` rows measures: config->metrics. *Scores* are the
 * model's outputs for all these rows, `outputs` floats for each row; most metrics are computed from
 * the scores (metrics.h). If metrics.names is "auto" and ls_metrics_bytes are more than
 * LS_SCORES_BYTES, returns only loss and accuracy, and logs a line about it. `weighted`: the rows
 * have weights. */
unsigned ls_config_metrics_of(const ls_config *config, uint32_t rows, int outputs, bool weighted);
/* Fails with LS_ENOMEM because the scores of `rows` rows do not fit in memory. The message begins
 * with the place of metrics.names in the config. */
int ls_config_fail_scores(ls_error *err, const ls_config *config, uint32_t rows, int outputs);
/* Computes the weights of the classes in the loss. *out becomes an array [classes], which the
 * caller frees, or NULL if the config has no class_weights. With "balanced", the weight of a class
 * is rows / (classes · rows of the class), counted in `train`. Errors: LS_ECONFIG, LS_ENOMEM;
 * LS_EDATA (a label is not below the number of classes). */
int ls_config_class_weights(float **out, const ls_config *config, const ls_dataset *train,
                            int classes, ls_error *err);
/* Finds the properties of the data that follow from data.name alone. Errors: those of
 * ls_dataset_find, with line and column of data.name. */
int ls_config_find_data(const ls_dataset_about **out, const ls_config *config, ls_error *err);

/* Writes the recipe as the JSON member `key`. `shards`: the run's number of shards, which is
 * written even if the config's key `shards` is "devices". */
void ls_config_write_recipe(ls_json_writer *w, const char *key, const ls_config *config,
                            int shards);

/* Writes the keys that the hashes of a run's states contain (checkpoint/chain.h) as the JSON object
 * `key`: the keys of the recipe on which steps depend, that is, all except those that name files or
 * say how the first weights come about (ls_config_key.begins). A key without which the config would
 * be the same, because it has its default, is left out, and so are such members of a value that is
 * an object. So a key that a later version adds changes no hash, as long as its default means what
 * versions without it do, and a default must not change unless the version of the kernels does. The
 * members have dotted names, such as "augment.flip", in the order of their bytes.
 * `shards`: as for ls_config_write_recipe. `rows`: ls_config_keys; a test adds a row. */
void ls_config_write_hashed(ls_json_writer *w, const char *key, const ls_config *config, int shards,
                            const ls_config_key *rows);

/* Writes the keys that decide when and by which metrics the run is evaluated, and when it ends
 * (ls_config_key.judges), as the JSON member `key`. */
void ls_config_write_of_evaluations(ls_json_writer *w, const char *key, const ls_config *config);

/* Reads a recipe from the node `node` of `doc`. The texts of *out belong to `doc`, which must
 * outlive it. Errors: LS_ECONFIG with file, line and column. */
int ls_config_read_recipe(ls_config *out, const ls_json *doc, const cJSON *node,
                          const ls_host *host, ls_error *err);

/* Writes the part of the recipe on which a prediction depends: model, preprocessing, loss. */
void ls_config_write_of_model(ls_json_writer *w, const char *key, const ls_config *config);
/* Reads what ls_config_write_of_model has written; otherwise like ls_config_read_recipe. */
int ls_config_read_of_model(ls_config *out, const ls_json *doc, const cJSON *node,
                            const ls_host *host, ls_error *err);

/* Checks that `config` has the recipe `recipe` of a run. `shards`: the number of shards that
 * follows from `config`. Errors: LS_ECONFIG with line and column of the first key that differs;
 * LS_ENOMEM. */
int ls_config_same_recipe(const ls_config *config, int shards, const ls_config *recipe,
                          ls_error *err);

/* Writes the resolved config, in which every key has a value, as the JSON member `key`. `key` NULL:
 * as the whole document. */
void ls_config_write(ls_json_writer *w, const char *key, const ls_config *config);

/* Returns the resolved config as indented JSON, which the caller frees with ls_free. Errors:
 * LS_ENOMEM. */
int ls_config_text(char **out, const ls_config *config, const ls_host *host, ls_error *err);

/* ---- the schedule: computes the learning rate of a step from the step's number -------------- */

/* Reads a schedule: a rule's name, or an object {"name": …, "warmup_epochs": 0, "every_epochs": 30,
 * "gamma": 0.1, "minimum": 0, "peak": 0.3, "start": 0.04, "steps": 300} with those keys that the
 * rule has. `node` NULL: "constant". Errors: LS_ECONFIG. */
int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* Writes a schedule as a member of the resolved config. */
void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *schedule);

/* Returns the learning rate of step `step` (from 0) of `steps_per_epoch` × `epochs` steps. The
 * rules "constant", "step" and "cosine" may begin with a warm-up: in a warm-up of W steps, step t
 * has the rate lr·(t + 1)/W. The cosine begins at the end of the warm-up and ends at the run's last
 * step. "step" counts its epochs from the start of the run, the warm-up included. "one_cycle" is
 * PyTorch's OneCycleLR. "triangular" is PyTorch's CyclicLR, with `every_epochs` as the length of
 * the whole cycle. */
double ls_schedule_rate(const ls_schedule *schedule, double lr, uint64_t step,
                        uint64_t steps_per_epoch, uint64_t epochs);

/* ---- the keys (keys.h) ----------------------------------------------------------------------- */

/* Reads the value of a row's key according to the row's kind. */
void ls_config_read_key(ls_config *config, ls_fields *fields, const ls_config_key *row);
/* Writes the value of a row's key according to the row's kind. */
void ls_config_write_key(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
/* Replaces the contents of `w` by the key and its value as JSON in braces, {"KEY": VALUE}, or {} if
 * the key has no value. Returns the text, which is valid until `w` changes; NULL: out of memory. */
const char *ls_config_key_text(ls_json_writer *w, const ls_config *config,
                               const ls_config_key *row);
struct ls_onnx_source;
/* Reads which part of an ONNX file is a model: the keys "output", "input" and "head" of an object.
 * The texts belong to the document. */
void ls_config_read_part(struct ls_onnx_source *out, ls_fields *fields);
/* Returns whether the key belongs to the recipe of this config. */
bool ls_config_key_is_of_recipe(const ls_config *config, const ls_config_key *row);
/* Returns whether the key's value differs from its default. For most keys of the kind LS_KEY_CUSTOM
 * it always returns false, because the table does not contain their default as a value. */
bool ls_config_is_set(const ls_config *config, const ls_config_key *row);

#endif
