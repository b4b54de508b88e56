/* The start-up check of a group in host memory: can every rank read what every other one writes,
 * and does a merge add up exactly? */
#include "base/error.h"
#include "base/split.h"
#include "comm/host_group.h"

#include <string.h>

/* Floats that are copied and compared at a time, so that they are compared in the cache. */
#define PIECE ((size_t)1 << 14)

/* ---- everybody reads everybody's memory ----------------------------------------------------- */

/* What rank `rank` writes at float `i`: different for all floats, and for all ranks at a float. */
static uint32_t mark(int rank, size_t i)
{
    return ((uint32_t)i * 2654435761u) ^ ((uint32_t)(rank + 1) * 2246822519u);
}

static void write_marks(float *arena, int rank, size_t floats)
{
    for (size_t i = 0; i < floats; i++) {
        uint32_t word = mark(rank, i);
        memcpy(arena + i, &word, sizeof word);
    }
}

static uint32_t difference(const float *copy, int rank, size_t i)
{
    uint32_t word;
    memcpy(&word, copy + i, sizeof word);
    return word ^ mark(rank, i);
}

/* The first of the floats first … end − 1 of `copy` that is not what `rank` wrote; `end` if all
 * are. All are compared first, in a loop that compilers make vectors of. */
static size_t first_wrong(const float *copy, int rank, size_t first, size_t end)
{
    uint32_t any = 0;
    for (size_t i = first; i < end; i++)
        any |= difference(copy, rank, i);
    if (any == 0)
        return end;
    while (difference(copy, rank, first) == 0)
        first++;
    return first;
}

static int wrong_mark(const ls_host_comm *comm, int from, size_t at, const float *copy,
                      ls_error *err)
{
    const ls_host_rank *rank = comm->group->rank;
    uint32_t word;
    memcpy(&word, copy + at, sizeof word);
    return ls_fail(err, LS_EDEVICE,
                   "start-up check: %s (rank %d) read 0x%08x from %s (rank %d) at float %zu: "
                   "expected 0x%08x",
                   rank[comm->base.rank].name, comm->base.rank, (unsigned)word, rank[from].name,
                   from, at, (unsigned)mark(from, at));
}

static int read_from(const ls_host_comm *comm, int from, float *scratch, ls_error *err)
{
    const float *theirs = comm->group->rank[from].total;
    size_t floats = comm->group->desc.floats;
    for (size_t i = 0; i < floats && !ls_host_is_aborted(comm); i += PIECE) {
        size_t end = floats - i < PIECE ? floats : i + PIECE;
        memcpy(scratch + i, theirs + i, (end - i) * sizeof(float));
        size_t wrong = first_wrong(scratch, from, i, end);
        if (wrong < end)
            return wrong_mark(comm, from, wrong, scratch, err);
    }
    return LS_OK;
}

static int check_pairs(ls_host_comm *comm, float *scratch, float *total, ls_error *err)
{
    ls_comm_times times = {0};
    write_marks(total, comm->base.rank, comm->group->desc.floats);
    int status = ls_host_publish(comm, NULL, 0, total, &times, err);
    for (int r = 0; status == LS_OK && r < comm->base.group->ranks; r++)
        status = read_from(comm, r, scratch, err);
    ls_host_unpublish(comm);
    return status ? status : ls_host_meet(comm, &times, err);
}

/* ---- an exact sum --------------------------------------------------------------------------- */

#define PERIOD ((size_t)1021) /* a prime, so that no two chunks of the arena look alike */

/* Every partial sum of `rank` has this at the floats i, i + PERIOD, …. At most 61, and there are at
 * most LS_SHARDS_MAX partial sums, so that every sum is below 2²⁴ and exact. */
static uint32_t addend(int rank, size_t i)
{
    return 1 + (uint32_t)(i * 31 + (size_t)rank * 57) % 61;
}

/* The nodes of a rank's shards, were they split evenly: enough to merge, whatever the real
 * split. */
static int spans_of(ls_span spans[LS_PARTIALS_MAX], const ls_host_group *group, int rank)
{
    uint32_t first, count;
    ls_split((uint32_t)group->desc.shards, (uint32_t)group->base.ranks, (uint32_t)rank, &first,
             &count);
    return ls_tree_cover(spans, group->desc.shards, (int)first, (int)(first + count));
}

/* One period of the sum over all ranks. */
static void expected_sum(float expected[PERIOD], const ls_host_group *group)
{
    ls_span spans[LS_PARTIALS_MAX];
    uint32_t sum[PERIOD] = {0};
    for (int r = 0; r < group->base.ranks; r++) {
        uint32_t times = (uint32_t)spans_of(spans, group, r);
        for (size_t i = 0; i < PERIOD; i++)
            sum[i] += times * addend(r, i);
    }
    for (size_t i = 0; i < PERIOD; i++)
        expected[i] = (float)sum[i];
}

static int check_total(const ls_host_comm *comm, const float *total, ls_error *err)
{
    const ls_host_group *group = comm->group;
    size_t floats = group->desc.floats, i = 0;
    float expected[PERIOD];
    expected_sum(expected, group);
    while (floats - i > PERIOD && memcmp(total + i, expected, sizeof expected) == 0)
        i += PERIOD;
    for (size_t k = 0; k < PERIOD && i + k < floats; k++)
        if (total[i + k] != expected[k])
            return ls_fail(err, LS_EDEVICE,
                           "start-up check: %s (rank %d) got %g as the sum of integers at float "
                           "%zu: expected %g",
                           group->rank[comm->base.rank].name, comm->base.rank, (double)total[i + k],
                           i + k, (double)expected[k]);
    return LS_OK;
}

static int check_sum(ls_host_comm *comm, ls_stream *stream, float *scratch, float *total,
                     ls_error *err)
{
    const ls_host_group *group = comm->group;
    ls_comm_times times = {0};
    ls_span spans[LS_PARTIALS_MAX];
    ls_partial partials[LS_PARTIALS_MAX];
    int count = spans_of(spans, group, comm->base.rank);
    for (int p = 0; p < count; p++)
        partials[p] = (ls_partial){spans[p], scratch};
    for (size_t i = 0; i < group->desc.floats; i++)
        scratch[i] = i < PERIOD ? (float)addend(comm->base.rank, i) : scratch[i - PERIOD];
    int status =
        group->base.type->all_reduce(&comm->base, stream, partials, count, total, &times, err);
    if (status == LS_OK)
        status = check_total(comm, total, err);
    if (status)
        return status;
    /* Behind the merge nobody reads them any more. */
    memset(scratch, 0, group->desc.floats * sizeof(float));
    memset(total, 0, group->desc.floats * sizeof(float));
    return LS_OK;
}

int ls_host_check(ls_comm *base, ls_stream *stream, float *scratch, float *total, ls_error *err)
{
    ls_host_comm *comm = (ls_host_comm *)base;
    ls_comm_times times = {0};
    int status = check_pairs(comm, scratch, total, err);
    if (status == LS_OK)
        status = check_sum(comm, stream, scratch, total, err);
    if (status)
        ls_host_group_abort(base->group); /* nobody trains with a group that failed */
    return status ? status : ls_host_meet(comm, &times, err); /* all are content, or none is */
}
