/* The engine: data-parallel training of one model by several workers. A worker is a thread with a device of its own
 * and a replica of the model. What a run wants of them is decided above (train/): the engine is given a description of
 * the work, and knows neither configs nor records nor checkpoints. This page says how it works; the functions follow.
 *
 * THE QUEUE. One thread, the coordinator, leads: it alone calls the functions below. It cuts an epoch into minibatches
 * and sends ranges, a range being one or a few consecutive steps, into the inbox of every worker, a bounded queue with
 * one writer and one reader that needs no lock. All workers get the same range. At most LS_IN_FLIGHT are out: one is
 * worked at while the next one waits, so that no worker is idle between two steps, and none gets far ahead.
 *
 *     coordinator                          worker                              worker
 *     ls_engine_submit(range) ──inbox──▶   gather, forward, backward           (the same, on
 *                                          of each of its shards                its shards)
 *                                          ┃ the merge: all workers meet ┃
 *                                          the optimizer's step
 *     ls_engine_collect()    ◀──reports──  "done", loss, times
 *
 * THE STEP. A minibatch is cut into a fixed number of shards, whatever the number of workers, and each worker has some
 * of them (group.c). It computes their gradients one after another and adds them up as a binary tree over the shards
 * prescribes. When all gradients are merged every worker has the same sum, and applies the same step of the optimizer to
 * its own replica: equal replicas stay equal, bit for bit, and nothing but gradients was ever exchanged
 * (worker_step.c).
 *
 * THE MERGE. An all-reduce: each worker brings the partial sums of its shards, and all get the total. The additions
 * are those of the tree over all shards, in its order, so the total does not depend on how many workers there are. Where
 * each worker has one shard, the part of a gradient that is complete is merged while backward computes the rest.
 * Loss, hits and the number of rows are the last floats of the gradient and are summed with it.
 *
 * THE COMMIT POINT. It lies inside the merge (merge/group.h): either every worker gets the whole sum, or none does. A
 * worker that fails before it leaves the others without a sum, and nobody applies the step; one that fails behind it
 * leaves the others with the sum, and they all do. So after any failure those that are left agree on how many steps are
 * done, without asking each other, and no replica has to be repaired.
 *
 * A LOST WORKER. A worker whose device fails says so in its report and takes no further part. One that shows no sign of
 * life for the deadline is left behind: it cannot be stopped, so all memory that it may still touch is left to it, and
 * the others get memory of their own. Either way ls_engine_collect, or the job that was under way, comes back with
 * faults (ls_engine_faults). The coordinator judges them and then has the others form a new group
 * (ls_engine_form), among whom the shards are dealt out anew. The tree has not changed: when the step is
 * sent again its sum, and the weights of the run, are the bits they would have been.
 *
 * Unless said otherwise all functions are the coordinator's, and are called while no worker is at work.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "device/registry.h"
#include "engine/fault.h"
#include "engine/infer.h"
#include "engine/inject.h"
#include "nn/loss.h"
#include "nn/optimizer.h"
#include "nn/replica.h"

#include <lockstep/device_pool.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct ls_engine ls_engine;
struct ls_cluster;

/* Most consecutive steps that one range may hold. */
#define LS_RANGE_MAX 32
/* Ranges a worker may hold at once: one runs while the next one waits. More would only let a worker run ahead of the
 * others. */
#define LS_IN_FLIGHT 2
/* Most numbers of rows in ls_engine_desc.step_rows. */
#define LS_STEP_ROWS 8

/* ---- the description ------------------------------------------------------------------------ */

/* What is to be done. All that it points to, but for `devices`, outlives the engine. */
typedef struct ls_engine_desc {
    /* By whom: the threads of `pool`, or of one that is made of `devices` (the engine adds what happens at the end of a
     * thread, and the size of an inbox). */
    ls_pool *pool;
    const ls_device_pool_options *devices;
    /* What is trained, and how. */
    const ls_model *model;
    const ls_optimizer *optimizer;
    const ls_gather *preprocessing;
    const ls_loss *loss;
    float label_smoothing;
    const float *class_weight; /* [classes]; NULL: classes count alike */
    uint64_t seed;
    bool nominal;        /* a sum of gradients is divided by batch_size, not by its rows */
    bool skip_nonfinite; /* a step whose loss is not finite is left out; else no other is begun */
    /* On what. Training rows that are not resident are streamed: they pass through ls_engine_feed. */
    ls_dataset *const *data; /* [LS_SUBSETS] */
    uint32_t batch_size;
    const uint32_t *step_rows; /* further numbers of rows that a minibatch may have */
    int step_row_count;
    bool scores;            /* an evaluation brings every row's scores, not only sums */
    const atomic_int *stop; /* not 0: an evaluation ends early; NULL: never */
    /* How it is divided. */
    int shards;                 /* of a minibatch; 0: one for each worker */
    const double *capacity;     /* of each worker; NULL: they are equal */
    struct ls_cluster *cluster; /* the other processes; NULL: there is none */
    /* How it is watched. */
    double deadline_s; /* how long a worker may be silent; 0: by the longest step so far */
    ls_injections injections;
    /* Called with `user`: while the coordinator waits, now and then, and behind each job; and on each worker's thread,
     * before anything is computed on its device. Both may be NULL. */
    void (*idle)(void *user);
    void (*opened)(void *user, int worker, ls_device *device);
    void *user;
    const ls_host *host;
} ls_engine_desc;

