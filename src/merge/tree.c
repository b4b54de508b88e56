/* SPDX-License-Identifier: MIT */
#include "merge/tree.h"

int ls_tree_middle(int lo, int hi)
{
    int half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    return lo + half;
}

bool ls_tree_is_node(int shards, int lo, int hi)
{
    int a = 0, b = shards;
    if (lo < 0 || hi > shards || lo >= hi)
        return false;
    while (a != lo || b != hi) {
        if (b - a == 1)
            return false;
        int m = ls_tree_middle(a, b);
        if (hi <= m)
            b = m;
        else if (lo >= m)
            a = m;
        else
            return false; /* the range contains a point of division */
    }
    return true;
}

bool ls_tree_joins(int shards, ls_span left, ls_span right)
{
    return ls_tree_is_node(shards, left.lo, right.hi) &&
           ls_tree_middle(left.lo, right.hi) == left.hi;
}

/* Appends to `out`, which has `count` nodes, the largest nodes of the subtree `node` that lie
 * inside `range`. Returns the new number of nodes. */
static int cover(ls_span out[LS_PARTIALS_MAX], int count, ls_span node, ls_span range)
{
    if (node.hi <= range.lo || range.hi <= node.lo)
        return count;
    if (range.lo <= node.lo && node.hi <= range.hi) {
        out[count] = node;
        return count + 1;
    }
    int m = ls_tree_middle(node.lo, node.hi);
    count = cover(out, count, (ls_span){node.lo, m}, range);
    return cover(out, count, (ls_span){m, node.hi}, range);
}

int ls_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi)
{
    if (lo >= hi)
        return 0;
    return cover(out, 0, (ls_span){0, shards}, (ls_span){lo, hi});
}

void ls_buckets_cut(ls_buckets *b, const size_t *param_offsets, int param_count, size_t floats,
                    size_t least)
{
    size_t begin = 0;
    if (least == 0)
        least = LS_BUCKET_FLOATS;
    if (floats / LS_BUCKETS >= least)
        least = floats / LS_BUCKETS + 1;
    b->count = 0;
    for (int p = 0; p < param_count; p++)
        /* A bucket ends before parameter p if two conditions hold: the bucket is large enough, and
         * the floats from p on are enough for another bucket. */
        if (param_offsets[p] - begin >= least && floats - param_offsets[p] >= least) {
            begin = param_offsets[p];
            b->end[b->count++] = begin;
        }
    b->end[b->count++] = floats;
}

/* `floats`: number of floats at the start of the arena that are complete. */
int ls_buckets_complete(const size_t *end, int count, size_t floats)
{
    int complete = 0;
    while (complete < count && end[complete] <= floats)
        complete++;
    return complete;
}
