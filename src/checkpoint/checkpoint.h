/* SPDX-License-Identifier: MIT */
/* Checkpoints: files with everything that a run needs to go on as if it had never stopped. Each
 * checkpoint is one safetensors file,
 *
 *     <run>/checkpoints/step-000000469.safetensors
 *
 * It contains the weights and running statistics under PyTorch's names, then the optimizer's states
 * ("optimizer/momentum_buffer/conv1.weight"). The file's metadata contain the run's state, a JSON
 * text, and a SHA-256 of the file, computed with zeros in place of the SHA-256 itself. A checkpoint
 * is written to a hidden file in the same directory, synced and renamed, and then the directory is
 * synced: after a crash the checkpoint exists completely or not at all.
 *
 * Terms: the *position* of a run says how far its training has come (steps, epochs, sums). The
 * *standing* of a run is its position and the results that the API returns (ls_result). The *state*
 * of a run is everything in a checkpoint except weights and optimizer states: the standing, the
 * length of the metrics file, and data about the run that are checked when the run is resumed (data
 * set, recipe, number of shards).
 *
 * Threads: any thread; no two threads may use the same file at the same time.
 *
 * .github/CONTRIBUTING.md says how a value is added to a checkpoint. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "config/config.h"
#include "hash/hash.h"
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
    float *const *slot; /* [ls_optimizer_states] arrays of the optimizer's states */
} ls_checkpoint_values;

#define LS_STATE_PREFIX 40 /* size in bytes of a prefix, the zero included */
/* Writes the prefix of the names that an optimizer state's tensors have in a checkpoint, such as
 * "optimizer/momentum_buffer/". Names of layers contain no '/', so the prefixes are unambiguous. */
void ls_name_state(char out[LS_STATE_PREFIX], const ls_optimizer *optimizer, int state);

/* Fails if one of the `weights` of a model is not finite. Such weights are not saved, because a new
 * checkpoint replaces an older one from which the run can go on. Errors: LS_ENONFINITE; the message
 * names the tensor. */
int ls_check_finite(const ls_network *model, const float *weights, ls_error *err);

/* Writes a checkpoint to `path`, replacing an existing file. On return the file survives a loss of
 * power. `state`: the run's state as JSON. Errors: LS_ENONFINITE (a weight is not finite), LS_EIO,
 * LS_ENOMEM. After an error an existing file is unchanged (ls_replace_commit in store/durable.h
 * names one exception). */
int ls_checkpoint_write(const char *path, const ls_network *model, const ls_optimizer *optimizer,
                        const ls_checkpoint_values *values, const char *state, const ls_host *host,
                        ls_error *err);

/* Reads the tensors of a checkpoint into `values`. Errors: LS_EDATA with file and offset, LS_EIO,
 * LS_ENOMEM. After an error the contents of `values` are undefined. */
int ls_checkpoint_read(const ls_checkpoint_values *values, const ls_tensor_file *file,
                       const ls_network *model, const ls_optimizer *optimizer, const ls_host *host,
                       ls_error *err);

/* ---- the state: data besides weights and optimizer states ----------------------------------- */

/* Totals of an epoch. */
typedef struct ls_epoch_totals {
    double loss, correct, rows; /* sums over the epoch's minibatches */
    double weight;              /* sum of the weights of the rows; `rows`, if they have none */
    double seconds;             /* seconds of training, without evaluation and saving */
} ls_epoch_totals;

/* The best evaluation so far, by the config's `monitor`. */
typedef struct ls_best {
    ls_metric metric;
    double value;
    uint32_t epoch;  /* number, from 1, of the epoch after which the evaluation took place; 0: there
                      * was no evaluation yet */
    uint32_t waited; /* number of evaluations since the best one */
    uint64_t steps;  /* number of steps that the run had done at this evaluation */
    /* Number of steps that the run had done at the previous best evaluation; 0: that evaluation has
     * no checkpoint. The checkpoint after `kept` steps must stay until there is a checkpoint after
     * `steps` steps, so that at any time a checkpoint of a best evaluation exists. */
    uint64_t kept;
} ls_best;

