/* The engine: data-parallel training of one model by several workers.
 *
 * A worker is a thread with its own device and its own replica of the model. Policy lies in the
 * caller (train/): the engine receives a description of the work, and knows no configuration files,
 * records or checkpoints. This page explains how the engine works; the functions follow.
 *
 * QUEUE. One thread, the coordinator, calls all functions below. It cuts an epoch into minibatches
 * and sends ranges of one or a few consecutive steps to the workers. Each worker has an inbox, a
 * bounded lock-free queue with one writer and one reader, and every worker receives the same
 * ranges. At most LS_IN_FLIGHT ranges are outstanding: while a worker runs one, the next is already
 * in its inbox, so that it is never idle between two steps; and no worker gets far ahead of the
 * others.
 *
 *     coordinator                          worker                              worker
 *     ls_engine_submit(range) ──inbox──▶   gather, forward, backward           (the same, on
 *                                          of each of its shards                its shards)
 *                                          ┃ all-reduce:  all workers meet ┃
 *                                          optimizer step
 *     ls_engine_collect()    ◀──reports──  status, loss, times
 *
 * STEP. A minibatch is cut into a fixed number of shards, which does not depend on the number of
 * workers; group.c assigns the shards to workers. A worker computes the gradients of its shards
 * one after another, and adds them in the order that a binary tree over the shards prescribes.
 * Workers on CPUs are not bound to their assignment: shards are dealt to them while they work
 * (sync/deal.h), so a worker that is slower, or whose CPU is busy, computes fewer of them. The
 * shards of a worker are adjacent in any case. Which worker computes a shard changes neither the
 * tree nor a bit of the sum.
 * After the all-reduce every worker has the same sum, and applies the same optimizer step to its
 * own replica. Replicas that were equal therefore stay equal, bit for bit, and only gradients are
 * exchanged (worker_step.c).
 *
 * ALL-REDUCE, also called the merge. Each worker contributes the partial sums of its shards, and
 * every worker receives the total. The additions are those of the tree over all shards, in the
 * tree's order, so the total does not depend on the number of workers. If each worker has exactly
 * one shard, the part of the gradient that is complete is merged while backward computes the rest.
 * The loss, the number of correct rows and the number of rows are the last floats of the gradient,
 * and are summed with it.
 *
 * COMMIT POINT. It lies inside the merge (merge/group.h): either every worker gets the complete
 * sum, or no worker does. If a worker fails before that point, the others get no sum, and no
 * worker applies the step. If it fails after that point, the others have the sum, and all of them
 * apply the step. After any failure the remaining workers therefore agree on the number of steps
 * done without a message, and no replica needs repair.
 * Where few partial sums are merged on CPUs, each worker adds them itself while it applies the
 * update, piece by piece (comm/comm.h). The commit point is then the barrier at which all partial
 * sums are complete: from there on every worker can compute the sum whatever happens to the others,
 * because the arrays of a lost worker stay allocated and unchanged. The workers meet at a second
 * barrier after the update, before they overwrite their partial sums. A worker that finds the group
 * aborted at that barrier has applied the step and reports it, but begins no other step.
 * A run with one worker has no other workers to agree with, but the rule is the same: the weights
 * change only in the update, which is the last part of a step. If the worker fails before it, the
 * step was not applied. The gradients that the step has computed do no harm, because the next
 * attempt overwrites them. (On a CPU a single worker has no array for the total: it adds its
 * partial sums in the array of the first one, or piece by piece in the update.)
 *
 * LOST WORKERS. A worker whose device fails says so in its report and takes no further part. A
 * worker that shows no sign of life for longer than a time limit, the deadline, has stalled; wait.c
 * decides this. The thread of a stalled worker cannot be stopped, and may still use memory that it
 * shares with the others. The others leave that memory to it and get new memory
 * (ls_engine_leave_stalled). In both cases the function in which the coordinator waits for the
 * workers (ls_engine_collect for steps, ls_engine_run_all for other work) returns, and
 * ls_engine_faults then returns a fault of that worker. The coordinator then classifies the faults
 * (train/recover.c), removes the workers whose devices failed (ls_engine_drop), and has the
 * remaining workers form a new group (ls_engine_form), which distributes the shards anew. The tree
 * is unchanged: if the step is submitted again, its sum, and with it the final weights of the run,
 * have the same bits as without the failure. Shards that were dealt in the failed step count for
 * nothing, because nobody gets its sum; a new group deals all of them again, with a new ls_deal. A
 * stalled worker that continues may still take shards of the old one, which is kept with the old
 * group and used by nobody else.
 *
 * SKIPPED STEPS. If the loss of a step is not finite, all workers have the same sum and skip the
 * step. Each then computes again the shards that it had in this step, one by one, and reports the
 * first whose loss is not finite. Every shard was dealt to exactly one worker, so none is searched
 * twice and none is left out.
 *
 * WORDS. An *arena* is one array with all parameters of the model, or with a value for each of them
 * (gradient, optimizer state), always in the same order. The gradient of a shard is a *leaf* of the
 * tree. A worker's *fold* (comm/comm.h) is its set of partial sums of leaves. The *exchange*
 * (exchange.h) is memory through which the coordinator and the workers' jobs pass weights and
 * results. The *feed* (feed.h) has the rows of steps in flight, if training rows are streamed. A
 * *job* is any work of a worker that is not a step, such as an evaluation.
 *
 * The functions by purpose:
 *
 *     life         ls_engine_open, ls_engine_stop, ls_engine_destroy
 *     steps        ls_engine_submit, ls_engine_collect
 *     other work   ls_engine_run_all, and with it ls_engine_load, ls_engine_read_back
 *     failures     ls_engine_faults, ls_engine_leave_stalled, ls_engine_drop, ls_engine_form
 *
 * Functions that only observe an engine are in engine/view.h.
 *
 * Threads: only the coordinator calls these functions. While any worker has work, the coordinator
 * may call only ls_engine_submit and ls_engine_collect.
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

/* Most consecutive steps in one range. */
#define LS_RANGE_MAX 32
/* Most ranges that a worker holds at once: it runs one while the next waits. More would only let a
 * worker run ahead of the others. */
