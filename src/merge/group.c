/* SPDX-License-Identifier: MIT */
/* The common part of all communicators (group.h). */
#include "merge/group.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/host.h"
#include "merge/tree.h"

#include <lockstep/split.h>
#include <string.h>

/* The memory orders of the flag `reading` (group.h has the proof). They are macros so that a test
 * can weaken each one and check that ThreadSanitizer reports it
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_READING_RELEASE /* reading rank: it has finished its reads of other ranks' arrays */
#define LS_READING_RELEASE memory_order_release
#endif
#ifndef LS_READING_ACQUIRE /* other threads: they reuse an array only after those reads */
#define LS_READING_ACQUIRE memory_order_acquire
#endif

int ls_merge_group_init(ls_merge_group *group, const ls_comm_group_desc *desc, ls_error *err)
{
    if (desc->ranks < 1 || desc->shards < 1 || desc->floats % 16 != 0)
        return ls_fail(err, LS_EINVAL, "a group of %d ranks, %d shards and %zu floats", desc->ranks,
                       desc->shards, desc->floats);
    group->base.type = desc->type;
    group->base.ranks = desc->ranks;
    group->desc = *desc;
    atomic_init(&group->timeout_ns, desc->timeout_ns);
    group->rank = ls_alloc_array(desc->host, (size_t)desc->ranks, sizeof *group->rank);
    if (!group->rank)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    int status = ls_barrier_init(&group->barrier, desc->host, desc->ranks, desc->spins, err);
    if (status)
        ls_merge_group_fini(group);
    return status;
}

void ls_merge_group_fini(ls_merge_group *group)
{
    ls_barrier_fini(&group->barrier);
    ls_free(group->desc.host, group->rank);
    group->rank = NULL;
}

void ls_merge_abort(ls_comm_group *base)
{
    ls_barrier_abort(&((ls_merge_group *)base)->barrier);
}

bool ls_merge_aborted(const ls_merge_group *group)
{
    return ls_barrier_aborted(&group->barrier);
}

void ls_merge_set_timeout(ls_comm_group *base, uint64_t timeout_ns)
{
    /* relaxed: the time limit publishes no other data, and any wait may be the first that uses the
     * new limit. */
    atomic_store_explicit(&((ls_merge_group *)base)->timeout_ns, timeout_ns, memory_order_relaxed);
}

uint64_t ls_merge_deadline(const ls_merge_group *group)
{
    return ls_deadline_ns(atomic_load_explicit(&group->timeout_ns, memory_order_relaxed));
}

int ls_merge_may_read(const ls_comm_group *base, int rank)
{
    const ls_merge_group *group = (const ls_merge_group *)base;
    /* The abort bit must be loaded before the flag. A rank that sets the flag after the abort is
     * refused at the meeting that follows, and reads nothing. So if the abort bit was found first
     * and the flag is clear, the rank has finished reading (proof in group.h). */
    if (!ls_merge_aborted(group))
        return 1;
    return atomic_load_explicit(&group->rank[rank].reading, LS_READING_ACQUIRE);
}

void ls_merge_stop_reading(const ls_comm *comm)
{
    atomic_store_explicit(&ls_merge_group_of(comm)->rank[comm->rank].reading, false,
                          LS_READING_RELEASE);
}

void ls_merge_chunk(const ls_merge_group *group, int parts, int index, size_t *first, size_t *count)
{
    uint32_t line, lines;
    ls_split((uint32_t)(group->desc.floats / 16), (uint32_t)parts, (uint32_t)index, &line, &lines);
    *first = (size_t)line * 16;
    *count = (size_t)lines * 16;
}

/* ---- a merge -------------------------------------------------------------------------------- */

int ls_merge_meet(const ls_comm *comm, ls_comm_times *times, ls_error *err)
{
    ls_merge_group *group = ls_merge_group_of(comm);
    const uint64_t start = ls_now_ns();
    if (times->waiting)
        times->waiting(times->user, 1);
    int status = ls_barrier_wait(&group->barrier, comm->rank, ls_merge_deadline(group), err);
    if (times->waiting)
        times->waiting(times->user, 0);
    times->wait += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}

static int show(const ls_comm *comm, const ls_partial *partials, int count, float *total,
                ls_error *err)
{
    const ls_merge_group *group = ls_merge_group_of(comm);
    ls_merge_rank *rank = &group->rank[comm->rank];
    if (count < 0 || count > LS_PARTIALS_MAX)
        return ls_fail(err, LS_EINVAL, "a merge of %d partial sums", count);
    /* This function overwrites the pointers that the rank has shown in its previous merge. That is
     * allowed only after the other ranks have finished reading these pointers. If the previous
     * merge was completed, all ranks have arrived at its last meeting, and read nothing of that
     * merge after their arrival. If the previous merge failed, other ranks can still be inside that
     * merge. The group is then aborted, and this check finds the abort. */
    if (ls_merge_aborted(group))
        return ls_fail(err, LS_EABORTED, "the group was aborted");
    for (int i = 0; i < count; i++)
        rank->partials[i] = partials[i];
    rank->count = count;
    rank->total = total;
    rank->digest = comm->digest;
    /* relaxed: the arrival at the meeting has release order and publishes the flag. */
    atomic_store_explicit(&rank->reading, true, memory_order_relaxed);
    return LS_OK;
}

