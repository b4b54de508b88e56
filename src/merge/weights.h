/* SPDX-License-Identifier: MIT */
/* The sum of the weights of rows: of a minibatch, by which the sum of its gradients is divided, and
 * of the rows of an evaluation. */
#ifndef MERGE_WEIGHTS_H
#define MERGE_WEIGHTS_H

#include <stdint.h>

/* Returns the sum of weights[rows[i]] for i from 0 to n − 1, the rows of a minibatch. Each shard's
 * weights are added one after another, and the sums of the shards in the order of the shard tree
 * (tree.h). The additions are in double. The result therefore depends only on the weights, their
 * order and the number of shards. `weights` NULL: all weights are 1. `rows` NULL: rows[i] is i.
 * Pure; any thread. */
double ls_sum_weights(const float *weights, const uint32_t *rows, uint32_t n, int shards);

#endif
