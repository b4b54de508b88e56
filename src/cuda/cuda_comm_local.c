/* Merging for workers that share one GPU: its memory is everybody's, so a rank sums its chunk from
 * where the others' partial sums are, and puts the sum where they want it.
 *
 *     wait for everybody's `ready`
 *     my total's chunk ← the tree over everybody's partial sums
 *     that chunk → everybody's total
 *     record `whole`
 *
 * Whose total is complete is known at the commit point: behind it, everybody's `whole` has passed.
 * So nobody writes to a partial sum or a total again before all that reads or writes it is done.
 */
#include "cuda/cuda_comm_group.h"

static int hand_out(ls_cuda_comm *comm, const ls_cuda_merge *merge, size_t first, size_t count,
                    ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (r != comm->base.rank)
            e = cudaMemcpyAsync(comm->group->merge.rank[r].total + first, merge->total + first,
                                count * sizeof(float), cudaMemcpyDeviceToDevice, merge->compute);
    return cuda_check(err, e, "%s: handing out a sum", comm->mine->device->name);
}

static int enqueue(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    size_t first, count;
    ls_merge_chunk(&comm->group->merge, comm->base.group->ranks, comm->base.rank, &first, &count);
    int status = ls_cuda_comm_rest(comm, err);
    if (status == LS_OK)
        status = ls_cuda_comm_await_ready(comm, merge->compute, err);
    if (status == LS_OK && count > 0)
        status = ls_cuda_comm_sum(comm, merge->total, first, count, merge->compute, err);
    if (status == LS_OK && count > 0)
        status = hand_out(comm, merge, first, count, err);
    return status ? status
                  : cuda_check(err, cudaEventRecord(comm->mine->whole, merge->compute),
                               "%s: recording an event", comm->mine->device->name);
}

const ls_cuda_way ls_cuda_way_local = {.links = 0, .enqueue = enqueue};
