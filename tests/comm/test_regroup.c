/* SPDX-License-Identifier: MIT */
/* Tests the loss of workers. A group is aborted, a worker stalls and continues too late, and the
 * remaining workers form a new group and continue with bit-identical results. The workers are
 * threads of a worker pool and use the reference back end. */
#include "base/host.h"
#include "comm/gang.h"
#include "device/registry.h"
#include "merge/group.h"
#include "ref/ref.h"
#include "runner.h"

#include <lockstep/device_pool.h>
#include <lockstep/split.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

enum { WORKERS = 4, SHARDS = 8, FLOATS = 1024, STEPS = 12 };

static void nap_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* ---- a group of workers --------------------------------------------------------------------- */

/* The point of a step at which a worker stalls. */
enum stall { NOWHERE, BEFORE_THE_MERGE, AFTER_THE_MERGE };

/* Data of one worker. While the worker runs a job, only the job writes these data. */
typedef struct worker_data {
    int rank;
    ls_device *device;
    ls_comm *comm;
    ls_fold fold;
    float *leaf, *total;
    int status;
    ls_error err;
    int late_status; /* status of the call that the worker made when it continued */
    _Atomic int stall;
    _Atomic int stalled;
    _Atomic int released;
    int lost;
} worker_data;

typedef struct workers {
    const ls_comm_type *type;
    ls_registry *registry;
    ls_pool *pool;
    ls_comm_group *group;
    size_t segments[2];
    /* old groups, which are kept because a stalled rank can continue in them */
    ls_comm_group *old[WORKERS + 1];
    int old_count;
    int step;
    worker_data worker[WORKERS];
} workers;

/* Returns numbers whose sum depends on the order of the additions. */
static float value(int step, int shard, size_t i)
{
    static const float scale[] = {1.0f, 1e4f, 1e-4f, 3e6f};
    uint32_t hash = (uint32_t)(shard * 7919 + step * 104729 + (int)i * 31) * 2654435761u;
    float size = (float)(hash >> 8) * scale[(hash >> 4) % 4];
    return hash & 1 ? size : -size;
}

/* Returns element i of the tree node T(lo, hi), computed by the definition (merge/tree.h). */
static float tree_sum(int step, size_t i, int lo, int hi)
{
    int half = 1;
    if (hi - lo == 1)
        return value(step, lo, i);
    while (half * 2 < hi - lo)
        half *= 2;
    return tree_sum(step, i, lo, lo + half) + tree_sum(step, i, lo + half, hi);
}

static int open_worker(const ls_worker *w, void *arg, ls_error *err)
{
    worker_data *m = &((workers *)arg)->worker[w->index];
    (void)err;
    m->device = ls_worker_device(w);
    m->leaf = ls_alloc_array(NULL, FLOATS, sizeof(float));
    m->total = ls_alloc_array(NULL, FLOATS, sizeof(float));
    return m->leaf && m->total ? LS_OK : LS_ENOMEM;
}

/* Leaves the worker's old group, if there is one, and joins the present group. */
static int join_group(const ls_worker *w, void *arg, ls_error *err)
{
    workers *c = arg;
    worker_data *m = &c->worker[w->index];
    uint32_t first, count;
    c->type->leave(m->comm);
    m->comm = NULL;
    ls_fold_fini(&m->fold);
    ls_split(SHARDS, (uint32_t)c->group->ranks, (uint32_t)m->rank, &first, &count);
    int status = ls_fold_init(&m->fold, m->device, m->leaf, FLOATS, SHARDS, (int)first,
                              (int)(first + count), err);
    if (status == LS_OK)
        status = c->type->join(&m->comm, c->group, m->rank, m->device, err);
    const ls_merge_check check = {.comm = m->comm,
                                  .device = m->device,
                                  .shards = SHARDS,
                                  .floats = FLOATS,
                                  .scratch = m->leaf,
                                  .total = m->total};
    return status ? status : ls_merge_check_group(&check, err);
}

static int merge(worker_data *m, const ls_comm_type *type, int step, ls_error *err)
{
    ls_comm_times times = {0};
    ls_fold_begin(&m->fold);
    for (int shard = m->fold.range.lo; shard < m->fold.range.hi; shard++) {
        for (size_t i = 0; i < FLOATS; i++)
            m->leaf[i] = value(step, shard, i);
        int status = ls_fold_push(&m->fold, err);
        if (status)
            return status;
    }
    if (atomic_load(&m->stall) == BEFORE_THE_MERGE) {
        atomic_store(&m->stalled, 1);
        while (!atomic_load(&m->released))
            nap_us(100);
    }
    return type->all_reduce(m->comm, NULL, m->fold.stack, m->fold.depth, m->total, &times, err);
}

