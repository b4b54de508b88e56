/* What the communicators that merge through host memory share: a group whose ranks see each
 * other's partial sums, and its barrier. */
#ifndef COMM_HOST_GROUP_H
#define COMM_HOST_GROUP_H

#include "comm/comm.h"
#include "sync/barrier.h"

/* What a rank shows the others from the first meeting of a merge to the last. */
typedef struct ls_host_rank {
    const ls_partial *partials;
    int count;
    float *total;
    atomic_bool reading; /* it may be reading what the others show: see ls_host_may_read */
    char name[16];       /* of its device */
    char own_cache_line[64];
} ls_host_rank;

typedef struct ls_host_group {
    ls_comm_group base;
    ls_comm_group_desc desc;
    _Atomic uint64_t timeout_ns;
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

void ls_host_group_set_timeout(ls_comm_group *base, uint64_t timeout_ns);

/* Shows the rank's data to the others and waits for theirs. From here to ls_host_unpublish, or to a
 * call that fails, the rank may read what the others show. */
int ls_host_publish(ls_host_comm *comm, const ls_partial *partials, int count, float *total,
                    ls_comm_times *times, ls_error *err);

/* The rank has read all it wanted: before the last meeting. */
void ls_host_unpublish(ls_host_comm *comm);

/* Waits until every rank is here; the wait is added to times->wait. */
int ls_host_meet(ls_host_comm *comm, ls_comm_times *times, ls_error *err);

/* Between two pieces of work: whether the group is aborted, so that the rest is in vain and what
 * the others show may soon be gone. */
bool ls_host_is_aborted(const ls_host_comm *comm);

/* Copies floats that another rank shows; gives up in the middle when the group is aborted. */
void ls_host_copy(const ls_host_comm *comm, float *to, const float *from, size_t count);

/* The slot `may_read`. A rank that stalled inside a merge may, when it goes on, read on until it
 * looks at the barrier. It says so in `reading`, which it sets before it arrives at the first
 * meeting and clears (release) behind its last read. Why a 0 found after an abort is final: an
 * arrival at a meeting and the abort are read-modify-writes of one word, the arrival a release. If
 * the arrival came first, whoever acquires the word with the abort bit sees `reading` as set before
 * it, or as cleared since. If the abort came first, the arrival is refused, and nothing is read. */
int ls_host_may_read(const ls_comm_group *base, int rank);

/* The slot `check` (host_check.c). */
int ls_host_check(ls_comm *base, ls_stream *stream, float *scratch, float *total, ls_error *err);

#endif
