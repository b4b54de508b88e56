/* The recipe of a run: the config file, checked, with defaults and `--set` applied. */
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

typedef enum ls_schedule_rule {
    LS_SCHEDULE_CONSTANT,
    LS_SCHEDULE_STEP,       /* × gamma after every `every` epochs */
    LS_SCHEDULE_COSINE,     /* half a cosine from the full rate to `minimum`, over the whole run */
    LS_SCHEDULE_ONE_CYCLE,  /* half a cosine up from `start`, then one down to `minimum` */
    LS_SCHEDULE_TRIANGULAR, /* straight up from `minimum` and down again, every `every` epochs */
    LS_SCHEDULE_EXPONENTIAL /* up from `minimum` by the same factor each of `steps` steps, and on at the full rate */
} ls_schedule_rule;

typedef struct ls_schedule {
    ls_schedule_rule rule;
    double warmup; /* epochs in which the rate grows linearly from 0 to the full rate */
    double every;  /* epochs */
    double gamma;
    double minimum, start; /* fractions of the full rate */
    double peak;           /* where in the run the full rate is reached */
    double steps;          /* of an exponential; the last of them has the full rate */
} ls_schedule;

typedef enum ls_cluster_engine {
    LS_ENGINE_AUTO, /* where a launcher has started several processes */
    LS_ENGINE_NONE,
    LS_ENGINE_MPI
} ls_cluster_engine;

typedef struct ls_config {
    ls_json *doc;      /* owned: texts and nodes below belong to it */
    const cJSON *node; /* of doc: where the keys are; NULL: its root */
    bool
        written; /* a run has written the text, maybe one of 0.2 or before: keys may have former names */
    ls_json *model_doc;     /* the model's file, when it is not inline; owned */
    const cJSON *model;     /* the model object, in one of the two */
    const char *model_path; /* NULL: inline */
    const char *name;
    const char *data_name, *data_path; /* data_path NULL: search */
    int data_limit;                    /* training rows, 0: all */
    ls_data_keys data_keys;            /* of the user's own data */
    const char *devices;
    int precision; /* an ls_precision */
    int batch_size, epochs, eval_every, threads;
    int shards; /* 0: one per device; −1: ls_config_shards knows, once there is a model */
    uint64_t seed;
    int nominal;           /* divide by batch_size, not by the rows of the minibatch */
    const char *allreduce; /* a communicator's name; which there are depends on the devices */
    ls_optimizer optimizer;
    ls_init init;
    const char *init_weights; /* a safetensors file that the run begins with; NULL: `init` */
    int init_partial;         /* what of it fits; the rest by `init` */
    ls_schedule schedule;
    const cJSON *freeze, *lr_factors; /* by patterns of names; NULL: none */
    int linear_scaling;    /* lr is meant for a minibatch of 256 rows, and scaled with batch_size */
    const char *loss_name; /* "auto": what fits the data */
    const ls_loss *loss;   /* by ls_config_fit_data, as what a row is in `preprocessing` */
    double label_smoothing;
    const cJSON *class_weights; /* of cross-entropy; NULL: none */
    ls_gather preprocessing;    /* normalisation, and augmentation of training rows */
    double brightness, mixup;   /* of it, which has them in 256ths */
    int capacities;             /* 0: devices are equal; else one number per device */
    double capacity[LS_DEVICES_MAX];
    const char *run_dir;       /* "": none; NULL: runs/<time>-<name> */
    int tensorboard;           /* non-zero: event files in the run directory */
    const cJSON *metric_names; /* that are measured; NULL: what fits the loss */
    unsigned metrics;          /* the same, 1 << ls_metric each: by ls_config_fit_data */
    const char *monitor_name;  /* what decides which evaluation is the best; "auto": what fits */
    ls_metric monitor;         /* the same: by ls_config_fit_data */
    int patience; /* evaluations that are not better, in a row, end the run; 0: none do */
    struct {
        int every_steps;  /* 0: never */
        int every_epochs; /* 0: never */
        int keep;         /* how many are kept, ≥ 1 */
        int async;        /* training goes on while one is written */
        int best;         /* the one behind the best evaluation is kept besides */
    } checkpoint;
    struct {
        int engine;        /* an ls_cluster_engine */
        double deadline_s; /* 0: 30 */
        int survives_loss; /* goes on without members that are lost; else the run stops */
    } cluster;
    double deadline_s;       /* 0: derived from the steps that were measured */
    int verify_every_steps;  /* replicas are compared; 0: at checkpoints and ends of epochs */
    int stop_on_device_loss; /* else the survivors go on */
    int skip_nonfinite;      /* a step whose loss is not finite is left out; else the run stops */
    const ls_host *host;
} ls_config;