/* Largest number of ranks whose digests a message compares. */
enum { MOST_RANKS = 1024 };

static const char *name_of_rank(void *group, int rank)
{
    return ((const ls_merge_group *)group)->rank[rank].name;
}

/* Compares the digests that all ranks show. Every rank sees the same digests. */
static int compare_digests(ls_merge_group *group, ls_error *err)
{
    uint64_t digest[MOST_RANKS];
    char why[256];
    const int ranks = group->base.ranks;
    bool agree = true;
    for (int r = 1; r < ranks; r++)
        agree &= group->rank[r].digest == group->rank[0].digest;
    if (agree)
        return LS_OK;
    const int some = ranks < MOST_RANKS ? ranks : MOST_RANKS;
    for (int r = 0; r < some; r++)
        digest[r] = group->rank[r].digest;
    ls_digest_explain(why, sizeof why, digest, some, name_of_rank, group);
    return ls_fail(err, LS_EDIVERGED, "%s", why);
}

int ls_merge_begin(ls_comm *comm, const ls_partial *partials, int count, float *total,
                   ls_comm_times *times, ls_error *err)
{
    int status = show(comm, partials, count, total, err);
    if (status == LS_OK)
        status = ls_merge_meet(comm, times, err);
    return status ? status : compare_digests(ls_merge_group_of(comm), err);
}

int ls_merge_end(ls_comm *comm, ls_comm_times *times, ls_error *err)
{
    ls_merge_stop_reading(comm);
    return ls_merge_meet(comm, times, err);
}

int ls_merge_run(ls_comm *comm, const ls_partial *partials, int count, float *total,
                 ls_comm_times *times, ls_merge_work *work, void *arg, ls_error *err)
{
    const uint64_t start = ls_now_ns();
    const double waited = times->wait;
    int status = ls_merge_begin(comm, partials, count, total, times, err);
    if (status == LS_OK)
        status = work(comm, arg, err);
    if (status == LS_OK)
        status = ls_merge_end(comm, times, err);
    times->exposed += (double)(ls_now_ns() - start) * 1e-9 - (times->wait - waited);
    return status;
}

/* ---- over several processes ------------------------------------------------------------------ */

/* Reports that rank 0 is alive while it waits for the other processes on behalf of all ranks. */
static void beat(void *times_)
{
    ls_comm_times *times = times_;
    if (times->waiting)
        times->waiting(times->user, 1);
}

static int sum_over_members(const ls_comm_group_desc *d, ls_comm_times *times, ls_error *err)
{
    const uint64_t start = ls_now_ns();
    const ls_cluster_wait wait = {beat, times};
    int status = d->members_ops->sum(d->members, &wait, err);
    times->wait += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}

int ls_merge_over_members(const ls_comm *comm, ls_comm_times *times, ls_error *err)
{
    const ls_comm_group_desc *d = &ls_merge_group_of(comm)->desc;
    int status = ls_merge_meet(comm, times, err);
    if (status == LS_OK && comm->rank == 0)
        status = sum_over_members(d, times, err);
    if (status == LS_OK)
        status = ls_merge_meet(comm, times, err);
    if (status == LS_OK)
        times->asked |= d->members_ops->agreed(d->members);
    return status;
}

void ls_merge_committed(const ls_comm *comm, int status)
{
    const ls_merge_group *group = ls_merge_group_of(comm);
    if (comm->rank == 0 && ls_merge_has_members(group))
        group->desc.members_ops->commit(group->desc.members, status == LS_OK);
}

/* ---- the rest of the tree -------------------------------------------------------------------- */

void ls_tree_rest_fini(ls_tree_rest *rest, const ls_host *host)
{
    ls_free(host, rest->part);
    *rest = (ls_tree_rest){0};
}

/* Returns the number of partial sums that all ranks show. */
static int partial_sums(const ls_merge_group *group)
{
    int count = 0;
    for (int r = 0; r < group->base.ranks; r++)
        count += group->rank[r].count;
    return count;
}

/* Returns the shards that all ranks of this process have together. */
static ls_span span_of(const ls_merge_group *group)
{
    return ls_merge_has_members(group) ? group->desc.span : (ls_span){0, group->desc.shards};
}

