/* SPDX-License-Identifier: MIT */
/* A small stress test of one structure for ThreadSanitizer: `order_stress ring`, `barrier`, `pool`,
 * `lent`, `group`, `one_total`, `pieces`, `team`, `deal`, `progress` or `brought`.
 * weakened_orders.sh compiles this test with the memory orders as they are; the test must then
 * pass. It also compiles the test with each memory order weakened; the sanitizer must then report a
 * race on the plain data.
 *
 * The test avoids parking (sync/park.h), because the read-modify-writes of parking would
 * synchronise the threads in place of a weakened order. So producer and consumer of the ring only
 * call the functions that do not wait, and the ranks of the barrier spin for longer than a round
 * takes. The threads of a team, the thread that checks whether a worker is idle, and the thread
 * that waits for the progress thread spin as well. */
#include "cluster/cluster.h"
#include "comm/comm.h"
#include "cpu/cpu_team.h"
#include "sync/barrier.h"
#include "sync/deal.h"
#include "sync/ring.h"

#include <lockstep/pool.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ITEMS 20000
#define ROUNDS 2000

static ls_ring ring;
static ls_barrier barrier;
static long counters[2];
static _Atomic int wrong;

static void *produce(void *arg)
{
    (void)arg;
    for (long n = 0; n < ITEMS; n++) {
        long item[4] = {n, n + 1, n + 2, n + 3};
        while (ls_ring_try_push(&ring, item) == LS_EAGAIN)
            sched_yield();
    }
    while (ls_ring_length(&ring) > 0)
        sched_yield();
    counters[0] = ITEMS;
    ls_ring_close(&ring);
    return NULL;
}

static void *consume(void *arg)
{
    (void)arg;
    for (long n = 0; n < ITEMS; n++) {
        long item[4];
        while (ls_ring_try_pop(&ring, item) == LS_EAGAIN)
            sched_yield();
        if (item[0] != n || item[3] != n + 3)
            atomic_fetch_add(&wrong, 1);
    }
    long item[4];
    while (ls_ring_try_pop(&ring, item) == LS_EAGAIN)
        sched_yield();
    if (counters[0] != ITEMS)
        atomic_fetch_add(&wrong, 1);
    return NULL;
}

