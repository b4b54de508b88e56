/* SPDX-License-Identifier: MIT */
#include "nn/guarded_device.h"

#include "base/error.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* number of guard bytes before and after a buffer; a multiple of the alignment */
#define GUARD 64
#define WORD 0xA5 /* value of each guard byte */
#define NONE 0xFF /* four bytes of this value are a NaN */
/* number of guard floats after a parameter. They are zero, because update ops process whole
 * arenas */
#define GUARD_FLOATS 16
#define BOTH (2 * (size_t)GUARD)

typedef struct block {
    struct block *next;
    size_t bytes;
    char *memory; /* the address that the inner device has returned */
} block;

typedef struct guarded_device {
    ls_device device; /* first */
    ls_device *inner;
    block *blocks;
} guarded_device;

/* Memory that an op writes. `memory` begins after the first guard. */
typedef struct span {
    const char *what;
    char *memory;
    size_t bytes;
} span;

enum { Y, SAVED, SCRATCH, LABELS, DX, DX2, SPANS };

typedef struct guarded_op {
    ls_op op; /* first */
    ls_op *inner;
    ls_op_kind kind;
    ls_tensor x, x2;
    span span[SPANS];
    ls_op_buffers b; /* the buffers of the inner op */
    int32_t *labels_out;
} guarded_op;

/* ---- findings ------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char finding[256], shown[256];

static int found(ls_error *err, const char *text)
{
    pthread_mutex_lock(&lock);
    if (!finding[0])
        snprintf(finding, sizeof finding, "%s", text);
    pthread_mutex_unlock(&lock);
    return ls_fail(err, LS_EINVAL, "guarded: %s", text);
}

const char *guarded_finding(void)
{
    pthread_mutex_lock(&lock);
    memcpy(shown, finding, sizeof shown);
    finding[0] = '\0';
    pthread_mutex_unlock(&lock);
    return shown;
}

static int is_filled(const char *memory, unsigned char with, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)memory[i] != with)
            return 0;
    return 1;
}

static void set_guards(char *memory, size_t bytes)
{
    memset(memory - GUARD, WORD, GUARD);
    memset(memory + bytes, WORD, GUARD);
}

/* Returns NULL if the guards are intact, otherwise which guard was overwritten. */
static const char *broken(const char *memory, size_t bytes)
{
    if (!is_filled(memory - GUARD, WORD, GUARD))
        return "before";
    return is_filled(memory + bytes, WORD, GUARD) ? NULL : "behind";
}

/* ---- memory --------------------------------------------------------------------------------- */

static guarded_device *of(ls_device *device)
{
    return (guarded_device *)device;
}

static int guarded_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    guarded_device *g = of(device);
    void *memory = NULL;
    int rc = g->inner->ops->alloc(&memory, g->inner, bytes + BOTH, err);
    block *b = rc == LS_OK ? malloc(sizeof *b) : NULL;
    if (rc != LS_OK)
        return rc;
    if (!b) {
        g->inner->ops->free(g->inner, memory);
        return ls_fail(err, LS_ENOMEM, "guarded: no memory");
    }
    *b = (block){g->blocks, bytes, memory};
    g->blocks = b;
    *out = b->memory + GUARD;
    set_guards(*out, bytes);
    return LS_OK;
}

static void look_at_block(const block *b)
{
    char text[128];
    const char *where = broken(b->memory + GUARD, b->bytes);
    snprintf(text, sizeof text, "something was written %s an arena of %zu bytes",
             where ? where : "", b->bytes);
    if (where)
        found(NULL, text);
}

static void guarded_free(ls_device *device, void *memory)
{
    guarded_device *g = of(device);
    for (block **at = &g->blocks; memory && *at; at = &(*at)->next) {
        block *b = *at;
        if (b->memory + GUARD != memory)
            continue;
        look_at_block(b);
        *at = b->next;
        g->inner->ops->free(g->inner, b->memory);
        free(b);
        return;
    }
}

/* ---- ops ------------------------------------------------------------------------------------ */

