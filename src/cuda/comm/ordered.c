/* SPDX-License-Identifier: MIT */
/* Merging in tree order on several GPUs, each with one worker or more. NCCL moves the data; a
 * kernel of this back end adds. The lowest rank on a GPU is the GPU's *leader*; group.h explains
 * the other terms.
 *
 * Each GPU owns a *chunk*, its share of the arena. The leader of the GPU's workers enqueues all of
 * the GPU's merging work on its communication stream. The work begins after the events `ready` of
 * all ranks on the GPU, and ends with the leader's event `whole`:
 *
 *     the GPU's partial sums of chunk c → the owner of c      one batch of NCCL sends and receives
 *     my total's chunk ← the tree over all partial sums       in the order of the shard tree
 *     that chunk → every leader's total                       another batch
 *     my total → the totals of the GPU's other workers        copies
 *
 * Over several processes, the second line computes the process's own nodes, which are copied to the
 * host. The last two lines do not apply, because the sum comes back from the host (hosts.c).
 *
 * All workers of a GPU can access its memory, so the leader reads their partial sums where they
 * are. The workers that are not leaders enqueue no merging work. When such a worker has reached the
 * commit point (the merge's last meeting), its leader's `whole` has passed.
 *
 * The leader receives the other GPUs' partial sums of its chunk into its stage (group.h). The stage
 * grows only when the split of the shards among the ranks changes, and before any work of the merge
 * is enqueued, so that memory is never allocated while NCCL runs. */
#include "cuda/comm/group.h"

/* Computes the range of the chunk that a GPU owns. */
static void chunk_of(const ls_cuda_comm *comm, int gpu, size_t *first, size_t *count)
{
    ls_merge_chunk(&comm->group->merge, comm->map.gpus, gpu, first, count);
}

static size_t stage_needed(const ls_cuda_comm *comm, int gpu)
{
    size_t first, count;
    chunk_of(comm, gpu, &first, &count);
    return count * ls_cuda_comm_stage_index(comm, gpu, comm->base.group->ranks);
}

static int grow_stage(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    size_t needed = stage_needed(comm, ls_cuda_comm_gpu(comm));
    void *memory = NULL;
    if (needed <= mine->stage_floats)
        return LS_OK;
    if (mine->stage)
        (void)cudaFree(mine->stage);
    int status = cuda_check(err, cudaMalloc(&memory, needed * sizeof(float)),
                            "%s: allocating %zu floats for merging", mine->device->name, needed);
    mine->stage = status ? NULL : memory;
    mine->stage_floats = status ? 0 : needed;
    return status;
}

/* Grows the stages if necessary. Every rank computes for all GPUs whether a stage must grow.
 * Therefore all ranks take part in the same meetings. */
static int make_room(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    int grow = 0;
    for (int g = 0; g < comm->map.gpus; g++)
        grow |= stage_needed(comm, g) > comm->group->rank[comm->map.leader[g]].stage_floats;
    if (!grow)
        return LS_OK;
    /* After this meeting all ranks have read the sizes of the stages, so the sizes may change. */
    int status = ls_merge_meet(&comm->base, merge->times, err);
    if (status == LS_OK && ls_cuda_comm_leads(comm))
        status = grow_stage(comm, err);
    return status ? status : ls_merge_meet(&comm->base, merge->times, err);
}

/* ---- moving --------------------------------------------------------------------------------- */

/* Sends this GPU's partial sums of the peer's chunk to GPU `peer`, and receives the peer's partial
 * sums of this GPU's chunk. Both GPUs handle the partial sums in the same sequence, rank by rank.
 */
static ncclResult_t exchange_sums(ls_cuda_comm *comm, int peer, const ls_cuda_link *link,
                                  cudaStream_t stream)
{
    const ls_merge_rank *rank = comm->group->merge.rank;
    size_t first, count, theirs_first, theirs;
    ncclResult_t result = ncclSuccess;
    chunk_of(comm, ls_cuda_comm_gpu(comm), &first, &count);
    chunk_of(comm, peer, &theirs_first, &theirs);
    for (int r = 0; r < comm->base.group->ranks; r++) {
        int gpu = comm->map.gpu[r];
        for (int i = 0; gpu == ls_cuda_comm_gpu(comm) && theirs > 0 && i < rank[r].count &&
                        !ls_nccl_is_bad(result);
             i++)
            result = link->nccl->ncclSend(rank[r].partials[i].data + theirs_first, theirs,
                                          ncclFloat32, peer, link->comm, stream);
        for (int i = 0; gpu == peer && count > 0 && i < rank[r].count && !ls_nccl_is_bad(result);
             i++)
            result = link->nccl->ncclRecv(ls_cuda_comm_stage(comm, r, i, count), count, ncclFloat32,
                                          peer, link->comm, stream);
    }
    return result;
}

