/* SPDX-License-Identifier: MIT */
/* Declarations for the files whose functions run on a worker's thread.
 *
 *     worker.c         jobs other than training: opening, joining, evaluation, reading back
 *     worker_step.c    steps: in parts together with other workers, or whole as device launches */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"

/* Returns whether the replica's gradient and total can be moved to other arrays. Then the ops write
 * directly into the arrays of the fold (the worker's partial sums). This needs a device that works
 * in host memory, allows the addresses in its ops to be changed later, and does not record ops with
 * their addresses. */
static inline bool ls_worker_rebinds(const ls_train_worker *w)
{
    const unsigned both = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS;
    return (w->info.flags & both) == both && !w->device->ops->record_begin;
}

/* Returns whether the worker's fold is in spread mode: gradients are added late, not when each is
 * computed (comm/comm.h). It is if sums are merged in the tree's order, ls_worker_rebinds holds,
 * and the worker's device computes with one thread. A device with several threads adds each
 * gradient at once, with all its threads. */
static inline bool ls_worker_spreads(const ls_train_worker *w)
{
    return w->engine->merge == &ls_comm_ordered && ls_worker_rebinds(w) && w->info.threads <= 1;
}

/* Executes the injections (planned faults, for tests) of this worker at a stage of a step. Errors:
 * those of ls_inject_at. */
static inline int ls_worker_inject(ls_train_worker *w, uint64_t step, ls_stage stage)
{
    return ls_inject_at(&w->engine->desc.injections, w->index, step, stage, &w->error);
}

/* ---- worker.c: jobs besides those of engine.h ----------------------------------------------- */

/* Leaves the old group, if there is one. A worker whose device works then joins the engine's group
 * with its rank and shards. */
ls_worker_job ls_worker_join;
/* Leaves the group, and replaces the replica by one of the engine's present model, with the state
 * in the exchange. After an error the worker has its old replica, and is in its group. */
ls_worker_job ls_worker_renew;
/* Runs the start-up check of the group (ls_merge_check_group). */
ls_worker_job ls_worker_check;
/* Computes the checksum of the replica. If this worker is the exporter (ls_exchange.exporter), it
 * also copies its weights and optimizer states to the exchange. */
ls_worker_job ls_worker_copy_state;
/* Computes the checksum of the replica's whole state. Does what ls_worker_settle does too. */
int ls_worker_sum_state(uint32_t *sum, ls_train_worker *worker);
/* Waits for the device, so that the worker's digest contains the sum of its last step. */
ls_worker_job ls_worker_settle;
/* Copies weights and optimizer states from the exchange to the replica. */
ls_worker_job ls_worker_load;

/* A job of the pool, for an engine whose pool belongs to the caller: calls ls_worker_close. The
 * pool continues to run. `arg` is the engine. */
int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err);
/* The stop hook of the pool: undoes ls_worker_open and ls_worker_join, as far as they were done.
 * `user` is the engine. */
void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user);

/* ---- worker_step.c -------------------------------------------------------------------------- */

/* Chooses how this worker runs steps in the group that it has joined: with a merge during backward,
 * with a merge after backward, or as whole steps without a merge. All workers of a group choose the
 * same. Errors: those of the replica. */
int ls_worker_choose_steps(ls_train_worker *worker);

/* Takes the sum of the last step into the worker's digest, if the sum is late
 * (ls_replica_digest_is_late) and has not been taken. The device must have been waited for since
 * that step. */
void ls_worker_take_late_digest(ls_train_worker *worker);

/* Runs the steps of a range, and sends one report per step. `arg` is the range, one of the worker's
 * own copies (ls_train_worker.range). */
int ls_worker_train(const ls_worker *thread, void *arg, ls_error *err);

#endif
