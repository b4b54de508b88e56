/* SPDX-License-Identifier: MIT */
#include "merge/weights.h"

#include "merge/tree.h"

#include <lockstep/split.h>

typedef struct minibatch {
    const float *weights;
    const uint32_t *rows;
    uint32_t n;
    int shards;
} minibatch;

static double sum_shard(const minibatch *m, int shard)
{
    uint32_t first, count;
    double sum = 0;
    ls_split(m->n, (uint32_t)m->shards, (uint32_t)shard, &first, &count);
    for (uint32_t i = first; i < first + count; i++)
        sum += (double)m->weights[m->rows ? m->rows[i] : i];
    return sum;
}

/* Returns the sum of the node T(lo, hi). */
static double sum_node(const minibatch *m, int lo, int hi)
{
    if (hi - lo == 1)
        return sum_shard(m, lo);
    const int middle = ls_tree_middle(lo, hi);
    return sum_node(m, lo, middle) + sum_node(m, middle, hi);
}

double ls_sum_weights(const float *weights, const uint32_t *rows, uint32_t n, int shards)
{
    const minibatch m = {weights, rows, n, shards};
    return weights ? sum_node(&m, 0, shards) : (double)n;
}
