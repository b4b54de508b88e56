/* SPDX-License-Identifier: MIT */
/* A group of CUDA devices, and the functions that the ways of merging share. A *stage* is memory
 * for partial sums of other GPUs (group.h). */
#include "cuda/comm/group.h"

#include <pthread.h>

/* ---- pinning -------------------------------------------------------------------------------- */

int ls_cuda_comm_pin(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_group *group = comm->group;
    const ls_comm_group_desc *d = &group->merge.desc;
    size_t bytes;
    if (!d->members || comm->base.rank != 0)
        return LS_OK;
    void *memory = d->members_ops->memory(d->members, &bytes);
    cudaError_t e = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (e == cudaErrorHostMemoryAlreadyRegistered) {
        /* An earlier group has pinned the memory and still exists, because a rank was still using
         * it when the library would have destroyed it. */
        (void)cudaGetLastError();
        return LS_OK;
    }
    group->pinned = e == cudaSuccess ? memory : NULL;
    return cuda_check(err, e, "%s: pinning %zu bytes for the sums over hosts",
                      comm->mine->device->name, bytes);
}

static void *unpin_memory(void *arg)
{
    const ls_cuda_group *group = arg;
    (void)cudaSetDevice(group->rank[0].ordinal); /* avoids creating a context on another GPU */
    (void)cudaHostUnregister(group->pinned);
    return NULL;
}

/* Unpins the memory on a thread of its own, because the current CUDA device of the calling thread
 * belongs to the program that uses the library. (To set the device and to set it back would create
 * a context on a GPU that the program perhaps does not use.) If there is no thread, the device is
 * set back nevertheless. */
static void unpin(ls_cuda_group *group)
{
    pthread_t thread;
    int device = 0;
    if (!group->pinned)
        return;
    if (ls_thread_start(&thread, unpin_memory, group) == 0) {
        pthread_join(thread, NULL);
    } else {
        const cudaError_t known = cudaGetDevice(&device);
        unpin_memory(group);
        if (known == cudaSuccess)
            (void)cudaSetDevice(device);
    }
    group->pinned = NULL;
}

/* ---- the group ------------------------------------------------------------------------------ */

int ls_cuda_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err)
{
    *out = NULL;
    ls_cuda_group *group = ls_alloc(desc->host, sizeof *group);
    if (!group)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    int status = ls_merge_group_init(&group->merge, desc, err);
    if (status != LS_OK) {
        ls_free(desc->host, group);
        return status;
    }
    group->merge.base.ahead =
        desc->type == &ls_cuda_comm_nccl ? desc->ranks > 1 : desc->members && desc->ranks == 1;
    if (desc->bucket_count == 0) {
        group->merge.desc.buckets = &group->merge.desc.floats;
        group->merge.desc.bucket_count = 1;
    }
    group->rank = ls_alloc_array(desc->host, (size_t)desc->ranks, sizeof *group->rank);
    if (!group->rank)
        status = ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    if (status == LS_OK && desc->type != &ls_cuda_comm_local)
        status = ls_cuda_links_create(&group->links, &group->merge.barrier, desc->ranks, desc->host,
                                      err);
    /* With `nccl` the bits depend on NCCL's version. So it is loaded before the run describes its
     * libraries. */
    if (status == LS_OK && desc->type == &ls_cuda_comm_nccl && desc->ranks > 1)
        status = ls_cuda_links_load(group->links, err);
    if (status != LS_OK) {
        ls_cuda_group_destroy(&group->merge.base);
        return status;
    }
    *out = &group->merge.base;
    return LS_OK;
}

void ls_cuda_group_destroy(ls_comm_group *base)
{
    ls_cuda_group *group = (ls_cuda_group *)base;
    if (!group)
        return;
    const ls_host *host = group->merge.desc.host;
    unpin(group);
    ls_cuda_links_destroy(group->links);
    ls_merge_group_fini(&group->merge);
    ls_free(host, group->rank);
    ls_free(host, group);
}

