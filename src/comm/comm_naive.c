/* SPDX-License-Identifier: MIT */
/* The `naive` all-reduce, for comparison with `ordered`. The book "Dive into Deep Learning" first
 * writes an all-reduce in this form. For each parameter, rank 0 makes all additions while the other
 * ranks wait; then the other ranks copy the sum. */
#include "comm/comm.h"

#include <string.h>

/* How many floats of the sum rank 0 computes between two checks whether the group is aborted. */
#define FLOATS_PER_CHECK ((size_t)1 << 14)

/* Writes the floats first … end − 1 of the sum of all partial sums to `total`. The partial sums are
 * added in the order of the ranks. */
static void sum_piece(const ls_merge_group *group, float *total, size_t first, size_t end)
{
    memset(total + first, 0, (end - first) * sizeof(float));
    for (int r = 0; r < group->base.ranks; r++)
        for (int p = 0; p < group->rank[r].count; p++) {
            const float *data = group->rank[r].partials[p].data;
            for (size_t i = first; i < end; i++)
                total[i] += data[i];
        }
}

/* Sums the floats first … end − 1, which belong to one parameter, and copies the sum to all ranks.
 */
static int reduce_param(const ls_comm *comm, size_t first, size_t end, ls_comm_times *times,
                        ls_error *err)
{
    const ls_merge_group *group = ls_merge_group_of(comm);
    float *total = group->rank[comm->rank].total;
    for (size_t at = first; comm->rank == 0 && at < end && !ls_merge_aborted(group);
         at += FLOATS_PER_CHECK)
        sum_piece(group, total, at, end - at < FLOATS_PER_CHECK ? end : at + FLOATS_PER_CHECK);
    int status = ls_merge_meet(comm, times, err);
    if (status == LS_OK && comm->rank != 0)
        ls_host_copy(group, total + first, group->rank[0].total + first, end - first);
    return status;
}

static int merge(ls_comm *comm, void *times, ls_error *err)
{
    const ls_comm_group_desc *desc = &ls_merge_group_of(comm)->desc;
    int status = LS_OK;
    for (int p = 0; status == LS_OK && p < desc->param_count; p++)
        status = reduce_param(comm, desc->param_offsets[p], desc->param_offsets[p + 1], times, err);
    return status;
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    (void)stream;
    int status = ls_merge_run(base, partials, count, total, times, merge, times, err);
    ls_merge_stop_reading(base); /* after an error too */
    return status;
}

const ls_comm_type ls_comm_naive = {
    .name = "naive", .same_bits = 0, .all_reduce = all_reduce, LS_HOST_SLOTS};
