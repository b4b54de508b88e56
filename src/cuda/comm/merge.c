/* SPDX-License-Identifier: MIT */
/* The calls of a communicator: joining and leaving, the first collective call, all_reduce and
 * merge_ready. Also the tables of the communicators. */
#include "base/clock.h"
#include "cuda/comm/group.h"

/* Time limits in nanoseconds. GIVE_UP_NS: a rank that has failed waits until its GPU no longer
 * accesses the other ranks' memory. LEAVE_NS: a rank that leaves an aborted group waits until NCCL
 * no longer accesses the rank's memory. */
#define GIVE_UP_NS 5000000000u
#define LEAVE_NS 10000000000u

/* ---- waiting for the GPU -------------------------------------------------------------------- */

/* Waits until the event `whole` has passed. The function polls, so that an abort or the deadline
 * ends the wait if the GPU hangs. */
static int await_whole(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_device *d = comm->mine->device;
    uint64_t deadline = ls_merge_deadline(&comm->group->merge);
    for (unsigned rounds = 0;; rounds++) {
        bool passed;
        int status = ls_cuda_passed(&passed, d, comm->mine->whole, "merging", err);
        if (status == LS_OK)
            status = ls_cuda_comm_tell(comm, err);
        if (status != LS_OK || passed)
            return status;
        if (ls_merge_aborted(&comm->group->merge))
            return ls_fail(err, LS_EABORTED, "another worker failed first");
        if (ls_now_ns() >= deadline)
            return ls_fail(err, LS_ETIMEDOUT, "%s (rank %d) did not finish its merge in time",
                           d->name, comm->base.rank);
        ls_cuda_nap(rounds);
    }
}

/* Returns true if the stream has no unfinished work, or if the device is lost and therefore runs no
 * work any more. Waits for this until the deadline at most. */
static bool is_idle(cudaStream_t stream, uint64_t deadline_ns)
{
    for (unsigned rounds = 0;; rounds++) {
        cudaError_t e = cudaStreamQuery(stream);
        if (e == cudaSuccess || cuda_is_lost(e))
            return true;
        (void)cudaGetLastError();
        if (e != cudaErrorNotReady || ls_now_ns() >= deadline_ns)
            return false;
        ls_cuda_nap(rounds);
    }
}

/* Aborts the group, and waits at most GIVE_UP_NS until the work that this rank has enqueued has
 * ended. Then no work of this rank accesses another rank's memory. A second call does nothing. */
static void give_up(ls_cuda_comm *comm, cudaStream_t compute)
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

/* Returns LS_EABORTED if the group is aborted, else LS_OK. Before it returns LS_EABORTED, it waits
 * (give_up) until the work that this rank has enqueued ahead has ended. */
static int check_alive(ls_cuda_comm *comm, ls_error *err)
{
    if (!ls_merge_aborted(&comm->group->merge))
        return LS_OK;
    if (comm->ahead.buckets > 0)
        give_up(comm, comm->ahead.compute);
    return ls_fail(err, LS_EABORTED, "another worker failed first");
}

/* ---- joining and leaving -------------------------------------------------------------------- */

enum { EVENTS = 2 + LS_BUCKETS };

static void list_events(cudaEvent_t *event[EVENTS], ls_cuda_rank *mine)
{
    event[0] = &mine->ready;
    event[1] = &mine->whole;
    for (int b = 0; b < LS_BUCKETS; b++)
        event[2 + b] = &mine->down[b];
}

static int make_events(ls_cuda_rank *mine, int count, ls_error *err)
{
    cudaEvent_t *event[EVENTS];
    int status = LS_OK;
    list_events(event, mine);
    for (int i = 0; i < count && status == LS_OK; i++)
        status = cuda_check(err, cudaEventCreateWithFlags(event[i], cudaEventDisableTiming),
                            "%s: creating an event", mine->device->name);
    return status;
}

static void free_rank(ls_cuda_rank *mine)
{
    cudaEvent_t *event[EVENTS];
    list_events(event, mine);
    for (int i = 0; i < EVENTS; i++) {
        if (*event[i])
            (void)cudaEventDestroy(*event[i]);
        *event[i] = NULL;
    }
    if (mine->stage)
        (void)cudaFree(mine->stage);
    mine->stage = NULL;
    mine->stage_floats = 0;
}

