/* The config of a run: the config file, checked, with defaults and `--set` applied. The part of it
 * on which the weights depend is called the recipe.
 *
 * Each key is one row of a table (config_rows.c). Reading, writing, the comparison of recipes and
 * the documentation all use this table. Reading happens in two steps: ls_config_read needs only the
 * file; ls_config_fit_data sets the values that depend on the data.
 *
 * Threads: a config is not shared while it is written; any thread may read it.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include "comm/comm.h"
#include "config/metrics.h"
#include "data/dataset.h"
#include "device/registry.h"
#include "nn/loss.h"
#include "nn/model.h"
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
    /* The rate grows linearly from `minimum` and falls again, once in every `every` epochs. */
    LS_SCHEDULE_TRIANGULAR,
    /* The rate grows from `minimum` by the same factor in each of `steps` steps. After them it is
     * the full rate. */
    LS_SCHEDULE_EXPONENTIAL
} ls_schedule_rule;

/* A schedule. Which fields are used depends on the rule. The full rate is ls_config_lr. */
typedef struct ls_schedule {
    ls_schedule_rule rule;
    double warmup; /* number of epochs in which the rate grows linearly from 0 to the full rate */
    double every;  /* period in epochs */
    double gamma;  /* factor of the rate after each period */
    double minimum, start; /* lowest and first rate, as fractions of the full rate */
    double peak;           /* fraction of the run at which the full rate is reached */
    double steps; /* LS_SCHEDULE_EXPONENTIAL: number of steps; the last has the full rate */
} ls_schedule;

/* Value of cluster.engine: the library that connects the processes of a run. Connections by TCP do
 * not need the key, because the caller requests them with ls_trainer_cluster.wire. */
typedef enum ls_process_engine {
    /* MPI if a launcher has started several processes. */
    LS_PROCESSES_AUTO,
    LS_PROCESSES_NONE,
    LS_PROCESSES_MPI
} ls_process_engine;

/* All values of a config. */
typedef struct ls_config {
    ls_json *doc;      /* parsed text, owned; texts and nodes below belong to it */
    const cJSON *node; /* object of `doc` that has the keys; NULL: its root */
    /* True: the text is the config.json of a run or a saved recipe. False: the user wrote it. A run
     * of version 0.2 or before may have written it, so keys may have their former names. */
    bool written;
    ls_json *model_doc;     /* parsed model file, owned; NULL: the model is in `doc` */
    const cJSON *model;     /* the model object in one of these two documents */
    const char *model_path; /* path of the model file; NULL: none */
    const char *name;
    const char *data_name, *data_path; /* data_path NULL: the data is searched for */
    int data_limit;                    /* largest number of training rows; 0: all */
    ls_data_keys data_keys; /* keys of `data` that describe the user's own files, such as data.x and
                             * data.target */
    const char *devices;
    int precision; /* an ls_precision */
    int batch_size, epochs, eval_every, threads;
    /* Number of shards of a minibatch; 0: one for each device; −1: the default, which
     * ls_config_shards computes when the model is known. */
    int shards;
    uint64_t seed;
    /* Non-zero: gradients are divided by batch_size instead of the minibatch's number of rows. */
    int nominal;
    /* name of a communicator; which names exist depends on the kind of devices */
    const char *allreduce;
    ls_optimizer optimizer;
    ls_init init;
    const char *init_weights; /* path of a safetensors file with the first weights; NULL: `init`
                               * sets them */
    /* Non-zero: only the tensors of init_weights that fit the model are used, and `init` sets the
     * other parameters. */
    int init_partial;
    ls_schedule schedule;
    /* patterns of parameter names, as in ls_model_set_rates; NULL: none */
    const cJSON *freeze, *lr_factors;
    /* Non-zero: optimizer.lr is the rate for a minibatch of 256 rows, and is multiplied by
     * batch_size / 256. */
    int linear_scaling;
    const char *loss_name; /* name of the loss; "auto": the one that fits the data */
    /* Set by ls_config_fit_data, like the members of `preprocessing` that describe a row. */
    const ls_loss *loss;
    double label_smoothing;
    const cJSON *class_weights; /* value of class_weights; NULL: none */
    ls_gather preprocessing;    /* normalisation, and augmentation of training rows */
    double brightness, mixup;   /* values of the keys; `preprocessing` has them in 256ths */
    int capacities; /* number of entries of `capacity`, one for each device; 0: all are equal */
    double capacity[LS_DEVICES_MAX]; /* relative speed of each device */
    const char *run_dir;             /* path; "": no directory; NULL: runs/<time>-<name> */
    int tensorboard;                 /* non-zero: the run writes event files to its directory */
    const cJSON *metric_names;       /* names of the metrics; NULL: those that fit the loss */
    unsigned metrics; /* bit mask of metrics, 1 << ls_metric; set by ls_config_fit_data */
    /* Metric that decides which evaluation is the best; "auto": one that fits. */
    const char *monitor_name;
    ls_metric monitor; /* the chosen metric; set by ls_config_fit_data */
    /* Number of consecutive evaluations without improvement after which the run ends; 0: it does
     * not end early. */
    int patience;
    struct {
        int every_steps;  /* number of steps between checkpoints; 0: none by steps */
        int every_epochs; /* number of epochs between checkpoints; 0: none by epochs */
        int keep;         /* number of checkpoints that are kept, ≥ 1 */
        int async;        /* non-zero: training goes on while a checkpoint is written */
        int best;         /* non-zero: the checkpoint of the best evaluation is also kept */
    } checkpoint;
    struct {
        int engine;        /* an ls_process_engine */
        double deadline_s; /* seconds without a message after which another host counts as lost; 0:
                            * 30 */
        int survives_loss; /* non-zero: the run goes on without lost members; 0: it stops */
        int admits;        /* non-zero: further hosts are admitted at the end of an epoch */
    } cluster;
    /* seconds without progress after which a worker counts as failed; 0: derived from measured
     * steps */
    double deadline_s;
    /* Number of steps between comparisons of the replicas; 0: they are compared at checkpoints and
     * at the end of each epoch. */
    int verify_every_steps;
    int stop_on_device_loss; /* non-zero: the run stops when a device is lost; 0: the other devices
                              * go on */
    /* Non-zero: a step whose loss is not finite is not applied; 0: the run stops at such a loss. */
    int skip_nonfinite;
    const ls_host *host;
} ls_config;

