/* What the files of a worker's side of training share. All of it runs on the worker's thread.
 *
 *     worker.c         its jobs but training: opening, joining, evaluation, reading back
 *     worker_step.c    steps: in parts with others, or whole, as one launch or several as one
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"

/* Whether gradients and the total may lie where they are merged: ops are bound again, which nothing has recorded. */
static inline bool ls_worker_rebinds(const ls_train_worker *w)
{
    const unsigned both = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS;
    return (w->info.flags & both) == both && !w->device->ops->record_begin;
}

/* Errors: what an injection at that stage of that step asks for. */
static inline int ls_worker_inject(ls_train_worker *w, uint64_t step, ls_stage stage)
{
    return ls_inject_at(&w->engine->desc.injections, w->index, step, stage, &w->error);
}

/* ---- worker.c: jobs besides those of engine.h ----------------------------------------------- */

/* Leaves the old group, if any; a live worker joins the engine's with its rank and shards. */
ls_worker_job ls_worker_join;
/* Checks the group: copies between each pair, and an all-reduce of exact numbers. */
ls_worker_job ls_worker_check;
/* Computes the checksum; the exporter's weights and optimizer state → the exchange. */
ls_worker_job ls_worker_snapshot;
/* The exchange's weights and optimizer state → the replica. */
ls_worker_job ls_worker_load;

/* Before a pool that others use goes on without this engine: ls_worker_close. */
int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err);
/* The stop hook: undoes open and join, as far as they got. `user` is the engine. */
void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user);

/* ---- worker_step.c -------------------------------------------------------------------------- */

/* How this worker's steps go in the group it has joined: merged while backward goes on, whole, or neither.
 * All members decide alike. */
int ls_worker_choose_steps(ls_train_worker *worker);

/* `arg` is one of the worker's own ranges: runs its steps, one report each. */
int ls_worker_train(const ls_worker *thread, void *arg, ls_error *err);

#endif
