/* bench_overlap from the inside: what a worker does in a step, and who tells it to.
 *
 * A step of a worker is a list of *pieces*: the kernels of its shards, the merge, the update. A *lane*
 * is a queue that does what it is given in order: what a stream is on a GPU. On a CPU a lane has an
 * executor of its own, a thread of the library's pool; on a GPU the device is it. So the three ways
 * of driving W workers differ in who issues the pieces, and into how many lanes:
 *
 *     threads     W lanes; the host gives each whole steps, and its thread issues the pieces itself
 *     streams     W lanes; one host thread issues every piece of every worker, round robin
 *     one-stream  one lane; likewise
 */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "comm/comm.h"
#include "nn/replica.h"
#include "sync/barrier.h"

#include <lockstep/device_pool.h>

enum {
    SHARDS = 4, /* of a minibatch, whatever the number of workers */
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
} work;

/* From when to when a worker computed. */
typedef struct span {
    uint64_t begin, end;
} span;

typedef struct cell cell;

/* One worker: a device, what it computes on it, and what it noticed. */
typedef struct worker {
    cell *of;
    int index;
    ls_device *device;
    ls_replica *replica; /* NULL: spin kernels */
    float *leaf, *total, *weights;
    size_t floats; /* of an arena */
    ls_fold fold;
    ls_comm *comm; /* NULL: nothing is merged, or one lane has all workers */
    uint64_t spin; /* the state that spin kernels go on from */
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
    int merge;   /* after backward; else nothing is communicated */
    int barrier; /* all workers meet at the end of a step */
} cell_desc;

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

struct cell {
    cell_desc desc;
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

/* What CHECK_STEPS steps lead to: each shard's gradient in the last one, and the weights. */
typedef struct outcome {
    uint32_t leaf[SHARDS], weights;
} outcome;

/* ---- overlap_check.c ------------------------------------------------------------------------ */

/* The same steps by one worker, through the library's own calls: no lanes, no pieces. `c` is not
 * open; its description, data and model are used. */
int reference_run(outcome *out, const cell *c, ls_error *err);

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
/* How many iterations of the spin kernel take a microsecond; measured once. */
void spin_calibrate(void);

/* ---- overlap_cell.c ------------------------------------------------------------------------- */

int cell_open(cell *c, ls_error *err);
void cell_close(cell *c);
/* CHECK_STEPS steps, whose result must be that of `wanted`. Errors: LS_EDIVERGED. */
int cell_check(cell *c, const outcome *wanted, ls_error *err);
/* One round of about `seconds`, into c->round[c->rounds++]. */
int cell_measure(cell *c, double seconds, ls_error *err);

#endif
