/* The communicator table: how the gradients of all workers are summed.
 *
 * This header is for authors of back ends whose devices sum gradients in their own way. It is
 * unstable: any version may change it. The library's own communicators, which add in host memory,
 * implement the same table.
 *
 * Terms: an *arena* is one array with all parameters of a model, or with all their gradients. A
 * minibatch is cut into *shards*, and a worker (a thread that drives one device) computes the
 * gradients of some of the shards. A *partial sum* is the arena of the summed gradients of adjacent
 * shards. The *total* is the arena that receives the sum over all shards. To *merge* gradients is
 * to add the partial sums of all ranks.
 *
 * The library creates a *group* for a number of ranks. Each worker joins the group as one rank and
 * gets a *communicator* of its own. In every step, each rank calls all_reduce with its partial sums
 * and receives the sum over all ranks in its total.
 *
 * Order of the additions: they form a binary tree, the *shard tree*. Its leaves are the gradients
 * of the `shards` shards. Its node T(a, b) is the sum of the leaves a … b − 1: the leaf itself if
 * b − a = 1, and otherwise T(a, m) + T(m, b), where m is a plus the largest power of two below
 * b − a. Each partial sum of a rank is the node T(lo, hi) of its span, and the spans of all ranks
 * together contain all leaves. A communicator with `same_bits` makes the additions above these
 * nodes in exactly the order of the tree.
 *
 * Commit point: each step has one, inside all_reduce. Either every rank returns LS_OK with the
 * complete sum in its own memory, or none does.
 *
 * Failure: the first abort or time-out ends the group. Inside a call the ranks wait for each other
 * at barriers. Each barrier ends in one of three ways: released, aborted, or timed out. One atomic
 * operation decides which, so all ranks see the same end. After a time-out the rank whose time
 * limit passed first returns LS_ETIMEDOUT, and the other ranks return LS_EABORTED. After an abort
 * or a time-out every call of the group returns LS_EABORTED at once.
 * The k ranks that have not failed leave the group and join a *new* group, in which their ranks are
 * 0 … k − 1, with the same shards.
 *
 * Stalled ranks: a rank may stall inside a call and continue after the group has ended. At its next
 * barrier the rank notices the end, and accesses no other rank's memory after that. Two rules keep
 * its accesses before that barrier safe:
 *
 * - The group is destroyed only after every rank has left it. If a rank never returns, the caller
 *   never frees the group and that rank's communicator.
 * - An array that was an argument of a call (partial sums, totals) is neither written nor freed
 *   before each rank has returned from its last call, or may_read has returned 0 for that rank.
 */
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

/* The leaves lo … hi − 1 of the tree. */
typedef struct ls_span {
    int lo, hi;
} ls_span;

#define LS_SHARDS_MAX 65536 /* largest number of leaves of a tree */
#define LS_PARTIALS_MAX 32  /* largest number of partial sums of a rank: 2·log₂(LS_SHARDS_MAX) */

/* A partial sum: the node of the tree over `span`. */
typedef struct ls_partial {
    ls_span span;
    const float *data; /* the node's arena, in device memory; valid until the call has returned */
} ls_partial;

typedef struct ls_comm_group ls_comm_group; /* the ranks that sum together */
typedef struct ls_comm ls_comm;             /* one rank's communicator in a group */
typedef struct ls_comm_type ls_comm_type;   /* an implementation: a row of the table */

/* Callback of a wait for other processes. `beat` is called several times a second on the waiting
 * thread, so that the caller can see that the thread is alive. */
typedef struct ls_cluster_wait {
    void (*beat)(void *user);
    void *user;
} ls_cluster_wait;

struct ls_cluster;

/* Functions by which a communicator adds gradients over all processes of a run, the *members*. The
 * *cover* of a process is the fewest nodes of the shard tree that together contain exactly the
 * leaves of this process. Each process contributes the arenas of the nodes in its cover, and
 * receives the sum of the whole tree. One thread at a time calls these functions, and every process
 * makes the same calls. */
