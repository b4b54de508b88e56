/* Communicators: how the workers' gradients become one.
 *
 * What a group and a communicator are, what they promise and how they end is said in
 * <lockstep/sys/communicator.h>, the table's header.
 *
 * Two kinds merge through host memory:
 *
 *     ordered   every worker sums one chunk of the arena from all ranks' partial sums, in the
 *               order of the shard tree, then gathers the other chunks: the same bits on any
 *               number of workers
 *     naive     the textbook's: rank 0 adds up all ranks' gradients, parameter by parameter,
 *               then the other ranks copy the sum back; the bits depend on the number of workers
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

/* The communicators by name, NULL-terminated. */
const ls_comm_type *const *ls_comm_types(void);

enum { LS_COMM_WHY = 128 };

/* The one of `types` (NULL-terminated: these, or a device's own) that is called `name`. NULL: none is,
 * and `why` says what to do: "did you mean 'ordered'?". */
const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY]);

/* ---- fold ------------------------------------------------------------------------------------ *
 * Adding up a worker's own shards, in tree order, as they are computed.
 *
 * The worker computes the gradient of its shards lo … hi − 1 one after another, always into the
 * same leaf arena, and pushes each. The fold keeps a small stack of partial sums, one per finished
 * subtree; after the last push the stack holds exactly ls_tree_cover(lo, hi), which is what the
 * communicator merges. One worker's thread.
 *
 * Where leaves may lie anywhere in the host's memory (ls_fold_spread) nothing is copied: each is computed where it is
 * to stay. Four or more parts of a node are added up at once, so that each is read once; the last ones are left to the
 * communicator, whose ranks share that work, and the stack may hold the parts of a node instead of it. */

typedef struct ls_fold {
    ls_device *device;
    float *leaf;
    size_t floats;
    int shards;
    bool spread;
    ls_span range;
    int next;  /* the leaf that is pushed next */
    int depth; /* of the stack */
    int arenas;
    ls_partial stack[LS_PARTIALS_MAX]; /* data: valid until the next ls_fold_begin or leaf */
    float *arena[LS_PARTIALS_MAX]; /* [i]: of stack[i], unless that is the leaf; spread: of i + 1 */
} ls_fold;

/* Allocates the arenas that the shards [lo, hi) need: `floats` each, on `device`, which must be
 * bound to the calling thread. `leaf` is where gradients are computed. Errors: LS_ENOMEM. */
int ls_fold_init(ls_fold *fold, ls_device *device, float *leaf, size_t floats, int shards, int lo,
                 int hi, ls_error *err);
void ls_fold_fini(ls_fold *fold); /* a zeroed fold is allowed */
/* From the next minibatch on leaves lie side by side. The device has the host's memory. Errors: LS_ENOMEM. */
int ls_fold_spread(ls_fold *fold, ls_error *err);
/* Where the next leaf is to be computed. */
float *ls_fold_leaf(const ls_fold *fold);

/* Device memory it holds. */
size_t ls_fold_bytes(const ls_fold *fold);

/* A new minibatch. */
void ls_fold_begin(ls_fold *fold);

/* The leaf (ls_fold_leaf) now holds the next shard's gradient. It may be overwritten after the return,
 * except after the last push. Errors: LS_EDEVICE, LS_EINTERNAL. */
int ls_fold_push(ls_fold *fold, ls_error *err);

/* ---- what the communicators that merge through host memory share ------------------------------ */

typedef struct ls_host_comm {
    ls_comm base;
    ls_tree_rest rest; /* of the last merge */
} ls_host_comm;

int ls_host_group_create(ls_comm_group **out, const ls_comm_group_desc *desc, ls_error *err);
void ls_host_group_destroy(ls_comm_group *base);

/* Memory of the group's own for a total that all ranks show as theirs: what `ordered` has reduced is then complete,
 * and nothing is gathered. It lasts as long as the group, so that a rank that was left behind in a merge writes
 * nowhere else when it wakes. Before the first merge; zeroed; NULL: there is no memory. */
float *ls_host_group_total(ls_comm_group *base);
int ls_host_join(ls_comm **out, ls_comm_group *base, int rank, ls_device *device, ls_error *err);
void ls_host_leave(ls_comm *base);

/* The slot `check_reads`. */
int ls_host_check_reads(ls_comm *base, float *scratch, float *total, ls_error *err);

/* What their rows of the table have in common. */
#define LS_HOST_SLOTS                                                                              \
    .group_create = ls_host_group_create, .group_destroy = ls_host_group_destroy,                  \
    .set_timeout = ls_merge_set_timeout, .join = ls_host_join, .leave = ls_host_leave,             \
    .check_reads = ls_host_check_reads, .abort = ls_merge_abort, .may_read = ls_merge_may_read

/* Copies floats that another rank shows; gives up in the middle when the group is aborted. */
void ls_host_copy(const ls_merge_group *group, float *to, const float *from, size_t count);

#endif
