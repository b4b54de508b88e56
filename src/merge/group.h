/* The common part of groups that merge: ranks show each other their partial sums, meet at barriers,
 * and abort. A communicator (<lockstep/sys/communicator.h>) builds on it, and adds only how sums
 * are computed:
 *
 *     struct my_group { ls_merge_group merge; … };       its first member
 *     ls_merge_group_init(&mine->merge, desc, &err)      in the slot group_create
 *     ls_merge_run(comm, partials, count, total, times, work, arg, &err)    in the slot all_reduce
 *     .set_timeout = ls_merge_set_timeout, .abort = ls_merge_abort, .may_read = ls_merge_may_read
 *
 * The phases of a merge, for one rank:
 *
 *     show the partial sums and the total; first barrier     all are complete before any is read
 *     work                                                   reads what the other ranks show
 *     stop reading; last barrier                             the commit point
 *
 * Each passage of a barrier is called a meeting in the names of this file. The barrier
 * (sync/barrier.h) carries the memory order: what a rank wrote before a meeting is visible to all
 * ranks after it, and each meeting ends in the same way for all ranks.
 *
 * Abandoned ranks. A rank that sleeps inside a merge, and wakes after it was abandoned, may still
 * read what the other ranks have shown, until it looks at the barrier. Its flag `reading` tells:
 * the rank sets it before it arrives at the first meeting, and clears it with release order after
 * its last read. ls_merge_may_read first checks with an acquire load that the group is aborted, and
 * then loads the flag with acquire order. Why a 0 is final:
 *
 * - Let B be the modification that sets the abort bit of the barrier's word. After B the word does
 *   not change, so arrivals after B are refused. Let k be the last merge whose first meeting this
 *   rank R has arrived at, and A(k) that arrival, which then precedes B. In later merges R is
 *   refused at the first meeting and reads nothing. (If there is no k, R has never read anything.)
 * - R has set `reading` for merge k before A(k), which has release order. B is a read-modify-write
 *   after A(k), so it belongs to the release sequence headed by A(k). The acquire load that finds
 *   the abort bit reads from that sequence and synchronizes with A(k): the flag was set for merge k
 *   before it is loaded.
 * - So the load of `reading` returns that value, 1, or a later one (coherence). Only R writes its
 *   flag. If the load returns 0, it reads a clearing after merge k was begun, which is a release
 *   after R's last read. Thus all reads of R happen before what the caller does next, and no read
 *   follows.
 *
 * The argument does not cover the group's own total (the field `total` of ls_merge_group). Ranks
 * read it after a merge as well, and it exists as long as the group.
 */
#ifndef MERGE_GROUP_H
#define MERGE_GROUP_H

#include "sync/barrier.h"

#include <lockstep/sys/communicator.h>

/* Data that a rank shows to the other ranks from the first meeting of a merge to the last. */
typedef struct ls_merge_rank {
    ls_partial partials[LS_PARTIALS_MAX]; /* [count] the rank's partial sums */
    int count;
    float *total;            /* array in which the rank receives the sum */
    atomic_bool reading;     /* the rank, or its device, may be reading what other ranks show */
    char name[16];           /* name of its device; the communicator sets it in join */
    bool checks;             /* the rank is in the start-up check */
    char own_cache_line[64]; /* padding: the next rank's data is on another cache line */
} ls_merge_rank;

/* First member of the group of a communicator that builds on this file. */
typedef struct ls_merge_group {
    ls_comm_group base;
    ls_comm_group_desc desc;     /* copy of the group's description */
    _Atomic uint64_t timeout_ns; /* longest wait at one meeting; UINT64_MAX: no limit */
    ls_barrier barrier;
    ls_merge_rank *rank; /* [ranks] */
    float *total;        /* host memory of the group that all ranks may show as their total; NULL:
                          * none */
} ls_merge_group;

/* Initialises a group, of which the rest must be zeroed. Copies `desc`. Errors: LS_EINVAL,
 * LS_ENOMEM. */
