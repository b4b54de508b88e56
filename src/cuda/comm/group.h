/* SPDX-License-Identifier: MIT */
/* The communicators of CUDA devices: the field `communicators` of the device table.
 * <lockstep/sys/communicator.h> and merge/group.h define the terms. A *node* is a sum at a node of
 * the shard tree. An event *passes* when it completes, that is, when the work that was enqueued
 * before the event is done.
 *
 *     ordered   the same bits on any number of workers, however they share GPUs
 *     nccl      NCCL's all-reduce, overlapped with the backward pass; the bits depend on the number
 *               of workers, and each worker needs a GPU of its own
 *     local     as `ordered`, for workers that share one GPU; refuses other groups
 *
 * All three use the same group and differ in how a merge is enqueued (ls_cuda_way). The work of a
 * merge for one rank is as follows. `compute` is the stream that produces the rank's partial sums;
 * `ready` and `whole` are events (ls_cuda_rank).
 *
 *     before the first meeting: record `ready` on compute
 *     enqueue: wait for the events of the other ranks, sum and copy; record `whole`
 *     the rank's thread waits for `whole`, then for the last meeting (the commit point)
 *
 * The thread waits for its own GPU before the commit point, because LS_OK promises that every rank
 * has the whole sum. A group of one rank has no meetings and waits for nothing. With `nccl`, and
 * over several processes, buckets may be enqueued before the first meeting (ls_cuda_comm_go_ahead);
 * this is called *ahead*. Over several processes, each process computes its own nodes of the shard
 * tree. These are then merged with the other processes' nodes (hosts.c).
 *
 * A rank that fails aborts the group, and then waits until the work that it has enqueued has ended.
 * After that the rank accesses no other rank's memory, and says so in the flag `reading`
 * (merge/group.h), which the function may_read returns. */
#ifndef CUDA_COMM_GROUP_H
#define CUDA_COMM_GROUP_H

#include "cuda/comm/nccl_lib.h"
#include "cuda/cuda_device.h"
#include "merge/group.h"
#include "merge/tree.h"
#include "sync/barrier.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>

/* ---- NCCL (links.c) ------------------------------------------------------------------ */

/* The *links*: NCCL, the NCCL communicators of a group's ranks, one for each GPU, and their
 * watchdog. Of the ranks that share a GPU, the lowest has the GPU's communicator. The other ranks
 * of the GPU only take part in the meetings.
 *
 *     ls_cuda_links_connect(links, rank, …)           every rank at the same time
 *     ls_cuda_links_begin(&link, links, rank, err)    then link.nccl->ncclSend(…, link.comm, …)
 *     ls_cuda_links_end(links, rank, result, …)       waits until these calls are enqueued;
 *                                                     returns their result
 *
 * All communicators are non-blocking, so that no call into NCCL can hang. A rank that waits for
 * other ranks polls, and checks the deadline and whether the barrier has been aborted.
 *
 * The watchdog is one thread per group. It asks every communicator for asynchronous errors, and
 * aborts the barrier at the first error. When the barrier is aborted, by the watchdog or by any
 * rank, the watchdog aborts *all* communicators, in one NCCL group: this is the only way to end a
 * kernel of NCCL that waits for a lost peer. A rank may free memory that NCCL can access only after
 * ls_cuda_links_are_gone has returned true.
 *
 * One lock per rank separates the worker's calls from the watchdog's calls. No thread waits while
 * it holds such a lock. */

typedef struct ls_cuda_links ls_cuda_links;

/* Creates the links of a group. `barrier` must outlive them. Does not call NCCL yet. Errors:
 * LS_ENOMEM, LS_ESYSTEM. */
int ls_cuda_links_create(ls_cuda_links **out, ls_barrier *barrier, int ranks, const ls_host *host,
                         ls_error *err);

/* Ends the watchdog, which aborts the remaining communicators, and frees the links. No rank must be
 * inside a call with these links. `links` may be NULL. */
void ls_cuda_links_destroy(ls_cuda_links *links);

/* The place of a rank of the group among NCCL's ranks, which are the ranks with a communicator. */
typedef struct ls_cuda_peer {
    /* number among NCCL's ranks; −1: the rank has no communicator. Rank 0 of the group has number
     * 0. */
    int rank;
    int ranks; /* number of NCCL's ranks */
} ls_cuda_peer;

/* Loads NCCL (nccl_lib.h), unless it is loaded already. The caller is the only thread that uses the
 * links. Errors: LS_EUNSUPPORTED. */
int ls_cuda_links_load(ls_cuda_links *links, ls_error *err);

/* Returns the version of the loaded NCCL as NCCL counts (22809); 0: it is not loaded. */
int ls_cuda_links_version(const ls_cuda_links *links);

/* Connects the communicators; loads NCCL if that has not been done. Collective, with two meetings;
 * the rank's device must be current. Errors: LS_EDEVICE, LS_EUNSUPPORTED (two of NCCL's ranks on
 * one GPU), LS_ESYSTEM, LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_connect(ls_cuda_links *links, int rank, ls_cuda_peer peer, uint64_t deadline_ns,
                          ls_error *err);

/* A rank's communicator, and the functions of NCCL. */
typedef struct ls_cuda_link {
    const ls_nccl *nccl;
    ncclComm_t comm;
} ls_cuda_link;

