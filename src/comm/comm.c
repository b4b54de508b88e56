/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 16 }; /* largest number of types of communicators that ls_comm_find considers */

const ls_comm_type *const *ls_comm_types(void)
{
#define LS_COMM(name) &ls_comm_##name,
    static const ls_comm_type *const types[] = {
#include "comm/comms.def"
        NULL};
#undef LS_COMM
    return types;
}

const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY])
{
    const char *names[NAMES];
    char list[LS_COMM_WHY] = "";
    size_t count = 0, used = 0;
    for (; count < NAMES && types[count]; count++) {
        names[count] = types[count]->name;
        if (strcmp(name, names[count]) == 0)
            return types[count];
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "",
                                     names[count]);
    }
    const char *near = ls_closest(name, names, count);
    if (near)
        snprintf(why, LS_COMM_WHY, "did you mean '%s'?", near);
    else
        snprintf(why, LS_COMM_WHY, "use one of %.*s", LS_COMM_WHY - 12, list);
    return NULL;
}

/* ---- groups in host memory ------------------------------------------------------------------- *
 * These functions implement groups whose ranks read each other's arrays in host memory (comm.h).
 * All such groups are of the type ls_merge_group. */

/* After this number of floats, a loop that copies or compares checks again whether the group is
 * aborted. This number of floats takes a few microseconds. */
#define FLOATS_PER_CHECK ((size_t)1 << 14)

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err)
{
    ls_merge_group *group = ls_alloc(desc->host, sizeof *group);
    if (!group)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", desc->ranks);
    int status = ls_merge_group_init(group, desc, err);
    if (status) {
        ls_free(desc->host, group);
        return status;
    }
    *out = &group->base;
    return LS_OK;
}

float *ls_host_group_total(ls_comm_group *base)
{
    ls_merge_group *group = (ls_merge_group *)base;
    if (!group->total)
        group->total = ls_alloc_array(group->desc.host, group->desc.floats, sizeof *group->total);
    return group->total;
}

void ls_host_group_destroy(ls_comm_group *base)
{
    ls_merge_group *group = (ls_merge_group *)base;
    if (!group)
        return;
    const ls_host *host = group->desc.host;
    ls_free(host, group->total);
    ls_merge_group_fini(group);
    ls_free(host, group);
}

int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err)
{
    ls_merge_group *group = (ls_merge_group *)base;
    ls_device_info info;
    device->ops->describe(device, &info);
    if (!(info.flags & LS_DEVICE_HOST_MEMORY))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "allreduce '%s' needs devices that share host memory; "
                       "%s does not",
                       base->type->name, info.name);
    ls_host_comm *comm = ls_alloc(group->desc.host, sizeof *comm);
    if (!comm)
        return ls_fail(err, LS_ENOMEM, "out of memory for a communicator");
    /* comm->rest: the list of additions of the shard tree that remain for a merge
     * (merge/group.h) */
    const int all = base->ranks * LS_PARTIALS_MAX;
    int status = ls_tree_rest_begin(
        &comm->rest, group->desc.shards < all ? group->desc.shards : all, group->desc.host, err);
    if (status) {
        ls_free(group->desc.host, comm);
        return status;
    }
    comm->base.group = base;
    comm->base.rank = rank;
    snprintf(group->rank[rank].name, sizeof group->rank[rank].name, "%s", info.name);
    *out = &comm->base;
    return LS_OK;
}

void ls_host_leave(ls_comm *base)
{
    ls_host_comm *comm = (ls_host_comm *)base;
    if (!comm)
        return;
    const ls_host *host = ls_merge_group_of(base)->desc.host;
    ls_tree_rest_fini(&comm->rest, host);
    ls_free(host, comm);
}

void ls_host_copy(const ls_merge_group *group, float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count && !ls_merge_aborted(group); i += FLOATS_PER_CHECK)
        memcpy(to + i, from + i,
               (count - i < FLOATS_PER_CHECK ? count - i : FLOATS_PER_CHECK) * sizeof(float));
}