typedef struct ls_members_ops {
    size_t size; /* sizeof(ls_members_ops) */
    /* Returns the buffer for node i of this process's cover, which the caller fills. */
    float *(*node)(const struct ls_cluster *members, int i);
    /* Returns the buffer that receives the sum. */
    const float *(*total)(const struct ls_cluster *members);
    /* Returns the block of host memory that contains all nodes and the total, and its size in
     * bytes. The block does not move while the group exists. */
    void *(*memory)(const struct ls_cluster *members, size_t *bytes);
    /* Starts the transfers of the floats that were declared complete by `ready`. The call is
     * optional: `sum` starts the transfers that were not started. Does not wait. */
    int (*begin)(struct ls_cluster *members, ls_error *err);
    /* Declares the first `floats` floats of each node complete, so that they may be sent. The
     * caller does not write these floats again until the sum is done, not even when it repeats the
     * step. A call with fewer floats than an earlier call has no effect. The call is optional
     * before `sum`. Does not wait. */
    void (*ready)(struct ls_cluster *members, size_t floats);
    /* Returns the number of floats of each node that were declared complete. Does not wait. */
    size_t (*is_ready)(const struct ls_cluster *members);
    /* Completes the sum, in the order of the tree, into `total`; all nodes must be complete. If a
     * failed step has started a sum, this call continues that sum. `wait` may be NULL. Errors:
     * LS_ESTALLED, LS_EIO, LS_EDATA, LS_EINTERNAL, LS_ENOMEM. Each of them ends the run. */
    int (*sum)(struct ls_cluster *members, const ls_cluster_wait *wait, ls_error *err);
    /* Returns non-zero if at least one process had been asked to stop when it began the last sum.
     * All processes get the same value. */
    int (*agreed)(const struct ls_cluster *members);
    /* Ends an attempt of a step; `committed` says whether this process has used the result of the
     * sum. The caller calls it after each attempt, also if the attempt failed before `sum`. A
     * complete sum cannot be repeated. If this process has completed a sum and not used its result,
     * the process therefore leaves the run. */
    void (*commit)(struct ls_cluster *members, int committed);
} ls_members_ops;

/* Description of a group. */
typedef struct ls_comm_group_desc {
    const ls_comm_type *type;
    int ranks;     /* number of ranks */
    int shards;    /* number of leaves of the tree */
    size_t floats; /* length of an arena in floats, a multiple of 16 */
    /* [param_count + 1] first float of each parameter in the arena, ascending, then `floats`. A
     * communicator may divide the arena at these offsets. Outlives the group. */
    const size_t *param_offsets;
    int param_count;
    /* [bucket_count] end of each bucket as a number of floats, ascending; the last end is `floats`.
     * A *bucket* consists of consecutive parameters whose gradients are merged together while the
     * backward pass computes the gradients of other layers. Outlives the group. */
    const size_t *buckets;
    int bucket_count;    /* 0: the whole arena is one bucket */
    uint64_t timeout_ns; /* longest wait at one barrier of the ranks; UINT64_MAX: no limit */
    unsigned spins; /* number of times that a waiting rank checks its condition before it sleeps */
    const ls_host *host; /* allocator and log */
    /* The other processes, which compute the remaining shards. NULL: this process computes all
     * shards. */
    struct ls_cluster *members;
    const ls_members_ops *members_ops; /* functions that reach `members` */
    ls_span span; /* used with `members`: the leaves that this process computes */
} ls_comm_group_desc;

/* Times of merges in seconds and other outputs of a merge. Each call adds its times to the fields;
 * no call sets them to 0. */
typedef struct ls_comm_times {
    double wait;    /* time in which the rank waited for other ranks at barriers */
    double exposed; /* time in which the rank merged and could not compute anything else */
    /* Optional. Called when a wait for other ranks begins (1) and ends (0), on the worker's
     * thread. */
    void (*waiting)(void *user, int begins);
    void *user; /* first argument of `waiting` */
    int asked;  /* output of a merge over several processes: non-zero if at least one process was
                 * asked to stop (the result of ls_members_ops.agreed) */
} ls_comm_times;

/* First fields of every group; the implementation's own fields follow. */
struct ls_comm_group {
    const ls_comm_type *type;
    int ranks; /* number of ranks */
    int ahead; /* non-zero: merge_ready has an effect in this group, that is, buckets are merged
                * ahead of all_reduce */
};

/* First fields of every communicator; the implementation's own fields follow. */
struct ls_comm {
    ls_comm_group *group;
    int rank; /* this rank's number, 0 … ranks − 1 */
};

