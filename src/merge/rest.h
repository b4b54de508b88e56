/* What is left of the shard tree when every rank has folded its own shards.
 *
 * The ranks' partial sums, in the order of their shards, and how often the two topmost sums of a
 * stack are added behind each of them:
 *
 *     for each part: push the partial sum; `joins` times: the two topmost ← their sum
 *
 * leaves the sum over all shards, in tree order. One rank's thread, between two meetings of a merge.
 */
#ifndef MERGE_REST_H
#define MERGE_REST_H

#include "merge/group.h"

typedef struct ls_rest_part {
    int rank, index; /* the partial sum `index` of `rank` */
    ls_span span;
    int joins;
} ls_rest_part;

typedef struct ls_rest {
    ls_rest_part *part;
    int count;
    int depth; /* the most sums on the stack */
    int room;  /* of `part` */
} ls_rest;

/* *rest, zeroed before its first use, becomes what is left over what the ranks show. Spans change
 * with the split of the shards only, so most steps find the rest that they had: then nothing is
 * allocated. Errors: LS_EINVAL (a shard that is in no partial sum, spans that are no nodes),
 * LS_ENOMEM. */
int ls_rest_update(ls_rest *rest, const ls_merge_group *group, ls_error *err);
void ls_rest_fini(ls_rest *rest, const ls_host *host);

#endif
