/* The order and the buckets in which gradients are summed.
 *
 * The order is that of a fixed binary tree over the logical shards of a minibatch. T(a, b), the sum
 * over the leaves a … b − 1, is the leaf itself if b − a = 1, and otherwise T(a, m) + T(m, b),
 * where m is a plus the largest power of two below b − a. The tree depends only on the number of
 * shards, so a sum that follows it has the same bits for any number of workers.
 *
 * All functions are pure and may be called from any thread.
 */
#ifndef MERGE_TREE_H
#define MERGE_TREE_H

#include <lockstep/sys/communicator.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns m, where the node over [lo, hi) is divided into T(lo, m) and T(m, hi). Requires hi − lo ≥
 * 2. */
int ls_tree_middle(int lo, int hi);

/* Returns whether [lo, hi) is a node of the tree over `shards` leaves. */
bool ls_tree_is_node(int shards, int lo, int hi);

/* Returns whether the adjacent spans `left` and `right` join, that is, whether they are the two
 * children of a node. Code that pushes partial sums on a stack from left to right, and adds the two
 * topmost sums as long as they join, adds in the order of the tree. */
bool ls_tree_joins(int shards, ls_span left, ls_span right);

/* Writes the cover of [lo, hi): the fewest nodes that together contain exactly these leaves, in
 * order. They are the sums that a worker with these leaves can compute alone. Returns their number,
 * at most LS_PARTIALS_MAX, which is 0 if the range is empty. */
int ls_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi);

/* ---- buckets --------------------------------------------------------------------------------- *
 * Division of an arena of gradients for a merge that runs during the backward pass.
 *
 * The arena holds the parameters in reverse order of layers, so the backward pass completes it from
 * its start to its end. A bucket is a sequence of whole parameters of a few megabytes. It can be
 * merged as soon as the backward pass has completed it, while the pass continues with earlier
 * layers. A small model has one bucket. */

enum {
    LS_BUCKETS = 8,            /* most buckets of an arena */
    LS_BUCKET_FLOATS = 1 << 20 /* least size of a bucket in floats: 4 MB */
};

/* The buckets of an arena. */
typedef struct ls_buckets {
    int count;              /* number of buckets */
    size_t end[LS_BUCKETS]; /* end of each bucket in floats; the last is the length of the arena */
} ls_buckets;

/* Cuts an arena of `floats` floats into buckets. `param_offsets` [param_count] has the first float
 * of each parameter, ascending. Each bucket has at least `least` floats (0: LS_BUCKET_FLOATS), or
 * an eighth of the arena if that is more. */
void ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                    size_t floats, size_t least);

/* Returns how many of the `count` buckets that end at end[0], end[1], … are complete if the first
 * `floats` floats of the arena are complete. */
int ls_buckets_complete(const size_t *end, int count, size_t floats);

#endif
