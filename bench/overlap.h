/* SPDX-License-Identifier: MIT */
/* Internals of bench_overlap: the work of a step, and the ways to drive the workers.
 *
 * A minibatch is divided into *shards*. A *worker* computes the gradients of some shards. The
 * *merge* adds the gradients of all shards, and the *update* changes the weights. A worker's step
 * is a list of *pieces*: the kernels of its shards, the merge, the update. To *issue* a piece is to
 * put it into a lane. A *lane* is a queue that executes its pieces in order, as a stream does on a
 * GPU. On a CPU each lane has a thread of the library's pool, which executes the pieces; on a GPU
 * the device executes them. The three ways to drive W workers differ in which thread issues the
 * pieces, and in the number of lanes:
 *
 *     threads     W lanes; each worker has a thread, which gets whole steps and issues the pieces
 *     streams     W lanes; one host thread issues every piece of every worker, round robin
 *     one-stream  one lane; one host thread issues every piece of every worker, round robin
 *
 * A *cell* is one combination that is measured: a number of workers, a way to drive them, and their
 * work. overlap_cell.c drives cells on a CPU, and overlap_gpu.c on a GPU, where a lane is a device
 * of the back end with a stream of its own. A worker makes the same computations on both
 * (overlap_work.c). On a GPU the pool `cell.lanes` contains the threads that enqueue pieces. */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "comm/comm.h"
#include "nn/replica.h"
#include "sync/barrier.h"

#include <lockstep/device_pool.h>

enum {
    SHARDS = 4, /* maximum number of shards of a minibatch */
    WORKERS_MOST = 4,
    DATA_ROWS = 1024,
    CHECK_STEPS = 3, /* number of steps before a cell's result is compared */
    SPANS_MOST = 1 << 16,
    LAUNCHES_MOST = 1 << 17
};
#define DEADLINE_NS 60000000000ull

typedef enum host_mode { HOST_THREADS, HOST_STREAMS, HOST_ONE_STREAM, HOST_MODES } host_mode;
extern const char *const host_names[HOST_MODES];

/* The computation of a worker. */
typedef struct work {
    const char *name;
    int batch;      /* number of rows in a minibatch; 0: spin kernels */
    int pieces;     /* number of spin kernels in a shard */
    double spin_us; /* time of one spin kernel in microseconds, when nothing else runs */
    int shards;     /* number of shards of a minibatch; the same for any number of workers */
    int network;    /* 0: LeNet, 1: ResNet-18 */
} work;

/* A period in which a worker computed. Times are in nanoseconds. */
typedef struct span {
    uint64_t begin, end;
} span;

typedef struct cell cell;

/* Result of CHECK_STEPS steps: checksums of each shard's gradient in the last step, and of the
 * weights. */
typedef struct outcome {
    uint32_t leaf[SHARDS], weights;
} outcome;

/* A worker: a device, its computation and its measurements. */
typedef struct worker {
    cell *of;
    int index; /* 0 … workers − 1 */
    ls_device *device;
    ls_replica *replica; /* NULL: spin kernels */
    float *leaf, *total, *weights;
    size_t floats; /* length of an arena */
    ls_fold fold;
    ls_comm *comm;               /* NULL: nothing is merged, or one lane serves all workers */
    int borrows;                 /* non-zero: the worker uses the first worker's device */
    uint64_t spin;               /* state from which spin kernels continue */
    struct bench_spin *gpu_spin; /* state of spin kernels on a GPU */
    ls_recording *recording[SHARDS];
    ls_event *event; /* orders the streams that a single thread drives */
    /* [LAUNCHES_MOST], on a GPU: duration of each launch by the worker's own thread, in
     * nanoseconds */
    uint32_t *launch_ns;
    int launches;
    uint32_t rows[DATA_ROWS];
    ls_comm_times times;
    double barrier_s;
    uint32_t leaf_crc[SHARDS]; /* checksums of the last step, if the result is to be checked */
    int spans;
    span *busy; /* [SPANS_MOST] */
    ls_error error;
    int status; /* status of the first piece that failed */
} worker;

