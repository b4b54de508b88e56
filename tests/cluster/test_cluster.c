/* SPDX-License-Identifier: MIT */
/* Tests the cluster (src/cluster/cluster.h): the progress thread, which exchanges messages with the
 * other processes, and the *orders* (commands) that it executes. The transport is simulated in
 * memory (wire_double.h), and a thread of the test stands for each process. */
#include "base/clock.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "cluster/progress.h"
#include "cluster/wire_double.h"
#include "free_port.h"
#include "merge/tree.h"
#include "runner.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() ((void)0)
#define __lsan_enable() ((void)0)
#endif

#define SECOND ((uint64_t)1000000000u)

typedef struct process {
    struct test *test;
    int number;
    pthread_t thread;
    wire_place place;
    atomic_int asks;
    ls_cluster *cluster;
    int status; /* result of the body */
    int lost;   /* number of the lost member, as ls_cluster_lost_member */
    int closed;
    float *kept; /* memory of a node that the test still uses */
    ls_error err;
    uint64_t ended_ns;
} process;

typedef struct test {
    int members;
    wire_world *world;
    const ls_transport *type;
    bool regroups;
    uint64_t deadline_ns, open_ns;
    bool leaves; /* the test makes progress threads hang, which are then abandoned */
    int (*body)(process *p);
    int shards;
    size_t floats;
    int sums;
    const float *expected;
    process process[WIRE_MOST];
} test;

/* Opens a cluster in which joining fails because the transport does not return. The progress thread
 * and its memory are never freed, even if the transport returns later. Therefore the leak check is
 * off. */
static int open_and_leave(ls_cluster **out, const ls_cluster_options *options, ls_error *err)
{
    __lsan_disable();
    const int status = ls_cluster_open(out, options, err);
    __lsan_enable();
    return status;
}

static void *run_process(void *arg)
{
    process *p = arg;
    const ls_cluster_options o = {.type = p->test->type,
                                  .place = &p->place,
                                  .deadline_ns = p->test->deadline_ns,
                                  .open_ns = p->test->open_ns,
                                  .regroups = p->test->regroups,
                                  .asks = &p->asks};
    p->status = p->test->leaves ? open_and_leave(&p->cluster, &o, &p->err)
                                : ls_cluster_open(&p->cluster, &o, &p->err);
    if (p->status == LS_OK)
        p->status = p->test->body(p);
    p->ended_ns = ls_now_ns();
    p->closed = ls_cluster_close(p->cluster);
    return NULL;
}

static void prepare(test *t, int members)
{
    memset(t, 0, sizeof *t);
    t->members = members;
    t->world = wire_world_create(members);
    t->type = &wire_double;
    t->deadline_ns = 20 * SECOND;
    t->open_ns = 20 * SECOND;
}

static void start(test *t, int (*body)(process *p), int processes)
{
    t->body = body;
    for (int m = 0; m < processes; m++) {
        process *p = &t->process[m];
        p->test = t;
        p->number = m;
        p->place = (wire_place){t->world, m};
        assert_int_equal(pthread_create(&p->thread, NULL, run_process, p), 0);
    }
}

static void finish(test *t, int processes)
{
    for (int m = 0; m < processes; m++)
        pthread_join(t->process[m].thread, NULL);
}

static void run(test *t, int (*body)(process *p))
{
    start(t, body, t->members);
    finish(t, t->members);
}

static void all_are_fine(const test *t)
{
    for (int m = 0; m < t->members; m++) {
        if (t->process[m].status)
            fail_msg("member %d: %s", m, t->process[m].err.text);
        assert_int_equal(t->process[m].closed, LS_OK);
    }
}

/* ---- small things --------------------------------------------------------------------------- */

static int gather_and_share(process *p)
{
    ls_cluster *c = p->cluster;
    int all[WIRE_MOST] = {0}, word[3] = {0};
    all[p->number] = 100 + p->number;
    if (p->number == 0)
        memcpy(word, (int[]){7, 8, 9}, sizeof word);
    int status = ls_cluster_gather(c, all, sizeof *all, &p->err);
    if (status == LS_OK)
        status = ls_cluster_share(c, word, sizeof word, &p->err);
    for (int m = 0; m < p->test->members; m++)
        if (all[m] != 100 + m)
            return LS_EDATA;
    return status == LS_OK && (word[0] != 7 || word[2] != 9) ? LS_EDATA : status;
}

