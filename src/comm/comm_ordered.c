/* SPDX-License-Identifier: MIT */
/* The `ordered` all-reduce: a reduce-scatter in tree order, followed by an all-gather.
 *
 * The arena is cut into one chunk per rank. In the first phase each rank sums its own chunk over
 * all ranks' partial sums. The gradients of a rank's own shards have been added before the merge.
 * Here each rank makes the remaining additions of the shard tree, which combine partial sums (the
 * *rest* of the tree, merge/group.h). In the second phase each rank copies the other chunks, each
 * from the rank that has summed it. If every rank has one partial sum, as many bytes are moved as
 * in a ring all-reduce. A merge has three barriers, or two if all ranks share one total:
 *
 *     publish    all partial sums are complete         before any rank reads them
 *     reduced    all chunks are complete               before any rank gathers them
 *     committed  every rank holds the complete sum     the commit point
 *
 * All ranks may pass the same arena as their total (ls_host_group_total). Then the total is
 * complete at the barrier `reduced`, which is the commit point, and there is no third barrier. If
 * the group has a single rank, that rank may pass the arena of its first partial sum as its total,
 * because ls_tree_rest_add can work in place. The rank then adds its other partial sums to the
 * first one in place. If there are no other partial sums, it computes nothing.
 *
 * No total is overwritten while another rank reads it: a rank writes its total again only after the
 * barrier `publish` of the next merge, at which each rank arrives only when it has copied all
 * chunks of this merge and its caller no longer uses the total.
 *
 * *Sums by pieces* (comm.h) write no total and have two barriers: `publish`, which is the commit
 * point, and the barrier of ls_pieces_end.
 *
 * If the shards of the minibatch are divided over several processes, a group has the ranks of one
 * process. Each rank computes its own chunk of the nodes in the cover of the process's shards
 * (merge/tree.h). Then the process's progress thread (cluster/progress.h) adds the nodes of all
 * processes, and each rank copies the total. */
#include "comm/comm.h"

#include <stdbool.h>
#include <string.h>

/* How many floats of the sum are computed between two checks whether the group is aborted. To
 * compute them takes a few microseconds. */
#define FLOATS_PER_CHECK ((size_t)1 << 12)

/* Returns whether nothing has to be computed, because there is only one partial sum and its arena
 * is the output arena. */
static bool is_summed(const ls_tree_rest *rest, float *const *out)
{
    return rest->count == 1 && rest->part[0].data == out[0];
}

/* Makes the remaining additions of the tree for this rank's chunk. If the run has a single process,
 * the result is one sum, the total, which is written to out[0]. If the run has several processes,
 * the results are the nodes in the cover of this process, comm->rest.sums of them; node i is
 * written to out[i]. */
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

/* Merges in a run with a single process. */
static int merge_in_process(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
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

/* Merges in a run with several processes. Each rank computes its chunk of the nodes in the cover of
 * this process; then rank 0 has the progress thread add the nodes of all processes; then each rank
 * copies the total. */
static int merge_over_processes(ls_host_comm *comm, ls_comm_times *times, ls_error *err)
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
    return ls_merge_has_members(group) ? merge_over_processes(comm, times, err)
                                       : merge_in_process(comm, times, err);
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    /* Devices that compute in host memory have no pending work on streams. Therefore the partial
     * sums are complete when this function is called. */
    (void)stream;
    int status = ls_merge_run(base, partials, count, total, times, merge, times, err);
    ls_merge_stop_reading(base); /* after an error too */
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
