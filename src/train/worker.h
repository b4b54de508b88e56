/* What the files of a worker's side of training share. Everything but ls_gang runs on the worker's thread.
 *
 *     worker.c         its jobs but training: opening, joining, evaluation, snapshots
 *     worker_step.c    steps: in parts with others, or whole, as one launch or several as one
 */
#ifndef TRAIN_WORKER_H
#define TRAIN_WORKER_H

#include "train/trainer.h"

/* Whether gradients and the total may lie where they are merged: ops are bound again, which nothing has recorded. */
static inline bool ls_worker_rebinds(const ls_train_worker *w)
{
    const unsigned both = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS;
    return (w->info.flags & both) == both && !w->device->ops->record_begin;
}

/* ---- worker.c: jobs ------------------------------------------------------------------------- */

/* The coordinator's: runs `job` with the exchange on every worker that answers, and waits. A worker that shows no
 * sign of life for the deadline is left behind (presence LS_STALLED). Returns LS_OK when every live worker did it,
 * else the first cause; ls_recover then says how to go on. */
int ls_gang(struct ls_trainer *trainer, ls_worker_job *job, ls_error *err);

/* No worker is at work. Compares the replicas and, with `exports`, brings the first live one's weights and optimizer
 * state into the exchange. Errors: LS_EDIVERGED names the replica that differs; those of ls_gang. */
int ls_read_replicas(struct ls_trainer *trainer, bool exports, ls_error *err);

/* Learns which device it has. */
int ls_worker_describe(ls_train_worker *worker, const ls_exchange *e);
/* Worker 0's device's choices among kernels → members.choices. */
int ls_worker_choices(ls_train_worker *worker, const ls_exchange *e);
/* Builds the worker's replica and fold, from the exchange's weights and optimizer state. */
int ls_worker_open(ls_train_worker *worker, const ls_exchange *e);
/* Leaves the old group, if any; a live worker joins trainer->group with its rank and shards. */
int ls_worker_join(ls_train_worker *worker, const ls_exchange *e);
/* Checks the group: copies between each pair, and an all-reduce of exact numbers. */
int ls_worker_check(ls_train_worker *worker, const ls_exchange *e);
/* Worker 0: the checksum of shard 0's gradient of the first minibatch, as the rows lie. */
int ls_worker_probe(ls_train_worker *worker, const ls_exchange *e);
/* This worker's shards of every test minibatch → the exchange's tallies. */
int ls_worker_evaluate(ls_train_worker *worker, const ls_exchange *e);
/* Computes the checksum; the exporter's weights and optimizer state → the exchange. */
int ls_worker_snapshot(ls_train_worker *worker, const ls_exchange *e);
/* The exchange's weights and optimizer state → the replica. */
int ls_worker_load(ls_train_worker *worker, const ls_exchange *e);

/* Before a pool that others use goes on without this trainer: ls_worker_close. */
int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err);

/* `arg` is one of the worker's own ranges: runs its steps, one report each. */
int ls_worker_train(const ls_worker *thread, void *arg, ls_error *err);

/* The stop hook: undoes open and join, as far as they got. `user` is the trainer. */
void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user);

/* ---- shared by the two files ---------------------------------------------------------------- */

/* Errors: what an injection at that stage of that step asks for. */
int ls_worker_inject(ls_train_worker *worker, uint64_t step, ls_stage stage);

/* ---- worker_step.c -------------------------------------------------------------------------- */

/* How this worker's steps go in the group it has joined: merged while backward goes on, whole, or neither.
 * All members decide alike. */
int ls_worker_choose_steps(ls_train_worker *worker);

#endif
