/* SPDX-License-Identifier: MIT */
/* Tests the all-reduces when a worker fails, does not arrive, or has a device without host
 * memory. */
#include "comm/gang.h"
#include "ref/ref.h"
#include "runner.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define FIFTY_MS 50000000u

/* Aborts the group on the last rank, before that rank merges. */
static void last_one_aborts(gang_member *m)
{
    const ls_comm_type *type = m->gang->desc.type;
    if (m->rank == m->gang->desc.ranks - 1) {
        type->abort(m->gang->group);
        m->status = LS_EABORTED;
        return;
    }
    m->status = gang_reduce(m, gang_ones, NULL);
}

static void reduce_once(gang_member *m)
{
    m->status = gang_reduce(m, gang_ones, NULL);
}

static void an_abort_releases_everybody_for_good(void **state)
{
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++)
        for (int round = 0; round < 20; round++) {
            gang g;
            gang_begin(&g, ls_comm_types()[t], 4, 8, 64, UINT64_MAX);
            gang_run(&g, last_one_aborts);
            for (int r = 0; r < 4; r++)
                assert_int_equal(g.member[r].status, LS_EABORTED);
            gang_run(&g, reduce_once); /* later calls fail too */
            for (int r = 0; r < 4; r++)
                assert_int_equal(g.member[r].status, LS_EABORTED);
            gang_end(&g);
        }
}

static void rank_two_stays_away(gang_member *m)
{
    if (m->rank != 2)
        m->status = gang_reduce(m, gang_ones, NULL);
}

static void a_timeout_names_the_rank_that_is_missing(void **state)
{
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++) {
        gang g;
        int named = 0;
        gang_begin(&g, ls_comm_types()[t], 4, 8, 64, FIFTY_MS);
        gang_run(&g, rank_two_stays_away);
        for (int r = 0; r < 4; r++) {
            const gang_member *m = &g.member[r];
            if (r == 2)
                continue;
            assert_true(m->status == LS_ETIMEDOUT || m->status == LS_EABORTED);
            if (m->status == LS_ETIMEDOUT) {
                assert_non_null(strstr(m->err.text, "3 of 4 ranks"));
                assert_non_null(strstr(m->err.text, "missing: 2"));
                named++;
            }
            assert_true(m->times.wait > 0.01);
        }
        /* one rank times out and aborts the group, which ends the wait of the others */
        assert_int_equal(named, 1);
        gang_end(&g);
    }
}

/* ---- which ranks count as reading ---- */

/* A partial sum and the total of one rank, the owner. After a meeting of the other rank, the
 * reader, both are inaccessible, so that a page fault tells when the reader reads them. The owner
 * waits in its own faults until the reader has had one or has come to its next meeting. */
static struct {
    char *base;
    size_t page;     /* bytes of each array */
    int owner, from; /* the arrays are guarded from this meeting of the reader on, from 1 */
    int meetings;    /* of the reader */
    ls_comm_group *group;
    _Atomic int passed;  /* the reader had a fault, or waits, or has ended its merge */
    _Atomic int faults;  /* of the reader */
    _Atomic int reading; /* may_read of the reader at its fault, after an abort */
} guarded;

static _Thread_local int my_rank;

static void at_a_read(int signal)
{
    (void)signal;
    if (my_rank != guarded.owner && atomic_fetch_add(&guarded.faults, 1) == 0) {
        guarded.group->type->abort(guarded.group);
        atomic_store(&guarded.reading, guarded.group->type->may_read(guarded.group, my_rank));
        atomic_store(&guarded.passed, 1);
    }
    while (!atomic_load(&guarded.passed))
        sched_yield();
    mprotect(guarded.base, 2 * guarded.page, PROT_READ | PROT_WRITE);
}

static void at_a_meeting(void *user, int begins)
{
    (void)user;
    if (!begins)
        guarded.meetings++;
    if (!begins && guarded.meetings == guarded.from)
        mprotect(guarded.base, 2 * guarded.page, PROT_NONE);
    else if (begins && guarded.meetings == guarded.from)
        atomic_store(&guarded.passed, 1);
}

static void reduce_guarded(gang_member *m)
{
    ls_partial partial = {{m->rank, m->rank + 1}, m->leaf};
    my_rank = m->rank;
    if (m->rank == guarded.owner)
        partial.data = (const float *)(const void *)guarded.base;
    else
        m->times.waiting = at_a_meeting;
    m->status =
        m->gang->desc.type->all_reduce(m->comm, NULL, &partial, 1, m->total, &m->times, &m->err);
    if (m->rank != guarded.owner)
        atomic_store(&guarded.passed, 1);
}

static void nobody_reads_after_a_failure(const gang *g)
{
    for (int r = 0; r < g->desc.ranks; r++) {
        assert_int_equal(g->member[r].status, LS_EABORTED);
        if (g->desc.type->may_read(g->group, r))
            fail_msg("%s: rank %d counts as reading after a failed merge", g->desc.type->name, r);
    }
}

