/* SPDX-License-Identifier: MIT */
#include <lockstep/split.h>

void ls_split(uint32_t n, uint32_t parts, uint32_t index, uint32_t *first, uint32_t *count)
{
    if (!first || !count)
        return;
    *first = n;
    *count = 0;
    if (index >= parts)
        return;
    uint32_t base = n / parts;
    uint32_t larger = n % parts; /* number of parts that have one item more */
    *first = index * base + (index < larger ? index : larger);
    *count = base + (index < larger);
}

/* Returns the first item of part `index`, or n if `index` is `parts`. If n ≥ parts, every part gets
 * one item in advance. The remaining items are divided in proportion to `weights`. */
static uint32_t boundary(uint32_t n, uint32_t parts, uint32_t index, const double *weights)
{
    double sum = 0, before = 0;
    uint32_t each = n >= parts ? 1 : 0;
    for (uint32_t i = 0; i < parts; i++) {
        sum += weights[i];
        before += i < index ? weights[i] : 0;
    }
    return index == parts ? n : each * index + (uint32_t)(before / sum * (n - each * parts) + 0.5);
}

void ls_split_by_weights(uint32_t n, uint32_t parts, uint32_t index, const double *weights,
                         uint32_t *first, uint32_t *count)
{
    if (!first || !count)
        return;
    if (!weights || index >= parts) {
        ls_split(n, parts, index, first, count);
        return;
    }
    *first = boundary(n, parts, index, weights);
    *count = boundary(n, parts, index + 1, weights) - *first;
}