static int do_step(const ls_worker *w, void *arg, ls_error *err)
{
    workers *c = arg;
    worker_data *m = &c->worker[w->index];
    (void)err;
    m->status = merge(m, c->type, c->step, &m->err);
    if (atomic_load(&m->stall) == AFTER_THE_MERGE) {
        atomic_store(&m->stalled, 1);
        while (!atomic_load(&m->released))
            nap_us(100);
    }
    /* a worker that has stalled does not know what the others have done meanwhile */
    if (atomic_load(&m->stall) != NOWHERE)
        m->late_status = merge(m, m->comm->group->type, 0, NULL);
    return LS_OK; /* the error is stored in the worker's data */
}

static void must(int status, const ls_error *err)
{
    if (status != LS_OK)
        fail_msg("%s: %s", ls_status_name(status), err->text);
}

static int live(const workers *c)
{
    int n = 0;
    for (int w = 0; w < WORKERS; w++)
        n += !c->worker[w].lost;
    return n;
}

/* Forms a new group of all live workers, with the ranks 0 … k − 1. */
static void form_group(workers *c)
{
    ls_error err;
    ls_comm_group_desc desc = {.type = c->type,
                               .ranks = live(c),
                               .shards = SHARDS,
                               .floats = FLOATS,
                               .param_offsets = c->segments,
                               .param_count = 1,
                               .timeout_ns = UINT64_MAX};
    int rank = 0;
    for (int w = 0; w < WORKERS; w++)
        if (!c->worker[w].lost)
            c->worker[w].rank = rank++;
    must(c->type->group_create(&c->group, &desc, &err), &err);
    must(ls_pool_run(c->pool, join_group, c, LS_FOREVER, &err), &err);
}

static void workers_begin(workers *c, const ls_comm_type *type)
{
    char devices[16];
    ls_error err;
    memset(c, 0, sizeof *c);
    c->type = type;
    c->segments[1] = FLOATS;
    snprintf(devices, sizeof devices, "ref:%d", WORKERS);
    must(ls_registry_create_empty(&c->registry, NULL, &err), &err);
    must(ls_registry_add(c->registry, ls_ref_backend(), &err), &err);
    ls_device_pool_options o = {.size = sizeof o, .registry = c->registry, .devices = devices};
    must(ls_device_pool_create(&c->pool, &o, &err), &err);
    must(ls_pool_run(c->pool, open_worker, c, LS_FOREVER, &err), &err);
    form_group(c);
}

/* Ends the test. All stalled workers must have continued before this call. */
static void workers_end(workers *c)
{
    for (int w = 0; w < WORKERS; w++)
        while (ls_pool_busy(c->pool, w) > 0)
            nap_us(100);
    for (int w = 0; w < WORKERS; w++) {
        worker_data *m = &c->worker[w];
        c->type->leave(m->comm);
        ls_fold_fini(&m->fold);
        ls_free(NULL, m->leaf);
        ls_free(NULL, m->total);
    }
    for (int g = 0; g < c->old_count; g++)
        c->type->group_destroy(c->old[g]);
    c->type->group_destroy(c->group);
    assert_int_equal(ls_pool_destroy(c->pool, LS_FOREVER, NULL), LS_OK);
    ls_registry_destroy(c->registry);
}

static void submit_step(workers *c, int worker)
{
    ls_error err;
    must(ls_pool_submit(c->pool, worker, do_step, c, &err), &err);
}

static void expect_the_sum(const workers *c)
{
    for (int w = 0; w < WORKERS; w++) {
        const worker_data *m = &c->worker[w];
        if (m->lost)
            continue;
        assert_int_equal(m->status, LS_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            float want = tree_sum(c->step, i, 0, SHARDS);
            if (memcmp(&want, &m->total[i], sizeof want) != 0)
                fail_msg("step %d, %d ranks, worker %d, float %zu: %a, not %a", c->step, live(c), w,
                         i, (double)m->total[i], (double)want);
        }
    }
}

static void do_whole_step(workers *c)
{
    ls_error err;
    must(ls_pool_run(c->pool, do_step, c, LS_FOREVER, &err), &err);
    expect_the_sum(c);
}

static void wait_for_all_but(const workers *c, int victim)
{
    for (int w = 0; w < WORKERS; w++)
        while (w != victim && !c->worker[w].lost && ls_pool_busy(c->pool, w) > 0)
            nap_us(50);
}

/* Forms a group of the remaining workers. The old group is kept, because the stalled rank can
 * continue in it. */