static void members_gather_and_share_in_any_order_of_messages(void **state)
{
    (void)state;
    for (int members = 1; members <= 4; members++) {
        test t;
        prepare(&t, members);
        wire_world_delay(t.world, 3000000, 7u + (unsigned)members);
        run(&t, gather_and_share);
        all_are_fine(&t);
        wire_world_destroy(t.world);
    }
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Returns a float of a leaf. The floats differ so much in size that every other sequence of
 * additions gives other bits. */
static float leaf_float(int shard, size_t i, int round)
{
    uint32_t x = 2654435761u * (uint32_t)(shard + 1 + 31 * round) + (uint32_t)i * 1664525u;
    x = x * 1664525u + 1013904223u;
    return ((float)((x >> 4) & 0x7fffff) / 8388608 - 0.5f) * (float)(1u << (x >> 27 & 15)) * 1e-3f;
}

static float node_float(int lo, int hi, size_t i, int round)
{
    if (hi - lo == 1)
        return leaf_float(lo, i, round);
    const int m = ls_tree_middle(lo, hi);
    return node_float(lo, m, i, round) + node_float(m, hi, i, round);
}

static void fill_nodes(const process *p, int round)
{
    ls_span span[LS_PARTIALS_MAX];
    int lo, hi;
    ls_cluster_span(p->cluster, p->test->shards, p->number, &lo, &hi);
    const int nodes = ls_tree_cover(span, p->test->shards, lo, hi);
    for (int n = 0; n < nodes; n++)
        for (size_t i = 0; i < p->test->floats; i++)
            ls_cluster_node(p->cluster, n)[i] = node_float(span[n].lo, span[n].hi, i, round);
}

static int sum_rounds(process *p)
{
    const test *t = p->test;
    int status = ls_cluster_prepare(p->cluster, t->shards, t->floats, &p->err);
    for (int round = 0; round < t->sums && status == LS_OK; round++) {
        fill_nodes(p, round);
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
        ls_cluster_commit(p->cluster, status == LS_OK);
        if (status == LS_OK && memcmp(ls_cluster_total(p->cluster), t->expected + round * t->floats,
                                      t->floats * sizeof(float)) != 0)
            return ls_fail(&p->err, LS_EDATA, "round %d has other bits", round);
    }
    return status;
}

static float *expect(int shards, size_t floats, int rounds)
{
    float *out = malloc((size_t)rounds * floats * sizeof *out);
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < floats; i++)
            out[(size_t)r * floats + i] = node_float(0, shards, i, r);
    return out;
}

static void sum_on(int members, int shards, size_t floats, int rounds, uint64_t delay_ns,
                   const float *expected)
{
    test t;
    prepare(&t, members);
    t.shards = shards;
    t.floats = floats;
    t.sums = rounds;
    t.expected = expected;
    if (delay_ns)
        wire_world_delay(t.world, delay_ns, (unsigned)(members * 100 + shards));
    run(&t, sum_rounds);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

static void a_sum_has_the_bits_of_one_process_on_any_number_of_them(void **state)
{
    (void)state;
    static const int shards[] = {7, 8, 12, 24};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++) {
        float *expected = expect(shards[s], 1008, 3);
        for (int members = 1; members <= 5; members++)
            sum_on(members, shards[s], 1008, 3, 2000000, expected);
        free(expected);
    }
}

static void an_arena_of_many_pieces_arrives_whole(void **state)
{
    (void)state;
    const size_t floats = (size_t)(2.6 * (1 << 20)) / 16 * 16;
    float *expected = expect(3, floats, 2);
    sum_on(2, 3, floats, 2, 0, expected);
    sum_on(3, 3, floats, 2, 0, expected);
    free(expected);
}

/* ---- sums that are partly ready -------------------------------------------------------------- */

/* Fills the floats from … floats − 1 of each node (partial sum) of this process. The rest is not
 * ready yet. */
static void fill_up_to(const process *p, size_t from, size_t floats)
{
    ls_span span[LS_PARTIALS_MAX];
    int lo, hi;
    ls_cluster_span(p->cluster, p->test->shards, p->number, &lo, &hi);
    const int nodes = ls_tree_cover(span, p->test->shards, lo, hi);
    for (int n = 0; n < nodes; n++)
        for (size_t i = from; i < floats; i++)
            ls_cluster_node(p->cluster, n)[i] = node_float(span[n].lo, span[n].hi, i, 0);
}

