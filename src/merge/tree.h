/* How an arena's gradients are added: in which order, and in which buckets.
 *
 * The order is that of a fixed binary tree over the logical shards. T(a, b) over the leaves a … b − 1 is
 * the leaf itself when b − a = 1, and T(a, m) + T(m, b) otherwise, where m = a + the largest power of two
 * below b − a. The tree depends on the number of shards alone, so a sum that follows it has the same bits
 * on any number of workers.
 * Pure functions; any thread.
 */
#ifndef MERGE_TREE_H
#define MERGE_TREE_H

#include <lockstep/sys/communicator.h>
#include <stdbool.h>
#include <stddef.h>

/* Where the node over [lo, hi) is divided. hi − lo ≥ 2. */
int ls_tree_middle(int lo, int hi);

/* Whether [lo, hi) is a node of the tree over `shards` leaves. */
bool ls_tree_is_node(int shards, int lo, int hi);

/* Whether the sums over the neighbours `left` and `right` are a node's halves. Who adds up partial
 * sums from left to right on a stack, and the two topmost whenever they join, follows the tree. */
bool ls_tree_joins(int shards, ls_span left, ls_span right);

/* The maximal nodes inside [lo, hi), in order: what a worker that owns those leaves can add up on
 * its own. Returns how many, at most LS_PARTIALS_MAX; 0 when the range is empty. */
int ls_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi);

/* ---- buckets --------------------------------------------------------------------------------- *
 * Where an arena is cut for a merge that goes on beside the backward pass.
 *
 * The arena holds the parameters in reverse layer order, so the backward pass finishes it from the
 * start on. A bucket is a run of whole parameters of some megabytes; it can be merged as soon as the
 * backward pass is behind its end, while earlier layers still run. A small model has one bucket. */

enum { LS_BUCKETS = 8, LS_BUCKET_FLOATS = 1 << 20 /* 4 MB: the least of one */ };

typedef struct ls_buckets {
    int count;
    size_t end[LS_BUCKETS]; /* first float behind it; the last one's is the arena's length */
} ls_buckets;

/* `param_offsets`: the first float of each parameter, ascending. `floats`: of the arena. Each bucket has
 * at least `least` floats (0: LS_BUCKET_FLOATS), or an eighth of the arena where that is more. */
void ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                    size_t floats, size_t least);

/* How many of the buckets that end at `end[0 … count − 1]` are complete when the arena's first
 * `floats` floats are. */
int ls_buckets_complete(const size_t *end, int count, size_t floats);

#endif
