/* Communicators of the library: how the workers' gradients are summed in host memory.
 *
 * <lockstep/sys/communicator.h>, the header of the table, defines groups and communicators, their
 * guarantees and how they fail. Two kinds merge in host memory:
 *
 *     ordered   every worker sums one chunk of the arena from all ranks' partial sums, in the order
 *               of the shard tree, then copies the other chunks: the same bits for any number of
 *               workers
 *     naive     the textbook algorithm: rank 0 sums all ranks' gradients, parameter by parameter,
 *               then the other ranks copy the sum; the bits depend on the number of workers
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

enum { LS_COMM_WHY = 128 }; /* size of a text of ls_comm_find in bytes */

/* Finds the communicator called `name` in `types`, a NULL-terminated array (the library's, or a
 * device's own). Returns NULL if there is none; `why` then receives a hint such as "did you mean
 * 'ordered'?". Any thread. */
const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY]);

/* ---- fold ------------------------------------------------------------------------------------- *
 * Sums the gradients of a worker's own shards, in the order of the shard tree, while they are
 * computed.
 *
 * The worker computes the gradients of its shards lo … hi − 1 one after another, each as a leaf in
 * one leaf arena, and pushes each of them. The fold keeps a small stack of partial sums, one for
 * each finished subtree. After the last push the stack holds exactly ls_tree_cover(lo, hi), which
 * the communicator then merges.
 *
 * Spread mode (ls_fold_spread), for devices that compute into any host memory: every leaf is
 * computed in the arena in which it stays, so nothing is copied. Four or more parts of a node are
 * added in one pass, so that each is read once. Additions are made before the next leaf is
 * computed. Those that the last push makes possible are therefore left to the communicator, whose
 * ranks share the work; the stack may then hold the parts of a node instead of the node.
 *
 * Dealt shards (ls_fold_deal): which shards the worker computes is decided while it works, and they
 * are pushed on both sides of a first one. The partial sums are then those of the worker's shards
 * of this minibatch; the tree, and with it the bits of the sum over all workers, stays the same.
 *
 * Threads: one worker's thread uses a fold. */

typedef struct ls_fold {
    ls_device *device;
    float *leaf;                       /* the leaf arena, in device memory, owned by the caller */
    size_t floats;                     /* length of an arena in floats */
    int shards;                        /* number of leaves of the tree */
    bool spread;                       /* spread mode */
    ls_span range;                     /* the worker's shards, or those that may be dealt to it */
    int first;                         /* shard that is pushed first */
    bool from_left;                    /* spread mode: the last push was on the left */
    int next;                          /* shard that is pushed next, without spread mode */
    int depth;                         /* number of partial sums on the stack */
    int arenas;                        /* number of allocated arenas */
    ls_partial stack[LS_PARTIALS_MAX]; /* their data is valid until the next begin or leaf */
    float *arena[LS_PARTIALS_MAX];     /* arena of stack[i], unless that is the leaf arena; in
                                        * spread mode, arenas of any entries */
} ls_fold;

/* Initialises a fold for the shards [lo, hi) of a tree over `shards` leaves, and allocates its
 * arenas of `floats` floats on `device`, which must be bound to the calling thread. Gradients are
 * computed in the arena `leaf`.
 * Errors: LS_ENOMEM, LS_EDEVICE. */
int ls_fold_init(ls_fold *fold, ls_device *device, float *leaf, size_t floats, int shards, int lo,
                 int hi, ls_error *err);

/* Frees the arenas. A zeroed fold is allowed. */
void ls_fold_fini(ls_fold *fold);

/* Switches to spread mode from the next minibatch on. The device must have LS_DEVICE_HOST_MEMORY.
 * Errors: LS_ENOMEM, LS_EDEVICE. */
int ls_fold_spread(ls_fold *fold, ls_error *err);

/* Switches to spread mode for dealt shards: the first one of each minibatch is `first`, the others
 * are neighbours of those before, and all lie in `reach`. Errors: LS_ENOMEM, LS_EDEVICE. */
int ls_fold_deal(ls_fold *fold, ls_span reach, int first, ls_error *err);

/* Returns the arena in which the next leaf has to be computed. In spread mode, first adds what is
 * to be added. */
float *ls_fold_leaf(ls_fold *fold);

/* Returns the arena of the first partial sum after the last push. If the fold's range is the whole
 * tree, the total may be computed there: that sum is the leftmost part of the total. */
float *ls_fold_root(const ls_fold *fold);

/* Returns the size of the fold's arenas in bytes. */
size_t ls_fold_bytes(const ls_fold *fold);

/* Begins a new minibatch. */
void ls_fold_begin(ls_fold *fold);

/* Pushes the gradient of the next shard, which the arena of ls_fold_leaf now holds. The arena
 * `leaf` may be overwritten after the return, except after the last push. Errors: LS_EDEVICE,
 * LS_EINTERNAL. */
int ls_fold_push(ls_fold *fold, ls_error *err);

/* Does the same for the shard on the left of those that were pushed. Only after ls_fold_deal. */
void ls_fold_push_left(ls_fold *fold);

/* ---- common part of the communicators that merge in host memory ------------------------------ */

/* Communicator of one rank. */
typedef struct ls_host_comm {
    ls_comm base;
    ls_tree_rest rest; /* the rest of the tree in the last merge (merge/group.h) */
} ls_host_comm;

/* The slot group_create. */
int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
/* The slot group_destroy. */
void ls_host_group_destroy(ls_comm_group *base);

/* Returns memory of the group for a total that all ranks share, or NULL if memory ran out. If all
 * ranks show it as their total, the sum is complete after `ordered` has reduced it, and no chunk is
 * copied. The memory is zeroed and exists as long as the group, so that a rank that was abandoned
 * in a merge writes to no other memory when it continues. Called before the first merge. */
float *ls_host_group_total(ls_comm_group *base);

/* The slot join. */
int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err);
/* The slot leave. */
void ls_host_leave(ls_comm *base);

/* The slot check_reads. */
int ls_host_check_reads(ls_comm *base, float *scratch, float *total, ls_error *err);

/* Initialisers of the slots that the rows of these communicators have in common. */
#define LS_HOST_SLOTS                                                                              \
    .group_create = ls_host_group_create, .group_destroy = ls_host_group_destroy,                  \
    .set_timeout = ls_merge_set_timeout, .join = ls_host_join, .leave = ls_host_leave,             \
    .check_reads = ls_host_check_reads, .abort = ls_merge_abort, .may_read = ls_merge_may_read

/* Copies `count` floats that another rank shows. Stops early if the group is aborted; the copy is
 * incomplete then. */
void ls_host_copy(const ls_merge_group *group, float *to, const float *from, size_t count);

#endif