/* An implementation of communicators. All slots are mandatory unless marked optional. */
struct ls_comm_type {
    const char *name; /* name of the implementation, which the config key `allreduce` selects */
    int same_bits;    /* non-zero: the bits of results do not depend on the number of workers */
    /* Creates a group. Copies `desc`. Any thread. Errors: LS_EINVAL, LS_ENOMEM. */
    int (*group_create)(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
    /* Frees a group that every rank has left. Any thread. */
    void (*group_destroy)(ls_comm_group *group);
    /* Sets the time limit, in nanoseconds, of every wait that begins later; UINT64_MAX: no limit.
     * Any thread. */
    void (*set_timeout)(ls_comm_group *group, uint64_t timeout_ns);
    /* Joins the group as `rank`. Called on the worker's thread, which may have been in another
     * group before. Errors: LS_ENOMEM, LS_EUNSUPPORTED (the other ranks cannot access the device's
     * memory). */
    int (*join)(ls_comm **out, ls_comm_group *group, int rank, ls_device *device, ls_error *err);
    /* Leaves the group and frees the communicator, on the worker's thread, or on any thread once
     * the worker no longer calls functions of the group. Ranks leave in any order, also after an
     * abort. NULL is allowed. */
    void (*leave)(ls_comm *comm);
    /* Optional. The first part of the start-up check; the second part, a merge of small integers,
     * runs in every group. Collective, after all ranks have joined. If ranks read each other's
     * memory, each rank writes a pattern of its own into `total` (or into `scratch` if `total` is
     * one array that all ranks share), reads the patterns of all ranks and verifies every float.
     * All ranks return LS_OK, or none does. Both arrays have desc.floats floats of device memory,
     * and their contents are lost.
     * Errors: LS_EDEVICE ("cpu(1) read 0x… from cpu(0) at float 12345: expected 0x…"), LS_EABORTED,
     * LS_ETIMEDOUT. */
    int (*check_reads)(ls_comm *comm, float *scratch, float *total, ls_error *err);
    /* Sums over all ranks. Collective, on the worker's thread.
     *
     * - partials, count: the partial sums that cover this rank's shards, in order of their spans
     * - total: receives the sum, desc.floats floats of device memory; the rank's own array, or one
     *   array that all ranks share
     * - times: accumulates the times of the call
     *
     * Errors: LS_EABORTED (another rank aborted), LS_ETIMEDOUT (the message names the missing
     * ranks). After an error `total` is undefined, and other ranks may still read `partials` and
     * `total` until they have returned too. */
    int (*all_reduce)(ls_comm *comm, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err);
    /* Optional. Merges a part of the gradient while the backward pass continues. `gradient` is this
     * rank's only partial sum. Its first `floats` floats are complete once the work that `stream`
     * has so far is done, and they do not change after that. The function enqueues the merge of
     * each bucket that lies within these floats and is not merged yet, and returns without waiting.
     * In a step either no rank calls the function, or every rank calls it with the same ascending
     * values of `floats`, each of which is the end of a segment of the backward pass. The
     * all_reduce of the step, with the same partial sum and the same total, completes the merge.
     * The function does nothing if ls_comm_group.ahead is 0, or before the first all_reduce of the
     * group, which is usually that of the start-up check. From the first call to the return of
     * all_reduce, device memory must not be freed, and a rank that gives up the step must abort the
     * group. NULL: merges begin when the whole gradient is complete. Errors: as all_reduce. */
    int (*merge_ready)(ls_comm *comm, ls_stream *stream, const float *gradient, float *total,
                       size_t floats, ls_error *err);
    /* Aborts the group: every present and later call of the group returns LS_EABORTED. Any
     * thread. */
    void (*abort)(ls_comm_group *group);
    /* Returns non-zero if `rank` may still read arrays that other ranks have passed to all_reduce.
     * Called after the group was aborted or has timed out. Once the function has returned 0, `rank`
     * does not read them any more. A rank that runs stops reading within microseconds of an abort.
     * Any thread. */
    int (*may_read)(const ls_comm_group *group, int rank);
    int over_members; /* non-zero: the communicator can also merge gradients of other processes
                       * (ls_comm_group_desc.members) */
};

#ifdef __cplusplus
}
#endif
#endif
