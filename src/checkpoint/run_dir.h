/* The run directory: where everything a run leaves behind lies. */
#ifndef TRAIN_RUN_DIR_H
#define TRAIN_RUN_DIR_H

#include "train/checkpoint.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <time.h>

struct ls_trainer;

/* What the directory of a run is called where the config says nothing: runs/20240131-093000-lenet, of the time when
 * it begins (UTC), with -n behind it from 2 on, where the names before are taken. */
void ls_run_dir_name(char *path, size_t size, time_t begun, const char *name, int n);

/* Makes the directory, durably, takes its lock, and writes the config into it; or makes that of a resumed run, which
 * is locked, last. Errors: LS_EIO (also where it holds a run already), LS_EAGAIN (another process trains there),
 * LS_ENOMEM. */
int ls_run_dir_open(struct ls_trainer *trainer, ls_error *err);

/* A member without the run directory that has lost the others: makes one beside it, DIR.member-N, to save
 * in. Does nothing for others. Errors: as ls_run_dir_open's. */
int ls_run_dir_open_apart(struct ls_trainer *trainer, ls_error *err);
/* Likewise, where it is the first of those that go on: with all the sinks of a first one. Errors: those of both. */
int ls_run_dir_take_over(struct ls_trainer *trainer, ls_error *err);

/* The trainer's sinks: metrics.jsonl and TensorBoard's events in the directory, and the caller's. Errors: those of
 * sink.h. */
int ls_run_dir_open_sinks(struct ls_trainer *trainer, ls_error *err);

/* ---- resume.c: going on where a run was left --------------------------------------------------- */

/* The checkpoint that a run goes on from. */
struct ls_resumed {
    char *path;
    ls_json *doc; /* the texts of `state` belong to it */
    ls_state state;
};

/* options.resume is set. Finds the run's directory (into trainer->run_dir), locks it, and reads the
 * state of its newest whole checkpoint. Where the options name no config, *config_path is the run's
 * own (the caller frees it); else the config has been read. Errors: LS_ENOENT, LS_EDATA, LS_EIO,
 * LS_EAGAIN (another process trains there), LS_ENOMEM. */
int ls_resume_find(struct ls_trainer *trainer, char **config_path, ls_error *err);
/* The run in runs/ that began last, by its own records, and has a checkpoint: its directory, which the caller
 * frees. `name` NULL: of any config. Errors: LS_ENOENT, LS_ENOMEM. */
int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err);
/* The same of a run that has records, whether it has a checkpoint or not. */
int ls_run_latest(char **out, const ls_host *host, ls_error *err);
/* Checks that recipe and data are the same, and loads position, result, weights and optimizer state.
 * Errors: LS_ECONFIG, LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_resume_load(struct ls_trainer *trainer, ls_error *err);
/* Reads the checkpoint `path`, of the verified `state`, into the exchange, and takes its place. It must be of the same recipe and data; on failure everything but the exchange is untouched. */
int ls_resume_from(struct ls_trainer *trainer, const char *path, const char *state, ls_error *err);
/* The summary is there: warns when library or instruction set are others than the run began with. */
void ls_resume_compare_libraries(const struct ls_trainer *trainer);
/* A run that is not resumed is allowed. */
void ls_resume_destroy(struct ls_trainer *trainer);

#endif
