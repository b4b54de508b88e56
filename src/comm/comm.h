/* SPDX-License-Identifier: MIT */
/* Communicators of the library, which sum the ranks' gradients in host memory.
 *
 * <lockstep/sys/communicator.h> says what groups and communicators guarantee and how they fail, and
 * defines the terms. Two communicators merge in host memory:
 *
 *     ordered   an all-reduce in two phases. Each rank sums one chunk of the arena over all ranks'
 *               partial sums, in the order of the shard tree; then each rank copies the other
 *               chunks. The total has the same bits for any number of ranks.
 *     naive     the textbook algorithm, for comparison. Rank 0 sums all ranks' gradients, parameter
 *               by parameter; the other ranks copy the sum. The bits depend on the number of ranks.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "merge/group.h"
#include "merge/tree.h"

#include <lockstep/sys/communicator.h>
#include <lockstep/sys/plugin.h>

#define LS_COMM(name) extern const ls_comm_type ls_comm_##name;
#include "comm/comms.def"
#undef LS_COMM

/* Returns the library's communicators, a NULL-terminated static array; the first is the default.
 * Any thread. */
const ls_comm_type *const *ls_comm_types(void);

enum { LS_COMM_WHY = 128 }; /* size of the text `why` of ls_comm_find in bytes */

/* Finds the communicator called `name` in `types`, a NULL-terminated array (the library's, or a
 * device's own). Returns NULL if there is none; `why` then receives a hint, such as "did you mean
 * 'ordered'?". Any thread. */
const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY]);

/* ---- fold ------------------------------------------------------------------------------------- *
 * A *fold* sums the gradients of one worker's own shards, in the order of the shard tree, while the
 * worker computes the gradients.
 *
 * The worker computes the gradients of its shards lo … hi − 1 one after another. It computes each
 * gradient in the same arena, the *leaf arena*, and then pushes the gradient: the gradient becomes
 * the topmost entry of a small stack of partial sums. Each entry is the sum over the leaves of one
 * node of the tree. A push adds the two topmost entries for as long as they are the two halves
 * (children) of a node. After the last push the stack holds one entry for each node of the cover of
 * the worker's shards (ls_tree_cover).
 *
 * Spread mode (ls_fold_spread), for devices that compute into any host memory: each gradient is
 * computed in an arena of its own and stays there, so nothing is copied. A push adds nothing.
 * Adjacent entries that together contain exactly the shards of one node are called the *parts* of
 * that node. Four or more parts are added in one pass over memory, so that each part is read once.
 * The addition is made before the next gradient is computed (ls_fold_leaf). The merge makes the
 * remaining additions, and all ranks share that work. Therefore the stack can at the end contain
 * the parts of a node instead of one entry for it.
 *
 * Dealt shards (ls_fold_deal) are a form of spread mode, in which a worker receives the shard to
 * the left or to the right of those that it has (sync/deal.h). Its partial sums then differ from
 * one minibatch to the next, but not the tree, nor the bits of the sum over all workers.
 *
 * Threads: only one worker's thread uses a fold. */

typedef struct ls_fold {
    ls_device *device;
    float *leaf;   /* the leaf arena: device memory of the caller */
    size_t floats; /* length of an arena in floats */
    int shards;    /* number of leaves of the tree */
    bool spread;   /* spread mode */
    /* the worker's shards; dealt shards: all shards that the worker can get */
    ls_span range;
    int first;      /* shard that is pushed first in a minibatch */
    bool from_left; /* spread mode: the last shard was pushed to the left of the others */
    int next;       /* without spread mode: shard that is pushed next */
    int depth;      /* number of partial sums on the stack */
    int arenas;     /* number of allocated arenas */
    ls_partial stack[LS_PARTIALS_MAX]; /* valid until ls_fold_begin or ls_fold_leaf is called */
    /* the allocated arenas. Without spread mode, stack[i] uses arena[i]. In spread mode an entry
     * can use any arena, the leaf arena too */
    float *arena[LS_PARTIALS_MAX];
} ls_fold;

/* Initialises a fold for the shards lo … hi − 1 of a tree over `shards` leaves. Allocates its
 * arenas, of `floats` floats each, on `device`, which must be bound to the calling thread. `leaf`
 * is the leaf arena, which has the same length and belongs to the caller. Errors: LS_ENOMEM,
 * LS_EDEVICE. */
int ls_fold_init(ls_fold *fold, ls_device *device, float *leaf, size_t floats, int shards, int lo,
                 int hi, ls_error *err);

/* Frees the arenas. A zeroed fold is allowed. */
void ls_fold_fini(ls_fold *fold);

/* Switches to spread mode from the next minibatch on, and allocates the arenas that spread mode
 * needs. The device must have LS_DEVICE_HOST_MEMORY. Errors: LS_ENOMEM, LS_EDEVICE. */
int ls_fold_spread(ls_fold *fold, ls_error *err);

/* Switches to spread mode for dealt shards. `first` is the shard that is pushed first in each
 * minibatch, and `reach` contains all shards that the worker can get. Errors: LS_ENOMEM,
 * LS_EDEVICE. */
int ls_fold_deal(ls_fold *fold, ls_span reach, int first, ls_error *err);

/* Returns the arena in which the caller must compute the next gradient. In spread mode the function
 * first adds the parts of a node that has four or more parts. If no arena is free, it adds the
 * parts of a node with two or three parts. */
