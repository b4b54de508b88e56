/* SPDX-License-Identifier: MIT */
/* The communicator table: how the gradients of all workers are summed.
 *
 * This header is for authors of back ends whose devices sum gradients in their own way. It is
 * unstable: any version may change it. The library's own communicators, which add in host memory,
 * implement the same table.
 *
 * Terms: an *arena* is one array with all parameters of a model, or with all their gradients. Each
 * minibatch of training rows is cut into *shards*, and a worker (a thread that drives one device)
 * computes the gradients of some of the shards. A *partial sum* is an arena with the sum of the
 * gradients of adjacent shards. The *total* is the arena that receives the sum over all shards. A
 * *rank* is a worker that takes part in the sum. To *merge* gradients is to add the partial sums of
 * all ranks.
 *
 * The library creates a *group* for a number of ranks. Each worker joins the group as one rank and
 * gets a *communicator* of its own, the object through which it calls the functions below. In every
 * step, each rank calls all_reduce with its partial sums, and receives the sum over all ranks in
 * its total.
 *
 * Order of the additions: they form a binary tree, the *shard tree*. Its leaves are the gradients
 * of the `shards` shards. Its node T(lo, hi) is the sum of the leaves lo … hi − 1: the leaf itself
 * if hi − lo = 1, and otherwise T(lo, m) + T(m, hi), where m = lo + p, and p is the largest power
 * of two below hi − lo. Each partial sum is one node T(lo, hi) of the tree; lo and hi are its
 * *span*. Each leaf belongs to exactly one of the partial sums of all ranks. A communicator with
 * `same_bits` adds the partial sums in exactly the order of the tree.
 *
 * Commit point: each step has one moment, inside all_reduce, that decides for all ranks. Either
 * every rank returns LS_OK with the complete sum in its own memory, or none does.
 *
 * Failure: the first abort or time-out ends the group. Inside a call the ranks wait for each other
 * at barriers. Each barrier is released (all ranks have arrived), aborted, or timed out; one atomic
 * operation decides which, the same for all ranks. After a time-out the rank whose time limit
 * passed first returns LS_ETIMEDOUT, and the other ranks return LS_EABORTED. After an abort or a
 * time-out, every later call of the group returns LS_EABORTED at once. Then the k workers that have
 * not failed leave the group and join a *new* group with the same shards, in which they are the
 * ranks 0 … k − 1.
 *
 * Stalled ranks: a rank can stall inside a call and continue after the group has ended. At its next
 * barrier the rank notices the end, and accesses no other rank's memory afterwards. Two rules make
 * its accesses before that barrier safe:
 *
 * - The group is destroyed only after every rank has left it. If a rank never returns, the caller
 *   never frees the group and that rank's communicator.
 * - An array that was an argument of all_reduce or merge_ready (partial sums, totals) stays
 *   unchanged and allocated until no rank can read it any more. A rank cannot read it any more when
 *   its call of all_reduce has returned, or may_read has returned 0 for it. */
#ifndef LOCKSTEP_SYS_COMMUNICATOR_H
#define LOCKSTEP_SYS_COMMUNICATOR_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The leaves lo … hi − 1 of the shard tree. */
typedef struct ls_span {
    int lo, hi;
} ls_span;

#define LS_SHARDS_MAX 65536 /* largest number of leaves of a tree */
#define LS_PARTIALS_MAX 32  /* largest number of partial sums of a rank: 2·log₂(LS_SHARDS_MAX) */

/* A partial sum: the node T(span.lo, span.hi) of the tree. */
typedef struct ls_partial {
    ls_span span;
    const float *data; /* the sum, in device memory; valid until the call to which it is passed has
                        * returned */
} ls_partial;

typedef struct ls_comm_group ls_comm_group; /* the ranks that add their gradients */
typedef struct ls_comm ls_comm;             /* one rank's communicator in a group */
typedef struct ls_comm_type ls_comm_type;   /* the table of one implementation */

/* Callback during a wait for other processes. The waiting thread calls beat(user) several times a
 * second. The thread that looks for hung workers learns by these calls that the waiting thread is
 * alive. */
typedef struct ls_cluster_wait {
    void (*beat)(void *user);
    void *user; /* argument of `beat` */
} ls_cluster_wait;

/* This process's connection to the other processes of the run. */
struct ls_cluster;

/* Functions by which a communicator adds gradients over all processes of a run. These processes are
 * the *members* of the run; the parameter `members` is this process's connection to the others. The
 * *cover* of a process is the smallest set of nodes of the shard tree that together contain exactly
 * the leaves (shards) that this process computes. Each process contributes the arenas of the nodes
 * in its cover, and receives the sum of the whole tree. One thread at a time calls these functions.
 * A step that fails is attempted again. In each attempt the process calls `sum`, unless it fails
 * before, and then `commit`. Before `sum` the process may call `begin` and `ready`, to transfer
 * parts of its nodes while it computes the rest. */
