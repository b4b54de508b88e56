/* Communicators: how the workers' gradients become one.
 *
 * A *group* is made once, by the coordinator, for a number of ranks; each worker joins it with its
 * own *communicator*. Then, step after step, every rank calls all_reduce with its partial sums and
 * finds the sum over all ranks in its total arena.
 *
 * Two kinds merge through host memory (comm_host.c):
 *
 *     ordered   every worker sums one chunk of the arena from everybody's partial sums, in the
 *               order of the shard tree, then gathers the other chunks: the same bits on any
 *               number of workers
 *     naive     the textbook's: rank 0 adds up everybody's gradients, parameter by parameter,
 *               then everybody copies the sum back; the bits depend on the number of workers
 *
 * A step has one commit point, inside all_reduce: either every rank returns LS_OK with the whole
 * sum in memory of its own, or none does.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "comm/fold.h"

#include <lockstep/plugin.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_comm_group ls_comm_group;
typedef struct ls_comm ls_comm;
typedef struct ls_comm_type ls_comm_type;

typedef struct ls_comm_group_desc {
    const ls_comm_type *type;
    int ranks;
    int shards;             /* leaves of the tree */
    size_t floats;          /* of an arena, a multiple of 16 */
    const size_t *segments; /* first float of each parameter in the arena, ascending, then `floats`;
                               read only by `naive`; outlives the group */
    int segment_count;
    uint64_t timeout_ns; /* longest wait for another rank in one call; UINT64_MAX: for ever */
    unsigned spins;      /* for the barrier */
    const ls_host *host;
} ls_comm_group_desc;

/* Seconds, added to by each call. */
typedef struct ls_comm_times {
    double wait;    /* for other ranks at the barriers */
    double exposed; /* merging, while the worker could do nothing else */
} ls_comm_times;

struct ls_comm_group {
    const ls_comm_type *type;
    int ranks;
};

struct ls_comm {
    ls_comm_group *group;
    int rank;
};

/* A row of the table of communicators. All slots are mandatory. */
struct ls_comm_type {
    const char *name; /* config key `allreduce` */
    int same_bits;    /* non-zero: results do not depend on the number of workers */
    int (*group_create)(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
    void (*group_destroy)(ls_comm_group *group); /* after every rank has left */
    /* On the worker's thread. Errors: LS_ENOMEM. */
    int (*join)(ls_comm **out, ls_comm_group *group, int rank, ls_device *device, ls_error *err);
    void (*leave)(ls_comm *comm); /* NULL is allowed */
    /* Collective. `partials` cover this rank's shards, in order; `total` (desc.floats, device
     * memory of this rank's own) receives the sum. Errors: LS_EABORTED when another rank aborted,
     * LS_ETIMEDOUT, naming who is missing; `total` is then undefined. */
    int (*all_reduce)(ls_comm *comm, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err);
    /* Any thread: every present and later call of the group returns LS_EABORTED. */
    void (*abort)(ls_comm_group *group);
};

extern const ls_comm_type ls_comm_ordered;
extern const ls_comm_type ls_comm_naive;

/* The communicators by name, NULL-terminated. */
const ls_comm_type *const *ls_comm_types(void);

#endif
