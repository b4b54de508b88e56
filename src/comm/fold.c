/* SPDX-License-Identifier: MIT */
/* The fold: sums the gradients of one worker's shards while the worker computes them. comm.h
 * explains arena, leaf arena, shard tree, cover, part and spread mode. An *entry* is one partial
 * sum on the fold's stack.
 *
 * Without spread mode, the stack of partial sums is always as short as possible. Each push adds the
 * two topmost entries as long as they are the halves of one node: the right half is added to the
 * left half, in the arena of the left half. Entry i uses arena[i], with two exceptions, which stay
 * in the leaf arena: a gradient that the same push adds to the entry below, and the last gradient
 * of a minibatch. Both are the topmost entry, so the left half of an addition is never in the leaf
 * arena.
 *
 * In spread mode an entry stays in the arena in which its first gradient was computed. Additions
 * are delayed until several parts of a node can be added in one pass over memory (add_due_parts).
 * Free arenas are found by searching the stack (free_arena). The number of arenas is computed when
 * the fold is initialised, by a simulation of the pushes without data (arenas_needed,
 * arenas_needed_spread). */
#include "comm/comm.h"

#include "base/error.h"

#include <string.h>

/* Returns whether the two topmost entries, over the shards a … m − 1 and m … b − 1, are the halves
 * of a node. */
static bool top_two_join(const ls_fold *fold)
{
    return fold->depth >= 2 && ls_tree_joins(fold->shards, fold->stack[fold->depth - 2].span,
                                             fold->stack[fold->depth - 1].span);
}

/* Returns the largest number of arenas that the stack needs at the same time without spread mode,
 * the leaf arena not counted. A gradient stays in the leaf arena if the same push adds it to the
 * entry below, or if it is the last one. Every other gradient needs an arena. */
static int arenas_needed(ls_fold *fold)
{
    int most = 0;
    fold->depth = 0;
    for (int leaf = fold->range.lo; leaf < fold->range.hi; leaf++) {
        fold->stack[fold->depth++].span = (ls_span){leaf, leaf + 1};
        if (!top_two_join(fold) && leaf + 1 < fold->range.hi && fold->depth > most)
            most = fold->depth;
        while (top_two_join(fold)) {
            fold->stack[fold->depth - 2].span.hi = fold->stack[fold->depth - 1].span.hi;
            fold->depth--;
        }
    }
    fold->depth = 0;
    return most;
}

/* Allocates arenas until the fold has `needed` arenas. */
static int alloc_arenas(ls_fold *fold, int needed, ls_error *err)
{
    for (; fold->arenas < needed; fold->arenas++) {
        void *memory;
        int status =
            fold->device->ops->alloc(&memory, fold->device, fold->floats * sizeof(float), err);
        if (status)
            return status;
        fold->arena[fold->arenas] = memory;
    }
    return LS_OK;
}

int ls_fold_init(ls_fold *fold, ls_device *device, float *leaf, size_t floats, int shards, int lo,
                 int hi, ls_error *err)
{
    memset(fold, 0, sizeof *fold);
    fold->device = device;
    fold->leaf = leaf;
    fold->floats = floats;
    fold->shards = shards;
    fold->range = (ls_span){lo, hi};
    fold->first = lo;
    int status = alloc_arenas(fold, arenas_needed(fold), err);
    if (status)
        ls_fold_fini(fold);
    ls_fold_begin(fold);
    return status;
}

void ls_fold_fini(ls_fold *fold)
{
    for (int i = 0; i < fold->arenas; i++)
        fold->device->ops->free(fold->device, fold->arena[i]);
    memset(fold, 0, sizeof *fold);
}

size_t ls_fold_bytes(const ls_fold *fold)
{
    return (size_t)fold->arenas * fold->floats * sizeof(float);
}

void ls_fold_begin(ls_fold *fold)
{
    fold->next = fold->range.lo;
    fold->depth = 0;
}

/* Adds the two topmost entries, which are the halves of a node: adds the right half (the topmost
 * entry) to the left half, in the arena of the left half. The left half is never in the leaf arena:
 * an entry in the leaf arena is the topmost one, and so a right half. */
static int add_top_two(ls_fold *fold, ls_error *err)
{
    int i = fold->depth - 2;
    ls_partial *left = &fold->stack[i], *right = &fold->stack[i + 1];
    int status = fold->device->ops->add(fold->device, NULL, fold->arena[i], left->data, right->data,
                                        fold->floats, err);
    left->span.hi = right->span.hi;
    fold->depth--;
    return status;
}

