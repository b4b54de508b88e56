/* SPDX-License-Identifier: MIT */
/* The saver: writes checkpoints (checkpoint.h) while a run goes on.
 * Threads: only the coordinator calls these functions. */
#ifndef CHECKPOINT_SAVER_H
#define CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"
#include "records/trace.h"

#include <lockstep/status.h>
#include <stdbool.h>

struct ls_saver;

/* Description of the run whose checkpoints are saved. Everything in it must outlive the saver. */
typedef struct ls_saver_desc {
    const ls_config *config;
    const ls_network *model;
    ls_dataset *const *data; /* [LS_SUBSETS] */
    ls_sinks *sinks;         /* sinks of the run's records, synced before each checkpoint */
    bool keeps;              /* ls_saver_keep will be called, so memory for it is allocated */
    ls_trace *trace;         /* timeline, which gets a span for each save; NULL: none */
    const ls_host *host;
} ls_saver_desc;

/* Creates a saver with its thread, and the directory <run_dir>/checkpoints. Errors: LS_ENOMEM,
 * LS_ESYSTEM, LS_EIO. */
int ls_saver_create(struct ls_saver **out, const char *run_dir, const ls_saver_desc *run,
                    ls_error *err);
/* Sets the time in nanoseconds after which a save is considered to hang; 600 s otherwise. */
void ls_saver_limit(struct ls_saver *saver, uint64_t longest_ns);
/* Does what ls_saver_settle does, and ends the saver's thread. If a save failed, the failure is
 * logged. NULL is allowed. Returns LS_ESTALLED if the save hangs (ls_saver_limit). */
int ls_saver_stop(struct ls_saver *saver);
/* Stops and frees the saver. Returns LS_ESTALLED if the save hangs; the saver's memory is then
 * kept. */
int ls_saver_destroy(struct ls_saver *saver);

/* Waits for the save in progress. If the save failed, the failure is logged. NULL is allowed.
 * Errors: LS_ESTALLED (the save hangs). */
int ls_saver_wait(struct ls_saver *saver, ls_error *err);

/* Returns the error of the last save, if that save was made while training went on (`wait` false)
 * and has failed. Returns NULL in all other cases: the last save succeeded or is in progress,
 * ls_saver_save has returned its error, or `saver` is NULL. The error belongs to the saver. */
const ls_error *ls_saver_unsaved(const struct ls_saver *saver);

/* Saves a checkpoint. Saves nothing if the last saved checkpoint has the same standing. Durations
 * in the standing are not compared, because they grow even while nothing is trained.
 *
 * - state: the run's state; the saver itself sets its recipe, metrics and data_crc32
 * - values: the saver reads these arrays until the save is done (ls_saver_wait)
 * - wait: true: the checkpoint is on the disk on return. False: the checkpoint is written while
 *   training goes on, and a failure is only logged, because the next save may succeed
 *
 * Errors: those of the sinks, of ls_checkpoint_write, LS_ESTALLED. */
int ls_saver_save(struct ls_saver *saver, const ls_state *state, const ls_checkpoint_values *values,
                  bool wait, ls_error *err);

/* Keeps a checkpoint in memory: copies the state and the arrays. It replaces the one that was kept
 * before; but a checkpoint of the best evaluation stays beside it. A later save drops what is kept.
 * A weight that is not finite is logged like a failed save, and changes nothing.
 * ls_saver_desc.keeps must be true.
 * Errors: those of the sinks; LS_ESTALLED. */
int ls_saver_keep(struct ls_saver *saver, const ls_state *state, const ls_checkpoint_values *values,
                  ls_error *err);
/* Returns whether a checkpoint is kept and no save is in progress. false if `saver` is NULL. */
bool ls_saver_keeps(const struct ls_saver *saver);
/* Returns whether the checkpoint after `steps` steps is kept. false if `saver` is NULL. */
bool ls_saver_holds(const struct ls_saver *saver, uint64_t steps);
/* Begins to write the checkpoint that is kept, if ls_saver_keeps, as ls_saver_save does while
 * training goes on. If the save fails, the checkpoint stays in memory. Errors: LS_ENOMEM and those
 * of ls_pool_submit; LS_ESTALLED, without checkpoint.async. */
int ls_saver_write_kept(struct ls_saver *saver, ls_error *err);
/* Waits for the save in progress; then writes the checkpoint that is still kept, if there is one,
 * and waits for that. Failures are logged. Afterwards nothing is kept. NULL is allowed. Errors:
 * those of ls_saver_write_kept, LS_ESTALLED (a save hangs). */
int ls_saver_settle(struct ls_saver *saver, ls_error *err);

/* Returns the path of the checkpoint that was saved last, or "" if none was saved. The text belongs
 * to the saver. */
const char *ls_saver_path(const struct ls_saver *saver);

/* Called after weights or position were replaced, by loading a file. The next call of ls_saver_save
 * then saves even if the state is the same as in the last saved checkpoint. NULL is allowed. */
void ls_saver_forget(struct ls_saver *saver);

/* Saves a checkpoint to the file `path`, without a saver. The file is on the disk on return.
 * Errors: those of ls_follow_links and of ls_saver_save. */
int ls_save_to_file(const char *path, const ls_saver_desc *run, const ls_state *state,
                    const ls_checkpoint_values *values, ls_error *err);

#endif