#define LS_IN_FLIGHT 2
/* Capacity of ls_engine_desc.step_rows. */
#define LS_STEP_ROWS 8

/* ---- the description ------------------------------------------------------------------------ */

/* Description of the work. Everything that it points to must outlive the engine, except `devices`,
 * which is only read by ls_engine_open, and `class_weight`, which the engine frees. */
typedef struct ls_engine_desc {
    /* The workers' threads are those of `pool`. If `pool` is NULL, the engine creates a pool with
     * the options `devices`, in which it sets `inbox`, and `stop` to a hook that frees the
     * worker's replica. */
    ls_pool *pool;
    const ls_device_pool_options *devices;
    /* Model and training method. */
    const ls_model *model;
    const ls_optimizer *optimizer;
    const ls_gather *preprocessing;
    const ls_loss *loss;
    float label_smoothing;
    /* [classes], allocated with ls_alloc; the engine takes ownership. NULL: equal weights. */
    float *class_weight;
    uint64_t seed;
    /* the sum of a minibatch's gradients is divided by batch_size, even if the minibatch has fewer
     * rows; if false, by its number of rows */
    bool divides_by_batch_size;
    /* A step whose loss is not finite is not applied, and training goes on; if false, no further
     * step is begun after such a step. */
    bool skip_nonfinite;
    /* Data. Training rows that are not resident in memory are streamed through ls_engine_feed. */
    ls_dataset *const *data; /* [LS_SUBSETS] */
    uint32_t batch_size;
    /* [step_row_count] further numbers of rows that a minibatch may have */
    const uint32_t *step_rows;
    int step_row_count;
    bool scores;            /* an evaluation returns the scores of every row, not only sums */
    const atomic_int *stop; /* not 0: an evaluation ends early; NULL: it never does */
    /* Distribution of the shards. */
    int shards;                 /* number of shards of a minibatch; 0: one per worker */
    const double *capacity;     /* [workers] relative speed of each worker; NULL: all equal */
    struct ls_cluster *cluster; /* the other processes of the run; NULL: none */
    /* Supervision. `deadline_s`: time without a sign of life, in seconds, after which a worker has
     * stalled; 0: derived from the longest step. */
    double deadline_s;
    ls_injections injections;
    /* Callbacks, which receive `user`; each may be NULL. `idle` is called on the coordinator's
     * thread, now and then while it waits and after each job. `opened` is called on each worker's
     * thread before its device computes anything. */
    void (*idle)(void *user);
    void (*opened)(void *user, int worker, ls_device *device);
    void *user;
    const ls_host *host;
} ls_engine_desc;

