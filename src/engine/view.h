/* SPDX-License-Identifier: MIT */
/* Observation of an engine: no function in this file changes what is computed. Only the coordinator
 * calls these functions. It may call them at any time unless a comment says otherwise. */
#ifndef ENGINE_VIEW_H
#define ENGINE_VIEW_H

#include "engine/engine.h"

/* ---- the queue ------------------------------------------------------------------------------ */

/* Returns whether another range may be submitted. */
bool ls_engine_has_room(const ls_engine *engine);
/* Returns the number of steps that were submitted and not yet collected. */
uint64_t ls_engine_in_flight(const ls_engine *engine);
/* Returns how many steps the next range should have, if the epoch has that many steps left. The
 * number is greater than 1 only if there is one live worker, its rows are resident, and one of
 * these conditions holds:
 * - the worker's device can run several steps as one launch
 * - the model is so small that a step takes less time than waking the coordinator */
uint32_t ls_engine_steps_at_once(const ls_engine *engine);

/* ---- data of jobs and steps, for use while no worker has work -------------------------------- */

/* Returns the test rows and the results of the last evaluation. */
ls_sharded_rows *ls_engine_test(ls_engine *engine);
/* Returns the array, [training rows], for the indices of the training rows in the order of the
 * epoch. Consecutive epochs use different arrays. */
uint32_t *ls_engine_order(ls_engine *engine, uint32_t epoch);
/* Returns the feed, which has the streamed training rows of the steps in flight; NULL: the rows are
 * resident. */
struct ls_feed *ls_engine_feed(ls_engine *engine);
/* Returns the address of the engine's pointer to a text: which kernel runs which op of the model.
 * The job ls_worker_choices writes it, from the device of worker 0. The caller sets it in the other
 * processes to a copy of the first one's, so that all devices use the same kernels. NULL: no text.
 * The engine frees it. */
char **ls_engine_choices(ls_engine *engine);

/* ---- workers -------------------------------------------------------------------------------- */

/* State of a worker while no job runs. Ranges may be running: the thread of a worker that runs a
 * range writes none of these fields. A stalled worker can still be running a job that writes its
 * device, replica and checksum. Therefore these three fields of a stalled worker are 0. */
typedef struct ls_worker_view {
    ls_presence presence; /* live, lost (its device failed) or stalled (engine/engine.h) */
    /* The shards shard_lo … shard_hi − 1 are assigned to the worker. If the group deals shards
     * (sync/deal.h), it computes others too. */
    int shard_lo, shard_hi;
    ls_device *device;          /* valid after the worker's first job */
    const ls_device_info *info; /* valid after ls_worker_describe or ls_worker_open */
    const ls_replica *replica;
    /* CRC-32 of the worker's weights and optimizer states at the last ls_engine_read_back, or of
     * its gradient after ls_worker_probe. */
    uint32_t checksum;
    /* report of the step collected last; NULL: the worker has a fault or is not live */
    const ls_report *report;
    int queued; /* number of jobs and ranges of this worker that have not ended */
} ls_worker_view;

/* Returns the state of a worker. */
ls_worker_view ls_engine_worker(const ls_engine *engine, int worker);
/* Returns the number of workers with which the engine was opened. */
int ls_engine_workers(const ls_engine *engine);
/* Returns the injections with which the engine was opened. */
const ls_injections *ls_engine_injections(const ls_engine *engine);
/* Returns the number of live workers. */
int ls_engine_live(const ls_engine *engine);
/* Returns the number of shards of a minibatch. */
int ls_engine_shards(const ls_engine *engine);
/* Returns the name of a worker's device. The job ls_worker_open writes the name, and no later job
 * changes it. Once ls_worker_open has ended, this function may be called at any time, even if the
 * worker has stalled. */
const char *ls_engine_device_name(const ls_engine *engine, int worker);
/* Returns the number of floats of an arena, the same for all workers. Once the job ls_worker_open
 * has ended, this function may be called at any time, even if worker 0 has stalled. */
size_t ls_engine_floats(const ls_engine *engine);
/* Returns the size in bytes of the total if it is one array that all workers share; 0: each worker
 * has its own array for the total. */
size_t ls_engine_total_bytes(const ls_engine *engine);
/* Returns the size in bytes of a worker's fold. */
size_t ls_engine_fold_bytes(const ls_engine *engine, int worker);
/* Returns whether the last LS_ENOMEM of an engine function was due to a lack of memory for the
 * scores of an evaluation. */
bool ls_engine_lacks_scores(const ls_engine *engine);

/* ---- timeline, deadline and clock ----------------------------------------------------------- */

/* Sets the buffer in which a worker records marks (times at which it began an activity) for a
 * timeline. Must be called before the worker computes anything. */
void ls_engine_set_marks(ls_engine *engine, int worker, ls_marks *marks);
/* Returns the address of the worker's pointer to its replica. A reader of the worker's marks uses
 * the pointer to find the names of ops. The worker sets the pointer before it records the first
 * mark of an op. */
const ls_replica *const *ls_engine_replica_at(const ls_engine *engine, int worker);
/* Sets the deadline: the time without a sign of life after which a worker is declared stalled. If
 * the description (ls_engine_desc) has no deadline, computes it from `longest_step_s`, the duration
 * in seconds of the longest step so far; 0: no step was measured yet. */
void ls_engine_set_deadline(ls_engine *engine, double longest_step_s);
/* Returns the run's time in nanoseconds, which is ls_now_ns minus the time during which the process
 * was stopped. Only stops that begin while the coordinator sleeps are noticed; the coordinator
 * sleeps most of the time. */
uint64_t ls_engine_ns(const ls_engine *engine);
/* Converts a recent value of ls_now_ns to the run's time. */
uint64_t ls_engine_ns_at(const ls_engine *engine, uint64_t now_ns);

/* ---- digests (base/digest.h) ---------------------------------------------------------------- */

/* A worker's digest after its last step, and before that step. It is the same for all live workers,
 * once a step has compared it. */
typedef struct ls_engine_digests {
    uint64_t now, before;
} ls_engine_digests;

/* Returns by how many steps the comparison of digests lags behind: if a step completes, the states
 * after all steps up to so many before it are equal. 0: steps compare no digests. */
int ls_engine_compare_lag(const ls_engine *engine);
/* Returns a number that contains the checksum of the present state and the digest, after
 * ls_engine_read_back. */
uint64_t ls_engine_state_digest(const ls_engine *engine);
/* Copies the digests of the first live worker, after ls_engine_settle or ls_engine_read_back. The
 * workers must have no work. */
void ls_engine_digest(const ls_engine *engine, ls_engine_digests *out);
/* Sets the digests of all workers: the workers have adopted the state of another process. The
 * workers must have no work. */
void ls_engine_set_digest(ls_engine *engine, const ls_engine_digests *digests);

#endif
