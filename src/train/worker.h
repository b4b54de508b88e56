/* What the files of a worker's side of training share. Everything runs on the worker's thread.
 *
 *     worker.c         its jobs but training: opening, joining, evaluation, snapshots
 *     worker_step.c    a step in parts: shards, merge, optimizer
 *     worker_whole.c   a step as one launch, or several, where nobody else has a part in it
 */
#ifndef TRAIN_WORKER_H
#define TRAIN_WORKER_H

#include "train/trainer.h"

/* ---- worker.c: jobs of the pool ------------------------------------------------------------- */

/* Jobs whose `arg` is the exchange; their result is the worker's `job_status` and `error`. */
/* Builds the worker's replica and fold, from the exchange's weights and optimizer state. */
int ls_worker_open(const ls_worker *w, void *arg, ls_error *err);
/* Leaves the old group, if any; a live worker joins trainer->group with its rank and shards. */
int ls_worker_join(const ls_worker *w, void *arg, ls_error *err);
/* Checks the group: copies between each pair, and an all-reduce of exact numbers. */
int ls_worker_check(const ls_worker *w, void *arg, ls_error *err);
/* This worker's shards of every test minibatch → the exchange's tallies. */
int ls_worker_evaluate(const ls_worker *w, void *arg, ls_error *err);
/* Computes the checksum; the exporter's weights and optimizer state → the exchange. */
int ls_worker_snapshot(const ls_worker *w, void *arg, ls_error *err);
/* The exchange's weights and optimizer state → the replica. */
int ls_worker_load(const ls_worker *w, void *arg, ls_error *err);
/* Before a pool that others use goes on without this trainer: ls_worker_close. */
int ls_worker_leave(const ls_worker *w, void *arg, ls_error *err);

/* `arg` is one of the worker's own ranges: runs its steps, one report each. */
int ls_worker_train(const ls_worker *w, void *arg, ls_error *err);

/* The stop hook: undoes open and join, as far as they got. `user` is the trainer. */
void ls_worker_close(const ls_worker *w, ls_device *device, void *local, void *user);

/* ---- shared by the three files -------------------------------------------------------------- */

/* Errors: what an injection at that stage of that step asks for. */
int ls_worker_inject(ls_train_worker *mine, uint64_t step, ls_stage stage);

/* The first row and the number of rows of a shard within a minibatch of n rows. */
void ls_worker_shard_rows(const struct ls_trainer *t, uint32_t n, int shard, uint32_t *first,
                          uint32_t *count);

/* ---- worker_step.c -------------------------------------------------------------------------- */

/* How this worker's steps go in the group it has joined. All of its members decide alike. */
int ls_worker_choose_course(ls_train_worker *mine);

/* One step of a range. */
ls_step ls_worker_step_of(const ls_range *range, uint32_t index);

/* What the optimizer is told of a step. */
ls_replica_step ls_worker_how(const ls_train_worker *mine, const ls_step *s);

/* Streamed rows of a shard reach the device. *draw: what tells the step's random numbers apart. */
int ls_worker_refresh(ls_train_worker *mine, const ls_step *s, uint32_t first, uint32_t count,
                      uint32_t *draw);

/* The sum's tail into the report. Errors: LS_EINTERNAL (rows are missing). */
int ls_worker_note_sum(ls_train_worker *mine, ls_step *s, const float tail[LS_TAIL]);

/* The step's sum is not finite, nobody applied it and the weights are what they were: finds the
 * shard by computing this worker's once more, and marks the report as skipped. */
int ls_worker_name_the_shard(ls_train_worker *mine, ls_step *s);

/* Sends the report. A failure releases those who wait for this worker, and no further step is
 * begun; a loss that was not finite ends the run unless it skips such steps. */
void ls_worker_report(ls_train_worker *mine, ls_step *s);

/* ---- worker_whole.c ------------------------------------------------------------------------- */

/* How many of a range's steps, from `index` on, can be enqueued as one launch: 0 where a step has to be
 * taken in parts, because of others or because something is planned to go wrong in it. */
uint32_t ls_worker_at_once(const ls_train_worker *mine, const ls_range *range, uint32_t index);
/* Enqueues so many, and reports what is done by then. They are reported themselves, at the latest
 * when the worker has nothing else to do. */
void ls_worker_take_whole(ls_train_worker *mine, const ls_range *range, uint32_t index,
                          uint32_t count);
/* Waits for all that are under way, and reports them. */
void ls_worker_land(ls_train_worker *mine);

#endif
