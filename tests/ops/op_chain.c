#include "ops/op_chain.h"

#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const names[] = {"?",    "gather", "conv2d", "dense", "pool",
                                    "relu", "xent",   "sgd",    "export"};

size_t op_row(const ls_tensor *t)
{
    return (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

void *op_zeros(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    assert_non_null(memory);
    return memory;
}

static int op_text(char *out, size_t size, const ls_op_desc *d)
{
    const ls_conv2d *v = &d->u.conv2d;
    const ls_pool2d *p = &d->pool;
    int n = snprintf(out, size, " → %s", names[d->kind]);
    char *at = out + n;
    size_t left = size - (size_t)n;
    if (d->kind == LS_OP_CONV2D)
        n += snprintf(at, left, "(%d, %d×%d, stride %d×%d, pad %d×%d%s%s%s)", v->out, v->kh, v->kw,
                      v->sh, v->sw, v->ph, v->pw, v->bias ? ", bias" : "",
                      d->fuse_relu ? ", relu" : "", d->fuse_pool ? ", pool" : "");
    if (d->kind == LS_OP_DENSE)
        n += snprintf(at, left, "(%d%s%s)", d->u.dense.out, d->u.dense.bias ? ", bias" : "",
                      d->fuse_relu ? ", relu" : "");
    if (d->kind == LS_OP_POOL || d->fuse_pool)
        n += snprintf(out + n, size - (size_t)n, "(%s %d×%d, stride %d×%d, pad %d×%d)",
                      p->max ? "max" : "avg", p->kh, p->kw, p->sh, p->sw, p->ph, p->pw);
    return n;
}

const char *op_chain_text(const op_chain *chain)
{
    static char text[1024];
    const ls_tensor *x = &chain->op[0].x;
    int n = snprintf(text, sizeof text, "seed %llu: %d×%d×%d×%d", (unsigned long long)chain->seed,
                     x->rows, x->c, x->h, x->w);
    for (int i = 0; i < chain->count; i++)
        n += op_text(text + n, sizeof text - (size_t)n, &chain->op[i]);
    snprintf(text + n, sizeof text - (size_t)n, "%s%s%s%s", chain->training ? "" : ", inference",
             chain->needs_dx ? ", dx" : "", chain->hints ? ", hints" : "",
             chain->grid ? ", grid" : "");
    return text;
}

int op_ends_in_loss(const op_chain *chain)
{
    return chain->op[chain->count - 1].kind == LS_OP_SOFTMAX_XENT;
}

int op_has_params(const ls_op_desc *d)
{
    return d->kind == LS_OP_CONV2D || d->kind == LS_OP_DENSE;
}

ls_tensor op_shape_after(const op_chain *chain, int i)
{
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_tensor x = chain->op[0].x;
    ls_error err = {0};
    assert_int_equal(ls_ref64_backend()->open(&ref, &request, &err), LS_OK);
    for (int k = 0; k <= i; k++) {
        ls_op_desc d = chain->op[k];
        ls_op *op = NULL;
        d.size = sizeof d;
        d.x = x;
        d.x.dtype = d.kind == LS_OP_GATHER ? LS_U8 : LS_F32;
        d.fuse_pool = 0;
        int rc = ref->ops->op_create(&op, ref, &d, &err);
        if (rc == LS_OK && chain->op[k].fuse_pool) {
            d.kind = LS_OP_POOL;
            d.x = op->y;
            d.fuse_relu = 0;
            op->impl->destroy(op);
            rc = ref->ops->op_create(&op, ref, &d, &err);
        }
        if (rc != LS_OK)
            fail_msg("%s\n    %s", op_chain_text(chain), err.text);
        x = op->y;
        op->impl->destroy(op);
    }
    ref->ops->close(ref);
    return x;
}

size_t op_canonical(const op_chain *chain, int i, int p)
{
    const ls_op_desc *d = &chain->op[i];
    ls_tensor x = i ? op_shape_after(chain, i - 1) : d->x;
    const ls_conv2d *v = &d->u.conv2d;
    if (d->kind == LS_OP_DENSE)
        return (size_t)d->u.dense.out * (p ? 1 : op_row(&x));
    return (size_t)v->out * (p ? 1 : (size_t)x.c * (size_t)v->kh * (size_t)v->kw);
}
