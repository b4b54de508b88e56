/* Ops for few rows: for batches of one to eight rows (examples), whose inputs and outputs have the
 * layout `few` (see few.h). Such an op contains an op for the layout `lanes` (lanes_op.h), the
 * *inner op*, which has the parameters. If the inner op has code for few rows (`few` of
 * ls_lanes_op), the op calls this code. Otherwise it copies the inputs into the layout `lanes`,
 * runs the inner op, and copies the result back.
 *
 * The scratch memory of an op that copies is [x in lanes][x2 in lanes][y in lanes][the inner op's
 * scratch memory]. */
#include "cpu/few.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

const ls_layout ls_layout_few = {2};

typedef struct few_op {
    ls_op op; /* base; must be first */
    const ls_host *host;
    ls_op *inner;
    ls_op_buffers outer, in_lanes; /* buffers of this op; buffers of the inner op */
    ls_tensor x[2];                /* the inputs; x[1].bytes is 0 if there is no second input */
    bool direct;                   /* the inner op has code for few rows */
} few_op;

ls_tensor ls_few_tensor(const ls_tensor *like)
{
    ls_tensor t = *like;
    t.layout = &ls_layout_few;
    t.bytes = (size_t)t.rows * ls_few_row(&t) * sizeof(float);
    return t;
}

const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc)
{
    (void)device;
    return !desc->training && desc->x.rows <= LS_FEW_ROWS ? &ls_layout_few : NULL;
}

/* ---- run ------------------------------------------------------------------------------------- */

static void to_lanes(float *lanes, const float *few, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w, plane = ls_few_plane(t);
    memset(lanes, 0, ls_lanes_bytes(t->rows, t->c, t->h, t->w));
    for (int r = 0; r < t->rows; r++)
        for (size_t c = 0; c < (size_t)t->c; c++) {
            const float *from = few + (size_t)r * ls_few_row(t) + c * plane;
            float *to = lanes + c * pixels * LS_LANES + (size_t)r;
            for (size_t i = 0; i < pixels; i++)
                to[i * LS_LANES] = from[i];
        }
}

static void from_lanes(float *few, const float *lanes, const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w, plane = ls_few_plane(t);
    for (int r = 0; r < t->rows; r++)
        for (size_t c = 0; c < (size_t)t->c; c++) {
            float *to = few + (size_t)r * ls_few_row(t) + c * plane;
            const float *from = lanes + c * pixels * LS_LANES + (size_t)r;
            for (size_t i = 0; i < pixels; i++)
                to[i] = from[i * LS_LANES];
        }
}

static size_t lanes_bytes(const ls_tensor *t)
{
    return t->bytes ? ls_lanes_bytes(t->rows, t->c, t->h, t->w) : 0;
}

/* Returns the number of bytes of the copy of y in lanes. It is 0 for a loss, which has no y, and
 * for an export (an op that copies to row-major order), which writes into the caller's y directly.
 */
static size_t y_bytes(const few_op *op)
{
    return op->op.y.layout == &ls_layout_few ? op->inner->y.bytes : 0;
}

static int few_bind(ls_op *base, const ls_op_buffers *b, ls_error *err)
{
    few_op *op = (few_op *)base;
    ls_op_buffers *in = &op->in_lanes;
    char *scratch = b->scratch;
    op->outer = *in = *b;
    if (!op->direct) {
        in->x = scratch;
        scratch += lanes_bytes(&op->x[0]);
        in->x2 = op->x[1].bytes ? scratch : b->x2;
        scratch += lanes_bytes(&op->x[1]);
        in->y = y_bytes(op) ? scratch : b->y;
        in->scratch = scratch + y_bytes(op);
    }
    return op->inner->impl->bind(op->inner, in, err);
}

static int few_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    few_op *op = (few_op *)base;
    if (op->direct) {
        ls_lanes_op *inner = (ls_lanes_op *)op->inner;
        inner->flags = flags;
        inner->few(inner);
        return LS_OK;
    }
    to_lanes((float *)op->in_lanes.x, op->outer.x, &op->x[0]);
    if (op->x[1].bytes)
        to_lanes((float *)op->in_lanes.x2, op->outer.x2, &op->x[1]);
    int status = op->inner->impl->forward(op->inner, stream, flags, err);
    if (status == LS_OK && y_bytes(op))
        from_lanes(op->outer.y, op->in_lanes.y, &op->op.y);
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

static void set_sizes(few_op *op)
{
    const ls_lanes_op *inner = (const ls_lanes_op *)op->inner;
    op->op = *op->inner;
    op->op.impl = &few_impl;
    op->op.saved_bytes = 0;
    op->direct = inner->few != NULL;
    if (op->inner->y.layout == &ls_layout_lanes && op->inner->y.bytes)
        op->op.y = ls_few_tensor(&op->inner->y);
    op->op.scratch_bytes = op->direct ? inner->few_scratch
                                      : lanes_bytes(&op->x[0]) + lanes_bytes(&op->x[1]) +
                                            y_bytes(op) + op->inner->scratch_bytes;
}

int ls_few_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_op_desc inner = *desc;
    *out = NULL;
    if (desc->training || desc->needs_dx || desc->x.rows > LS_LANES)
        return ls_fail(err, LS_EINVAL, "cpu: %d rows of a layout that is for evaluation alone",
                       desc->x.rows);
    if (ls_lanes_has_x2(desc) && desc->x2.layout != &ls_layout_few)
        return ls_fail(err, LS_EINVAL, "cpu: the two inputs have different layouts");
    few_op *op = ls_alloc(device->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "cpu: out of memory for an op");
    op->host = device->host;
    op->x[0] = desc->x;
    inner.x = ls_lanes_tensor(&desc->x);
    if (ls_lanes_has_x2(desc)) {
        op->x[1] = desc->x2;
        inner.x2 = ls_lanes_tensor(&desc->x2);
    }
    inner.y_hint = &ls_layout_few;
    inner.twin = ls_lanes_inner(desc->twin);
    int status = ls_cpu_op_create(&op->inner, device, &inner, err);
    if (status) {
        ls_free(device->host, op);
        return status;
    }
    set_sizes(op);
    *out = &op->op;
    return LS_OK;
}