/* Merges with arrays that are guarded from a meeting on. Returns the number of the reader's
 * meetings. */
static int merge_guarded(const ls_comm_type *type, int owner, int from)
{
    const struct sigaction fault = {.sa_handler = at_a_read};
    struct sigaction before;
    gang g;
    gang_begin(&g, type, 2, 2, guarded.page / sizeof(float), UINT64_MAX);
    float *total = g.member[owner].total;
    g.member[owner].total = (float *)(void *)(guarded.base + guarded.page);
    guarded.owner = owner;
    guarded.from = from;
    guarded.group = g.group;
    guarded.meetings = 0;
    guarded.passed = 0;
    guarded.faults = 0;
    guarded.reading = 0;
    sigaction(SIGSEGV, &fault, &before);
    gang_run(&g, reduce_guarded);
    sigaction(SIGSEGV, &before, NULL);
    mprotect(guarded.base, 2 * guarded.page, PROT_READ | PROT_WRITE);
    if (guarded.faults) {
        if (!guarded.reading)
            fail_msg("%s: rank %d does not count as reading when it reads, after meeting %d",
                     type->name, !owner, from);
        nobody_reads_after_a_failure(&g);
    }
    g.member[owner].total = total;
    gang_end(&g);
    return guarded.meetings;
}

static void a_rank_counts_as_reading_while_it_reads_and_not_after_a_failure(void **state)
{
    (void)state;
    guarded.page = (size_t)sysconf(_SC_PAGESIZE);
    guarded.base = aligned_alloc(guarded.page, 2 * guarded.page);
    assert_non_null(guarded.base);
    memset(guarded.base, 0, 2 * guarded.page);
    for (int t = 0; ls_comm_types()[t]; t++) {
        int reads = 0;
        for (int owner = 0; owner < 2; owner++) {
            const int meetings = merge_guarded(ls_comm_types()[t], owner, 0);
            for (int from = 1; from < meetings; from++) {
                merge_guarded(ls_comm_types()[t], owner, from);
                reads += guarded.faults > 0;
            }
        }
        assert_true(reads > 0);
    }
    free(guarded.base);
}

static _Atomic int waits;

static void note_the_wait(void *user, int begins)
{
    (void)user;
    if (begins)
        atomic_store(&waits, 1);
}

/* Rank 1 aborts the group when rank 0 has shown its partial sums and waits. */
static void begin_pieces(gang_member *m)
{
    m->status = LS_EABORTED;
    if (m->rank == 1) {
        while (!atomic_load(&waits))
            sched_yield();
        m->gang->desc.type->abort(m->gang->group);
        return;
    }
    m->times.waiting = note_the_wait;
    assert_int_equal(gang_fold(m, gang_ones, NULL), LS_OK);
    m->status = ls_pieces_begin(m->comm, m->fold.stack, m->fold.depth, &m->times, &m->err);
}

static void a_rank_does_not_read_after_sums_by_pieces_failed_to_begin(void **state)
{
    gang g;
    (void)state;
    atomic_store(&waits, 0);
    gang_begin(&g, &ls_comm_ordered, 2, 2, 64, UINT64_MAX);
    gang_run(&g, begin_pieces);
    nobody_reads_after_a_failure(&g);
    gang_end(&g);
}

/* ---- a device whose memory the host cannot read ---- */

static void describe_far(const ls_device *device, ls_device_info *out)
{
    (void)device;
    *out = (ls_device_info){.name = "far(0)"};
}

static void devices_without_host_memory_are_declined(void **state)
{
    static const ls_device_ops ops = {.size = sizeof ops, .describe = describe_far};
    ls_device far = {&ops};
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++) {
        gang g;
        ls_comm *comm;
        ls_error err;
        gang_begin(&g, ls_comm_types()[t], 1, 1, 32, UINT64_MAX);
        assert_int_equal(g.desc.type->join(&comm, g.group, 0, &far, &err), LS_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "far(0) does not"));
        gang_end(&g);
    }
}

static void a_group_must_have_ranks(void **state)
{
    ls_comm_group_desc desc = {.ranks = 0, .shards = 1, .floats = 16};
    ls_comm_group *group;
    ls_error err;
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++) {
        desc.type = ls_comm_types()[t];
        assert_int_equal(desc.type->group_create(&group, &desc, &err), LS_EINVAL);
    }
}

LS_TESTS(comm_failures, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_releases_everybody_for_good),
        cmocka_unit_test(a_timeout_names_the_rank_that_is_missing),
        cmocka_unit_test(a_rank_counts_as_reading_while_it_reads_and_not_after_a_failure),
        cmocka_unit_test(a_rank_does_not_read_after_sums_by_pieces_failed_to_begin),
        cmocka_unit_test(devices_without_host_memory_are_declined),
        cmocka_unit_test(a_group_must_have_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
