/* Checkpoints of a run: the one place that decides when one is due, and of which kind. */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include "checkpoint/saver.h"
#include "train/trainer.h"

/* When it may be time for a checkpoint. */
typedef enum ls_occasion {
    LS_STEP_DONE, /* `steps` steps are done, or will be */
    LS_EPOCH_DONE, /* and the next one has begun; `evaluated`, where there was an evaluation behind it */
    LS_TAKEN_OVER, /* this member has the run directory since the first was lost */
    LS_RUN_ENDED,  /* with `status` */
    LS_ASKED       /* by the caller */
} ls_occasion;

typedef struct ls_moment {
    ls_occasion occasion;
    uint64_t steps;
    bool evaluated;
    int status;
} ls_moment;

/* What is due then. */
typedef enum ls_due {
    LS_DUE_NOTHING,
    LS_DUE_MEANWHILE, /* a checkpoint that is written while training goes on, and may fail */
    LS_DUE_NOW        /* one that is on the disk before the run goes on or ends */
} ls_due;

/* Where the run has no directory nothing is due. */
ls_due ls_checkpoint_due(const struct ls_trainer *trainer, const ls_moment *moment);

/* Where the run stands, from its position and its result, and back into them. A metric that is not known stays as it
 * is. */
void ls_standing_of(ls_standing *out, const struct ls_trainer *trainer);
void ls_take_standing(struct ls_trainer *trainer, const ls_standing *standing);

/* What a checkpoint keeps of ls_engine_weights. */
ls_checkpoint_values ls_values(const struct ls_trainer *trainer);

/* The run as its checkpoints know it. */
ls_saver_desc ls_saved_run(struct ls_trainer *trainer);

/* No worker is at work. Compares the replicas and, with `exports`, brings weights and optimizer state to
 * ls_engine_weights, once no save reads them any more. Errors: LS_EDIVERGED names the replica that differs; those of
 * ls_engine_read_back, LS_ESTALLED. */
int ls_snapshot_replicas(struct ls_trainer *trainer, bool exports, ls_error *err);

/* Saves what was just exported, as is due. Errors: those of ls_saver_save. */
int ls_save(struct ls_trainer *trainer, ls_due due, ls_error *err);
/* Saves it to the file `path`. Errors: those of ls_save_to_file. */
int ls_save_at(struct ls_trainer *trainer, const char *path, ls_error *err);

/* The file of the best evaluation's checkpoint, good until the next call; NULL: none is kept. */
const char *ls_best_checkpoint(struct ls_trainer *trainer);
/* Before another evaluation becomes the best: notes the checkpoint of the present one as kept until that has its own.
 * Errors: LS_ESTALLED. */
int ls_displace_best(struct ls_trainer *trainer, ls_error *err);

/* 0: never. */
static inline bool ls_is_multiple(uint64_t count, int64_t every)
{
    return every > 0 && count % (uint64_t)every == 0;
}

#endif
