/* The communicators of CUDA devices: the device table's `communicators`.
 *
 *     ordered   the same bits on any number of workers, however they share GPUs
 *     nccl      NCCL's all-reduce, beside the backward pass; the bits depend on the number of
 *               workers, and each needs a GPU of its own
 *     local     as `ordered`, for workers that share one GPU; refuses others
 *
 * They share a group (merge/group.h) and differ in how a merge is enqueued (ls_cuda_way). A merge's
 * work, for one rank (`compute` is the stream that holds its partial sums):
 *
 *     before the first meeting: record `ready` on compute
 *     enqueue: waits for the others' events, sums and copies; record `whole`
 *     the host waits for `whole`, and only then anything goes on behind the merge
 *
 * The host waits for its own GPU before the commit point, because LS_OK is a promise: everybody
 * holds the whole sum. A group of one rank meets nobody and waits for nothing. With `nccl`, and over several
 * processes, buckets may be enqueued before all of this (ls_cuda_comm_merge_ready). Over several processes the
 * sums are those of the process's own nodes of the shard tree, and go on from there (hosts.c).
 *
 * When a rank fails, it aborts the group and then waits until what it has enqueued has ended, so
 * that it touches nobody's memory any more (`reading`, the slot `may_read`).
 */
#ifndef CUDA_COMM_GROUP_H
#define CUDA_COMM_GROUP_H

#include "cuda/cuda_device.h"
#include "merge/group.h"
#include "merge/tree.h"
#include "sync/barrier.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <nccl.h>
#include <stdbool.h>

/* ---- NCCL (links.c) ------------------------------------------------------------------ */

/* The NCCL communicators of a group's ranks, one for each GPU, and their watchdog. The lowest of
 * the ranks that share a GPU has it; the others only meet.
 *
 *     ls_cuda_links_connect(links, rank, …)                  every rank at the same time
 *     ls_cuda_links_begin(&nccl, links, rank, err)           then NCCL calls on `nccl`
 *     ls_cuda_links_end(links, rank, result, …)              their result; waits until they are enqueued
 *
 * All communicators are non-blocking, so that no call into NCCL can hang: a rank that waits for
 * others looks at the deadline and at the barrier's abort again and again.
 *
 * The watchdog, one thread for a group, asks every communicator for asynchronous errors. On the first
 * one it aborts the barrier. When that is aborted, by whomever, it aborts *all* communicators:
 * a kernel of NCCL that waits for a lost peer ends in no other way. Nobody frees memory that NCCL may
 * touch before ls_cuda_links_are_gone.
 *
 * A lock for each rank keeps the worker's calls and the watchdog's apart; it is never held while
 * waiting.
 */

typedef struct ls_cuda_links ls_cuda_links;

/* `barrier` outlives the links. Nothing of NCCL is called yet. Errors: LS_ENOMEM, LS_ESYSTEM. */
int ls_cuda_links_create(ls_cuda_links **out, ls_barrier *barrier, int ranks, const ls_host *host,
                         ls_error *err);

/* Ends the watchdog, which aborts what is left. No rank may be inside a call. NULL is allowed. */
void ls_cuda_links_destroy(ls_cuda_links *links);

/* Who a rank is to NCCL. */
typedef struct ls_cuda_peer {
    int rank;  /* among NCCL's; −1: it has no communicator. Rank 0 of the group is 0 here too */
    int ranks; /* of NCCL */
} ls_cuda_peer;