void ls_cuda_group_abort(ls_comm_group *base)
{
    ls_cuda_group *group = (ls_cuda_group *)base;
    ls_merge_abort(base);
    if (group->links)
        ls_cuda_links_wake(group->links);
}

int ls_cuda_group_may_read(const ls_comm_group *base, int rank)
{
    const ls_cuda_group *group = (const ls_cuda_group *)base;
    /* With `nccl`, a rank accesses the memory of other ranks only through NCCL, also between
     * merge_ready and all_reduce. When all communicators are aborted, it accesses none. */
    if (base->type == &ls_cuda_comm_nccl && ls_cuda_links_are_gone(group->links, 0))
        return 0;
    return ls_merge_may_read(base, rank);
}

/* ---- functions for the ways of merging ------------------------------------------------------- */

int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (ls_cuda_comm_shares_gpu(comm, r))
            e = cudaStreamWaitEvent(stream, comm->group->rank[r].ready, 0);
    return cuda_check(err, e, "%s: waiting for the workers' partial sums",
                      comm->mine->device->name);
}

int ls_cuda_comm_rest(ls_cuda_comm *comm, ls_error *err)
{
    const ls_tree_rest *rest = &comm->rest;
    int status = ls_tree_rest_update(&comm->rest, &comm->group->merge, err);
    if (status != LS_OK)
        return status;
    if (rest->count > LS_K_ARENAS)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "the workers have more than %d partial sums: use fewer shards, or a number of shards "
            "that is a multiple of the number of workers",
            LS_K_ARENAS);
    if (rest->depth > LS_K_STACK)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the tree of the shards is deeper than %d: use fewer shards", LS_K_STACK);
    return LS_OK;
}

size_t ls_cuda_comm_stage_index(const ls_cuda_comm *comm, int gpu, int rank)
{
    size_t place = 0;
    for (int r = 0; r < rank; r++)
        place += comm->map.gpu[r] == gpu ? 0 : (size_t)comm->group->merge.rank[r].count;
    return place;
}

float *ls_cuda_comm_stage(const ls_cuda_comm *comm, int rank, int index, size_t count)
{
    const size_t first = ls_cuda_comm_stage_index(comm, ls_cuda_comm_gpu(comm), rank);
    return comm->mine->stage + (first + (size_t)index) * count;
}

int ls_cuda_comm_sum(const ls_cuda_comm *comm, int sum, float *total, size_t first, size_t count,
                     cudaStream_t stream, ls_error *err)
{
    const ls_span span = comm->rest.sum[sum];
    const float *in[LS_K_ARENAS];
    uint8_t order[2 * LS_K_ARENAS];
    int parts = 0, steps = 0;
    for (int p = 0; p < comm->rest.count; p++) {
        const ls_tree_rest_part *part = &comm->rest.part[p];
        if (part->span.lo < span.lo || part->span.hi > span.hi)
            continue;
        order[steps++] = (uint8_t)parts;
        in[parts++] = ls_cuda_comm_shares_gpu(comm, part->rank)
                          ? part->data + first
                          : ls_cuda_comm_stage(comm, part->rank, part->index, count);
        for (int j = 0; j < part->joins; j++)
            order[steps++] = LS_K_ADD;
    }
    return cuda_check(err, ls_k_add_arenas(total + first, in, parts, order, count, stream),
                      "%s: adding the workers' partial sums", comm->mine->device->name);
}

int ls_cuda_comm_hand_out(const ls_cuda_comm *comm, const float *total, size_t first, size_t count,
                          cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (r != comm->base.rank && ls_cuda_comm_shares_gpu(comm, r))
            e = cudaMemcpyAsync(comm->group->merge.rank[r].total + first, total + first,
                                count * sizeof *total, cudaMemcpyDeviceToDevice, stream);
    return cuda_check(err, e, "%s: copying a sum to the other workers", comm->mine->device->name);
}

int ls_cuda_comm_record(const ls_cuda_comm *comm, cudaEvent_t event, cudaStream_t stream,
                        ls_error *err)
{
    return cuda_check(err, cudaEventRecord(event, stream), "%s: recording an event",
                      comm->mine->device->name);
}