static const char *name_of(ls_op_kind kind)
{
    static const char *const names[] = {[LS_OP_GATHER] = "gather",
                                        [LS_OP_CONV2D] = "conv2d",
                                        [LS_OP_DENSE] = "dense",
                                        [LS_OP_POOL] = "pool",
                                        [LS_OP_RELU] = "relu",
                                        [LS_OP_EXPORT] = "export",
                                        [LS_OP_SOFTMAX_XENT] = "softmax_xent",
                                        [LS_OP_BATCHNORM] = "batchnorm",
                                        [LS_OP_ADD] = "add",
                                        [LS_OP_SIGMOID] = "sigmoid",
                                        [LS_OP_TANH] = "tanh",
                                        [LS_OP_LAYERNORM] = "layernorm",
                                        [LS_OP_UPSAMPLE] = "upsample",
                                        [LS_OP_PAD] = "pad",
                                        [LS_OP_CONCAT] = "concat",
                                        [LS_OP_MULTIPLY] = "multiply",
                                        [LS_OP_GELU] = "gelu",
                                        [LS_OP_SILU] = "silu",
                                        [LS_OP_CLAMP] = "clamp",
                                        [LS_OP_GELU_TANH] = "gelu_tanh",
                                        [LS_OP_AFFINE] = "affine",
                                        [LS_OP_HARD_SIGMOID] = "hard_sigmoid",
                                        [LS_OP_HARD_SWISH] = "hard_swish",
                                        [LS_OP_DROPOUT] = "dropout"};
    return (size_t)kind < sizeof names / sizeof *names && names[kind] ? names[kind] : "?";
}

static int wrote(const guarded_op *op, const char *pass, const char *where, const char *what,
                 ls_error *err)
{
    char text[256];
    const ls_tensor *x = &op->x;
    snprintf(text, sizeof text, "%s of %s (%s) on %d rows of %d×%d×%d wrote %s its %s", pass,
             name_of(op->kind), op->inner->kernel ? op->inner->kernel : "?", x->rows, x->c, x->h,
             x->w, where, what);
    return found(err, text);
}

/* Writes the guards of the buffers that the op will write, and fills these buffers with NaN. */
static void prepare(guarded_op *op, int first, int last)
{
    for (int s = first; s <= last; s++) {
        if (!op->span[s].memory)
            continue;
        memset(op->span[s].memory, NONE, op->span[s].bytes);
        set_guards(op->span[s].memory, op->span[s].bytes);
    }
}

static int look_at_params(const guarded_op *op, const char *pass, ls_error *err)
{
    for (int i = 0; i < op->inner->params; i++)
        for (int g = 0; g < 2; g++) {
            const float *memory = g ? op->b.grad[i] : op->b.param[i];
            if (!memory)
                continue;
            const size_t bytes = GUARD_FLOATS * sizeof(float);
            const char *end = (const char *)(memory + op->inner->param_floats[i]);
            if (!is_filled((const char *)memory - bytes, 0, bytes) || !is_filled(end, 0, bytes))
                return wrote(op, pass, "around", g ? "parameter's gradient" : "parameter", err);
        }
    return LS_OK;
}

static int look(const guarded_op *op, const char *pass, int last, ls_error *err)
{
    for (int s = 0; s <= last; s++) {
        const span *at = &op->span[s];
        const char *where = at->memory ? broken(at->memory, at->bytes) : NULL;
        if (where)
            return wrote(op, pass, where, at->what, err);
    }
    return look_at_params(op, pass, err);
}

static int guarded_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    guarded_op *op = (guarded_op *)base;
    const int last = op->kind == LS_OP_SOFTMAX_XENT ? DX : LABELS;
    prepare(op, 0, last);
    int rc = op->inner->impl->forward(op->inner, stream, flags, err);
    if (rc == LS_OK)
        rc = look(op, "forward", last, err);
    if (op->labels_out)
        memcpy(op->labels_out, op->span[LABELS].memory, op->span[LABELS].bytes);
    return rc;
}

/* Fills gradients with NaN, and their padding with zeros. */
static int spoil_gradients(guarded_op *op, ls_error *err)
{
    int rc = LS_OK;
    for (int i = 0; i < op->inner->params && rc == LS_OK; i++) {
        const size_t bytes = op->inner->param_floats[i] * sizeof(float);
        float *none = op->b.grad[i] ? malloc(bytes) : NULL;
        if (!none)
            continue;
        memset(none, NONE, bytes);
        rc = op->inner->impl->import_param(op->inner, i, op->b.grad[i], none, err);
        free(none);
    }
    return rc;
}

/* The backward pass reads the buffers y and saved, so this function does not fill these buffers
 * with NaN. */
static int guarded_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    guarded_op *op = (guarded_op *)base;
    prepare(op, SCRATCH, SCRATCH);
    prepare(op, DX, DX2);
    int rc = flags & LS_RUN_ACCUMULATE ? LS_OK : spoil_gradients(op, err);
    if (rc == LS_OK)
        rc = op->inner->impl->backward(op->inner, stream, flags, err);
    return rc == LS_OK ? look(op, "backward", DX2, err) : rc;
}