/* Returns whether the list of parts in *rest is still valid. It is valid if its parts are the
 * partial sums that the ranks show now, and if the parts together contain exactly the shards
 * `all`. */
static bool fits(const ls_tree_rest *rest, const ls_merge_group *group, ls_span all)
{
    for (int i = 0; i < rest->count; i++) {
        const ls_tree_rest_part *part = &rest->part[i];
        const ls_merge_rank *rank = &group->rank[part->rank];
        if (part->index >= rank->count || rank->partials[part->index].span.lo != part->span.lo ||
            rank->partials[part->index].span.hi != part->span.hi)
            return false;
    }
    return rest->count > 0 && rest->count == partial_sums(group) && rest->sum[0].lo == all.lo &&
           rest->sum[rest->sums - 1].hi == all.hi;
}

/* Finds the partial sum whose first shard is `shard`, and writes it to *part. The search begins at
 * rank `from`, which has the shard before `shard`, because usually rank `from` or the next rank has
 * `shard`. Returns false if no rank has `shard`. */
static bool find(ls_tree_rest_part *part, const ls_merge_group *group, int shard, int from)
{
    const int ranks = group->base.ranks;
    for (int k = 0; k < ranks; k++) {
        const int r = (from + k) % ranks;
        for (int i = 0; i < group->rank[r].count; i++) {
            const ls_span span = group->rank[r].partials[i].span;
            if (span.lo == shard && span.hi > shard) {
                *part = (ls_tree_rest_part){r, i, span, 0, NULL};
                return true;
            }
        }
    }
    return false;
}

int ls_tree_rest_begin(ls_tree_rest *rest, int parts, const ls_host *host, ls_error *err)
{
    rest->count = rest->depth = rest->sums = 0;
    if (parts <= rest->capacity)
        return LS_OK;
    ls_tree_rest_fini(rest, host);
    rest->part = ls_alloc_array(host, (size_t)parts, sizeof *rest->part);
    if (!rest->part)
        return ls_fail(err, LS_ENOMEM, "out of memory for a merge of %d partial sums", parts);
    rest->capacity = parts;
    return LS_OK;
}

bool ls_tree_rest_push(ls_tree_rest *rest, int shards, const ls_tree_rest_part *part)
{
    ls_span *sum = rest->sum;
    if (rest->count == rest->capacity || rest->sums == LS_PARTIALS_MAX)
        return false;
    ls_tree_rest_part *pushed = &rest->part[rest->count++];
    *pushed = *part;
    pushed->joins = 0;
    sum[rest->sums++] = part->span;
    rest->depth = rest->sums > rest->depth ? rest->sums : rest->depth;
    for (; rest->sums > 1 && ls_tree_joins(shards, sum[rest->sums - 2], sum[rest->sums - 1]);
         rest->sums--) {
        sum[rest->sums - 2].hi = sum[rest->sums - 1].hi;
        pushed->joins++;
    }
    return true;
}

static int build(ls_tree_rest *rest, const ls_merge_group *group, ls_span all, ls_error *err)
{
    const int shards = group->desc.shards;
    ls_span cover[LS_PARTIALS_MAX];
    ls_tree_rest_part part = {0};
    for (int shard = all.lo; shard < all.hi; shard = part.span.hi) {
        if (rest->count == rest->capacity || !find(&part, group, shard, part.rank))
            return ls_fail(err, LS_EINVAL, "no rank has summed shard %d", shard);
        if (!ls_tree_rest_push(rest, shards, &part))
            break;
    }
    if (rest->sums != ls_tree_cover(cover, shards, all.lo, all.hi) ||
        rest->sum[rest->sums - 1].hi != all.hi) {
        rest->count = 0;
        return ls_fail(err, LS_EINVAL,
                       "the ranks' partial sums are no nodes of a tree over %d shards", shards);
    }
    return LS_OK;
}

int ls_tree_rest_update(ls_tree_rest *rest, const ls_merge_group *group, ls_error *err)
{
    const ls_span all = span_of(group);
    int status = LS_OK;
    if (!fits(rest, group, all)) {
        status = ls_tree_rest_begin(rest, partial_sums(group), group->desc.host, err);
        if (status == LS_OK)
            status = build(rest, group, all, err);
    }
    for (int i = 0; status == LS_OK && i < rest->count; i++) {
        ls_tree_rest_part *part = &rest->part[i];
        part->data = group->rank[part->rank].partials[part->index].data;
    }
    return status;
}

/* Number of floats for which the list of parts is executed at a time. The number is so small that
 * the temporary sums of the evaluation stack stay in the first-level cache. */
#define REST_PIECE 256

/* Computes out = left + right. The two loops are separate because compilers vectorise each of them,
 * but not a single loop in which `out` can be equal to `left`. */
