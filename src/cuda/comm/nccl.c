/* SPDX-License-Identifier: MIT */
/* Merging with NCCL's all-reduce, in NCCL's order of additions, for workers that have a GPU each.
 *
 * The arena is reduced bucket after bucket on the communication stream, each bucket after an event
 * of the compute stream. A rank with several partial sums first adds them up into its total.
 *
 * Buckets ahead. The thread that runs backward calls merge_ready with the length of the complete
 * part of the gradient, and complete buckets are enqueued while backward still runs. all_reduce
 * enqueues the rest. In the other ways of merging, a rank may access the partial sums and totals of
 * other ranks only after the first meeting of the merge. With NCCL, buckets may be enqueued before
 * that meeting, for these reasons:
 * - A rank gives NCCL only its own sum and its own total. The bucket waits for an event, after
 *   which the sum is complete and the total may be written. NCCL itself waits for the peers'
 *   buckets.
 * - All ranks enqueue the same buckets in the same sequence. They need not do so at the same time.
 * - The previous merge is finished on all ranks: its all_reduce has returned after a meeting that
 *   each rank enters only when its GPU has finished that merge.
 *
 * If a training step fails between merge_ready and all_reduce, kernels of the peers wait for
 * buckets that this rank never sends. Some rank then aborts the group, and the watchdog (links.c)
 * aborts all communicators. A rank with enqueued buckets counts as `reading` until all
 * communicators are aborted, or until it has found that its streams have no unfinished work. The
 * rank checks its streams in its next call and when it leaves. */
#include "cuda/comm/group.h"

static int merge_bucket(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                        int bucket, ls_error *err)
{
    ls_cuda_link link;
    const size_t *ends = comm->group->merge.desc.buckets, first = bucket ? ends[bucket - 1] : 0;
    cudaStream_t stream = comm->mine->device->communication->cuda;
    int status = ls_cuda_links_begin(&link, comm->group->links, comm->base.rank, err);
    if (status != LS_OK)
        return status;
    /* The call is in an NCCL group, because a single non-blocking call can return before it has
     * enqueued anything. (An NCCL group is several calls that NCCL makes together.) */
    ncclResult_t result = link.nccl->ncclGroupStart();
    if (result == ncclSuccess) {
        ncclResult_t called =
            link.nccl->ncclAllReduce(from + first, merge->total + first, ends[bucket] - first,
                                     ncclFloat32, ncclSum, link.comm, stream);
        result = link.nccl->ncclGroupEnd();
        if (ls_nccl_is_bad(called))
            result = called;
    }
    return ls_cuda_links_end(comm->group->links, comm->base.rank, result,
                             ls_merge_deadline(&comm->group->merge), err);
}

/* Adds up this rank's own partial sums, in the sequence in which they are given, to `out`. If there
 * are none, fills `out` with zeros. */
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

/* ---- the rest of a merge --------------------------------------------------------------------- */

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
    comm->ahead.buckets = 0; /* the next training step begins with its first bucket */
    return ls_cuda_comm_record(comm, comm->mine->whole, comm->mine->device->communication->cuda,
                               err);
}

const ls_cuda_way ls_cuda_way_nccl = {.links = 1, .enqueue = enqueue, .ahead = merge_bucket};
