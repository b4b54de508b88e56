#include "cuda/cuda_comm_tree.h"

#include "cuda/cuda_device.h"

typedef struct builder {
    ls_cuda_tree *tree;
    const ls_cuda_held *held;
    int ranks;
    int depth; /* of the kernel's stack */
    ls_error *err;
} builder;

static int middle_of(ls_span node)
{
    int half = 1;
    while (half * 2 < node.hi - node.lo)
        half *= 2;
    return node.lo + half;
}

static int find(const builder *b, ls_span node, int *rank, int *index)
{
    for (int r = 0; r < b->ranks; r++)
        for (int i = 0; i < b->held[r].count; i++) {
            ls_span span = b->held[r].partials[i].span;
            if (span.lo == node.lo && span.hi == node.hi) {
                *rank = r;
                *index = i;
                return 1;
            }
        }
    return 0;
}

static int push_leaf(builder *b, int rank, int index, ls_span span)
{
    ls_cuda_tree *t = b->tree;
    if (t->count == LS_K_ARENAS)
        return ls_fail(b->err, LS_EUNSUPPORTED,
                       "the workers hold more than %d partial sums: use fewer shards, or a "
                       "number that the workers divide",
                       LS_K_ARENAS);
    if (++b->depth > LS_K_STACK)
        return ls_fail(b->err, LS_EUNSUPPORTED,
                       "the sum over the shards nests deeper than %d: use fewer shards",
                       LS_K_STACK);
    t->leaf[t->count].rank = rank;
    t->leaf[t->count].index = index;
    t->leaf[t->count].span = span;
    t->order[t->steps++] = (uint8_t)t->count++;
    return LS_OK;
}

static int add_node(builder *b, ls_span node)
{
    int rank, index;
    if (find(b, node, &rank, &index))
        return push_leaf(b, rank, index, node);
    if (node.hi - node.lo < 2)
        return ls_fail(b->err, LS_EINVAL, "nobody has summed shard %d", node.lo);
    int m = middle_of(node);
    int status = add_node(b, (ls_span){node.lo, m});
    if (status == LS_OK)
        status = add_node(b, (ls_span){m, node.hi});
    if (status != LS_OK)
        return status;
    b->tree->order[b->tree->steps++] = LS_K_ADD;
    b->depth--;
    return LS_OK;
}

int ls_cuda_tree_build(ls_cuda_tree *tree, int shards, const ls_cuda_held *held, int ranks,
                       ls_error *err)
{
    builder b = {tree, held, ranks, 0, err};
    tree->count = tree->steps = 0;
    return add_node(&b, (ls_span){0, shards});
}

static int cover(ls_span out[LS_PARTIALS_MAX], int count, ls_span node, ls_span range)
{
    if (node.hi <= range.lo || range.hi <= node.lo)
        return count;
    if (range.lo <= node.lo && node.hi <= range.hi) {
        out[count] = node;
        return count + 1;
    }
    int m = middle_of(node);
    count = cover(out, count, (ls_span){node.lo, m}, range);
    return cover(out, count, (ls_span){m, node.hi}, range);
}

int ls_cuda_tree_cover(ls_span out[LS_PARTIALS_MAX], int shards, int lo, int hi)
{
    return lo < hi ? cover(out, 0, (ls_span){0, shards}, (ls_span){lo, hi}) : 0;
}

void ls_cuda_split(size_t n, int parts, int index, size_t *first, size_t *count)
{
    size_t each = n / (size_t)parts, more = n % (size_t)parts, i = (size_t)index;
    *first = i * each + (i < more ? i : more);
    *count = each + (i < more);
}