/* Leaves the group and frees the rank's memory. NCCL must not access this memory any more. If a
 * merge was interrupted, the function therefore first waits until every communicator has been
 * aborted. If buckets were enqueued ahead and no all_reduce followed, it waits until this work has
 * ended. */
static void comm_leave(ls_comm *base)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    if (!comm)
        return;
    ls_cuda_group *group = comm->group;
    if (comm->ahead.buckets > 0)
        give_up(comm, comm->ahead.compute);
    if (group->links && ls_merge_aborted(&group->merge))
        (void)ls_cuda_links_are_gone(group->links, ls_deadline_ns(LEAVE_NS));
    free_rank(comm->mine);
    ls_tree_rest_fini(&comm->rest, group->merge.desc.host);
    ls_free(group->merge.desc.host, comm);
}

/* Runs the kernels of a merge once. The first launch of a kernel loads it, and can wait for kernels
 * that run; if these are NCCL's, they wait for other ranks, and the ranks can wait for each other
 * for ever. So all kernels of a merge are loaded before the first NCCL operation. */
static int load_kernels(const ls_cuda_comm *comm, ls_error *err)
{
    static const uint8_t order[] = {0, 1, LS_K_ADD, 2, LS_K_ADD};
    cudaStream_t stream = comm->mine->device->communication->cuda;
    void *memory = NULL;
    cudaError_t e = cudaMalloc(&memory, 4 * sizeof(float));
    float *four = memory;
    const float *const in[] = {four, four + 1, four + 2};
    if (e == cudaSuccess)
        e = cudaMemsetAsync(four, 0, 4 * sizeof *four, stream);
    for (int parts = 1; parts <= 3 && e == cudaSuccess; parts++) /* two parts have another kernel */
        e = ls_k_add_arenas(four + 3, in, parts, order, 1, stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(stream);
    if (memory)
        cudaFree(memory);
    return cuda_check(err, e, "%s: loading the kernels of a merge", comm->mine->device->name);
}

static int comm_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err)
{
    ls_cuda_group *group = (ls_cuda_group *)base;
    *out = NULL;
    if (device->ops->op_create != ls_cuda_op_create) {
        ls_device_info info;
        device->ops->describe(device, &info);
        return ls_fail(err, LS_EUNSUPPORTED,
                       "allreduce '%s' is for CUDA devices; %s is another device", base->type->name,
                       info.name);
    }
    ls_cuda_comm *comm = ls_alloc(group->merge.desc.host,
                                  sizeof *comm + 2 * (size_t)base->ranks * sizeof *comm->maps);
    if (!comm)
        return ls_fail(err, LS_ENOMEM, "out of memory for a communicator");
    comm->map = (ls_cuda_gpu_map){0, comm->maps, comm->maps + base->ranks};
    comm->base.group = base;
    comm->base.rank = rank;
    comm->group = group;
    comm->mine = &group->rank[rank];
    comm->shown = &group->merge.rank[rank];
    comm->mine->device = ls_cuda_device_of(device);
    comm->mine->ordinal = comm->mine->device->ordinal;
    comm->mine->device->nccl =
        base->type == &ls_cuda_comm_nccl ? ls_cuda_links_version(group->links) : 0;
    int status = cuda_check(err, cudaSetDevice(comm->mine->ordinal),
                            "%s: making the device current", comm->mine->device->name);
    if (status == LS_OK)
        status = make_events(comm->mine, base->ahead ? EVENTS : 2, err);
    if (status == LS_OK && base->ranks > 1)
        status = load_kernels(comm, err);
    if (status != LS_OK) {
        comm_leave(&comm->base);
        return status;
    }
    *out = &comm->base;
    return LS_OK;
}

/* ---- the first collective call -------------------------------------------------------------- */

static void map_gpus(ls_cuda_comm *comm)
{
    const ls_cuda_rank *rank = comm->group->rank;
    ls_cuda_gpu_map *map = &comm->map;
    for (int r = 0; r < comm->base.group->ranks; r++) {
        int g = 0;
        while (g < map->gpus && rank[map->leader[g]].ordinal != rank[r].ordinal)
            g++;
        if (g == map->gpus)
            map->leader[map->gpus++] = r;
        map->gpu[r] = g;
    }
}

/* Chooses the way of merging, after all ranks have joined. The choice depends on which ranks share
 * a GPU. */