float *ls_fold_leaf(ls_fold *fold);

/* Returns the arena that holds the first (leftmost) partial sum after the last push. A worker that
 * computes all shards of the minibatch can use this arena as its total. The merge then adds the
 * other partial sums to the first one in place, which ls_tree_rest_add allows. Must not be used for
 * dealt shards of several workers. */
float *ls_fold_root(const ls_fold *fold);

/* Returns the size of the fold's arenas in bytes. */
size_t ls_fold_bytes(const ls_fold *fold);

/* Begins a new minibatch: empties the stack. */
void ls_fold_begin(ls_fold *fold);

/* Pushes the gradient of the next shard, which the caller has computed in the arena that
 * ls_fold_leaf returned. Without spread mode the caller may overwrite the leaf arena after the
 * return, except after the last push of a minibatch, when it can contain a partial sum. In spread
 * mode the caller calls ls_fold_leaf before each gradient. Errors: LS_EDEVICE, LS_EINTERNAL. */
int ls_fold_push(ls_fold *fold, ls_error *err);

/* Pushes the gradient of the shard to the left of the shards that were pushed before; ls_fold_push
 * pushes the shard to their right. Only for dealt shards. */
void ls_fold_push_left(ls_fold *fold);

/* ---- sums by pieces -------------------------------------------------------------------------- *
 * A second form of the `ordered` all-reduce, which writes no total. Each rank computes the total
 * for itself, one piece at a time, immediately before it uses the piece. Each rank reads the
 * partial sums of all ranks, so this form takes less time only if there are few partial sums.
 *
 *     ls_pieces_begin     ends with a barrier, after which all partial sums are complete
 *     ls_piece            computes a part of the total; any number of calls
 *     ls_pieces_end       ends with a barrier, after which no rank reads the partial sums of others
 *
 * The barrier of ls_pieces_begin is the commit point.
 *
 * If a rank fails after the commit point, the other ranks can still compute the total, because the
 * arrays of the failed rank stay allocated and unchanged until every other rank has reported the
 * step. The other ranks find in ls_pieces_end that the group is aborted. At that time they have
 * applied the total already. Therefore the step is done and is not repeated. They begin no other
 * step in this group, because a stalled rank can still read their partial sums. */

/* *Shows* the rank's partial sums: makes them readable for the other ranks. Then waits for the
 * other ranks. Only for a group of ls_comm_ordered in a run with one process. Allocates nothing,
 * because ls_host_join has made room for all partial sums. Therefore no rank can fail after the
 * commit point for lack of memory. Errors: as all_reduce of ls_comm_type. */
int ls_pieces_begin(ls_comm *comm, const ls_partial *partials, int count, ls_comm_times *times,
                    ls_error *err);
/* Computes the floats first … first + count − 1 of the total, in the order of the tree, and writes
 * them to out[0 … count − 1]. `comm` points to an ls_comm. */
void ls_piece(void *comm, float *out, size_t first, size_t count);
/* Declares that this rank has ended its reads, and waits for the other ranks. After LS_OK the
 * rank's partial sums may be overwritten. Errors: LS_EABORTED, LS_ETIMEDOUT. */
int ls_pieces_end(ls_comm *comm, ls_comm_times *times, ls_error *err);
/* Declares that this rank has ended its reads, without a barrier. Called after a failure. */
void ls_pieces_drop(ls_comm *comm);

/* ---- common part of the communicators that merge in host memory ------------------------------ */

/* A rank's communicator. */
typedef struct ls_host_comm {
    ls_comm base;
    ls_tree_rest rest; /* the additions that the last merge had to make (merge/group.h) */
} ls_host_comm;

/* Implements the function group_create of ls_comm_type. */
int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
/* Implements the function group_destroy of ls_comm_type. */
void ls_host_group_destroy(ls_comm_group *base);

/* Returns a zeroed arena of the group that all ranks can share as their total; NULL: no memory. If
 * every rank passes it to all_reduce, `ordered` omits the second phase, in which chunks are copied.
 * It is freed with the group, because a rank that was abandoned inside a merge can write to it
 * later. Called before the first merge. */
float *ls_host_group_total(ls_comm_group *base);

/* Implements the function join of ls_comm_type. */
int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err);
/* Implements the function leave of ls_comm_type. */
void ls_host_leave(ls_comm *base);

/* Implements the function check_reads of ls_comm_type: tests whether each rank reads correctly what
 * the other ranks have written. Each rank writes a pattern of its own to `total`, or to `scratch`
 * if all ranks share one total, and compares the patterns of all ranks. All ranks must call it.
 * Errors: LS_EDEVICE (a wrong number was read), and those of ls_merge_run. */
int ls_host_check_reads(ls_comm *base, float *scratch, float *total, ls_error *err);

/* Initialisers of the fields of ls_comm_type that `ordered` and `naive` have in common. */
#define LS_HOST_SLOTS                                                                              \
    .group_create = ls_host_group_create, .group_destroy = ls_host_group_destroy,                  \
    .set_timeout = ls_merge_set_timeout, .join = ls_host_join, .leave = ls_host_leave,             \
    .check_reads = ls_host_check_reads, .abort = ls_merge_abort, .may_read = ls_merge_may_read

/* Copies `count` floats of an arena that another rank shows in this merge. If the group is aborted,
 * stops early and leaves the copy incomplete. */
void ls_host_copy(const ls_merge_group *group, float *to, const float *from, size_t count);

#endif
