/* The files of a run: its directory, the sinks of its records, and its saver, as its config and its
 * place among the members require; and the loading of a checkpoint. */
#ifndef TRAIN_RUN_FILES_H
#define TRAIN_RUN_FILES_H

#include "train/trainer.h"

/* Creates and locks the run's directory and writes its config. If the run is resumed, the directory
 * exists and is only synced. Does nothing if the run has no directory, or if this is not the first
 * member, which alone has it. Errors: those of ls_run_dir_make, of ls_sync_path. */
int ls_open_run_dir(struct ls_trainer *trainer, ls_error *err);
/* Opens the sinks in the run's directory, and the caller's callback. Errors: those of sink.h. */
int ls_open_sinks(struct ls_trainer *trainer, ls_error *err);
/* Creates the saver, which writes checkpoints into the directory. Errors: those of
 * ls_saver_create. */
int ls_open_saver(struct ls_trainer *trainer, ls_error *err);

/* Called by a member that can no longer reach the other members. If it has no run directory, it
 * creates one, DIR.member-N beside the usual directory DIR, in which it can save the run. Errors:
 * those of the three functions above. */
int ls_open_apart(struct ls_trainer *trainer, ls_error *err);
/* Called by a member that has become the first: does the same as ls_open_apart, and opens all sinks
 * that the first member has. Errors: the same. */
int ls_take_over(struct ls_trainer *trainer, ls_error *err);

/* Loads a checkpoint: weights and optimizer states into ls_engine_weights, the position into the
 * trainer. After a failure only the contents of ls_engine_weights have changed. Errors: those of
 * ls_resume_load. */
int ls_go_on_from(struct ls_trainer *trainer, const ls_resumed *resumed, ls_error *err);

#endif
