/* Which rows of a minibatch belong to which part: the one rule by which minibatches are cut into
 * shards, and shards are dealt out to workers.
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

/* Part `index` of `n` things cut into `parts` contiguous pieces: the first n mod parts pieces get
 * ⌈n/parts⌉ things, the others ⌊n/parts⌋, so 10 in 4 gives 3, 3, 2, 2. A piece may be empty; its
 * `first` is then where its neighbours meet. Needs parts ≥ 1 and index < parts. */
void ls_split(uint32_t n, uint32_t parts, uint32_t index, uint32_t *first, uint32_t *count);

/* The same for a minibatch of `x_rows` images with `y_rows` labels. Errors: LS_EINVAL when the two
 * differ, when there are no parts, or when `index` names none of them; nothing is written then. */
int ls_split_batch(uint32_t *first, uint32_t *count, uint32_t x_rows, uint32_t y_rows,
                   uint32_t parts, uint32_t index, ls_error *err);

/* The same in proportion to `capacity`: `parts` positive numbers, or NULL for equal parts as ls_split
 * deals them. Every part first gets one thing, as long as n ≥ parts; the others are dealt out in
 * proportion, boundaries rounded to the nearest. */
void ls_split_by_capacity(uint32_t n, uint32_t parts, uint32_t index, const double *capacity,
                          uint32_t *first, uint32_t *count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