/* Checks the arrays of the caller's options: each has as many entries as its count says, and none
 * is NULL. Errors: LS_EINVAL, which names the entry. */
int ls_config_check_options(const ls_trainer_options *options, ls_error *err);
/* Checks an array of `count` texts, which messages call options.`name`. Errors: as above. */
int ls_config_check_texts(const char *const *text, int count, const char *name, ls_error *err);

/* Reads and checks a config, except the model's layers, which need the data's shape. The caller
 * frees it with ls_config_fini. Errors: LS_ECONFIG with file, line and column; LS_ENOENT, LS_EIO,
 * LS_EINVAL, LS_ENOMEM. */
int ls_config_read(ls_config *out, const ls_trainer_options *options, ls_error *err);
/* Reads the config.json of a run's directory, at `path`, in place of the options' config. Keys in
 * the file may have former names. Keys in options->set must have their present names, because the
 * user writes them now. Errors: those of ls_config_read. */
int ls_config_read_of_run(ls_config *out, const char *path, const ls_trainer_options *options,
                          ls_error *err);
/* Frees a config's contents. A zeroed config is allowed. */
void ls_config_fini(ls_config *config);

/* Returns the learning rate before the schedule: optimizer.lr, scaled with batch_size if lr_scaling
 * is "linear". */
double ls_config_lr(const ls_config *config);

/* Returns whether data.KEY is on, where KEY is "standardize" or "standardize_target". `set`: the
 * value in the config, 0 or 1; −1: the config has no value. The key is then on if it exists for the
 * kind of data that data.name selects. */
bool ls_config_standardizes(const ls_config *config, const char *key, int set);

/* Returns the learning rate of step `step` (from 0) according to the schedule. */
float ls_config_rate(const ls_config *config, uint64_t step, uint32_t steps_per_epoch);

/* Returns the default of `shards` for a minibatch of `rows` rows. It depends only on the recipe.
 *
 * A number of shards is worth while if computing a shard takes longer than adding its gradient to
 * the sum. This is taken to be so if
 *
 * - each shard has at least LS_SHARD_ROWS rows, and
 * - each shard uses each weight at least LS_SHARD_USES times, or 2 · LS_SHARD_USES times with more
 *   than two shards. Two shards are also worth while if each computes at least LS_SHARD_PRODUCTS
 *   products of an input and a weight in a forward pass.
 *
 * The default is the largest power of two up to 8 that is worth while, or 1. CPUs compute sixteen
 * rows at once, so a shard is padded to groups of sixteen rows. Another number up to 8 is returned
 * if it is worth while, has fewer groups in total, and gives no worker more groups, be there two
 * workers or eight: 3 shards for 48 rows, 6 for 96.
 *
 * `uses`: average number of uses of a weight by one row: 1 in a dense layer, the number of pixels
 * in a convolution. `weights`: number of weights of the model. */
