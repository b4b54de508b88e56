/* The start-up check of a group: does what the ranks move arrive, and does a merge add up exactly?
 *
 * Every float that a rank contributes is an integer that depends on the rank and on its place, so
 * that a float from a wrong place, of a wrong rank, or of old memory changes the sum. All sums stay
 * below 2²⁴ and are exact in any order. Each merge moves every rank's floats to every other. At the end
 * both arrays are zero, and the ranks meet once more, so that all of them succeed or none does.
 */
#include "cuda/cuda_comm_group.h"

/* Floats that pass through the host's memory at a time. */
enum { PIECE = 1 << 14, PERIOD = 1021 /* a prime, so that no two chunks look alike */ };

/* At most 61, and there are at most LS_SHARDS_MAX partial sums. */
static uint32_t addend(int rank, size_t i)
{
    return 1 + (uint32_t)(i % PERIOD * 31 + (size_t)rank * 57) % 61;
}

/* The nodes of a rank's shards, were they split evenly: enough to merge, whatever the real split. */
static int spans_of(ls_span spans[LS_PARTIALS_MAX], const ls_cuda_group *group, int rank)
{
    size_t first, count;
    ls_cuda_split((size_t)group->desc.shards, group->base.ranks, rank, &first, &count);
    return ls_cuda_tree_cover(spans, group->desc.shards, (int)first, (int)(first + count));
}

static int write_addends(const ls_cuda_comm *comm, ls_stream *stream, float *piece, float *scratch,
                         ls_error *err)
{
    ls_device *device = &comm->mine->device->device;
    size_t floats = comm->group->desc.floats;
    int status = LS_OK;
    for (size_t at = 0; at < floats && status == LS_OK; at += PIECE) {
        size_t count = floats - at < PIECE ? floats - at : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (float)addend(comm->base.rank, at + i);
        status =
            device->ops->upload(device, stream, scratch + at, piece, count * sizeof *piece, err);
        if (status == LS_OK)
            status = device->ops->sync(device, stream, err);
    }
    return status;
}

static void expected_sums(const ls_cuda_group *group, uint32_t sum[PERIOD])
{
    ls_span spans[LS_PARTIALS_MAX];
    for (size_t i = 0; i < PERIOD; i++)
        sum[i] = 0;
    for (int r = 0; r < group->base.ranks; r++) {
        uint32_t times = (uint32_t)spans_of(spans, group, r);
        for (size_t i = 0; i < PERIOD; i++)
            sum[i] += times * addend(r, i);
    }
}

static int verify_piece(const ls_cuda_comm *comm, const float *piece, size_t at, size_t count,
                        const uint32_t sum[PERIOD], ls_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (piece[i] != (float)sum[(at + i) % PERIOD])
            return ls_fail(err, LS_EDEVICE,
                           "start-up check: %s (rank %d) got %g as the sum of integers at "
                           "float %zu: expected %u",
                           comm->mine->device->name, comm->base.rank, (double)piece[i], at + i,
                           (unsigned)sum[(at + i) % PERIOD]);
    return LS_OK;
}

static int verify(const ls_cuda_comm *comm, ls_stream *stream, float *piece, const float *total,
                  ls_error *err)
{
    ls_device *device = &comm->mine->device->device;
    size_t floats = comm->group->desc.floats;
    uint32_t sum[PERIOD];
    int status = LS_OK;
    expected_sums(comm->group, sum);
    for (size_t at = 0; at < floats && status == LS_OK; at += PIECE) {
        size_t count = floats - at < PIECE ? floats - at : PIECE;
        status =
            device->ops->download(device, stream, piece, total + at, count * sizeof *piece, err);
        if (status == LS_OK)
            status = device->ops->sync(device, stream, err);
        if (status == LS_OK)
            status = verify_piece(comm, piece, at, count, sum, err);
    }
    return status;
}

static int clear(const ls_cuda_comm *comm, ls_stream *stream, float *scratch, float *total,
                 ls_error *err)
{
    ls_cuda_device *d = comm->mine->device;
    size_t bytes = comm->group->desc.floats * sizeof(float);
    cudaError_t e = cudaMemsetAsync(scratch, 0, bytes, ls_cuda_stream(d, stream));
    if (e == cudaSuccess)
        e = cudaMemsetAsync(total, 0, bytes, ls_cuda_stream(d, stream));
    int status = cuda_check(err, e, "%s: clearing %zu bytes", d->name, bytes);
    return status ? status : d->device.ops->sync(&d->device, stream, err);
}

int ls_cuda_comm_check(ls_comm *base, ls_stream *stream, float *scratch, float *total,
                       ls_error *err)
{
    ls_cuda_comm *comm = (ls_cuda_comm *)base;
    const ls_host *host = comm->group->desc.host;
    ls_span spans[LS_PARTIALS_MAX];
    ls_partial partials[LS_PARTIALS_MAX];
    ls_comm_times times = {0};
    int count = spans_of(spans, comm->group, base->rank);
    for (int p = 0; p < count; p++)
        partials[p] = (ls_partial){spans[p], scratch};
    float *piece = ls_alloc(host, PIECE * sizeof *piece);
    int status = piece ? write_addends(comm, stream, piece, scratch, err)
                       : ls_fail(err, LS_ENOMEM, "out of memory for the start-up check");
    if (status == LS_OK)
        status = ls_cuda_comm_all_reduce(base, stream, partials, count, total, &times, err);
    if (status == LS_OK)
        status = verify(comm, stream, piece, total, err);
    if (status == LS_OK)
        status = clear(comm, stream, scratch, total, err);
    if (status == LS_OK)
        status =
            ls_cuda_meet_wait(&comm->group->meet, base->rank, ls_cuda_comm_deadline(comm), err);
    ls_free(host, piece);
    if (status != LS_OK)
        ls_cuda_group_abort(base->group); /* nobody trains with a group that failed */
    return status;
}
