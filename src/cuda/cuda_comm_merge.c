/* The course of a merge. */
#include "base/clock.h"
#include "cuda/cuda_comm_group.h"

#include <stdbool.h>

/* How long a rank that failed waits for its GPU to let go of the others' memory. */
#define GIVE_UP_NS 5000000000u

/* ---- for the ways --------------------------------------------------------------------------- */

int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (ls_cuda_gpu_map_share(&comm->map, r, comm->base.rank))
            e = cudaStreamWaitEvent(stream, comm->group->rank[r].ready, 0);
    return cuda_check(err, e, "%s: waiting for the workers' sums", comm->mine->device->name);
}

int ls_cuda_comm_rest(ls_cuda_comm *comm, ls_error *err)
{
    const ls_rest *rest = &comm->rest;
    int status = ls_rest_update(&comm->rest, &comm->group->merge, err);
    if (status != LS_OK)
        return status;
    if (rest->count > LS_K_ARENAS)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the workers hold more than %d partial sums: use fewer shards, or a number "
                       "that the workers divide",
                       LS_K_ARENAS);
    if (rest->depth > LS_K_STACK)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the sum over the shards nests deeper than %d: use fewer shards",
                       LS_K_STACK);
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
    const int gpu = comm->map.gpu[comm->base.rank];
    return comm->mine->stage + (ls_cuda_comm_stage_index(comm, gpu, rank) + (size_t)index) * count;
}

int ls_cuda_comm_sum(const ls_cuda_comm *comm, int sum, float *total, size_t first, size_t count,
                     cudaStream_t stream, ls_error *err)
{
    const ls_span span = comm->rest.sum[sum];
    const float *in[LS_K_ARENAS];
    uint8_t order[2 * LS_K_ARENAS];
    int parts = 0, steps = 0;
    for (int p = 0; p < comm->rest.count; p++) {
        const ls_rest_part *part = &comm->rest.part[p];
        if (part->span.lo < span.lo || part->span.hi > span.hi)
            continue;
        order[steps++] = (uint8_t)parts;
        in[parts++] = ls_cuda_gpu_map_share(&comm->map, part->rank, comm->base.rank)
                          ? ls_cuda_comm_part(comm, p) + first
                          : ls_cuda_comm_stage(comm, part->rank, part->index, count);
        for (int j = 0; j < part->joins; j++)
            order[steps++] = LS_K_ADD;
    }
    return cuda_check(err, ls_k_add_arenas(total + first, in, parts, order, count, stream),
                      "%s: adding up the workers' sums", comm->mine->device->name);
}

int ls_cuda_comm_hand_out(const ls_cuda_comm *comm, const float *total, size_t first, size_t count,
                          cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (r != comm->base.rank && ls_cuda_gpu_map_share(&comm->map, r, comm->base.rank))
            e = cudaMemcpyAsync(comm->group->merge.rank[r].total + first, total + first,
                                count * sizeof *total, cudaMemcpyDeviceToDevice, stream);
    return cuda_check(err, e, "%s: handing out a sum", comm->mine->device->name);
}

int ls_cuda_comm_record(const ls_cuda_comm *comm, cudaEvent_t event, cudaStream_t stream,
                        ls_error *err)
{
    return cuda_check(err, cudaEventRecord(event, stream), "%s: recording an event",
                      comm->mine->device->name);
}

int ls_cuda_comm_record_whole(const ls_cuda_comm *comm, const ls_cuda_merge *merge,
                              cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaEventRecord(comm->mine->whole, stream);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(merge->compute, comm->mine->whole, 0);
    return cuda_check(err, e, "%s: going on behind a merge", comm->mine->device->name);
}

/* ---- waiting for the GPU -------------------------------------------------------------------- */

int ls_cuda_comm_await_whole(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_device *d = comm->mine->device;
    uint64_t deadline = ls_merge_deadline(&comm->group->merge);
    for (unsigned rounds = 0;; rounds++) {
        cudaError_t e = cudaEventQuery(comm->mine->whole);
        if (e == cudaSuccess)
            return ls_cuda_comm_tell(comm, err);
        if (e != cudaErrorNotReady) {
            d->lost |= cuda_is_lost(e);
            return cuda_fail(err, e, "%s: merging", d->name);
        }
        (void)cudaGetLastError(); /* the runtime notes "not ready" as an error */
        int status = ls_cuda_comm_tell(comm, err);
        if (status != LS_OK)
            return status;
        if (ls_merge_aborted(&comm->group->merge))
            return ls_fail(err, LS_EABORTED, "another worker failed first");
        if (ls_now_ns() >= deadline)
            return ls_fail(err, LS_ETIMEDOUT, "%s (rank %d) did not finish its merge in time",
                           d->name, comm->base.rank);
        ls_cuda_nap(rounds);
    }
}

