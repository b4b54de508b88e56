/* The `ordered` all-reduce: reduce-scatter in tree order, then all-gather.
 *
 * Each rank owns one chunk of the arena. For its chunk it evaluates what is left of the shard tree
 * over all ranks' partial sums; then it copies the other chunks from their owners. The bytes moved
 * are those of a ring all-reduce when every rank holds one partial sum. Three meetings a step, two with one total:
 *
 *     publish    all partial sums are complete                  before any rank reads them
 *     reduced    all chunks are complete                        before any rank gathers them
 *     committed  every rank holds the whole sum                  the commit point
 *
 * Where all ranks show one total (ls_host_group_total) it is complete behind `reduced`, which is the commit point then.
 *
 * A total is written again only behind the next step's publish, which no rank passes
 * before every rank has left this step's gather, and has made use of the total.
 *
 * Where other processes have a part of the minibatch, the ranks evaluate chunk by chunk the nodes that
 * cover their own process's leaves, its courier (cluster/cluster.h) the sum over all processes' nodes, and each
 * rank copies that.
 */
#include "comm/comm.h"

#include <stdbool.h>
#include <string.h>

/* Floats that are added between two looks whether the group is aborted: a few microseconds. */
#define FLOATS_PER_CHECK ((size_t)1 << 12)

/* This rank's chunk of every sum that its process's partial sums come to. */
static void reduce_own_chunk(const ls_host_comm *comm, float *const *out)
{
    const ls_merge_group *group = ls_merge_group_of(&comm->base);
    size_t first, count;
    ls_merge_chunk(group, group->base.ranks, comm->base.rank, &first, &count);
    for (size_t done = 0; done < count && !ls_merge_aborted(group); done += FLOATS_PER_CHECK)
        ls_tree_rest_add(&comm->rest, out, first + done,
                         count - done < FLOATS_PER_CHECK ? count - done : FLOATS_PER_CHECK);
}

static void gather_other_chunks(const ls_comm *comm, float *total)
{
    const ls_merge_group *group = ls_merge_group_of(comm);
    for (int r = 0; r < group->base.ranks; r++) {
        size_t first, count;
        ls_merge_chunk(group, group->base.ranks, r, &first, &count);
        if (r != comm->rank)
            ls_host_copy(group, total + first, group->rank[r].total + first, count);
    }
}

static bool is_one_total(const ls_merge_group *group)
{
    int r = 1;
    while (r < group->base.ranks && group->rank[r].total == group->rank[0].total)
        r++;
    return r == group->base.ranks;
}

static int merge_alone(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
{
    const ls_comm *base = &comm->base;
    const ls_merge_group *group = ls_merge_group_of(base);
    float *total = group->rank[base->rank].total;
    reduce_own_chunk(comm, &total);
    if (is_one_total(group))
        return LS_OK;
    int status = ls_merge_meet(base, times, err);
    if (status == LS_OK)
        gather_other_chunks(base, total);
    return status;
}

/* ---- over several processes ------------------------------------------------------------------ */

/* Each rank reduces its chunk of this process's nodes; rank 0 and the courier sum them with the other members'
 * nodes; each rank copies the sum. */
static int merge_members(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
{
    const ls_comm *base = &comm->base;
    const ls_merge_group *group = ls_merge_group_of(base);
    const ls_comm_group_desc *d = &group->desc;
    float *node[LS_PARTIALS_MAX];
    for (int i = 0; i < comm->rest.sums; i++)
        node[i] = d->members_ops->node(d->members, i);
    reduce_own_chunk(comm, node);
    int status = ls_merge_over_members(base, times, err);
    if (status == LS_OK)
        ls_host_copy(group, group->rank[base->rank].total, d->members_ops->total(d->members),
                     d->floats);
    return status;
}

static int merge(ls_comm *base, void *times, ls_error *err)
{
    ls_host_comm *comm = (ls_host_comm *)base;
    const ls_merge_group *group = ls_merge_group_of(base);
    int status = ls_tree_rest_update(&comm->rest, group, err);
    if (status)
        return status;
    return ls_merge_has_members(group) ? merge_members(comm, times, err)
                                       : merge_alone(comm, times, err);
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    (void)stream; /* host memory: a rank's partial sums are complete when it calls */
    int status = ls_merge_run(base, partials, count, total, times, merge, times, err);
    ls_merge_stop_reading(base); /* after an error, too */
    ls_merge_committed(base, status);
    return status;
}

const ls_comm_type ls_comm_ordered = {
    .name = "ordered", .same_bits = 1, .all_reduce = all_reduce, .over_members = 1, LS_HOST_SLOTS};