/* Sends this GPU's chunk of the total to the peer and receives the peer's chunk. */
static ncclResult_t exchange_totals(ls_cuda_comm *comm, int peer, const ls_cuda_link *link,
                                    cudaStream_t stream)
{
    size_t first, count, theirs_first, theirs;
    ncclResult_t result = ncclSuccess;
    chunk_of(comm, ls_cuda_comm_gpu(comm), &first, &count);
    chunk_of(comm, peer, &theirs_first, &theirs);
    if (count > 0)
        result = link->nccl->ncclSend(comm->shown->total + first, count, ncclFloat32, peer,
                                      link->comm, stream);
    if (theirs > 0 && !ls_nccl_is_bad(result))
        result = link->nccl->ncclRecv(comm->shown->total + theirs_first, theirs, ncclFloat32, peer,
                                      link->comm, stream);
    return result;
}

typedef ncclResult_t exchange_fn(ls_cuda_comm *comm, int peer, const ls_cuda_link *link,
                                 cudaStream_t stream);

/* Exchanges with all peers at once. The calls are one batch (an NCCL group), which the function
 * ends even if a call in it has failed. */
static int exchange(ls_cuda_comm *comm, exchange_fn *with_peer, cudaStream_t stream, ls_error *err)
{
    ls_cuda_link link;
    int status = ls_cuda_links_begin(&link, comm->group->links, comm->base.rank, err);
    if (status != LS_OK)
        return status;
    ncclResult_t result = link.nccl->ncclGroupStart();
    if (result == ncclSuccess) {
        for (int g = 0; g < comm->map.gpus && !ls_nccl_is_bad(result); g++)
            if (g != ls_cuda_comm_gpu(comm))
                result = with_peer(comm, g, &link, stream);
        ncclResult_t ended = link.nccl->ncclGroupEnd();
        result = !ls_nccl_is_bad(result) ? ended : result;
    }
    return ls_cuda_links_end(comm->group->links, comm->base.rank, result,
                             ls_merge_deadline(&comm->group->merge), err);
}

/* ---- adding --------------------------------------------------------------------------------- */

static int share_sum(ls_cuda_comm *comm, size_t first, size_t count, cudaStream_t stream,
                     ls_error *err)
{
    float *total = comm->shown->total;
    int status = count > 0 ? ls_cuda_comm_sum(comm, 0, total, first, count, stream, err) : LS_OK;
    if (status == LS_OK)
        status = exchange(comm, exchange_totals, stream, err);
    return status
               ? status
               : ls_cuda_comm_hand_out(comm, total, 0, comm->group->merge.desc.floats, stream, err);
}

static int lead(ls_cuda_comm *comm, ls_error *err)
{
    cudaStream_t stream = comm->mine->device->communication->cuda;
    size_t first, count;
    chunk_of(comm, ls_cuda_comm_gpu(comm), &first, &count);
    int status = ls_cuda_comm_await_ready(comm, stream, err);
    if (status == LS_OK)
        status = exchange(comm, exchange_sums, stream, err);
    if (status == LS_OK && !ls_merge_has_members(&comm->group->merge))
        status = share_sum(comm, first, count, stream, err);
    else if (status == LS_OK && count > 0)
        status = ls_cuda_comm_bring(comm, comm->shown->total, first, count, stream, err);
    return status ? status : ls_cuda_comm_record(comm, comm->mine->whole, stream, err);
}

static int enqueue(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    int status = ls_cuda_comm_rest(comm, err);
    if (status == LS_OK)
        status = make_room(comm, merge, err);
    if (status != LS_OK)
        return status;
    if (ls_cuda_comm_leads(comm))
        return lead(comm, err);
    return ls_cuda_comm_record(comm, comm->mine->whole, merge->compute, err);
}

const ls_cuda_way ls_cuda_way_ordered = {.links = 1, .enqueue = enqueue};
