/* Merging in tree order for workers that have a GPU each: NCCL moves, our kernel adds.
 *
 *     everybody's partial sums of chunk c → the owner of c        one NCCL group of sends and receives
 *     my total's chunk ← the tree over everybody's partial sums   in the order of the shard tree
 *     that chunk → everybody's total                              another group
 *
 * All of it on the communication stream, between `ready` and `whole`. Each rank receives into a
 * stage that holds the others' partial sums of its chunk. The stage grows when the split of the
 * shards changes, which is before anything is enqueued: memory is never allocated while NCCL runs.
 */
#include "cuda/cuda_comm_group.h"

static int held_by_others(const ls_cuda_group *group, int rank)
{
    int held = 0;
    for (int r = 0; r < group->base.ranks; r++)
        held += r == rank ? 0 : group->rank[r].count;
    return held;
}

static size_t stage_needed(const ls_cuda_group *group, int rank)
{
    size_t first, count;
    ls_cuda_comm_chunk(group, rank, &first, &count);
    return count * (size_t)held_by_others(group, rank);
}

static int grow_stage(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    size_t needed = stage_needed(comm->group, comm->base.rank);
    void *memory = NULL;
    if (needed <= mine->stage_floats)
        return LS_OK;
    if (mine->stage)
        (void)cudaFree(mine->stage);
    mine->stage = NULL;
    mine->stage_floats = 0;
    cudaError_t e = cudaMalloc(&memory, needed * sizeof(float));
    if (e != cudaSuccess)
        return cuda_fail(err, e, "%s: %zu floats to merge in", mine->device->name, needed);
    mine->stage = memory;
    mine->stage_floats = needed;
    return LS_OK;
}

/* Every rank finds the same answer, so that all take part in the meetings. */
static int make_room(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    int grow = 0;
    for (int r = 0; r < comm->base.group->ranks; r++)
        grow |= stage_needed(comm->group, r) > comm->group->rank[r].stage_floats;
    if (!grow)
        return LS_OK;
    int status = ls_cuda_comm_meet(comm, merge, err); /* all have looked */
    if (status == LS_OK)
        status = grow_stage(comm, err);
    return status ? status : ls_cuda_comm_meet(comm, merge, err);
}

/* ---- moving --------------------------------------------------------------------------------- */

static int is_fine(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* Where the partial sum `index` of `rank` is in this rank's stage. */
static float *stage_of(const ls_cuda_comm *comm, int rank, int index, size_t chunk)
{
    size_t place = (size_t)index;
    for (int r = 0; r < rank; r++)
        place += r == comm->base.rank ? 0 : (size_t)comm->group->rank[r].count;
    return comm->mine->stage + place * chunk;
}

/* This rank's partial sums of `peer`'s chunk go there; the peer's of ours come here. */
static ncclResult_t exchange_sums(ls_cuda_comm *comm, int peer, ncclComm_t nccl,
                                  cudaStream_t stream)
{
    const ls_cuda_group *group = comm->group;
    size_t first, count, theirs_first, theirs;
    ncclResult_t result = ncclSuccess;
    ls_cuda_comm_chunk(group, comm->base.rank, &first, &count);
    ls_cuda_comm_chunk(group, peer, &theirs_first, &theirs);
    for (int i = 0; theirs > 0 && i < comm->mine->count && is_fine(result); i++)
        result = ncclSend(comm->mine->partials[i].data + theirs_first, theirs, ncclFloat32, peer,
                          nccl, stream);
    for (int i = 0; count > 0 && i < group->rank[peer].count && is_fine(result); i++)
        result = ncclRecv(stage_of(comm, peer, i, count), count, ncclFloat32, peer, nccl, stream);
    return result;
}

/* Our chunk of the total goes there, the peer's comes here. */
static ncclResult_t exchange_totals(ls_cuda_comm *comm, int peer, ncclComm_t nccl,
                                    cudaStream_t stream)
{
    size_t first, count, theirs_first, theirs;
    ncclResult_t result = ncclSuccess;
    ls_cuda_comm_chunk(comm->group, comm->base.rank, &first, &count);
    ls_cuda_comm_chunk(comm->group, peer, &theirs_first, &theirs);
    if (count > 0)
        result = ncclSend(comm->mine->total + first, count, ncclFloat32, peer, nccl, stream);
    if (theirs > 0 && is_fine(result))
        result =
            ncclRecv(comm->mine->total + theirs_first, theirs, ncclFloat32, peer, nccl, stream);
    return result;
}

typedef ncclResult_t exchange_fn(ls_cuda_comm *comm, int peer, ncclComm_t nccl,
                                 cudaStream_t stream);

/* With every peer at once. The group is ended even where a call in it failed. */
static int exchange(ls_cuda_comm *comm, exchange_fn *with_peer, cudaStream_t stream, ls_error *err)
{
    ncclComm_t nccl;
    int status = ls_cuda_links_begin(&nccl, comm->group->links, comm->base.rank, err);
    if (status != LS_OK)
        return status;
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
        for (int r = 0; r < comm->base.group->ranks && is_fine(result); r++)
            if (r != comm->base.rank)
                result = with_peer(comm, r, nccl, stream);
        ncclResult_t ended = ncclGroupEnd();
        result = is_fine(result) ? ended : result;
    }
    return ls_cuda_links_end(comm->group->links, comm->base.rank, result,
                             ls_cuda_comm_deadline(comm), err);
}

/* ---- adding --------------------------------------------------------------------------------- */

static int sum_own_chunk(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err)
{
    const ls_cuda_tree *t = &comm->tree;
    const float *in[LS_K_ARENAS];
    size_t first, count;
    ls_cuda_comm_chunk(comm->group, comm->base.rank, &first, &count);
    if (count == 0)
        return LS_OK;
    for (int i = 0; i < t->count; i++)
        in[i] = t->leaf[i].rank == comm->base.rank
                    ? comm->mine->partials[t->leaf[i].index].data + first
                    : stage_of(comm, t->leaf[i].rank, t->leaf[i].index, count);
    cudaError_t e =
        ls_k_add_arenas(comm->mine->total + first, in, t->count, t->order, count, stream);
    return cuda_check(err, e, "%s: adding up the workers' sums", comm->mine->device->name);
}

static int enqueue(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    cudaStream_t stream = mine->device->communication->cuda;
    int status = ls_cuda_comm_tree(comm, err);
    if (status == LS_OK)
        status = make_room(comm, merge, err);
    if (status == LS_OK)
        status = cuda_check(err, cudaStreamWaitEvent(stream, mine->ready, 0),
                            "%s: waiting for its own sums", mine->device->name);
    if (status == LS_OK)
        status = exchange(comm, exchange_sums, stream, err);
    if (status == LS_OK)
        status = sum_own_chunk(comm, stream, err);
    if (status == LS_OK)
        status = exchange(comm, exchange_totals, stream, err);
    if (status != LS_OK)
        return status;
    cudaError_t e = cudaEventRecord(mine->whole, stream);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(merge->compute, mine->whole, 0);
    return cuda_check(err, e, "%s: going on behind a merge", mine->device->name);
}

const ls_cuda_way ls_cuda_way_ordered = {.links = 1, .enqueue = enqueue};
