/* SPDX-License-Identifier: MIT */
/* Computes the expected result of a merge: the result of the library's communicator `ordered` for
 * the same leaves, on reference devices. */
#include "comm/gang.h"
#include "cuda/comm_gang.h"
#include "doubles/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(float *leaf, int shard, size_t floats, void *user)
{
    comm_gang_fill(leaf, shard, *(const int *)user, floats);
}

static void reduce(gang_member *m)
{
    m->status = gang_reduce(m, fill, m->gang->user);
}

void comm_gang_expected(float *out, int ranks, int shards, int step, size_t floats)
{
    gang g;
    gang_begin(&g, &ls_comm_ordered, ranks, shards, floats, UINT64_MAX);
    g.user = &step;
    gang_run(&g, reduce);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(g.member[r].status, LS_OK);
    memcpy(out, g.member[0].total, floats * sizeof *out);
    gang_end(&g);
}

void comm_gang_must_be_clean(void)
{
    assert_int_equal(dbl_lone_aborts(), 0);
    const char *wrong = dbl_end();
    if (wrong[0])
        fail_msg("%s", wrong);
}

void comm_gang_must_succeed(const comm_gang *g)
{
    if (comm_gang_status(g) != LS_OK)
        fail_msg("%s: %s", ls_status_name(comm_gang_status(g)), comm_gang_text(g));
}

void comm_gang_must_match(const comm_gang *g)
{
    float *expected = malloc(g->floats * sizeof *expected);
    for (int step = 0; step < g->steps; step++) {
        comm_gang_expected(expected, g->ranks, g->shards, step, g->floats);
        for (int r = 0; r < g->ranks; r++)
            assert_memory_equal(g->member[r].result[step], expected, g->floats * sizeof *expected);
    }
    free(expected);
}