/* Non-zero when nothing of the stream runs any more, or nothing ever will. */
static bool is_idle(cudaStream_t stream, uint64_t deadline_ns)
{
    for (unsigned rounds = 0;; rounds++) {
        cudaError_t e = cudaStreamQuery(stream);
        if (e == cudaSuccess || cuda_is_lost(e))
            return 1;
        (void)cudaGetLastError();
        if (e != cudaErrorNotReady || ls_now_ns() >= deadline_ns)
            return 0;
        ls_cuda_nap(rounds);
    }
}

/* Nobody merges with this group any more. */
void ls_cuda_comm_give_up(ls_cuda_comm *comm, cudaStream_t compute)
{
    uint64_t deadline = ls_deadline_ns(GIVE_UP_NS);
    if (comm->gave_up)
        return;
    comm->gave_up = 1;
    ls_cuda_group_abort(comm->base.group);
    if (comm->group->links && !ls_cuda_links_are_gone(comm->group->links, deadline))
        return;
    if (is_idle(comm->mine->device->communication->cuda, deadline) && is_idle(compute, deadline))
        ls_merge_stop_reading(&comm->base);
    (void)cudaGetLastError();
}

int ls_cuda_comm_alive(ls_cuda_comm *comm, ls_error *err)
{
    if (!ls_merge_aborted(&comm->group->merge))
        return LS_OK;
    if (comm->ahead.buckets > 0)
        ls_cuda_comm_give_up(comm, comm->ahead.compute);
    return ls_fail(err, LS_EABORTED, "another worker failed first");
}

/* ---- the first collective call -------------------------------------------------------------- */

/* The way depends on who shares a GPU, which is known when everybody has come. */
static int choose_way(ls_cuda_comm *comm, ls_error *err)
{
    const ls_comm_type *type = comm->base.group->type;
    const int ranks = comm->base.group->ranks;
    for (int r = 0; r < ranks; r++)
        ls_cuda_gpu_map_add(&comm->map, r, comm->group->rank[r].ordinal);
    const int gpus = comm->map.gpus;
    if (type == &ls_cuda_comm_nccl && gpus < ranks)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "allreduce 'nccl' needs a GPU for each worker, and %d workers have %d "
                       "here; workers that share one merge with 'ordered'",
                       ranks, gpus);
    if (type == &ls_cuda_comm_local && gpus > 1)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "allreduce 'local' is for workers that share one GPU, and there are "
                       "%d here; use 'ordered'",
                       gpus);
    comm->way = type == &ls_cuda_comm_nccl ? &ls_cuda_way_nccl
                : gpus == 1                ? &ls_cuda_way_local
                                           : &ls_cuda_way_ordered;
    return LS_OK;
}

static ls_cuda_peer peer_of(const ls_cuda_comm *comm)
{
    const int leads = ls_cuda_gpu_map_leads(&comm->map, comm->base.rank);
    return (ls_cuda_peer){leads ? comm->map.gpu[comm->base.rank] : -1, comm->map.gpus};
}

static int prepare(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const ls_cuda_way *way;
    int status = cuda_check(err, cudaSetDevice(comm->mine->ordinal), "%s: making it current",
                            comm->mine->device->name);
    if (status == LS_OK)
        status = ls_merge_meet(&comm->base, merge->times, err);
    if (status == LS_OK)
        status = choose_way(comm, err);
    if (status == LS_OK)
        status = ls_cuda_comm_pin(comm, err);
    if (status != LS_OK)
        return status;
    way = comm->way;
    comm->way = NULL; /* until it is connected */
    if (way->links)
        status = ls_cuda_links_connect(comm->group->links, comm->base.rank, peer_of(comm),
                                       ls_merge_deadline(&comm->group->merge), err);
    if (status == LS_OK)
        comm->way = way;
    return status;
}

/* ---- a merge -------------------------------------------------------------------------------- */

/* One rank, one host: its partial sums are added on its own stream, and nobody is waited for. */
static int alone(ls_cuda_comm *comm, const ls_partial *partials, int count,
                 const ls_cuda_merge *merge, ls_error *err)
{
    const uint64_t start = ls_now_ns();
    for (int i = 0; i < count; i++)
        comm->shown->partials[i] = partials[i];
    comm->shown->count = count;
    int status = ls_cuda_comm_rest(comm, err);
    if (status == LS_OK)
        status = ls_cuda_comm_sum(comm, 0, merge->total, 0, comm->group->merge.desc.floats,
                                  merge->compute, err);
    merge->times->exposed += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}

static int work(ls_comm *base, void *merge, ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    int status = comm->way->enqueue(comm, merge, err);
    if (status == LS_OK)
        status = ls_cuda_comm_await_whole(comm, err);
    if (status == LS_OK && ls_merge_has_members(&comm->group->merge))
        status = ls_cuda_comm_over_members(comm, merge, err);
    return status;
}

static int together(ls_cuda_comm *comm, const ls_partial *partials, int count, ls_cuda_merge *merge,
                    ls_error *err)
{
    int status = comm->way ? LS_OK : prepare(comm, merge, err);
    if (status == LS_OK)
        status = ls_cuda_comm_record(comm, comm->mine->ready, merge->compute, err);
    return status ? status
                  : ls_merge_run(&comm->base, partials, count, merge->total, merge->times, work,
                                 merge, err);
}

