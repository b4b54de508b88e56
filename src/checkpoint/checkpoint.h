/* Checkpoints: what a run must have on the disk to go on as if it had never stopped. Each is one file,
 *
 *     <run>/checkpoints/step-000000469.safetensors
 *
 * with the weights and running statistics under PyTorch's names, the optimizer's state behind them
 * ("optimizer/momentum_buffer/conv1.weight"), and in the header's metadata the run's state, a JSON text,
 * and a SHA-256 over the whole. It is written under a hidden name beside, synced, renamed, and its
 * directory synced: it is there whole, or not at all. Any thread; files are not shared.
 *
 * To add a value to a checkpoint, change four files: make it a member of ls_position here, or of ls_standing where it is
 * the caller's result and not the run's place; write and read it (checkpoint.c); advance it with each step
 * (ls_count_step in train/account.c) or with each epoch (record_epoch in train/coordinator.c), or, in ls_standing, take it
 * from the result and give it back (train/saving.c); and say it in train/README.md, "Checkpoints".
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "config/config.h"
#include "nn/optimizer.h"
#include "nn/replica.h"
#include "nn/safetensors.h"
#include "records/sink.h"

#include <stdbool.h>

#define LS_CHECKPOINT_NAME 48 /* bytes of a name, the zero included */

/* ---- one file ------------------------------------------------------------------------------- */

/* Weights and the optimizer's slots in canonical order, in the places of the model's parameters. */
typedef struct ls_checkpoint_values {
    float *weights;
    float *const *slot; /* ls_optimizer_states of them */
} ls_checkpoint_values;

/* Writes a checkpoint to `path`, or replaces it; it lasts at the return. Errors: LS_ENONFINITE (a
 * weight is not), LS_EIO (nothing has changed), LS_ENOMEM. */
int ls_checkpoint_write(const char *path, const ls_model *model, const ls_optimizer *optimizer,
                        const ls_checkpoint_values *values, const char *state, const ls_host *host,
                        ls_error *err);

/* Reads the tensors of one whose state has been verified (ls_safetensors_state). Errors: LS_EDATA with
 * file and offset, LS_EIO, LS_ENOMEM; what `values` hold is undefined then. */
int ls_checkpoint_read(const ls_checkpoint_values *values, const char *path, const ls_model *model,
                       const ls_optimizer *optimizer, const ls_host *host, ls_error *err);

/* ---- the state: what a checkpoint says besides weights and optimizer state ------------------ */

typedef struct ls_epoch_totals {
    double loss, correct, rows; /* summed over the epoch's minibatches */
    double seconds;             /* training only */
} ls_epoch_totals;

/* The best evaluation so far, by the config's `monitor`, and how many have not been better since. */
typedef struct ls_best {
    ls_metric metric;
    double value;
    uint32_t epoch; /* after which it was, from 1; 0: there is none */
    uint32_t waited;
    uint64_t steps; /* that were done then */
    uint64_t kept;  /* those of the last one before it that has a checkpoint; 0: none */
} ls_best;

/* Where a run stands, between two steps: what a checkpoint must remember besides the weights. A member that an older
 * file lacks is 0 when that is read (ls_state_read); where 0 will not do, its reader gives another value. */
typedef struct ls_position {
    uint64_t steps; /* done since the start of training, skipped ones included */
    uint32_t epoch; /* the one under way, from 0; the number of epochs when all is done */
    uint32_t step;  /* of this epoch's steps, how many are done */
    bool recorded;  /* its record is out: only its evaluation is left */
    ls_epoch_totals totals;
    double trained_s; /* in finished epochs */
    ls_best best;
} ls_position;

/* Where a run stands and what it has come to: saved, resumed, and shared with the other processes of the run, as a whole
 * (ls_standing_of, ls_take_standing: train/saving.c). */
typedef struct ls_standing {
    ls_position position;
    int epochs;                      /* finished */
    double test_loss, test_accuracy; /* of the last evaluation; NaN: none was measured */
    ls_metric metric; /* what is printed of it, and its value; LS_METRIC_CONFUSION: not known */
    double test_metric;
} ls_standing;

/* The version of the state's form. A key that is added is optional when read and leaves the version as it is; that is raised when an
 * older program would misread the state. */
#define LS_STATE_SCHEMA 2

typedef struct ls_state {
    ls_standing standing;
    ls_sink_mark metrics; /* in metrics.jsonl: behind what came before */
    int shards;
    const char *isa, *library; /* the bits depend on them */
    uint64_t train_rows, test_rows;
    uint32_t data_crc32; /* of images and labels */
    const cJSON *recipe; /* ls_config_write_recipe */
} ls_state;

/* Writes it as members of the state's object, which is open. What differs is written differently: the saver compares
 * these texts. */
void ls_standing_write(ls_json_writer *w, const ls_standing *standing);

/* Writes it, but for `recipe`, in whose place the config's is written. */
void ls_state_write(ls_json_writer *w, const ls_state *state, const ls_config *config);

/* Reads it; texts and the recipe belong to `doc`. Whatever *out held is cleared first, so a key that may lack leaves 0.
 * Errors: LS_EDATA with file, line and column. */
int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err);

/* Of all images and labels, 0.05 s for 50 MB. */
uint32_t ls_data_crc32(ls_dataset *const *data); /* [LS_SUBSETS] */

/* ---- those of a run ------------------------------------------------------------------------- */

/* The name of the checkpoint behind `steps` steps. */
void ls_checkpoint_name(char out[LS_CHECKPOINT_NAME], uint64_t steps);

/* Whether the last part of `path` is such a name. */
bool ls_checkpoint_is_named(const char *path);

/* Whether the directory has any, whole or not. */
bool ls_checkpoints_exist(const char *directory);

/* Finds the newest one that is whole: its path and its state, which the caller frees. With `warns` the host's log hears
 * of those that are newer and damaged. Errors: LS_ENOENT (there are none), LS_EDATA (none is
 * whole, or they are of a version that kept a directory for each), LS_EIO, LS_ENOMEM. */
int ls_checkpoints_latest(char **path, char **state, const char *directory, bool warns,
                          const ls_host *host, ls_error *err);

/* The one with the best evaluation, as the newest whole one says: its path, which the caller frees. Errors: LS_ENOENT
 * (the run keeps none, or it is gone), those of ls_checkpoints_latest. */
int ls_checkpoints_best(char **path, const char *directory, const ls_host *host, ls_error *err);

/* The path of the checkpoint behind the best evaluation of the run in `run_dir`. Returns whether there is one. */
bool ls_checkpoint_of_best(char *path, size_t size, const char *run_dir, const ls_best *best);

/* Removes all but the newest `keep` ≥ 1, the one called `saved`, which is known to be whole, and that of the best
 * evaluation (NULL: whichever that is), or of the one that was kept before it where it has none. Goes on after a failure
 * and returns the first. Errors: LS_EIO, LS_ENOMEM. */
int ls_checkpoints_prune(const char *directory, size_t keep, const char *saved, const ls_best *best,
                         const ls_host *host, ls_error *err);

#endif
