/* What the files of a worker's side of training share. Everything runs on the worker's thread.
 *
 *     worker.c         its jobs but training: opening, joining, evaluation, snapshots
 *     worker_step.c    a step in parts: shards, merge, optimizer
 *     worker_whole.c   a step as one launch, or several, where nobody else has a part in it
 */
#ifndef TRAIN_WORKER_H
#define TRAIN_WORKER_H

#include "train/run.h"

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
