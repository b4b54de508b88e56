/* What the communicators that merge through host memory share: a group whose ranks see each
 * other's partial sums, and its barrier. */
#ifndef COMM_HOST_GROUP_H
#define COMM_HOST_GROUP_H

#include "comm/comm.h"
#include "sync/barrier.h"

/* What a rank shows the others between the first barrier of a merge and the next. */
typedef struct ls_host_rank {
    const ls_partial *partials;
    int count;
    float *total;
    char own_cache_line[64];
} ls_host_rank;

typedef struct ls_host_group {
    ls_comm_group base;
    ls_comm_group_desc desc;
    ls_barrier barrier;
    ls_host_rank *rank;
} ls_host_group;

typedef struct ls_host_comm {
    ls_comm base;
    ls_host_group *group;
} ls_host_comm;

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_host_group_destroy(ls_comm_group *base);
void ls_host_group_abort(ls_comm_group *base);
int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err);
void ls_host_leave(ls_comm *comm);

/* Shows the rank's data to the others and waits for theirs. */
int ls_host_publish(ls_host_comm *comm, const ls_partial *partials, int count, float *total,
                    ls_comm_times *times, ls_error *err);

/* Waits until every rank is here; the wait is added to times->wait. */
int ls_host_meet(ls_host_comm *comm, ls_comm_times *times, ls_error *err);

#endif
