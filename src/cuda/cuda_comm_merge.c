/* The course of a merge. */
#include "base/clock.h"
#include "cuda/cuda_comm_group.h"

#include <string.h>

/* How long a rank that failed waits for its GPU to let go of the others' memory. */
#define GIVE_UP_NS 5000000000u

/* ---- for the ways --------------------------------------------------------------------------- */

uint64_t ls_cuda_comm_deadline(const ls_cuda_comm *comm)
{
    return ls_deadline_ns(atomic_load(&comm->group->timeout_ns));
}

int ls_cuda_comm_meet(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    ls_comm_times *times = merge->times;
    uint64_t start = ls_now_ns();
    if (times->waiting)
        times->waiting(times->user, 1);
    int status =
        ls_cuda_meet_wait(&comm->group->meet, comm->base.rank, ls_cuda_comm_deadline(comm), err);
    if (times->waiting)
        times->waiting(times->user, 0);
    times->wait += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}

void ls_cuda_comm_chunk(const ls_cuda_group *group, int parts, int index, size_t *first,
                        size_t *count)
{
    ls_cuda_split(group->desc.floats / 16, parts, index, first, count);
    *first *= 16;
    *count *= 16;
}

int ls_cuda_comm_await_ready(ls_cuda_comm *comm, cudaStream_t stream, ls_error *err)
{
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < comm->base.group->ranks && e == cudaSuccess; r++)
        if (ls_cuda_places_share(&comm->places, r, comm->base.rank))
            e = cudaStreamWaitEvent(stream, comm->group->rank[r].ready, 0);
    return cuda_check(err, e, "%s: waiting for the workers' sums", comm->mine->device->name);
}

/* Spans change with the split of the shards only, so most steps find the tree they had. */
static int tree_fits(const ls_cuda_comm *comm)
{
    const ls_cuda_tree *t = &comm->tree;
    int held = 0, fits = comm->tree_is_known;
    for (int r = 0; r < comm->base.group->ranks; r++)
        held += comm->group->rank[r].count;
    fits = fits && held == t->count;
    for (int i = 0; fits && i < t->count; i++) {
        const ls_cuda_rank *rank = &comm->group->rank[t->leaf[i].rank];
        fits = t->leaf[i].index < rank->count &&
               rank->partials[t->leaf[i].index].span.lo == t->leaf[i].span.lo &&
               rank->partials[t->leaf[i].index].span.hi == t->leaf[i].span.hi;
    }
    return fits;
}

int ls_cuda_comm_tree(ls_cuda_comm *comm, ls_error *err)
{
    int ranks = comm->base.group->ranks;
    if (tree_fits(comm))
        return LS_OK;
    ls_cuda_held *held = ls_alloc(comm->group->desc.host, (size_t)ranks * sizeof *held);
    if (!held)
        return ls_fail(err, LS_ENOMEM, "out of memory for a merge of %d ranks", ranks);
    for (int r = 0; r < ranks; r++)
        held[r] = (ls_cuda_held){comm->group->rank[r].partials, comm->group->rank[r].count};
    int status = ls_cuda_tree_build(&comm->tree, comm->group->desc.shards, held, ranks, err);
    comm->tree_is_known = status == LS_OK;
    ls_free(comm->group->desc.host, held);
    return status;
}

int ls_cuda_comm_fold(ls_cuda_comm *comm, float *out, cudaStream_t stream, ls_error *err)
{
    const ls_cuda_rank *mine = comm->mine;
    const float *in[LS_PARTIALS_MAX];
    size_t floats = comm->group->desc.floats;
    for (int i = 0; i < mine->count; i++)
        in[i] = mine->partials[i].data;
    cudaError_t e = mine->count == 0 ? cudaMemsetAsync(out, 0, floats * sizeof *out, stream)
                                     : ls_k_add_arenas(out, in, mine->count, NULL, floats, stream);
    return cuda_check(err, e, "%s: adding up %d partial sums", mine->device->name, mine->count);
}

/* ---- waiting for the GPU -------------------------------------------------------------------- */

