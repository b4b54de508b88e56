/* What the library's `ordered` makes of a gang's leaves, on reference devices. */
#include "comm/gang.h"
#include "cuda/comm_gang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