/* ---- life ----------------------------------------------------------------------------------- */

/* Creates the workers' threads, each with its device, and the memory that they share with the
 * coordinator. The replicas are built later, by the job ls_worker_open. After a failure the caller
 * must still stop and destroy *out, unless it is NULL. Errors: LS_EINVAL (the list of devices),
 * LS_ENOMEM, those of ls_device_pool_create. */
int ls_engine_open(ls_engine **out, const ls_engine_desc *desc, ls_error *err);

/* Ends the workers. A pool of the caller's is not destroyed: its workers only release what belongs
 * to this engine. Returns LS_ESTALLED if a worker that was abandoned has not come back; it may
 * still use any memory that it could reach, so the engine and everything that its description
 * points to must be kept. NULL is allowed. */
int ls_engine_stop(ls_engine *engine);
/* Frees the engine, which must have been stopped. NULL is allowed. */
void ls_engine_destroy(ls_engine *engine);

/* ---- weights -------------------------------------------------------------------------------- */

/* Weights and optimizer states in canonical layout: the values from which workers start, and the
 * values that are read back from them. */
typedef struct ls_engine_state {
    /* [model->floats] the weights, or their moving average if one is kept */
    float *canonical;
    /* [model->floats] each, or NULL if there is no such state; the optimizer's states. If a moving
     * average is kept, one of them holds the weights that are trained. */
    float *slot[LS_STATES];
    bool has_slots; /* ls_worker_open loads the states too; false at the beginning of a run */
} ls_engine_state;

/* Returns the engine's weights and states. ls_engine_leave_stalled may replace the object. */
ls_engine_state *ls_engine_weights(ls_engine *engine);
/* Loads ls_engine_weights into all replicas. `steps_done`: number of completed steps, which faults
 * report. Errors: those of ls_engine_run_all. */
int ls_engine_load(ls_engine *engine, uint64_t steps_done, ls_error *err);
/* Compares the checksums of all replicas; if `exports`, also copies the weights and states of one
 * replica into ls_engine_weights. Errors: LS_EDIVERGED, with the checksum of each worker, if the
 * replicas differ; those of ls_engine_run_all. */
int ls_engine_read_back(ls_engine *engine, bool exports, uint64_t steps_done, ls_error *err);

/* ---- steps ---------------------------------------------------------------------------------- */

/* Consecutive steps of one epoch. */
typedef struct ls_range {
    ls_engine *engine; /* set by ls_engine_submit */
    uint32_t epoch;
    uint64_t first_step; /* index in the run, from 0 */
    uint32_t steps;
    /* Row indices of the minibatches, one minibatch after another; must stay valid until the steps
     * are collected. */
    const uint32_t *rows;
    uint32_t row_count; /* number of `rows`; only the range's last minibatch may be smaller */
    float lr[LS_RANGE_MAX];
} ls_range;

