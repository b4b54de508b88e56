/* SPDX-License-Identifier: MIT */
/* A verification in progress (verify.h), and the parts of which it consists:
 *
 *     verify.c          chooses the segments, calls the other parts, and writes the verdict
 *     verify_claim.c    reads what the prover says
 *     verify_checks.c   checks what needs no replay
 *     verify_replay.c   replays segments, and compares states
 *     verify_records.c  compares the records of a replay with those of the run
 *     verify_members.c  knows the members of a receipt
 *     verify_weights.c  compares the file of weights
 *     verify_files.c    knows the files that are read, and who has named them
 *     verify_results.c  compares the receipt at the end
 *     verify_found.c    notes the first difference, with its place */
#ifndef TRAIN_VERIFICATION_H
#define TRAIN_VERIFICATION_H

#include "train/receipt.h"
#include "train/verify.h"
#include "json/compare.h"

typedef struct verification {
    ls_verify_options o;
    const ls_host *host;
    ls_verdict verdict;
    ls_claim claim;
    ls_trainer *trainer;
    ls_rows_hashes rows;
    ls_records_check records;
    char metrics[LS_PATH_BYTES];      /* path of metrics.jsonl */
    float *values[1 + LS_STATES];     /* [model->floats] each: room for a checkpoint's tensors */
    uint32_t batch_size, epoch_steps; /* number of steps of an epoch */
    uint32_t compared; /* number of entries of the chain that need no comparison any more */
    uint32_t last;     /* the replay in progress ends with this segment */
    bool replays[LS_CHAIN_MOST + 1];
    bool beyond; /* the replay went on beyond the end of the run */
    /* threshold that was added to the file of weights after the training; 0: none */
    double threshold;
    /* numbers of steps, for the progress: that are replayed; that were replayed before the present
     * part; that the run had done at the beginning of this part */
    uint64_t planned, before, part;
    uint64_t start_ns;
} verification;

/* ---- findings (verify_found.c) --------------------------------------------------------------- */

/* Notes a difference at `place`, with a sentence. Only the first one counts. */
void ls_verify_differs(verification *v, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Notes that a member of the receipt differs. `why` ends the sentence. */
void ls_verify_receipt_differs(verification *v, const char *member_place, const char *why);
/* Notes that the receipt has the value found->b, where found->a is right. `whose`: "the replay
 * has". */
void ls_verify_value_differs(verification *v, const ls_json_difference *found, const char *whose);

/* Returns the receipt; NULL: there is none. */
const cJSON *ls_verify_receipt(const verification *v);
/* Returns the number of steps done at entry number `entries` of the chain, from 1; 0 for 0. */
uint64_t ls_verify_position(const verification *v, uint32_t entries);
/* Returns the number of steps done at the end of a segment. */
uint64_t ls_verify_segment_end(const verification *v, uint32_t segment);
/* Returns the number of segments that have steps: all, but not one after the last entry of the
 * chain if the run ends there. */
uint32_t ls_verify_segments(const verification *v);

/* Returns the number of the optimizer's states. */
int ls_verify_states(const verification *v);
/* Appends the names of tensors in which `theirs`, weights and `states` states, differs from the
 * trainer's present state; at most three, and the number of the rest. */
void ls_verify_name_tensors(char *text, size_t size, const verification *v, float *const *theirs,
                            int states);
/* Reads the tensors of a checkpoint into v->values, and hashes them as a state after `steps` steps.
 * Returns false if there is no such checkpoint, or none that can be read; *why then says so. */
bool ls_verify_read_checkpoint(uint8_t hash[LS_SHA256_BYTES], verification *v, uint64_t steps,
                               const char *path, ls_error *why);
/* Notes that the checkpoint after `steps` steps, whose tensors are in v->values, does not have the
 * state `wanted` that the receipt names, and what was changed. `where` follows its name. */
void ls_verify_checkpoint_differs(verification *v, uint64_t steps, const char *where,
                                  const uint8_t wanted[LS_SHA256_BYTES]);
/* Composes name and path of the run's checkpoint after `steps` steps. */
void ls_verify_checkpoint_path(char out[LS_PATH_BYTES], char name[LS_CHECKPOINT_NAME],
                               const verification *v, uint64_t steps);

/* ---- members that only one version knows (verify_members.c) -----------------------------------
 */

/* Removes members of `mine`, an object of the replay's receipt, that `theirs`, the same object of
 * the prover's, lacks because an earlier version wrote it: keys, which then have their defaults;
 * metrics; and members that receipts have had only from a later version on. `place`: name of the
 * object in the receipt, "": the whole receipt. */
void ls_verify_leave_out(cJSON *mine, const cJSON *theirs, const char *place);
/* Returns whether a receipt has a member that this version does not know, apart from keys of the
 * config; its place is then appended to `place`, which holds "". */
bool ls_verify_unknown(char place[LS_JSON_PLACE], const cJSON *receipt);

/* ---- files that are read (verify_files.c) -----------------------------------------------------
 */

enum { LS_VERIFY_FILES = 7 };

/* A file that a config names. */
typedef struct ls_verify_file {
    const char *key;  /* "data.path" */
    const char *what; /* what is in it: "the test rows" */
    const char *path;
    bool named; /* an assignment names it, which is the verifier's; else the prover has named it */
} ls_verify_file;

/* Finds the files that a config names. Returns their number. The texts belong to the config. */
int ls_verify_files(ls_verify_file out[LS_VERIFY_FILES], const ls_config *config);
/* Writes the verdict's list of the prover's files. */
void ls_verify_list_files(verification *v);
/* Adds to the message of a replay that could not be opened how the verifier names the missing file.
 * `replay`: the options with which it was to be opened; `status`: LS_ENOENT or LS_ECONFIG. Returns
 * the status. */
int ls_verify_say_missing(const verification *v, const ls_trainer_options *replay, int status,
                          ls_error *err);

/* ---- the steps of a verification ------------------------------------------------------------- */

/* Opens the trainer of the replay. Errors: those of ls_trainer_open. */
int ls_verify_open(verification *v, ls_error *err);
/* Opens the replay, and checks what the claim says of recipe, data, weights and positions. Errors:
 * as ls_verify. */
int ls_verify_check(verification *v, ls_error *err);
/* Compares the file of weights, if there is one, with the receipt, or with the end of the replay if
 * there is no receipt. Errors: LS_ENOMEM. */
int ls_verify_weights(verification *v, ls_error *err);
/* Sets *is: the file with this SHA-256 is the one that the program writes for `weights` at the end
 * of the run, with a checksum in its metadata or, as earlier versions wrote it, without.
 * `threshold`: that of its description; NULL: none. Errors: LS_ENOMEM. */
int ls_verify_is_file_of(bool *is, const verification *v, const float *weights,
                         const double *threshold, const char *sha256, ls_error *err);
/* Replays segments `first` to `last`, and compares the states with which they end. */
int ls_verify_replay(verification *v, uint32_t first, uint32_t last, ls_error *err);
/* Compares what a replay that has reached the end of the run shows. */
int ls_verify_results(verification *v, ls_error *err);
/* Notes the first difference of the records, if there is one. */
void ls_verify_note_records(verification *v);

#endif