/* Position of a run between two steps. If a file of an older version lacks a member of this struct,
 * ls_state_read sets the member to 0. For a new member for which 0 is not suitable, read_position
 * must set another value. */
typedef struct ls_position {
    uint64_t steps;   /* number of steps done since the start of training, skipped ones included */
    uint64_t skipped; /* number of steps skipped because their loss was not finite */
    uint32_t epoch;   /* index of the current epoch, from 0; when training has ended, the number of
                       * epochs */
    uint32_t step;    /* number of steps of the current epoch that are done */
    bool recorded;    /* true: the record of the current epoch was written, and only the epoch's
                       * evaluation has still to be done */
    ls_epoch_totals totals; /* totals of the current epoch */
    double lr;              /* full learning rate that the caller has set; 0: that of the config */
    double trained_s;       /* seconds of training in finished epochs */
    /* the lowest test loss so far, and the number, from 1, of its epoch; 0: there was none */
    double least_loss;
    uint32_t least_epoch;
    ls_best best;
} ls_position;

/* The standing of a run: its position and its results so far. A checkpoint stores the standing, a
 * resumed run reads it, and processes of a run send it to each other. The standing is always copied
 * as a whole (ls_standing_of, ls_take_standing: train/saving.c). */
typedef struct ls_standing {
    ls_position position;
    int epochs;                      /* number of finished epochs */
    double test_loss, test_accuracy; /* results of the last evaluation; NaN: there was none */
    /* The main metric of the run (ls_result.metric). LS_METRIC_CONFUSION means that no metric is
     * known yet, because the confusion matrix is never the main metric. */
    ls_metric metric;
    double test_metric; /* value of `metric` in the last evaluation */
} ls_standing;

/* largest number of entries of a chain, for 2⁵³ steps and any batch_size */
#define LS_CHAIN_MOST 700

/* State hashes of a run at the chain's positions (chain.h). */
typedef struct ls_chain {
    uint8_t first[LS_SHA256_BYTES]; /* hash of the weights before the first step */
    /* SHA-256 of the file `init.weights` from which the first weights were read, in hexadecimal;
     * "": they were not read from such a file */
    char file[LS_SHA256_HEX];
    uint32_t count;
    uint8_t state[LS_CHAIN_MOST][LS_SHA256_BYTES]; /* [count] */
} ls_chain;

/* Version of the state's schema. A new key does not change the version: programs that do not know
 * the key refuse the state by its name. The version is raised if a key gets another meaning. */
#define LS_STATE_SCHEMA 2

/* The state, which a checkpoint stores as JSON. */
typedef struct ls_state {
    ls_standing standing;
    ls_sink_mark metrics; /* end of the records in metrics.jsonl at the time of saving */
    int shards;
    const char *isa, /* instruction set; results depend on it on some devices */
        *library;    /* version of the mathematical library, on which results depend */
    uint64_t train_rows, test_rows;
    uint32_t data_crc32; /* checksum of the rows and targets */
    /* all keys of the config on which the trained weights depend, as ls_config_write_recipe writes
     * them */
    const cJSON *recipe;
    /* The first `chained` entries are saved. Entries are only appended to a chain, so the chain may
     * have grown before the state is written. NULL: there is no chain. Not set by ls_state_read. */
    const ls_chain *chain;
    uint32_t chained;
    const cJSON *entries; /* the chain as read, for ls_chain_read; NULL: none */
    const char *file;     /* ls_chain.file as read; "": none */
    /* how the run is evaluated, as ls_config_write_of_evaluations writes it; NULL: there is no
     * chain, or one of a version that hashed other texts. Not used by ls_state_write */
    const cJSON *evaluations;
} ls_state;

/* Writes a standing as members of the JSON object of the state. The caller has begun the object and
 * ends it. Different standings must give different texts, because the saver compares texts to find
 * out whether anything has changed since the last save. */
void ls_standing_write(ls_json_writer *w, const ls_standing *standing);

/* Writes a state as JSON. The recipe is made from `config`; state->recipe is not used. */
void ls_state_write(ls_json_writer *w, const ls_state *state, const ls_config *config);

