/* SPDX-License-Identifier: MIT */
/* The common part of all communicators, which add the gradients of the workers of a process.
 * <lockstep/sys/communicator.h> explains the terms group, rank, arena, shard, partial sum, total
 * and shard tree.
 *
 * A rank is one worker with its device; all ranks of a group are threads of one process. A *merge*
 * is one addition of the partial sums of all ranks, that is, one call of all_reduce on every rank.
 * In a merge each rank *shows* its partial sums and its total to the other ranks: it writes the
 * pointers to these arrays into the group's memory. A *meeting* is one round of the group's
 * barrier: all ranks wait for each other. A communicator builds on this file as a derived class
 * does on a base class. The communicator adds only the computation of the sums. It fills the
 * *slots* (function pointers) of its ls_comm_type as follows:
 *
 *     struct my_group { ls_merge_group merge; … };       its first member
 *     ls_merge_group_init(&mine->merge, desc, &err)      in the slot group_create
 *     ls_merge_run(comm, partials, count, total, times, work, arg, &err)    in the slot all_reduce
 *     .set_timeout = ls_merge_set_timeout, .abort = ls_merge_abort, .may_read = ls_merge_may_read
 *
 * The phases of a merge, for one rank:
 *
 *     show the partial sums and the total; first meeting     all are complete before any is read
 *     compare the digests that all ranks show                see base/digest.h
 *     work                                                   reads what the other ranks show
 *     stop reading; last meeting                             the commit point
 *
 * The *commit point* is the meeting that decides whether the merge succeeds, on all ranks or on
 * none. A communicator may place the commit point at an earlier meeting, if after that meeting each
 * rank can obtain the sum without the other ranks (sums by pieces in comm/comm.h).
 *
 * The barrier (sync/barrier.h) carries the memory order: what a rank wrote before a meeting is
 * visible to all ranks after the meeting. Each meeting ends in the same way for all ranks.
 *
 * Abandoned ranks. A rank R can sleep inside a merge, be abandoned by the other ranks, and wake
 * later. R can then still read the arrays that the other ranks have shown, until its next meeting.
 * The flag `reading` of R says whether such reads are possible. R sets the flag before it arrives
 * at the first meeting of a merge, and clears the flag with release order after its last read in
 * that merge. Another thread Q that wants to reuse or free a shown array calls
 * ls_merge_may_read(R). That function first loads the barrier's word with acquire order and checks
 * that the abort bit is set, and then loads the flag with acquire order. If the flag is 0, R has
 * finished all its reads and will begin no other read. The proof:
 *
 * 1. Let B be the modification of the barrier's word that sets the abort bit. The word never
 *    changes after B, and every arrival after B is refused.
 * 2. Let k be the last merge at whose first meeting R's arrival was accepted, and let A be that
 *    arrival. If there is no such merge, R has never read anything. A precedes B in the
 *    modification order of the word, because of 1. In every merge after k, R is refused at the
 *    first meeting and reads nothing.
 * 3. R sets its flag for merge k, and then A follows in the same thread. A has release order. All
 *    modifications of the word are read-modify-writes, so B belongs to the release sequence headed
 *    by A. Q's load of the word finds the abort bit, so because of 1 the load has read the value of
 *    B. Hence A synchronizes with this load, and R's setting of the flag for merge k happens before
 *    Q's load of the flag.
 * 4. By coherence Q's load of the flag returns the value of that setting, which is 1, or the value
 *    of a later store to the flag. Only R stores to the flag. So if Q loads 0, R has cleared the
 *    flag after that setting. The clearing has release order and follows R's last read in merge k,
 *    and Q's load has acquire order. Therefore all reads of R happen before what Q does next, and
 *    because of 2 R begins no other read.
 *
 * (R can set the flag for a merge after k and be refused at the first meeting of that merge. Q can
 * then load 1 although R does not read. Q then waits longer than necessary, until R has called
 * ls_merge_stop_reading.)
 *
 * The proof does not cover the group's own total (the field `total` of ls_merge_group). Ranks read
 * this array after a merge as well, but the array exists as long as the group.
 */
