#include "merge/rest.h"

#include "base/error.h"
#include "base/host.h"
#include "merge/tree.h"

void ls_rest_fini(ls_rest *rest, const ls_host *host)
{
    ls_free(host, rest->part);
    *rest = (ls_rest){0};
}

static int partial_sums(const ls_merge_group *group)
{
    int count = 0;
    for (int r = 0; r < group->base.ranks; r++)
        count += group->rank[r].count;
    return count;
}

static bool fits(const ls_rest *rest, const ls_merge_group *group)
{
    for (int i = 0; i < rest->count; i++) {
        const ls_rest_part *part = &rest->part[i];
        const ls_merge_rank *rank = &group->rank[part->rank];
        if (part->index >= rank->count || rank->partials[part->index].span.lo != part->span.lo ||
            rank->partials[part->index].span.hi != part->span.hi)
            return false;
    }
    return rest->count > 0 && rest->count == partial_sums(group);
}

/* The partial sum whose first shard is `shard`. Ranks hold shards in order, as a rule: it is looked
 * for from the rank that has the one before. */
static bool find(ls_rest_part *part, const ls_merge_group *group, int shard, int from)
{
    const int ranks = group->base.ranks;
    for (int k = 0; k < ranks; k++) {
        const int r = (from + k) % ranks;
        for (int i = 0; i < group->rank[r].count; i++) {
            const ls_span span = group->rank[r].partials[i].span;
            if (span.lo == shard && span.hi > shard) {
                *part = (ls_rest_part){r, i, span, 0};
                return true;
            }
        }
    }
    return false;
}

static int make_room(ls_rest *rest, const ls_merge_group *group, ls_error *err)
{
    const int needed = partial_sums(group);
    rest->count = rest->depth = 0;
    if (needed <= rest->room)
        return LS_OK;
    ls_rest_fini(rest, group->desc.host);
    rest->part = ls_alloc_array(group->desc.host, (size_t)needed, sizeof *rest->part);
    if (!rest->part)
        return ls_fail(err, LS_ENOMEM, "out of memory for a merge of %d partial sums", needed);
    rest->room = needed;
    return LS_OK;
}

static int build(ls_rest *rest, const ls_merge_group *group, ls_error *err)
{
    const int shards = group->desc.shards;
    ls_span sum[LS_PARTIALS_MAX];
    int count = 0, depth = 0;
    for (int shard = 0; shard < shards; shard = rest->part[count++].span.hi) {
        ls_rest_part *part = &rest->part[count];
        if (count == rest->room || !find(part, group, shard, count ? part[-1].rank : 0))
            return ls_fail(err, LS_EINVAL, "nobody has summed shard %d", shard);
        if (depth == LS_PARTIALS_MAX)
            break;
        sum[depth++] = part->span;
        rest->depth = depth > rest->depth ? depth : rest->depth;
        for (; depth > 1 && ls_tree_joins(shards, sum[depth - 2], sum[depth - 1]); depth--) {
            sum[depth - 2].hi = sum[depth - 1].hi;
            part->joins++;
        }
    }
    if (depth != 1 || sum[0].hi != shards)
        return ls_fail(err, LS_EINVAL,
                       "the ranks' partial sums are no nodes of a tree over %d shards", shards);
    rest->count = count;
    return LS_OK;
}

int ls_rest_update(ls_rest *rest, const ls_merge_group *group, ls_error *err)
{
    if (fits(rest, group))
        return LS_OK;
    int status = make_room(rest, group, err);
    return status ? status : build(rest, group, err);
}