static int prepare_sum(process *p)
{
    int status = ls_cluster_prepare(p->cluster, p->test->shards, p->test->floats, &p->err);
    if (status == LS_OK)
        fill_up_to(p, 0, p->test->floats / 2);
    return status ? status : ls_cluster_begin_sum(p->cluster, &p->err);
}

static int end_sum(process *p)
{
    const test *t = p->test;
    fill_up_to(p, t->floats / 2, t->floats);
    int status = ls_cluster_sum(p->cluster, NULL, &p->err);
    ls_cluster_commit(p->cluster, status == LS_OK);
    if (status == LS_OK &&
        memcmp(ls_cluster_total(p->cluster), t->expected, t->floats * sizeof(float)) != 0)
        return ls_fail(&p->err, LS_EDATA, "other bits");
    return status;
}

/* Declares the first half of the arena ready. The arena (array to be summed) has nine pieces, three
 * for each of the three members. The first half contains the pieces 0 … 3. Each member has sent
 * these pieces of its nodes, and received their sums, before any member has the other half. */
static int send_half(process *p)
{
    /* member 0 owns pieces 0 and 3, member 1 piece 1, member 2 piece 2; each sum is sent to two
     * others */
    static const uint64_t sums[] = {2 * 2, 2, 2};
    const uint64_t until = ls_now_ns() + 10 * SECOND;
    int status = prepare_sum(p);
    ls_cluster_ready(p->cluster, p->test->floats / 2);
    while (status == LS_OK &&
           wire_world_sent(p->test->world, p->number, LS_ON_SUMS) < sums[p->number]) {
        if (ls_now_ns() > until)
            return ls_fail(&p->err, LS_ETIMEDOUT, "what is there is not sent");
        sched_yield();
    }
    return status ? status : end_sum(p);
}

static void half_of_a_sum(test *t, int members, size_t floats, int (*body)(process *p))
{
    float *expected = expect(members, floats, 1);
    t->shards = members;
    t->floats = floats;
    t->expected = expected;
    run(t, body);
    free(expected);
}

