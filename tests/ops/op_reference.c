/* The oracle. */
#include "ops/op_chain.h"
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fused relu and pool become ops of their own; index[i] says where op i of `chain` went. */
static op_chain taken_apart(const op_chain *chain, int index[OP_CHAIN])
{
    op_chain plain = *chain;
    plain.count = 0;
    for (int i = 0; i < chain->count; i++) {
        ls_op_desc d = chain->op[i];
        ls_op_desc relu = {.kind = LS_OP_RELU}, pool = {.kind = LS_OP_POOL, .pool = d.pool};
        int more = !!d.fuse_relu + !!d.fuse_pool;
        assert_true(plain.count + 1 + more <= OP_CHAIN);
        index[i] = plain.count;
        d.fuse_relu = d.fuse_pool = 0;
        plain.op[plain.count++] = d;
        if (chain->op[i].fuse_relu)
            plain.op[plain.count++] = relu;
        if (chain->op[i].fuse_pool)
            plain.op[plain.count++] = pool;
    }
    return plain;
}

op_result *op_reference(const op_chain *chain, const op_inputs *in)
{
    int index[OP_CHAIN] = {0};
    op_chain plain = taken_apart(chain, index);
    op_inputs moved = *in;
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    assert_int_equal(ls_ref64_backend()->open(&ref, &request, NULL), LS_OK);
    memset(moved.param, 0, sizeof moved.param);
    for (int i = 0; i < chain->count; i++)
        memcpy(moved.param[index[i]], in->param[i], sizeof in->param[i]);
    op_result *r = op_once(ref, &plain, &moved);
    for (int i = 0; i < chain->count; i++)
        for (int k = 0; k < r->items; k++) {
            char from[24];
            int p = 0;
            if (sscanf(r->item[k].name, "grad%23[0-9].%d", from, &p) == 2 && atoi(from) == index[i])
                snprintf(r->item[k].name, sizeof r->item[k].name, "grad%d.%d", i, p);
        }
    ref->ops->close(ref);
    return r;
}