/* ---- life ----------------------------------------------------------------------------------- */

/* Makes the workers' threads, each with its device, and the memory that they share with the coordinator. What they
 * compute with they make in the job ls_worker_open. After a failure *out is to be stopped and destroyed all the same,
 * unless it is NULL. Errors: LS_EINVAL (the list of devices), LS_ENOMEM, those of
 * ls_device_pool_create. */
int ls_engine_open(ls_engine **out, const ls_engine_desc *desc, ls_error *err);

/* Whether ls_engine_open, or a later LS_ENOMEM, failed for want of memory for the scores of an evaluation. */
bool ls_engine_lacks_scores(const ls_engine *engine);

/* Ends the workers; a pool that was lent goes on without this engine. LS_ESTALLED: one that was left behind has not come
 * back and may still use whatever it reached, so that the engine, and what its description points to, have to stay.
 * NULL is allowed. */
int ls_engine_stop(ls_engine *engine);
/* Frees the engine, which was stopped. NULL is allowed. */
void ls_engine_destroy(ls_engine *engine);

/* Where a worker leaves its marks for a timeline. Before anything is computed. */
void ls_engine_mark(ls_engine *engine, int worker, ls_marks *marks);

/* ---- weights -------------------------------------------------------------------------------- */

/* Canonical weights, and the optimizer's state in the places of the model's parameters: what workers begin with, and
 * what is read back from them. */
typedef struct ls_engine_state {
    float *canonical; /* model->floats. Where a moving average is kept it is that, … */
    float *slot
        [LS_STATES]; /* … and its state the weights that are trained. NULL where there is no such state */
    bool has_slots; /* the state is set, for ls_worker_open: not that of a beginning */
} ls_engine_state;

/* The engine's. It may be another one after ls_engine_leave_stalled. */
ls_engine_state *ls_engine_weights(ls_engine *engine);
/* The weights and the optimizer's state there become those of all replicas. Errors: as ls_engine_run_all. */
int ls_engine_load(ls_engine *engine, uint64_t behind, ls_error *err);
/* Compares the replicas, behind `behind` steps, and, with `exports`, brings weights and state of one there. Errors:
 * LS_EDIVERGED names the replica that differs; as ls_engine_run_all. */
int ls_engine_read_back(ls_engine *engine, bool exports, uint64_t behind, ls_error *err);

/* ---- steps ---------------------------------------------------------------------------------- */

/* Consecutive steps of one epoch. */
typedef struct ls_range {
    ls_engine *engine; /* set by ls_engine_submit */
    uint32_t epoch;
    uint64_t first_step; /* counted from the start of the run, from 0 */
    uint32_t steps;
    const uint32_t
        *rows; /* the minibatches, one after another; they stay until the steps are collected */
    uint32_t row_count; /* of all steps together; only the last may be ragged */
    float lr[LS_RANGE_MAX];
} ls_range;

