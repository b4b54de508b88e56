/* SPDX-License-Identifier: MIT */
/* Tests the memory of sums over several processes that are connected by TCP. After the first sums,
 * a sum allocates nothing. The memory of sums is freed after processes are lost. A thread of the
 * test stands for each process. */
#include "cluster/cluster.h"
#include "free_port.h"
#include "runner.h"
#include "train/count_malloc.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MEMBERS = 3, WARM = 20, SUMS = 1020, SHARDS = 8, FLOATS = 1 << 16 };
#define SECOND ((uint64_t)1000000000u)

typedef struct member {
    pthread_t thread;
    char meet[40];
    int number, status;
    _Atomic size_t bytes; /* number of bytes that the member has allocated and not freed */
    ls_error err;
    ls_cluster *cluster;
} member;

static void *alloc_counted(void *user, size_t bytes, size_t align)
{
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    ((member *)user)->bytes += malloc_usable_size(memory);
    return memory;
}

static void free_counted(void *user, void *memory)
{
    ((member *)user)->bytes -= memory ? malloc_usable_size(memory) : 0;
    free(memory);
}

static int sum(member *m)
{
    int status = ls_cluster_sum(m->cluster, NULL, &m->err);
    if (status == LS_OK)
        ls_cluster_commit(m->cluster, 1);
    return status;
}

/* number of allocations of the whole test program from the first member's sum number WARM to its
 * last sum. No other member has passed its last sum at that time */
static long allocations;

static int sum_often(member *m)
{
    int status = ls_cluster_prepare(m->cluster, SHARDS, FLOATS, &m->err);
    const struct timespec signs_of_life = {.tv_nsec = 600000000};
    for (int k = 0; k < SUMS && status == LS_OK; k++) {
        if (m->number == 0 && k == WARM)
            /* after this time all members have received the first sign of life */
            nanosleep(&signs_of_life, NULL);
        if (m->number == 0 && (k == WARM || k == SUMS - 1))
            allocations = count_malloc_calls() - (k == WARM ? 0 : allocations);
        status = sum(m);
    }
    return status;
}

/* Loses two members one after the other: the member with the highest number leaves, then the
 * remaining member with the highest number. */
static int lose_two(member *m)
{
    int status = ls_cluster_prepare(m->cluster, SHARDS, FLOATS, &m->err);
    ls_cluster_regroups(m->cluster);
    for (int left = MEMBERS; left > 1 && status == LS_OK; left--) {
        const size_t before = m->bytes;
        status = sum(m);
        if (ls_cluster_member(m->cluster) == left - 1) {
            ls_cluster_leave(m->cluster, "it is to be missed");
            return status;
        }
        while (status == LS_OK)
            status = sum(m);
        status = ls_cluster_lost(m->cluster) ? ls_cluster_regroup(m->cluster, &m->err) : status;
        if (status == LS_OK)
            status = ls_cluster_prepare(m->cluster, SHARDS, FLOATS, &m->err);
        /* nodes and total of both sums */
        assert_true(m->bytes > before + 2 * FLOATS * sizeof(float));
        ls_cluster_free_old(m->cluster);
        assert_true(m->bytes < before + FLOATS * sizeof(float) * (SHARDS / 2));
    }
    return status;
}

static int (*body)(member *m);

static void *run_member(void *arg)
{
    member *m = arg;
    static const char key[] = "a secret that no other run has";
    const ls_host host = {sizeof host, alloc_counted, free_counted, NULL, m};
    const ls_tcp_place place = {.size = sizeof place,
                                .meet = m->meet,
                                .secret = key,
                                .secret_bytes = sizeof key,
                                .members = MEMBERS,
                                .timeout = 20 * SECOND};
    const ls_cluster_options o = {.type = ls_transport_tcp(),
                                  .place = &place,
                                  .deadline_ns = 4 * SECOND,
                                  .open_ns = 20 * SECOND,
                                  .regroups = true,
                                  .host = &host};
    m->status = ls_cluster_open(&m->cluster, &o, &m->err);
    m->number = m->status ? 0 : ls_cluster_member(m->cluster);
    if (m->status == LS_OK)
        m->status = body(m);
    ls_cluster_close(m->cluster);
    return NULL;
}

static void run(int (*what)(member *m))
{
    member m[MEMBERS] = {{0}};
    const int port = free_port();
    body = what;
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(m[i].meet, sizeof m[i].meet, "127.0.0.1:%d", port);
        assert_int_equal(pthread_create(&m[i].thread, NULL, run_member, &m[i]), 0);
    }
    for (int i = 0; i < MEMBERS; i++)
        pthread_join(m[i].thread, NULL);
    for (int i = 0; i < MEMBERS; i++) {
        if (m[i].status)
            fail_msg("member %d: %s", m[i].number, m[i].err.text);
        assert_int_equal(m[i].bytes, 0);
    }
}

static void a_thousand_sums_allocate_nothing(void **state)
{
    (void)state;
    run(sum_often);
    assert_int_equal(allocations, 0);
}

static void sums_before_a_loss_give_their_memory_back(void **state)
{
    (void)state;
    run(lose_two);
}

LS_TESTS(cluster_allocations, "integration no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_sums_allocate_nothing),
        cmocka_unit_test(sums_before_a_loss_give_their_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
