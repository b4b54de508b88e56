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
 * THE STEP. A minibatch is cut into a fixed number of shards, whatever the number of workers. Each worker has some of
 * them; group.c deals them out. It computes their gradients one after another and adds them up as a binary tree over the
 * shards prescribes. When all gradients are merged every worker has the same sum, and applies the same step of the
 * optimizer to its own replica. So equal replicas stay equal, bit for bit, and nothing but gradients is ever exchanged
 * (worker_step.c).
 *
 * THE MERGE. An all-reduce: each worker brings the partial sums of its shards, and all get the total. The additions
 * are those of the tree over all shards, in its order, so the total does not depend on how many workers there are. Where
 * each worker has one shard, the part of a gradient that is complete is merged while backward computes the rest.
 * Loss, hits and the number of rows are the last floats of the gradient and are summed with it.
 *
 * THE COMMIT POINT. It lies inside the merge (merge/group.h): either every worker gets the whole sum, or none does. If a
 * worker fails earlier, the others get no sum, and nobody applies the step. If it fails later, the others have the sum,
 * and all of them apply the step. So after any failure those that are left agree on how many steps are done, without
 * asking each other, and no replica has to be repaired.
 *
 * A LOST WORKER. A worker whose device fails says so in its report and takes no further part. One that shows no sign of
 * life for the deadline has stalled, which wait.c decides. Its thread cannot be stopped and may still use memory that
 * it shares with the others, so they leave that alone and get new memory (ls_engine_leave_stalled). Either way
 * ls_engine_collect, or the job that was under way, comes back with faults (ls_engine_faults). The coordinator judges
 * them (train/recover.c), removes the workers whose devices failed (ls_engine_drop), and has the others form a new
 * group (ls_engine_form), among whom the shards are dealt out anew. The tree has not changed: when the step is sent
 * again its sum, and the weights of the run, are the bits they would have been.
 *
 * The functions: ls_engine_open and, at the end, ls_engine_stop and ls_engine_destroy; ls_engine_submit and
 * ls_engine_collect for steps; ls_engine_run_all for all else that workers do, ls_engine_load and ls_engine_read_back
 * among it; and after a failure ls_engine_faults, ls_engine_leave_stalled, ls_engine_drop and ls_engine_form. What only
 * looks at an engine is in engine/view.h. Only the coordinator calls them. While a worker is at work it calls
 * ls_engine_submit and ls_engine_collect alone.
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

/* What is to be done. All else that it points to, but for `devices`, outlives the engine. */
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
    float *class_weight; /* [classes], by ls_alloc, the engine's from then on; NULL: all alike */
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
    /* Called with `user`: while the coordinator waits, now and then, and after each job; and on each worker's thread,
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

/* Ends the workers; a pool that was lent goes on without this engine. LS_ESTALLED: one that was left behind has not come
 * back and may still use whatever it reached, so that the engine, and what its description points to, have to stay.
 * NULL is allowed. */
int ls_engine_stop(ls_engine *engine);
/* Frees the engine, which was stopped. NULL is allowed. */
void ls_engine_destroy(ls_engine *engine);

/* ---- weights -------------------------------------------------------------------------------- */

/* Canonical weights, and the optimizer's state in the places of the model's parameters: what workers begin with, and
 * what is read back from them. */
typedef struct ls_engine_state {
    /* The weights, model->floats of them; where a moving average is kept, the average. */
    float *canonical;
    /* The optimizer's states, of as many floats each; where a moving average is kept, one of them is the weights that
     * are trained. NULL: there is no such state. */
    float *slot[LS_STATES];
    bool has_slots; /* whether ls_worker_open reads the states: not at the beginning of a run */
} ls_engine_state;

/* Returns the engine's weights and states. After ls_engine_leave_stalled it may be another object. */
ls_engine_state *ls_engine_weights(ls_engine *engine);
/* Loads ls_engine_weights into all replicas. `steps_done`: the number of steps that are done, which faults name. Errors:
 * those of ls_engine_run_all. */
int ls_engine_load(ls_engine *engine, uint64_t steps_done, ls_error *err);
/* Compares the replicas and, with `exports`, copies weights and states of one into ls_engine_weights. Errors:
 * LS_EDIVERGED names the replica that differs; those of ls_engine_run_all. */
int ls_engine_read_back(ls_engine *engine, bool exports, uint64_t steps_done, ls_error *err);

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
    uint64_t
        ended_ns;   /* when the step was over, where it is reported later than that; 0: it is not */
    int steps_left; /* this step, and those that came to an end with it and are reported after it */
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* Sends a range to every worker, at work or not; there has to be room for it (ls_engine_has_room). Errors: those of
 * ls_pool_submit; the group is aborted then. */
int ls_engine_submit(ls_engine *engine, const ls_range *range, ls_error *err);

/* How a step ended. */
typedef struct ls_outcome {
    /* Of one of the workers that completed the step, applied or skipped; all that are left did the same. NULL: the step
     * failed, and no worker applied it. */
    const ls_report *report;
    bool failed; /* there are faults: ls_engine_faults */
    /* Of a step that was skipped: a worker and shard of this process whose loss was not finite; −1: none was here. */
    int bad_worker, bad_shard;
} ls_outcome;

/* Waits for every worker's report of the next step, or until the workers that sent none have been silent for the
 * deadline. After a failure no step is begun any more; what is in flight has to be collected before anything else. */
void ls_engine_collect(ls_engine *engine, ls_outcome *out);

/* ---- jobs ----------------------------------------------------------------------------------- */

struct ls_train_worker;
struct ls_exchange;

/* What every worker does between steps, on its thread. */
typedef int ls_worker_job(struct ls_train_worker *worker, const struct ls_exchange *e);

/* Has every worker that answers do the job, and waits. `steps_done`: the number of steps that are done, which faults
 * name. Returns LS_OK when all live workers did it, else the first cause; ls_engine_faults has them all. */
int ls_engine_run_all(ls_engine *engine, ls_worker_job *job, uint64_t steps_done, ls_error *err);

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

/* ---- faults --------------------------------------------------------------------------------- */

/* Whether a worker takes part. */
typedef enum ls_presence {
    LS_LIVE,
    LS_LOST,   /* its device failed; its thread answers, and only closes it at the end */
    LS_STALLED /* it no longer answers: its thread and its memory are left alone */
} ls_presence;

/* Stores the faults of live workers since the last job or the last group, and those of lost workers that were not
 * dropped yet; the first fault of a worker counts. Returns their number; out: [LS_DEVICES_MAX]. */
int ls_engine_faults(const ls_engine *engine, const ls_fault **out);
/* To be called first after a failure: leaves the memory that was shared with a worker which has stalled since to that
 * worker, and gives the others new memory. Errors: LS_ENOMEM. */
int ls_engine_leave_stalled(ls_engine *engine, ls_error *err);
/* Drops the workers whose devices failed: they take no part any more. Returns the number of workers that failed
 * or stalled since the last call, and stores their faults; out: [LS_DEVICES_MAX]. */
int ls_engine_drop(ls_engine *engine, const ls_fault **out);
/* Forms a group of the live workers, which join and check it, and deals the shards out anew. `merge`: how gradients are
 * merged; NULL: as before. Errors: those of the communicator and of ls_engine_run_all. */
int ls_engine_form(ls_engine *engine, const ls_comm_type *merge, uint64_t steps_done,
                   ls_error *err);

#endif
