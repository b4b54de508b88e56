/* Merging with NCCL's all-reduce, in its own order, for workers that have a GPU each.
 *
 * A rank's partial sums are added up first, into its total; then bucket after bucket is reduced on
 * the communication stream, each behind an event of the compute stream. Today the buckets follow
 * one another behind the backward pass. To overlap it, whoever runs backward calls
 * merge_up_to(…, floats) after each layer, with what is complete so far: a bucket is enqueued once.
 */
#include "cuda/cuda_comm_buckets.h"
#include "cuda/cuda_comm_group.h"

static int merge_bucket(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                        size_t first, size_t end, ls_error *err)
{
    ncclComm_t nccl;
    cudaStream_t stream = comm->mine->device->communication->cuda;
    int status = ls_cuda_links_begin(&nccl, comm->group->links, comm->base.rank, err);
    if (status != LS_OK)
        return status;
    ncclResult_t result = ncclAllReduce(from + first, merge->total + first, end - first,
                                        ncclFloat32, ncclSum, nccl, stream);
    return ls_cuda_links_end(comm->group->links, comm->base.rank, result,
                             ls_cuda_comm_deadline(comm), err);
}

/* Every bucket from *next on that is complete when the first `floats` floats of `from` are. */
static int merge_up_to(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                       const ls_cuda_buckets *buckets, int *next, size_t floats, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    int complete = ls_cuda_buckets_before(buckets, floats);
    if (*next >= complete)
        return LS_OK;
    cudaError_t e = cudaEventRecord(mine->ready, merge->compute);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(mine->device->communication->cuda, mine->ready, 0);
    int status = cuda_check(err, e, "%s: waiting for its own sums", mine->device->name);
    for (; *next < complete && status == LS_OK; ++*next)
        status = merge_bucket(comm, merge, from, *next ? buckets->end[*next - 1] : 0,
                              buckets->end[*next], err);
    return status;
}

static int enqueue(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const ls_comm_group_desc *desc = &comm->group->desc;
    ls_cuda_rank *mine = comm->mine;
    const float *from = merge->total;
    ls_cuda_buckets buckets;
    int next = 0, status = LS_OK;
    if (mine->count == 1)
        from = mine->partials[0].data;
    else
        status = ls_cuda_comm_fold(comm, merge->total, merge->compute, err);
    ls_cuda_buckets_cut(&buckets, desc->segments, desc->segment_count, desc->floats);
    if (status == LS_OK)
        status = merge_up_to(comm, merge, from, &buckets, &next, desc->floats, err);
    if (status != LS_OK)
        return status;
    cudaError_t e = cudaEventRecord(mine->whole, mine->device->communication->cuda);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(merge->compute, mine->whole, 0);
    return cuda_check(err, e, "%s: going on behind a merge", mine->device->name);
}

const ls_cuda_way ls_cuda_way_nccl = {.links = 1, .enqueue = enqueue};