/* Sets *out to the communicator of a rank that has one, and locks it until ls_cuda_links_end.
 * Errors: LS_EABORTED. */
int ls_cuda_links_begin(ls_cuda_link *out, ls_cuda_links *links, int rank, ls_error *err);
/* Unlocks the communicator and waits until its calls are enqueued. `result`: result of the calls.
 * Called after each successful ls_cuda_links_begin. Errors: LS_EDEVICE, LS_EUNSUPPORTED,
 * LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_end(ls_cuda_links *links, int rank, ncclResult_t result, uint64_t deadline_ns,
                      ls_error *err);

/* Returns true if an NCCL call has failed. ncclInProgress is not a failure, because the
 * communicators are non-blocking. */
static inline bool ls_nccl_is_bad(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* Pauses between two polls. `rounds`: number of polls so far; after many polls the pause is
 * longer. */
void ls_cuda_nap(unsigned rounds);

/* Tells the watchdog that the group is aborted. Thread: any. */
void ls_cuda_links_wake(ls_cuda_links *links);
/* Waits until the watchdog has aborted every communicator, at most until the deadline. Returns true
 * if all are aborted, or if there is no watchdog and therefore no communicator; else false. Thread:
 * any. */
bool ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns);

/* ---- a group -------------------------------------------------------------------------------- */

/* Which ranks share a GPU. GPUs are numbered in the sequence in which they first appear among the
 * ranks, so GPU 0 is the GPU of rank 0. The lowest rank on a GPU is the GPU's *leader*. Only the
 * leader communicates with other GPUs, because NCCL allows one rank per GPU. */
typedef struct ls_cuda_gpu_map {
    int gpus;
    int *gpu;    /* [rank]: number of the rank's GPU */
    int *leader; /* [gpu]: lowest rank on the GPU */
} ls_cuda_gpu_map;

/* Data of a rank that the other ranks read, in addition to ls_merge_rank. */
typedef struct ls_cuda_rank {
    ls_cuda_device *device;
    int ordinal;
    cudaEvent_t ready; /* the rank's partial sums are complete, and its total may be written */
    cudaEvent_t whole; /* the rank's enqueued work of the merge is done */
    cudaEvent_t down[LS_BUCKETS]; /* [bucket]: the bucket has arrived in host memory (hosts.c) */
    /* other GPUs' partial sums of this GPU's chunk, its share of the arena (ordered.c) */
    float *stage;
    size_t stage_floats; /* size of `stage`; 0: there is none */
    char own_cache_line[64];
} ls_cuda_rank;

typedef struct ls_cuda_group ls_cuda_group;
typedef struct ls_cuda_comm ls_cuda_comm;

/* Arguments of one merge. */
typedef struct ls_cuda_merge {
    cudaStream_t compute; /* the caller's stream */
    float *total;
    ls_comm_times *times;
} ls_cuda_merge;

/* Work of a merge that was enqueued ahead, that is before its all_reduce. */
typedef struct ls_cuda_ahead {
    int buckets; /* number of buckets of this training step that are enqueued */
    /* number of these buckets that were reported to the cluster's progress thread (hosts.c) */
    int reported;
    const float *from;    /* partial sum from which the buckets are taken */
    float *total;         /* total of this merge */
    cudaStream_t compute; /* stream that produces the partial sum */
} ls_cuda_ahead;

/* A way of merging. */
typedef struct ls_cuda_way {
    int links; /* non-zero: the way uses NCCL */
    /* Enqueues the work between the first meeting and the wait for `whole`, and records `whole`. */
    int (*enqueue)(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err);
    /* Enqueues bucket `bucket` of `from` ahead, on the communication stream. NULL: with this way of
     * merging no bucket is enqueued ahead. */
    int (*ahead)(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from, int bucket,
                 ls_error *err);
} ls_cuda_way;

extern const ls_cuda_way ls_cuda_way_local;   /* all ranks on one GPU: tree order */
extern const ls_cuda_way ls_cuda_way_ordered; /* several GPUs, shared or not: tree order */
extern const ls_cuda_way ls_cuda_way_nccl;    /* one GPU per rank: NCCL's order */

struct ls_cuda_group {
    ls_merge_group merge;
    ls_cuda_rank *rank;
    ls_cuda_links *links;
    void *pinned; /* the memory from ls_members_ops.memory if this group has pinned it, else NULL */
};

struct ls_cuda_comm {
    ls_comm base;
    ls_cuda_group *group;
    ls_cuda_rank *mine;
    ls_merge_rank *shown;   /* data of this rank that the other ranks read */
    const ls_cuda_way *way; /* NULL before the first collective call, and in a group of one */
    ls_cuda_gpu_map map;    /* set together with `way` */
    ls_cuda_ahead ahead;
    int gave_up;       /* non-zero: this rank has failed and aborted the group (merge.c) */
    ls_tree_rest rest; /* the additions of the shard tree that the last merge had to make */
    int maps[];        /* memory of `map` */
};

