/* SPDX-License-Identifier: MIT */
/* Computes a chain on the reference back end, which sums in double. */
#include "ops/op_chain.h"
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A chain in which each fused form is an op of its own. first[i] and last[i]: number of the first
 * and of the last op that come from op i of the fused chain. */
typedef struct parts {
    op_chain chain;
    int first[OP_CHAIN], last[OP_CHAIN];
} parts;

static ls_op_desc *append(parts *p, ls_op_kind kind)
{
    assert_true(p->chain.count < OP_CHAIN);
    int k = p->chain.count++;
    p->chain.op[k] = (ls_op_desc){.kind = kind};
    p->chain.source[k] = p->chain.source2[k] = 0;
    return &p->chain.op[k];
}

static int moved(const parts *p, int source)
{
    return source > 0 ? p->last[source - 1] + 1 : source;
}

/* Returns the chain with each fused add, relu and pool as an op of its own. */
static parts taken_apart(const op_chain *chain)
{
    parts p = {.chain = *chain};
    p.chain.count = 0;
    for (int i = 0; i < chain->count; i++) {
        const ls_op_desc *d = &chain->op[i];
        ls_op_desc *bare = append(&p, d->kind);
        int first = p.first[i] = p.chain.count - 1;
        *bare = *d;
        bare->fuse_relu = bare->fuse_pool = bare->fuse_add = 0;
        p.chain.source[first] = moved(&p, chain->source[i]);
        if (d->fuse_add)
            append(&p, LS_OP_ADD);
        if (op_has_x2(d))
            p.chain.source2[p.chain.count - 1] = moved(&p, chain->source2[i]);
        if (d->fuse_relu)
            append(&p, LS_OP_RELU);
        if (d->fuse_pool)
            append(&p, LS_OP_POOL)->pool = d->pool;
        p.last[i] = p.chain.count - 1;
    }
    return p;
}

/* Renames an item of the chain without fused forms as the fused chain numbers it, for example
 * "grad3.1" to "grad2.1". */
static void rename_item(op_item *item, const parts *p, int count)
{
    char what[13], rest[16] = "";
    int at = 0;
    if (sscanf(item->name, "%12[a-z]%d%15s", what, &at, rest) < 2)
        return;
    if (strcmp(what, "grad") != 0 && strcmp(what, "contribution") != 0)
        return;
    for (int i = 0; i < count; i++)
        if (p->first[i] == at) {
            snprintf(item->name, sizeof item->name, "%s%d%s", what, i, rest);
            return;
        }
}

op_result *op_reference(const op_chain *chain, const op_inputs *in)
{
    parts p = taken_apart(chain);
    op_inputs apart = *in;
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    assert_int_equal(ls_ref64_backend()->open(&ref, &request, NULL), LS_OK);
    memset(apart.param, 0, sizeof apart.param);
    memset(apart.running, 0, sizeof apart.running);
    for (int i = 0; i < chain->count; i++) {
        memcpy(apart.param[p.first[i]], in->param[i], sizeof in->param[i]);
        apart.running[p.first[i]] = in->running[i];
    }
    op_result *r = op_once(ref, &p.chain, &apart);
    for (int k = 0; k < r->items; k++)
        rename_item(&r->item[k], &p, chain->count);
    ref->ops->close(ref);
    return r;
}