typedef struct ls_members_ops {
    size_t size; /* sizeof(ls_members_ops) */
    /* Returns the buffer for node i of this process's cover, which the caller fills. */
    float *(*node)(const struct ls_cluster *members, int i);
    /* Returns the buffer that receives the sum. */
    const float *(*total)(const struct ls_cluster *members);
    /* Returns the block of host memory that contains all nodes and the total. *bytes receives its
     * size. The block does not move while the group exists. */
    void *(*memory)(const struct ls_cluster *members, size_t *bytes);
    /* Starts the sum of the step. After this call floats are transferred as soon as `ready`
     * declares them complete. Only the first call for a sum has an effect. The call is optional,
     * because `sum` starts the sum if necessary. Does not wait. */
    int (*begin)(struct ls_cluster *members, ls_error *err);
    /* Declares the first `floats` floats of each node complete; they may be sent from now on. The
     * caller does not write these floats again until the sum is done, not even when it repeats the
     * step. A call with fewer floats than an earlier call has no effect. The call is optional,
     * because `sum` declares all floats complete. Does not wait. */
    void (*ready)(struct ls_cluster *members, size_t floats);
    /* Returns the largest number of floats that `ready` has declared complete in each node since
     * the last sum; 0 if there was no such call. Does not wait. */
    size_t (*is_ready)(const struct ls_cluster *members);
    /* Declares all floats of the nodes complete and completes the sum, in the order of the tree,
     * into `total`. The caller must have written all floats of the nodes before. If `begin` was
     * called in an earlier attempt of the same step, which failed, the sum of that attempt
     * continues: floats that were declared complete in that attempt are not transferred again.
     * `wait` may be NULL. Errors: LS_ESTALLED, LS_EIO, LS_EDATA, LS_EINTERNAL, LS_EDIVERGED,
     * LS_ENOMEM. Each of them ends the run. */
    int (*sum)(struct ls_cluster *members, const ls_cluster_wait *wait, ls_error *err);
    /* Returns whether all processes stop after this step: non-zero if at least one process had been
     * asked to stop (ls_trainer_interrupt) when it began the last sum. The result is the same in
     * all processes. */
    int (*agreed)(const struct ls_cluster *members);
    /* Ends an attempt of a step; `committed` says whether this process has used the result of the
     * sum. The caller calls this function after each attempt, even if the attempt failed before
     * `sum`. If this process has completed a sum but not used the result, it leaves the run: the
     * other processes can have used the result already and begun the next step, so the sum cannot
     * be repeated with them. */
    void (*commit)(struct ls_cluster *members, int committed);
} ls_members_ops;

/* Description of a group. */
typedef struct ls_comm_group_desc {
    const ls_comm_type *type;
    int ranks;     /* number of ranks */
    int shards;    /* number of leaves of the tree */
    size_t floats; /* length of an arena in floats, a multiple of 16 */
    /* [param_count + 1] offset of each parameter (a learned tensor) in the arena, in floats,
     * ascending. The last entry is `floats`, the end of the arena. A communicator may divide the
     * arena at these offsets. Outlives the group. */
    const size_t *param_offsets;
    int param_count;
    /* [bucket_count] end of each bucket as a number of floats, ascending; the last end is `floats`.
     * A *bucket* consists of consecutive parameters whose gradients are merged together while the
     * backward pass computes the gradients of other layers. Outlives the group. */
    const size_t *buckets;
    int bucket_count;    /* 0: the whole arena is one bucket */
    uint64_t timeout_ns; /* longest wait at one barrier, in nanoseconds; UINT64_MAX: no limit */
    unsigned spins; /* number of times that a waiting rank checks its condition before it sleeps */
    const ls_host *host; /* allocator and log */
    /* The connection to the other processes, which compute the remaining shards. NULL: this process
     * computes all shards. */
    struct ls_cluster *members;
    const ls_members_ops *members_ops; /* functions that reach `members` */
    ls_span span; /* used with `members`: the leaves that this process computes */
} ls_comm_group_desc;

/* Times of merges, in seconds, and other data of a merge. Each call adds its times to `wait` and
 * `exposed`; no call sets them to 0. */
typedef struct ls_comm_times {
    double wait;    /* time in which the rank waited for other ranks at barriers */
    double exposed; /* time in which the rank merged and could not compute anything else, without
                     * `wait` */
    /* Optional. Called on the worker's thread when a wait for other ranks begins (`begins` is 1)
     * and when it ends (0). */
    void (*waiting)(void *user, int begins);
    void *user; /* first argument of `waiting` */
    int asked;  /* output of a merge over several processes: the result of ls_members_ops.agreed,
                 * non-zero if all processes stop */
} ls_comm_times;

/* First fields of every group; the implementation's own fields follow. */
struct ls_comm_group {
    const ls_comm_type *type;
    int ranks; /* number of ranks */
    int ahead; /* non-zero: merge_ready has an effect in this group: buckets are merged before
                * all_reduce is called */
};

/* First fields of every communicator; the implementation's own fields follow. */
struct ls_comm {
    ls_comm_group *group;
    int rank; /* this rank's number, 0 … ranks − 1 */
    /* Digest of the rank's replica, which the caller sets before each step. The ranks compare their
     * digests in all_reduce; before the first step all are 0. */
    uint64_t digest;
};

