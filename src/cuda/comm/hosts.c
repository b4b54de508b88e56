/* SPDX-License-Identifier: MIT */
/* Merging over several processes, each of which has GPUs of its own. group.h explains the terms.
 *
 *     the process's nodes of the shard tree, on its GPUs      as in one process (ls_cuda_way)
 *     → host memory, which is pinned                          each rank copies its share (chunk)
 *     → the tree over all processes' nodes                    over the network (ls_members_ops), by
 *                                                             the cluster's progress thread
 *     → every rank's total
 *
 * The bits are therefore the same as in one process that has all the workers. No kernel ever waits
 * for another host. Therefore a host that is lost, stops, or computes other data is detected in the
 * same way as a worker that fails, stops, or computes other data. NCCL is used only within a
 * process.
 *
 * Buckets ahead. If a process has one rank with one partial sum, this sum is the process's node.
 * The thread that runs backward calls merge_ready with the length of the complete part of the
 * gradient. Buckets are copied to the host on the communication stream, each after an event of the
 * compute stream.
 * merge_ready, and all_reduce while it waits, report the buckets that have arrived in host memory
 * to the cluster's progress thread. The progress thread sends these buckets while backward still
 * runs.
 *
 * If a training step fails after merge_ready and is repeated, buckets that were reported to the
 * progress thread are not copied again. Their contents are still right, because a node of the tree
 * has the same bits each time it is computed, whichever process computes it. */
#include "cuda/comm/group.h"

/* ---- to the host ----------------------------------------------------------------------------- */

/* Copies the floats first … end − 1 of the arena `from` to node `node` of this process in host
 * memory. */
static int bring(const ls_cuda_comm *comm, int node, const float *from, size_t first, size_t end,
                 cudaStream_t stream, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    const size_t sent = d->members_ops->is_ready(d->members);
    first = first > sent ? first : sent;
    if (first >= end)
        return LS_OK;
    float *to = d->members_ops->node(d->members, node);
    cudaError_t e = cudaMemcpyAsync(to + first, from + first, (end - first) * sizeof *to,
                                    cudaMemcpyDeviceToHost, stream);
    return cuda_check(err, e, "%s: copying a sum to the host", comm->mine->device->name);
}

int ls_cuda_comm_bring(const ls_cuda_comm *comm, float *total, size_t first, size_t count,
                       cudaStream_t stream, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < comm->rest.sums && status == LS_OK; i++) {
        status = ls_cuda_comm_sum(comm, i, total, first, count, stream, err);
        if (status == LS_OK)
            status = bring(comm, i, total, first, first + count, stream, err);
    }
    return status;
}

int ls_cuda_comm_bring_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                             int bucket, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    cudaStream_t stream = comm->mine->device->communication->cuda;
    (void)merge;
    int status =
        bring(comm, 0, from, bucket ? d->buckets[bucket - 1] : 0, d->buckets[bucket], stream, err);
    return status ? status : ls_cuda_comm_record(comm, comm->mine->down[bucket], stream, err);
}

int ls_cuda_comm_tell(ls_cuda_comm *comm, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    ls_cuda_ahead *ahead = &comm->ahead;
    if (!ls_merge_has_members(&comm->group->merge))
        return LS_OK;
    for (; ahead->reported < ahead->buckets; ahead->reported++) {
        bool passed;
        int status = ls_cuda_passed(&passed, comm->mine->device, comm->mine->down[ahead->reported],
                                    "merging", err);
        if (status || !passed)
            return status;
        d->members_ops->ready(d->members, d->buckets[ahead->reported]);
    }
    return LS_OK;
}

/* ---- from the host --------------------------------------------------------------------------- */

int ls_cuda_comm_over_members(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    int status = ls_merge_over_members(&comm->base, merge->times, err);
    if (status != LS_OK)
        return status;
    /* the next training step begins with its first bucket */
    comm->ahead.buckets = comm->ahead.reported = 0;
    cudaError_t e =
        cudaMemcpyAsync(merge->total, d->members_ops->total(d->members), d->floats * sizeof(float),
                        cudaMemcpyHostToDevice, merge->compute);
    if (e == cudaSuccess)
        e = cudaEventRecord(comm->mine->whole, merge->compute);
    return cuda_check(err, e, "%s: copying the sum from the host", comm->mine->device->name);
}
