/* SPDX-License-Identifier: MIT */
/* Tests the all-reduces when a worker fails, does not arrive, or has a device without host
 * memory. */
#include "comm/gang.h"
#include "ref/ref.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
        cmocka_unit_test(devices_without_host_memory_are_declined),
        cmocka_unit_test(a_group_must_have_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