/* Polls, so that an abort or the deadline ends the wait when the GPU does not. */
static int await_whole(ls_cuda_comm *comm, ls_error *err)
{
    ls_cuda_device *d = comm->mine->device;
    uint64_t deadline = ls_cuda_comm_deadline(comm);
    for (unsigned rounds = 0;; rounds++) {
        cudaError_t e = cudaEventQuery(comm->mine->whole);
        if (e == cudaSuccess)
            return LS_OK;
        if (e != cudaErrorNotReady) {
            d->lost |= cuda_is_lost(e);
            return cuda_fail(err, e, "%s: merging", d->name);
        }
        (void)cudaGetLastError(); /* the runtime notes "not ready" as an error */
        if (ls_cuda_meet_aborted(&comm->group->meet))
            return ls_fail(err, LS_EABORTED, "another worker failed first");
        if (ls_now_ns() >= deadline)
            return ls_fail(err, LS_ETIMEDOUT, "%s (rank %d) did not finish its merge in time",
                           d->name, comm->base.rank);
        ls_cuda_nap(rounds);
    }
}

/* Non-zero when nothing of the stream runs any more, or nothing ever will. */
static int is_idle(cudaStream_t stream, uint64_t deadline_ns)
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
    ls_cuda_group_abort(&comm->group->base);
    if (comm->group->links && !ls_cuda_links_are_gone(comm->group->links, deadline))
        return;
    if (is_idle(comm->mine->device->communication->cuda, deadline) && is_idle(compute, deadline))
        atomic_store_explicit(&comm->mine->reading, 0, memory_order_release);
    (void)cudaGetLastError();
}

int ls_cuda_comm_alive(ls_cuda_comm *comm, ls_error *err)
{
    if (!ls_cuda_meet_aborted(&comm->group->meet))
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
        ls_cuda_places_add(&comm->places, r, comm->group->rank[r].ordinal);
    const int gpus = comm->places.gpus;
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
    const int leads = ls_cuda_places_leads(&comm->places, comm->base.rank);
    return (ls_cuda_peer){leads ? comm->places.gpu[comm->base.rank] : -1, comm->places.gpus};
}

static int prepare(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    const ls_cuda_way *way;
    int status = cuda_check(err, cudaSetDevice(comm->mine->ordinal), "%s: making it current",
                            comm->mine->device->name);
    if (status == LS_OK)
        status = ls_cuda_comm_meet(comm, merge, err);
    if (status == LS_OK)
        status = choose_way(comm, err);
    if (status != LS_OK)
        return status;
    way = comm->way;
    comm->way = NULL; /* until it is connected */
    if (way->links)
        status = ls_cuda_links_connect(comm->group->links, comm->base.rank, peer_of(comm),
                                       ls_cuda_comm_deadline(comm), err);
    if (status == LS_OK)
        comm->way = way;
    return status;
}

/* ---- a merge -------------------------------------------------------------------------------- */

static int alone(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    int status = ls_cuda_comm_tree(comm, err);
    return status ? status : ls_cuda_comm_fold(comm, merge->total, merge->compute, err);
}

static int together(ls_cuda_comm *comm, const ls_cuda_merge *merge, ls_error *err)
{
    ls_cuda_rank *mine = comm->mine;
    int status = comm->way ? LS_OK : prepare(comm, merge, err);
    if (status != LS_OK)
        return status;
    atomic_store(&mine->reading, 1);
    status = cuda_check(err, cudaEventRecord(mine->ready, merge->compute), "%s: recording an event",
                        mine->device->name);
    if (status == LS_OK)
        status = ls_cuda_comm_meet(comm, merge, err);
    if (status == LS_OK)
        status = comm->way->enqueue(comm, merge, err);
    if (status == LS_OK)
        status = await_whole(comm, err);
    if (status != LS_OK)
        return status;
    atomic_store_explicit(&mine->reading, 0, memory_order_release);
    return ls_cuda_comm_meet(comm, merge, err);
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
    uint64_t start = ls_now_ns();
    double waited = times->wait;
    if (count < 0 || count > LS_PARTIALS_MAX)
        return ls_fail(err, LS_EINVAL, "a merge of %d partial sums", count);
    /* An aborted group is not touched: others may still read what was shown to them. */
    int status = ls_cuda_comm_alive(comm, err);
    if (status != LS_OK)
        return status;
    for (int i = 0; i < count; i++)
        comm->mine->partials[i] = partials[i];
    comm->mine->count = count;
    comm->mine->total = total;
    status = base->group->ranks == 1 ? alone(comm, &merge, err) : together(comm, &merge, err);
    if (status != LS_OK)
        ls_cuda_comm_give_up(comm, merge.compute);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9 - (times->wait - waited);
    return status;
}
