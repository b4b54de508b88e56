/* SPDX-License-Identifier: MIT */
/* Partitioning: which rows of a minibatch belong to which part. The trainer uses these functions to
 * cut *minibatches* (the rows of one training step) into shards (a worker computes the gradient of
 * one shard at a time), and to assign the shards to workers.
 *
 *     uint32_t first, count;                       // this worker's rows of a minibatch
 *     ls_split(rows, (uint32_t)w->workers, (uint32_t)w->index, &first, &count);
 *
 * Every function may be called from any thread.
 */
#ifndef LOCKSTEP_SPLIT_H
#define LOCKSTEP_SPLIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Cuts `n` items into `parts` contiguous parts and writes the first item and the number of items of
 * part `index`. Each part gets ⌊n / `parts`⌋ items, and each of the first (n mod `parts`) parts
 * gets one item more: 10 items in 4 parts are cut into 3, 3, 2 and 2. A part can be empty; its
 * `first` is then the boundary between its neighbours. A part that does not exist (index ≥ parts)
 * is empty, with `first` = n. Writes nothing if `first` or `count` is NULL. */
void ls_split(uint32_t n, uint32_t parts, uint32_t index, uint32_t *first, uint32_t *count);

/* Does the same as ls_split with parts whose sizes are in proportion to `weights`, an array of
 * `parts` positive numbers; NULL gives the equal parts of ls_split. If n ≥ parts, every part first
 * gets one item; the remaining items are assigned in proportion, and each boundary between parts is
 * rounded to the nearest item. */
void ls_split_by_weights(uint32_t n, uint32_t parts, uint32_t index, const double *weights,
                         uint32_t *first, uint32_t *count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
