/* SPDX-License-Identifier: MIT */
/* The shard tree, which fixes the order in which gradients are added, and the buckets, which divide
 * gradients for merging.
 *
 * A minibatch is cut into *shards*. The gradients of the shards are the leaves of a fixed binary
 * tree. The node T(lo, hi) is the sum of the leaves lo … hi − 1. If hi − lo = 1, the node is the
 * leaf itself. If hi − lo > 1, the node is T(lo, m) + T(m, hi), where m = lo + p, and p is the
 * largest power of two below hi − lo. The tree depends only on the number of shards. So a sum whose
 * additions follow the tree has the same bits for any number of workers.
 *
 * All functions are pure and may be called from any thread.
 */
#ifndef MERGE_TREE_H
#define MERGE_TREE_H

#include <lockstep/sys/communicator.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns m such that the children of the node T(lo, hi) are T(lo, m) and T(m, hi). Requires
 * hi − lo ≥ 2. */
int ls_tree_middle(int lo, int hi);

/* Returns whether the tree over `shards` leaves has the node T(lo, hi). */
bool ls_tree_is_node(int shards, int lo, int hi);

/* Returns whether the adjacent spans `left` and `right` *join*, that is, whether they are the two
 * children of a node of the tree over `shards` leaves. (A *span* is a range of leaves: lo to
 * hi − 1.) Code that pushes partial sums on a stack from left to right, and adds the two topmost
 * sums as long as they join, makes its additions in the order of the tree. */
bool ls_tree_joins(int shards, ls_span left, ls_span right);

/* Writes the *cover* of the leaves lo … hi − 1: the fewest nodes that together contain exactly
 * these leaves, from left to right. A worker that has these leaves can compute the sums of the
 * nodes in the cover without data of other workers. Returns the number of nodes, at most
 * LS_PARTIALS_MAX; it is 0 if lo ≥ hi. */
int ls_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi);

/* ---- buckets --------------------------------------------------------------------------------- *
 * Division of an arena of gradients for a merge that runs during the backward pass. The parameters
 * of the last layer come first in the arena, so the backward pass completes the arena from its
 * start to its end. A *bucket* is a part of the arena: the gradients of consecutive parameters, a
 * few megabytes. A bucket can be merged as soon as the backward pass has completed it, while the
 * pass continues with earlier layers. The arena of a small model is one bucket. */

enum {
    LS_BUCKETS = 8,            /* largest number of buckets of an arena */
    LS_BUCKET_FLOATS = 1 << 20 /* default of the smallest size of a bucket, in floats: 4 MB */
};

/* The buckets of an arena. */
typedef struct ls_buckets {
    int count;              /* number of buckets */
    size_t end[LS_BUCKETS]; /* end of each bucket in floats from the start of the arena; the last
                             * end is the arena's length */
} ls_buckets;

/* Cuts an arena of `floats` floats into buckets. `param_offsets` [param_count] has the index of the
 * first float of each parameter, ascending. `least`: smallest size of a bucket in floats; 0:
 * LS_BUCKET_FLOATS. Each bucket has at least `least` floats, and more than floats / LS_BUCKETS if
 * that is larger, so that there are at most LS_BUCKETS buckets. An arena that is too small for two
 * buckets is one bucket. */
void ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                    size_t floats, size_t least);

/* Returns the number of complete buckets if the first `floats` floats of the arena are complete.
 * end[0 … count − 1] are the ends of the buckets in floats. */
int ls_buckets_complete(const size_t *end, int count, size_t floats);

#endif