/* An implementation of communicators: a table of functions. Each function must be set unless it is
 * marked optional. */
struct ls_comm_type {
    const char *name; /* name of the implementation, which the config key `allreduce` selects */
    /* non-zero: sums have the bits of the order of the shard tree, so that they do not depend on
     * the number of workers. A statement for users and tests: the library does not read it, and the
     * test comm_allreduce checks it for the library's communicators in host memory. */
    int same_bits;
    /* Creates a group. Copies `desc`. Any thread. Errors: LS_EINVAL, LS_ENOMEM. */
    int (*group_create)(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
    /* Frees a group that every rank has left. Any thread. */
    void (*group_destroy)(ls_comm_group *group);
    /* Sets the time limit, in nanoseconds, of every wait that begins later; UINT64_MAX: no limit.
     * Any thread. */
    void (*set_timeout)(ls_comm_group *group, uint64_t timeout_ns);
    /* Joins the group as `rank`. Called on the worker's thread, which can have been in another
     * group before. Errors: LS_ENOMEM, LS_EUNSUPPORTED (the other ranks cannot access the device's
     * memory). */
    int (*join)(ls_comm **out, ls_comm_group *group, int rank, ls_device *device, ls_error *err);
    /* Leaves the group and frees the communicator. Called on the worker's thread, or on any thread
     * after the worker's last call of a function of the group. Ranks leave in any order, also after
     * an abort. NULL is allowed. */
    void (*leave)(ls_comm *comm);
    /* Optional. Tests that the ranks can read each other's memory. The library checks every new
     * group before it uses the group: first by this function, unless it is NULL, and then by an
     * all_reduce of small integers. Collective (every rank makes the call), after all ranks have
     * joined. Each rank writes a pattern of its own to `total` (to `scratch` if `total` is one
     * array that all ranks share), reads the patterns of all ranks and verifies every float. An
     * implementation whose ranks do not read each other's memory need not do this. Either all ranks
     * return LS_OK, or none does. Both arrays have desc.floats floats of device memory, and their
     * contents are lost.
     * Errors: LS_EDEVICE ("cpu(1) read 0x… from cpu(0) at float 12345: expected 0x…"), LS_EABORTED,
     * LS_ETIMEDOUT. */
    int (*check_reads)(ls_comm *comm, float *scratch, float *total, ls_error *err);
    /* Sums the gradients over all ranks. Collective (every rank makes the call), on the worker's
     * thread.
     *
     * - partials, count: the partial sums that cover this rank's shards, in order of their spans
     * - total: receives the sum, desc.floats floats of device memory; the rank's own array, or one
     *   array that all ranks share
     * - times: accumulates the times of the call
     *
     * Errors: LS_EABORTED (another rank aborted), LS_ETIMEDOUT (the message names the missing
     * ranks), LS_EDIVERGED on all ranks (their digests differ). After an error `total` is
     * undefined, and other ranks can still read `partials` and `total` until they have returned
     * too. */
    int (*all_reduce)(ls_comm *comm, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err);
    /* Optional. Merges a part of the gradient while the backward pass continues. `gradient` is this
     * rank's only partial sum. Its first `floats` floats are complete when all work that was
     * enqueued on `stream` before this call has run, and they do not change after that. The
     * function enqueues the merge of each bucket that lies within these floats, unless that merge
     * is enqueued already, and returns without waiting. In a step either no rank calls the
     * function, or every rank calls it with the same ascending values of `floats`. Each value is
     * the offset up to which the backward pass has completed the gradient after some layer. The
     * step's all_reduce, which gets the same partial sum and the same total, completes the merge.
     * The function does nothing if ls_comm_group.ahead is 0. It also does nothing before the first
     * all_reduce of the group, by which the library usually checks a new group (see check_reads).
     * From the first call of this function to the return of all_reduce, no memory of the device may
     * be freed, because freeing can wait for all work of the device, and the enqueued merge waits
     * for the other ranks. A rank that gives up the step in this time must abort the group. NULL:
     * merges begin when the whole gradient is complete. Errors: as all_reduce. */
    int (*merge_ready)(ls_comm *comm, ls_stream *stream, const float *gradient, float *total,
                       size_t floats, ls_error *err);
    /* Aborts the group: every present and later call of the group returns LS_EABORTED. Any
     * thread. */
    void (*abort)(ls_comm_group *group);
    /* Returns non-zero if `rank` can still read arrays that other ranks have passed to all_reduce.
     * Called after the group was aborted or has timed out. Once the function has returned 0, `rank`
     * does not read these arrays any more. A rank whose thread is running stops reading within
     * microseconds of an abort. Any thread. */
    int (*may_read)(const ls_comm_group *group, int rank);
    int over_members; /* non-zero: the communicator can also merge gradients of other processes
                       * (ls_comm_group_desc.members) */
};

#ifdef __cplusplus
}
#endif
#endif
