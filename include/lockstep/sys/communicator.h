/* The communicator table: how the workers' gradients become one.
 *
 * This header is for authors of back ends whose devices merge in a way of their own, and as unstable as plugin.h;
 * the library's
 * own communicators, which merge through host memory, have rows of the same table.
 *
 * A *group* is made once, by the coordinator, for a number of ranks; each worker joins it with its
 * own *communicator*. Then, step after step, every rank calls all_reduce with its partial sums and
 * finds the sum over all ranks in its total arena.
 *
 * The order of the sum. A minibatch has `shards` leaves, and T(a, b) over the leaves a … b − 1 is
 * the leaf itself when b − a = 1, else T(a, m) + T(m, b), where m = a + the largest power of two
 * below b − a. A rank's partial sums are nodes of that tree, each the T of its span; together the
 * ranks' spans cover all leaves. A communicator with `same_bits` evaluates what is left of the tree.
 *
 * A step has one commit point, inside all_reduce: either every rank returns LS_OK with the whole
 * sum in memory of its own, or none does.
 *
 * The life of a group ends with its first abort or time-out. Each meeting of the ranks inside a
 * call has one of three ends, decided at once and the same for all ranks: released,
 * aborted, or timed out (the rank whose time was over first says LS_ETIMEDOUT, the others
 * LS_EABORTED). After an abort or a time-out every call of the group returns LS_EABORTED at once,
 * for ever: survivors leave and join a *new* group, with ranks 0 … k − 1 again and the same shards.
 *
 * A rank that stalls and comes back late learns it at its next meeting and touches nobody's memory
 * after that. Until then two rules keep it harmless:
 *   - the group stays: it is destroyed only when every rank has left it, so with a rank that was
 *     given up the caller keeps the group and the rank's communicator, for good if need be;
 *   - nobody writes to or frees an array that the group has seen (partial sums, totals) before each
 *     rank has returned from its last call, or `may_read` says of it that it reads no more.
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

/* The leaves lo … hi − 1. */
typedef struct ls_span {
    int lo, hi;
} ls_span;

#define LS_SHARDS_MAX 65536 /* most leaves */
#define LS_PARTIALS_MAX 32  /* most partial sums of a rank: 2·log₂ of that */

typedef struct ls_partial {
    ls_span span;
    const float *data; /* device memory; the caller keeps it until the call has returned */
} ls_partial;

typedef struct ls_comm_group ls_comm_group;
typedef struct ls_comm ls_comm;
typedef struct ls_comm_type ls_comm_type;

/* Told now and then while other processes are waited for, on the waiting thread, so that it can show that it
 * lives. */
typedef struct ls_cluster_wait {
    void (*beat)(void *user);
    void *user;
} ls_cluster_wait;

struct ls_cluster;

/* The other processes of a run, as a communicator reaches them. Each process brings the nodes of the shard tree
 * that cover its leaves, and all find the tree's sum. One thread at a time; every process does the same. */
typedef struct ls_members_ops {
    size_t size; /* sizeof(ls_members_ops) */
    /* What this process brings: node i of its cover; and where the sum arrives. Both are parts of one block of
     * the host's memory, which stays where it is while the group lives. */
    float *(*node)(const struct ls_cluster *members, int i);
    const float *(*total)(const struct ls_cluster *members);
    void *(*memory)(const struct ls_cluster *members, size_t *bytes);
    /* Optional calls before `sum`. begin: starts the sum with the floats that are ready. ready: the first `floats` floats of
     * each node are there, for the others to have, and are not written again until the sum is done, also not
     * in a step that is repeated; fewer than before change nothing. is_ready: how many those are. None of
     * them waits. */
    int (*begin)(struct ls_cluster *members, ls_error *err);
    void (*ready)(struct ls_cluster *members, size_t floats);
    size_t (*is_ready)(const struct ls_cluster *members);
    /* All nodes are there: total ← the sum, in tree order. Goes on with what a step that failed has begun.
     * `wait` may be NULL. Errors: LS_ESTALLED, LS_EIO, LS_EDATA, LS_EINTERNAL, LS_ENOMEM: the run is over. */
    int (*sum)(struct ls_cluster *members, const ls_cluster_wait *wait, ls_error *err);
    /* Whether a process asked to stop when it began the last sum: the same on all of them. */
    int (*agreed)(const struct ls_cluster *members);
    /* After each attempt at a sum, also one that ended before `sum`: whether this process has made use of what
     * was summed. One that was summed and has not been cannot be repeated: this process leaves. */
    void (*commit)(struct ls_cluster *members, int committed);
} ls_members_ops;

