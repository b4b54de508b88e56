/* SPDX-License-Identifier: MIT */
#include "cuda/comm_gang.h"

#include "cluster/cluster.h"
#include "merge/group.h"

#include <lockstep/split.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

ls_plugin_entry_fn ls_plugin_backend; /* the plugin's, linked in */

static const ls_backend *backend(void)
{
    return ls_plugin_backend();
}

void comm_gang_fill(float *leaf, int shard, int step, size_t floats)
{
    for (size_t i = 0; i < floats; i++) {
        uint32_t w = (uint32_t)i * 2654435761u ^ (uint32_t)(shard * 64 + step + 1) * 2246822519u;
        w ^= w >> 15;
        w *= 2246822519u;
        w ^= w >> 13;
        float value = (float)(w >> 8) / (float)(1 << (w & 15));
        leaf[i] = w & 128 ? value : -value;
    }
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int alloc_floats(float **out, comm_member *m)
{
    void *memory = NULL;
    int status = m->device->ops->alloc(&memory, m->device, m->gang->floats * sizeof **out, &m->err);
    *out = memory;
    return status;
}

static int open_member(comm_member *m)
{
    comm_gang *g = m->gang;
    const int gpu = g->gpus ? g->gpus[m->rank] : g->share ? 0 : m->rank;
    ls_device_request request = {.size = sizeof request, .index = gpu, .threads = 1};
    const uint32_t shards = (uint32_t)(g->members ? g->span.hi - g->span.lo : g->shards);
    uint32_t first, count;
    ls_split(shards, (uint32_t)g->ranks, (uint32_t)m->rank, &first, &count);
    first += (uint32_t)g->span.lo;
    int status = backend()->open(&m->device, &request, &m->err);
    if (status == LS_OK)
        status = m->device->ops->bind(m->device, &m->err);
    if (status == LS_OK)
        status = alloc_floats(&m->leaf, m);
    if (status == LS_OK)
        status = alloc_floats(&m->total, m);
    if (status == LS_OK)
        status = ls_fold_init(&m->fold, m->device, m->leaf, g->floats, g->shards, (int)first,
                              (int)(first + count), &m->err);
    m->has_fold = status == LS_OK;
    return status;
}

static void close_member(comm_member *m)
{
    if (m->comm)
        m->gang->type->leave(m->comm);
    if (m->has_fold)
        ls_fold_fini(&m->fold);
    if (m->leaf)
        m->device->ops->free(m->device, m->leaf);
    if (m->total)
        m->device->ops->free(m->device, m->total);
    if (m->device)
        m->device->ops->close(m->device);
}

/* ---- a rank's life -------------------------------------------------------------------------- */

/* Does as a backward pass does: fills the leaf segment by segment from its start, and calls
 * merge_ready for the filled part. */
static int fill_leaf_ahead(comm_member *m)
{
    const comm_gang *g = m->gang;
    int status = LS_OK;
    for (int s = 1; s <= g->segment_count && status == LS_OK; s++) {
        size_t from = g->segments[s - 1], end = s < g->segment_count ? g->segments[s] : g->floats;
        status = m->device->ops->upload(m->device, NULL, m->leaf + from, m->host + from,
                                        (end - from) * sizeof(float), &m->err);
        if (status == LS_OK && s < g->segment_count)
            status = g->type->merge_ready(m->comm, NULL, m->leaf, m->total, end, &m->err);
    }
    return status;
}

static int compute(comm_member *m, int step)
{
    const ls_device_ops *ops = m->device->ops;
    size_t bytes = m->gang->floats * sizeof(float);
    int status = LS_OK;
    ls_fold_begin(&m->fold);
    for (int shard = m->fold.range.lo; shard < m->fold.range.hi && status == LS_OK; shard++) {
        comm_gang_fill(m->host, shard, step, m->gang->floats);
        status = m->gang->ahead ? fill_leaf_ahead(m)
                                : ops->upload(m->device, NULL, m->leaf, m->host, bytes, &m->err);
        if (status == LS_OK)
            status = ls_fold_push(&m->fold, &m->err);
    }
    return status;
}

static int do_step(comm_member *m, int step)
{
    const ls_device_ops *ops = m->device->ops;
    size_t bytes = m->gang->floats * sizeof(float);
    int status = compute(m, step);
    if (status == LS_OK && m->gang->between)
        status = m->gang->between(m, step);
    if (status == LS_OK)
        status = m->gang->type->all_reduce(m->comm, NULL, m->fold.stack, m->fold.depth, m->total,
                                           &m->times, &m->err);
    m->merged += status == LS_OK;
    if (status == LS_OK)
        status = ops->download(m->device, NULL, m->result[step], m->total, bytes, &m->err);
    if (status == LS_OK)
        status = ops->sync(m->device, NULL, &m->err);
    m->steps_done += status == LS_OK;
    return status;
}

/* Waits until all ranks have joined, as in a trainer, where no rank merges before. */
static void wait_for_all(comm_gang *g)
{
    if (atomic_fetch_add(&g->opened, 1) + 1 == g->ranks) {
        if (g->plant)
            g->plant();
        atomic_store(&g->planted, 1);
    }
    while (!atomic_load(&g->planted))
        sched_yield();
}

static int check(comm_member *m)
{
    const ls_merge_check check = {.comm = m->comm,
                                  .device = m->device,
                                  .shards = m->gang->shards,
                                  .floats = m->gang->floats,
                                  .scratch = m->leaf,
                                  .total = m->total};
    return ls_merge_check_group(&check, &m->err);
}

static int work(comm_member *m)
{
    comm_gang *g = m->gang;
    int status = m->status;
    if (g->absent == m->rank + 1)
        return status;
    if (status == LS_OK && g->check)
        status = check(m);
    for (int step = g->first_step; step < g->steps && status == LS_OK; step++)
        status = do_step(m, step);
    return status;
}

static void *member_main(void *arg)
{
    comm_member *m = arg;
    comm_gang *g = m->gang;
    m->status = open_member(m);
    if (m->status == LS_OK)
        m->status = g->type->join(&m->comm, g->group, m->rank, m->device, &m->err);
    if (m->status != LS_OK)
        g->type->abort(g->group);
    wait_for_all(g);
    m->status = work(m);
    if (m->status != LS_OK)
        g->type->abort(g->group);
    if (g->last && g->absent != m->rank + 1)
        g->last(m);
    /* No rank frees memory that a late rank may still read. */
    atomic_fetch_add(&g->returned, 1);
    while (atomic_load(&g->returned) < g->ranks)
        sched_yield();
    close_member(m);
    return NULL;
}

/* Makes each segment a bucket. Writes the ends of the buckets, and returns their number. */
static int cut_buckets(size_t ends[GANG_SEGMENTS], const comm_gang *g)
{
    int count = 0;
    for (int s = 1; s < g->segment_count; s++)
        ends[count++] = g->segments[s];
    ends[count++] = g->floats;
    return count;
}

void comm_gang_run(comm_gang *g)
{
    size_t ends[GANG_SEGMENTS];
    ls_comm_group_desc desc = {
        .type = g->type,
        .ranks = g->ranks,
        .shards = g->shards,
        .floats = g->floats,
        .param_offsets = g->segments,
        .param_count = g->segment_count,
        .buckets = ends,
        .bucket_count = cut_buckets(ends, g),
        .timeout_ns = g->timeout_ns ? g->timeout_ns : 5000000000u,
        .members = g->members,
        .members_ops = &ls_cluster_ops,
        .span = g->span,
    };
    g->group_status = g->type->group_create(&g->group, &desc, &g->group_err);
    if (g->group_status != LS_OK)
        return;
    for (int r = 0; r < g->ranks; r++) {
        comm_member *m = &g->member[r];
        m->gang = g;
        m->rank = r;
        m->host = calloc(g->floats, sizeof *m->host);
        for (int s = 0; s < g->steps; s++)
            m->result[s] = calloc(g->floats, sizeof *m->host);
    }
    for (int r = 0; r < g->ranks; r++)
        if (pthread_create(&g->member[r].thread, NULL, member_main, &g->member[r]) != 0)
            abort();
    for (int r = 0; r < g->ranks; r++)
        pthread_join(g->member[r].thread, NULL);
    g->type->group_destroy(g->group);
}

void comm_gang_free(comm_gang *g)
{
    for (int r = 0; r < g->ranks; r++) {
        free(g->member[r].host);
        for (int s = 0; s < g->steps; s++)
            free(g->member[r].result[s]);
    }
}

static const comm_member *speaker(const comm_gang *g)
{
    const comm_member *first = NULL;
    for (int r = 0; r < g->ranks; r++) {
        const comm_member *m = &g->member[r];
        if (m->status != LS_OK && (!first || first->status == LS_EABORTED))
            first = m;
    }
    return first;
}

int comm_gang_status(const comm_gang *g)
{
    const comm_member *m = speaker(g);
    return g->group_status != LS_OK ? g->group_status : m ? m->status : LS_OK;
}

const char *comm_gang_text(const comm_gang *g)
{
    const comm_member *m = speaker(g);
    return g->group_status != LS_OK ? g->group_err.text : m ? m->err.text : "";
}
