/* Checkpoints: files with everything that a run needs to go on as if it had never stopped. Each is
 * one file,
 *
 *     <run>/checkpoints/step-000000469.safetensors
 *
 * with the weights and running statistics under PyTorch's names, then the optimizer's states
 * ("optimizer/momentum_buffer/conv1.weight"). The header's metadata hold the run's state, a JSON
 * text, and a SHA-256 of the whole file. A checkpoint is written to a hidden file in the same
 * directory, synced and renamed, and then the directory is synced: after a crash it exists
 * completely or not at all.
 *
 * Threads: any thread; no two threads may use the same file at the same time.
 *
 * To add a value to a checkpoint, change four files: make it a member of ls_position here, or of
 * ls_standing if it belongs to the caller's result instead of the run's position; write and read it
 * (checkpoint.c); advance it with each step (ls_count_step in train/account.c) or with each epoch
 * (record_epoch in train/coordinator.c), or, in ls_standing, copy it from the result and back
 * (train/saving.c); and describe it in train/README.md, "Checkpoints".
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "config/config.h"
#include "nn/optimizer.h"
#include "nn/replica.h"
#include "nn/safetensors.h"
#include "records/sink.h"

#include <stdbool.h>

#define LS_CHECKPOINT_NAME 48 /* size in bytes of a name, the zero included */

/* ---- one file ------------------------------------------------------------------------------- */

/* Weights and optimizer states in canonical layout, [model->floats] each. */
typedef struct ls_checkpoint_values {
    float *weights;
    float *const *slot; /* [ls_optimizer_states] */
} ls_checkpoint_values;

/* Writes a checkpoint to `path`, or replaces the file; it is durable on return. `state`: the run's
 * state as JSON. Errors: LS_ENONFINITE (a weight is not finite), LS_EIO (nothing has changed),
 * LS_ENOMEM. */
int ls_checkpoint_write(const char *path, const ls_model *model, const ls_optimizer *optimizer,
                        const ls_checkpoint_values *values, const char *state, const ls_host *host,
                        ls_error *err);

/* Reads the tensors of a checkpoint, and verifies the file's checksum: the file may have been
 * damaged since its state was read. Errors: LS_EDATA with file and offset, LS_EIO, LS_ENOMEM; the
 * contents of `values` are then undefined. */
int ls_checkpoint_read(const ls_checkpoint_values *values, const char *path, const ls_model *model,
                       const ls_optimizer *optimizer, const ls_host *host, ls_error *err);

/* ---- the state: data besides weights and optimizer states ----------------------------------- */

/* Totals of an epoch. */
typedef struct ls_epoch_totals {
    double loss, correct, rows; /* sums over the epoch's minibatches */
    double seconds;             /* seconds of training, without evaluation and saving */
} ls_epoch_totals;

/* The best evaluation so far, by the config's `monitor`. */
typedef struct ls_best {
    ls_metric metric;
    double value;
    uint32_t epoch;  /* number, from 1, of the epoch after which it took place; 0: there is none */
    uint32_t waited; /* number of evaluations after it, none of which was better */
    uint64_t steps;  /* number of steps of the run that had been done when it took place */
    /* Number of steps of the former best evaluation, whose checkpoint is kept until this one has a
     * checkpoint; 0: none is kept. */
    uint64_t kept;
} ls_best;

/* Position of a run between two steps, which a checkpoint stores besides the weights. If an older
 * file lacks a member, ls_state_read sets it to 0; if 0 is not suitable for a member, read_position
 * must set another value. */
typedef struct ls_position {
    uint64_t steps; /* steps done since the start of training, skipped ones included */
    uint32_t epoch; /* index of the current epoch, from 0; after the last epoch, their number */
    uint32_t step;  /* number of this epoch's steps that are done */
    bool recorded;  /* the epoch's record was written: only its evaluation is left */
    ls_epoch_totals totals;
    double trained_s; /* seconds of training in finished epochs */
    ls_best best;
} ls_position;

