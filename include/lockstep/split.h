/* Partitioning: which rows of a minibatch belong to which part. The trainer uses these functions to
 * cut *minibatches* (the rows of one training step) into shards (a worker computes the gradient of
 * one shard at a time), and to assign the shards to workers.
 *
 *     uint32_t first, count;                       // this worker's rows of a minibatch
 *     ls_split_batch(&first, &count, rows_of_x, rows_of_y, w->workers, w->index, &err);
 *
 * Every function may be called from any thread.
 */
#ifndef LOCKSTEP_SPLIT_H
#define LOCKSTEP_SPLIT_H

#include <lockstep/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Cuts `n` items into `parts` contiguous parts and writes the first item and the number of items of
 * part `index`. Each part gets ⌊n / `parts`⌋ items, and each of the first (n mod `parts`) parts
 * gets one item more: 10 items in 4 parts are cut into 3, 3, 2 and 2. A part can be empty; its
 * `first` is then the boundary between its neighbours. Writes nothing if `first` or `count` is
 * NULL. Requires parts ≥ 1 and index < parts. */
void ls_split(uint32_t n, uint32_t parts, uint32_t index, uint32_t *first, uint32_t *count);

/* Does the same as ls_split for a minibatch of `x_rows` input rows with `y_rows` labels, and checks
 * its arguments. Errors: LS_EINVAL (x_rows and y_rows differ, parts is 0, or index ≥ parts);
 * `first` and `count` are not written then. */
int ls_split_batch(uint32_t *first, uint32_t *count, uint32_t x_rows, uint32_t y_rows,
                   uint32_t parts, uint32_t index, ls_error *err);

/* Does the same as ls_split with parts whose sizes are in proportion to `capacity`, an array of
 * `parts` positive numbers; NULL gives the equal parts of ls_split. If n ≥ parts, every part first
 * gets one item; the remaining items are assigned in proportion, and each boundary between parts is
 * rounded to the nearest item. Requires parts ≥ 1 and index < parts. */
void ls_split_by_capacity(uint32_t n, uint32_t parts, uint32_t index, const double *capacity,
                          uint32_t *first, uint32_t *count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
