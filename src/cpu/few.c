/* SPDX-License-Identifier: MIT */
/* Ops for few rows: for batches of one to eight rows, whose inputs have the layout `few` or `flat`,
 * and whose outputs have the layout `few` (see few.h). Such an op contains an op for the layout
 * `lanes` (lanes_op.h), the *inner op*, which has the parameters. If the inner op has code for few
 * rows (`few` of ls_lanes_op), the op calls this code, for which it copies an input from `flat`
 * into `few` if need be. Otherwise it copies the inputs into the layout `lanes`, runs the inner op,
 * and copies the result back.
 *
 * The scratch memory is [copy of x][copy of x2][y in lanes][the inner op's scratch memory]. Copies
 * that are not needed are left out. */
#include "cpu/few.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

const ls_layout ls_layout_few = {.number = LS_LAYOUT_FEW},
                ls_layout_flat = {.number = LS_LAYOUT_FLAT};

typedef struct few_op {
    ls_op op; /* base; must be first */
    const ls_host *host;
    ls_op *inner;
    ls_op_buffers outer, within; /* buffers of this op; buffers of the inner op */
    ls_tensor x[2];              /* the inputs */
    int inputs;                  /* number of inputs */
    size_t copied[2];            /* size in bytes of the copy of each input; 0: it is not copied */
    bool direct;                 /* the inner op has code for few rows */
    ls_layout layout;            /* layout of y */
    bool left;                   /* another op does the work of this one (few.h) */
} few_op;

ls_tensor ls_few_tensor(const ls_tensor *like, const ls_layout *layout)
{
    ls_tensor t = *like;
    const size_t row = ls_is_flat(layout) ? ls_flat_row(&t) : ls_few_row(&t);
    t.layout = layout;
    t.bytes = (size_t)t.rows * row * sizeof(float);
    return t;
}

/* Returns true if the op reads rows in the order c, h, w best. */
static bool prefers_flat(const ls_op_desc *desc)
{
    return desc->kind == LS_OP_DENSE ||
           (desc->kind == LS_OP_CONV2D && desc->x.c < LS_LANES && desc->u.conv2d.groups <= 1);
}

const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc)
{
    (void)device;
    if (desc->training || desc->x.rows > LS_FEW_ROWS)
        return NULL;
    return prefers_flat(desc) ? &ls_layout_flat : &ls_layout_few;
}

int ls_kept_alloc(ls_kept *kept, size_t floats, ls_lanes_op *op, ls_error *err)
{
    if (kept->data)
        return LS_OK;
    kept->data = ls_alloc_array(op->host, floats, sizeof(float));
    if (!kept->data)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for weights");
    op->op.kept_bytes += floats * sizeof(float);
    return LS_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Location of channel c of a row of a tensor in the layout `few` or `flat`. */
typedef struct few_place {
    size_t at, step; /* offset of its first pixel; step from one pixel to the next */
} few_place;

static few_place place_of(const ls_tensor *t, int row, int c)
{
    const size_t r = (size_t)row, of = (size_t)c;
    if (ls_is_flat(t->layout))
        return (few_place){r * ls_flat_row(t) + of * (size_t)t->h * (size_t)t->w, 1};
    return (few_place){r * ls_few_row(t) + of / LS_LANES * ls_few_plane(t) + of % LS_LANES,
                       LS_LANES};
}

static void to_lanes(float *lanes, const float *few, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    memset(lanes, 0, ls_lanes_bytes(t->rows, t->c, t->h, t->w));
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->c; c++) {
            const few_place from = place_of(t, r, c);
            float *to = lanes + (size_t)c * pixels * LS_LANES + (size_t)r;
            for (size_t i = 0; i < pixels; i++)
                to[i * LS_LANES] = few[from.at + i * from.step];
        }
}

static void from_lanes(float *few, const float *lanes, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->c; c++) {
            const few_place to = place_of(t, r, c);
            const float *from = lanes + (size_t)c * pixels * LS_LANES + (size_t)r;
            for (size_t i = 0; i < pixels; i++)
                few[to.at + i * to.step] = from[i * LS_LANES];
        }
}

void ls_few_to_plain(float *to, size_t step, const float *few, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    ls_tensor tensor = *t;
    tensor.layout = &ls_layout_few;
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->c; c++) {
            const few_place from = place_of(&tensor, r, c);
            float *plane = to + (size_t)r * step + (size_t)c * pixels;
            for (size_t i = 0; i < pixels; i++)
                plane[i] = few[from.at + i * from.step];
        }
}

/* Copies a tensor from the layout `flat` into `few`. */
static void to_few(float *few, const float *flat, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    ls_tensor tensor = *t;
    tensor.layout = &ls_layout_few;
    memset(few, 0, (size_t)t->rows * ls_few_row(t) * sizeof *few);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->c; c++) {
            const few_place from = place_of(t, r, c), to = place_of(&tensor, r, c);
            for (size_t i = 0; i < pixels; i++)
                few[to.at + i * to.step] = flat[from.at + i];
        }
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Returns the number of bytes of the copy of y in lanes. It is 0 for a loss, which has no y, for an
 * export (an op that copies to row-major order), which writes into the caller's y directly, and if
 * the inner op writes the layout `few`. */
static size_t y_bytes(const few_op *op)
{
    return !op->direct && ls_is_few(op->op.y.layout) ? op->inner->y.bytes : 0;
}