int ls_cuda_comm_all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                            float *total, ls_comm_times *times, ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    ls_cuda_merge merge = {
        .compute = ls_cuda_stream(comm->mine->device, stream),
        .total = total,
        .times = times,
    };
    if (count < 0 || count > LS_PARTIALS_MAX)
        return ls_fail(err, LS_EINVAL, "a merge of %d partial sums", count);
    /* An aborted group is not touched: others may still read what was shown to them. */
    int status = ls_cuda_comm_alive(comm, err);
    if (status != LS_OK)
        return status;
    status = base->group->ranks == 1 && !ls_merge_has_members(&comm->group->merge)
                 ? alone(comm, partials, count, &merge, err)
                 : together(comm, partials, count, &merge, err);
    if (status != LS_OK)
        ls_cuda_comm_give_up(comm, merge.compute);
    ls_merge_committed(base, status);
    return status;
}

/* ---- ahead ---------------------------------------------------------------------------------- */

int ls_cuda_comm_goes_on(const ls_cuda_comm *comm, const float *from, const float *total,
                         ls_error *err)
{
    const ls_cuda_ahead *ahead = &comm->ahead;
    if (ahead->buckets == 0 || (ahead->from == from && ahead->total == total))
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "rank %d: a merge that merge_ready began goes on with another partial sum "
                   "or another total",
                   comm->base.rank);
}

int ls_cuda_comm_go_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                          size_t floats, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    ls_cuda_rank *mine = comm->mine;
    int next = comm->ahead.buckets, status = LS_OK;
    const int complete = ls_cuda_comm_complete(comm, floats);
    if (next == 0 && d->members)
        status = d->over->begin(d->members, err);
    if (status != LS_OK || next >= complete)
        return status;
    comm->ahead.compute = merge->compute;
    cudaError_t e = cudaEventRecord(mine->ready, merge->compute);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(mine->device->communication->cuda, mine->ready, 0);
    status = cuda_check(err, e, "%s: waiting for its own sums", mine->device->name);
    for (; next < complete && status == LS_OK; next++)
        status = comm->way->ahead(comm, merge, from, next, err);
    comm->ahead.buckets = next;
    return status ? status : ls_cuda_comm_tell(comm, err);
}

int ls_cuda_comm_merge_ready(ls_comm *base, ls_stream *stream, const float *gradient, float *total,
                             size_t floats, ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    ls_cuda_rank *mine = comm->mine;
    ls_cuda_merge merge = {.compute = ls_cuda_stream(mine->device, stream), .total = total};
    int status = ls_cuda_comm_alive(comm, err);
    if (status == LS_OK && floats > comm->group->merge.desc.floats)
        status = ls_fail(err, LS_EINVAL, "%zu floats of an arena of %zu are complete", floats,
                         comm->group->merge.desc.floats);
    if (status == LS_OK)
        status = ls_cuda_not_recording(mine->device, ls_cuda_stream_of(mine->device, stream),
                                       "merging", err);
    if (status == LS_OK)
        status = ls_cuda_comm_goes_on(comm, gradient, total, err);
    /* A group of one, or one that is not connected yet, merges in all_reduce. */
    if (status != LS_OK || !comm->way || !base->group->ahead)
        return status;
    if (ls_cuda_comm_complete(comm, floats) <= comm->ahead.buckets)
        return ls_cuda_comm_tell(comm, err);
    comm->ahead.from = gradient;
    comm->ahead.total = total;
    atomic_store(&comm->shown->reading, true);
    status = ls_cuda_comm_go_ahead(comm, &merge, gradient, floats, err);
    if (status != LS_OK)
        ls_cuda_comm_give_up(comm, merge.compute);
    return status;
}

/* ---- the way of workers that share one GPU -------------------------------------------------- */

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
static int enqueue_local(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const bool members = ls_merge_has_members(&comm->group->merge);
    size_t first, count;
    ls_merge_chunk(&comm->group->merge, comm->base.group->ranks, comm->base.rank, &first, &count);
    int status = ls_cuda_comm_rest(comm, err);
    if (status == LS_OK && members && comm->base.group->ranks == 1 && comm->rest.count == 1)
        return ls_cuda_comm_bring_rest(comm, merge, err);
    if (status == LS_OK)
        status = ls_cuda_comm_await_ready(comm, merge->compute, err);
    if (status == LS_OK && count > 0 && members)
        status = ls_cuda_comm_bring(comm, merge->total, first, count, merge->compute, err);
    else if (status == LS_OK && count > 0) {
        status = ls_cuda_comm_sum(comm, 0, merge->total, first, count, merge->compute, err);
        if (status == LS_OK)
            status = ls_cuda_comm_hand_out(comm, merge->total, first, count, merge->compute, err);
    }
    return status ? status : ls_cuda_comm_record(comm, comm->mine->whole, merge->compute, err);
}

const ls_cuda_way ls_cuda_way_local = {
    .links = 0, .enqueue = enqueue_local, .ahead = ls_cuda_comm_bring_ahead};