#ifndef MERGE_GROUP_H
#define MERGE_GROUP_H

#include "sync/barrier.h"

#include <lockstep/sys/communicator.h>

/* Data that a rank shows to the other ranks from the first meeting of a merge to the last. */
typedef struct ls_merge_rank {
    ls_partial partials[LS_PARTIALS_MAX]; /* [count] the rank's partial sums */
    int count;
    float *total;            /* array that receives the sum */
    uint64_t digest;         /* digest of the rank's replica (base/digest.h) */
    atomic_bool reading;     /* the rank, or its device, is possibly reading arrays that other ranks
                              * show */
    char name[16];           /* name of the rank's device; the communicator sets it in join */
    bool in_startup_check;   /* the rank is inside ls_merge_check_group, or has failed there */
    char own_cache_line[64]; /* padding: the next rank's data is on another cache line */
} ls_merge_rank;

/* First member of the group of a communicator that builds on this file. */
typedef struct ls_merge_group {
    ls_comm_group base;
    ls_comm_group_desc desc;     /* copy of the group's description */
    _Atomic uint64_t timeout_ns; /* longest wait at one meeting; UINT64_MAX: no limit */
    ls_barrier barrier;
    ls_merge_rank *rank; /* [ranks] */
    float *total;        /* array in host memory that belongs to the group, and that all ranks may
                          * show as their total; NULL: none */
} ls_merge_group;

/* Initialises the common part of a group. All of the group's memory must be zeroed before. Copies
 * `desc`. Errors: LS_EINVAL, LS_ENOMEM. */
int ls_merge_group_init(ls_merge_group *group, const ls_comm_group_desc *desc, ls_error *err);

/* Frees the memory of the group. A zeroed group is allowed. */
void ls_merge_group_fini(ls_merge_group *group);

/* Returns the group of a communicator whose group begins with ls_merge_group. */
static inline ls_merge_group *ls_merge_group_of(const ls_comm *comm)
{
    return (ls_merge_group *)comm->group;
}

/* Returns whether a merge also sums over the other processes of the run. A rank calls the function
 * between the first meeting of a merge and the commit point. The merges of the start-up check never
 * include other processes, because a process repeats the check alone whenever one of its devices
 * fails. */
static inline bool ls_merge_has_members(const ls_merge_group *group)
{
    return group->desc.members && !group->rank[0].in_startup_check;
}

/* ---- slots of the table --------------------------------------------------------------------- */

/* The slot set_timeout. Any thread. */
void ls_merge_set_timeout(ls_comm_group *base, uint64_t timeout_ns);
/* The slot abort. Any thread. */
void ls_merge_abort(ls_comm_group *base);
/* The slot may_read: returns whether `rank` is possibly still reading arrays that other ranks have
 * shown. Any thread. */
int ls_merge_may_read(const ls_comm_group *base, int rank);

/* ---- for a communicator, on the rank's thread ----------------------------------------------- */

/* The work of a merge between the first meeting and the commit point. It may contain further
 * meetings if all ranks make the same number of them. */
typedef int ls_merge_work(ls_comm *comm, void *arg, ls_error *err);

/* Runs a merge: shows `count` partial sums and `total`, waits for the first meeting, calls `work`,
 * and waits for the last meeting. Adds the times of the merge to `times`. After an error the rank
 * counts as reading (ls_merge_may_read) until it calls ls_merge_stop_reading.
 * Errors: LS_EINVAL, LS_EABORTED, LS_ETIMEDOUT, LS_EDIVERGED (on all ranks, if the digests of their
 * replicas differ), and those of `work`. */
int ls_merge_run(ls_comm *comm, const ls_partial *partials, int count, float *total,
                 ls_comm_times *times, ls_merge_work *work, void *arg, ls_error *err);
/* The part of ls_merge_run before `work`, for a merge whose work continues after the communicator
 * has returned to its caller: shows the rank's arrays and waits for the first meeting. Errors: as
 * ls_merge_run, without those of `work`. */
