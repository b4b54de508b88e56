/* The `ordered` all-reduce: a reduce-scatter in tree order, followed by an all-gather.
 *
 * Each rank owns one chunk of the arena. First each rank sums its chunk over all ranks' partial
 * sums: it makes those additions of the shard tree that the ranks could not make alone
 * (ls_tree_rest in merge/group.h). Then each rank copies the other chunks from their owners. If
 * every rank has one partial sum, as many bytes are moved as in a ring all-reduce. A step has three
 * barriers, or two if all ranks share one total:
 *
 *     publish    all partial sums are complete         before any rank reads them
 *     reduced    all chunks are complete               before any rank gathers them
 *     committed  every rank holds the complete sum     the commit point
 *
 * If all ranks pass the same arena as their total (ls_host_group_total), the total is complete at
 * the barrier `reduced`, which is then the commit point. If the group has a single rank, that rank
 * may pass the arena of its first partial sum as its total (ls_tree_rest_add allows that): the
 * other partial sums are added there. If it has only one partial sum, nothing is computed.
 *
 * No total is overwritten while another rank reads it: a rank writes its total again only after the
 * publish barrier of the next step, and each rank arrives at that barrier only after it has copied
 * all chunks of this step and has used its total.
 *
 * For sums by pieces (comm.h) there are two barriers as well. The first one is the commit point.
 *
 * If the minibatch is divided over several processes, the ranks of one process sum, chunk by chunk,
 * the nodes that cover the shards of their own process. The process's progress thread
 * (cluster/progress.h) sums these nodes with those of the other processes, and each rank copies the
 * result. */
#include "comm/comm.h"

#include <stdbool.h>
#include <string.h>

/* Number of floats that are added between two checks whether the group is aborted: a few
 * microseconds. */
#define FLOATS_PER_CHECK ((size_t)1 << 12)

/* Returns whether nothing has to be computed: the only partial sum is the total, and it already
 * lies in the output arena. */
static bool is_summed(const ls_tree_rest *rest, float *const *out)
{
    return rest->count == 1 && rest->part[0].data == out[0];
}

/* Computes this rank's chunk of each sum that is left when all additions are made: out[i] receives
 * sum i. It is one sum, the total, if the run has a single process. */
static void reduce_own_chunk(const ls_host_comm *comm, float *const *out)
{
    const ls_merge_group *group = ls_merge_group_of(&comm->base);
    size_t first, count;
    if (is_summed(&comm->rest, out))
        return;
    ls_merge_chunk(group, group->base.ranks, comm->base.rank, &first, &count);
    for (size_t done = 0; done < count && !ls_merge_aborted(group); done += FLOATS_PER_CHECK)
        ls_tree_rest_add(&comm->rest, out, first + done,
                         count - done < FLOATS_PER_CHECK ? count - done : FLOATS_PER_CHECK);
}

/* Copies the other ranks' chunks of the sum to `total`. */
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

/* Returns whether all ranks have passed the same arena as their total. */
static bool is_one_total(const ls_merge_group *group)
{
    int r = 1;
    while (r < group->base.ranks && group->rank[r].total == group->rank[0].total)
        r++;
    return r == group->base.ranks;
}

/* Merges within this process. */
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

/* Merges over several processes: each rank computes its chunk of this process's nodes; rank 0 and
 * the progress thread sum them with the other processes' nodes; each rank copies the sum. */
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
    (void)stream; /* in host memory no work is pending on a stream: the partial sums are complete at
                     the call */
    int status = ls_merge_run(base, partials, count, total, times, merge, times, err);
    ls_merge_stop_reading(base); /* needed after an error as well */
    ls_merge_committed(base, status);
    return status;
}

/* ---- sums by pieces ------------------------------------------------------------------------- */

int ls_pieces_begin(ls_comm *comm, const ls_partial *partials, int count, ls_comm_times *times,
                    ls_error *err)
{
    ls_host_comm *host = (ls_host_comm *)comm;
    int status = ls_merge_begin(comm, partials, count, NULL, times, err);
    if (status == LS_OK)
        status = ls_tree_rest_update(&host->rest, ls_merge_group_of(comm), err);
    if (status)
        ls_merge_stop_reading(comm);
    return status;
}

void ls_piece(void *comm, float *out, size_t first, size_t count)
{
    const ls_host_comm *host = comm;
    ls_tree_rest_write(&host->rest, out, first, count);
}

int ls_pieces_end(ls_comm *comm, ls_comm_times *times, ls_error *err)
{
    return ls_merge_end(comm, times, err);
}

void ls_pieces_drop(ls_comm *comm)
{
    ls_merge_stop_reading(comm);
}

const ls_comm_type ls_comm_ordered = {
    .name = "ordered", .same_bits = 1, .all_reduce = all_reduce, .over_members = 1, LS_HOST_SLOTS};
