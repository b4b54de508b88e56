/* SPDX-License-Identifier: MIT */
/* The engine: data-parallel training of one model by several workers.
 *
 * The caller (train/) describes the work in an ls_engine_desc. The engine knows no configs, records
 * or checkpoints.
 *
 * QUEUE. The coordinator sends work to the workers in *ranges*: one range is one step or a few
 * consecutive steps. Each worker has an inbox (sync/ring.h), and every worker receives the same
 * ranges. At most LS_IN_FLIGHT ranges are submitted and not collected yet, so that a worker neither
 * waits between two steps nor gets far ahead of the others.
 *
 *     coordinator                          worker                              worker
 *     ls_engine_submit(range) ──inbox──▶   gather, forward, backward           (the same, on
 *                                          of each of its shards                its shards)
 *                                          ┃ all-reduce:  all workers meet ┃
 *                                          optimizer step
 *     ls_engine_collect()    ◀──reports──  status, loss, times
 *
 * STEP. group.c assigns the shards of a minibatch to the workers. A worker computes the gradients
 * of its shards one after another, and adds them in the order of the shard tree
 * (<lockstep/sys/communicator.h>). In a group of CPU workers shards can also be *dealt*: each
 * worker takes another shard when it has finished its previous one (sync/deal.h). The shards of a
 * worker are adjacent in either case. Which worker computes a shard changes neither the tree nor a
 * bit of the sum. After the all-reduce every worker applies the same sum to its own replica, so
 * replicas that were equal stay equal, bit for bit (worker_step.c).
 *
 * ALL-REDUCE. The live workers of a process are a group (merge/group.h). Each worker contributes
 * the partial sums of its shards, and every worker receives the total. If each worker has exactly
 * one shard, the part of the gradient that is complete is merged while backward computes the rest.
 * The last floats of each gradient are the loss, the number of correct rows and the number of rows;
 * the merge sums these floats too.
 *
 * COMMIT POINT. Each merge has a commit point (merge/group.h). If a worker fails before that point,
 * no worker applies the step; if it fails afterwards, all others do. Therefore after any failure
 * the remaining workers have done the same number of steps, without messages about it, and all
 * replicas are equal.
 *
 * If few partial sums are merged on CPUs, each worker adds the partial sums itself while it applies
 * the update, piece by piece (comm/comm.h). The commit point is then the barrier at which all
 * partial sums are complete: after it every worker can compute the sum even if another one is lost,
 * because the arrays of a lost worker stay allocated and unchanged. The workers meet at a second
 * barrier after the update, before they overwrite their partial sums. A worker that finds the group
 * aborted there has applied the step, reports it, and begins no other step. In a run with one
 * worker the commit point is the beginning of the update, because only the update changes the
 * weights. (On a CPU a single worker adds its partial sums in the array of the first one, or piece
 * by piece in the update.)
 *
 * LOST WORKERS. A worker whose device fails reports the failure and takes no further part. A worker
 * that shows no sign of life for longer than the deadline has *stalled*; the coordinator finds this
 * while it waits (wait.c). The thread of a stalled worker cannot be stopped, and can still use
 * memory that it shares with the others. This memory is left to it, the ls_deal of the old group
 * included, and the others get new memory (ls_engine_leave_stalled). After a failure the function
 * in which the coordinator waits (ls_engine_collect for steps, ls_engine_run_all for other work)
 * returns, and ls_engine_faults returns the fault. The coordinator decides by the faults whether
 * the run goes on (train/recover.c). If it does, it removes the workers whose devices failed
 * (ls_engine_drop), and has the remaining ones form a new group (ls_engine_form), which distributes
 * the shards anew. The tree is unchanged: if the step is submitted again, its sum, and with it the
 * final weights of the run, have the same bits as without the failure.
 *
 * SKIPPED STEPS. If the loss of a step is not finite, all workers skip the step, because all have
 * the same sum. Each worker then computes its shards of this step again, one by one, and reports
 * the first one whose loss is not finite.
 *
 * WORDS. A worker's *fold* (comm/comm.h) is the set of its partial sums. A *job* is any work of a
 * worker that is not a step, such as an evaluation. The *exchange* (exchange.h) is the memory
 * through which the coordinator and the jobs pass each other weights and results. Training rows are
 * *resident* if the devices hold all of them for the whole run; they are *streamed* if the
 * coordinator reads the rows of a step shortly before the step. The *feed* (feed.h) is the buffer
 * for the streamed rows of the steps in flight. A step is *in flight* from ls_engine_submit to
 * ls_engine_collect.
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
 * may call only ls_engine_submit and ls_engine_collect. */
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