typedef struct ls_comm_group_desc {
    const ls_comm_type *type;
    int ranks;
    int shards;    /* leaves of the tree */
    size_t floats; /* of an arena, a multiple of 16 */
    /* First float of each parameter in the arena, ascending, then `floats`: where the arena may be cut.
     * Outlives the group. */
    const size_t *param_offsets;
    int param_count;
    const size_t
        *buckets;        /* first float behind each run of parameters that is merged at once beside
                              the backward pass, ascending; the last is `floats`. Outlives the group */
    int bucket_count;    /* 0: the arena is one */
    uint64_t timeout_ns; /* longest wait at one meeting of the ranks; UINT64_MAX: for ever */
    unsigned spins;      /* checks made before a waiting rank goes to sleep */
    const ls_host *host;
    /* The other processes that have a part of the minibatch, and the leaves of this one's, which the ranks'
     * partial sums cover. NULL: this process has all of them. */
    struct ls_cluster *members;
    const ls_members_ops *members_ops; /* how members are reached */
    ls_span span;
} ls_comm_group_desc;

/* Seconds, added to by each call. */
typedef struct ls_comm_times {
    double wait;    /* for other ranks at the barriers */
    double exposed; /* merging, while the worker could do nothing else */
    /* Told when a wait for other ranks begins (1) and ends (0), on the worker's thread. Optional. */
    void (*waiting)(void *user, int begins);
    void *user;
    int asked; /* set by a merge over several processes: one of them asks all to stop */
} ls_comm_times;

/* The start of every group and of every communicator; the implementation's own fields follow. */
struct ls_comm_group {
    const ls_comm_type *type;
    int ranks;
    int ahead; /* non-zero: merge_ready has something to merge in this group */
};

struct ls_comm {
    ls_comm_group *group;
    int rank;
};

/* A row of the table of communicators. All slots are mandatory unless marked optional. */
struct ls_comm_type {
    const char *name; /* config key `allreduce` */
    int same_bits;    /* non-zero: results do not depend on the number of workers */
    /* Any thread. Copies `desc`. Errors: LS_EINVAL, LS_ENOMEM. */
    int (*group_create)(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
    void (*group_destroy)(ls_comm_group *group); /* any thread, after every rank has left */
    /* Any thread. The time limit of every wait that begins from now on; UINT64_MAX: none. */
    void (*set_timeout)(ls_comm_group *group, uint64_t timeout_ns);
    /* On the worker's thread, which may have left another group before. Errors: LS_ENOMEM,
     * LS_EUNSUPPORTED (the device's memory is out of the others' reach). */
    int (*join)(ls_comm **out, ls_comm_group *group, int rank, ls_device *device, ls_error *err);
    /* On the worker's thread, or on another once the worker calls nothing of the group any more.
     * Ranks leave in any order, also after an abort. NULL is allowed. */
    void (*leave)(ls_comm *comm);
    /* Optional. Collective, after everybody has joined: the first part of the start-up check, whose
     * second, a merge of small integers, every group goes through. Where ranks read each other's memory,
     * each writes a pattern of its own into `total`, or into `scratch` where that is the ranks' one total,
     * reads everybody's, and verifies every float. All ranks return LS_OK, or none does. Both arrays have
     * desc.floats floats of device memory; what they hold is lost.
     * Errors: LS_EDEVICE ("cpu(1) read 0x… from cpu(0) at float 12345: expected 0x…"), LS_EABORTED,
     * LS_ETIMEDOUT. */
    int (*check_reads)(ls_comm *comm, float *scratch, float *total, ls_error *err);
    /* Collective. `partials` cover this rank's shards, in order; `total` (desc.floats, device
     * memory of this rank's own, or one total of all ranks') receives the sum. Errors: LS_EABORTED
     * when another rank aborted, LS_ETIMEDOUT, naming who is missing; `total` is then undefined, and others
     * may still read `partials` and `total`, until they have returned too. */
    int (*all_reduce)(ls_comm *comm, ls_stream *stream, const ls_partial *partials, int count,
                      float *total, ls_comm_times *times, ls_error *err);
    /* Optional: merging while the backward pass still goes on. `gradient` is this rank's only
     * partial sum; its first `floats` floats are complete once `stream`'s work up to here is done,
     * and stay as they are. Enqueues the merge of what can be merged of them and returns. Every
     * rank calls it with the same ascending `floats` in a step (each the end of a segment), or
     * none does; the step's all_reduce, with that one partial sum and the same total, then ends it.
     * Of use where the group says `ahead`, and else does nothing.
     * Before the first all_reduce (the start-up check's, as a rule) it does nothing. From the first call to the
     * return of all_reduce nobody frees device memory, and a rank that gives the step up aborts
     * the group. Waits for nobody. Errors: as all_reduce. NULL: a merge begins when everything is
     * there. */
    int (*merge_ready)(ls_comm *comm, ls_stream *stream, const float *gradient, float *total,
                       size_t floats, ls_error *err);
    /* Any thread: every present and later call of the group returns LS_EABORTED. */
    void (*abort)(ls_comm_group *group);
    /* Any thread, once the group is aborted or timed out. Whether `rank` may still read what others
     * have shown to the group. 0 is final, and the caller may reuse that memory. A rank that is
     * alive stops reading within microseconds of an abort. */
    int (*may_read)(const ls_comm_group *group, int rank);
    int over_members; /* non-zero: it merges over ls_comm_group_desc.members, too */
};

#ifdef __cplusplus
}
#endif
#endif
