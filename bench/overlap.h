/* Internals of bench_overlap: the work of a step, and the ways of driving the workers.
 *
 * A worker's step is a list of *pieces*: the kernels of its shards, the merge, the update. A *lane*
 * is a queue that executes in order, as a stream does on a GPU. On a CPU a lane has an executor of
 * its own, a thread of the library's pool; on a GPU the device executes it. The three ways of
 * driving W workers differ in the thread that issues the pieces, and in the number of lanes:
 *
 *     threads     W lanes; the host gives each worker whole steps; its thread issues the pieces
 *     streams     W lanes; one host thread issues every piece of every worker, round robin
 *     one-stream  one lane; one host thread issues every piece of every worker, round robin
 *
 * overlap_cell.c drives cells on a CPU, overlap_gpu.c on a GPU, where a lane is a device of the
 * back end, which has a stream of its own. A worker computes the same on both (overlap_work.c). */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "comm/comm.h"
#include "nn/replica.h"
#include "sync/barrier.h"

#include <lockstep/device_pool.h>

enum {
    SHARDS = 4, /* of a minibatch at most, whatever the number of workers */
    WORKERS_MOST = 4,
    DATA_ROWS = 1024,
    CHECK_STEPS = 3, /* a cell's result is compared after so many */
    SPANS_MOST = 1 << 16,
    LAUNCHES_MOST = 1 << 17
};
#define DEADLINE_NS 60000000000ull

typedef enum host_mode { HOST_THREADS, HOST_STREAMS, HOST_ONE_STREAM, HOST_MODES } host_mode;
extern const char *const host_names[HOST_MODES];

/* What is computed. */
typedef struct work {
    const char *name;
    int batch;  /* rows of a minibatch; 0: spin kernels */
    int pieces; /* spin kernels of a shard, and how long one takes alone */
    double spin_us;
    int shards;  /* of a minibatch, whatever the number of workers */
    int network; /* 0: LeNet, 1: ResNet-18 */
} work;

/* From when to when a worker computed. */
typedef struct span {
    uint64_t begin, end;
} span;

typedef struct cell cell;

/* What CHECK_STEPS steps lead to: each shard's gradient in the last one, and the weights. */
typedef struct outcome {
    uint32_t leaf[SHARDS], weights;
} outcome;

/* One worker: a device, what it computes on it, and what it noticed. */
typedef struct worker {
    cell *of;
    int index;
    ls_device *device;
    ls_replica *replica; /* NULL: spin kernels */
    float *leaf, *total, *weights;
    size_t floats; /* of an arena */
    ls_fold fold;
    ls_comm *comm;               /* NULL: nothing is merged, or one lane has all workers */
    int borrows;                 /* the device is the first worker's */
    uint64_t spin;               /* the state that spin kernels go on from */
    struct bench_spin *gpu_spin; /* the same on a GPU */
    ls_recording *recording[SHARDS];
    ls_event *event;     /* between the streams of one thread */
    uint32_t *launch_ns; /* [LAUNCHES_MOST] of its own thread, on a GPU */
    int launches;
    uint32_t rows[DATA_ROWS];
    ls_comm_times times;
    double barrier_s;
    uint32_t leaf_crc[SHARDS]; /* of the last step, when the result is to be checked */
    int spans;
    span *busy; /* [SPANS_MOST] */
    ls_error error;
    int status; /* of the first piece that failed */
} worker;

/* A piece of a worker's step. `run` is called on its lane. */
typedef struct piece {
    int (*run)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int shard, index;
    int computes; /* counts as busy */
} piece;

enum { PIECES_MOST = 512 };

/* How a cell differs from the others. */
typedef struct cell_desc {
    int workers;
    host_mode host;
    const work *work;
    int merge;   /* after backward; else nothing is communicated. 2: in buckets, meanwhile */
    int barrier; /* all workers meet at the end of a step */
    int graph;   /* what a shard computes is enqueued as one */
    const char *why_not; /* it cannot be measured; NULL: it can */
} cell_desc;

/* How spin kernels run. A piece each; `open` and `close` on the lane. */
typedef struct spin_kind {
    int (*open)(worker *w, ls_error *err);
    void (*close)(worker *w);
    int (*run)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int (*replay)(worker *w, uint64_t step, int shard, int index, ls_error *err); /* of a shard */
    int (*finish)(worker *w, uint64_t step, int shard, int index, ls_error *err);
    int (*apply)(worker *w, uint64_t step, int shard, int index, ls_error *err);
} spin_kind;
extern const spin_kind cpu_spin, gpu_spin;

/* What a round says. Times are in seconds. */
typedef struct figures {
    double steps_per_s;
    double launches; /* that the host issued, per step */
    double launch_p50, launch_p99;
    double overlap; /* summed busy time over the time in which anybody was busy */
    double exposed, merge_wait, barrier_wait; /* per step and worker */
    double switches;                          /* context switches of the process, per step */
} figures;

