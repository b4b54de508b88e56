/* What is left of the shard tree over everybody's partial sums, as a kernel reads it.
 * Pure functions; any thread. */
#ifndef CUDA_CUDA_COMM_TREE_H
#define CUDA_CUDA_COMM_TREE_H

#include "cuda/kernels.h"

#include <lockstep/communicator.h>

typedef struct ls_cuda_tree {
    int count; /* partial sums */
    struct {
        int rank, index;
        ls_span span;
    } leaf[LS_K_ARENAS];
    int steps;
    uint8_t order[2 * LS_K_ARENAS]; /* as ls_k_add_arenas takes it */
} ls_cuda_tree;

/* The partial sums of one rank. */
typedef struct ls_cuda_held {
    const ls_partial *partials;
    int count;
} ls_cuda_held;

/* The tree over `shards` leaves where ranks hold the sums held[0 … ranks − 1].
 * Errors: LS_EINVAL (a leaf that nobody holds), LS_EUNSUPPORTED (more than LS_K_ARENAS sums, or a
 * deeper tree than the kernel's stack). */
int ls_cuda_tree_build(ls_cuda_tree *tree, int shards, const ls_cuda_held *held, int ranks,
                       ls_error *err);

/* The maximal nodes inside [lo, hi), in order; how many. */
int ls_cuda_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi);

/* Part `index` of n things in `parts` pieces: the first n mod parts pieces have one more. */
void ls_cuda_split(size_t n, int parts, int index, size_t *first, size_t *count);

#endif