enum { LS_SHARD_ROWS = 16, LS_SHARD_USES = 64, LS_SHARD_PRODUCTS = 500000 };
int ls_shards_for(int rows, double uses, double weights);
/* Returns the same default, with `uses` and `weights` computed from a model. */
int ls_shards_of(int rows, const ls_model *model);
/* Returns the average number of uses of a weight by one row, as for ls_shards_for. */
double ls_uses_of_weights(const ls_model *model);
/* Returns the value of the key `shards`: a number, or 0 for one shard per device. If the config
 * does not have the key, returns the default for batch_size and this model. */
int ls_config_shards(const ls_config *config, const ls_model *model);

/* Returns the document to which the model's nodes belong. */
const ls_json *ls_config_model_doc(const ls_config *config);

/* Fails with a message that begins with the place of a key such as "data.limit", or of the file if
 * the key is not set. Returns `status`. */
int ls_config_fail(ls_error *err, const ls_config *config, const char *key, int status,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Opens both splits of the data that a config names. `options` contain the directories to search
 * and the caller's own data sources. `labels_alone`: as in ls_dataset_spec. Errors: those of
 * ls_dataset_open, LS_ECONFIG with the place of the key. */
int ls_config_open_data(ls_dataset **train, ls_dataset **test, const ls_config *config,
                        bool labels_alone, const ls_trainer_options *options, ls_error *err);
/* Fits the config to the data: bytes or floats, classes or vectors, the loss, and the metrics for
 * an evaluation of `rows` rows. Errors: LS_ECONFIG (the loss, a metric, an augmentation or the
 * smoothing of labels is for other data). */
int ls_config_fit_data(ls_config *config, const ls_dataset_info *info, uint32_t rows,
                       ls_error *err);
/* Returns the metrics that an evaluation of `rows` rows measures. *Scores* are the model's outputs
 * for all these rows, `outputs` floats for each; most metrics are computed from them. Returns
 * config->metrics, unless metrics.names is "auto" and the scores take more than LS_SCORES_BYTES
 * bytes: then returns only the metrics that need no scores, and logs that. */
unsigned ls_config_metrics_of(const ls_config *config, uint32_t rows, int outputs);
/* Fails with LS_ENOMEM because the scores of `rows` rows do not fit in memory. The message begins
 * with the place of metrics.names in the config. */
int ls_config_fail_scores(ls_error *err, const ls_config *config, uint32_t rows, int outputs);
/* Allocates the weights of the classes, [classes], which the caller frees; NULL if the config has
 * no class_weights. `train`: rows that "balanced" counts; a weight is rows / (classes · rows of the
 * class). Errors: LS_ECONFIG, LS_ENOMEM; LS_EDATA (a label is not below the number of classes). */
int ls_config_class_weights(float **out, const ls_config *config, const ls_dataset *train,
                            int classes, ls_error *err);
/* Finds the properties of the data that follow from data.name alone. Errors: those of
 * ls_dataset_find, with the place of data.name. */
int ls_config_find_data(const ls_dataset_about **out, const ls_config *config, ls_error *err);

/* Writes the recipe: everything on which the weights depend, which a resumed run must not change.
 * `shards`: the number of shards of the run. It is written instead of the key's value, because that
 * may be "devices". */
void ls_config_write_recipe(ls_json_writer *w, const char *key, const ls_config *config,
                            int shards);

/* Reads a recipe from the member `node` of `doc`, which owns its texts. Errors: LS_ECONFIG with
 * file, line and column. */
int ls_config_read_recipe(ls_config *out, const ls_json *doc, const cJSON *node,
                          const ls_host *host, ls_error *err);

/* Write and read the part of a recipe on which a prediction depends: model, preprocessing, loss. */
void ls_config_write_of_model(ls_json_writer *w, const char *key, const ls_config *config);
int ls_config_read_of_model(ls_config *out, const ls_json *doc, const cJSON *node,
                            const ls_host *host, ls_error *err);

/* Compares a config with the recipe of a run. `shards` is the number of shards that the config
 * results in. Errors: LS_ECONFIG with the place of the first key that differs, LS_ENOMEM. */
int ls_config_same_recipe(const ls_config *config, int shards, const ls_config *recipe,
                          ls_error *err);

/* Writes the resolved config as a member `key`; NULL: as the whole document. */
void ls_config_write(ls_json_writer *w, const char *key, const ls_config *config);

/* Returns the resolved config as indented JSON, which the caller frees with ls_free. Errors:
 * LS_ENOMEM. */
int ls_config_text(char **out, const ls_config *config, const ls_host *host, ls_error *err);

/* ---- the schedule: the learning rate of every step, a pure function of its number ----------- */

/* Reads a schedule: a rule's name, or an object {"name": …, "warmup_epochs": 0, "every_epochs": 30,
 * "gamma": 0.1, "minimum": 0, "peak": 0.3, "start": 0.04, "steps": 300} with the keys that the rule
 * has. `node` NULL: "constant". Errors: LS_ECONFIG. */
int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* Writes a schedule as a member of the resolved config. */
void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *schedule);

