/* The skeleton of a group that merges: ranks that show each other their partial sums, meet, and abort.
 * Communicators build on it, and say only how the sums come together:
 *
 *     struct my_group { ls_merge_group merge; … };       its first member
 *     ls_merge_group_init(&mine->merge, desc, &err)      in the slot group_create
 *     ls_merge_run(comm, partials, count, total, times, work, arg, &err)    in the slot all_reduce
 *     .set_timeout = ls_merge_set_timeout, .abort = ls_merge_abort, .may_read = ls_merge_may_read
 *
 * The phases of a merge, for one rank:
 *
 *     show the partial sums and the total; MEET        all are complete before any is read
 *     work                                             reads what the peers show
 *     stop reading; MEET                               the commit point
 *
 * The barrier (sync/barrier.h) carries the memory order: what a rank wrote before a meeting is
 * visible to all behind it, and each meeting ends the same way for all ranks.
 *
 * A rank that sleeps in a merge and wakes when it was given up may still read what its peers showed,
 * until it looks at the barrier. `reading` says so; the rank sets it before it arrives at the first
 * meeting and clears it (release) behind its last read. Why a 0 found after an abort is final: an
 * arrival at a meeting and the abort are read-modify-writes of one word, the arrival a release. If the
 * arrival came first, a rank that acquires the word with the abort bit sees `reading` as set before it, or
 * as cleared since. If the abort came first, the arrival is refused, and nothing is read.
 * Of the group's own total it says nothing: ranks read that behind a merge as well, and it lasts as long as the group.
 */
#ifndef MERGE_GROUP_H
#define MERGE_GROUP_H

#include "sync/barrier.h"

#include <lockstep/sys/communicator.h>

/* What a rank shows its peers from the first meeting of a merge to the last. */
typedef struct ls_merge_rank {
    ls_partial partials[LS_PARTIALS_MAX];
    int count;
    float *total;
    atomic_bool reading; /* it, or its device, may be reading what its peers show */
    char name[16];       /* of its device; the communicator's to set when the rank joins */
    bool checks;         /* it is in the start-up check */
    char own_cache_line[64];
} ls_merge_rank;

typedef struct ls_merge_group {
    ls_comm_group base;
    ls_comm_group_desc desc;
    _Atomic uint64_t timeout_ns;
    ls_barrier barrier;
    ls_merge_rank *rank;
    float *total; /* host memory of the group's own, which all ranks may show; NULL: none */
} ls_merge_group;

/* Errors: LS_EINVAL, LS_ENOMEM. */
int ls_merge_group_init(ls_merge_group *group, const ls_comm_group_desc *desc, ls_error *err);
void ls_merge_group_fini(ls_merge_group *group); /* a zeroed one is allowed */

/* The group of a communicator whose group begins with this skeleton. */
static inline ls_merge_group *ls_merge_group_of(const ls_comm *comm)
{
    return (ls_merge_group *)comm->group;
}

/* Whether a merge goes over other members of a run, between its first meeting and the commit point. The
 * start-up check is about this process alone: it is repeated when one of its devices is lost. */
static inline bool ls_merge_has_members(const ls_merge_group *group)
{
    return group->desc.members && !group->rank[0].checks;
}

/* ---- slots of the table --------------------------------------------------------------------- */

void ls_merge_set_timeout(ls_comm_group *base, uint64_t timeout_ns);
void ls_merge_abort(ls_comm_group *base);
int ls_merge_may_read(const ls_comm_group *base, int rank);

/* ---- for a communicator, on the rank's thread ----------------------------------------------- */

/* What is done between the first meeting and the commit point; more meetings, if all ranks have
 * them. */
typedef int ls_merge_work(ls_comm *comm, void *arg, ls_error *err);

/* A merge. What it takes is added to `times`. After an error the rank counts as reading until
 * ls_merge_stop_reading. Errors: LS_EINVAL, LS_EABORTED, LS_ETIMEDOUT, the work's. */
int ls_merge_run(ls_comm *comm, const ls_partial *partials, int count, float *total,
                 ls_comm_times *times, ls_merge_work *work, void *arg, ls_error *err);
void ls_merge_stop_reading(const ls_comm *comm);

/* Waits until every rank is here; the wait is added to times->wait. */
int ls_merge_meet(const ls_comm *comm, ls_comm_times *times, ls_error *err);

