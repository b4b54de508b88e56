/* The `ordered` all-reduce: reduce-scatter in tree order, then all-gather.
 *
 * Each rank owns one chunk of the arena. For its chunk it evaluates what is left of the shard tree
 * over all ranks' partial sums; then it copies the other chunks from their owners. The bytes moved
 * are those of a ring all-reduce when every rank holds one partial sum. Three meetings a step:
 *
 *     publish    all partial sums are complete                  before anybody reads them
 *     reduced    all chunks are complete                        before anybody gathers them
 *     committed  every rank holds the whole sum                  the commit point
 *
 * A total is written again only behind the next step's publish, which no rank passes
 * before every rank has left this step's gather.
 */
#include "comm/comm.h"

#include <string.h>

/* The sum is evaluated piece by piece, small enough for the temporaries of a whole descent of
 * the tree to stay in the first-level cache. */
#define PIECE 256

/* Of one piece: where it lies, and the stack's sums but the lowest, which is the piece of the total. */
typedef struct evaluation {
    const ls_merge_group *group;
    const ls_rest *rest;
    size_t first;
    size_t count;
    float temporary[LS_PARTIALS_MAX][PIECE];
} evaluation;

/* Written out twice: compilers make vectors of either, but not where they cannot tell. */
static void add(float *out, const float *left, const float *right, size_t count)
{
    if (out == left)
        for (size_t i = 0; i < count; i++)
            out[i] += right[i];
    else
        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
}

/* The piece's sum: a rank's partial sum where there is only one, else `out`. */
static const float *evaluate(evaluation *e, float *out)
{
    const float *sum[LS_PARTIALS_MAX] = {NULL};
    int depth = 0;
    for (int p = 0; p < e->rest->count; p++) {
        const ls_rest_part *part = &e->rest->part[p];
        sum[depth++] = e->group->rank[part->rank].partials[part->index].data + e->first;
        for (int j = 0; j < part->joins; j++) {
            float *to = --depth == 1 ? out : e->temporary[depth - 1];
            add(to, sum[depth - 1], sum[depth], e->count);
            sum[depth - 1] = to;
        }
    }
    return sum[0];
}

static void reduce_own_chunk(const ls_host_comm *comm, float *total)
{
    const ls_merge_group *group = ls_merge_group_of(&comm->base);
    size_t first, count;
    evaluation e;
    e.group = group;
    e.rest = &comm->rest;
    ls_merge_chunk(group, group->base.ranks, comm->base.rank, &first, &count);
    for (size_t done = 0; done < count && !ls_merge_aborted(group); done += e.count) {
        e.first = first + done;
        e.count = count - done < PIECE ? count - done : PIECE;
        const float *sum = evaluate(&e, total + e.first);
        if (sum != total + e.first)
            memcpy(total + e.first, sum, e.count * sizeof(float));
    }
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

static int merge(ls_comm *base, void *times, ls_error *err)
{
    ls_host_comm *comm = (ls_host_comm *)base;
    const ls_merge_group *group = ls_merge_group_of(base);
    float *total = group->rank[base->rank].total;
    int status = ls_rest_update(&comm->rest, group, err);
    if (status)
        return status;
    reduce_own_chunk(comm, total);
    status = ls_merge_meet(base, times, err);
    if (status == LS_OK)
        gather_other_chunks(base, total);
    return status;
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    (void)stream; /* host memory: a rank's partial sums are complete when it calls */
    return ls_host_all_reduce(base, partials, count, total, times, merge, err);
}

const ls_comm_type ls_comm_ordered = {
    .name = "ordered", .same_bits = 1, .all_reduce = all_reduce, LS_HOST_SLOTS};