static void add(float *out, const float *left, const float *right, size_t count)
{
    if (out == left)
        for (size_t i = 0; i < count; i++)
            out[i] += right[i];
    else
        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
}

/* Executes the list for one piece of at most REST_PIECE floats, which begins at float `first` of
 * the parts. The stack contains rest->sums sums at the end, at its lowest positions. Additions at
 * these positions write directly to `out`; additions at higher positions write to `temporary`. */
static void add_piece(const ls_tree_rest *rest, float *const *out, size_t first, size_t count,
                      float temporary[LS_PARTIALS_MAX][REST_PIECE])
{
    const float *sum[LS_PARTIALS_MAX] = {NULL};
    int depth = 0;
    for (int p = 0; p < rest->count; p++) {
        sum[depth++] = rest->part[p].data + first;
        for (int j = 0; j < rest->part[p].joins; j++) {
            depth--;
            float *to = depth <= rest->sums ? out[depth - 1] : temporary[depth - 1];
            add(to, sum[depth - 1], sum[depth], count);
            sum[depth - 1] = to;
        }
    }
    for (int i = 0; i < rest->sums; i++)
        if (sum[i] != out[i])
            memcpy(out[i], sum[i], count * sizeof(float));
}

/* Executes the list for the floats first … first + count − 1; out[i][0] receives float `first` of
 * sum i. */
static void run_rest(const ls_tree_rest *rest, float *out[LS_PARTIALS_MAX], size_t first,
                     size_t count)
{
    float temporary[LS_PARTIALS_MAX][REST_PIECE];
    for (size_t done = 0; done < count; done += REST_PIECE) {
        const size_t left = count - done, piece = left < REST_PIECE ? left : REST_PIECE;
        add_piece(rest, out, first + done, piece, temporary);
        for (int i = 0; i < rest->sums; i++)
            out[i] += piece;
    }
}

void ls_tree_rest_add(const ls_tree_rest *rest, float *const *out, size_t first, size_t count)
{
    float *at[LS_PARTIALS_MAX];
    for (int i = 0; i < rest->sums; i++)
        at[i] = out[i] + first;
    run_rest(rest, at, first, count);
}

void ls_tree_rest_write(const ls_tree_rest *rest, float *out, size_t first, size_t count)
{
    float *at[LS_PARTIALS_MAX] = {out};
    run_rest(rest, at, first, count);
}

/* ---- the start-up check ---------------------------------------------------------------------- */

/* Number of floats that pass through host memory at a time. */
#define PIECE ((size_t)1 << 14)
#define PERIOD ((size_t)1021) /* period of the integers; prime, so that chunks differ */

/* Returns the integer that each partial sum of `rank` contains at float number `i`. The integer is
 * at most 61, and there are at most LS_SHARDS_MAX partial sums, so all sums are below 2²⁴. */
static uint32_t addend(int rank, size_t i)
{
    return 1 + (uint32_t)(i % PERIOD * 31 + (size_t)rank * 57) % 61;
}

/* Writes the cover of the shards that an even split would give to `rank`. The check uses an even
 * split even if the run splits the shards unevenly. */
static int spans_of(ls_span spans[LS_PARTIALS_MAX], const ls_merge_check *c, int rank)
{
    uint32_t first, count;
    ls_split((uint32_t)c->shards, (uint32_t)c->comm->group->ranks, (uint32_t)rank, &first, &count);
    return ls_tree_cover(spans, c->shards, (int)first, (int)(first + count));
}

/* Fills `scratch` with this rank's integers, each multiplied by `factor`. */
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

/* Merges `scratch` of all ranks into `total`. A rank passes its `scratch` as the array of each of
 * its partial sums. */
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

/* Computes the expected sums over all ranks, for one period of the integers. */
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
    ls_merge_group_of(c->comm)->rank[c->comm->rank].in_startup_check = true;
    int status = piece ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the start-up check");
    if (status == LS_OK && type->check_reads)
        status = type->check_reads(c->comm, c->scratch, c->total, err);
    if (status == LS_OK)
        status = write_addends(c, piece, 1, err);
    if (status == LS_OK)
        status = merge(c, err);
    if (status == LS_OK)
        status = verify(c, piece, err);
    if (status == LS_OK) /* writes zeros; after the merge above no rank reads the integers */
        status = write_addends(c, piece, 0, err);
    if (status == LS_OK)
        status = merge(c, err); /* sets `total` to 0; succeeds on all ranks or on none */
    ls_free(c->host, piece);
    if (status)
        type->abort(group); /* no rank may train with this group; other ranks are possibly still
                             * checking */
    else
        ls_merge_group_of(c->comm)->rank[c->comm->rank].in_startup_check = false;
    return status;
}
