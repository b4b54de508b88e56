#include "merge/group.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/split.h"

#include <string.h>

/* The orders that `reading` stands on, macros so that a test can weaken each one and see
 * ThreadSanitizer object (tests/sync/weakened_orders.sh). */
#ifndef LS_READING_RELEASE /* reader: what the others show was read before they may reuse it */
#define LS_READING_RELEASE memory_order_release
#endif
#ifndef LS_READING_ACQUIRE /* the others: it is reused after it was seen to be read */
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
    /* relaxed: it hands nothing over, and which wait is the first to see it does not matter. */
    atomic_store_explicit(&((ls_merge_group *)base)->timeout_ns, timeout_ns, memory_order_relaxed);
}

uint64_t ls_merge_deadline(const ls_merge_group *group)
{
    return ls_deadline_ns(atomic_load_explicit(&group->timeout_ns, memory_order_relaxed));
}

int ls_merge_may_read(const ls_comm_group *base, int rank)
{
    const ls_merge_group *group = (const ls_merge_group *)base;
    /* The bit first: behind it `reading` is never set again by a rank that will read. */
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
    ls_merge_rank *mine = &group->rank[comm->rank];
    if (count < 0 || count > LS_PARTIALS_MAX)
        return ls_fail(err, LS_EINVAL, "a merge of %d partial sums", count);
    /* A call behind the group's end changes nothing: others may not have left their last one
     * yet. */
    if (ls_merge_aborted(group))
        return ls_fail(err, LS_EABORTED, "the group was aborted");
    for (int i = 0; i < count; i++)
        mine->partials[i] = partials[i];
    mine->count = count;
    mine->total = total;
    /* relaxed: released by the arrival at the meeting. */
    atomic_store_explicit(&mine->reading, true, memory_order_relaxed);
    return LS_OK;
}

int ls_merge_run(ls_comm *comm, const ls_partial *partials, int count, float *total,
                 ls_comm_times *times, ls_merge_work *work, void *arg, ls_error *err)
{
    const uint64_t start = ls_now_ns();
    const double waited = times->wait;
    int status = show(comm, partials, count, total, err);
    if (status == LS_OK)
        status = ls_merge_meet(comm, times, err);
    if (status == LS_OK)
        status = work(comm, arg, err);
    if (status == LS_OK) {
        ls_merge_stop_reading(comm);
        status = ls_merge_meet(comm, times, err);
    }
    times->exposed += (double)(ls_now_ns() - start) * 1e-9 - (times->wait - waited);
    return status;
}