/* Reads a state. *out is zeroed first, so a member whose optional key is missing is 0. The texts
 * and the recipe in *out belong to `doc`. Errors: LS_EDATA with file, line and column. */
int ls_state_read(ls_state *out, const ls_json *doc, ls_error *err);

/* Reads the chain of a state that ls_state_read has read; `doc` is its document. Errors: LS_EDATA
 * with file, line and column. */
int ls_chain_read(ls_chain *out, const ls_json *doc, const ls_state *state, ls_error *err);

/* Returns the checksum of the rows and targets of all data that are kept in memory; streamed rows
 * are not included. Takes about 0.05 s for 50 MB. data: [LS_SUBSETS]. */
uint32_t ls_data_crc32(ls_dataset *const *data);

/* ---- the checkpoints of a run --------------------------------------------------------------- */

/* Writes the name of the checkpoint after `steps` steps. */
void ls_checkpoint_name(char out[LS_CHECKPOINT_NAME], uint64_t steps);

/* Returns whether the last component of `path` is a name that ls_checkpoint_name writes; *steps
 * then receives its steps. */
bool ls_checkpoint_is_named(const char *path, uint64_t *steps);

/* Returns whether the directory has any checkpoint, complete, damaged or set aside. */
bool ls_checkpoints_exist(const char *directory);

/* Finds the newest complete checkpoint, and returns its path and state, which the caller frees.
 * Checkpoints that were set aside (ls_checkpoints_set_aside) are not used. If `warns` is true, logs
 * each newer checkpoint that is damaged or was set aside. Errors: LS_ENOENT (there are no
 * checkpoints), LS_EDATA (no checkpoint is complete, all were set aside, or the checkpoints were
 * saved by a version before 0.2, each in a directory of its own), LS_EIO, LS_ENOMEM. */
int ls_checkpoints_latest(char **path, char **state, const char *directory, bool warns,
                          const ls_host *host, ls_error *err);

/* Finds the checkpoint after `steps` steps, and returns its path and state, which the caller frees
 * even after an error. *doubtful: the checkpoint was set aside. Errors: LS_ENOENT, LS_EDATA (it is
 * damaged), LS_EIO, LS_ENOMEM. */
int ls_checkpoint_at(char **path, char **state, bool *doubtful, const char *directory,
                     uint64_t steps, const ls_host *host, ls_error *err);

/* Sets all checkpoints of the directory aside that were saved after more than `after` steps: gives
 * them another name, doubtful-000000469.safetensors, so that no run continues from them unless its
 * user asks for it. The change survives a loss of power. *count receives their number. Errors:
 * LS_EIO, LS_ENOMEM. */
int ls_checkpoints_set_aside(int *count, const char *directory, uint64_t after, const ls_host *host,
                             ls_error *err);

/* Finds the checkpoint of the best evaluation, and returns its path, which the caller frees. The
 * newest complete checkpoint contains which evaluation was the best. Errors: LS_ENOENT (nothing was
 * evaluated, or the best evaluation's checkpoint was not kept), those of ls_checkpoints_latest. */
int ls_checkpoints_best(char **path, const char *directory, const ls_host *host, ls_error *err);

/* Writes the path that the checkpoint of the best evaluation has in `run_dir`. Returns whether a
 * file with that path exists. */
bool ls_checkpoint_of_best(char *path, size_t size, const char *run_dir, const ls_best *best);

/* Removes checkpoints that were set aside and are not newer than `saved`, and all other checkpoints
 * of the directory except these:
 *
 * - the `keep` ≥ 1 newest checkpoints
 * - the checkpoint named `saved`, which the caller knows to be complete
 * - unless `best` is NULL, the checkpoint after best->steps steps; if there is none, the checkpoint
 *   after best->kept steps
 * - unless `chained` is 0, the checkpoints at the chain's positions (chain.h) for the batch_size
 *   `chained`
 *
 * If a file cannot be removed, the function removes the others and returns the first error. Errors:
 * LS_EIO, LS_ENOMEM. */
int ls_checkpoints_prune(const char *directory, size_t keep, const char *saved, const ls_best *best,
                         uint32_t chained, const ls_host *host, ls_error *err);

#endif