int ls_merge_group_init(ls_merge_group *group, const ls_comm_group_desc *desc, ls_error *err);

/* Frees the memory of the group. A zeroed group is allowed. */
void ls_merge_group_fini(ls_merge_group *group);

/* Returns the group of a communicator whose group begins with ls_merge_group. */
static inline ls_merge_group *ls_merge_group_of(const ls_comm *comm)
{
    return (ls_merge_group *)comm->group;
}

/* Returns whether a merge includes the other processes of the run (its members). It is called
 * between the first meeting of a merge and its commit point. The start-up check never includes
 * them, because it is repeated whenever this process loses a device. */
static inline bool ls_merge_has_members(const ls_merge_group *group)
{
    return group->desc.members && !group->rank[0].checks;
}

/* ---- slots of the table --------------------------------------------------------------------- */

/* The slot set_timeout. Any thread. */
void ls_merge_set_timeout(ls_comm_group *base, uint64_t timeout_ns);
/* The slot abort. Any thread. */
void ls_merge_abort(ls_comm_group *base);
/* The slot may_read. Any thread. */
int ls_merge_may_read(const ls_comm_group *base, int rank);

/* ---- for a communicator, on the rank's thread ----------------------------------------------- */

/* The work of a merge between the first meeting and the commit point. It may contain further
 * meetings if all ranks have the same ones. */
typedef int ls_merge_work(ls_comm *comm, void *arg, ls_error *err);

/* Runs a merge: shows `count` partial sums and `total`, meets, calls `work`, meets again. Adds the
 * times of the merge to `times`. After an error the rank counts as reading until it calls
 * ls_merge_stop_reading.
 * Errors: LS_EINVAL, LS_EABORTED, LS_ETIMEDOUT, and those of `work`. */
int ls_merge_run(ls_comm *comm, const ls_partial *partials, int count, float *total,
                 ls_comm_times *times, ls_merge_work *work, void *arg, ls_error *err);
/* Declares that the rank and its device have finished reading what the other ranks show. */
void ls_merge_stop_reading(const ls_comm *comm);

/* Waits until every rank is at this meeting, and adds the time of the wait to times->wait. Errors:
 * LS_EABORTED, LS_ETIMEDOUT. */
int ls_merge_meet(const ls_comm *comm, ls_comm_times *times, ls_error *err);

/* Sums over all processes of a run, if ls_merge_has_members. It waits until every rank has
 * delivered its parts of this process's nodes; rank 0 then sums the nodes with those of the other
 * processes. After it, every rank may copy the total. It contains two meetings. Errors: as
 * ls_merge_meet and ls_members_ops.sum. */
int ls_merge_over_members(const ls_comm *comm, ls_comm_times *times, ls_error *err);
/* Reports the status of an all_reduce to the other processes' interface; called at the end of each
 * all_reduce. If this process's ranks do not commit a sum that was completed, the other processes
 * are one step further, and this process leaves the run (ls_members_ops.commit). */
void ls_merge_committed(const ls_comm *comm, int status);

/* Returns whether the group is aborted. A rank checks it between two pieces of work: after an abort
 * the rest of the work is useless, and arrays that other ranks have shown may soon be freed. Any
 * thread. */
bool ls_merge_aborted(const ls_merge_group *group);

/* Returns the deadline of a wait that begins now, in the time of ls_now_ns. */
uint64_t ls_merge_deadline(const ls_merge_group *group);

/* Writes the first float and the number of floats of chunk `index`, if the arena is cut into
 * `parts` chunks. Chunks start at multiples of 16 floats, so no two ranks write the same cache
 * line. */
void ls_merge_chunk(const ls_merge_group *group, int parts, int index, size_t *first,
                    size_t *count);