/* Collective; the rank's device is current. Meets twice. Errors: LS_EDEVICE, LS_EUNSUPPORTED (two
 * of NCCL's ranks on one GPU), LS_ESYSTEM, LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_connect(ls_cuda_links *links, int rank, ls_cuda_peer peer, uint64_t deadline_ns,
                          ls_error *err);

/* The communicator of a rank that has one, locked until ls_cuda_links_end. Errors: LS_EABORTED. */
int ls_cuda_links_begin(ncclComm_t *out, ls_cuda_links *links, int rank, ls_error *err);
/* Behind a successful begin, always. Errors: LS_EDEVICE, LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_end(ls_cuda_links *links, int rank, ncclResult_t result, uint64_t deadline_ns,
                      ls_error *err);

/* A failure, not a call that is still under way: communicators do not block. */
static inline bool ls_nccl_is_bad(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* Between two looks at something that is waited for: longer the more `rounds` there were. */
void ls_cuda_nap(unsigned rounds);

/* The group is aborted: tells the watchdog so. Any thread. */
void ls_cuda_links_wake(ls_cuda_links *links);
/* Waits until every communicator was aborted, or there was none; false if the deadline passed first.
 * Any thread. */
bool ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns);

/* ---- a group -------------------------------------------------------------------------------- */

/* Which ranks share a GPU. GPUs are numbered as they first appear among the ranks: 0 is rank 0's. The lowest
 * rank on a GPU leads: it alone speaks for the GPU to the others, as NCCL allows one rank for each. */
typedef struct ls_cuda_gpu_map {
    int gpus;
    int *gpu;    /* [rank] its GPU's number */
    int *leader; /* [gpu] its lowest rank */
} ls_cuda_gpu_map;

/* What else the others see of a rank. */
typedef struct ls_cuda_rank {
    ls_cuda_device *device;
    int ordinal;
    cudaEvent_t ready;            /* its partial sums are complete, its total may be written */
    cudaEvent_t whole;            /* what it has enqueued of the merge is done */
    cudaEvent_t down[LS_BUCKETS]; /* a bucket is in the host's memory (hosts.c) */
    float *stage;                 /* other GPUs' partial sums of its chunk (ordered.c) */
    size_t stage_floats;
    char own_cache_line[64];
} ls_cuda_rank;

typedef struct ls_cuda_group ls_cuda_group;
typedef struct ls_cuda_comm ls_cuda_comm;

/* A merge's own numbers. */
typedef struct ls_cuda_merge {
    cudaStream_t compute; /* the caller's stream */
    float *total;
    ls_comm_times *times;
} ls_cuda_merge;

/* What was enqueued of a merge before its all_reduce. */
typedef struct ls_cuda_ahead {
    int buckets; /* so many of this step; 0: nothing */
    int told;    /* of these the other processes' courier knows (hosts.c) */
    const float *from;
    float *total;
    cudaStream_t compute;
} ls_cuda_ahead;

/* How a merge is done. */
typedef struct ls_cuda_way {
    int links; /* non-zero: over NCCL */
    /* Between the first meeting and the wait for `whole`, which it records. */
    int (*enqueue)(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err);
    /* Where the group merges ahead: bucket `bucket` of `from`, on the communication stream. NULL: it never does. */
    int (*ahead)(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from, int bucket,
                 ls_error *err);
} ls_cuda_way;

extern const ls_cuda_way ls_cuda_way_local;   /* one GPU for all: tree order */
extern const ls_cuda_way ls_cuda_way_ordered; /* several GPUs, shared or not: tree order */
extern const ls_cuda_way ls_cuda_way_nccl;    /* a GPU for each: NCCL's order */

struct ls_cuda_group {
    ls_merge_group merge;
    ls_cuda_rank *rank;
    ls_cuda_links *links;
    void *pinned; /* ls_members_ops.memory, if this group has pinned it */
};

struct ls_cuda_comm {
    ls_comm base;
    ls_cuda_group *group;
    ls_cuda_rank *mine;
    ls_merge_rank *shown;   /* what the others see of this rank */
    const ls_cuda_way *way; /* NULL before the first collective call, and in a group of one */
    ls_cuda_gpu_map map;    /* known with the way */
    ls_cuda_ahead ahead;
    int gave_up;
    ls_tree_rest rest; /* of the last merge */
    int maps[];        /* what `map` points to */
};

/* The GPU of this rank, as `map` counts; whether this rank leads there; and whether another one shares it. */
static inline int ls_cuda_comm_gpu(const ls_cuda_comm *comm)
{
    return comm->map.gpu[comm->base.rank];
}