/* Returns the number of this rank's GPU in `map`. */
static inline int ls_cuda_comm_gpu(const ls_cuda_comm *comm)
{
    return comm->map.gpu[comm->base.rank];
}

/* Returns true if this rank is the leader of its GPU. */
static inline bool ls_cuda_comm_leads(const ls_cuda_comm *comm)
{
    return comm->map.leader[ls_cuda_comm_gpu(comm)] == comm->base.rank;
}

/* Returns true if `rank` is on this rank's GPU, also for this rank itself. */
static inline bool ls_cuda_comm_shares_gpu(const ls_cuda_comm *comm, int rank)
{
    return comm->map.gpu[rank] == ls_cuda_comm_gpu(comm);
}

/* ---- functions for the ways of merging ------------------------------------------------------- */

/* Sets comm->rest to the additions that the shard tree still needs above the partial sums of all
 * ranks. Errors: those of ls_tree_rest_update; LS_EUNSUPPORTED if there are more sums, or a deeper
 * tree, than the kernel takes. */
int ls_cuda_comm_rest(ls_cuda_comm *comm, ls_error *err);

/* Makes the stream wait for the events `ready` of all ranks on this rank's GPU. */
int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err);

/* Records `event` on `stream`. */
int ls_cuda_comm_record(const ls_cuda_comm *comm, cudaEvent_t event, cudaStream_t stream,
                        ls_error *err);

/* Pins the host memory that is exchanged with other processes. It stays pinned until the group is
 * destroyed. Every rank calls this before its first merge; only the call of rank 0 has an effect.
 */
int ls_cuda_comm_pin(ls_cuda_comm *comm, ls_error *err);

/* Returns the address, in this rank's stage, of partial sum `index` of `rank`, which is on another
 * GPU. `count`: floats of this GPU's chunk. */
float *ls_cuda_comm_stage(const ls_cuda_comm *comm, int rank, int index, size_t count);
/* Returns the number of partial sums that the ranks below `rank` send to GPU `gpu`. This is the
 * index of the first partial sum of `rank` in the stage of `gpu`. If `rank` is the number of ranks,
 * it is the number of all partial sums that arrive. */
size_t ls_cuda_comm_stage_index(const ls_cuda_comm *comm, int gpu, int rank);

/* total[first … first + count) ← sum number `sum` of comm->rest (0 if there is only one sum),
 * computed from the partial sums on this rank's GPU and from the partial sums of other GPUs in this
 * rank's stage. */
int ls_cuda_comm_sum(const ls_cuda_comm *comm, int sum, float *total, size_t first, size_t count,
                     cudaStream_t stream, ls_error *err);
/* Copies total[first … first + count) to the totals of the other ranks on this GPU. */
int ls_cuda_comm_hand_out(const ls_cuda_comm *comm, const float *total, size_t first, size_t count,
                          cudaStream_t stream, ls_error *err);
/* Enqueues those of the first `complete` buckets of `from` that are not enqueued yet. `from` is
 * this rank's only partial sum, or with `nccl` the sum of its partial sums. The work waits for the
 * event `ready`, which this function records on the compute stream. */
int ls_cuda_comm_go_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                          int complete, ls_error *err);

/* Returns LS_EINVAL if buckets of this step are enqueued already for arrays other than `from` and
 * `total`, else LS_OK. */
int ls_cuda_comm_goes_on(const ls_cuda_comm *comm, const float *from, const float *total,
                         ls_error *err);

/* ---- over several processes (hosts.c) -------------------------------------------------------- */

/* Computes the process's nodes of the shard tree, one after another, for the floats first … first +
 * count − 1 of the arena, and copies each node to the host. `total` is used as working memory. */
int ls_cuda_comm_bring(const ls_cuda_comm *comm, float *total, size_t first, size_t count,
                       cudaStream_t stream, ls_error *err);
/* ls_cuda_way.ahead for a process that has one rank. */
int ls_cuda_comm_bring_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                             int bucket, ls_error *err);
/* Reports to the cluster's progress thread the buckets that have arrived in host memory since the
 * last call. Does not wait. */
int ls_cuda_comm_tell(ls_cuda_comm *comm, ls_error *err);
/* Merges this process's nodes, which are all in host memory, with the nodes of the other processes,
 * and enqueues the copy of the sum to this rank's total. The copy is done when the event `whole`
 * has passed. */
int ls_cuda_comm_over_members(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err);

/* ---- functions of the communicators' tables -------------------------------------------------- */

int ls_cuda_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_cuda_group_destroy(ls_comm_group *base);
void ls_cuda_group_abort(ls_comm_group *base);
int ls_cuda_group_may_read(const ls_comm_group *base, int rank);

extern const ls_comm_type ls_cuda_comm_ordered, ls_cuda_comm_nccl, ls_cuda_comm_local;

/* Returns the communicators. The array is static and ends with NULL. Thread: any. */
const ls_comm_type *const *ls_cuda_comms(void);

#endif