/* A worker's report of one step. */
typedef struct ls_report {
    uint64_t number; /* number of the step, from 1 */
    int status;      /* not LS_OK: this worker did not apply the step */
    bool skipped;    /* the loss was not finite: no worker applied it */
    /* If skipped: the first of this worker's shards whose loss was not finite; −1: none. */
    int bad_shard;
    float loss; /* loss summed over the whole minibatch; the same on every worker */
    float correct;
    float rows;
    /* Norm of the gradient before it was clipped; the same on every worker. NaN: unknown. */
    float gradient_norm;
    /* If steps are so short that the worker wakes the coordinator only once for several of them:
     * time of ls_now_ns at the end of the step. Otherwise 0: the report is sent when the step
     * ends. */
    uint64_t ended_ns;
    /* If the device ran several steps as one launch, all of them end when the launch ends, and
     * their reports follow each other. Number of these reports from this one on; otherwise 1. */
    int steps_left;
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* Sends a range to every live worker, idle or not. There must be room for it (ls_engine_has_room).
 * Errors: those of ls_pool_submit; the group is then aborted. */
int ls_engine_submit(ls_engine *engine, const ls_range *range, ls_error *err);

/* Result of a step. */
typedef struct ls_outcome {
    /* Report of one worker that completed the step, applied or skipped; all remaining workers did
     * the same. NULL: the step failed, and no worker applied it. */
    const ls_report *report;
    bool failed; /* there are faults, see ls_engine_faults */
    /* If the step was skipped: a worker and a shard of this process whose loss was not finite. −1:
     * none was found in this process. */
    int bad_worker, bad_shard;
} ls_outcome;

/* Waits until every worker has reported the next step or has stalled. After a failure workers begin
 * no further step; the steps in flight must be collected before anything else is done. */
void ls_engine_collect(ls_engine *engine, ls_outcome *out);

/* ---- jobs ----------------------------------------------------------------------------------- */

struct ls_train_worker; /* a worker's data (engine/state.h) */
struct ls_exchange;     /* memory shared by the coordinator and all workers (engine/exchange.h) */

/* A job: work that every worker does between steps, on its own thread. `e` has the arguments and
 * receives the results of all jobs. */
typedef int ls_worker_job(struct ls_train_worker *worker, const struct ls_exchange *e);

/* Runs a job on every worker that is not stalled, and waits for it. `steps_done`: number of
 * completed steps, which faults report. Returns LS_OK if all live workers did the job, else the
 * first cause; ls_engine_faults returns all of them. */
int ls_engine_run_all(ls_engine *engine, ls_worker_job *job, uint64_t steps_done, ls_error *err);

/* Reads the description of the worker's device. */
ls_worker_job ls_worker_describe;
/* Worker 0 writes its device's choices among kernels to ls_engine_choices. */
ls_worker_job ls_worker_choices;
/* Builds the replica from ls_engine_weights, with the choices among kernels if there are any. */
ls_worker_job ls_worker_open;
/* Worker 0 computes the gradient of the first shard's rows, in the order in which the data set
 * stores them, and its checksum (ls_engine_worker). By that checksum the processes of a run find
 * out whether their devices compute the same bits. */
ls_worker_job ls_worker_probe;
/* Evaluates this worker's shards of every test minibatch and writes the results to
 * ls_engine_test. */
ls_worker_job ls_worker_evaluate;

/* ---- faults --------------------------------------------------------------------------------- */

/* A worker's participation in the run. */
typedef enum ls_presence {
    LS_LIVE,
    /* the device failed; the thread still answers, and only releases the device at the end */
    LS_LOST,
    LS_STALLED /* the worker does not answer; its thread and memory are left alone */
} ls_presence;

/* Writes all faults that the coordinator has to deal with: that of each live worker, which the next
 * ls_engine_run_all or ls_engine_form clears, and that of each lost or stalled worker until
 * ls_engine_drop has returned it. A worker has at most one fault, its first. Returns the number of
 * faults; out: [LS_DEVICES_MAX]. */
int ls_engine_faults(const ls_engine *engine, const ls_fault **out);
/* If workers have stalled since the last call of ls_engine_drop: leaves the exchange and the feed,
 * which these workers may still use, to them, and allocates new ones for the others. It must be
 * called before any other function after a failure. Errors: LS_ENOMEM. */
int ls_engine_leave_stalled(ls_engine *engine, ls_error *err);
/* Removes the workers whose devices failed. Returns the number of workers that failed or stalled
 * since the last call, and writes their faults; out: [LS_DEVICES_MAX]. */
int ls_engine_drop(ls_engine *engine, const ls_fault **out);
/* Creates a group of the live workers, which join and check it, and distributes the shards anew.
 * `merge`: how gradients are merged; NULL: as before. Errors: those of the communicator and of
 * ls_engine_run_all. */
int ls_engine_form(ls_engine *engine, const ls_comm_type *merge, uint64_t steps_done,
                   ls_error *err);

#endif