/* The standing of a run: its position and its results so far. A checkpoint stores it, a resumed run
 * reads it, and processes of a run send it to each other, always as a whole (ls_standing_of,
 * ls_take_standing: train/saving.c). */
typedef struct ls_standing {
    ls_position position;
    int epochs;                      /* number of finished epochs */
    double test_loss, test_accuracy; /* results of the last evaluation; NaN: there is none */
    /* Metric that is reported, and its value; LS_METRIC_CONFUSION: not known. */
    ls_metric metric;
    double test_metric;
} ls_standing;

/* Version of the state's schema. A new key is optional for readers, and does not change the
 * version. The version is raised if an older program would misread the state. */
#define LS_STATE_SCHEMA 2

/* The state that a checkpoint stores as JSON. */
typedef struct ls_state {
    ls_standing standing;
    ls_sink_mark metrics; /* end of the records in metrics.jsonl at the time of saving */
    int shards;
    const char *isa, *library; /* instruction set and library, on which results depend */
    uint64_t train_rows, test_rows;
    uint32_t data_crc32; /* checksum of images and labels */
    const cJSON *recipe; /* recipe, as ls_config_write_recipe writes it */
} ls_state;

/* Writes a standing as members of the state's JSON object, which is open. Different standings give
 * different texts, which the saver compares. */
void ls_standing_write(ls_json_writer *w, const ls_standing *standing);

/* Writes a state as JSON. The recipe that it writes is that of `config`; state->recipe is not
 * used. */
void ls_state_write(ls_json_writer *w, const ls_state *state, const ls_config *config);

/* Reads a state. *out is cleared first, so a member whose optional key is missing is 0. Texts and
 * the recipe belong to `doc`. Errors: LS_EDATA with file, line and column. */
int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err);

/* Returns the checksum of all resident images and labels; takes about 0.05 s for 50 MB. data:
 * [LS_SUBSETS]. */
uint32_t ls_data_crc32(ls_dataset *const *data);

/* ---- the checkpoints of a run --------------------------------------------------------------- */

/* Writes the name of the checkpoint after `steps` steps. */
void ls_checkpoint_name(char out[LS_CHECKPOINT_NAME], uint64_t steps);

/* Returns whether the last component of `path` is a name that ls_checkpoint_name writes. */
bool ls_checkpoint_is_named(const char *path);

/* Returns whether the directory has any checkpoint, complete or not. */
bool ls_checkpoints_exist(const char *directory);

/* Finds the newest complete checkpoint, and returns its path and state, which the caller frees.
 * `warns`: newer checkpoints that are damaged are logged. Errors: LS_ENOENT (there are none),
 * LS_EDATA (none is complete, or they were saved by a version that used a directory for each),
 * LS_EIO, LS_ENOMEM. */
int ls_checkpoints_latest(char **path, char **state, const char *directory, bool warns,
                          const ls_host *host, ls_error *err);

/* Finds the checkpoint of the best evaluation, according to the newest complete one, and returns
 * its path, which the caller frees. Errors: LS_ENOENT (nothing was evaluated, or that checkpoint is
 * not kept), those of ls_checkpoints_latest. */
int ls_checkpoints_best(char **path, const char *directory, const ls_host *host, ls_error *err);

/* Writes the path of the checkpoint of the best evaluation of the run in `run_dir`. Returns whether
 * that file exists. */
bool ls_checkpoint_of_best(char *path, size_t size, const char *run_dir, const ls_best *best);

/* Removes old checkpoints. It keeps the `keep` ≥ 1 newest ones; the one called `saved`, which is
 * known to be complete; and, unless `best` is NULL, the one of the best evaluation, or if that has
 * no checkpoint the one after best->kept steps. It goes on after an error, and returns the first.
 * Errors: LS_EIO, LS_ENOMEM. */
int ls_checkpoints_prune(const char *directory, size_t keep, const char *saved, const ls_best *best,
                         const ls_host *host, ls_error *err);

#endif
