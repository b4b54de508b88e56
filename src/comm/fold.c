#include "comm/comm.h"

#include "base/error.h"

#include <string.h>

/* Returns whether the two topmost sums, [a, m) and [m, b), are the halves of a node. */
static bool top_two_join(const ls_fold *fold)
{
    return fold->depth >= 2 && ls_tree_joins(fold->shards, fold->stack[fold->depth - 2].span,
                                             fold->stack[fold->depth - 1].span);
}

/* Returns the largest number of arenas that the stack needs at the same time. A leaf needs an arena
 * only if it cannot be added to its left neighbour at once, and if another leaf follows it. */
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

/* Allocates arenas until there are `needed` of them. */
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

/* Adds the topmost sum to the one below it, its left half. The left half is never in the leaf
 * arena: only the last leaf stays there, and it is always a right half. */
static int join(ls_fold *fold, ls_error *err)
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

/* Numbers that decide when the parts of a complete node are added. A node of four leaves or more is
 * one entry of the stack as soon as it is complete. So the stack is the cover of the leaves that
 * were pushed, in which two adjacent leaves may represent their node, unless the stack had HIGH
 * entries when they were pushed.
 *
 * The stack never has more than LS_PARTIALS_MAX entries. The largest one occurs for the range [1,
 * 65536) of LS_SHARDS_MAX leaves: the cover of [1, 65535) has 30 nodes, the most that a cover has,
 * and of these [2, 4) is represented by its two leaves. The last leaf, which is not joined, makes
 * 32. */
enum {
    TOGETHER = 4, /* number of parts for which a pass over memory pays */
    HIGH = 16     /* number of entries from which on two parts are added as well */
};

/* Returns the arena of stack entry `i` in spread mode. */
static float *place_of(const ls_fold *fold, int i)
{
    return i == 0 ? fold->leaf : fold->arena[i - 1];
}

float *ls_fold_leaf(const ls_fold *fold)
{
    return fold->spread ? place_of(fold, fold->depth) : fold->leaf;
}

float *ls_fold_root(const ls_fold *fold)
{
    const bool one_leaf = fold->range.hi - fold->range.lo <= 1;
    return fold->spread || one_leaf ? fold->leaf : fold->arena[0];
}

/* Returns the stack entry from which on the entries are to be added, after a leaf was pushed; the
 * topmost entry if nothing is to be added. */
static int settle_from(const ls_fold *fold)
{
    const int top = fold->depth - 1, hi = fold->stack[top].span.hi;
    int first = 0;
    if (hi == fold->range.hi)
        return top;
    while (!ls_tree_is_node(fold->shards, fold->stack[first].span.lo, hi))
        first++; /* ends at the leaf at the latest, which is a node */
    return fold->depth - first >= TOGETHER || fold->depth >= HIGH ? first : top;
}

/* Adds the stack entries from `first` on, the parts of one node, into the arena of entry
 * `first`. */
static int add_up(const ls_fold *fold, int first, ls_error *err)
{
    ls_tree_rest_part part[LS_PARTIALS_MAX];
    ls_tree_rest rest = {.part = part, .room = LS_PARTIALS_MAX};
    float *out = place_of(fold, first);
    for (int i = first; i < fold->depth; i++)
        if (!ls_tree_rest_push(
                &rest, fold->shards,
                &(ls_tree_rest_part){.span = fold->stack[i].span, .data = fold->stack[i].data}))
            break;
    if (rest.count < fold->depth - first || rest.sums != 1)
        return ls_fail(err, LS_EINTERNAL, "shards up to %d are no node", fold->next);
    ls_tree_rest_add(&rest, &out, 0, fold->floats);
    return LS_OK;
}

/* Pushes a leaf in spread mode. Without `adds` it only simulates the stack. */
static int push_spread(ls_fold *fold, bool adds, ls_error *err)
{
    int status = LS_OK;
    const int leaf = fold->next++, i = fold->depth++;
    fold->stack[i] = (ls_partial){{leaf, leaf + 1}, adds ? place_of(fold, i) : NULL};
    const int first = settle_from(fold);
    if (adds && first < i)
        status = add_up(fold, first, err);
    fold->stack[first].span.hi = leaf + 1;
    fold->depth = first + 1;
    return status;
}

int ls_fold_spread(ls_fold *fold, ls_error *err)
{
    int most = 0;
    for (ls_fold_begin(fold); fold->next < fold->range.hi;) {
        most = fold->depth > most ? fold->depth : most;
        push_spread(fold, false, NULL);
    }
    ls_fold_begin(fold);
    fold->spread = true;
    return alloc_arenas(fold, most, err);
}

/* ---- push ------------------------------------------------------------------------------------ */

int ls_fold_push(ls_fold *fold, ls_error *err)
{
    int status = LS_OK;
    if (fold->spread)
        return push_spread(fold, true, err);
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
        status = join(fold, err);
    return status;
}