static void regroup_without(workers *c, int victim)
{
    assert_int_equal(ls_pool_abandon(c->pool, victim, NULL), LS_OK);
    c->type->abort(c->group);
    while (c->type->may_read(c->group, c->worker[victim].rank))
        nap_us(50);
    c->old[c->old_count++] = c->group;
    form_group(c);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static int names(const char *text, int rank)
{
    const char *missing = strstr(text, "missing: ");
    char wanted[8];
    snprintf(wanted, sizeof wanted, "%d", rank);
    return missing && strstr(missing, wanted);
}

/* Runs a step in which the worker `victim` stalls. The others notice the stall by a time-out, or
 * because the group is aborted. Returns whether the step was done. */
static int lose_in_step(workers *c, int victim, enum stall where, int by_timeout)
{
    worker_data *m = &c->worker[victim];
    int timeouts = 0;
    atomic_store(&m->stall, (int)where);
    submit_step(c, victim);
    if (where == BEFORE_THE_MERGE) {
        while (!atomic_load(&m->stalled))
            nap_us(50);
        if (by_timeout)
            c->type->set_timeout(c->group, 20 * MS);
    }
    for (int w = 0; w < WORKERS; w++)
        if (w != victim && !c->worker[w].lost)
            submit_step(c, w);
    if (where == BEFORE_THE_MERGE && !by_timeout)
        c->type->abort(c->group);
    wait_for_all_but(c, victim);
    while (!atomic_load(&m->stalled))
        nap_us(50);
    for (int w = 0; w < WORKERS; w++) {
        const worker_data *other = &c->worker[w];
        if (w == victim || other->lost)
            continue;
        if (where == AFTER_THE_MERGE)
            assert_int_equal(other->status, LS_OK);
        else if (other->status == LS_ETIMEDOUT)
            assert_true(names(other->err.text, m->rank));
        else
            assert_int_equal(other->status, LS_EABORTED);
        timeouts += other->status == LS_ETIMEDOUT;
    }
    assert_int_equal(timeouts, where == BEFORE_THE_MERGE && by_timeout);
    return where == AFTER_THE_MERGE;
}

static int pick(const workers *c, unsigned *seed)
{
    for (;;) {
        int w = (int)draw(seed, WORKERS);
        if (!c->worker[w].lost)
            return w;
    }
}

/* Runs several steps. In some steps a worker stalls; it continues while the others regroup, or some
 * steps later. */
static void run_with_losses(const ls_comm_type *type, unsigned seed)
{
    workers c;
    workers_begin(&c, type);
    for (c.step = 0; c.step < STEPS; c.step++) {
        if (live(&c) > 1 && draw(&seed, 3) == 0) {
            int victim = pick(&c, &seed), early = (int)draw(&seed, 2);
            enum stall where = draw(&seed, 3) ? BEFORE_THE_MERGE : AFTER_THE_MERGE;
            int done = lose_in_step(&c, victim, where, draw(&seed, 4) == 0);
            c.worker[victim].lost = 1;
            if (done)
                expect_the_sum(&c);
            if (early) /* the victim continues while the others go on */
                atomic_store(&c.worker[victim].released, 1);
            regroup_without(&c, victim);
            if (done)
                continue;
        }
        do_whole_step(&c);
        for (int w = 0; w < WORKERS; w++)
            if (c.worker[w].lost && draw(&seed, 3) == 0)
                atomic_store(&c.worker[w].released, 1);
    }
    for (int w = 0; w < WORKERS; w++)
        atomic_store(&c.worker[w].released, 1);
    for (int w = 0; w < WORKERS; w++) {
        while (ls_pool_busy(c.pool, w) > 0)
            nap_us(100);
        if (c.worker[w].lost)
            assert_int_equal(c.worker[w].late_status, LS_EABORTED);
    }
    workers_end(&c);
}

static void survivors_regroup_and_late_ranks_do_no_harm(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++)
        run_with_losses(&ls_comm_ordered, seed);
}

/* ---- groups that end ------------------------------------------------------------------------ */

/* The following functions are the work of one rank, which runs on a thread of its own. */
static void fill_ones(float *leaf, int shard, size_t floats, void *user)
{
    (void)shard;
    (void)user;
    for (size_t i = 0; i < floats; i++)
        leaf[i] = 1.0f;
}

static void merge_ones(gang_member *m)
{
    m->status = gang_reduce(m, fill_ones, NULL);
}

static void merge_ones_but_rank_two(gang_member *m)
{
    if (m->rank != 2)
        merge_ones(m);
}