static void *behind_guard(const void *memory)
{
    return memory ? (char *)(uintptr_t)memory + GUARD : NULL;
}

static void set_span(guarded_op *op, int which, const char *what, void *memory, size_t bytes)
{
    op->span[which] = (span){what, memory, bytes};
}

static int guarded_bind(ls_op *base, const ls_op_buffers *buffers, ls_error *err)
{
    guarded_op *op = (guarded_op *)base;
    ls_op_buffers b = *buffers;
    const int gather = op->kind == LS_OP_GATHER;
    b.x = gather ? b.x : behind_guard(b.x);
    b.x2 = behind_guard(b.x2);
    b.y = op->inner->y.bytes ? behind_guard(b.y) : NULL;
    b.dy = behind_guard(b.dy);
    b.dx = behind_guard(b.dx);
    b.dx2 = behind_guard(b.dx2);
    b.saved = op->inner->saved_bytes ? behind_guard(b.saved) : NULL;
    b.scratch = op->inner->scratch_bytes ? behind_guard(b.scratch) : NULL;
    for (int i = 0; i < op->inner->params; i++) {
        b.param[i] = b.param[i] ? b.param[i] + GUARD_FLOATS : NULL;
        b.grad[i] = b.grad[i] ? b.grad[i] + GUARD_FLOATS : NULL;
    }
    if (gather && b.labels_out) {
        op->labels_out = b.labels_out;
        b.labels_out = (int32_t *)(void *)op->span[LABELS].memory;
    }
    set_span(op, Y, "y", b.y, op->inner->y.bytes);
    set_span(op, SAVED, "saved values", b.saved, op->inner->saved_bytes);
    set_span(op, SCRATCH, "scratch", b.scratch, op->inner->scratch_bytes);
    set_span(op, DX, "dx", b.dx, op->x.bytes);
    set_span(op, DX2, "dx2", b.dx2, op->x2.bytes);
    op->b = b;
    return op->inner->impl->bind(op->inner, &b, err);
}

static int guarded_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    ls_op *inner = ((guarded_op *)base)->inner;
    return inner->impl->import_param(inner, index, (float *)dst + GUARD_FLOATS, src, err);
}

static int guarded_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    ls_op *inner = ((guarded_op *)base)->inner;
    return inner->impl->export_param(inner, index, dst, (const float *)src + GUARD_FLOATS, err);
}

static void guarded_destroy(ls_op *base)
{
    guarded_op *op = (guarded_op *)base;
    if (!op)
        return;
    op->inner->impl->destroy(op->inner);
    if (op->span[LABELS].memory)
        free(op->span[LABELS].memory - GUARD);
    free(op);
}

static const ls_op_impl impl = {
    .size = sizeof impl,
    .bind = guarded_bind,
    .forward = guarded_forward,
    .backward = guarded_backward,
    .import_param = guarded_import,
    .export_param = guarded_export,
    .destroy = guarded_destroy,
};

/* Adds the sizes of the guards to the sizes that the plan sees. */
static void add_guards(guarded_op *op)
{
    const ls_op *inner = op->inner;
    op->op = *inner;
    op->op.impl = &impl;
    op->op.y.bytes += inner->y.bytes ? BOTH : 0;
    op->op.saved_bytes += inner->saved_bytes ? BOTH : 0;
    op->op.scratch_bytes += inner->scratch_bytes ? BOTH : 0;
    for (int i = 0; i < inner->params; i++)
        op->op.param_floats[i] += 2 * (size_t)GUARD_FLOATS;
}

static int over_arenas(ls_op_kind kind)
{
    return kind == LS_OP_SGD || kind == LS_OP_ADAMW || kind == LS_OP_RUNNING ||
           kind == LS_OP_DIGEST;
}

