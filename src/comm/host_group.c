#include "comm/host_group.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err)
{
    ls_host_group *group = ls_alloc(desc->host, sizeof *group);
    if (!group)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    group->base.type = desc->type;
    group->base.ranks = desc->ranks;
    group->desc = *desc;
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
    *out = &comm->base;
    return LS_OK;
}

void ls_host_leave(ls_comm *comm)
{
    if (comm)
        ls_free(((ls_host_comm *)comm)->group->desc.host, comm);
}

int ls_host_meet(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
{
    ls_host_group *group = comm->group;
    uint64_t start = ls_now_ns();
    uint64_t deadline =
        group->desc.timeout_ns == UINT64_MAX ? UINT64_MAX : ls_deadline_ns(group->desc.timeout_ns);
    int status = ls_barrier_wait(&group->barrier, comm->base.rank, deadline, err);
    times->wait += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}

int ls_host_publish(ls_host_comm *comm, const ls_partial *partials, int count, float *total,
                    ls_comm_times *times, ls_error *err)
{
    ls_host_rank *mine = &comm->group->rank[comm->base.rank];
    mine->partials = partials;
    mine->count = count;
    mine->total = total;
    return ls_host_meet(comm, times, err);
}