enum { ROUNDS_MOST = 64 };

/* Where cells run: overlap_cell.c, overlap_gpu.c. */
typedef struct engine {
    int (*open)(cell *c, ls_error *err);
    void (*close)(cell *c);
    /* CHECK_STEPS steps, whose result must be that of `wanted`. Errors: LS_EDIVERGED. */
    int (*check)(cell *c, const outcome *wanted, ls_error *err);
    /* One round of about `seconds`, into c->round[c->rounds++]. */
    int (*measure)(cell *c, double seconds, ls_error *err);
    /* NULL: measure does it. How busy times overlap, into all rounds; behind the last one, for
     * looking costs time. LS_EUNSUPPORTED: nobody can look. */
    int (*look)(cell *c, ls_error *err);
    const spin_kind *spin;
    int meets_itself; /* the barrier is no piece */
} engine;
extern const engine cpu_engine, gpu_engine;

struct cell {
    cell_desc desc;
    const engine *engine;
    ls_precision precision;
    const char *cache_dir;
    const int *device; /* [device_count]: worker i has device[i % device_count]; NULL: i */
    int device_count;
    double step_s; /* how long one took, on a GPU */
    const ls_backend *backend;
    ls_replica_data data;
    const ls_model *model;
    const ls_optimizer *optimizer;
    const float *first_weights; /* canonical */
    ls_pool *lanes;
    worker worker[WORKERS_MOST];
    ls_comm_group *group;
    ls_barrier barrier;
    piece piece[WORKERS_MOST][PIECES_MOST];
    int pieces[WORKERS_MOST];
    int checking;
    uint64_t step;       /* the next one */
    struct item *items;  /* what lanes were given and have not done; of two steps */
    uint32_t *launch_ns; /* [LAUNCHES_MOST] */
    int launches;
    uint32_t checksum[WORKERS_MOST];
    _Atomic uint64_t finished[WORKERS_MOST]; /* steps that each worker has done */
    ls_park parking;                         /* where the host waits for them */
    int rounds;
    figures round[ROUNDS_MOST];
};

/* ---- overlap_check.c ------------------------------------------------------------------------ */

/* The same steps by one worker, through the library's own calls: no lanes, no pieces. `c` is not
 * open; its description, data and model are used. */
int reference_run(outcome *out, const cell *c, ls_error *err);
/* By what such devices merge: those of one GPU out of each other's memory. */
const ls_comm_type *merging_of(const ls_device *device);

/* ---- overlap_work.c ------------------------------------------------------------------------- */

/* Opens worker `w` on its lane: device, replica or spin state, fold. */
int worker_open(worker *w, ls_error *err);
void worker_close(worker *w);
/* Fills cell->piece[w->index]. */
void worker_list_pieces(worker *w);
/* The weights, as a checksum; and of any numbers of a device. On the lane. */
uint32_t worker_checksum(const worker *w);
uint32_t device_crc(ls_device *device, const float *data, size_t floats);
/* What the spin kernels of one shard compute, and the gradient that is made of it: small whole
 * numbers. How often a kernel spins is the machine's, but the same for all cells. */
uint64_t spin_shard(const work *job, uint64_t step, int shard);
void spin_gradient(float *leaf, size_t floats, uint64_t state);
/* How many iterations of the spin kernel take a microsecond; measured once, or said. */
void spin_calibrate(void);
void spin_set_rate(double per_us);
uint64_t spin_times(const work *job);
/* How many shards a worker has. */
int shards_each(const cell *c);
int meet(worker *w, ls_error *err);

/* ---- overlap_cell.c ------------------------------------------------------------------------- */

int lane_of(const cell *c, int rank);
/* Runs `job` for every worker on its lane. */
int on_lanes(cell *c, int (*job)(cell *c, worker *w, ls_error *err), ls_error *err);
/* Memory, lanes with a device each, and a group of this kind where cells merge by one; the end. */
int open_lanes_of(cell *c, int inbox, int pinned, ls_error *err);
int open_group_of(cell *c, const ls_comm_type *type, ls_error *err);
void cell_close(cell *c);
/* A worker's piece failed: nobody waits for it. */
void give_up(worker *w, int status);
/* The first failure of a piece. */
int first_failure(const cell *c, ls_error *err);
/* Of what the workers have now. */
int compare(cell *c, const outcome *wanted, ls_error *err);
/* Summed busy time over the time in which anybody was busy. */
double overlap_of(const cell *c);
double context_switches(void);
void begin_round(cell *c);
void end_round(cell *c, double seconds, double steps, double switched);

/* ---- overlap_gpu.c, where there is a toolkit ------------------------------------------------ */

const ls_backend *overlap_gpu_backend(void);
/* Takes the spin kernel's rate. */
int overlap_gpu_calibrate(const ls_backend *backend, int index, ls_error *err);
/* Why the cell cannot be measured; NULL: it can. */
const char *overlap_gpu_why_not(const cell_desc *d, const int *device, int devices);

#endif