static int choose_way(const ls_cuda_way **out, ls_cuda_comm *comm, ls_error *err)
{
    const ls_comm_type *type = comm->base.group->type;
    const int ranks = comm->base.group->ranks;
    map_gpus(comm);
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
    *out = type == &ls_cuda_comm_nccl ? &ls_cuda_way_nccl
           : gpus == 1                ? &ls_cuda_way_local
                                      : &ls_cuda_way_ordered;
    return LS_OK;
}

static ls_cuda_peer peer_of(const ls_cuda_comm *comm)
{
    return (ls_cuda_peer){ls_cuda_comm_leads(comm) ? ls_cuda_comm_gpu(comm) : -1, comm->map.gpus};
}

static int prepare(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const ls_cuda_way *way = NULL;
    int status = cuda_check(err, cudaSetDevice(comm->mine->ordinal),
                            "%s: making the device current", comm->mine->device->name);
    if (status == LS_OK)
        status = ls_merge_meet(&comm->base, merge->times, err);
    if (status == LS_OK)
        status = choose_way(&way, comm, err);
    if (status == LS_OK)
        status = ls_cuda_comm_pin(comm, err);
    if (status == LS_OK && way->links)
        status = ls_cuda_links_connect(comm->group->links, comm->base.rank, peer_of(comm),
                                       ls_merge_deadline(&comm->group->merge), err);
    if (status == LS_OK)
        comm->way = way;
    return status;
}

/* ---- a merge -------------------------------------------------------------------------------- */

/* Merges in a group of one rank and one process: adds the rank's partial sums on its own stream and
 * waits for nothing. */
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
        status = await_whole(comm, err);
    if (status != LS_OK || !ls_merge_has_members(&comm->group->merge))
        return status;
    status = ls_cuda_comm_over_members(comm, merge, err);
    return status ? status : await_whole(comm, err);
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

static int comm_all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                           float *total, ls_comm_times *times, ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    ls_cuda_merge merge = {
        .compute = ls_cuda_stream(comm->mine->device, stream),
        .total = total,
        .times = times,
    };
    if (count < 0 || count > LS_PARTIALS_MAX)
        return ls_fail(err, LS_EINVAL, "all_reduce: %d partial sums are given", count);
    /* In an aborted group this rank changes nothing, because other ranks can still be reading its
     * data (comm->shown). */
    int status = check_alive(comm, err);
    if (status != LS_OK)
        return status;
    status = base->group->ranks == 1 && !ls_merge_has_members(&comm->group->merge)
                 ? alone(comm, partials, count, &merge, err)
                 : together(comm, partials, count, &merge, err);
    if (status != LS_OK)
        give_up(comm, merge.compute);
    ls_merge_committed(base, status);
    return status;
}

/* ---- merging ahead --------------------------------------------------------------------------- */

int ls_cuda_comm_goes_on(const ls_cuda_comm *comm, const float *from, const float *total,
                         ls_error *err)
{
    const ls_cuda_ahead *ahead = &comm->ahead;
    if (ahead->buckets == 0 || (ahead->from == from && ahead->total == total))
        return LS_OK;
    return ls_fail(
        err, LS_EINVAL,
        "rank %d: this call has another partial sum or another total than an earlier merge_ready "
        "of the step",
        comm->base.rank);
}

int ls_cuda_comm_go_ahead(ls_cuda_comm *comm, const ls_cuda_merge *merge, const float *from,
                          int complete, ls_error *err)
{
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    ls_cuda_rank *mine = comm->mine;
    int next = comm->ahead.buckets, status = LS_OK;
    if (next == 0 && d->members)
        status = d->members_ops->begin(d->members, err);
    if (status != LS_OK || next >= complete)
        return status;
    comm->ahead.compute = merge->compute;
    cudaError_t e = cudaEventRecord(mine->ready, merge->compute);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(mine->device->communication->cuda, mine->ready, 0);
    status = cuda_check(err, e, "%s: waiting for its own partial sums", mine->device->name);
    for (; next < complete && status == LS_OK; next++)
        status = comm->way->ahead(comm, merge, from, next, err);
    comm->ahead.buckets = next;
    return status ? status : ls_cuda_comm_tell(comm, err);
}

