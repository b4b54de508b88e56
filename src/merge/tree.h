/* The order in which gradients are added: a fixed binary tree over the logical shards.
 *
 * T(a, b) over the leaves a … b − 1 is the leaf itself when b − a = 1, and T(a, m) + T(m, b)
 * otherwise, where m = a + the largest power of two below b − a. The tree depends on the number
 * of shards alone, so a sum that follows it has the same bits on any number of workers.
 * Pure functions; any thread.
 */
#ifndef MERGE_TREE_H
#define MERGE_TREE_H

#include <lockstep/communicator.h>
#include <stdbool.h>

/* Where the node over [lo, hi) is divided. hi − lo ≥ 2. */
int ls_tree_middle(int lo, int hi);

/* Whether [lo, hi) is a node of the tree over `shards` leaves. */
int ls_tree_is_node(int shards, int lo, int hi);

/* Whether the sums over the neighbours `left` and `right` are a node's halves. Who adds up partial
 * sums from left to right on a stack, and the two topmost whenever they join, follows the tree. */
bool ls_tree_joins(int shards, ls_span left, ls_span right);

/* The maximal nodes inside [lo, hi), in order: what a worker that owns those leaves can add up on
 * its own. Returns how many, at most LS_PARTIALS_MAX; 0 when the range is empty. */
int ls_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi);

#endif