static void the_time_limit_can_be_set_at_any_time(void **state)
{
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++) {
        gang g;
        int timeouts = 0;
        gang_begin(&g, ls_comm_types()[t], 4, 8, 64, UINT64_MAX);
        gang_run(&g, merge_ones);
        for (int r = 0; r < 4; r++)
            assert_int_equal(g.member[r].status, LS_OK);
        g.desc.type->set_timeout(g.group, 30 * MS);
        /* returns because of the time limit */
        gang_run(&g, merge_ones_but_rank_two);
        for (int r = 0; r < 4; r++)
            if (r != 2 && g.member[r].status == LS_ETIMEDOUT) {
                assert_true(names(g.member[r].err.text, 2));
                timeouts++;
            }
        assert_int_equal(timeouts, 1);
        /* The group stays aborted: the rank that was missing gets LS_EABORTED at once, although
         * there is no time limit now. */
        g.desc.type->set_timeout(g.group, UINT64_MAX);
        merge_ones(&g.member[2]);
        assert_int_equal(g.member[2].status, LS_EABORTED);
        gang_end(&g);
    }
}

static void leave(gang_member *m)
{
    m->gang->desc.type->leave(m->comm);
    m->comm = NULL;
}

static void join(gang_member *m)
{
    m->status = m->gang->desc.type->join(&m->comm, m->gang->group, m->rank, m->device, &m->err);
}

/* Each rank leaves an aborted group on its own thread, in any order, and joins the next group. */
static void aborted_groups_are_left_and_replaced(void **state)
{
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++) {
        gang g;
        ls_error err;
        gang_begin(&g, ls_comm_types()[t], 4, 8, 64, UINT64_MAX);
        for (int round = 0; round < 20; round++) {
            g.desc.type->abort(g.group);
            gang_run(&g, merge_ones);
            for (int r = 0; r < 4; r++)
                assert_int_equal(g.member[r].status, LS_EABORTED);
            gang_run(&g, leave);
            g.desc.type->group_destroy(g.group);
            must(g.desc.type->group_create(&g.group, &g.desc, &err), &err);
            gang_run(&g, join);
            gang_run(&g, merge_ones);
            for (int r = 0; r < 4; r++) {
                assert_int_equal(g.member[r].status, LS_OK);
                assert_true(g.member[r].total[5] == 8.0f);
            }
        }
        gang_end(&g);
    }
}

/* ---- ranks that can still read ---- */

static _Atomic int may_go_on;

static int linger(ls_comm *comm, void *arg, ls_error *err)
{
    gang_member *m = arg;
    const ls_comm_type *type = m->gang->desc.type;
    int expected = 0;
    if (m->rank == 0) {
        expected += type->may_read(m->gang->group, 0) && type->may_read(m->gang->group, 1);
        type->abort(m->gang->group);
        expected += type->may_read(m->gang->group, 1);
        atomic_store(&may_go_on, 1);
        while (type->may_read(m->gang->group, 1))
            nap_us(50);
        expected += type->may_read(m->gang->group, 0);
    }
    while (!atomic_load(&may_go_on))
        nap_us(50);
    m->leaf[0] = (float)expected;
    return ls_merge_meet(comm, &m->times, err);
}

/* Rank 1 is inside a merge while rank 0 aborts the group. */
static void linger_in_a_merge(gang_member *m)
{
    m->status = ls_merge_run(m->comm, NULL, 0, m->total, &m->times, linger, m, &m->err);
    ls_merge_stop_reading(m->comm);
}

static void a_rank_in_a_merge_may_read_until_it_meets_the_others(void **state)
{
    (void)state;
    gang g;
    gang_begin(&g, &ls_comm_ordered, 2, 2, 64, UINT64_MAX);
    atomic_store(&may_go_on, 0);
    gang_run(&g, linger_in_a_merge);
    assert_true(g.member[0].leaf[0] == 3.0f);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(g.member[r].status, LS_EABORTED);
        assert_int_equal(g.desc.type->may_read(g.group, r), 0);
    }
    gang_end(&g);

    for (int t = 0; ls_comm_types()[t]; t++) {
        gang_begin(&g, ls_comm_types()[t], 2, 2, 64, UINT64_MAX);
        gang_run(&g, merge_ones);
        /* it is possible that rank 0 begins another merge */
        assert_int_equal(g.desc.type->may_read(g.group, 0), 1);
        g.desc.type->abort(g.group);
        assert_int_equal(g.desc.type->may_read(g.group, 0), 0);
        assert_int_equal(g.desc.type->may_read(g.group, 1), 0);
        gang_end(&g);
    }
}

LS_TESTS(comm_regroup, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_regroup_and_late_ranks_do_no_harm),
        cmocka_unit_test(the_time_limit_can_be_set_at_any_time),
        cmocka_unit_test(aborted_groups_are_left_and_replaced),
        cmocka_unit_test(a_rank_in_a_merge_may_read_until_it_meets_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
