#include "comm/host_group.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

/* The orders that ls_host_may_read stands on, macros so that a test can weaken each one and see
 * ThreadSanitizer object (tests/sync/weakened_orders.sh). */
#ifndef LS_READING_RELEASE /* reader: what the others show was read before they may reuse it */
#define LS_READING_RELEASE memory_order_release
#endif
#ifndef LS_READING_ACQUIRE /* the others: it is reused after it was seen to be read */
#define LS_READING_ACQUIRE memory_order_acquire
#endif

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err)
{
    ls_host_group *group = ls_alloc(desc->host, sizeof *group);
    if (!group)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    group->base.type = desc->type;
    group->base.ranks = desc->ranks;
    group->desc = *desc;
    atomic_init(&group->timeout_ns, desc->timeout_ns);
    group->rank = ls_alloc_array(desc->host, (size_t)desc->ranks, sizeof *group->rank);
    int status =
        group->rank ? ls_barrier_init(&group->barrier, desc->host, desc->ranks, desc->spins, err)
                    : ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    if (status) {
        ls_free(desc->host, group->rank);
        ls_free(desc->host, group);
        return status;
    }
    *out = &group->base;
    return LS_OK;
}

void ls_host_group_destroy(ls_comm_group *base)
{
    ls_host_group *group = (ls_host_group *)base;
    if (!group)
        return;
    const ls_host *host = group->desc.host;
    ls_barrier_fini(&group->barrier);
    ls_free(host, group->rank);
    ls_free(host, group);
}

void ls_host_group_abort(ls_comm_group *base)
{
    ls_barrier_abort(&((ls_host_group *)base)->barrier);
}

void ls_host_group_set_timeout(ls_comm_group *base, uint64_t timeout_ns)
{
    /* relaxed: it hands nothing over, and which wait is the first to see it does not matter. */
    atomic_store_explicit(&((ls_host_group *)base)->timeout_ns, timeout_ns, memory_order_relaxed);
}

int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err)
{
    ls_host_group *group = (ls_host_group *)base;
    ls_device_info info;
    device->ops->describe(device, &info);
    if (!(info.flags & LS_DEVICE_HOST_MEMORY))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "allreduce '%s' needs devices that share host memory; "
                       "%s does not",
                       base->type->name, info.name);
    ls_host_comm *comm = ls_alloc(group->desc.host, sizeof *comm);
    if (!comm)
        return ls_fail(err, LS_ENOMEM, "out of memory for a communicator");
    comm->base.group = base;
    comm->base.rank = rank;
    comm->group = group;
    snprintf(group->rank[rank].name, sizeof group->rank[rank].name, "%s", info.name);
    *out = &comm->base;
    return LS_OK;
}

void ls_host_leave(ls_comm *comm)
{
    if (comm)
        ls_free(((ls_host_comm *)comm)->group->desc.host, comm);
}

bool ls_host_is_aborted(const ls_host_comm *comm)
{
    return ls_barrier_aborted(&comm->group->barrier);
}

void ls_host_copy(const ls_host_comm *comm, float *to, const float *from, size_t count)
{
    const size_t piece = (size_t)1 << 14; /* a few microseconds */
    for (size_t i = 0; i < count && !ls_host_is_aborted(comm); i += piece)
        memcpy(to + i, from + i, (count - i < piece ? count - i : piece) * sizeof(float));
}

int ls_host_may_read(const ls_comm_group *base, int rank)
{
    const ls_host_group *group = (const ls_host_group *)base;
    /* The bit first: behind it `reading` is never set again by a rank that will read. */
    if (!ls_barrier_aborted(&group->barrier))
        return 1;
    return atomic_load_explicit(&group->rank[rank].reading, LS_READING_ACQUIRE);
}

void ls_host_unpublish(ls_host_comm *comm)
{
    atomic_store_explicit(&comm->group->rank[comm->base.rank].reading, false, LS_READING_RELEASE);
}

int ls_host_meet(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
{
    ls_host_group *group = comm->group;
    uint64_t timeout = atomic_load_explicit(&group->timeout_ns, memory_order_relaxed);
    uint64_t start = ls_now_ns();
    if (times->waiting)
        times->waiting(times->user, 1);
    int status = ls_barrier_wait(&group->barrier, comm->base.rank, ls_deadline_ns(timeout), err);
    if (times->waiting)
        times->waiting(times->user, 0);
    times->wait += (double)(ls_now_ns() - start) * 1e-9;
    if (status)
        ls_host_unpublish(comm);
    return status;
}

int ls_host_publish(ls_host_comm *comm, const ls_partial *partials, int count, float *total,
                    ls_comm_times *times, ls_error *err)
{
    ls_host_rank *mine = &comm->group->rank[comm->base.rank];
    /* A call behind the group's end changes nothing: others may not have left their last one
     * yet. */
    if (ls_host_is_aborted(comm))
        return ls_fail(err, LS_EABORTED, "the group was aborted");
    mine->partials = partials;
    mine->count = count;
    mine->total = total;
    /* relaxed: released by the arrival at the meeting. */
    atomic_store_explicit(&mine->reading, true, memory_order_relaxed);
    return ls_host_meet(comm, times, err);
}
