#include "comm/comm.h"

#include <string.h>

/* Whether the two topmost sums, [a, m) and [m, b), are the halves of a node. */
static bool top_two_join(const ls_fold *fold)
{
    return fold->depth >= 2 && ls_tree_joins(fold->shards, fold->stack[fold->depth - 2].span,
                                             fold->stack[fold->depth - 1].span);
}

/* How many arenas the stack needs at once: a leaf needs one only while it cannot be added to its
 * left neighbour at once and another leaf follows it. */
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

int ls_fold_init(ls_fold *fold, ls_device *device, const float *leaf, size_t floats, int shards,
                 int lo, int hi, ls_error *err)
{
    memset(fold, 0, sizeof *fold);
    fold->device = device;
    fold->leaf = leaf;
    fold->floats = floats;
    fold->shards = shards;
    fold->range = (ls_span){lo, hi};
    int needed = arenas_needed(fold);
    for (; fold->arenas < needed; fold->arenas++) {
        void *memory;
        int status = device->ops->alloc(&memory, device, floats * sizeof(float), err);
        if (status) {
            ls_fold_fini(fold);
            return status;
        }
        fold->arena[fold->arenas] = memory;
    }
    ls_fold_begin(fold);
    return LS_OK;
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

/* Left half ← left half + right half. The left one never is the leaf arena: a leaf stays there
 * only when it is the last, and then it is the right one. */
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

int ls_fold_push(ls_fold *fold, ls_error *err)
{
    int status = LS_OK;
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
