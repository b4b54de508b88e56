/* SPDX-License-Identifier: MIT */
/* Tests the communicators for GPUs with several processes. A group of threads of the test stands
 * for each process. The CUDA runtime, NCCL and the transport are simulated. */
#include "base/clock.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "cluster/progress.h"
#include "cluster/wire_double.h"
#include "cuda/comm_gang.h"
#include "doubles/control.h"
#include "runner.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const dbl_options worlds[] = {
    {.mode = DBL_THREADS, .devices = 9, .nccl_polls = 2},
    {.mode = DBL_LAZY, .devices = 9},
    {.mode = DBL_LAZY, .devices = 9, .seed = 99, .nccl_polls = 3},
};
enum { WORLDS = sizeof worlds / sizeof *worlds, MOST = 3, FLOATS = 640, SEGMENTS = 5 };
static const size_t segments[SEGMENTS] = {0, 160, 320, 480, 512};

typedef struct scenario scenario;

typedef struct process {
    scenario *scenario;
    int member;
    pthread_t thread;
    wire_place place;
    ls_cluster *cluster;
    int gpus[GANG_RANKS];
    comm_gang gang, again; /* first gang of the process; second gang, if it has steps */
    int status, closed;
    int device; /* the current CUDA device of the process's thread after the group was closed */
    ls_error err;
} process;

struct scenario {
    int members, ranks, shards, share, ahead;
    uint64_t deadline_ns;
    int (*between)(comm_member *member, int step);
    void (*last)(comm_member *member);
    int steps; /* 0: 3 */
    void (*plant)(wire_world *wire);
    /* step of process 1 that fails, after which the process goes on with gang `again`; 0: none */
    int fails_in;
    wire_world *wire;
    process process[MOST];
};

static comm_gang gang_of(process *p)
{
    const scenario *s = p->scenario;
    comm_gang g = {.type = &ls_cuda_comm_ordered,
                   .ranks = s->ranks,
                   .shards = s->shards,
                   .steps = s->steps ? s->steps : 3,
                   .floats = FLOATS,
                   .gpus = p->gpus,
                   .segments = segments,
                   .segment_count = SEGMENTS,
                   .ahead = s->ahead,
                   .check = 1,
                   .timeout_ns = 60000000000u,
                   .members = p->cluster,
                   .between = s->between,
                   .last = s->last};
    ls_cluster_span(p->cluster, s->shards, p->member, &g.span.lo, &g.span.hi);
    for (int r = 0; r < s->ranks; r++)
        p->gpus[r] = p->member * MOST + (s->share ? 0 : r);
    return g;
}

/* Runs a process. If it ends with an error, it leaves the other processes, as a trainer does. */
static void *run_process(void *arg)
{
    process *p = arg;
    const scenario *s = p->scenario;
    const ls_cluster_options o = {.type = &wire_double,
                                  .place = &p->place,
                                  .deadline_ns = s->deadline_ns,
                                  .open_ns = 20000000000u};
    p->status = ls_cluster_open(&p->cluster, &o, &p->err);
    if (p->status == LS_OK)
        p->status = ls_cluster_prepare(p->cluster, s->shards, FLOATS, &p->err);
    if (p->status == LS_OK) {
        p->gang = gang_of(p);
        comm_gang_run(&p->gang);
        p->status = comm_gang_status(&p->gang);
    }
    (void)cudaGetDevice(&p->device);
    if (p->status != LS_OK && p->member == 1 && s->fails_in > 0) {
        p->again = gang_of(p);
        p->again.first_step = s->fails_in;
        comm_gang_run(&p->again);
        p->status = comm_gang_status(&p->again);
    }
    if (p->status != LS_OK)
        ls_cluster_leave(p->cluster, "a worker failed");
    p->closed = ls_cluster_close(p->cluster);
    return NULL;
}