/* ---- spread mode ----------------------------------------------------------------------------- */

/* Two rules decide when the parts of a node are added. Both rules are applied before a gradient is
 * computed (add_due_parts). Therefore the merge adds the parts of a node that the last gradient of
 * a minibatch completes.
 *
 * - TOGETHER: the parts of a node are added as soon as there are at least TOGETHER of them.
 * - HIGH: if the stack has at least HIGH entries, or if no arena is free, two parts are enough.
 *
 * With the rule TOGETHER alone, the stack could hold two or three parts wherever the cover of the
 * pushed shards (ls_tree_cover) has one node. The rule HIGH limits the number of entries.
 *
 * With both rules the stack has at most 31 entries, one less than LS_PARTIALS_MAX. The worst case
 * is a worker with the shards 1 … 65535 of LS_SHARDS_MAX = 65536: the cover of the shards 1 … 65534
 * has 30 nodes, the most that a cover has. Shard 65535 is one more entry, because no addition
 * follows the last push. */
enum {
    /* smallest number of parts for which one pass over memory takes less time than separate
     * additions */
    TOGETHER = 4,
    HIGH = 16 /* with at least this many entries, two parts are enough */
};

/* The parts of a node: `count` entries of the stack, from entry `first` on, whose spans together
 * are the span of the node. */
typedef struct parts {
    int first, count;
} parts;

/* Returns the parts of the largest node whose last part is entry `last`. */
static parts parts_to(const ls_fold *fold, int last)
{
    int first = 0; /* the entry `last` is itself a node, so the loop ends there at the latest */
    while (!ls_tree_is_node(fold->shards, fold->stack[first].span.lo, fold->stack[last].span.hi))
        first++;
    return (parts){first, last - first + 1};
}

/* Returns the parts of the largest node whose first part is the first entry of the stack. */
static parts parts_from_first(const ls_fold *fold)
{
    int last = fold->depth - 1;
    while (!ls_tree_is_node(fold->shards, fold->stack[0].span.lo, fold->stack[last].span.hi))
        last--;
    return (parts){0, last + 1};
}

/* Returns the parts of a node that has two or more parts, or the first entry if there is no such
 * node. There is such a node if the stack has more entries than the cover of the pushed shards has
 * nodes. */
static parts any_parts(const ls_fold *fold)
{
    parts found = {0, 1};
    for (int last = 1; last < fold->depth && found.count < 2; last++)
        found = parts_to(fold, last);
    return found;
}

/* Returns an arena that contains no partial sum: the leaf arena, or an arena of the fold. */
static float *free_arena(const ls_fold *fold)
{
    for (int i = 0; i <= fold->arenas; i++) {
        float *arena = i == 0 ? fold->leaf : fold->arena[i - 1];
        int k = 0;
        while (k < fold->depth && fold->stack[k].data != arena)
            k++;
        if (k == fold->depth)
            return arena;
    }
    return NULL; /* does not happen, because add_due_parts has freed an arena */
}

/* Adds the parts of a node in the order of the tree. The arena of the first part receives the
 * sum. */
static void add_parts(const ls_fold *fold, parts node)
{
    ls_tree_rest_part part[LS_PARTIALS_MAX];
    ls_tree_rest rest = {.part = part, .capacity = LS_PARTIALS_MAX};
    const ls_partial *entry = fold->stack + node.first;
    float *out = (float *)entry->data;
    for (int i = 0; i < node.count; i++)
        ls_tree_rest_push(&rest, fold->shards,
                          &(ls_tree_rest_part){.span = entry[i].span, .data = entry[i].data});
    ls_tree_rest_add(&rest, &out, 0, fold->floats);
}

/* Applies the rules TOGETHER and HIGH: adds the parts of at most one node. `room`: number of
 * entries at which no arena is free any more. If `adds` is false, changes only the spans on the
 * stack, for the simulation in arenas_needed_spread. */
static void add_due_parts(ls_fold *fold, bool adds, int room)
{
    parts node = {0, 1};
    const bool full = fold->depth >= room || fold->depth >= HIGH;
    if (fold->depth > 1)
        node = fold->from_left ? parts_from_first(fold) : parts_to(fold, fold->depth - 1);
    if (node.count < TOGETHER && full)
        node = any_parts(fold);
    if (node.count < 2 || (node.count < TOGETHER && !full))
        return;
    if (adds)
        add_parts(fold, node);
    ls_partial *entry = fold->stack + node.first;
    entry->span.hi = entry[node.count - 1].span.hi;
    fold->depth -= node.count - 1;
    memmove(entry + 1, entry + node.count,
            (size_t)(fold->depth - node.first - 1) * sizeof *fold->stack);
}

