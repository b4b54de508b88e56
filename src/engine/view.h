/* Observation of an engine: nothing here changes what is computed. Only the coordinator calls these
 * functions, and it may do so at any time unless a comment says otherwise. */
#ifndef ENGINE_VIEW_H
#define ENGINE_VIEW_H

#include "engine/engine.h"

/* ---- the queue ------------------------------------------------------------------------------ */

/* Returns whether another range may be submitted. */
bool ls_engine_has_room(const ls_engine *engine);
/* Returns the number of steps that were submitted and not yet collected. */
uint64_t ls_engine_in_flight(const ls_engine *engine);
/* Returns how many steps the next range should have if the epoch has as many left. The number is 1
 * unless one worker is left, its rows are resident, and either its device takes several steps in
 * one launch, or its steps end sooner than the coordinator can be woken. */
uint32_t ls_engine_steps_at_once(const ls_engine *engine);

/* ---- data of jobs and steps, for use while no worker has work -------------------------------- */

/* Returns the test rows and the results of the last evaluation. */
ls_sharded_rows *ls_engine_test(ls_engine *engine);
/* Returns the array for the order of an epoch's rows, [training rows]. Consecutive epochs use
 * different arrays. */
uint32_t *ls_engine_order(ls_engine *engine, uint32_t epoch);
/* Returns the feed, in which streamed training rows wait for their step; NULL: the rows are
 * resident. */
struct ls_feed *ls_engine_feed(ls_engine *engine);
/* Returns the location of the text of a device's choices among kernels, which the engine frees; the
 * text is NULL if there is none. */
char **ls_engine_choices(ls_engine *engine);

/* ---- workers -------------------------------------------------------------------------------- */

/* State of a worker while no job is under way. Ranges may be under way: they write none of these
 * fields. A stalled worker may still be in a job that writes its device, replica and checksum, so
 * they are not read and are 0 here. */
typedef struct ls_worker_view {
    ls_presence presence;
    int shard_lo, shard_hi;     /* shards shard_lo … shard_hi − 1 belong to the worker */
    ls_device *device;          /* valid after the worker's first job */
    const ls_device_info *info; /* valid after ls_worker_describe or ls_worker_open */
    const ls_replica *replica;
    /* Checksum of its weights and states at the last read-back, or of the gradient of a probe. */
    uint32_t checksum;
    const ls_report *report; /* report of the step collected last; NULL: the worker has a fault */
    int queued;              /* number of its jobs and ranges that have not ended */
} ls_worker_view;

/* Returns the state of a worker. */
ls_worker_view ls_engine_worker(const ls_engine *engine, int worker);
/* Returns the number of workers with which the engine was opened. */
int ls_engine_workers(const ls_engine *engine);
/* Returns the number of workers that still take part. */
int ls_engine_live(const ls_engine *engine);
/* Returns the number of shards of a minibatch. */
int ls_engine_shards(const ls_engine *engine);
/* Return the name of a worker's device, and the number of floats of a replica's arena, which is the
 * same for all workers. Both are written when the workers open and never again, so from then on
 * they may be read at any time, even if the worker has stalled. */
const char *ls_engine_device_name(const ls_engine *engine, int worker);
size_t ls_engine_floats(const ls_engine *engine);
/* Return the size in bytes of the total that all workers share (0: each has its own), and of a
 * worker's partial sums. */
size_t ls_engine_total_bytes(const ls_engine *engine);
size_t ls_engine_fold_bytes(const ls_engine *engine, int worker);
/* Returns whether ls_engine_open, or a later LS_ENOMEM, failed for want of memory for the scores of
 * an evaluation. */
bool ls_engine_lacks_scores(const ls_engine *engine);

/* ---- the watch ------------------------------------------------------------------------------ */

/* Sets the buffer in which a worker records marks for a timeline. Must be called before anything is
 * computed. */
void ls_engine_set_marks(ls_engine *engine, int worker, ls_marks *marks);
/* Returns the address of the worker's pointer to its replica, for a reader of the worker's marks.
 * The pointer is set before the first mark of one of the replica's ops. */
const ls_replica *const *ls_engine_replica_at(const ls_engine *engine, int worker);
/* Derives the deadline from the longest step so far, in seconds, unless the description sets it. 0:
 * no step was measured yet. */
void ls_engine_expect(ls_engine *engine, double longest_step_s);
/* Returns the run's time in nanoseconds: ls_now_ns minus the time during which the process was
 * stopped. Only pauses that began while the coordinator slept are noticed; it sleeps most of the
 * time. */
uint64_t ls_engine_ns(const ls_engine *engine);
/* Converts a recent time of ls_now_ns to the run's time. */
uint64_t ls_engine_ns_at(const ls_engine *engine, uint64_t now_ns);

#endif
