/* SPDX-License-Identifier: MIT */
/* Tests the communicator `ordered` (src/comm/comm.h) with several processes that have several
 * workers each. The sums must be bit-identical, because all processes add in the order of the same
 * tree. */
#include "cluster/cluster.h"
#include "cluster/wire_double.h"
#include "comm/gang.h"
#include "runner.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { FLOATS = 4112, STEPS = 3, MAX_MEMBERS = 4 };

typedef struct process {
    pthread_t thread;
    wire_place place;
    int workers, shards;
    uint64_t hash;
    int status;
    ls_error err;
} process;

/* Fills a leaf with numbers that differ so much in size that every other order of additions gives
 * other bits. */
static void fill(float *leaf, int shard, size_t floats, void *user)
{
    const int step = *(const int *)user;
    for (size_t i = 0; i < floats; i++) {
        uint32_t x = 2654435761u * (uint32_t)(shard + 1 + 31 * step) + (uint32_t)i * 1664525u;
        x = x * 1664525u + 1013904223u;
        leaf[i] = ((float)((x >> 4) & 0x7fffff) / 8388608 - 0.5f) * (float)(1u << (x >> 27 & 15));
    }
}

static void reduce(gang_member *m)
{
    ls_fold_begin(&m->fold);
    m->status = gang_reduce(m, fill, m->gang->user);
}

static uint64_t add_hash(uint64_t hash, const float *data)
{
    for (size_t i = 0; i < FLOATS; i++) {
        uint32_t word;
        memcpy(&word, data + i, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

static void train(process *p, ls_cluster *members)
{
    static gang gangs[MAX_MEMBERS];
    gang *g = &gangs[p->place.member];
    ls_span span = {0, p->shards};
    if (members)
        ls_cluster_span(members, p->shards, p->place.member, &span.lo, &span.hi);
    gang_begin_member(g, &ls_comm_ordered, p->workers, p->shards, FLOATS, UINT64_MAX, members,
                      span);
    p->hash = 1469598103934665603u;
    for (int step = 0; step < STEPS && p->status == LS_OK; step++) {
        g->user = &step;
        gang_run(g, reduce);
        for (int r = 0; r < p->workers; r++) {
            p->status = p->status ? p->status : g->member[r].status;
            p->err = g->member[r].status ? g->member[r].err : p->err;
            if (memcmp(g->member[r].total, g->member[0].total, FLOATS * sizeof(float)) != 0)
                p->status = LS_EDIVERGED;
        }
        p->hash = add_hash(p->hash, g->member[0].total);
    }
    gang_end(g);
}

static void *run_process(void *arg)
{
    process *p = arg;
    ls_cluster *c;
    const ls_cluster_options o = {.type = &wire_double,
                                  .place = &p->place,
                                  .deadline_ns = 20000000000u,
                                  .open_ns = 20000000000u};
    p->status = ls_cluster_open(&c, &o, &p->err);
    if (p->status)
        return NULL;
    p->status = ls_cluster_prepare(c, p->shards, FLOATS, &p->err);
    if (p->status == LS_OK)
        train(p, c);
    ls_cluster_close(c);
    return NULL;
}

static uint64_t run_alone(int shards)
{
    process p = {.workers = 1, .shards = shards};
    train(&p, NULL);
    assert_int_equal(p.status, LS_OK);
    return p.hash;
}

static void run_members(int members, int workers, int shards, uint64_t expected)
{
    process p[MAX_MEMBERS];
    wire_world *world = wire_world_create(members);
    wire_world_delay(world, 500000, (unsigned)(members * 10 + workers));
    memset(p, 0, sizeof p);
    for (int m = 0; m < members; m++) {
        p[m].place = (wire_place){world, m};
        p[m].shards = shards;
        /* The hosts have different numbers of workers, but no host has more workers than shards. */
        p[m].workers = m % 2 && workers > 1 ? workers - 1 : workers;
        if (p[m].workers > shards / members)
            p[m].workers = shards / members;
        assert_int_equal(pthread_create(&p[m].thread, NULL, run_process, &p[m]), 0);
    }
    for (int m = 0; m < members; m++) {
        pthread_join(p[m].thread, NULL);
        if (p[m].status)
            fail_msg("%d × %d, member %d: %s", members, workers, m, p[m].err.text);
        assert_true(p[m].hash == expected);
    }
    wire_world_destroy(world);
}

static void workers_of_any_number_of_hosts_get_the_bits_of_one(void **state)
{
    (void)state;
    static const int shards[] = {7, 8, 12, 24};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++) {
        const uint64_t expected = run_alone(shards[s]);
        for (int members = 1; members <= MAX_MEMBERS; members++)
            for (int workers = 1; workers <= 3; workers++)
                run_members(members, workers, shards[s], expected);
    }
}

LS_TESTS(cluster_members, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_of_any_number_of_hosts_get_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