static void what_is_there_of_a_sum_goes_to_all_and_back_before_the_rest_is(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    half_of_a_sum(&t, 3, (size_t)3 * (5 << 17), send_half);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

/* In the middle of a sum, the devices of this process compute for longer than a member may be
 * silent. */
static int think_within(process *p)
{
    int status = prepare_sum(p);
    if (p->number == 1)
        ls_cluster_ready(p->cluster, p->test->floats / 2);
    const struct timespec nap = {.tv_sec = p->number == 1, .tv_nsec = 0};
    nanosleep(&nap, NULL);
    return status ? status : end_sum(p);
}

static void a_member_that_computes_within_a_sum_is_waited_for(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    t.deadline_ns = SECOND / 4;
    half_of_a_sum(&t, 3, 1008, think_within);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

static int end_within(process *p)
{
    int status = prepare_sum(p);
    return status || p->number == 1 ? status : end_sum(p);
}

static void one_that_ends_within_a_sum_is_not_waited_for(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    half_of_a_sum(&t, 3, 1008, end_within);
    for (int m = 0; m < 3; m += 2) {
        assert_int_equal(t.process[m].status, LS_ESTALLED);
        assert_non_null(strstr(t.process[m].err.text, "in the midst of a sum"));
    }
    wire_world_destroy(t.world);
}

static int gather_within(process *p)
{
    int all[3] = {0};
    int status = prepare_sum(p);
    if (status == LS_OK && ls_cluster_gather(p->cluster, all, sizeof *all, &p->err) != LS_EINTERNAL)
        return LS_EDATA;
    return status ? status : end_sum(p);
}

static void nothing_else_is_exchanged_within_a_sum(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    half_of_a_sum(&t, 3, 1008, gather_within);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

static void fewer_floats_than_members_are_summed(void **state)
{
    (void)state;
    float *expected = expect(8, 32, 2);
    sum_on(4, 8, 32, 2, 0, expected);
    free(expected);
}

static int prepare_too_few(process *p)
{
    return ls_cluster_prepare(p->cluster, 2, 32, &p->err);
}

static void a_member_without_a_shard_is_refused(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    run(&t, prepare_too_few);
    assert_int_equal(t.process[1].status, LS_EINVAL);
    assert_non_null(strstr(t.process[1].err.text, "set shards to at least 3"));
    wire_world_destroy(t.world);
}

/* ---- stopping ------------------------------------------------------------------------------- */

/* Sums until a sum reports that the members have agreed to stop. Returns the number of that sum. */
static int sum_until_agreed(process *p)
{
    int status = ls_cluster_prepare(p->cluster, 8, 64, &p->err);
    for (int round = 1; status == LS_OK && round < 1000; round++) {
        if (p->number == 1 && round == 5)
            atomic_store(&p->asks, 1);
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
        ls_cluster_commit(p->cluster, 1);
        if (status == LS_OK && ls_cluster_agreed(p->cluster))
            return round;
    }
    return status ? status : LS_EDATA;
}

static void one_who_asks_to_stop_is_heard_by_all_in_the_same_sum(void **state)
{
    (void)state;
    test t;
    prepare(&t, 4);
    wire_world_delay(t.world, 1000000, 3);
    run(&t, sum_until_agreed);
    for (int m = 0; m < 4; m++)
        assert_int_equal(t.process[m].status, 5);
    wire_world_destroy(t.world);
}

/* ---- faults --------------------------------------------------------------------------------- */

static int sum_for_ever(process *p)
{
    int status = ls_cluster_prepare(p->cluster, 8, 4096, &p->err);
    while (status == LS_OK) {
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
        ls_cluster_commit(p->cluster, status == LS_OK);
    }
    return status;
}

enum { KILLS = 11 };

static void check_kill(const test *t, int victim, uint64_t start_ns)
{
    for (int m = 0; m < 3; m++) {
        assert_int_equal(t->process[m].status, LS_ESTALLED);
        assert_true(t->process[m].ended_ns - start_ns < t->deadline_ns + 3 * SECOND);
        assert_int_equal(t->process[m].closed, LS_OK);
    }
    const char *why = t->process[(victim + 1) % 3].err.text;
    assert_true(strstr(why, "silent for") || strstr(why, "has left"));
}

/* One of three members is killed, in each case at another of its posts around the third sum. */
static void a_member_killed_at_any_point_is_missed_within_the_deadline(void **state)
{
    (void)state;
    static test t[KILLS];
    const uint64_t start_ns = ls_now_ns();
    for (int k = 0; k < KILLS; k++) {
        prepare(&t[k], 3);
        t[k].deadline_ns = SECOND / 2;
        wire_world_kill_at(t[k].world, k % 3, 60u + 3u * (unsigned)k);
        start(&t[k], sum_for_ever, 3);
    }
    for (int k = 0; k < KILLS; k++) {
        finish(&t[k], 3);
        check_kill(&t[k], k % 3, start_ns);
        wire_world_destroy(t[k].world);
    }
}

/* The double with a function `regroup`, as a transport has whose members go on after a loss. */
static ls_transport regrouping;

static int open_regrouping(ls_wire **out, const ls_wire_options *options, ls_error *err)
{
    int status = wire_double.open(out, options, err);
    if (status == LS_OK)
        (*out)->type = &regrouping;
    return status;
}

static int refuse_to_regroup(ls_wire **out, ls_wire *old, const ls_regroup *how, ls_error *err)
{
    (void)out;
    (void)old;
    (void)how;
    return ls_fail(err, LS_ESTALLED, "no vote in this test");
}

static int sum_until_one_is_lost(process *p)
{
    if (p->test->regroups)
        ls_cluster_regroups(p->cluster);
    const int status = sum_for_ever(p);
    p->lost = ls_cluster_lost_member(p->cluster);
    return status;
}

/* One of three members loses the connection to member 2, and tells the third member, which has
 * noticed nothing, before it tells member 2. All must find out who is lost: also the third member,
 * whether the run can go on (LS_CONTROL_LOSS) or not (LS_CONTROL_LEAVE). Member 2 learns that
 * one of the others has left, or that it is lost itself (-1). */
static void a_third_member_learns_who_is_lost(void **state)
{
    (void)state;
    regrouping = wire_double;
    regrouping.open = open_regrouping;
    regrouping.regroup = refuse_to_regroup;
    for (int regroups = 0; regroups < 2; regroups++)
        for (int first = 0; first < 2; first++) {
            test t;
            prepare(&t, 3);
            t.regroups = regroups;
            t.type = regroups ? &regrouping : &wire_double;
            wire_world_sever_at(t.world, first, 2, 60);
            run(&t, sum_until_one_is_lost);
            for (int m = 0; m < 3; m++) {
                const int lost = t.process[m].lost;
                assert_int_equal(t.process[m].status, LS_ESTALLED);
                if (m < 2 ? lost != 2 : regroups ? lost != -1 : lost != 0 && lost != 1)
                    fail_msg("%d, %d: member %d says that %d is lost: %s", regroups, first, m, lost,
                             t.process[m].err.text);
            }
            const char *leaves = strstr(t.process[1 - first].err.text, "has left the run: ");
            assert_true(regroups || (leaves && strstr(leaves, "the connection broke")));
            wire_world_destroy(t.world);
        }
}

static int sum_some_then_rest(process *p)
{
    const struct timespec long_enough = {.tv_nsec = 700000000};
    int status = ls_cluster_prepare(p->cluster, 8, 64, &p->err);
    if (status == LS_OK)
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
    ls_cluster_commit(p->cluster, status == LS_OK);
    if (p->number == 0)
        nanosleep(&long_enough,
                  NULL); /* its workers compute; its progress thread sends signs of life */
    return status ? status : ls_cluster_sum(p->cluster, NULL, &p->err);
}

static void a_member_that_computes_for_long_is_waited_for(void **state)
{
    (void)state;
    test t;
    prepare(&t, 2);
    t.deadline_ns = SECOND / 4;
    run(&t, sum_some_then_rest);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

static void a_cut_that_is_mended_within_the_deadline_does_no_harm(void **state)
{
    (void)state;
    const struct timespec moment = {.tv_nsec = 300000000};
    test t;
    prepare(&t, 3);
    t.shards = 8;
    t.floats = 1008;
    t.sums = 40;
    t.deadline_ns = 5 * SECOND;
    float *expected = expect(8, 1008, 40);
    t.expected = expected;
    wire_world_delay(t.world, 3000000, 5);
    start(&t, sum_rounds, 3);
    nanosleep(&moment, NULL);
    wire_world_cut(t.world, 1, 1);
    nanosleep(&moment, NULL);
    wire_world_cut(t.world, 1, 0);
    finish(&t, 3);
    all_are_fine(&t);
    free(expected);
    wire_world_destroy(t.world);
}

static int leave_or_sum(process *p)
{
    int status = ls_cluster_prepare(p->cluster, 8, 64, &p->err);
    if (status == LS_OK)
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
    if (p->number == 2) {
        ls_cluster_leave(p->cluster, "no space left on its disk");
        return LS_OK;
    }
    return status ? status : ls_cluster_sum(p->cluster, NULL, &p->err);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int keep_sums(process *p)
{
    int status = ls_cluster_prepare(p->cluster, p->test->members, 64, &p->err);
    p->kept = status == LS_OK ? ls_cluster_node(p->cluster, 0) : NULL;
    ls_cluster_keep_memory(p->cluster);
    return status;
}

/* An abandoned worker can add into the memory of a sum for an unknown time. */
static void sums_that_are_in_use_outlive_the_close(void **state)
{
    (void)state;
    test t;
    prepare(&t, 2);
    t.leaves = true;
    run(&t, keep_sums);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(t.process[m].status, LS_OK);
        assert_int_equal(t.process[m].closed, LS_ESTALLED);
        for (int i = 0; i < 64; i++)
            t.process[m].kept[i] += 1; /* AddressSanitizer reports this if the memory was freed */
    }
    wire_world_destroy(t.world);
}

static void who_leaves_says_why_and_is_not_waited_for(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    const uint64_t start_ns = ls_now_ns();
    run(&t, leave_or_sum);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(t.process[m].status, LS_ESTALLED);
        assert_non_null(strstr(t.process[m].err.text, "no space left on its disk"));
    }
    assert_true(ls_now_ns() - start_ns < 5 * SECOND); /* the deadline is 20 s */
    wire_world_destroy(t.world);
}

static int end_early(process *p)
{
    int all[WIRE_MOST] = {0};
    return p->number == 1 ? LS_OK : ls_cluster_gather(p->cluster, all, sizeof *all, &p->err);
}

static void one_that_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    test t;
    prepare(&t, 2);
    run(&t, end_early);
    assert_int_equal(t.process[0].status, LS_ESTALLED);
    assert_non_null(strstr(t.process[0].err.text, "has ended its run"));
    wire_world_destroy(t.world);
}

static int gather_differently(process *p)
{
    int all[WIRE_MOST * 2] = {0};
    return ls_cluster_gather(p->cluster, all, p->number == 1 ? 8 : 4, &p->err);
}

static void members_that_do_different_things_find_out(void **state)
{
    (void)state;
    test t;
    prepare(&t, 2);
    run(&t, gather_differently);
    for (int m = 0; m < 2; m++)
        assert_int_not_equal(t.process[m].status, LS_OK);
    wire_world_destroy(t.world);
}

static int sum_twice_uncommitted(process *p)
{
    int status = ls_cluster_prepare(p->cluster, 8, 64, &p->err);
    if (status == LS_OK)
        status = ls_cluster_sum(p->cluster, NULL, &p->err);
    ls_cluster_commit(p->cluster, p->number != 0);
    return status ? status : ls_cluster_sum(p->cluster, NULL, &p->err);
}

/* The sum must not be repeated, because the other members have gone on to the next training step
 * and would add the values of the older step. */
static void a_sum_that_one_process_alone_lost_is_not_repeated(void **state)
{
    (void)state;
    test t;
    prepare(&t, 2);
    run(&t, sum_twice_uncommitted);
    assert_int_equal(t.process[0].status, LS_ESTALLED);
    assert_int_equal(t.process[1].status, LS_ESTALLED);
    wire_world_destroy(t.world);
}

enum { ON_DATA = 2 };

/* Shares 24 MiB, which take several messages. */
static int share_much(process *p)
{
    const size_t bytes = (size_t)24 << 20;
    unsigned char *data = malloc(bytes);
    memset(data, p->number == 0 ? 7 : 0, bytes);
    int status = ls_cluster_share(p->cluster, data, bytes, &p->err);
    for (size_t i = 0; i < bytes && status == LS_OK; i += 4093)
        status = data[i] == 7 ? LS_OK : LS_EDATA;
    free(data);
    return status;
}

/* The time between two messages is shorter than the deadline, but the whole transfer takes three
 * times as long as the deadline. */
static void a_long_part_over_a_slow_line_is_waited_for_on_both_ends(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    t.deadline_ns = 2 * SECOND;
    wire_world_own_clock(t.world);
    wire_world_rate(t.world, (uint64_t)4 << 20);
    run(&t, share_much);
    all_are_fine(&t);
    assert_true(wire_world_elapsed_ns(t.world) > 3 * t.deadline_ns);
    assert_in_range(wire_world_most_under_way(t.world, 0), LS_MESSAGE_MOST, LS_UNDER_WAY + 4096);
    wire_world_destroy(t.world);
}

/* It can be that a transport completes all data that it has received together, and signs of life
 * only after these data. */
static void an_arena_is_not_sent_all_at_once(void **state)
{
    (void)state;
    test t;
    const size_t floats = (size_t)12 << 20;
    float *expected = expect(2, floats, 1);
    prepare(&t, 2);
    t.shards = 2;
    t.floats = floats;
    t.sums = 1;
    t.expected = expected;
    wire_world_rate(t.world, (uint64_t)64 << 20);
    run(&t, sum_rounds);
    all_are_fine(&t);
    for (int m = 0; m < 2; m++)
        assert_in_range(wire_world_most_under_way(t.world, m), LS_UNDER_WAY / 2,
                        LS_UNDER_WAY + 4096);
    wire_world_destroy(t.world);
    free(expected);
}

/* The member's data do not arrive, but its signs of life do. */
static void a_message_that_never_comes_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    t.deadline_ns = 2 * SECOND;
    wire_world_own_clock(t.world);
    wire_world_hold(t.world, 0, ON_DATA);
    run(&t, share_much);
    for (int m = 1; m < 3; m++) {
        assert_int_equal(t.process[m].status, LS_ESTALLED);
        assert_non_null(strstr(t.process[m].err.text, "nothing has come or gone between host "));
        assert_non_null(strstr(t.process[m].err.text, "the MTU"));
    }
    assert_true(wire_world_elapsed_ns(t.world) >= t.deadline_ns);
    wire_world_destroy(t.world);
}

static int tell_names(process *p)
{
    const char *first = ls_cluster_host(p->cluster, 0);
    char expected[LS_MEMBER_NAME];
    for (int m = 1; m < p->test->members; m++) {
        snprintf(expected, sizeof expected, "%.50s#%d", first, m);
        if (strcmp(ls_cluster_host(p->cluster, m), expected) != 0)
            return ls_fail(&p->err, LS_EDATA, "member %d is called %s", m,
                           ls_cluster_host(p->cluster, m));
    }
    return LS_OK;
}

static void hosts_of_one_name_are_told_apart(void **state)
{
    (void)state;
    test t;
    prepare(&t, 3);
    run(&t, tell_names);
    all_are_fine(&t);
    wire_world_destroy(t.world);
}

static int gather_once(process *p)
{
    int all[WIRE_MOST] = {0};
    if (p->number == 1)
        wire_world_hang(p->test->world, 1, 1);
    return ls_cluster_gather(p->cluster, all, sizeof *all, &p->err);
}

static void a_transport_that_hangs_is_left_behind(void **state)
{
    (void)state;
    static test t; /* an abandoned thread can still use it */
    prepare(&t, 2);
    t.deadline_ns = SECOND / 4;
    const uint64_t start_ns = ls_now_ns();
    run(&t, gather_once);
    assert_int_equal(t.process[1].status, LS_ESTALLED);
    assert_int_equal(t.process[1].closed, LS_ESTALLED);
    assert_true(ls_now_ns() - start_ns < 6 * SECOND);
    wire_world_hang(t.world, 1,
                    0); /* its thread continues to its end, so that the sanitizers find nothing */
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
}

static void a_member_that_never_comes_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    static test t; /* an abandoned thread can still use it */
    prepare(&t, 2);
    wire_world_expect(t.world, 3);
    t.open_ns = SECOND / 2;
    t.leaves = true;
    run(&t, gather_once);
    assert_int_equal(t.process[0].status, LS_ESTALLED);
    assert_non_null(strstr(t.process[0].err.text, "did every process start?"));
    wire_world_expect(t.world, 2);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
}

