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
 *     enqueue: waits for the others' events, sums and copies; record `whole`; compute waits for it
 *     the host waits for `whole`
 *
 * The host waits for its own GPU before the commit point, because LS_OK is a promise: everybody
 * holds the whole sum. A group of one rank meets nobody and waits for nothing. With `nccl`, buckets
 * may be enqueued before all of this (ls_cuda_comm_merge_ready).
 *
 * When a rank fails, it aborts the group and then waits until what it has enqueued has ended, so
 * that it touches nobody's memory any more (`reading`, the slot `may_read`).
 */
#ifndef CUDA_CUDA_COMM_GROUP_H
#define CUDA_CUDA_COMM_GROUP_H

#include "cuda/cuda_comm_links.h"
#include "cuda/cuda_comm_places.h"
#include "cuda/cuda_device.h"
#include "merge/group.h"

/* What else the others see of a rank. */
typedef struct ls_cuda_rank {
    ls_cuda_device *device;
    int ordinal;
    cudaEvent_t ready; /* its partial sums are complete, its total may be written */
    cudaEvent_t whole; /* what it has enqueued of the merge is done */
    float *stage;      /* other GPUs' partial sums of its chunk (cuda_comm_ordered.c) */
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
    const float *from;
    float *total;
    cudaStream_t compute;
} ls_cuda_ahead;

/* How a merge is done. */
typedef struct ls_cuda_way {
    int links; /* non-zero: over NCCL */
    /* Between the first meeting and the wait for `whole`, which it records. */
    int (*enqueue)(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err);
} ls_cuda_way;

extern const ls_cuda_way ls_cuda_way_local;   /* one GPU for all: tree order */
extern const ls_cuda_way ls_cuda_way_ordered; /* several GPUs, shared or not: tree order */
extern const ls_cuda_way ls_cuda_way_nccl;    /* a GPU for each: NCCL's order */

struct ls_cuda_group {
    ls_merge_group merge;
    ls_cuda_rank *rank;
    ls_cuda_links *links;
};

struct ls_cuda_comm {
    ls_comm base;
    ls_cuda_group *group;
    ls_cuda_rank *mine;
    ls_merge_rank *shown;   /* what the others see of this rank */
    const ls_cuda_way *way; /* NULL before the first collective call, and in a group of one */
    ls_cuda_places places;  /* known with the way */
    ls_cuda_ahead ahead;
    int gave_up;
    ls_rest rest;                   /* of the last merge */
    uint8_t order[2 * LS_K_ARENAS]; /* the same, as ls_k_add_arenas takes it */
};

/* ---- for a way ------------------------------------------------------------------------------ */

/* The partial sum that is part `p` of the rest. */
static inline const float *ls_cuda_comm_part(const ls_cuda_comm *comm, int p)
{
    const ls_rest_part *part = &comm->rest.part[p];
    return comm->group->merge.rank[part->rank].partials[part->index].data;
}

/* comm->rest and comm->order ← what is left of the tree over what all ranks show. Errors: as
 * ls_rest_update; LS_EUNSUPPORTED (more sums, or a deeper tree, than the kernel takes). */
int ls_cuda_comm_rest(ls_cuda_comm *comm, ls_error *err);

/* The stream waits for `ready` of everybody on this rank's GPU. */
int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err);

/* Aborts the group and waits, with a limit, until nothing this rank enqueued touches anybody's
 * memory. Once. */
void ls_cuda_comm_give_up(ls_cuda_comm *comm, cudaStream_t compute);
/* LS_OK, or LS_EABORTED of a group that is; what was enqueued ahead has then ended. */
int ls_cuda_comm_alive(ls_cuda_comm *comm, ls_error *err);

/* total[first … first + count) ← comm->rest's sum, of partial sums that are all on this rank's GPU. */
int ls_cuda_comm_sum(const ls_cuda_comm *comm, float *total, size_t first, size_t count,
                     cudaStream_t stream, ls_error *err);

/* ---- slots of the table --------------------------------------------------------------------- */

int ls_cuda_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_cuda_group_destroy(ls_comm_group *base);
void ls_cuda_group_abort(ls_comm_group *base);
int ls_cuda_group_may_read(const ls_comm_group *base, int rank);
int ls_cuda_comm_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device,
                      ls_error *err);
void ls_cuda_comm_leave(ls_comm *base);
int ls_cuda_comm_all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                            float *total, ls_comm_times *times, ls_error *err);
/* cuda_comm_nccl.c */
int ls_cuda_comm_merge_ready(ls_comm *base, ls_stream *stream, const float *gradient, float *total,
                             size_t floats, ls_error *err);

extern const ls_comm_type ls_cuda_comm_ordered, ls_cuda_comm_nccl, ls_cuda_comm_local;

/* NULL-terminated, static. Any thread. */
const ls_comm_type *const *ls_cuda_comms(void);

#endif
