/* SPDX-License-Identifier: MIT */
/* The files of a run: its directory, the sinks of its records, and the saver of its checkpoints.
 * The config decides which files there are. In a run of several members, only the first has these
 * files. The last function of this header loads a checkpoint. */
#ifndef TRAIN_RUN_FILES_H
#define TRAIN_RUN_FILES_H

#include "train/trainer.h"

/* Creates and locks the run's directory and writes the config into the directory. If the run is
 * resumed, the directory exists and is only synced. Does nothing if the run has no directory, or if
 * this process is not the first member. Errors: those of ls_run_dir_make, of ls_sync_path. */
int ls_open_run_dir(struct ls_trainer *trainer, ls_error *err);
/* Opens the sinks in the run's directory, and the sink that calls the caller's callback. Errors:
 * those of sink.h. */
int ls_open_sinks(struct ls_trainer *trainer, ls_error *err);
/* Creates the saver, which writes checkpoints into the directory. Errors: those of
 * ls_saver_create. */
int ls_open_saver(struct ls_trainer *trainer, ls_error *err);

/* Called by a member that can no longer reach the other members, in a run that has done a step. If
 * the member has no run directory, creates RUN_DIR.member-N, where N is its number at the start, so
 * that it can save the run. Errors: those of ls_run_dir_make_apart, ls_open_saver, ls_open_sinks
 * and ls_record_start. */
int ls_open_apart(struct ls_trainer *trainer, ls_error *err);
/* Called by a member that has become the first, because the former first member was lost. Creates
 * RUN_DIR.member-N, as ls_open_apart does, and opens all sinks that the first member has. Errors:
 * those of ls_open_apart. */
int ls_take_over(struct ls_trainer *trainer, ls_error *err);

/* Loads a checkpoint: copies weights and optimizer states to the arrays of ls_engine_weights, and
 * position and results of the run to the trainer. After an error only the contents of these arrays
 * have changed. `file`: the opened checkpoint. Errors: those of ls_resume_load. */
int ls_go_on_from(struct ls_trainer *trainer, const ls_resumed *resumed, const ls_tensor_file *file,
                  ls_error *err);

#endif