/* Returns the learning rate of step `step` (from 0) of `steps_per_epoch` × `epochs` steps. During a
 * warm-up of W steps, step t has the rate lr·(t + 1)/W. LS_SCHEDULE_COSINE runs from the end of the
 * warm-up to the run's last step. LS_SCHEDULE_STEP counts its epochs from the start of the run,
 * warm-up included. Only these two and LS_SCHEDULE_CONSTANT have a warm-up. one_cycle is PyTorch's
 * OneCycleLR; triangular is its CyclicLR with `every_epochs` for the whole cycle. */
double ls_schedule_rate(const ls_schedule *schedule, double lr, uint64_t step,
                        uint64_t steps_per_epoch, uint64_t epochs);

/* ---- the keys: one row each ----------------------------------------------------------------- */

/* Type of a key's value. Reading, the resolved config, the comparison when a run is resumed,
 * `trainer --help config` and the table in the documentation all use the rows. To add a key, add a
 * row, a member of ls_config, and the code that uses it. */
typedef enum ls_key_kind {
    LS_KEY_INT,    /* int from `min` to `max` */
    LS_KEY_NUMBER, /* double from `min` to `max` */
    LS_KEY_BOOL,   /* an int in ls_config that is 0 or 1, not a bool */
    /* const char *, which belongs to the document; if the key is absent, `text`, which may be
     * NULL. */
    LS_KEY_TEXT,
    LS_KEY_CHOICE, /* an int in ls_config: the index of the value in `choices` */
    LS_KEY_CUSTOM  /* any other type, which the row's functions `read` and `write` handle */
} ls_key_kind;

/* Whether the final weights depend on a key. A resumed run must have the same recipe. */
typedef enum ls_key_part {
    /* no: the key is about devices, output, the frequency of evaluations and checkpoints, or
     * supervision */
    LS_NOT_RECIPE,
    LS_RECIPE,           /* yes */
    LS_RECIPE_OF_LENGTH, /* yes, but only with a schedule that depends on the length of the run,
                          * cosine or one_cycle */
    /* Yes, and predictions depend on the key as well, so files of weights contain it. */
    LS_RECIPE_OF_MODEL
} ls_key_part;

typedef struct ls_config_key ls_config_key;

/* A key of the config: one row of the table. */
struct ls_config_key {
    const char *group; /* object that contains the key; "": the config itself */
    const char *key;
    ls_key_kind kind;
    ls_key_part part;
    size_t at;       /* offset of the value in ls_config */
    double fallback; /* default of numbers, flags and choices */
    double min, max;
    /* Default of a text; for LS_KEY_CUSTOM, the default as the documentation shows it. */
    const char *text;
    const char *const *choices;
    /* Functions for LS_KEY_CUSTOM. `node` is NULL if the key is absent. `read` is called only if no
     * error has occurred before. */
    void (*read)(ls_config *config, ls_fields *fields, const ls_config_key *row, const cJSON *node);
    void (*write)(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
    const char *help; /* description in Markdown, one or two sentences */
    /* Name of the key in version 0.2 and before, which config.json of a run may contain; NULL: the
     * key had the same name. */
    const char *former;
};

/* All rows, those of a group one after another; the last row has the key NULL. */
extern const ls_config_key ls_config_keys[];

/* Read and write a row's value according to its kind. */
void ls_config_read_key(ls_config *config, ls_fields *fields, const ls_config_key *row);
void ls_config_write_key(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
/* Returns whether the value differs from the default. Returns false for most keys of LS_KEY_CUSTOM,
 * whose default is not known here. */
bool ls_config_is_set(const ls_config *config, const ls_config_key *row);

/* Returns a key's default as it would be written in a config; "required" or "" (none) if it has no
 * default. The result is static text, or `out`. */
const char *ls_config_default(char out[32], const ls_config_key *row);

#endif