static inline bool ls_cuda_comm_leads(const ls_cuda_comm *comm)
{
    return comm->map.leader[ls_cuda_comm_gpu(comm)] == comm->base.rank;
}

static inline bool ls_cuda_comm_shares_gpu(const ls_cuda_comm *comm, int rank)
{
    return comm->map.gpu[rank] == ls_cuda_comm_gpu(comm);
}

/* ---- for a way ------------------------------------------------------------------------------ */

/* comm->rest ← what is left of the tree over what all ranks show. Errors: as ls_tree_rest_update;
 * LS_EUNSUPPORTED (more sums, or a deeper tree, than the kernel takes). */
int ls_cuda_comm_rest(ls_cuda_comm *comm, ls_error *err);

/* The stream waits for `ready` of everybody on this rank's GPU. */
int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err);

/* Records `event` on `stream`. */
int ls_cuda_comm_record(const ls_cuda_comm *comm, cudaEvent_t event, cudaStream_t stream,
                        ls_error *err);

/* Rank 0, before the first merge: what goes to other processes is pinned, until the group ends. */
int ls_cuda_comm_pin(ls_cuda_comm *comm, ls_error *err);

/* Where this rank's stage has partial sum `index`, `count` floats, of a rank on another GPU. */
float *ls_cuda_comm_stage(const ls_cuda_comm *comm, int rank, int index, size_t count);
/* How many partial sums the ranks below `rank` send to GPU `gpu`: the index at which `rank`'s first one lies in that
 * GPU's stage. With `rank` the number of ranks: how many arrive in all. */
size_t ls_cuda_comm_stage_index(const ls_cuda_comm *comm, int gpu, int rank);

/* total[first … first + count) ← sum `sum` of comm->rest (0 where there is one), of partial sums on this rank's
 * GPU, and of others' in its stage. */
int ls_cuda_comm_sum(const ls_cuda_comm *comm, int sum, float *total, size_t first, size_t count,
                     cudaStream_t stream, ls_error *err);
/* total[first … first + count) → the totals of the other ranks on this GPU. */
int ls_cuda_comm_hand_out(const ls_cuda_comm *comm, const float *total, size_t first, size_t count,
                          cudaStream_t stream, ls_error *err);
/* The first `complete` buckets of `from`, this rank's one partial sum, as far as they are not under way, behind an
 * event of the compute stream. */
int ls_cuda_comm_go_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                          int complete, ls_error *err);

/* LS_OK, or LS_EINVAL: the buckets already enqueued were given other arrays. */
int ls_cuda_comm_goes_on(const ls_cuda_comm *comm, const float *from, const float *total,
                         ls_error *err);

/* ---- over several processes (hosts.c) --------------------------------------------- */

/* Sums the process's nodes of the shard tree into total[first … first + count), one after another, and copies each to
 * the host. */
int ls_cuda_comm_bring(const ls_cuda_comm *comm, float *total, size_t first, size_t count,
                       cudaStream_t stream, ls_error *err);
/* ls_cuda_way.ahead of a process that has one rank. */
int ls_cuda_comm_bring_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                             int bucket, ls_error *err);
/* The courier hears of the buckets that have come down since. Waits for nothing. */
int ls_cuda_comm_tell(ls_cuda_comm *comm, ls_error *err);
/* All nodes are on the host: their sum with the other processes' is in this rank's total when `whole` has passed. */
int ls_cuda_comm_over_members(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err);

/* ---- slots of the table --------------------------------------------------------------------- */

int ls_cuda_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_cuda_group_destroy(ls_comm_group *base);
void ls_cuda_group_abort(ls_comm_group *base);
int ls_cuda_group_may_read(const ls_comm_group *base, int rank);

extern const ls_comm_type ls_cuda_comm_ordered, ls_cuda_comm_nccl, ls_cuda_comm_local;

/* NULL-terminated, static. Any thread. */
const ls_comm_type *const *ls_cuda_comms(void);

#endif