static atomic_int uses; /* number of calls of the host's allocator */

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    atomic_fetch_add(&uses, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void count_free(void *user, void *memory)
{
    (void)user;
    atomic_fetch_add(&uses, 1);
    free(memory);
}

/* When the caller has been told that joining has failed, it may free all memory that it passed to
 * the cluster. */
static void a_transport_that_joins_too_late_finds_nothing_of_its_callers(void **state)
{
    (void)state;
    wire_world *world = wire_world_create(2);
    static wire_place place;
    ls_cluster *c;
    ls_error err;
    ls_host *host = malloc(sizeof *host);
    *host = (ls_host){sizeof *host, count_alloc, count_free, NULL, NULL};
    place = (wire_place){world, 0};
    const ls_cluster_options o = {.type = &wire_double,
                                  .place = &place,
                                  .deadline_ns = SECOND,
                                  .open_ns = SECOND / 4,
                                  .host = host};
    assert_int_equal(open_and_leave(&c, &o, &err), LS_ESTALLED);
    memset(host, 0x5a, sizeof *host);
    free(host);
    const int before = atomic_load(&uses);
    wire_world_expect(world, 1);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    assert_int_equal(atomic_load(&uses), before);
}

static atomic_bool is_short;
/* true on the caller's thread: only the progress thread runs out of memory */
static _Thread_local bool is_caller;

/* An allocator that has no memory for the progress thread's data of two members. */
static void *short_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    return atomic_load(&is_short) && !is_caller && bytes - 2 * sizeof(ls_peer) < 128
               ? NULL
               : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static const ls_host short_host = {sizeof(ls_host), short_alloc, give_back, NULL, NULL};

static void *open_without_memory(void *arg)
{
    process *p = arg;
    const ls_cluster_options o = {.type = &wire_double,
                                  .place = &p->place,
                                  .deadline_ns = SECOND,
                                  .open_ns = 20 * SECOND,
                                  .host = &short_host};
    is_caller = true;
    p->status = ls_cluster_open(&p->cluster, &o, &p->err);
    return NULL;
}

static void *regroup_without_memory(void *arg)
{
    process *p = arg;
    static const char key[] = "a secret that no other run has";
    const ls_tcp_place place = {.size = sizeof place,
                                .meet = (const char *)p->test,
                                .secret = key,
                                .secret_bytes = sizeof key,
                                .members = 3,
                                .timeout = 10 * SECOND};
    const ls_cluster_options o = {.type = ls_transport_tcp(),
                                  .place = &place,
                                  .deadline_ns = 4 * SECOND,
                                  .open_ns = 20 * SECOND,
                                  .regroups = true,
                                  .host = &short_host};
    is_caller = true;
    p->status = ls_cluster_open(&p->cluster, &o, &p->err);
    p->closed = p->status;
    if (p->status)
        return NULL;
    ls_cluster_regroups(p->cluster);
    p->status = ls_cluster_share(p->cluster, NULL, 0, &p->err);
    if (ls_cluster_member(p->cluster) == 2) {
        atomic_store(&is_short, true);
        ls_cluster_leave(p->cluster, "it is to be missed");
    }
    while (p->status == LS_OK)
        p->status = ls_cluster_share(p->cluster, NULL, 0, &p->err);
    if (ls_cluster_lost(p->cluster))
        p->status = ls_cluster_regroup(p->cluster, &p->err);
    p->number = ls_cluster_member(p->cluster);
    ls_cluster_close(p->cluster);
    return NULL;
}

static void members_for_whom_memory_runs_out_are_an_error(void **state)
{
    (void)state;
    char meet[40];
    process p[3] = {{0}};
    wire_world *world = wire_world_create(2);
    atomic_store(&is_short, true);
    for (int m = 0; m < 2; m++) {
        p[m].place = (wire_place){world, m};
        assert_int_equal(pthread_create(&p[m].thread, NULL, open_without_memory, &p[m]), 0);
    }
    for (int m = 0; m < 2; m++)
        pthread_join(p[m].thread, NULL);
    wire_world_destroy(world);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(p[m].status, LS_ENOMEM);
        if (!strstr(p[m].err.text, "2 members"))
            fail_msg("%s", p[m].err.text);
    }
    atomic_store(&is_short, false);
    snprintf(meet, sizeof meet, "127.0.0.1:%d", free_port());
    for (int m = 0; m < 3; m++) {
        p[m] = (process){.test = (struct test *)(void *)meet};
        assert_int_equal(pthread_create(&p[m].thread, NULL, regroup_without_memory, &p[m]), 0);
    }
    for (int m = 0; m < 3; m++)
        pthread_join(p[m].thread, NULL);
    for (int m = 0; m < 3; m++) {
        assert_int_equal(p[m].closed, LS_OK); /* result of opening */
        assert_int_equal(p[m].status, p[m].number == 2 ? LS_ESTALLED : LS_ENOMEM);
    }
}