/* A piece of a worker's step. `run` is called on the worker's lane. */
typedef struct piece {
    int (*run)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int shard, index;
    int computes; /* non-zero: the time of the piece counts as computing */
} piece;

enum { PIECES_MOST = 512 };

/* Parameters of a cell. */
typedef struct cell_desc {
    int workers;
    host_mode host;
    const work *work;
    /* 0: no merge; 1: merge after the backward pass; 2: merge parts of the gradient during the
     * backward pass */
    int merge;
    int barrier;         /* non-zero: all workers wait for each other at the end of a step */
    int graph;           /* non-zero: a shard's kernels are enqueued as one graph */
    const char *why_not; /* reason why the cell cannot be measured; NULL: it can be measured */
} cell_desc;

/* Implementation of spin kernels. `run`, `replay`, `finish` and `apply` execute a piece. `open` and
 * `close` are called on the lane. */
typedef struct spin_kind {
    int (*open)(worker *w, ls_error *err);
    void (*close)(worker *w);
    int (*run)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    /* executes all spin kernels of a shard, which were recorded as one graph */
    int (*replay)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int (*finish)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int (*apply)(worker *w, uint64_t step, int shard, int index, ls_error *err);
} spin_kind;
extern const spin_kind cpu_spin, gpu_spin;

/* Figures of a round. Times are in seconds. */
typedef struct figures {
    double steps_per_s;
    double launches; /* number of launches by the host per step */
    /* median and 99th percentile of the duration of a launch */
    double launch_p50, launch_p99;
    /* sum of busy times divided by the time in which any worker was busy */
    double overlap;
    /* Per step and worker: the time that merging adds to a step, the time in which the worker waits
     * in merges, and the time in which it waits at the barrier. */
    double exposed, merge_wait, barrier_wait;
    double switches; /* number of context switches of the process per step */
} figures;

enum { ROUNDS_MOST = 64 };

/* Functions that run cells, in overlap_cell.c for CPUs and in overlap_gpu.c for GPUs. */
typedef struct engine {
    int (*open)(cell *c, ls_error *err);
    void (*close)(cell *c);
    /* Makes CHECK_STEPS steps and compares their result with `wanted`. Errors: LS_EDIVERGED if
     * they differ. */
    int (*check)(cell *c, const outcome *wanted, ls_error *err);
    /* Measures one round of about `seconds` and stores it in c->round[c->rounds++]. */
    int (*measure)(cell *c, double seconds, ls_error *err);
    /* Measures how the workers' computations overlap, and stores figures.overlap in all rounds.
     * Called after the last round, because it slows down the steps. NULL: `measure` does this.
     * Errors: LS_EUNSUPPORTED if it cannot be measured. */
    int (*look)(cell *c, ls_error *err);
    const spin_kind *spin;
    /* non-zero: the engine implements the barrier; zero: the barrier is a piece */
    int meets_itself;
} engine;
extern const engine cpu_engine, gpu_engine;

struct cell {
    cell_desc desc;
    const engine *engine;
    ls_precision precision;
    const char *cache_dir;
    const int *device; /* [device_count]: worker i uses device[i % device_count]; NULL: device i */
    int device_count;
    double step_s; /* time of a step, on a GPU */
    const ls_backend *backend;
    ls_replica_data data;
    const ls_network *model;
    const ls_optimizer *optimizer;
    const float *first_weights; /* canonical weights */
    ls_pool *lanes;
    worker worker[WORKERS_MOST];
    ls_comm_group *group;
    ls_barrier barrier;
    piece piece[WORKERS_MOST][PIECES_MOST];
    int pieces[WORKERS_MOST];
    int checking;
    uint64_t step; /* number of the next step */
    /* pieces that the host has issued and the lanes have not executed yet, of at most two steps */
    struct item *items;
    uint32_t *launch_ns; /* [LAUNCHES_MOST] */
    int launches;
    uint32_t checksum[WORKERS_MOST];
    _Atomic uint64_t finished[WORKERS_MOST]; /* number of steps that each worker has finished */
    /* the host thread sleeps here while it waits for the workers */
    ls_park parking;
    int rounds;
    figures round[ROUNDS_MOST];
};