static int guarded_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_device *inner = of(device)->inner;
    ls_op_desc d = *desc;
    if (over_arenas(desc->kind))
        return inner->ops->op_create(out, inner, desc, err);
    d.twin = desc->twin ? ((const guarded_op *)desc->twin)->inner : NULL;
    if (desc->kind != LS_OP_GATHER)
        d.x.bytes -= BOTH;
    if (desc->x2.bytes)
        d.x2.bytes -= BOTH;
    guarded_op *op = calloc(1, sizeof *op);
    const int words = d.kind == LS_OP_GATHER && d.u.gather.targets ? d.u.gather.targets : 1;
    const size_t label_bytes = (size_t)d.x.rows * (size_t)words * sizeof(int32_t);
    char *labels = calloc(1, label_bytes + BOTH);
    int rc = op && labels ? LS_OK : ls_fail(err, LS_ENOMEM, "guarded: no memory");
    if (rc == LS_OK)
        rc = inner->ops->op_create(&op->inner, inner, &d, err);
    if (rc != LS_OK || desc->kind != LS_OP_GATHER) {
        free(labels);
        labels = NULL;
    }
    if (rc != LS_OK) {
        free(op);
        return rc;
    }
    op->kind = desc->kind;
    op->x = d.x;
    op->x2 = d.x2;
    if (labels)
        set_span(op, LABELS, "labels", labels + GUARD, label_bytes);
    add_guards(op);
    *out = &op->op;
    return LS_OK;
}

/* ---- the device ----------------------------------------------------------------------------- */

static void guarded_describe(const ls_device *device, ls_device_info *out)
{
    const ls_device *inner = ((const guarded_device *)device)->inner;
    inner->ops->describe(inner, out);
}

static int guarded_bind_thread(ls_device *device, ls_error *err)
{
    return of(device)->inner->ops->bind(of(device)->inner, err);
}

static void guarded_close(ls_device *device)
{
    while (of(device)->blocks)
        guarded_free(device, of(device)->blocks->memory + GUARD);
    of(device)->inner->ops->close(of(device)->inner);
    free(device);
}

static int guarded_copy(ls_device *device, ls_stream *stream, void *dst, const void *src,
                        size_t bytes, ls_error *err)
{
    return of(device)->inner->ops->copy(of(device)->inner, stream, dst, src, bytes, err);
}

/* Scores that an op has written begin after the op's guard. */
static int guarded_download(ls_device *device, ls_stream *stream, void *dst, const void *src,
                            size_t bytes, ls_error *err)
{
    const char *from = src;
    return guarded_copy(device, stream, dst, is_filled(from, WORD, GUARD) ? from + GUARD : from,
                        bytes, err);
}

static int guarded_add(ls_device *device, ls_stream *stream, float *dst, const float *a,
                       const float *b, size_t count, ls_error *err)
{
    return of(device)->inner->ops->add(of(device)->inner, stream, dst, a, b, count, err);
}

static int guarded_add_tensor(ls_device *device, ls_stream *stream, const ls_tensor *tensor,
                              void *sum, const void *part, ls_error *err)
{
    float *to = behind_guard(sum);
    const size_t count = (tensor->bytes - BOTH) / sizeof(float);
    return guarded_add(device, stream, to, to, behind_guard(part), count, err);
}

static int guarded_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    return of(device)->inner->ops->sync(of(device)->inner, stream, err);
}

static const ls_layout *guarded_preferred(ls_device *device, const ls_op_desc *desc)
{
    ls_device *inner = of(device)->inner;
    return inner->ops->preferred_layout ? inner->ops->preferred_layout(inner, desc) : NULL;
}

static const ls_device_ops ops = {
    .size = sizeof(ls_device_ops),
    .describe = guarded_describe,
    .bind = guarded_bind_thread,
    .close = guarded_close,
    .alloc = guarded_alloc,
    .free = guarded_free,
    .upload = guarded_copy,
    .download = guarded_download,
    .copy = guarded_copy,
    .add = guarded_add,
    .add_tensor = guarded_add_tensor,
    .sync = guarded_sync,
    .op_create = guarded_op_create,
    .preferred_layout = guarded_preferred,
};

static const ls_backend *around;

static int guarded_open(ls_device **out, const ls_device_request *request, ls_error *err)
{
    guarded_device *g = calloc(1, sizeof *g);
    if (!g)
        return ls_fail(err, LS_ENOMEM, "guarded: no memory");
    int rc = around->open(&g->inner, request, err);
    if (rc != LS_OK) {
        free(g);
        return rc;
    }
    g->device.ops = &ops;
    *out = &g->device;
    return LS_OK;
}

static void guarded_probe(ls_backend_info *out)
{
    around->probe(out);
}

const ls_backend *guarded_backend(const ls_backend *inner)
{
    static const ls_backend backend = {
        .abi = LS_PLUGIN_ABI,
        .size = sizeof backend,
        .name = "guarded",
        .counted = 1,
        .probe = guarded_probe,
        .open = guarded_open,
    };
    around = inner;
    return &backend;
}
