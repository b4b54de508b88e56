#include "merge/check.h"

#include "base/error.h"
#include "base/host.h"
#include "base/split.h"
#include "merge/tree.h"

/* Floats that pass through the host's memory at a time. */
#define PIECE ((size_t)1 << 14)
#define PERIOD ((size_t)1021) /* a prime, so that no two chunks of the arena look alike */

/* What every partial sum of `rank` has at float `i`. At most 61, and there are at most LS_SHARDS_MAX
 * partial sums. */
static uint32_t addend(int rank, size_t i)
{
    return 1 + (uint32_t)(i % PERIOD * 31 + (size_t)rank * 57) % 61;
}

/* The nodes of a rank's shards, were they split evenly: enough to merge, whatever the real split. */
static int spans_of(ls_span spans[LS_PARTIALS_MAX], const ls_merge_check *c, int rank)
{
    uint32_t first, count;
    ls_split((uint32_t)c->shards, (uint32_t)c->comm->group->ranks, (uint32_t)rank, &first, &count);
    return ls_tree_cover(spans, c->shards, (int)first, (int)(first + count));
}

/* scratch ← this rank's addends, each `factor` times. */
static int write_addends(const ls_merge_check *c, float *piece, uint32_t factor, ls_error *err)
{
    const ls_device_ops *ops = c->device->ops;
    int status = LS_OK;
    for (size_t at = 0; at < c->floats && status == LS_OK; at += PIECE) {
        const size_t count = c->floats - at < PIECE ? c->floats - at : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (float)(factor * addend(c->comm->rank, at + i));
        status =
            ops->upload(c->device, c->stream, c->scratch + at, piece, count * sizeof *piece, err);
        if (status == LS_OK)
            status = ops->sync(c->device, c->stream, err);
    }
    return status;
}

static int merge(const ls_merge_check *c, ls_error *err)
{
    ls_span spans[LS_PARTIALS_MAX];
    ls_partial partials[LS_PARTIALS_MAX];
    ls_comm_times times = {0};
    const int count = spans_of(spans, c, c->comm->rank);
    for (int p = 0; p < count; p++)
        partials[p] = (ls_partial){spans[p], c->scratch};
    return c->comm->group->type->all_reduce(c->comm, c->stream, partials, count, c->total, &times,
                                            err);
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* One period of the sum over all ranks. */
static void expected_sums(uint32_t sum[PERIOD], const ls_merge_check *c)
{
    ls_span spans[LS_PARTIALS_MAX];
    for (size_t i = 0; i < PERIOD; i++)
        sum[i] = 0;
    for (int r = 0; r < c->comm->group->ranks; r++) {
        const uint32_t times = (uint32_t)spans_of(spans, c, r);
        for (size_t i = 0; i < PERIOD; i++)
            sum[i] += times * addend(r, i);
    }
}

static int compare(const ls_merge_check *c, const float *piece, size_t at, size_t count,
                   const uint32_t sum[PERIOD], ls_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t expected = sum[(at + i) % PERIOD];
        ls_device_info info;
        if (piece[i] == (float)expected)
            continue;
        c->device->ops->describe(c->device, &info);
        return ls_fail(err, LS_EDEVICE,
                       "start-up check: %s (rank %d) got %g as the sum of integers at float %zu: "
                       "expected %u",
                       info.name, c->comm->rank, (double)piece[i], at + i, (unsigned)expected);
    }
    return LS_OK;
}

static int verify(const ls_merge_check *c, float *piece, ls_error *err)
{
    const ls_device_ops *ops = c->device->ops;
    uint32_t sum[PERIOD];
    int status = LS_OK;
    expected_sums(sum, c);
    for (size_t at = 0; at < c->floats && status == LS_OK; at += PIECE) {
        const size_t count = c->floats - at < PIECE ? c->floats - at : PIECE;
        status =
            ops->download(c->device, c->stream, piece, c->total + at, count * sizeof *piece, err);
        if (status == LS_OK)
            status = ops->sync(c->device, c->stream, err);
        if (status == LS_OK)
            status = compare(c, piece, at, count, sum, err);
    }
    return status;
}

int ls_merge_check_group(const ls_merge_check *c, ls_error *err)
{
    ls_comm_group *group = c->comm->group;
    const ls_comm_type *type = group->type;
    float *piece = ls_alloc_array(c->host, PIECE, sizeof *piece);
    int status = piece ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the start-up check");
    if (status == LS_OK && type->check_reads)
        status = type->check_reads(c->comm, c->scratch, c->total, err);
    if (status == LS_OK)
        status = write_addends(c, piece, 1, err);
    if (status == LS_OK)
        status = merge(c, err);
    if (status == LS_OK)
        status = verify(c, piece, err);
    if (status == LS_OK) /* behind the merge nobody reads them any more */
        status = write_addends(c, piece, 0, err);
    if (status == LS_OK)
        status = merge(c, err); /* all are content, or none is */
    ls_free(c->host, piece);
    if (status != LS_OK)
        type->abort(group); /* nobody trains with a group that failed */
    return status;
}