int ls_merge_begin(ls_comm *comm, const ls_partial *partials, int count, float *total,
                   ls_comm_times *times, ls_error *err);
/* The part of ls_merge_run after `work`: declares that the rank has stopped reading, and waits for
 * the last meeting. Errors: LS_EABORTED, LS_ETIMEDOUT. */
int ls_merge_end(ls_comm *comm, ls_comm_times *times, ls_error *err);
/* Declares that the rank and its device have finished reading the arrays that other ranks show. */
void ls_merge_stop_reading(const ls_comm *comm);

/* Waits until every rank has called the function for this meeting, and adds the time of the wait to
 * times->wait. Errors: LS_EABORTED, LS_ETIMEDOUT. */
int ls_merge_meet(const ls_comm *comm, ls_comm_times *times, ls_error *err);

/* Sums over all processes of a run, if ls_merge_has_members. Each process contributes the nodes of
 * its cover (ls_members_ops). Before the call each rank has computed its own chunk of these nodes,
 * in the buffers of ls_members_ops.node. The function waits until all ranks have computed their
 * chunks (one meeting). Then rank 0 calls ls_members_ops.sum, which adds the nodes of all
 * processes, and the other ranks wait for rank 0 (another meeting). After the function has returned
 * LS_OK, each rank may copy the sum of all processes from the buffer that ls_members_ops.total
 * returns. Errors: as ls_merge_meet and ls_members_ops.sum. */
int ls_merge_over_members(const ls_comm *comm, ls_comm_times *times, ls_error *err);
/* Reports to ls_members_ops.commit whether this process has *committed* the merge, that is, whether
 * all_reduce succeeded on its ranks. `status` is the result of this rank's all_reduce. Each rank
 * calls the function at the end of each all_reduce; only the call of rank 0 has an effect, and only
 * if the run has several processes. Sometimes the sum over the processes is complete, but the last
 * meeting of this process's ranks is aborted. The other processes then apply a step that this
 * process does not apply. This process's replicas of the model then differ from those of the other
 * processes, so this process leaves the run. */
void ls_merge_committed(const ls_comm *comm, int status);

/* Returns whether the group is aborted. A rank calls it between two pieces of work: after an abort
 * the remaining work is useless, and arrays that other ranks have shown can soon be freed. Any
 * thread. */
bool ls_merge_aborted(const ls_merge_group *group);

/* Returns the deadline of a wait that begins now, in the time of ls_now_ns. */
uint64_t ls_merge_deadline(const ls_merge_group *group);

/* Writes to *first and *count the first float and the number of floats of chunk `index`, if an
 * arena is cut into `parts` chunks. Chunks start at multiples of 16 floats, so no two ranks write
 * the same cache line. */
void ls_merge_chunk(const ls_merge_group *group, int parts, int index, size_t *first,
                    size_t *count);

/* ---- the rest of the tree --------------------------------------------------------------------- *
 * Each rank has added the gradients of its own shards: these are its partial sums. The *rest of the
 * tree* is all other additions of the shard tree: the additions that combine partial sums.
 *
 * The rest of the tree is stored as a list of instructions for an evaluation stack, whose elements
 * are sums. The list has one *part* for each partial sum, in the order of the shards. Each part has
 * a number of *joins*, that is, of additions after the partial sum is pushed. The list is executed
 * in this way:
 *
 *     for each part: push the partial sum; `joins` times: replace the two topmost sums by their sum
 *
 * If the ranks of this process have all shards, the stack contains one sum at the end: the sum over
 * all shards. If this process has only some of the shards (ls_comm_group_desc.span), the stack
 * contains several sums at the end: one for each node in the process's cover (merge/tree.h).
 * Threads: one rank's thread, between two meetings of a merge. */

/* One part of the list: a partial sum and its joins. */
typedef struct ls_tree_rest_part {
    int rank, index;   /* identifies the partial sum: number `index` of the partial sums that `rank`
                        * shows */
    ls_span span;      /* shards of the partial sum */
    int joins;         /* number of additions after the partial sum is pushed */
    const float *data; /* the partial sum's arena */
} ls_tree_rest_part;