static int few_bind(ls_op *base, const ls_op_buffers *b, ls_error *err)
{
    few_op *op = (few_op *)base;
    ls_op_buffers *in = &op->within;
    char *scratch = b->scratch;
    op->outer = *in = *b;
    in->x = op->copied[0] ? scratch : b->x;
    scratch += op->copied[0];
    in->x2 = op->copied[1] ? scratch : b->x2;
    scratch += op->copied[1];
    in->y = y_bytes(op) ? scratch : b->y;
    in->scratch = scratch + y_bytes(op);
    return op->inner->impl->bind(op->inner, in, err);
}

static int few_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    few_op *op = (few_op *)base;
    void (*const copy)(float *, const float *, const ls_tensor *) = op->direct ? to_few : to_lanes;
    if (op->left)
        return LS_OK;
    if (op->copied[0])
        copy((float *)op->within.x, op->outer.x, &op->x[0]);
    if (op->copied[1])
        copy((float *)op->within.x2, op->outer.x2, &op->x[1]);
    if (op->direct) {
        ls_lanes_op *inner = (ls_lanes_op *)op->inner;
        inner->flags = flags;
        inner->few(inner);
        return LS_OK;
    }
    int status = op->inner->impl->forward(op->inner, stream, flags, err);
    if (status == LS_OK && y_bytes(op))
        from_lanes(op->outer.y, op->within.y, &op->op.y);
    return status;
}

static int few_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    ls_op *inner = ((few_op *)base)->inner;
    return inner->impl->import_param(inner, index, dst, src, err);
}

static int few_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    ls_op *inner = ((few_op *)base)->inner;
    return inner->impl->export_param(inner, index, dst, src, err);
}

static void few_destroy(ls_op *base)
{
    few_op *op = (few_op *)base;
    if (!op)
        return;
    if (op->inner)
        op->inner->impl->destroy(op->inner);
    ls_free(op->host, op);
}

static const ls_op_impl few_impl = {
    .size = sizeof(ls_op_impl),
    .bind = few_bind,
    .forward = few_forward,
    .import_param = few_import,
    .export_param = few_export,
    .destroy = few_destroy,
};

/* ---- creation -------------------------------------------------------------------------------- */

const ls_op *ls_few_inner(const ls_op *op)
{
    return op && op->impl == &few_impl ? ((const few_op *)op)->inner : op;
}

/* Returns the size in bytes of the copy of input i, if the op must copy it, else 0. */
static size_t copy_bytes(const few_op *op, int i)
{
    const ls_lanes_op *inner = (const ls_lanes_op *)op->inner;
    const ls_tensor *x = &op->x[i];
    if (i >= op->inputs)
        return 0;
    if (!op->direct)
        return ls_lanes_bytes(x->rows, x->c, x->h, x->w);
    return ls_is_flat(x->layout) && !inner->few_reads_flat
               ? (size_t)x->rows * ls_few_row(x) * sizeof(float)
               : 0;
}

static void set_sizes(few_op *op, uint64_t order)
{
    ls_lanes_op *inner = (ls_lanes_op *)op->inner;
    op->op = *op->inner;
    op->op.impl = &few_impl;
    op->op.saved_bytes = 0;
    op->direct = inner->few != NULL;
    op->layout = (ls_layout){.number = LS_LAYOUT_FEW,
                             .order = order,
                             .finisher = op->direct && inner->few_finishes ? inner : NULL};
    if (op->inner->y.layout == &ls_layout_lanes && op->inner->y.bytes)
        op->op.y = ls_few_tensor(&op->inner->y, &op->layout);
    for (int i = 0; i < 2; i++)
        op->copied[i] = copy_bytes(op, i);
    op->op.scratch_bytes = op->copied[0] + op->copied[1] + y_bytes(op) +
                           (op->direct ? inner->few_scratch : op->inner->scratch_bytes);
}

ls_lanes_op *ls_few_finisher(const ls_op_desc *desc)
{
    const ls_layout *x = desc->x.layout, *x2 = desc->fuse_add ? desc->x2.layout : NULL;
    const bool is_first = !x2 || (x2->number == LS_LAYOUT_FEW && x2->order < x->order);
    return is_first ? x->finisher : NULL;
}

/* If a convolution computes the batch norm that `op` is, leaves the norm to it. */
static void leave_to(few_op *op, ls_lanes_op *finisher)
{
    if (!finisher || !op->direct)
        return;
    finisher->few_norm = (ls_lanes_op *)op->inner;
    op->op.y.bytes = 0; /* y replaces x */
    op->left = true;
}

int ls_few_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_op_desc inner = *desc;
    *out = NULL;
    if (desc->training || desc->needs_dx || desc->x.rows > LS_LANES)
        return ls_fail(err, LS_EINVAL, "cpu: %d rows of a layout that is for evaluation alone",
                       desc->x.rows);
    if (ls_lanes_has_x2(desc) && !ls_is_few(desc->x2.layout))
        return ls_fail(err, LS_EINVAL, "cpu: the two inputs have different layouts");
    few_op *op = ls_alloc(device->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "cpu: out of memory for an op");
    op->host = device->host;
    op->x[0] = desc->x;
    op->inputs = 1;
    inner.x = ls_lanes_tensor(&desc->x);
    if (ls_lanes_has_x2(desc)) {
        op->x[1] = desc->x2;
        op->inputs = 2;
        inner.x2 = ls_lanes_tensor(&desc->x2);
    }
    inner.y_hint = desc->x.layout;
    inner.twin = ls_lanes_inner(desc->twin);
    int status = ls_cpu_op_create(&op->inner, device, &inner, err);
    if (status) {
        ls_free(device->host, op);
        return status;
    }
    set_sizes(op, ++device->few_ops);
    if (desc->kind == LS_OP_BATCHNORM)
        leave_to(op, ls_few_finisher(desc));
    *out = &op->op;
    return LS_OK;
}