/* ---- the rest of the tree --------------------------------------------------------------------- *
 * The part of the shard tree that remains after each rank has summed its own shards.
 *
 * It is a program for a stack of sums. The parts are the ranks' partial sums in the order of their
 * shards, each with a number of joins:
 *
 *     for each part: push the partial sum; `joins` times: replace the two topmost sums by their sum
 *
 * At the end the stack holds the sum over all shards, computed in tree order. If the ranks have
 * only a span of the shards (ls_comm_group_desc.span), it holds the sums of the nodes of its cover.
 * Threads: one rank's thread, between two meetings of a merge. */

/* One step of the program: a partial sum and its joins. */
typedef struct ls_tree_rest_part {
    int rank, index;   /* the partial sum number `index` of `rank` */
    ls_span span;      /* shards of the partial sum */
    int joins;         /* number of additions after it is pushed */
    const float *data; /* the partial sum's arena */
} ls_tree_rest_part;

typedef struct ls_tree_rest {
    ls_tree_rest_part *part;      /* [count], with room for `room` */
    int count;                    /* number of parts */
    int depth;                    /* largest number of sums on the stack */
    int room;                     /* capacity of `part` */
    int sums;                     /* number of sums on the stack at the end */
    ls_span sum[LS_PARTIALS_MAX]; /* [sums] shards of each of them */
} ls_tree_rest;

/* Makes *rest the program for the partial sums that the ranks show. *rest must be zeroed before its
 * first use. The spans change only when the split of the shards changes, so in most steps the
 * program is the same as before, and nothing is allocated. Errors: LS_EINVAL (a shard is in no
 * partial sum, or a span is not a node of the tree), LS_ENOMEM. */
int ls_tree_rest_update(ls_tree_rest *rest, const ls_merge_group *group, ls_error *err);

/* Begins a program for `parts` parts, which ls_tree_rest_push then adds one by one: the manual form
 * of ls_tree_rest_update. Errors: LS_ENOMEM. */
int ls_tree_rest_begin(ls_tree_rest *rest, int parts, const ls_host *host, ls_error *err);

/* Adds a part, in the order of the shards, and computes its joins. The tree has `shards` leaves.
 * Returns false if the program has no room for the part, or if too many sums would be left on the
 * stack. */
bool ls_tree_rest_push(ls_tree_rest *rest, int shards, const ls_tree_rest_part *part);

/* Runs the program on the floats first … first + count − 1: writes sum i to the same floats of
 * out[i], for each of the rest->sums sums. out[0] may be the arena of the first part, and no other
 * out[i] may be the arena of a part. */
void ls_tree_rest_add(const ls_tree_rest *rest, float *const *out, size_t first, size_t count);

/* Frees the program. */
void ls_tree_rest_fini(ls_tree_rest *rest, const ls_host *host);

/* ---- the start-up check ----------------------------------------------------------------------- *
 * A test, before training, that data moves correctly between the ranks and merges are exact. */

/* Arguments of the check, for one rank. */
typedef struct ls_merge_check {
    ls_comm *comm;
    ls_device *device;      /* the rank's device */
    ls_stream *stream;      /* stream for copies; NULL: the default stream */
    int shards;             /* number of leaves of the tree */
    size_t floats;          /* length of an arena in floats */
    float *scratch, *total; /* device memory, `floats` floats each; contents are lost */
    const ls_host *host;
} ls_merge_check;

/* Runs the start-up check. Collective, before the group's first all_reduce, on each rank's thread.
 * It consists of three parts:
 *
 * - the communicator's own check, if it has one (ls_comm_type.check_reads);
 * - a merge of integers that depend on the rank and on the position in the arena, so that a float
 *   from a wrong position, from a wrong rank or from old memory changes the sum. All sums are below
 *   2²⁴, and therefore exact in any order;
 * - a merge of zeros, by which all ranks return LS_OK or none does. After LS_OK both arrays are all
 *   zero, as the padding of an arena has to be.
 *
 * Errors: LS_EDEVICE ("cpu(1) (rank 1) got 7 as the sum of integers at float 12345: expected 8";
 * the group is aborted), LS_EABORTED, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_merge_check_group(const ls_merge_check *check, ls_error *err);

#endif