LS_TESTS(cluster_orders, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_gather_and_share_in_any_order_of_messages),
        cmocka_unit_test(a_sum_has_the_bits_of_one_process_on_any_number_of_them),
        cmocka_unit_test(an_arena_of_many_pieces_arrives_whole),
        cmocka_unit_test(what_is_there_of_a_sum_goes_to_all_and_back_before_the_rest_is),
        cmocka_unit_test(a_member_that_computes_within_a_sum_is_waited_for),
        cmocka_unit_test(one_that_ends_within_a_sum_is_not_waited_for),
        cmocka_unit_test(nothing_else_is_exchanged_within_a_sum),
        cmocka_unit_test(fewer_floats_than_members_are_summed),
        cmocka_unit_test(a_member_without_a_shard_is_refused),
        cmocka_unit_test(one_who_asks_to_stop_is_heard_by_all_in_the_same_sum),
        cmocka_unit_test(a_member_killed_at_any_point_is_missed_within_the_deadline),
        cmocka_unit_test(a_third_member_learns_who_is_lost),
        cmocka_unit_test(a_member_that_computes_for_long_is_waited_for),
        cmocka_unit_test(a_cut_that_is_mended_within_the_deadline_does_no_harm),
        cmocka_unit_test(sums_that_are_in_use_outlive_the_close),
        cmocka_unit_test(who_leaves_says_why_and_is_not_waited_for),
        cmocka_unit_test(one_that_has_ended_is_not_waited_for),
        cmocka_unit_test(members_that_do_different_things_find_out),
        cmocka_unit_test(a_sum_that_one_process_alone_lost_is_not_repeated),
        cmocka_unit_test(a_long_part_over_a_slow_line_is_waited_for_on_both_ends),
        cmocka_unit_test(an_arena_is_not_sent_all_at_once),
        cmocka_unit_test(a_message_that_never_comes_is_not_waited_for_for_ever),
        cmocka_unit_test(hosts_of_one_name_are_told_apart),
        cmocka_unit_test(a_transport_that_joins_too_late_finds_nothing_of_its_callers),
        cmocka_unit_test(members_for_whom_memory_runs_out_are_an_error),
        cmocka_unit_test(a_transport_that_hangs_is_left_behind),
        cmocka_unit_test(a_member_that_never_comes_is_not_waited_for_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