/* Adds an entry for the next shard at one end of the stack. `left`: the shard is to the left of the
 * shards on the stack; if false, it is to their right. `data`: arena of the shard's gradient. */
static void push_entry(ls_fold *fold, bool left, const float *data)
{
    ls_partial *stack = fold->stack;
    const int leaf = fold->depth == 0 ? fold->first
                     : left           ? stack[0].span.lo - 1
                                      : stack[fold->depth - 1].span.hi;
    ls_partial *entry = left ? stack : stack + fold->depth;
    if (left)
        memmove(stack + 1, stack, (size_t)fold->depth * sizeof *stack);
    *entry = (ls_partial){{leaf, leaf + 1}, data};
    fold->from_left = left;
    fold->depth++;
}

/* Returns the largest number of arenas that are in use at the same time in spread mode, the leaf
 * arena included, if `count` shards are pushed, either all on the left or all on the right. */
static int arenas_needed_spread(ls_fold *fold, int count, bool left)
{
    int most = 0;
    ls_fold_begin(fold);
    for (int i = 0; i < count; i++) {
        add_due_parts(fold, false, LS_PARTIALS_MAX);
        most = fold->depth + 1 > most ? fold->depth + 1 : most;
        push_entry(fold, left, NULL);
    }
    ls_fold_begin(fold);
    return most;
}

int ls_fold_spread(ls_fold *fold, ls_error *err)
{
    fold->spread = true;
    return alloc_arenas(
        fold, arenas_needed_spread(fold, fold->range.hi - fold->range.lo, false) - 1, err);
}

/* Returns an upper bound of the number of nodes in the cover of `leaves` adjacent leaves, wherever
 * they are in the tree. A cover has at most two nodes of each size (1, 2, 4, … leaves). */
static int cover_nodes_max(int leaves)
{
    int nodes = 0;
    for (int size = 1; size <= leaves; size *= 2)
        for (int k = 0; k < 2 && size <= leaves; k++, nodes++)
            leaves -= size;
    return nodes;
}

int ls_fold_deal(ls_fold *fold, ls_span reach, int first, ls_error *err)
{
    const int left = first - reach.lo + 1, right = reach.hi - first;
    fold->spread = true;
    fold->range = reach;
    fold->first = first;
    int arenas = arenas_needed_spread(fold, left, true);
    const int to_the_right = arenas_needed_spread(fold, right, false);
    /* If shards are pushed on both sides: one arena is for the last gradient, and the others are
     * for the nodes in the cover of all other shards. Before the last push, those shards can be
     * added up to the nodes in their cover. */
    const int both = left > 1 && right > 1 ? cover_nodes_max(reach.hi - reach.lo - 1) + 1 : 0;
    arenas = to_the_right > arenas ? to_the_right : arenas;
    return alloc_arenas(fold, (both > arenas ? both : arenas) - 1, err);
}

float *ls_fold_leaf(ls_fold *fold)
{
    if (!fold->spread)
        return fold->leaf;
    add_due_parts(fold, true, fold->arenas + 1);
    return free_arena(fold);
}

float *ls_fold_root(const ls_fold *fold)
{
    const bool one_leaf = fold->range.hi - fold->range.lo <= 1;
    return fold->spread || one_leaf ? fold->leaf : fold->arena[0];
}

void ls_fold_push_left(ls_fold *fold)
{
    push_entry(fold, true, free_arena(fold));
}

/* ---- push ------------------------------------------------------------------------------------ */

int ls_fold_push(ls_fold *fold, ls_error *err)
{
    int status = LS_OK;
    if (fold->spread) {
        push_entry(fold, false, free_arena(fold));
        return LS_OK;
    }
    int leaf = fold->next++;
    int last = leaf + 1 == fold->range.hi;
    int i = fold->depth++;
    fold->stack[i] = (ls_partial){{leaf, leaf + 1}, fold->leaf};
    if (!top_two_join(fold) && !last) {
        status = fold->device->ops->copy(fold->device, NULL, fold->arena[i], fold->leaf,
                                         fold->floats * sizeof(float), err);
        fold->stack[i].data = fold->arena[i];
    }
    while (status == LS_OK && top_two_join(fold))
        status = add_top_two(fold, err);
    return status;
}