/* The rest of the tree. */
typedef struct ls_tree_rest {
    ls_tree_rest_part *part;      /* [capacity] the first `count` are used */
    int count;                    /* number of parts */
    int depth;                    /* largest number of sums on the stack */
    int capacity;                 /* size of the array `part` */
    int sums;                     /* number of sums on the stack at the end */
    ls_span sum[LS_PARTIALS_MAX]; /* [sums] shards of each sum on the stack at the end */
} ls_tree_rest;

/* Makes *rest the list for the partial sums that the ranks show. *rest must be zeroed before its
 * first use. The spans of the partial sums change only when the distribution of the shards over the
 * ranks changes. So in most steps the list is the same as before, and nothing is allocated. Errors:
 * LS_EINVAL (a shard is in no partial sum, or a span is not a node of the tree), LS_ENOMEM. */
int ls_tree_rest_update(ls_tree_rest *rest, const ls_merge_group *group, ls_error *err);

/* Begins a list for at most `parts` parts. The caller then adds the parts one by one with
 * ls_tree_rest_push, in place of a call of ls_tree_rest_update. Errors: LS_ENOMEM. */
int ls_tree_rest_begin(ls_tree_rest *rest, int parts, const ls_host *host, ls_error *err);

/* Adds a part and computes its joins. The caller adds the parts in the order of their shards. The
 * tree has `shards` leaves. Returns false if the list is full, or if the stack would contain more
 * than LS_PARTIALS_MAX sums. */
bool ls_tree_rest_push(ls_tree_rest *rest, int shards, const ls_tree_rest_part *part);

/* Executes the list for the floats first … first + count − 1 of the arenas: writes these floats of
 * sum i to the same positions of the array out[i], for each of the rest->sums sums that the stack
 * contains at the end. out[0] may be the arena of the first part; no other out[i] may be the arena
 * of a part. */
void ls_tree_rest_add(const ls_tree_rest *rest, float *const *out, size_t first, size_t count);

/* Executes a list that leaves a single sum on the stack. Writes the `count` floats of this sum from
 * float `first` on to out[0 … count − 1], an array that is not part of an arena. */
void ls_tree_rest_write(const ls_tree_rest *rest, float *out, size_t first, size_t count);

/* Frees the list. */
void ls_tree_rest_fini(ls_tree_rest *rest, const ls_host *host);

/* ---- the start-up check ----------------------------------------------------------------------- *
 * The start-up check tests, before training, that data moves correctly between the ranks and that
 * merges add correctly. */

/* Arguments of the check, for one rank. */
typedef struct ls_merge_check {
    ls_comm *comm;
    ls_device *device;      /* the rank's device */
    ls_stream *stream;      /* stream for copies; NULL: the default stream */
    int shards;             /* number of leaves of the tree */
    size_t floats;          /* length of an arena in floats */
    float *scratch, *total; /* device memory, `floats` floats each; the check overwrites both
                             * arrays */
    const ls_host *host;
} ls_merge_check;

/* Runs the start-up check. Collective, before the group's first all_reduce, on each rank's thread.
 * It consists of three parts:
 *
 * - the communicator's own check, if it has one (ls_comm_type.check_reads);
 * - a merge of integers that depend on the rank and on the position in the arena. A float from a
 *   wrong position, from a wrong rank or from old memory changes the sum. All sums are below 2²⁴,
 *   and therefore exact in any order of the additions;
 * - a merge of zeros, for two reasons. First, it makes the result of the check the same on all
 *   ranks: a rank that has found an error aborts the group and does not take part, so this merge
 *   fails on every other rank. Second, it sets `scratch` and `total` to zero. The caller uses both
 *   arrays as arenas later, and the padding of an arena must be zero.
 *
 * Errors: LS_EDEVICE ("cpu(1) (rank 1) got 7 as the sum of integers at float 12345: expected 8";
 * the group is aborted), LS_EABORTED, LS_ETIMEDOUT, LS_ENOMEM. */
int ls_merge_check_group(const ls_merge_check *check, ls_error *err);

#endif