/* ---- overlap_check.c ------------------------------------------------------------------------ */

/* Computes the expected result of CHECK_STEPS steps with one worker, by the library's own calls,
 * without lanes and pieces. Uses the description, data and model of `c`, which need not be open. */
int reference_run(outcome *out, const cell *c, ls_error *err);
/* Returns the communicator for devices like `device`. Workers on one GPU read each other's
 * memory. */
const ls_comm_type *merging_of(const ls_device *device);

/* ---- overlap_work.c ------------------------------------------------------------------------- */

/* Opens worker `w` on its lane: device, replica or spin state, fold. */
int worker_open(worker *w, ls_error *err);
void worker_close(worker *w);
/* Fills cell->piece[w->index]. */
void worker_list_pieces(worker *w);
/* Returns a checksum of the worker's weights. Called on the lane. */
uint32_t worker_checksum(const worker *w);
/* Returns a checksum of floats in a device's memory. Called on the lane. */
uint32_t device_crc(ls_device *device, const float *data, size_t floats);
/* Returns the state after the last spin kernel of a shard. The number of iterations of a kernel
 * depends on the machine, but is the same for all cells. */
uint64_t spin_shard(const work *job, uint64_t step, int shard);
/* Computes a gradient of small whole numbers from the state of the spin kernels. */
void spin_gradient(float *leaf, size_t floats, uint64_t state);
/* Measures how many iterations of the spin kernel take a microsecond. */
void spin_calibrate(void);
/* Sets the number of iterations of the spin kernel that take a microsecond. */
void spin_set_rate(double per_us);
/* Returns the number of iterations of one spin kernel. */
uint64_t spin_times(const work *job);
/* Returns the number of shards of a worker. */
int shards_each(const cell *c);
int meet(worker *w, ls_error *err);

/* ---- overlap_cell.c ------------------------------------------------------------------------- */

int lane_of(const cell *c, int rank);
/* Runs `job` for every worker on its lane. */
int on_lanes(cell *c, int (*job)(cell *c, worker *w, ls_error *err), ls_error *err);
/* Allocates the cell's memory, and creates the lanes with a device for each. `inbox`: number of
 * items that a lane can hold. `pinned`: non-zero: each lane's thread stays on one CPU. */
int open_lanes_of(cell *c, int inbox, int pinned, ls_error *err);
/* Creates the group of communicators of type `type`, if the cell merges by a communicator. */
int open_group_of(cell *c, const ls_comm_type *type, ls_error *err);
/* Closes the cell and frees its memory. */
void cell_close(cell *c);
/* Called when a piece of the worker has failed. Releases the threads that wait for the worker. */
void give_up(worker *w, int status);
/* Returns the first failure of a piece. */
int first_failure(const cell *c, ls_error *err);
/* Compares the present state of the workers with `wanted`. */
int compare(cell *c, const outcome *wanted, ls_error *err);
/* Returns the sum of busy times divided by the time in which any worker was busy. */
double overlap_of(const cell *c);
double context_switches(void);
void begin_round(cell *c);
void end_round(cell *c, double seconds, double steps, double switched);

/* ---- overlap_gpu.c, in builds with a CUDA toolkit -------------------------------------------- */

const ls_backend *overlap_gpu_backend(void);
/* Measures the spin kernel's rate. */
int overlap_gpu_calibrate(const ls_backend *backend, int index, ls_error *err);
/* Returns the reason why the cell cannot be measured, or NULL if it can be measured. */
const char *overlap_gpu_why_not(const cell_desc *d, const int *device, int devices);

#endif
