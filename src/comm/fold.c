#include "comm/comm.h"

#include "base/error.h"

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

/* ---- leaves side by side ---------------------------------------------------------------------- */

/* So many parts of a node are worth a pass over memory; and where the stack is as high as this, two are.
 *
 * A node of four leaves or more is thus one part as soon as it is whole: the stack is the cover of what was pushed,
 * in which two leaves may stand for their node, unless it is HIGH by then. Of LS_SHARDS_MAX leaves a cover has up to
 * 30 nodes, so that {1, 65536} of them comes to LS_PARTIALS_MAX with its last leaf, and no range to more. */
enum { TOGETHER = 4, HIGH = 16 };

static float *place_of(const ls_fold *fold, int i)
{
    return i == 0 ? fold->leaf : fold->arena[i - 1];
}

float *ls_fold_leaf(const ls_fold *fold)
{
    return fold->spread ? place_of(fold, fold->depth) : fold->leaf;
}

/* The next leaf is on the stack. Returns from where on the stack is now added up: its top, if nothing is. */
static int settle_from(const ls_fold *fold)
{
    const int top = fold->depth - 1, hi = fold->stack[top].span.hi;
    int first = 0;
    if (hi == fold->range.hi)
        return top;
    while (!ls_tree_is_node(fold->shards, fold->stack[first].span.lo, hi))
        first++; /* a leaf is a node */
    return fold->depth - first >= TOGETHER || fold->depth >= HIGH ? first : top;
}

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

/* ---- a push ------------------------------------------------------------------------------------ */

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