static void run_scenario(scenario *s, const dbl_options *world)
{
    dbl_begin(world);
    s->wire = wire_world_create(s->members);
    s->deadline_ns = s->deadline_ns ? s->deadline_ns : 20000000000u;
    wire_world_delay(s->wire, 200000, (unsigned)(s->members * 8 + s->ranks));
    if (s->plant)
        s->plant(s->wire);
    for (int m = 0; m < s->members; m++) {
        process *p = &s->process[m];
        *p = (process){.scenario = s, .member = m, .place = {s->wire, m}};
        assert_int_equal(pthread_create(&p->thread, NULL, run_process, p), 0);
    }
    for (int m = 0; m < s->members; m++)
        pthread_join(s->process[m].thread, NULL);
    /* The thread that closes a group keeps its current device. */
    for (int m = 0; m < s->members; m++)
        assert_int_equal(s->process[m].device, 0);
    comm_gang_must_be_clean();
    wire_world_destroy(s->wire);
}

static void free_scenario(scenario *s)
{
    for (int m = 0; m < s->members; m++) {
        comm_gang_free(&s->process[m].gang);
        comm_gang_free(&s->process[m].again);
    }
}

static void all_have_one_process_s_bits(const scenario *s)
{
    static float expected[FLOATS];
    for (int step = 0; step < s->process[0].gang.steps; step++) {
        comm_gang_expected(expected, 1, s->shards, step, FLOATS);
        for (int m = 0; m < s->members; m++) {
            const process *p = &s->process[m];
            const comm_gang *g = p->again.steps && step >= s->fails_in ? &p->again : &p->gang;
            if (p->status != LS_OK)
                fail_msg("process %d: %s", m, comm_gang_text(g));
            for (int r = 0; r < s->ranks; r++)
                assert_memory_equal(g->member[r].result[step], expected, sizeof expected);
        }
    }
}

/* ---- bits ----------------------------------------------------------------------------------- */

static void any_number_of_processes_and_gpus_gives_the_bits_of_one(void **state)
{
    (void)state;
    static const int shards[] = {7, 8};
    for (int w = 0; w < WORLDS; w++)
        for (int members = 2; members <= MOST; members++)
            for (int ranks = 1; ranks <= MOST; ranks++)
                for (int share = 0; share < 2; share++) {
                    scenario s = {.members = members,
                                  .ranks = ranks,
                                  .shards = shards[(members + ranks) % 2],
                                  .share = share};
                    run_scenario(&s, &worlds[w]);
                    all_have_one_process_s_bits(&s);
                    free_scenario(&s);
                }
}

/* ---- ahead ---------------------------------------------------------------------------------- */

enum { AHEAD = SEGMENTS - 1 };
static wire_world *wire;

static void know_the_wire(wire_world *w)
{
    wire = w;
}

/* Checks that buckets are sent while backward still runs: no process has reached the end of its
 * backward pass, but the last process has sent its nodes of the other processes' pieces, and these
 * have sent the sums. In each step every process sends one message of either kind to each other
 * process. The first merge connects the group. */
static int look_at_the_wire(comm_member *m, int step)
{
    const int self = m->gang->gpus[0] / MOST, others = m->gang->shards - 1;
    const int channel = self < others ? LS_ON_SUMS : LS_ON_DATA;
    const uint64_t until = ls_now_ns() + 10000000000u;
    int status = m->device->ops->sync(m->device, NULL, &m->err);
    if (step == 0 || status != LS_OK)
        return status;
    status = m->gang->type->merge_ready(m->comm, NULL, m->leaf, m->total, segments[AHEAD], &m->err);
    while (status == LS_OK && wire_world_sent(wire, self, channel) <= (uint64_t)(step * others)) {
        if (ls_now_ns() > until)
            return ls_fail(&m->err, LS_ETIMEDOUT, "nothing of step %d is on its way", step);
        sched_yield();
    }
    return status;
}

static void buckets_go_to_the_others_and_back_before_backward_has_ended(void **state)
{
    (void)state;
    for (int members = 2; members <= MOST; members++) {
        scenario s = {.members = members,
                      .ranks = 1,
                      .shards = members,
                      .ahead = 1,
                      .plant = know_the_wire,
                      .between = look_at_the_wire};
        run_scenario(&s, &worlds[0]);
        all_have_one_process_s_bits(&s);
        free_scenario(&s);
    }
}

static void merging_ahead_changes_no_bit(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++)
        for (int members = 2; members <= MOST; members++) {
            scenario s = {.members = members, .ranks = 1, .shards = members, .ahead = 1};
            run_scenario(&s, &worlds[w]);
            all_have_one_process_s_bits(&s);
            free_scenario(&s);
        }
}