/* ls_merge_has_members: the ranks have brought their parts of the process's nodes, or are waited for; rank 0 has
 * them summed with the other processes', and behind it every rank may copy the total. Two meetings. Errors: as
 * ls_merge_meet and ls_members_ops.sum. */
int ls_merge_over_members(const ls_comm *comm, ls_comm_times *times, ls_error *err);
/* The end of each all_reduce, with its status. Other processes are a step ahead if this one's ranks do not commit
 * what has been summed: then it leaves the run. */
void ls_merge_committed(const ls_comm *comm, int status);

/* Whether the group is aborted: between two pieces of work, so that the rest is in vain and what the
 * peers show may soon be gone. Any thread. */
bool ls_merge_aborted(const ls_merge_group *group);

/* The end of a wait that begins now. */
uint64_t ls_merge_deadline(const ls_merge_group *group);

/* Chunk `index` of the arena in `parts`. Chunks start at multiples of 16 floats, so that no two ranks
 * write the same cache line. */
void ls_merge_chunk(const ls_merge_group *group, int parts, int index, size_t *first,
                    size_t *count);

/* ---- what is left of the tree ---------------------------------------------------------------- *
 * What is left of the shard tree when every rank has folded its own shards.
 *
 * Partial sums, in the order of their shards, and how often the two topmost sums of a stack are added
 * behind each of them:
 *
 *     for each part: push the partial sum; `joins` times: the two topmost ← their sum
 *
 * leaves the sum over all shards, in tree order; or, of ranks that have a span of the shards alone
 * (ls_comm_group_desc.span), the sums of the nodes that cover it. One rank's thread, between two meetings
 * of a merge. */

typedef struct ls_tree_rest_part {
    int rank, index; /* the partial sum `index` of `rank` */
    ls_span span;
    int joins;
    const float *data; /* where it lies */
} ls_tree_rest_part;

typedef struct ls_tree_rest {
    ls_tree_rest_part *part;
    int count;
    int depth;                    /* the most sums on the stack */
    int room;                     /* of `part` */
    int sums;                     /* what is left on the stack: one, or the nodes of the span … */
    ls_span sum[LS_PARTIALS_MAX]; /* … these */
} ls_tree_rest;

/* *rest, zeroed before its first use, becomes what is left over what the ranks show. Spans change
 * with the split of the shards only, so most steps find the rest that they had: then nothing is
 * allocated. Errors: LS_EINVAL (a shard that is in no partial sum, spans that are no nodes),
 * LS_ENOMEM. */
int ls_tree_rest_update(ls_tree_rest *rest, const ls_merge_group *group, ls_error *err);

/* The same by hand: room for `parts`, then each part in the order of the shards, with its span. False: too
 * many sums are left. Errors: LS_ENOMEM. */
int ls_tree_rest_begin(ls_tree_rest *rest, int parts, const ls_host *host, ls_error *err);
bool ls_tree_rest_push(ls_tree_rest *rest, int shards, const ls_tree_rest_part *part);

/* out[i] ← sum i, of the floats first … first + count − 1 of the parts' data and of each out. */
void ls_tree_rest_add(const ls_tree_rest *rest, float *const *out, size_t first, size_t count);
void ls_tree_rest_fini(ls_tree_rest *rest, const ls_host *host);

/* ---- the start-up check ---------------------------------------------------------------------- *
 * Does what the ranks move arrive, and does a merge add up exactly? */

typedef struct ls_merge_check {
    ls_comm *comm;
    ls_device *device; /* the rank's */
    ls_stream *stream;
    int shards;
    size_t floats;
    float *scratch, *total; /* device memory, `floats` each */
    const ls_host *host;
} ls_merge_check;

/* Collective, before the group's first all_reduce. First the communicator's own check (check_reads),
 * then a merge of integers that depend on the rank and on their place, so that a float from a wrong
 * place, of a wrong rank, or of old memory changes the sum; all sums stay below 2²⁴ and are exact in
 * any order. Then zeros are merged: all ranks return LS_OK, or none does, and LS_OK leaves both
 * arrays all zero, as the padding of an arena has to be.
 * Errors: LS_EDEVICE ("cpu(1) (rank 1) got 7 as the sum of integers at float 12345: expected 8"; the
 * group is aborted), LS_EABORTED, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_merge_check_group(const ls_merge_check *check, ls_error *err);

#endif
