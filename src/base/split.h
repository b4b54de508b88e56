/* Which rows of a minibatch belong to which part: the one rule by which minibatches are cut into
 * shards, and shards are dealt out to workers. Any thread. */
#ifndef BASE_SPLIT_H
#define BASE_SPLIT_H

#include <lockstep/status.h>
#include <stdint.h>

/* Part `index` of `n` things cut into `parts` contiguous pieces: the first n mod parts pieces get
 * ⌈n/parts⌉ things, the others ⌊n/parts⌋, so 10 in 4 gives 3, 3, 2, 2. A piece may be empty; its
 * `first` is then where its neighbours meet. Needs parts ≥ 1 and index < parts. */
void ls_split(uint32_t n, uint32_t parts, uint32_t index, uint32_t *first, uint32_t *count);

/* The same for a minibatch of `x_rows` images with `y_rows` labels. Errors: LS_EINVAL when the two
 * differ, when there are no parts, or when `index` names none of them; nothing is written then. */
int ls_split_batch(uint32_t *first, uint32_t *count, uint32_t x_rows, uint32_t y_rows,
                   uint32_t parts, uint32_t index, ls_error *err);

#endif
