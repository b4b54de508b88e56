/* Saving checkpoints (checkpoint.h) while a run goes on. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include <lockstep/status.h>
#include <stdbool.h>

struct ls_saver;
struct ls_trainer;

/* The trainer's: checkpoints go to <run_dir>/checkpoints. A run without a directory has none. Errors: LS_ENOMEM,
 * LS_ESYSTEM, LS_EIO. */
int ls_saver_create(struct ls_trainer *trainer, ls_error *err);
/* Waits for the save under way. NULL is allowed. LS_ESTALLED: it hangs; its memory is left. */
int ls_saver_destroy(struct ls_saver *saver);

/* Waits until nothing is being written. Errors: LS_ESTALLED. */
int ls_saver_rest(struct ls_trainer *trainer);

/* No worker is at work. Compares the replicas and, with `exports`, exports weights and optimizer
 * state into the exchange. Errors: LS_EDIVERGED names the replica that differs; those of ls_gang. */
int ls_snapshot_replicas(struct ls_trainer *trainer, bool exports, ls_error *err);

/* Saves what ls_snapshot_replicas has just exported. With `wait` it is on the disk at the return;
 * else it is written while training goes on, and a failure is logged: the next one may succeed. */
int ls_checkpoint(struct ls_trainer *trainer, bool wait, ls_error *err);

/* Saves what was exported to the file `path`; on the disk at the return. */
int ls_checkpoint_at(struct ls_trainer *trainer, const char *path, ls_error *err);

/* The path of the best evaluation's checkpoint, good until the next call; NULL: none is kept. Asks nothing of the saver
 * itself, which may be destroyed. */
const char *ls_saver_best(struct ls_trainer *trainer);

/* Before another evaluation becomes the best: notes the checkpoint of the present one as kept until that has its own.
 * Errors: LS_ESTALLED. */
int ls_saver_displace_best(struct ls_trainer *trainer, ls_error *err);

/* The position has changed otherwise than by training: a checkpoint of the same step is another one. */
void ls_saver_forget(struct ls_trainer *trainer);

#endif