/* The arrays of the caller's options: each has as many entries as its count says, and none is NULL. Errors:
 * LS_EINVAL, which names the entry. */
int ls_config_check_options(const ls_trainer_options *options, ls_error *err);
/* Of `count` texts, which messages call options.`name`. Errors: as above. */
int ls_config_check_texts(const char *const *text, int count, const char *name, ls_error *err);

/* Reads and checks everything but the model's layers (which need the data's shape). Errors:
 * LS_ECONFIG with file, line and column; LS_ENOENT, LS_EIO. */
int ls_config_read(ls_config *out, const ls_trainer_options *options, ls_error *err);
/* The same for the config.json of a run's directory, at `path`, which stands for the options' config: keys
 * may have the names that they had when it was written. Those of the options' `set` are the user's. */
int ls_config_read_of_run(ls_config *out, const char *path, const ls_trainer_options *options,
                          ls_error *err);
void ls_config_fini(ls_config *config); /* a zeroed config is allowed */

/* The learning rate before the schedule: optimizer.lr, scaled with the minibatch where lr_scaling is
 * "linear". */
double ls_config_lr(const ls_config *config);

/* Whether data.KEY, "standardize" or "standardize_target", is on: as the config says, `said` 0 or 1, or, −1, where the
 * data that it names has the key. */
bool ls_config_scales(const ls_config *config, const char *key, int said);

/* The rate that step `step` (from 0) is taken with, by the schedule. */
float ls_config_rate(const ls_config *config, uint64_t step, uint32_t steps_per_epoch);

/* The default of `shards`, which depends on the recipe alone: the largest power of two, from 1 to 8, that leaves
 * a shard of `rows` LS_SHARD_ROWS rows, and as many that it uses each weight LS_SHARD_USES times, twice that where
 * there are more than two: fewer do not pay for adding its gradient up. `uses`: of a weight by one row, on average;
 * 1 in a dense layer, as many as there are pixels in a convolution. Where another number from 1 to 8 leaves fewer vectors of
 * sixteen rows partly empty, and no worker more of them, it is that: 3 of 48 rows, 6 of 96. */
enum { LS_SHARD_ROWS = 16, LS_SHARD_USES = 64 };
int ls_shards_for(int rows, double uses);
/* How often a row uses a weight, on average: a dense layer once, a convolution at every pixel. */
double ls_uses_of_weights(const ls_model *model);
/* What the config says of `shards`, 0 for one per device, or their default for its minibatch and this model. */
int ls_config_shards(const ls_config *config, const ls_model *model);

/* The document that the model's nodes belong to. */
const ls_json *ls_config_model_doc(const ls_config *config);

/* Fails with a message behind the place of a key such as "data.limit" (or of the file, when it is not set
 * there). */
int ls_config_fail(ls_error *err, const ls_config *config, const char *key, int status,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The data that a config names: opens both splits, or says what is known of it by its name alone. `options`
 * say where to look and which sources the caller has. Errors: those of ls_dataset_open and
 * ls_dataset_find, LS_ECONFIG with the place of the key. labels_alone: of ls_dataset_spec. */
int ls_config_open_data(ls_dataset **train, ls_dataset **test, const ls_config *config,
                        bool labels_alone, const ls_trainer_options *options, ls_error *err);
/* Takes over what the data is: bytes or floats, classes or vectors; the loss, and what is measured of so many
 * rows. Errors: LS_ECONFIG (the loss, a metric, or the smoothing of labels, is for other data). */
int ls_config_fit_data(ls_config *config, const ls_dataset_info *info, uint32_t rows,
                       ls_error *err);
/* config->metrics; of "auto" only those without scores, and a line in the log, where the scores of so many rows
 * are more than LS_SCORES_BYTES. */
unsigned ls_config_metrics_of(const ls_config *config, uint32_t rows, int outputs);
/* There is no memory for these scores: LS_ENOMEM with the place of metrics.names. */
int ls_config_fail_scores(ls_error *err, const ls_config *config, uint32_t rows, int outputs);
/* → what rows of each class count, [classes], owned by the caller; NULL where the config has no class_weights.
 * `train`: what "balanced" counts, rows / (classes · rows of the class). Errors: LS_ECONFIG, LS_ENOMEM;
 * LS_EDATA (a label is beyond the classes). */
int ls_config_class_weights(float **out, const ls_config *config, const ls_dataset *train,
                            int classes, ls_error *err);
int ls_config_find_data(const ls_dataset_about **out, const ls_config *config, ls_error *err);

/* Writes what the weights depend on: a run that goes on from a checkpoint must have the same. The
 * number of shards is given, because "devices" is not one. */
void ls_config_write_recipe(ls_json_writer *w, const char *key, const ls_config *config,
                            int shards);

/* Reads a recipe that was written so: the member `node` of `doc`, to which its texts belong. Errors:
 * LS_ECONFIG with file, line and column. */
int ls_config_read_recipe(ls_config *out, const ls_json *doc, const cJSON *node,
                          const ls_host *host, ls_error *err);

/* Writes and reads the part of it that a prediction depends on: model, preprocessing, loss. */
void ls_config_write_of_model(ls_json_writer *w, const char *key, const ls_config *config);
int ls_config_read_of_model(ls_config *out, const ls_json *doc, const cJSON *node,
                            const ls_host *host, ls_error *err);

/* Fails with LS_ECONFIG at the key of `config` that differs from the recipe that a run was made with. */
int ls_config_same_recipe(const ls_config *config, int shards, const ls_config *recipe,
                          ls_error *err);

/* Writes the resolved config as a member `key` (NULL: as the whole document). */
void ls_config_write(ls_json_writer *w, const char *key, const ls_config *config);

/* The resolved config as indented JSON; the caller frees it with ls_free. Errors: LS_ENOMEM. */
int ls_config_text(char **out, const ls_config *config, const ls_host *host, ls_error *err);

/* ---- the schedule: the learning rate of every step, a pure function of its number ----------- */

/* Reads a rule's name, or an object {"name": …, "warmup_epochs": 0, "every_epochs": 30, "gamma": 0.1,
 * "minimum": 0, "peak": 0.3, "start": 0.04, "steps": 300} with the keys that the rule has; a NULL node means "constant".
 * Errors: LS_ECONFIG. */
int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* Writes it as a member of the resolved config. */
void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *schedule);

