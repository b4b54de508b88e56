/* SPDX-License-Identifier: MIT */
/* Tests the start-up check of a group of workers (merge/group.h). The check must find every planted
 * fault, and must succeed in a group without faults. */
#include "comm/gang.h"
#include "merge/group.h"
#include "runner.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define FIFTY_MS 50000000u

static void check_once(gang_member *m)
{
    const ls_merge_check check = {.comm = m->comm,
                                  .device = m->device,
                                  .shards = m->gang->desc.shards,
                                  .floats = m->gang->desc.floats,
                                  .scratch = m->leaf,
                                  .total = m->total};
    m->status = ls_merge_check_group(&check, &m->err);
}

static void expect_all(const gang *g, int status)
{
    for (int r = 0; r < g->desc.ranks; r++)
        if (g->member[r].status != status)
            fail_msg("rank %d of %d: %s, not %s: %s", r, g->desc.ranks,
                     ls_status_name(g->member[r].status), ls_status_name(status),
                     g->member[r].err.text);
}

static void check_and_merge(gang_member *m)
{
    check_once(m);
    for (size_t i = 0; i < m->gang->desc.floats; i++)
        if (m->leaf[i] != 0 || m->total[i] != 0)
            m->status = LS_EINTERNAL; /* these floats stay zero */
    if (m->status == LS_OK)
        m->status = gang_reduce(m, gang_ones, NULL);
}

static void sound_groups_pass_and_can_be_used(void **state)
{
    (void)state;
    static const struct {
        int ranks, shards;
        size_t floats;
    } cases[] = {{1, 1, 32}, {1, 8, 320}, {2, 2, 48}, {3, 8, 40000}, {4, 4, 64}, {5, 13, 16016}};
    for (int t = 0; ls_comm_types()[t]; t++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            gang g;
            gang_begin(&g, ls_comm_types()[t], cases[c].ranks, cases[c].shards, cases[c].floats,
                       UINT64_MAX);
            gang_run(&g, check_and_merge);
            expect_all(&g, LS_OK);
            for (int r = 0; r < cases[c].ranks; r++)
                assert_true(g.member[r].total[cases[c].floats - 1] == (float)cases[c].shards);
            gang_end(&g);
        }
}

/* ---- memory that fails ---- */

/* Memory that behaves like a chip with a broken address line: pages 3 and 5 are the same memory. */
typedef struct bad_memory {
    FILE *file;
    char *base;
    size_t page;
} bad_memory;

