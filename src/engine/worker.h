/* Declarations shared by the files of the worker's side. All functions run on the worker's thread.
 *
 *     worker.c         jobs other than training: opening, joining, evaluation, reading back
 *     worker_step.c    steps: in parts together with other workers, or whole as device launches
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"

/* Returns whether gradients and the total may be placed in memory that is merged in place: the
 * device works in host memory, lets ops be bound again, and has not recorded their addresses. */
static inline bool ls_worker_rebinds(const ls_train_worker *w)
{
    const unsigned both = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS;
    return (w->info.flags & both) == both && !w->device->ops->record_begin;
}

/* Returns whether the worker's fold is in spread mode (comm/comm.h): it merges in the tree's order,
 * and its device computes alone. A device with several threads adds leaf by leaf, with all of
 * them. */
static inline bool ls_worker_spreads(const ls_train_worker *w)
{
    return w->engine->merge == &ls_comm_ordered && ls_worker_rebinds(w) && w->info.threads <= 1;
}

/* Executes the injections for this worker at a stage of a step. Errors: those of ls_inject_at. */
static inline int ls_worker_inject(ls_train_worker *w, uint64_t step, ls_stage stage)
{
    return ls_inject_at(&w->engine->desc.injections, w->index, step, stage, &w->error);
}

/* ---- worker.c: jobs besides those of engine.h ----------------------------------------------- */

/* Leaves the old group, if any; a live worker then joins the engine's group with its rank and
 * shards. */
ls_worker_job ls_worker_join;
/* Checks the group with copies between each pair of ranks and an all-reduce of exact numbers. */
ls_worker_job ls_worker_check;
/* Computes the checksum of the replica; the exporter also copies its weights and optimizer states
 * to the exchange. */
ls_worker_job ls_worker_snapshot;
/* Copies weights and optimizer states from the exchange to the replica. */
ls_worker_job ls_worker_load;

/* Calls ls_worker_close in a pool that goes on without this engine. `arg` is the engine. */
int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err);
/* The stop hook of the pool: undoes opening and joining as far as they were done. `user` is the
 * engine. */
void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user);

/* ---- worker_step.c -------------------------------------------------------------------------- */

/* Chooses how this worker takes steps in the group it has joined: gradients merged during backward,
 * gradients merged after it, or whole steps without a merge. All members make the same choice. */
int ls_worker_choose_steps(ls_train_worker *worker);

/* Runs the steps of a range, with one report per step. `arg` is one of the worker's own ranges. */
int ls_worker_train(const ls_worker *thread, void *arg, ls_error *err);

#endif
