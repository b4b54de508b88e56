/* Going on where a run was left. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "train/sink.h"

struct ls_resumed;
struct ls_trainer;

/* options.resume is set. Finds the run's directory (into trainer->run_dir), locks it, and reads the
 * state of its newest whole checkpoint. Where the options name no config, *config_path is the run's
 * own (the caller frees it); else the config has been read. Errors: LS_ENOENT, LS_EDATA, LS_EIO,
 * LS_EAGAIN (another process trains there), LS_ENOMEM. */
int ls_resume_find(struct ls_trainer *trainer, char **config_path, ls_error *err);
/* The run in runs/ that began last, by its own records, and has a checkpoint: its directory, which the caller
 * frees. `name` NULL: of any config. Errors: LS_ENOENT, LS_ENOMEM. */
int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err);
/* Shards of the run: those of a config that leaves them open. */
int ls_resume_shards(const struct ls_trainer *trainer);
/* Checks that recipe and data are the same, and loads position, result, weights and optimizer state.
 * Errors: LS_ECONFIG, LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_resume_load(struct ls_trainer *trainer, ls_error *err);
/* Reads the checkpoint `path`, whose verified `state` it frees, into the exchange, and takes its place.
 * It must be of the same recipe and data; on failure everything but the exchange is untouched. */
int ls_resume_from(struct ls_trainer *trainer, const char *path, char *state, ls_error *err);
/* What of metrics.jsonl the checkpoint counts on. */
const ls_sink_mark *ls_resume_metrics(const struct ls_trainer *trainer);
/* The summary is there: warns when library or instruction set are others than the run began with. */
void ls_resume_compare_libraries(const struct ls_trainer *trainer);
/* A run that is not resumed is allowed. */
void ls_resume_destroy(struct ls_trainer *trainer);

#endif