/* Largest number of consecutive steps in one range. */
#define LS_RANGE_MAX 32
/* Largest number of ranges that a worker holds at once: the worker runs one range while the next
 * waits. With more, a worker would only run further ahead of the others. */
#define LS_IN_FLIGHT 2
/* Capacity of ls_engine_desc.step_rows. */
#define LS_STEP_ROWS 8

/* ---- the description ------------------------------------------------------------------------ */

/* Description of the work. Everything that it points to must outlive the engine, with two
 * exceptions: `devices`, which only ls_engine_open reads, and `class_weight`, which the engine
 * frees. */
typedef struct ls_engine_desc {
    /* Pool whose threads become the workers; NULL: the engine creates a pool with the options
     * `devices`. */
    ls_pool *pool;
    /* Options of the pool that the engine creates. In its copy of them the engine sets `inbox`, and
     * sets `stop` to a hook that frees the worker's replica. */
    const ls_device_pool_options *devices;
    /* Model and training method. */
    const ls_network *model;
    const ls_optimizer *optimizer;
    const ls_gather *preprocessing;
    const ls_loss *loss;
    float label_smoothing;      /* 0: none */
    ls_vector_loss vector_loss; /* parameters of a loss of vectors */
    /* [classes], allocated with ls_alloc; the engine takes ownership. NULL: equal weights. */
    float *class_weight;
    uint64_t seed; /* seed of the run's random numbers */
    /* divisor of the sum of a minibatch's gradients; true: batch_size, even if the minibatch has
     * fewer rows; false: the minibatch's number of rows */
    bool divides_by_batch_size;
    /* A step whose loss is not finite is never applied. true: training goes on after such a step;
     * false: no further step is begun. */
    bool skip_nonfinite;
    /* Data. Training rows that are not resident in memory are streamed through ls_engine_feed. */
    ls_dataset *const *data; /* [LS_SUBSETS] */
    uint32_t batch_size;     /* number of rows of a full minibatch */
    /* [step_row_count] other numbers of rows that a minibatch may have, besides batch_size */
    const uint32_t *step_rows;
    int step_row_count;
    /* Training rows have weights; the divisor of the sum of a minibatch's gradients is then the sum
     * of the weights of its rows (ls_range.weight), whatever divides_by_batch_size says. */
    bool weighted;
    bool scores;            /* an evaluation also returns the scores of every row */
    const atomic_int *stop; /* not 0: an evaluation ends early; NULL: it never does */
    /* Distribution of the shards. */
    int shards;                 /* number of shards of a minibatch; 0: one per worker */
    const double *capacity;     /* [workers] relative speed of each worker; NULL: all equal */
    struct ls_cluster *cluster; /* the other processes of the run; NULL: none */
    /* Supervision. Time in seconds without a sign of life after which a worker is declared stalled;
     * 0: the engine computes the time from the duration of the longest step. */
    double deadline_s;
    ls_injections injections;
    /* Callbacks; each receives `user` and may be NULL. The coordinator calls `idle` from time to
     * time while it waits for workers, and after each job. */
    void (*idle)(void *user);
    /* called once on each worker's thread, before the worker's device computes anything */
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

/* Ends the workers. If the caller passed a pool, the pool is not destroyed: its workers only
 * release what belongs to this engine. Returns LS_ESTALLED if a stalled worker has not come back.
 * Such a worker can still use the engine and everything that the description points to, so the
 * caller must keep both. NULL is allowed. */
int ls_engine_stop(ls_engine *engine);
/* Frees the engine, which must have been stopped. NULL is allowed. */
void ls_engine_destroy(ls_engine *engine);

/* ---- weights -------------------------------------------------------------------------------- */

/* Weights and optimizer states in canonical layout (nn/network.h). Workers load them when they are
 * opened; ls_engine_read_back overwrites them with the values of a worker. */
typedef struct ls_engine_state {
    /* [model->floats] the weights, or the moving average of the weights if the optimizer keeps
     * one */
    float *canonical;
    /* [model->floats] each: the optimizer's states; NULL: the optimizer has fewer states. If the
     * optimizer keeps a moving average, one of these arrays contains the weights that are
     * trained. */
    float *slot[LS_STATES];
    bool has_slots; /* ls_worker_open loads `slot` too; false at the beginning of a run */
} ls_engine_state;

/* Returns the engine's weights and states. The pointer is valid until the next
 * ls_engine_leave_stalled, which can replace the object. */
ls_engine_state *ls_engine_weights(ls_engine *engine);
/* Copies ls_engine_weights to all replicas. `steps_done`: number of completed steps, for the field
 * `step` of the faults. Errors: those of ls_engine_run_all. */
int ls_engine_load(ls_engine *engine, uint64_t steps_done, ls_error *err);
/* Sets the model of replicas that are built from now on, which has the same tensors as the present
 * model and possibly other learning-rate factors (ls_network_set_rates). It must outlive the
 * engine. `begun`: number of steps of the run before the optimizer began, which counts its steps
 * from there; 0 unless it was set. No live worker may have work. */
void ls_engine_set_model(ls_engine *engine, const ls_network *model, uint64_t begun);
/* Replaces the replicas of all workers by replicas of the engine's present model, with the weights
 * and states of ls_engine_weights. Afterwards the workers are in no group: the caller calls
 * ls_engine_form. After an error some workers have the old replica; the caller may drop faulty
 * workers and call again. Errors: those of ls_engine_run_all. */
int ls_engine_renew(ls_engine *engine, uint64_t steps_done, ls_error *err);
/* Makes the digests of all workers (view.h) contain the last step. Does nothing if they always do,
 * or after ls_engine_read_back. Errors: those of ls_engine_run_all. */
int ls_engine_settle(ls_engine *engine, uint64_t steps_done, ls_error *err);
/* Compares the checksums and the digests of all replicas. If `exports`, also copies the weights and
 * states of one replica to the arrays of ls_engine_weights. Errors: LS_EDIVERGED, if the replicas
 * differ, which names the workers that differ from the majority; those of ls_engine_run_all. */
int ls_engine_read_back(ls_engine *engine, bool exports, uint64_t steps_done, ls_error *err);

/* ---- steps ---------------------------------------------------------------------------------- */

/* Consecutive steps of one epoch. */
typedef struct ls_range {
    ls_engine *engine;   /* set by ls_engine_submit */
    uint64_t begun;      /* set by ls_engine_submit; number of steps before the optimizer began */
    uint32_t epoch;      /* index of the epoch, from 0 */
    uint64_t first_step; /* index of the first step in the run, from 0 */
    uint32_t steps;      /* number of steps */
    /* [row_count] row indices of the minibatches, one minibatch after another. The array must stay
     * valid until the steps are collected. */
    const uint32_t *rows;
    /* number of `rows`; only the range's last minibatch may have fewer rows than the others */
    uint32_t row_count;
    float lr[LS_RANGE_MAX]; /* [steps] learning rate of each step */
    /* [steps] sum of the weights of each minibatch's rows; not used if rows have no weights */
    float weight[LS_RANGE_MAX];
} ls_range;

/* A worker's report of one step. */
typedef struct ls_report {
    uint64_t number; /* number of the step, from 1 */
    int status;      /* if not LS_OK, this worker did not apply the step */
    bool skipped;    /* the loss was not finite, so no worker applied the step */
    /* If skipped: number of this worker's first shard whose loss was not finite; −1: none. */
    int bad_shard;
    float loss;    /* loss summed over the whole minibatch; equal on all workers */
    float correct; /* number of correct rows of the minibatch */
    float rows;    /* number of rows of the minibatch */
    float weight;  /* sum of the weights of its rows; equals `rows` if they have no weights */
    /* Norm of the summed gradient before clipping; equal on all workers. NaN: unknown. */
    float gradient_norm;
    /* Time of ls_now_ns at the end of the step, if steps are so short that the worker wakes the
     * coordinator only once for several steps. 0: the step ended when the report was sent. */
    uint64_t ended_ns;
    /* A device can run several steps as one launch; these steps end together, and their reports
     * follow each other. The field is the number of reports that the launch still has to send, this
     * report included. 1: the step was the last of its launch, or was not part of a launch. */
    int steps_left;
    ls_replica_times times; /* durations of the parts of the step */
    ls_comm_times comm;     /* durations of the merge; request to stop */
} ls_report;

/* Sends a range to every live worker, whether the worker has other work or not. There must be room
 * for the range (ls_engine_has_room). Errors: those of ls_pool_submit; after an error the group is
 * aborted. */
int ls_engine_submit(ls_engine *engine, const ls_range *range, ls_error *err);

/* Result of a step. */
typedef struct ls_outcome {
    /* Report of a worker that completed the step. That worker applied the step or skipped it, and
     * all remaining workers did the same. NULL: the step failed, and no worker applied the step. */
    const ls_report *report;
    bool failed; /* there are faults, see ls_engine_faults */
    /* If the step was skipped: index of the worker that computed `bad_shard`, and number of a shard
     * whose loss was not finite. −1: no such shard was found in this process. */
    int bad_worker, bad_shard;
} ls_outcome;

/* Waits until every worker has reported the next step or has stalled. After a failure workers begin
 * no further step. The caller must then collect all steps in flight before it calls another
 * function of the engine. */
void ls_engine_collect(ls_engine *engine, ls_outcome *out);

/* ---- jobs ----------------------------------------------------------------------------------- */

struct ls_train_worker; /* a worker's data (engine/state.h) */
struct ls_exchange;     /* memory shared by the coordinator and all workers (engine/exchange.h) */

/* A job: work that every worker does between steps, on its own thread. `e` contains the arguments
 * of all jobs, and receives their results. */
typedef int ls_worker_job(struct ls_train_worker *worker, const struct ls_exchange *e);

/* Runs a job on every worker that is not stalled, and waits until all of them have ended it.
 * `steps_done`: number of completed steps, for the field `step` of the faults. Returns LS_OK if all
 * live workers did the job, otherwise the error of the first worker that failed; ls_engine_faults
 * returns the faults of all workers. */
int ls_engine_run_all(ls_engine *engine, ls_worker_job *job, uint64_t steps_done, ls_error *err);

/* Reads the description of the worker's device. */
ls_worker_job ls_worker_describe;
/* Worker 0 writes a text to ls_engine_choices, which says which kernel (piece of device code) its
 * device runs for which op of the model. Other processes open their devices with this text. */
ls_worker_job ls_worker_choices;
/* Builds the replica from ls_engine_weights. If ls_engine_choices has a text, the device uses the
 * kernels that the text names. */
ls_worker_job ls_worker_open;
/* The first live worker computes the gradient of the rows of the first shard and the checksum of
 * that gradient (ls_engine_worker). The rows are in the order in which the data set stores them.
 * The processes of a run compare these checksums to find out whether their devices compute the same
 * bits. */
ls_worker_job ls_worker_probe;
/* Evaluates this worker's shards of every test minibatch and writes the results to
 * ls_engine_test. */
ls_worker_job ls_worker_evaluate;
/* Copies the test rows to the device again, after they have changed in host memory. */
ls_worker_job ls_worker_refresh_test;

/* ---- faults --------------------------------------------------------------------------------- */

/* A worker's participation in the run. */
typedef enum ls_presence {
    LS_LIVE,
    /* the device failed; the thread still answers, and only releases the device at the end */
    LS_LOST,
    LS_STALLED /* the worker does not answer; its thread and memory are left alone */
} ls_presence;

/* Writes pointers to all faults that the coordinator has to deal with to `out`, [LS_DEVICES_MAX],
 * and returns their number. A live worker's fault is among them until the next ls_engine_run_all or
 * ls_engine_form, that of a lost or stalled worker until ls_engine_drop has returned it. A worker
 * has at most one fault, its first. */
int ls_engine_faults(const ls_engine *engine, const ls_fault **out);
/* If workers have stalled since the last call of ls_engine_drop, leaves the exchange and the feed
 * to the stalled workers, because these workers can still use both. Allocates a new exchange and a
 * new feed for the other workers. After a failure the caller must call this function before any
 * other function of the engine. Errors: LS_ENOMEM. */
int ls_engine_leave_stalled(ls_engine *engine, ls_error *err);
/* Removes the workers whose devices failed. Writes pointers to the faults of all workers that have
 * failed or stalled since the last call of this function to `out`, [LS_DEVICES_MAX]. Returns the
 * number of these workers. */
int ls_engine_drop(ls_engine *engine, const ls_fault **out);
/* Creates a group of the live workers and distributes the shards anew. The workers join the group
 * and check that it adds numbers correctly. `merge`: type of communicator that merges the
 * gradients; NULL: the type of the previous group. `steps_done`: number of completed steps, for the
 * faults. Errors: those of the communicator and of ls_engine_run_all. */
int ls_engine_form(ls_engine *engine, const ls_comm_type *merge, uint64_t steps_done,
                   ls_error *err);

#endif