/* The rate of step `step` (from 0) of `steps_per_epoch` × `epochs`. During warm-up step t of W has
 * lr·(t + 1)/W; behind it the rule counts from the end of the warm-up: cosine runs from there to the
 * run's last step, step counts epochs from the start of the run. The others have no warm-up;
 * one_cycle and triangular are PyTorch's OneCycleLR, and CyclicLR with `every_epochs` for its whole cycle. */
double ls_schedule_rate(const ls_schedule *schedule, double lr, uint64_t step,
                        uint64_t steps_per_epoch, uint64_t epochs);

/* ---- the keys: one row each ----------------------------------------------------------------- */

/* Reading, the resolved config, the comparison at a resume, `trainer --help config` and the table in the
 * documentation come from the rows. A new key is a row, a member of ls_config, and its use. */
typedef enum ls_key_kind {
    LS_KEY_INT,    /* an int, from `min` to `max` */
    LS_KEY_NUMBER, /* a double, from `min` to `max` */
    LS_KEY_BOOL,   /* an int, 0 or 1: the rows write it through an int * */
    LS_KEY_TEXT,   /* a const char *, of the document; absent: `text`, which may be NULL */
    LS_KEY_CHOICE, /* an int, the index of a word in `choices` */
    LS_KEY_FORM    /* `read` and `write` are its own */
} ls_key_kind;

/* Whether the weights that come out depend on it: a run that goes on must have the same recipe. */
typedef enum ls_key_part {
    LS_PLACEMENT,      /* no: it says where, how often, how it is watched */
    LS_RECIPE,         /* yes */
    LS_RECIPE_OF_END,  /* where the learning rate depends on how long the run is */
    LS_RECIPE_OF_MODEL /* yes, and what the weights make of a row as well: their files say it */
} ls_key_part;

typedef struct ls_config_key ls_config_key;

struct ls_config_key {
    const char *group; /* the object that it is in; "": the config itself */
    const char *key;
    ls_key_kind kind;
    ls_key_part part;
    size_t at;       /* where its value lies in ls_config */
    double fallback; /* of numbers, flags and choices */
    double min, max;
    const char *text; /* the default of a text; of a form, how the documentation shows it */
    const char *const *choices;
    /* Of a form. The member may be NULL; nothing has failed before. */
    void (*read)(ls_config *config, ls_fields *fields, const ls_config_key *row, const cJSON *node);
    void (*write)(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
    const char *help; /* a sentence or two, in Markdown */
    const char *
        former; /* the name of the key in 0.2 and before, which files of runs may have; NULL: the same */
};

/* The rows, those of a group one behind the other; ends with a row whose key is NULL. */
extern const ls_config_key ls_config_keys[];

/* Reads and writes a row's value, as its kind has it. */
void ls_config_read_key(ls_config *config, ls_fields *fields, const ls_config_key *row);
void ls_config_write_key(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
/* Whether the value is another one than where the key is absent; of a form: false. */
bool ls_config_is_set(const ls_config *config, const ls_config_key *row);

/* A key's default as it would stand in a config; "required" or "" (none) where there is none. Static
 * text, or `out`. */
const char *ls_config_default(char out[32], const ls_config_key *row);

#endif
