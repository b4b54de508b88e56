/* Merging with NCCL's all-reduce, in its own order, for workers that have a GPU each.
 *
 * The arena is reduced bucket after bucket on the communication stream, each behind an event of
 * the compute stream. A rank with several partial sums adds them up first, into its total.
 *
 * Buckets ahead. Whoever runs backward calls merge_ready with what is complete so far, and buckets
 * go off while earlier layers still run; all_reduce enqueues the rest. That is safe before the
 * step's first meeting, which in the other ways says that everybody's partial sums and totals may
 * be touched: here a rank hands NCCL its own sum and its own total alone, both are settled by the
 * event that the bucket waits for, and NCCL itself waits for its peers' buckets. All ranks enqueue
 * the same buckets in the same order, whenever they do. Nobody is still busy with the step before:
 * all_reduce returns behind a meeting that each rank enters when its GPU has done that merge.
 *
 * A step cut short between merge_ready and all_reduce: peers' kernels wait for buckets that never
 * come, and the watchdog aborts all communicators, whoever aborts the group. A rank with buckets
 * under way is `reading` until all are aborted, or until it has seen its streams idle: in its next
 * call, or when it leaves.
 */
#include "cuda/comm/group.h"

static int merge_bucket(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                        int bucket, ls_error *err)
{
    ncclComm_t nccl;
    const size_t *ends = comm->group->merge.desc.buckets, first = bucket ? ends[bucket - 1] : 0;
    cudaStream_t stream = comm->mine->device->communication->cuda;
    int status = ls_cuda_links_begin(&nccl, comm->group->links, comm->base.rank, err);
    if (status != LS_OK)
        return status;
    /* In a group: a call of its own may return before it has enqueued anything. */
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
        ncclResult_t called =
            ncclAllReduce(from + first, merge->total + first, ends[bucket] - first, ncclFloat32,
                          ncclSum, nccl, stream);
        result = ncclGroupEnd();
        if (ls_nccl_is_bad(called))
            result = called;
    }
    return ls_cuda_links_end(comm->group->links, comm->base.rank, result,
                             ls_merge_deadline(&comm->group->merge), err);
}

/* out ← the sum of this rank's own partial sums, in turn (zeros when it has none). */
static int fold(ls_cuda_comm *comm, float *out, cudaStream_t stream, ls_error *err)
{
    const int count = comm->shown->count;
    const size_t floats = comm->group->merge.desc.floats;
    const float *in[LS_PARTIALS_MAX];
    uint8_t order[2 * LS_PARTIALS_MAX];
    for (int p = 0, step = 0; p < count; p++) {
        in[p] = comm->shown->partials[p].data;
        order[step++] = (uint8_t)p;
        if (p > 0)
            order[step++] = LS_K_ADD;
    }
    cudaError_t e = count == 0 ? cudaMemsetAsync(out, 0, floats * sizeof *out, stream)
                               : ls_k_add_arenas(out, in, count, order, floats, stream);
    return cuda_check(err, e, "%s: adding up %d partial sums", comm->mine->device->name, count);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static int enqueue(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const float *from = comm->shown->count == 1 ? comm->shown->partials[0].data : merge->total;
    int status = ls_cuda_comm_goes_on(comm, from, merge->total, err);
    if (status == LS_OK && comm->shown->count != 1)
        status = fold(comm, merge->total, merge->compute, err);
    if (status == LS_OK)
        status =
            ls_cuda_comm_go_ahead(comm, merge, from, comm->group->merge.desc.bucket_count, err);
    if (status != LS_OK)
        return status;
    comm->ahead.buckets = 0; /* the next step's first */
    return ls_cuda_comm_record(comm, comm->mine->whole, comm->mine->device->communication->cuda,
                               err);
}

const ls_cuda_way ls_cuda_way_nccl = {.links = 1, .enqueue = enqueue, .ahead = merge_bucket};
