/* A group of CUDA devices: made, joined, left, aborted. */
#include "cuda/cuda_comm_group.h"
#include "base/clock.h"
#include "cuda/cuda_device.h"

/* How long a rank that leaves an aborted group waits for NCCL to let go. */
#define LEAVE_NS 10000000000u

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
    ls_cuda_group_unpin(group);
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
    /* With `nccl`, others' memory is reached through NCCL alone: also that of a rank which sleeps
     * between merge_ready and all_reduce. */
    if (base->type == &ls_cuda_comm_nccl && ls_cuda_links_are_gone(group->links, 0))
        return 0;
    return ls_merge_may_read(base, rank);
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
    list_events(event, mine);
    for (int i = 0; i < count; i++) {
        cudaError_t e = cudaEventCreateWithFlags(event[i], cudaEventDisableTiming);
        if (e != cudaSuccess) {
            *event[i] = NULL;
            return cuda_fail(err, e, "%s: an event", mine->device->name);
        }
    }
    return LS_OK;
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

int ls_cuda_comm_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device,
                      ls_error *err)
{
    ls_cuda_group *group = (ls_cuda_group *)base;
    *out = NULL;
    if (device->ops->op_create != ls_cuda_op_create) {
        ls_device_info info;
        device->ops->describe(device, &info);
        return ls_fail(err, LS_EUNSUPPORTED, "allreduce '%s' is for CUDA devices; %s is none",
                       base->type->name, info.name);
    }
    ls_cuda_comm *comm = ls_alloc(group->merge.desc.host, sizeof *comm);
    if (!comm)
        return ls_fail(err, LS_ENOMEM, "out of memory for a communicator");
    comm->base.group = base;
    comm->base.rank = rank;
    comm->group = group;
    comm->mine = &group->rank[rank];
    comm->shown = &group->merge.rank[rank];
    comm->mine->device = ls_cuda_device_of(device);
    comm->mine->ordinal = comm->mine->device->ordinal;
    int status = ls_cuda_gpu_map_init(&comm->map, group->merge.desc.host, base->ranks, err);
    if (status == LS_OK)
        status = cuda_check(err, cudaSetDevice(comm->mine->ordinal), "%s: making it current",
                            comm->mine->device->name);
    if (status == LS_OK)
        status = make_events(comm->mine, base->ahead ? EVENTS : 2, err);
    if (status != LS_OK) {
        ls_cuda_comm_leave(&comm->base);
        return status;
    }
    *out = &comm->base;
    return LS_OK;
}

/* Frees nothing that NCCL may still touch: where a merge was cut short, every communicator has to
 * be aborted first, and what this rank has enqueued ahead of an all_reduce that never came has to
 * end. */
void ls_cuda_comm_leave(ls_comm *base)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    if (!comm)
        return;
    ls_cuda_group *group = comm->group;
    if (comm->ahead.buckets > 0)
        ls_cuda_comm_give_up(comm, comm->ahead.compute);
    if (group->links && ls_merge_aborted(&group->merge))
        (void)ls_cuda_links_are_gone(group->links, ls_deadline_ns(LEAVE_NS));
    free_rank(comm->mine);
    ls_cuda_gpu_map_fini(&comm->map, group->merge.desc.host);
    ls_rest_fini(&comm->rest, group->merge.desc.host);
    ls_free(group->merge.desc.host, comm);
}

/* ---- the communicators, by name -------------------------------------------------------------- */

#define ROW(row_name, bits)                                                                        \
    {                                                                                              \
        .name = (row_name), .same_bits = (bits), .group_create = ls_cuda_group_create,             \
        .group_destroy = ls_cuda_group_destroy, .set_timeout = ls_merge_set_timeout,               \
        .join = ls_cuda_comm_join, .leave = ls_cuda_comm_leave,                                    \
        .all_reduce = ls_cuda_comm_all_reduce, .merge_ready = ls_cuda_comm_merge_ready,            \
        .abort = ls_cuda_group_abort, .may_read = ls_cuda_group_may_read,                          \
        .over_members = (bits), /* over a wire all is added in the tree's order */                 \
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

/* ---- who shares a GPU ----------------------------------------------------------------------- */

int ls_cuda_gpu_map_init(ls_cuda_gpu_map *p, const ls_host *host, int ranks, ls_error *err)
{
    *p = (ls_cuda_gpu_map){0};
    p->gpu = ls_alloc(host, 3 * (size_t)ranks * sizeof *p->gpu);
    if (!p->gpu)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", ranks);
    p->leader = p->gpu + ranks;
    p->ordinal = p->leader + ranks;
    return LS_OK;
}

void ls_cuda_gpu_map_fini(ls_cuda_gpu_map *p, const ls_host *host)
{
    ls_free(host, p->gpu);
    *p = (ls_cuda_gpu_map){0};
}

void ls_cuda_gpu_map_add(ls_cuda_gpu_map *p, int rank, int ordinal)
{
    int g = 0;
    while (g < p->gpus && p->ordinal[g] != ordinal)
        g++;
    if (g == p->gpus) {
        p->ordinal[g] = ordinal;
        p->leader[g] = rank;
        p->gpus++;
    }
    p->gpu[rank] = g;
}

int ls_cuda_gpu_map_share(const ls_cuda_gpu_map *p, int rank, int other)
{
    return p->gpu[rank] == p->gpu[other];
}

int ls_cuda_gpu_map_leads(const ls_cuda_gpu_map *p, int rank)
{
    return p->leader[p->gpu[rank]] == rank;
}