static void bad_memory_begin(bad_memory *m, size_t pages)
{
    m->page = (size_t)sysconf(_SC_PAGESIZE);
    m->file = tmpfile();
    assert_non_null(m->file);
    int fd = fileno(m->file);
    assert_int_equal(ftruncate(fd, (off_t)(pages * m->page)), 0);
    m->base = mmap(NULL, pages * m->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(m->base != MAP_FAILED);
    assert_true(mmap(m->base + 5 * m->page, m->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     fd, (off_t)(3 * m->page)) != MAP_FAILED);
}

static void bad_memory_end(bad_memory *m, size_t pages)
{
    munmap(m->base, pages * m->page);
    fclose(m->file);
}

static void memory_that_fails_is_named_with_its_reader_and_its_owner(void **state)
{
    (void)state;
    enum { RANKS = 3, PAGES = 8 };
    for (int t = 0; ls_comm_types()[t]; t++) {
        gang g;
        bad_memory bad;
        int found = 0;
        bad_memory_begin(&bad, PAGES);
        gang_begin(&g, ls_comm_types()[t], RANKS, 8, PAGES * bad.page / sizeof(float), UINT64_MAX);
        float *good = g.member[1].total;
        g.member[1].total = (float *)(void *)bad.base;
        gang_run(&g, check_once);
        for (int r = 0; r < RANKS; r++) {
            char start[80], end[80];
            const gang_member *m = &g.member[r];
            if (m->status == LS_EABORTED)
                continue;
            /* The value that was written last is also read at the other address. */
            snprintf(start, sizeof start, "start-up check: ref(%d) (rank %d) read 0x", r, r);
            snprintf(end, sizeof end, " from ref(1) (rank 1) at float %zu: expected 0x",
                     3 * bad.page / sizeof(float));
            assert_int_equal(m->status, LS_EDEVICE);
            assert_memory_equal(m->err.text, start, strlen(start));
            assert_non_null(strstr(m->err.text, end));
            found++;
        }
        assert_true(found >= 1);
        gang_run(&g, check_once);
        expect_all(&g, LS_EABORTED); /* a group whose check has failed cannot be used */
        g.member[1].total = good;
        gang_end(&g);
        bad_memory_end(&bad, PAGES);
    }
}

/* ---- memory that is wrong for a moment ---- */

/* One piece of the check's memory, followed by an inaccessible page. After the piece has been
 * written, the test damages one of its pages. It restores this page before the page is read for the
 * second time. Page faults on inaccessible pages tell the test when to do this. */
static struct {
    char *base;
    size_t page, pages;
    int faults;
} moment;

static void at_a_fault(int signal)
{
    (void)signal;
    char *last = moment.base + (moment.pages - 1) * moment.page;
    moment.base[moment.page + 5] = (char)(moment.base[moment.page + 5] ^ 64);
    if (++moment.faults == 1) { /* the last page is being written */
        mprotect(last, moment.page, PROT_READ | PROT_WRITE);
        mprotect(last - moment.page, moment.page, PROT_NONE);
    } else if (moment.faults == 2) { /* the page before it is being read */
        mprotect(last - moment.page, moment.page, PROT_READ | PROT_WRITE);
    } else {
        _exit(3);
    }
}

static void what_is_wrong_for_a_moment_is_found_and_read_no_further(void **state)
{
    enum { FLOATS = 1 << 14 };
    const char *start =
        "start-up check: ref(0) (rank 0) read floats 0 to 16383 of ref(0) (rank 0) twice";
    struct sigaction fault = {.sa_handler = at_a_fault}, before;
    gang g;
    (void)state;
    moment.page = (size_t)sysconf(_SC_PAGESIZE);
    moment.pages = FLOATS * sizeof(float) / moment.page;
    moment.faults = 0;
    if (moment.pages < 4)
        skip();
    moment.base = aligned_alloc(moment.page, (moment.pages + 1) * moment.page);
    assert_non_null(moment.base);
    mprotect(moment.base + (moment.pages - 1) * moment.page, 2 * moment.page, PROT_NONE);
    gang_begin(&g, &ls_comm_ordered, 1, 1, FLOATS, UINT64_MAX);
    float *good = g.member[0].total;
    g.member[0].total = (float *)(void *)moment.base;
    sigaction(SIGSEGV, &fault, &before);
    gang_run(&g, check_once);
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(g.member[0].status, LS_EDEVICE);
    assert_memory_equal(g.member[0].err.text, start, strlen(start));
    g.member[0].total = good;
    gang_end(&g);
    mprotect(moment.base, (moment.pages + 1) * moment.page, PROT_READ | PROT_WRITE);
    free(moment.base);
}

/* ---- one total ---- */

/* If all ranks share one total, the ranks write their patterns to the array `scratch`. Here the
 * `scratch` of one rank is faulty. */
static void memory_is_checked_where_all_have_one_total(void **state)
{
    enum { RANKS = 3, PAGES = 8 };
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        gang g;
        bad_memory bad;
        int found = 0;
        float *own[RANKS];
        bad_memory_begin(&bad, PAGES);
        gang_begin(&g, &ls_comm_ordered, RANKS, 8, PAGES * bad.page / sizeof(float), UINT64_MAX);
        float *good = g.member[1].leaf;
        for (int r = 0; r < RANKS; r++) {
            own[r] = g.member[r].total;
            g.member[r].total = ls_host_group_total(g.group);
        }
        if (fails)
            g.member[1].leaf = (float *)(void *)bad.base;
        gang_run(&g, check_once);
        for (int r = 0; r < RANKS; r++) {
            found += g.member[r].status == LS_EDEVICE &&
                     strstr(g.member[r].err.text, " from ref(1) (rank 1) at float ");
            g.member[r].total = own[r];
        }
        g.member[1].leaf = good;
        if (fails)
            assert_true(found >= 1);
        else
            expect_all(&g, LS_OK);
        gang_end(&g);
        bad_memory_end(&bad, PAGES);
    }
}