static int comm_merge_ready(ls_comm *base, ls_stream *stream, const float *gradient, float *total,
                            size_t floats, ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    const ls_comm_group_desc *d = &comm->group->merge.desc;
    ls_cuda_device *device = comm->mine->device;
    ls_cuda_merge merge = {.compute = ls_cuda_stream(device, stream), .total = total};
    int status = check_alive(comm, err);
    if (status == LS_OK && floats > d->floats)
        status =
            ls_fail(err, LS_EINVAL, "merge_ready: %zu floats are complete, but an arena has %zu",
                    floats, d->floats);
    if (status == LS_OK)
        status = ls_cuda_not_recording(device, ls_cuda_stream_of(device, stream), "merging", err);
    if (status == LS_OK)
        status = ls_cuda_comm_goes_on(comm, gradient, total, err);
    /* Buckets are merged ahead only if the group allows it (ls_comm_group.ahead) and its first
     * all_reduce has connected the ranks. Otherwise all_reduce merges everything. */
    if (status != LS_OK || !comm->way || !base->group->ahead)
        return status;
    const int complete = ls_buckets_complete(d->buckets, d->bucket_count, floats);
    if (complete <= comm->ahead.buckets)
        return ls_cuda_comm_tell(comm, err);
    comm->ahead.from = gradient;
    comm->ahead.total = total;
    atomic_store(&comm->shown->reading, true);
    status = ls_cuda_comm_go_ahead(comm, &merge, gradient, complete, err);
    if (status != LS_OK)
        give_up(comm, merge.compute);
    return status;
}

/* ---- the way for workers that share one GPU -------------------------------------------------- */

/* Over several processes, for one rank with one partial sum: enqueues the remaining buckets, then
 * records `whole`. */
static int bring_rest(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    const float *from = comm->rest.part[0].data;
    int status = ls_cuda_comm_goes_on(comm, from, merge->total, err);
    if (status == LS_OK)
        status =
            ls_cuda_comm_go_ahead(comm, merge, from, comm->group->merge.desc.bucket_count, err);
    return status ? status
                  : ls_cuda_comm_record(comm, mine->whole, mine->device->communication->cuda, err);
}

/* Merging for workers that share one GPU. Every rank can access the memory of all ranks. Therefore
 * a rank reads the partial sums of all ranks where they are, computes its chunk (its share of the
 * arena) of the sum, and writes this chunk into all totals.
 *
 *     wait for `ready` of every rank
 *     my total's chunk ← the tree over all ranks' partial sums
 *     that chunk → every rank's total
 *     record `whole`
 *
 * At the commit point (the merge's last meeting) all totals are complete, because every rank
 * reaches the commit point only after its own `whole` has passed. Hence all work that reads or
 * writes partial sums and totals is done before any rank writes to them again. */
static int enqueue_local(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const bool members = ls_merge_has_members(&comm->group->merge);
    size_t first, count;
    ls_merge_chunk(&comm->group->merge, comm->base.group->ranks, comm->base.rank, &first, &count);
    int status = ls_cuda_comm_rest(comm, err);
    if (status == LS_OK && members && comm->base.group->ranks == 1 && comm->rest.count == 1)
        return bring_rest(comm, merge, err);
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

/* ---- tables ---------------------------------------------------------------------------------- */

#define ROW(row_name, bits)                                                                        \
    {                                                                                              \
        .name = (row_name), .same_bits = (bits), .group_create = ls_cuda_group_create,             \
        .group_destroy = ls_cuda_group_destroy, .set_timeout = ls_merge_set_timeout,               \
        .join = comm_join, .leave = comm_leave, .all_reduce = comm_all_reduce,                     \
        .merge_ready = comm_merge_ready, .abort = ls_cuda_group_abort,                             \
        .may_read = ls_cuda_group_may_read,                                                        \
        .over_members = (bits), /* over several processes all sums are in tree order */            \
    }

const ls_comm_type ls_cuda_comm_ordered = ROW("ordered", 1);
const ls_comm_type ls_cuda_comm_nccl = ROW("nccl", 0);
const ls_comm_type ls_cuda_comm_local = ROW("local", 1);

const ls_comm_type *const *ls_cuda_comms(void)
{
    static const ls_comm_type *const types[] = {&ls_cuda_comm_ordered, &ls_cuda_comm_nccl,
                                                &ls_cuda_comm_local, NULL};
    return types;
}
