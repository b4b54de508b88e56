/* Adding up a worker's own shards, in tree order, as they are computed.
 *
 * The worker computes the gradient of its shards lo … hi − 1 one after another, always into the
 * same leaf arena, and pushes each. The fold keeps a small stack of partial sums, one per finished
 * subtree; after the last push the stack holds exactly ls_tree_cover(lo, hi), which is what the
 * communicator merges. One worker's thread.
 */
#ifndef COMM_FOLD_H
#define COMM_FOLD_H

#include "merge/tree.h"

#include <lockstep/plugin.h>

typedef struct ls_fold {
    ls_device *device;
    const float *leaf;
    size_t floats;
    int shards;
    ls_span range;
    int next;  /* the leaf that is pushed next */
    int depth; /* of the stack */
    int arenas;
    ls_partial stack[LS_PARTIALS_MAX]; /* data: valid until the next ls_fold_begin or leaf */
    float *arena[LS_PARTIALS_MAX];     /* arena[i] holds stack[i], unless that is the leaf itself */
} ls_fold;

/* Allocates the arenas that the shards [lo, hi) need: `floats` each, on `device`, which must be
 * bound to the calling thread. `leaf` is where gradients are computed. Errors: LS_ENOMEM. */
int ls_fold_init(ls_fold *fold, ls_device *device, const float *leaf, size_t floats, int shards,
                 int lo, int hi, ls_error *err);
void ls_fold_fini(ls_fold *fold); /* a zeroed fold is allowed */

/* Device memory it holds. */
size_t ls_fold_bytes(const ls_fold *fold);

/* A new minibatch. */
void ls_fold_begin(ls_fold *fold);

/* The leaf arena now holds the next shard's gradient. It may be overwritten after the return,
 * except after the last push. Errors: LS_EDEVICE. */
int ls_fold_push(ls_fold *fold, ls_error *err);

#endif
