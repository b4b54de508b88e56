/* The run directory: where everything a run leaves behind lies. */
#ifndef TRAIN_RUN_DIR_H
#define TRAIN_RUN_DIR_H

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

#endif
