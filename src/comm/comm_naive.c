/* The `naive` all-reduce, as the book first writes it: parameter by parameter, everything is added
 * up on device 0 and copied back from there. Kept so that people can see what `ordered` gains:
 * rank 0 does all the adding while the others wait, once per parameter.
 */
#include "base/clock.h"
#include "comm/host_group.h"

#include <string.h>

/* Floats after which rank 0 looks whether the group is aborted. */
#define PIECE ((size_t)1 << 14)

/* total ← the sum of everybody's partial sums over [first, end), in the order of the ranks. */
static void sum_piece(const ls_host_group *group, float *total, size_t first, size_t end)
{
    memset(total + first, 0, (end - first) * sizeof(float));
    for (int r = 0; r < group->base.ranks; r++)
        for (int p = 0; p < group->rank[r].count; p++) {
            const float *data = group->rank[r].partials[p].data;
            for (size_t i = first; i < end; i++)
                total[i] += data[i];
        }
}

static void sum_on_rank_zero(const ls_host_comm *comm, float *total, size_t first, size_t end)
{
    for (; first < end && !ls_host_is_aborted(comm); first += PIECE)
        sum_piece(comm->group, total, first, end - first < PIECE ? end : first + PIECE);
}

static int reduce_segment(ls_host_comm *comm, float *total, size_t first, size_t end,
                          ls_comm_times *times, ls_error *err)
{
    uint64_t start = ls_now_ns();
    if (comm->base.rank == 0)
        sum_on_rank_zero(comm, total, first, end);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9;
    int status = ls_host_meet(comm, times, err);
    if (status)
        return status;
    start = ls_now_ns();
    if (comm->base.rank != 0)
        ls_host_copy(comm, total + first, comm->group->rank[0].total + first, end - first);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9;
    return LS_OK;
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    (void)stream;
    ls_host_comm *comm = (ls_host_comm *)base;
    const ls_comm_group_desc *desc = &comm->group->desc;
    int status = ls_host_publish(comm, partials, count, total, times, err);
    for (int s = 0; status == LS_OK && s < desc->segment_count; s++)
        status = reduce_segment(comm, total, desc->segments[s], desc->segments[s + 1], times, err);
    if (status)
        return status;
    ls_host_unpublish(comm);
    return ls_host_meet(comm, times, err); /* the commit point */
}

const ls_comm_type ls_comm_naive = {
    .name = "naive",
    .same_bits = 0,
    .group_create = ls_host_group_create,
    .group_destroy = ls_host_group_destroy,
    .set_timeout = ls_host_group_set_timeout,
    .join = ls_host_join,
    .leave = ls_host_leave,
    .check = ls_host_check,
    .all_reduce = all_reduce,
    .abort = ls_host_group_abort,
    .may_read = ls_host_may_read,
};
