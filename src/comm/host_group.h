/* What the communicators that merge through host memory share. */
#ifndef COMM_HOST_GROUP_H
#define COMM_HOST_GROUP_H

#include "comm/comm.h"
#include "merge/rest.h"

typedef struct ls_host_comm {
    ls_comm base;
    ls_rest rest; /* of the last merge */
} ls_host_comm;

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_host_group_destroy(ls_comm_group *base);
int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err);
void ls_host_leave(ls_comm *base);

/* The slot `check_reads`. */
int ls_host_check_reads(ls_comm *base, float *scratch, float *total, ls_error *err);

/* What their rows of the table have in common. */
#define LS_HOST_SLOTS                                                                              \
    .group_create = ls_host_group_create, .group_destroy = ls_host_group_destroy,                  \
    .set_timeout = ls_merge_set_timeout, .join = ls_host_join, .leave = ls_host_leave,             \
    .check_reads = ls_host_check_reads, .abort = ls_merge_abort, .may_read = ls_merge_may_read

/* The slot `all_reduce`, of which `work` is the part between the first meeting and the commit point;
 * its `arg` is `times`. */
int ls_host_all_reduce(ls_comm *base, const ls_partial *partials, int count, float *total,
                       ls_comm_times *times, ls_merge_work *work, ls_error *err);

/* Copies floats that another rank shows; gives up in the middle when the group is aborted. */
void ls_host_copy(const ls_merge_group *group, float *to, const float *from, size_t count);

#endif
