/* SPDX-License-Identifier: MIT */
#include "ops/op_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const names[LS_OP_KINDS] = {
    [LS_OP_GATHER] = "gather",
    [LS_OP_CONV2D] = "conv2d",
    [LS_OP_DENSE] = "dense",
    [LS_OP_POOL] = "pool",
    [LS_OP_RELU] = "relu",
    [LS_OP_SOFTMAX_XENT] = "xent",
    [LS_OP_SGD] = "sgd",
    [LS_OP_EXPORT] = "export",
    [LS_OP_BATCHNORM] = "batchnorm",
    [LS_OP_ADD] = "add",
    [LS_OP_SIGMOID] = "sigmoid",
    [LS_OP_TANH] = "tanh",
    [LS_OP_DROPOUT] = "dropout",
    [LS_OP_ADAMW] = "adamw",
    [LS_OP_RUNNING] = "running",
    [LS_OP_VECTOR_LOSS] = "vector_loss",
    [LS_OP_CLIP] = "clip",
    [LS_OP_GELU] = "gelu",
    [LS_OP_SILU] = "silu",
    [LS_OP_LAYERNORM] = "layernorm",
    [LS_OP_UPSAMPLE] = "upsample",
    [LS_OP_CONCAT] = "concat",
    [LS_OP_DIGEST] = "digest",
    [LS_OP_CLAMP] = "clamp",
    [LS_OP_HARD_SIGMOID] = "hard_sigmoid",
    [LS_OP_HARD_SWISH] = "hard_swish",
    [LS_OP_MULTIPLY] = "multiply",
    [LS_OP_PAD] = "pad",
    [LS_OP_GELU_TANH] = "gelu_tanh",
    [LS_OP_AFFINE] = "affine",
};

const char *op_kind_name(int kind)
{
    const char *name = kind > 0 && kind < LS_OP_KINDS ? names[kind] : NULL;
    return name ? name : "?";
}

float op_class_weight(int class)
{
    return (float)(1 + class % 6) / 4;
}

float op_row_weight(size_t row)
{
    return (float)(row * 3 % 5) / 2;
}

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

/* A buffer to which text is appended. */
typedef struct writer {
    char *at;
    size_t left;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(w->at, w->left, format, list);
    va_end(list);
    size_t used = n < 0 ? 0 : (size_t)n < w->left ? (size_t)n : w->left - 1;
    w->at += used;
    w->left -= used;
}

static void put_fused(writer *w, const ls_op_desc *d)
{
    const ls_pool2d *p = &d->pool;
    put(w, "%s%s%s", d->fuse_add ? "+add" : "", d->fuse_relu ? "+relu" : "",
        d->fuse_pool ? "+pool" : "");
    if (d->kind == LS_OP_POOL || d->fuse_pool)
        put(w, "(%s %d×%d, stride %d×%d, pad %d×%d)", p->max ? "max" : "avg", p->kh, p->kw, p->sh,
            p->sw, p->ph, p->pw);
}

static void put_op(writer *w, const ls_op_desc *d)
{
    const ls_conv2d *v = &d->u.conv2d;
    const ls_gather *g = &d->u.gather;
    put(w, " → %s", op_kind_name((int)d->kind));
    switch (d->kind) {
    case LS_OP_CONV2D:
        put(w, "(%d, %d×%d, stride %d×%d, pad %d×%d, dilation %d×%d, groups %d%s)", v->out, v->kh,
            v->kw, v->sh, v->sw, v->ph, v->pw, v->dh, v->dw, v->groups, v->bias ? ", bias" : "");
        break;
    case LS_OP_DENSE: put(w, "(%d%s)", d->u.dense.out, d->u.dense.bias ? ", bias" : ""); break;
    case LS_OP_BATCHNORM: put(w, "(ε %g)", (double)d->u.batchnorm.epsilon); break;
    case LS_OP_LAYERNORM: put(w, "(ε %g)", (double)d->u.layernorm.epsilon); break;
    case LS_OP_UPSAMPLE: put(w, "(%d×%d)", d->u.upsample.sh, d->u.upsample.sw); break;
    case LS_OP_CLAMP: put(w, "(%g … %g)", (double)d->u.clamp.least, (double)d->u.clamp.most); break;
    case LS_OP_AFFINE:
        put(w, "(%g·x + %g)", (double)d->u.affine.slope, (double)d->u.affine.offset);
        break;
    case LS_OP_PAD:
        put(w, "(%d, %d, %d, %d)", d->u.pad.top, d->u.pad.left, d->u.pad.bottom, d->u.pad.right);
        break;
    case LS_OP_DROPOUT: put(w, "(p %g)", (double)d->u.dropout.p); break;
    case LS_OP_SOFTMAX_XENT:
        put(w, "(smoothing %g%s)", (double)d->u.softmax_xent.smoothing,
            d->u.softmax_xent.weighted ? ", weighted" : "");
        break;
    case LS_OP_VECTOR_LOSS:
        put(w, "(rule %d, delta %g, %d quantiles)", (int)d->u.vector_loss.rule,
            d->u.vector_loss.delta, d->u.vector_loss.quantiles);
        break;
    case LS_OP_GATHER: put(w, "(crop %d%s)", g->crop, g->flip ? ", flip" : ""); break;
    default: break;
    }
    put_fused(w, d);
}

static void put_source(writer *w, const char *what, int source)
{
    if (source == OP_SECOND)
        put(w, " [%s: second input]", what);
    else if (source)
        put(w, " [%s: op %d]", what, source - 1);
}