/* What a worker says of one step. */
typedef struct ls_report {
    uint64_t number; /* of the step, from 1 */
    int status;      /* not LS_OK: the step was not applied by this worker */
    bool skipped;    /* the loss was not finite: no worker applied it */
    int bad_shard;   /* skipped: the first of this worker's shards whose loss was not; −1: none */
    float loss;      /* of the whole minibatch, summed; the same from every worker */
    float correct;
    float rows;
    int steps_left; /* this step, and those that came to an end with it and are reported behind it */
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* Whether another range may be submitted. */
bool ls_engine_has_room(const ls_engine *engine);
/* How many steps the next range had best have, if they are there: one, unless a worker alone takes several at once. */
uint32_t ls_engine_steps_at_once(const ls_engine *engine);
/* Sends a range to every worker, at work or not. Errors: those of ls_pool_submit; the group is aborted then. */
int ls_engine_submit(ls_engine *engine, const ls_range *range, ls_error *err);
/* Steps that were submitted and not collected. */
uint64_t ls_engine_in_flight(const ls_engine *engine);

/* How a step ended. */
typedef struct ls_outcome {
    const ls_report
        *report; /* of a worker that says it is done: then it is, for all; NULL: it is for none */
    bool failed; /* there are faults: ls_engine_faults */
    int bad_worker,
        bad_shard; /* skipped: one of this process's shards whose loss was not finite; −1: none is */
} ls_outcome;

/* Waits for every worker's report of the next step, or until those that sent none have been silent for the deadline.
 * Behind a failure nothing is done any more, so what is in flight is collected before anything else. */
void ls_engine_collect(ls_engine *engine, ls_outcome *out);

/* ---- jobs ----------------------------------------------------------------------------------- */

struct ls_train_worker;
struct ls_exchange;

/* What every worker does between steps, on its thread. */
typedef int ls_worker_job(struct ls_train_worker *worker, const struct ls_exchange *e);

/* Has every worker that answers do it, and waits. `behind`: steps that are done, for faults. Returns LS_OK when all live
 * workers did, else the first cause; ls_engine_faults has them all. */
int ls_engine_run_all(ls_engine *engine, ls_worker_job *job, uint64_t behind, ls_error *err);

/* Learns which device it has. */
ls_worker_job ls_worker_describe;
/* Worker 0's device's choices among kernels → ls_engine_choices. */
ls_worker_job ls_worker_choices;
/* Builds the replica, from ls_engine_weights, with the choices that are there. */
ls_worker_job ls_worker_open;
/* Worker 0: the checksum of shard 0's gradient of the first minibatch, as the rows lie. */
ls_worker_job ls_worker_probe;
/* This worker's shards of every test minibatch → ls_engine_test. */
ls_worker_job ls_worker_evaluate;

/* The text of a device's choices, which the engine frees; NULL: there is none. */
char **ls_engine_choices(ls_engine *engine);
/* Test rows, and what an evaluation made of them. */
ls_sharded_rows *ls_engine_test(ls_engine *engine);
/* [rows of training], for the order of an epoch: that of the next one is another. */
uint32_t *ls_engine_order(ls_engine *engine, uint32_t epoch);
/* Where streamed training rows wait for their step; NULL: they are resident. */
struct ls_feed *ls_engine_feed(ls_engine *engine);

/* ---- faults --------------------------------------------------------------------------------- */

/* The faults of live workers since the last job or the last group, and of those that were lost and not dropped yet. Of
 * a worker the first counts. Returns how many; out: [LS_DEVICES_MAX]. */
int ls_engine_faults(const ls_engine *engine, const ls_fault **out);
/* First of all after a failure: a worker that has stalled since keeps the memory that was shared with it; the others
 * get another. Errors: LS_ENOMEM. */
int ls_engine_leave_stalled(ls_engine *engine, ls_error *err);
/* Live workers whose fault it was to wait in vain for another process are not at fault. */
void ls_engine_forgive_waiting(ls_engine *engine);
/* Workers whose devices failed take no part any more. Returns how many were lost since the last call, they and those
 * that have stalled, with their faults; out: [LS_DEVICES_MAX]. */
int ls_engine_drop(ls_engine *engine, const ls_fault **out);
/* Makes a group of the live workers, which join and check it; the shards are dealt out anew. `merge`: how gradients are
 * merged; NULL: as before. `behind` as for jobs. Errors: those of the communicator, as ls_engine_run_all. */
int ls_engine_form(ls_engine *engine, const ls_comm_type *merge, uint64_t behind, ls_error *err);

/* The deadline from now on, where the description leaves it to the engine. 0: none was measured. */
void ls_engine_expect(ls_engine *engine, double longest_step_s);
/* Nanoseconds of the run: as ls_now_ns, but it stands still while the process is stopped, as far as the coordinator,
 * which sleeps most of the time, was asleep then. */
uint64_t ls_engine_ns(const ls_engine *engine);

/* ---- workers -------------------------------------------------------------------------------- */

/* Whether a worker takes part. */
typedef enum ls_presence {
    LS_LIVE,
    LS_LOST,   /* its device failed; its thread answers, and only closes it at the end */
    LS_STALLED /* it no longer answers: its thread and its memory are left alone */
} ls_presence;

/* A worker, as it is seen while no job is under way. */
typedef struct ls_worker_view {
    ls_presence presence;
    int shard_lo, shard_hi;     /* its shards */
    ls_device *device;          /* once it has done a job */
    const ls_device_info *info; /* once it has done ls_worker_describe or ls_worker_open */
    const ls_replica *replica;
    uint32_t checksum; /* of its weights and state as they were read back last, or of a probe */
    const ls_report *report; /* of the step that was collected last; NULL: not done */
    int queued;              /* ranges it has, the one it is at included */
} ls_worker_view;

int ls_engine_workers(const ls_engine *engine); /* that it began with */
int ls_engine_live(const ls_engine *engine);    /* that still take part */
ls_worker_view ls_engine_worker(const ls_engine *engine, int worker);
int ls_engine_shards(const ls_engine *engine);
/* Bytes of the one sum that all workers share; 0: each has its own. And those of a worker's partial sums. */
size_t ls_engine_total_bytes(const ls_engine *engine);
size_t ls_engine_fold_bytes(const ls_engine *engine, int worker);
/* Where the worker's replica is, for who reads its marks: looked at behind a mark of one of its ops it is there. */
const ls_replica *const *ls_engine_replica_at(const ls_engine *engine, int worker);

#endif
