/* The `ordered` all-reduce: reduce-scatter in tree order, then all-gather.
 *
 * Each rank owns one chunk of the arena. For its chunk it evaluates what is left of the shard tree
 * over everybody's partial sums; then it copies the other chunks from their owners. The bytes moved
 * are those of a ring all-reduce when every rank holds one partial sum. Three meetings a step:
 *
 *     publish    all partial sums are complete                  before anybody reads them
 *     reduced    all chunks are complete                        before anybody gathers them
 *     committed  everybody holds the whole sum                  the commit point
 *
 * The barrier carries the memory order: what a rank wrote before a meeting is visible to all
 * behind it. A total is written again only behind the next step's publish, which nobody passes
 * before everybody has left this step's gather.
 */
#include "base/clock.h"
#include "base/split.h"
#include "comm/host_group.h"

#include <string.h>

/* The sum is evaluated piece by piece, small enough for the temporaries of a whole descent of
 * the tree to stay in the first-level cache. */
#define PIECE 256

/* One descent: where the piece lies, and a stack of temporaries, one per level. */
typedef struct evaluation {
    const ls_host_group *group;
    size_t first;
    size_t count;
    float temporary[LS_PARTIALS_MAX][PIECE];
} evaluation;

static const float *held_by_a_rank(const evaluation *e, ls_span node)
{
    for (int r = 0; r < e->group->base.ranks; r++) {
        const ls_host_rank *rank = &e->group->rank[r];
        for (int i = 0; i < rank->count; i++) {
            ls_span span = rank->partials[i].span;
            if (span.lo == node.lo && span.hi == node.hi)
                return rank->partials[i].data + e->first;
        }
    }
    return NULL;
}

/* The piece of T(node): a rank's partial sum where one is that node, else left + right, put into
 * `out`. */
static const float *evaluate(evaluation *e, ls_span node, int level, float *out)
{
    const float *held = held_by_a_rank(e, node);
    if (held)
        return held;
    int m = ls_tree_middle(node.lo, node.hi);
    const float *left = evaluate(e, (ls_span){node.lo, m}, level + 1, out);
    const float *right = evaluate(e, (ls_span){m, node.hi}, level + 1, e->temporary[level]);
    for (size_t i = 0; i < e->count; i++)
        out[i] = left[i] + right[i];
    return out;
}

/* Chunks start at multiples of 16 floats, so that no two ranks write the same cache line. */
static void chunk_of(const ls_host_group *group, int rank, size_t *first, size_t *count)
{
    uint32_t line, lines;
    ls_split((uint32_t)(group->desc.floats / 16), (uint32_t)group->base.ranks, (uint32_t)rank,
             &line, &lines);
    *first = (size_t)line * 16;
    *count = (size_t)lines * 16;
}

static void reduce_own_chunk(ls_host_comm *comm, float *total)
{
    size_t first, count;
    evaluation e;
    e.group = comm->group;
    chunk_of(comm->group, comm->base.rank, &first, &count);
    for (size_t done = 0; done < count && !ls_host_is_aborted(comm); done += e.count) {
        e.first = first + done;
        e.count = count - done < PIECE ? count - done : PIECE;
        const float *sum = evaluate(&e, (ls_span){0, comm->group->desc.shards}, 0, total + e.first);
        if (sum != total + e.first)
            memcpy(total + e.first, sum, e.count * sizeof(float));
    }
}

static void gather_other_chunks(ls_host_comm *comm, float *total)
{
    const ls_host_group *group = comm->group;
    for (int r = 0; r < group->base.ranks; r++) {
        size_t first, count;
        chunk_of(group, r, &first, &count);
        if (r != comm->base.rank)
            ls_host_copy(comm, total + first, group->rank[r].total + first, count);
    }
}

static int all_reduce(ls_comm *base, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err)
{
    (void)stream; /* host memory: a rank's partial sums are complete when it calls */
    ls_host_comm *comm = (ls_host_comm *)base;
    int status = ls_host_publish(comm, partials, count, total, times, err);
    if (status)
        return status;
    uint64_t start = ls_now_ns();
    reduce_own_chunk(comm, total);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9;
    status = ls_host_meet(comm, times, err);
    if (status)
        return status;
    start = ls_now_ns();
    gather_other_chunks(comm, total);
    ls_host_unpublish(comm);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9;
    return ls_host_meet(comm, times, err);
}

const ls_comm_type ls_comm_ordered = {
    .name = "ordered",
    .same_bits = 1,
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