const char *op_chain_text(const op_chain *chain)
{
    static char text[1500];
    writer w = {text, sizeof text};
    const ls_tensor *x = &chain->op[0].x;
    put(&w, "seed %llu: %d×%d×%d×%d", (unsigned long long)chain->seed, x->rows, x->c, x->h, x->w);
    for (int i = 0; i < chain->count; i++) {
        put_op(&w, &chain->op[i]);
        put_source(&w, "x", chain->source[i]);
        put_source(&w, "x2", chain->source2[i]);
    }
    put(&w, "%s%s%s%s%s", chain->training ? "" : ", inference",
        chain->evaluate ? ", in evaluation" : "", chain->needs_dx ? ", dx" : "",
        chain->hints ? ", hints" : "", chain->grid ? ", grid" : "");
    put(&w, "%s", chain->row_weights ? ", weights" : "");
    return text;
}

int op_ends_in_loss(const op_chain *chain)
{
    return op_is_loss(chain->op[chain->count - 1].kind);
}

int op_is_loss(int kind)
{
    return kind == LS_OP_SOFTMAX_XENT || kind == LS_OP_VECTOR_LOSS;
}

size_t op_label_words(const op_chain *chain)
{
    const int last = chain->count - 1;
    const ls_tensor x = op_x_of(chain, last);
    const ls_vector_loss *v = &chain->op[last].u.vector_loss;
    if (chain->op[last].kind != LS_OP_VECTOR_LOSS)
        return 1;
    return v->rule == LS_VECTOR_QUANTILE ? op_row(&x) / (size_t)v->quantiles : op_row(&x);
}

int op_has_params(const ls_op_desc *d)
{
    return d->kind == LS_OP_CONV2D || d->kind == LS_OP_DENSE || d->kind == LS_OP_BATCHNORM ||
           d->kind == LS_OP_LAYERNORM;
}

int op_has_x2(const ls_op_desc *d)
{
    return d->kind == LS_OP_ADD || d->kind == LS_OP_CONCAT || d->kind == LS_OP_MULTIPLY ||
           d->fuse_add;
}

int op_source(const op_chain *chain, int i)
{
    int source = chain->source[i];
    return source == 0 ? i - 1 : source == OP_SECOND ? OP_SECOND : source - 1;
}

int op_source2(const op_chain *chain, int i)
{
    return chain->source2[i] == OP_SECOND ? OP_SECOND : chain->source2[i] - 1;
}

ls_tensor op_x_of(const op_chain *chain, int i)
{
    int from = op_source(chain, i);
    if (from >= 0)
        return op_shape_after(chain, from);
    return from == OP_SECOND ? chain->x2 : chain->op[0].x;
}

ls_tensor op_x2_of(const op_chain *chain, int i)
{
    int from = op_source2(chain, i);
    return from >= 0 ? op_shape_after(chain, from) : chain->x2;
}

static int out_side(int side, int kernel, int stride, int padding)
{
    return (side + 2 * padding - kernel) / stride + 1;
}

ls_tensor op_shape_after(const op_chain *chain, int i)
{
    const ls_op_desc *d = &chain->op[i];
    const ls_conv2d v = ls_conv2d_filled(d->u.conv2d);
    const ls_pool2d *p = &d->pool;
    ls_tensor y = op_x_of(chain, i);
    y = (ls_tensor){LS_F32, y.rows, y.c, y.h, y.w, NULL, 0};
    if (d->kind == LS_OP_CONV2D) {
        y.c = v.out;
        y.h = out_side(y.h, v.dh * (v.kh - 1) + 1, v.sh, v.ph);
        y.w = out_side(y.w, v.dw * (v.kw - 1) + 1, v.sw, v.pw);
    }
    if (d->kind == LS_OP_DENSE) {
        y.c = d->u.dense.out;
        y.h = y.w = 1;
    }
    if (d->kind == LS_OP_CONCAT)
        y.c += op_x2_of(chain, i).c;
    if (d->kind == LS_OP_UPSAMPLE) {
        y.h *= d->u.upsample.sh;
        y.w *= d->u.upsample.sw;
    }
    if (d->kind == LS_OP_PAD) {
        y.h += d->u.pad.top + d->u.pad.bottom;
        y.w += d->u.pad.left + d->u.pad.right;
    }
    if (d->kind == LS_OP_POOL || d->fuse_pool) {
        y.h = ls_windows(y.h, p->kh, p->sh, p->ph, p->ph + p->eh, p->ceil);
        y.w = ls_windows(y.w, p->kw, p->sw, p->pw, p->pw + p->ew, p->ceil);
    }
    y.bytes = (size_t)y.rows * op_row(&y) * sizeof(float);
    return y;
}

size_t op_shard_rows(const op_chain *chain)
{
    return (size_t)(chain->before + chain->op[0].x.rows + chain->behind);
}

size_t op_canonical(const op_chain *chain, int i, int p)
{
    const ls_op_desc *d = &chain->op[i];
    ls_tensor x = op_x_of(chain, i);
    const ls_conv2d v = ls_conv2d_filled(d->u.conv2d);
    if (d->kind == LS_OP_BATCHNORM)
        return (size_t)x.c;
    if (d->kind == LS_OP_LAYERNORM)
        return op_row(&x);
    if (d->kind == LS_OP_DENSE)
        return (size_t)d->u.dense.out * (p ? 1 : op_row(&x));
    return (size_t)v.out * (p ? 1 : (size_t)(x.c / v.groups) * (size_t)v.kh * (size_t)v.kw);
}