/* ---- a merge that adds up wrongly ---- */

static size_t wrong_at; /* set before the ranks' threads start */

static int reduce_wrongly(ls_comm *comm, ls_stream *stream, const ls_partial *partials, int count,
                          float *total, ls_comm_times *times, ls_error *err)
{
    int status = ls_comm_ordered.all_reduce(comm, stream, partials, count, total, times, err);
    if (comm->rank == 2)
        total[wrong_at] += 1;
    return status;
}

static void a_sum_that_is_wrong_is_found(void **state)
{
    (void)state;
    static const size_t places[] = {0, 7, 1020, 1021, 2041, 2042, 3199};
    const char *start = "start-up check: ref(2) (rank 2) got ";
    ls_comm_type wrong = ls_comm_ordered;
    wrong.all_reduce = reduce_wrongly;
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        gang g;
        char place[80];
        wrong_at = places[p];
        snprintf(place, sizeof place, " as the sum of integers at float %zu: expected ", wrong_at);
        gang_begin(&g, &wrong, 4, 8, 3200, UINT64_MAX);
        gang_run(&g, check_once);
        for (int r = 0; r < 4; r++)
            assert_int_equal(g.member[r].status, r == 2 ? LS_EDEVICE : LS_EABORTED);
        assert_memory_equal(g.member[2].err.text, start, strlen(start));
        assert_non_null(strstr(g.member[2].err.text, place));
        gang_end(&g);
    }
}

/* ---- ranks that do not come ---- */

static void rank_two_stays_away(gang_member *m)
{
    if (m->rank != 2)
        check_once(m);
}

static void a_rank_that_is_missing_is_named(void **state)
{
    (void)state;
    gang g;
    int named = 0;
    gang_begin(&g, &ls_comm_ordered, 3, 8, 64, FIFTY_MS);
    gang_run(&g, rank_two_stays_away);
    for (int r = 0; r < 2; r++)
        if (g.member[r].status == LS_ETIMEDOUT) {
            assert_non_null(strstr(g.member[r].err.text, "missing: "));
            assert_non_null(strstr(g.member[r].err.text, "2"));
            named++;
        } else {
            assert_int_equal(g.member[r].status, LS_EABORTED);
        }
    assert_int_equal(named, 1);
    gang_end(&g);
}

static void communicators_are_found_by_name(void **state)
{
    char why[LS_COMM_WHY];
    (void)state;
    for (int t = 0; ls_comm_types()[t]; t++)
        assert_ptr_equal(ls_comm_find(ls_comm_types(), ls_comm_types()[t]->name, why),
                         ls_comm_types()[t]);
    assert_null(ls_comm_find(ls_comm_types(), "orderd", why));
    assert_string_equal(why, "did you mean 'ordered'?");
    assert_null(ls_comm_find(ls_comm_types(), "telepathy", why));
    assert_non_null(strstr(why, "use one of ordered, naive"));
}

LS_TESTS(comm_check, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_are_found_by_name),
        cmocka_unit_test(sound_groups_pass_and_can_be_used),
        cmocka_unit_test(memory_that_fails_is_named_with_its_reader_and_its_owner),
        cmocka_unit_test(what_is_wrong_for_a_moment_is_found_and_read_no_further),
        cmocka_unit_test(memory_is_checked_where_all_have_one_total),
        cmocka_unit_test(a_sum_that_is_wrong_is_found),
        cmocka_unit_test(a_rank_that_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
