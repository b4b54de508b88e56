/* SPDX-License-Identifier: MIT */
/* The orders that admit a process to a run that has begun (cluster.h). An *arrival* is a process
 * that waits at a member to be admitted; after its admission it is the newcomer. */
#include "base/error.h"
#include "cluster/cluster.h"
#include "cluster/progress.h"

bool ls_cluster_can_admit(const ls_cluster *c)
{
    return c->options.admits && c->options.type->arrivals && ls_cluster_can_regroup(c);
}

bool ls_cluster_was_admitted(const ls_cluster *c)
{
    return c->options.admits && c->newcomer > 0 && c->newcomer == c->member;
}

int ls_cluster_newcomer(const ls_cluster *c)
{
    return c->newcomer;
}

const char *ls_cluster_not_admitted(const ls_cluster *c)
{
    return c->not_admitted;
}

int ls_cluster_arrivals(ls_cluster *c, uint64_t round, ls_arrival *out, int *count, ls_error *err)
{
    int status = ls_cluster_usable(c, err);
    if (status)
        return status;
    c->round = round;
    status = ls_cluster_order(c, LS_ORDER_ARRIVALS, err);
    if (status == LS_OK) {
        *out = c->arrival;
        *count = c->arrivals;
    }
    return status;
}

int ls_cluster_admit(ls_cluster *c, const ls_arrival *arrival, ls_error *err)
{
    int status = ls_cluster_usable(c, err);
    if (status == LS_OK)
        status = ls_cluster_room(c, 2 * c->members, err);
    if (status)
        return status;
    c->arrival = *arrival;
    c->order_bytes = 0;
    return ls_cluster_order(c, LS_ORDER_ADMIT, err);
}
