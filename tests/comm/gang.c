/* SPDX-License-Identifier: MIT */
#include "comm/gang.h"

#include "base/host.h"
#include "cluster/cluster.h"
#include "ref/ref.h"

#include <lockstep/split.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void must(int status, const ls_error *err)
{
    if (status != LS_OK)
        fail_msg("%s: %s", ls_status_name(status), err->text);
}

static void begin_member(gang *g, int rank)
{
    gang_member *m = &g->member[rank];
    const ls_comm_group_desc *d = &g->desc;
    ls_device_request request = {.size = sizeof request, .index = rank, .threads = 1};
    ls_error err;
    uint32_t first, count;
    ls_split((uint32_t)(d->span.hi - d->span.lo), (uint32_t)d->ranks, (uint32_t)rank, &first,
             &count);
    first += (uint32_t)d->span.lo;
    m->gang = g;
    m->rank = rank;
    must(ls_ref_backend()->open(&m->device, &request, &err), &err);
    m->leaf = ls_alloc_array(NULL, d->floats, sizeof(float));
    m->total = ls_alloc_array(NULL, d->floats, sizeof(float));
    assert_true(m->leaf && m->total);
    must(ls_fold_init(&m->fold, m->device, m->leaf, d->floats, d->shards, (int)first,
                      (int)(first + count), &err),
         &err);
    must(d->type->join(&m->comm, g->group, rank, m->device, &err), &err);
}

void gang_begin(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                uint64_t timeout_ns)
{
    gang_begin_member(g, type, ranks, shards, floats, timeout_ns, NULL, (ls_span){0, shards});
}

void gang_begin_member(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                       uint64_t timeout_ns, struct ls_cluster *members, ls_span span)
{
    ls_error err;
    memset(g, 0, sizeof *g);
    /* The arena is divided like the arena of a model: two parameters, and the tail (a few floats
     * after the parameters). */
    g->segments[1] = floats / 32 * 16;
    g->segments[2] = floats - 16;
    g->segments[3] = floats;
    g->desc = (ls_comm_group_desc){
        .type = type,
        .ranks = ranks,
        .shards = shards,
        .floats = floats,
        .param_offsets = g->segments,
        .param_count = 3,
        .timeout_ns = timeout_ns,
        .members = members,
        .members_ops = &ls_cluster_ops,
        .span = span,
    };
    must(type->group_create(&g->group, &g->desc, &err), &err);
    for (int r = 0; r < ranks; r++)
        begin_member(g, r);
}

void gang_deal(gang *g)
{
    ls_error err;
    int first[GANG_MOST];
    for (int r = 0; r < g->desc.ranks; r++) {
        const ls_span range = g->member[r].fold.range;
        first[r] = r + 1 < g->desc.ranks ? range.lo : range.hi - 1;
    }
    must(ls_deal_create(&g->deal, first, g->desc.ranks, NULL, &err), &err);
    for (int r = 0; r < g->desc.ranks; r++) {
        gang_member *m = &g->member[r];
        ls_span reach;
        ls_deal_join(&m->hand, g->deal, r);
        ls_deal_reach(&m->hand, &reach.lo, &reach.hi);
        must(ls_fold_deal(&m->fold, reach, first[r], &err), &err);
    }
}

void gang_end(gang *g)
{
    ls_deal_destroy(g->deal);
    for (int r = 0; r < g->desc.ranks; r++) {
        gang_member *m = &g->member[r];
        g->desc.type->leave(m->comm);
        ls_fold_fini(&m->fold);
        ls_free(NULL, m->leaf);
        ls_free(NULL, m->total);
        m->device->ops->close(m->device);
    }
    g->desc.type->group_destroy(g->group);
}

struct call {
    gang_member *member;
    void (*body)(gang_member *member);
};

static void *thread_main(void *arg)
{
    struct call *call = arg;
    call->body(call->member);
    return NULL;
}

void gang_run(gang *g, void (*body)(gang_member *member))
{
    struct call call[GANG_MOST];
    for (int r = 0; r < g->desc.ranks; r++) {
        call[r] = (struct call){&g->member[r], body};
        assert_int_equal(pthread_create(&g->member[r].thread, NULL, thread_main, &call[r]), 0);
    }
    for (int r = 0; r < g->desc.ranks; r++)
        assert_int_equal(pthread_join(g->member[r].thread, NULL), 0);
}

static void fold_dealt(gang_member *m,
                       void (*fill)(float *leaf, int shard, size_t floats, void *user), void *user)
{
    int shard;
    ls_deal_begin(&m->hand);
    for (int done = 0; (shard = ls_deal_take(&m->hand)) >= 0; done++) {
        fill(ls_fold_leaf(&m->fold), shard, m->gang->desc.floats, user);
        if (done > 0 && shard == m->hand.lo)
            ls_fold_push_left(&m->fold);
        else
            must(ls_fold_push(&m->fold, &m->err), &m->err);
    }
}

int gang_fold(gang_member *m, void (*fill)(float *leaf, int shard, size_t floats, void *user),
              void *user)
{
    ls_fold_begin(&m->fold);
    if (m->hand.deal)
        fold_dealt(m, fill, user);
    for (int shard = m->fold.range.lo; !m->hand.deal && shard < m->fold.range.hi; shard++) {
        fill(ls_fold_leaf(&m->fold), shard, m->gang->desc.floats, user);
        int status = ls_fold_push(&m->fold, &m->err);
        if (status)
            return status;
    }
    return LS_OK;
}

void gang_ones(float *leaf, int shard, size_t floats, void *user)
{
    (void)shard;
    (void)user;
    for (size_t i = 0; i < floats; i++)
        leaf[i] = 1.0f;
}

int gang_reduce(gang_member *m, void (*fill)(float *leaf, int shard, size_t floats, void *user),
                void *user)
{
    int status = gang_fold(m, fill, user);
    if (status)
        return status;
    return m->gang->desc.type->all_reduce(m->comm, NULL, m->fold.stack, m->fold.depth, m->total,
                                          &m->times, &m->err);
}