/* ---- steps that are cut short --------------------------------------------------------------- */

static float brought; /* float 0 of the node that process 1 has delivered */

static void look_at_the_node(comm_member *m)
{
    if (m->gang->first_step > 0)
        brought = ls_cluster_node(m->gang->members, 0)[0];
}

/* Process 1 fails once, when the others have received its first buckets. When the step is repeated,
 * the test computes wrong values for these buckets. They must not be copied to the node, because
 * the transport may still be reading it. */
static int fail_once(comm_member *m, int step)
{
    const bool again = m->gang->first_step > 0;
    if (m->gang->gpus[0] / MOST != 1 || step != 1)
        return LS_OK;
    if (again)
        return m->device->ops->upload(m->device, NULL, m->leaf, (float[16]){7}, 16 * sizeof(float),
                                      &m->err);
    int status = look_at_the_wire(m, step);
    return status ? status : ls_fail(&m->err, LS_ENOMEM, "planted");
}

static void a_step_that_is_repeated_goes_on_with_what_the_others_have(void **state)
{
    (void)state;
    scenario s = {.members = 2,
                  .ranks = 1,
                  .shards = 2,
                  .ahead = 1,
                  .fails_in = 1,
                  .steps = 2,
                  .plant = know_the_wire,
                  .between = fail_once,
                  .last = look_at_the_node};
    run_scenario(&s, &worlds[0]);
    all_have_one_process_s_bits(&s);
    assert_true(brought != 7);
    assert_string_equal(s.process[1].gang.member[0].err.text, "planted");
    free_scenario(&s);
}

/* Checks that all processes end, and that all except `culprit` report the loss of a host. */
static void all_others_have_lost_a_host(const scenario *s, int culprit)
{
    for (int m = 0; m < s->members; m++) {
        const process *p = &s->process[m];
        if (m == culprit)
            assert_int_not_equal(p->status, LS_OK);
        else if (p->status != LS_ESTALLED)
            fail_msg("process %d: %s: %s", m, ls_status_name(p->status), comm_gang_text(&p->gang));
    }
}

static int nth;

static void fail_nccl(wire_world *w)
{
    (void)w;
    dbl_fail("ncclSend", nth, 0);
}

static void an_error_of_nccl_on_one_host_ends_the_run_of_all(void **state)
{
    (void)state;
    for (nth = 1; nth <= 9; nth += 4) {
        scenario s = {.members = 2, .ranks = 2, .shards = 8, .plant = fail_nccl};
        run_scenario(&s, &worlds[0]);
        const int culprit = s.process[0].status == LS_EDEVICE ? 0 : 1;
        assert_int_equal(s.process[culprit].status, LS_EDEVICE);
        all_others_have_lost_a_host(&s, culprit);
        free_scenario(&s);
    }
}

static uint64_t kill_at;

static void kill_process_1(wire_world *w)
{
    wire_world_kill_at(w, 1, kill_at);
    wire = w;
}

static void a_host_lost_at_any_point_ends_the_run_of_all(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++)
        for (kill_at = 12; kill_at < 40; kill_at += 9) {
            scenario s = {.members = 3,
                          .ranks = ahead ? 1 : 2,
                          .shards = ahead ? 3 : 8,
                          .ahead = ahead,
                          .deadline_ns = 300000000u,
                          .plant = kill_process_1};
            run_scenario(&s, &worlds[0]);
            for (int m = 0; m < 3; m++)
                assert_int_equal(s.process[m].status, LS_ESTALLED);
            free_scenario(&s);
        }
}

LS_TESTS(cuda_comm_hosts, "integration doubles no-asan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_processes_and_gpus_gives_the_bits_of_one),
        cmocka_unit_test(buckets_go_to_the_others_and_back_before_backward_has_ended),
        cmocka_unit_test(merging_ahead_changes_no_bit),
        cmocka_unit_test(a_step_that_is_repeated_goes_on_with_what_the_others_have),
        cmocka_unit_test(an_error_of_nccl_on_one_host_ends_the_run_of_all),
        cmocka_unit_test(a_host_lost_at_any_point_ends_the_run_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
