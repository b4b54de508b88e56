/* The files of a run: its directory, the sinks of its records, and its saver, as its config and its place among the
 * members have it; and how a run goes on from a checkpoint. */
#ifndef TRAIN_RUN_FILES_H
#define TRAIN_RUN_FILES_H

#include "train/trainer.h"

/* The run's directory, locked, with its config in it; that of a run that is resumed is made to last. Members without
 * the run's directory, and runs without one, have none. Errors: those of ls_run_dir_make. */
int ls_open_run_dir(struct ls_trainer *trainer, ls_error *err);
/* The sinks in it, and the caller's own. Errors: those of sink.h. */
int ls_open_sinks(struct ls_trainer *trainer, ls_error *err);
/* What writes checkpoints into it. Errors: those of ls_saver_create. */
int ls_open_saver(struct ls_trainer *trainer, ls_error *err);

/* A member without the run directory that has lost the others: makes one beside it, DIR.member-N, to save in. Does
 * nothing for others. Errors: those of the three above. */
int ls_open_apart(struct ls_trainer *trainer, ls_error *err);
/* Likewise, where it is the first of those that go on: with all the sinks of a first one. */
int ls_take_over(struct ls_trainer *trainer, ls_error *err);

/* Goes on from a checkpoint: its weights and optimizer state to ls_engine_weights, its place into the run's. On
 * failure everything but the weights there is untouched. Errors: those of ls_resume_load. */
int ls_go_on_from(struct ls_trainer *trainer, const ls_resumed *resumed, ls_error *err);

#endif
