/* SPDX-License-Identifier: MIT */
/* Checkpoints of a run: these functions decide when a checkpoint is due and how it is saved, and
 * save it. A checkpoint contains weights, optimizer states, and the standing of the run
 * (checkpoint/checkpoint.h). */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include "checkpoint/saver.h"
#include "train/trainer.h"

/* An occasion at which a checkpoint may be due. */
typedef enum ls_occasion {
    /* a step is done; or, before steps are submitted: the step will be done */
    LS_STEP_DONE,
    /* an epoch is done and the next has begun */
    LS_EPOCH_DONE,
    LS_TAKEN_OVER, /* the first member was lost, and this member has become the first one */
    LS_RUN_ENDED,  /* the run has ended with `status` */
    LS_ASKED       /* the caller has asked for a checkpoint */
} ls_occasion;

/* An occasion with its data. */
typedef struct ls_moment {
    ls_occasion occasion;
    uint64_t steps; /* for LS_STEP_DONE: number of steps that are done, or will be done */
    bool evaluated; /* for LS_EPOCH_DONE: there was an evaluation at the end of the epoch */
    int status;     /* for LS_RUN_ENDED: how the run ended */
} ls_moment;

/* Whether a checkpoint is due, and how it is saved. */
typedef enum ls_due {
    LS_DUE_NOTHING,
    /* a checkpoint is due, but is kept in memory, because checkpoint.every_seconds have not passed
     * since the last save; a later one takes its place */
    LS_DUE_LATER,
    /* a checkpoint is due, and is written while training goes on; a failure is only logged */
    LS_DUE_MEANWHILE,
    /* a checkpoint is due and is on the disk before ls_save returns; a failure is an error */
    LS_DUE_NOW
} ls_due;

/* Returns whether a checkpoint is due, and how it is saved. No checkpoint is due if the run has no
 * directory. */
ls_due ls_checkpoint_due(const struct ls_trainer *trainer, const ls_moment *moment);

/* Copies the run's position and results to `out`. */
void ls_standing_of(ls_standing *out, const struct ls_trainer *trainer);
/* Copies a position and results from `standing` to the trainer. If `standing` has no main metric
 * (ls_result.metric), the trainer's main metric stays unchanged. */
void ls_take_standing(struct ls_trainer *trainer, const ls_standing *standing);

/* Returns the arrays that a checkpoint contains: the weights and optimizer states of the structure
 * that the function ls_engine_weights returns. */
ls_checkpoint_values ls_values(const struct ls_trainer *trainer);

/* Notes the present time as the time of the last save, because the run's saver was created. */
void ls_begin_saving(struct ls_trainer *trainer);
/* Returns the description of the run that is to be saved, for its saver (checkpoint/saver.h). */
ls_saver_desc ls_saved_run(struct ls_trainer *trainer);

/* Compares the replicas. With `exports`, first waits until no save reads the arrays of
 * ls_engine_weights, and then copies the weights and optimizer states of one replica to them. The
 * workers must have no work. Errors: LS_EDIVERGED, which names the checksums; those of
 * ls_engine_read_back; LS_ESTALLED (the save does not end). */
int ls_copy_replicas(struct ls_trainer *trainer, bool exports, ls_error *err);

/* Saves a checkpoint with the weights and states in ls_engine_weights, in the way that `due` says
 * (nothing, if it is LS_DUE_NOTHING). Errors: those of ls_saver_save and ls_saver_keep. */
int ls_save(struct ls_trainer *trainer, ls_due due, ls_error *err);
/* Begins to write the checkpoint that is kept in memory, if there is one and
 * checkpoint.every_seconds have passed since the last save. May be called while workers have work.
 * Errors: those of ls_saver_write_kept. */
int ls_save_kept(struct ls_trainer *trainer, ls_error *err);
/* Saves a checkpoint with the weights and states in ls_engine_weights to the file `path`. Errors:
 * those of ls_save_to_file. */
int ls_save_at(struct ls_trainer *trainer, const char *path, ls_error *err);

/* Returns the path of the checkpoint of the best evaluation, or NULL if there is no such
 * checkpoint. The path is valid until the next call of this function. */
const char *ls_best_checkpoint(struct ls_trainer *trainer);
/* Called before another evaluation becomes the best. If the evaluation that is still the best has a
 * checkpoint, on the disk or in memory, marks that checkpoint as one to be kept (ls_best.kept). It
 * is removed only when the new best evaluation also has a checkpoint. Errors: LS_ESTALLED (a save
 * does not end). */
int ls_displace_best(struct ls_trainer *trainer, ls_error *err);

/* Returns whether `count` is a multiple of `every`; `every` 0 means never. */
static inline bool ls_is_multiple(uint64_t count, int64_t every)
{
    return every > 0 && count % (uint64_t)every == 0;
}

#endif