static void *pass(void *arg)
{
    int rank = *(int *)arg;
    for (long round = 1; round <= ROUNDS; round++) {
        counters[rank]++;
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK || counters[!rank] != round)
            atomic_fetch_add(&wrong, 1);
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

/* ---- each item goes to one taker; the other taker sees the item's count after the barrier --- */

enum { DEALT = 32 };
static ls_deal *deal;
static long count_of[DEALT];

static void *take(void *arg)
{
    const int rank = *(int *)arg;
    ls_hand hand;
    ls_deal_join(&hand, deal, rank);
    for (long round = 1; round <= ROUNDS; round++) {
        int item;
        ls_deal_begin(&hand);
        while ((item = ls_deal_take(&hand)) >= 0)
            count_of[item]++;
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
        for (int i = 0; i < DEALT; i++)
            if (count_of[i] != round)
                atomic_fetch_add(&wrong, 1);
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

static int add_one(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)arg;
    (void)err;
    counters[0]++;
    return LS_OK;
}

/* If ls_pool_busy reports that a worker is idle, the writes of the worker's jobs are visible. */
static void use_pool(void)
{
    ls_pool_options o = {.size = sizeof o, .workers = 1};
    ls_pool *pool;
    if (ls_pool_create(&pool, &o, NULL) != LS_OK)
        atomic_fetch_add(&wrong, 1);
    for (long n = 1; n <= 100 && !wrong; n++) {
        if (ls_pool_submit(pool, 0, add_one, NULL, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
        while (ls_pool_busy(pool, 0) > 0)
            sched_yield();
        if (counters[0] != n)
            atomic_fetch_add(&wrong, 1);
    }
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

/* ---- threads that are lent to a pool take a worker over from one another ----
 */

static ls_pool *lent_to;
static _Atomic int refusals;

/* Start hook: increments plain data, which the lent threads pass on together with the worker, and
 * fails. */
static int count_and_refuse(ls_worker *w, void *user, ls_error *err)
{
    (void)w;
    (void)user;
    (void)err;
    counters[0]++;
    atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
    return LS_EDEVICE;
}

static int refused(void)
{
    return atomic_load_explicit(&refusals, memory_order_relaxed);
}

static void *lend(void *arg)
{
    (void)arg;
    while (refused() < ROUNDS) {
        int status = ls_pool_serve(lent_to, 0, NULL), before = refused();
        /* Waits until the other thread has had its turn. (The other thread can have ended.) */
        for (int i = 0; status != LS_EAGAIN && i < 1000 && refused() == before; i++)
            sched_yield();
    }
    return NULL;
}

static void take_turns(void)
{
    ls_pool_options o = {.size = sizeof o, .workers = 1, .borrowed = 1, .start = count_and_refuse};
    pthread_t t[2];
    if (ls_pool_create(&lent_to, &o, NULL) != LS_OK)
        atomic_fetch_add(&wrong, 1);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, lend, NULL) != 0)
            atomic_fetch_add(&wrong, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    if (counters[0] != refusals)
        atomic_fetch_add(&wrong, 1);
    ls_pool_destroy(lent_to, LS_FOREVER, NULL);
}

/* ---- the rank that leaves a merge first reuses the buffers that it has shown ----------------- */

#define FLOATS 65536

static void describe(const ls_device *device, ls_device_info *out)
{
    (void)device;
    *out = (ls_device_info){.name = "plain", .flags = LS_DEVICE_HOST_MEMORY};
}

static const ls_device_ops plain_ops = {.size = sizeof plain_ops, .describe = describe};
static ls_device plain = {&plain_ops};
static ls_comm_group *group;
static float shown[2][FLOATS], total[2][FLOATS];
static float *total_of[2]; /* the rank's own array, or the array of the group, which no rank may
                            * reuse */

static void *merge_until_aborted(void *arg)
{
    int rank = *(int *)arg;
    ls_partial partial = {{rank, rank + 1}, shown[rank]};
    ls_comm_times times = {0};
    ls_comm *comm;
    if (ls_comm_ordered.join(&comm, group, rank, &plain, NULL) != LS_OK)
        return NULL;
    while (ls_comm_ordered.all_reduce(comm, NULL, &partial, 1, total_of[rank], &times, NULL) ==
           LS_OK)
        for (int i = 0; i < FLOATS; i += 16) /* reads the total as an update does */
            if (total_of[rank][i] != 0)
                atomic_fetch_add(&wrong, 1);
    /* The group is aborted. A call must not change data that the other rank is possibly reading. */
    if (ls_comm_ordered.all_reduce(comm, NULL, NULL, 0, NULL, &times, NULL) != LS_EABORTED)
        atomic_fetch_add(&wrong, 1);
    while (ls_comm_ordered.may_read(group, !rank))
        sched_yield();
    for (int i = 0; i < FLOATS; i++)
        shown[rank][i] = total[rank][i] = 0;
    ls_comm_ordered.leave(comm);
    return NULL;
}

/* Sums by pieces: each rank writes its partial sum, and reads the other rank's partial sum between
 * the two meetings (rounds of the group's barrier). */
static void *add_pieces_until_aborted(void *arg)
{
    int rank = *(int *)arg;
    ls_partial partial = {{rank, rank + 1}, shown[rank]};
    ls_comm_times times = {0};
    ls_comm *comm;
    float piece[16];
    if (ls_comm_ordered.join(&comm, group, rank, &plain, NULL) != LS_OK)
        return NULL;
    for (int step = 1;; step++) {
        for (int i = 0; i < FLOATS; i++)
            shown[rank][i] = (float)step;
        if (ls_pieces_begin(comm, &partial, 1, &times, NULL) != LS_OK)
            break;
        for (size_t i = 0; i < FLOATS; i += 16) {
            ls_piece(comm, piece, i, 16);
            if (piece[15] != (float)(2 * step))
                atomic_fetch_add(&wrong, 1);
        }
        if (ls_pieces_end(comm, &times, NULL) != LS_OK)
            break;
    }
    while (ls_comm_ordered.may_read(group, !rank))
        sched_yield();
    for (int i = 0; i < FLOATS; i++)
        shown[rank][i] = 0;
    ls_comm_ordered.leave(comm);
    return NULL;
}

static void abort_merges(void *(*merge)(void *), bool one_total)
{
    int ranks[2] = {0, 1};
    pthread_t t[2];
    ls_comm_group_desc desc = {.type = &ls_comm_ordered,
                               .ranks = 2,
                               .shards = 2,
                               .floats = FLOATS,
                               .timeout_ns = UINT64_MAX,
                               .spins = 20000000};
    for (unsigned round = 0; round < 60; round++) {
        if (ls_comm_ordered.group_create(&group, &desc, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
        for (int i = 0; i < 2; i++)
            total_of[i] = one_total ? ls_host_group_total(group) : total[i];
        for (int i = 0; i < 2; i++)
            if (pthread_create(&t[i], NULL, merge, &ranks[i]) != 0)
                atomic_fetch_add(&wrong, 1);
        struct timespec pause = {.tv_nsec = 200000 + round * 7919 % 61 * 50000};
        nanosleep(&pause, NULL);
        ls_comm_ordered.abort(group);
        for (int i = 0; i < 2; i++)
            pthread_join(t[i], NULL);
        ls_comm_ordered.group_destroy(group);
    }
}

/* ---- the items of a team read the worker's writes, and the worker reads the items' writes --- */

typedef struct team_job {
    long in[64], out[64];
} team_job;

static void add_seven(void *arg, uint32_t i)
{
    team_job *job = arg;
    for (int k = 0; k < 50; k++) /* takes so long that the other thread gets items, too */
        job->out[i] = job->in[i] + 7;
}

typedef struct team_parts {
    team_job job;
    long memory[2]; /* [slot] */
} team_parts;

static void add_eight(void *arg, uint32_t slot, uint32_t i)
{
    team_parts *parts = arg;
    for (int k = 0; k < 50; k++) {
        parts->memory[slot] = parts->job.in[i] + 8;
        parts->job.out[i] = parts->memory[slot];
    }
}

static void run_parts(ls_team *team, team_parts *parts, long round)
{
    for (int i = 0; i < 64; i++)
        parts->job.in[i] = round + i;
    ls_team_run_parts(team, 64, add_eight, parts);
    for (int i = 0; i < 64; i++)
        if (parts->job.out[i] != round + i + 8)
            atomic_fetch_add(&wrong, 1);
}

static void run_team(void)
{
    static team_job job;
    static team_parts parts;
    ls_team *team;
    if (ls_team_create(&team, 2, NULL, NULL) != LS_OK)
        atomic_fetch_add(&wrong, 1);
    for (long round = 0; round < ROUNDS && !wrong; round++) {
        for (int i = 0; i < 64; i++)
            job.in[i] = round + i;
        ls_team_run(team, 64, add_seven, &job);
        for (int i = 0; i < 64; i++)
            if (job.out[i] != round + i + 7)
                atomic_fetch_add(&wrong, 1);
        run_parts(team, &parts, round);
    }
    ls_team_destroy(team);
}

/* ---- */

/* The transport ("wire") of a run with one member: the progress thread has no other member to talk
 * to, and the sum consists of one node. */
static int open_lone(ls_wire **out, const ls_wire_options *options, ls_error *err);
static int poll_lone(ls_wire *wire, ls_transfer **ended, int most, uint64_t timeout_ns,
                     ls_error *err)
{
    (void)wire;
    (void)ended;
    (void)most;
    (void)timeout_ns;
    (void)err;
    return 0;
}

static void close_lone(ls_wire *wire)
{
    (void)wire;
}

static const ls_transport lone = {
    .name = "lone", .open = open_lone, .poll = poll_lone, .close = close_lone};

static int open_lone(ls_wire **out, const ls_wire_options *options, ls_error *err)
{
    static ls_wire wire = {.type = &lone, .members = 1};
    (void)options;
    (void)err;
    *out = &wire;
    return LS_OK;
}

/* The transport of a run with two members, of which the other is a mirror: it answers with the same
 * headers that it receives, and its nodes are 0. It reads the data that it receives as plain
 * data. */
static struct {
    ls_wire base;
    ls_transfer *posted[32];
    int count;
    const void *head;
    float seen;
} mirror;

static int post_mirror(ls_wire *wire, ls_transfer *t, ls_error *err)
{
    (void)wire;
    (void)err;
    if (t->channel == 0) /* the mirror never sends control messages */
        return LS_OK;
    if (!t->incoming && t->channel == 1)
        mirror.head = t->data;
    else if (!t->incoming)
        mirror.seen += *(const float *)t->data;
    mirror.posted[mirror.count++] = t;
    return LS_OK;
}

static int poll_mirror(ls_wire *wire, ls_transfer **ended, int most, uint64_t timeout_ns,
                       ls_error *err)
{
    const int count = mirror.count;
    (void)wire;
    (void)most;
    (void)timeout_ns;
    (void)err;
    for (int i = 0; i < count; i++) {
        ended[i] = mirror.posted[i];
        if (ended[i]->incoming && ended[i]->channel == 1)
            memcpy(ended[i]->data, mirror.head, ended[i]->bytes);
    }
    mirror.count = 0;
    return count;
}

static int abort_mirror(ls_wire *wire)
{
    (void)wire;
    return 0;
}

static int open_mirror(ls_wire **out, const ls_wire_options *options, ls_error *err);
static const ls_transport mirrored = {.name = "mirror",
                                      .open = open_mirror,
                                      .post = post_mirror,
                                      .poll = poll_mirror,
                                      .close = close_lone,
                                      .abort = abort_mirror};

static int open_mirror(ls_wire **out, const ls_wire_options *options, ls_error *err)
{
    (void)options;
    (void)err;
    mirror.base = (ls_wire){.type = &mirrored, .members = 2};
    *out = &mirror.base;
    return LS_OK;
}

/* `within`: the sum has begun before the floats are written. */
static void use_progress(bool within)
{
    const ls_cluster_options o = {
        .type = within ? &mirrored : &lone, .deadline_ns = 1u << 30, .open_ns = 1u << 30};
    ls_cluster *c;
    if (ls_cluster_open(&c, &o, NULL) != LS_OK ||
        ls_cluster_prepare(c, within ? 2 : 1, 64, NULL) != LS_OK) {
        atomic_fetch_add(&wrong, 1);
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (within && ls_cluster_begin_sum(c, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
        for (int i = 0; i < 64; i++)
            ls_cluster_node(c, 0)[i] = (float)(round + i);
        if (ls_cluster_sum(c, NULL, NULL) != LS_OK ||
            ls_cluster_total(c)[31] != (float)(round + 31))
            atomic_fetch_add(&wrong, 1);
        ls_cluster_commit(c, 1);
    }
    ls_cluster_close(c);
}

static int run_pair(void *(*first)(void *), void *(*second)(void *))
{
    int ranks[2] = {0, 1};
    pthread_t t[2];
    if (ls_ring_init(&ring, NULL, sizeof(long[4]), 2, NULL) != LS_OK ||
        ls_barrier_init(&barrier, NULL, 2, 20000000, NULL) != LS_OK)
        return 2;
    if (pthread_create(&t[0], NULL, first, &ranks[0]) != 0 ||
        pthread_create(&t[1], NULL, second, &ranks[1]) != 0)
        return 2;
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    ls_barrier_fini(&barrier);
    ls_ring_fini(&ring);
    return 0;
}

static int run_deal(void)
{
    static const int first[] = {0, DEALT - 1};
    if (ls_deal_create(&deal, first, 2, NULL, NULL) != LS_OK)
        return 2;
    const int rc = run_pair(take, take);
    ls_deal_destroy(deal);
    return rc;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int rc = 0;
    if (strcmp(what, "ring") == 0)
        rc = run_pair(produce, consume);
    else if (strcmp(what, "barrier") == 0)
        rc = run_pair(pass, pass);
    else if (strcmp(what, "pool") == 0)
        use_pool();
    else if (strcmp(what, "lent") == 0)
        take_turns();
    else if (strcmp(what, "group") == 0)
        abort_merges(merge_until_aborted, false);
    else if (strcmp(what, "one_total") == 0)
        abort_merges(merge_until_aborted, true);
    else if (strcmp(what, "pieces") == 0)
        abort_merges(add_pieces_until_aborted, false);
    else if (strcmp(what, "team") == 0)
        run_team();
    else if (strcmp(what, "deal") == 0)
        rc = run_deal();
    else if (strcmp(what, "brought") == 0)
        use_progress(true);
    else if (strcmp(what, "progress") == 0)
        use_progress(false);
    else
        rc = 2;
    if (wrong)
        fprintf(stderr, "%d wrong values\n", wrong);
    return rc ? rc : wrong != 0;
}