/* ---- start-up check: every rank reads every rank's memory ------------------------------------ */

/* Returns the 32-bit pattern that `rank` writes as float `i` of its arena. Patterns of
 * different ranks differ for the same `i`, and patterns of one rank differ for different `i`. */
static uint32_t pattern(int rank, size_t i)
{
    return ((uint32_t)i * 2654435761u) ^ ((uint32_t)(rank + 1) * 2246822519u);
}

/* Returns a word whose bits are 1 where float `i` of `arena` differs from the pattern of `rank`. */
static uint32_t difference(const float *arena, int rank, size_t i)
{
    uint32_t word;
    memcpy(&word, arena + i, sizeof word);
    return word ^ pattern(rank, i);
}

/* Returns whether the floats first … end − 1 of `arena` have the pattern of `rank`. The loop has no
 * early exit, so compilers vectorise it. */
static bool have_pattern(const float *arena, int rank, size_t first, size_t end)
{
    uint32_t any = 0;
    for (size_t i = first; i < end; i++)
        any |= difference(arena, rank, i);
    return any == 0;
}

/* Writes the error for the floats first … end − 1 of rank `from`, of which at least one was wrong.
 * Reads these floats again to name the first wrong one. If all are correct now, the message says
 * that two reads gave different results. */
static int report_difference(const ls_comm *comm, int from, size_t first, size_t end, ls_error *err)
{
    const ls_merge_rank *rank = &ls_merge_group_of(comm)->rank[comm->rank];
    const ls_merge_rank *owner = &ls_merge_group_of(comm)->rank[from];
    size_t i = first;
    uint32_t wrong = 0;
    while (i < end && (wrong = difference(owner->total, from, i)) == 0)
        i++;
    if (i == end)
        return ls_fail(err, LS_EDEVICE,
                       "start-up check: %s (rank %d) read floats %zu to %zu of %s (rank %d) twice, "
                       "and not the same",
                       rank->name, comm->rank, first, end - 1, owner->name, from);
    return ls_fail(err, LS_EDEVICE,
                   "start-up check: %s (rank %d) read 0x%08x from %s (rank %d) at float %zu: "
                   "expected 0x%08x",
                   rank->name, comm->rank, (unsigned)(wrong ^ pattern(from, i)), owner->name, from,
                   i, (unsigned)pattern(from, i));
}

/* Compares the whole pattern of rank `from`. */
static int read_from(const ls_comm *comm, int from, ls_error *err)
{
    const ls_merge_group *group = ls_merge_group_of(comm);
    const float *total = group->rank[from].total;
    const size_t floats = group->desc.floats;
    for (size_t i = 0; i < floats && !ls_merge_aborted(group); i += FLOATS_PER_CHECK) {
        size_t end = floats - i < FLOATS_PER_CHECK ? floats : i + FLOATS_PER_CHECK;
        if (!have_pattern(total, from, i, end))
            return report_difference(comm, from, i, end, err);
    }
    return LS_OK;
}

static int read_all(ls_comm *comm, void *unused, ls_error *err)
{
    int status = LS_OK;
    (void)unused;
    for (int r = 0; status == LS_OK && r < comm->group->ranks; r++)
        status = read_from(comm, r, err);
    return status;
}

int ls_host_check_reads(ls_comm *base, float *scratch, float *total, ls_error *err)
{
    ls_comm_times times = {0};
    const ls_merge_group *group = ls_merge_group_of(base);
    /* All ranks may share the array group->total as their total. A shared array cannot hold a
     * pattern of each rank, so each rank then writes its pattern to its scratch array. In
     * ls_merge_run and read_from, the array written here takes the place of the rank's total. */
    float *written = total == group->total ? scratch : total;
    for (size_t i = 0; i < group->desc.floats; i++) {
        const uint32_t word = pattern(base->rank, i);
        memcpy(written + i, &word, sizeof word);
    }
    int status = ls_merge_run(base, NULL, 0, written, &times, read_all, NULL, err);
    ls_merge_stop_reading(base);
    return status;
}
