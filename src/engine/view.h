/* What may be seen of an engine, and how it is watched: nothing here changes what is computed. All of it is the
 * coordinator's, and may be called at any time unless said otherwise. */
#ifndef ENGINE_VIEW_H
#define ENGINE_VIEW_H

#include "engine/engine.h"

/* ---- the queue ------------------------------------------------------------------------------ */

/* Whether another range may be submitted. */
bool ls_engine_has_room(const ls_engine *engine);
/* Number of steps that were submitted and not collected. */
uint64_t ls_engine_in_flight(const ls_engine *engine);
/* How many steps the next range had best have, if they are there: one, unless a worker alone takes several at once, or
 * steps that are over sooner than the coordinator is woken. */
uint32_t ls_engine_steps_at_once(const ls_engine *engine);

/* ---- what jobs and steps read and write, while no worker is at work -------------------------- */

/* Test rows, and what an evaluation made of them. */
ls_sharded_rows *ls_engine_test(ls_engine *engine);
/* [rows of training], for the order of an epoch: the next epoch's is another array. */
uint32_t *ls_engine_order(ls_engine *engine, uint32_t epoch);
/* Where streamed training rows wait for their step; NULL: they are resident. */
struct ls_feed *ls_engine_feed(ls_engine *engine);
/* The text of a device's choices among kernels, which the engine frees; NULL: there is none. */
char **ls_engine_choices(ls_engine *engine);

/* ---- workers -------------------------------------------------------------------------------- */

/* A worker, as it is seen while no job is under way. Ranges may be: they write none of this. A worker that has stalled
 * may still be in a job, so device, replica and checksum, which jobs write, are not read: they are 0. */
typedef struct ls_worker_view {
    ls_presence presence;
    int shard_lo, shard_hi;     /* its shards */
    ls_device *device;          /* once it has done a job */
    const ls_device_info *info; /* once it has done ls_worker_describe or ls_worker_open */
    const ls_replica *replica;
    uint32_t checksum; /* of its weights and state as they were read back last, or of a probe */
    const ls_report *report; /* of the step that was collected last; NULL: it has a fault */
    int queued;              /* ranges it has, the one it is at included */
} ls_worker_view;

ls_worker_view ls_engine_worker(const ls_engine *engine, int worker);
int ls_engine_workers(const ls_engine *engine); /* number of workers that it began with */
int ls_engine_live(const ls_engine *engine);    /* number of workers that still take part */
int ls_engine_shards(const ls_engine *engine);  /* number of shards of a minibatch */
/* The name of a worker's device, and the number of floats of a replica's arena, which is the same for all. They are
 * written when workers open and never again: from then on they may be read whatever the worker does, also when it has
 * stalled. */
const char *ls_engine_device_name(const ls_engine *engine, int worker);
size_t ls_engine_floats(const ls_engine *engine);
/* Number of bytes of the one sum that all workers share; 0: each has its own. And of a worker's partial sums. */
size_t ls_engine_total_bytes(const ls_engine *engine);
size_t ls_engine_fold_bytes(const ls_engine *engine, int worker);
/* Whether ls_engine_open, or a later LS_ENOMEM, failed for want of memory for the scores of an evaluation. */
bool ls_engine_lacks_scores(const ls_engine *engine);

/* ---- the watch ------------------------------------------------------------------------------ */

/* Where a worker leaves its marks for a timeline. Before anything is computed. */
void ls_engine_mark(ls_engine *engine, int worker, ls_marks *marks);
/* Where the worker's replica is, for a reader of its marks: looked at after a mark of one of its ops it is there. */
const ls_replica *const *ls_engine_replica_at(const ls_engine *engine, int worker);
/* Sets the deadline from now on, where the description leaves it to the engine. 0: no step was measured yet. */
void ls_engine_expect(ls_engine *engine, double longest_step_s);
/* Nanoseconds of the run: as ls_now_ns, but it stands still while the process is stopped, as far as the coordinator,
 * which sleeps most of the time, was asleep then. */
uint64_t ls_engine_ns(const ls_engine *engine);
/* The same of a moment not long ago, a time of ls_now_ns. */
uint64_t ls_engine_ns_at(const ls_engine *engine, uint64_t now_ns);

#endif
