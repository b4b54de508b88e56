/* SPDX-License-Identifier: MIT */
/* The layout `lanes`, and the functions that all ops on tensors in lanes share. */
#include "cpu/lanes_op.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

/* ---- layouts --------------------------------------------------------------------------------- */

const ls_layout ls_layout_lanes = {.number = LS_LAYOUT_LANES};

/* Returns the number of packets of sixteen that `rows` rows take. */
static size_t packets_of(int rows)
{
    return ((size_t)rows + LS_LANES - 1) / LS_LANES;
}

size_t ls_lanes_bytes(int rows, int c, int h, int w)
{
    return packets_of(rows) * LS_LANES * (size_t)c * (size_t)h * (size_t)w * sizeof(float);
}

ls_tensor ls_lanes_tensor(const ls_tensor *like)
{
    ls_tensor t = *like;
    t.layout = &ls_layout_lanes;
    t.bytes = ls_lanes_bytes(t.rows, t.c, t.h, t.w);
    return t;
}

#define LINE 16 /* floats of a row that are copied at a time: one cache line */

void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = ls_lanes_rows_of(t->rows, first / LS_LANES);
        const float *from = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < LS_LANES; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    lanes[e * LS_LANES + (size_t)l] = l < rows ? from[(size_t)l * row + e] : 0;
    }
}

void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = ls_lanes_rows_of(t->rows, first / LS_LANES);
        float *to = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < rows; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    to[(size_t)l * row + e] = lanes[e * LS_LANES + (size_t)l];
    }
}

/* ---- common parts of ops --------------------------------------------------------------------- */

void ls_lanes_op_set_y(ls_lanes_op *op, int c, int h, int w)
{
    ls_tensor y = {LS_F32, op->op.y.rows, c, h, w, NULL, 0};
    op->op.y = ls_lanes_tensor(&y);
}

ls_lanes_op *ls_lanes_op_alloc(size_t size, const ls_op_impl *impl, const ls_cpu_device *device,
                               const ls_op_desc *desc)
{
    ls_lanes_op *op = ls_alloc(device->host, size);
    if (!op)
        return NULL;
    op->op.impl = impl;
    op->op.y.rows = desc->x.rows;
    op->host = device->host;
    op->kernels = device->kernels;
    op->team = device->team;
    op->packets = (int)packets_of(desc->x.rows);
    op->training = desc->training;
    op->needs_dx = desc->needs_dx;
    op->op.kernel = "plain C";
    return op;
}

int ls_lanes_op_new(ls_lanes_op **out, size_t size, const ls_op_impl *impl,
                    const ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    if (desc->x.layout != &ls_layout_lanes)
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: the tensor does not lie in lanes");
    if (desc->twin && desc->twin->impl != impl)
        return ls_fail(err, LS_EINVAL, "lanes: the twin is an op of another kind");
    ls_lanes_op *op = ls_lanes_op_alloc(size, impl, device, desc);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "lanes: out of memory for an op");
    snprintf(op->kernel, sizeof op->kernel, "lanes:%s", op->kernels->name);
    op->op.kernel = op->kernel;
    *out = op;
    return LS_OK;
}

int ls_lanes_op_finish(ls_op **out, ls_lanes_op *op, const ls_op_desc *desc, ls_error *err)
{
    const ls_lanes_op *twin = (const ls_lanes_op *)desc->twin;
    for (int i = 0; twin && i < LS_OP_PARAMS; i++) {
        if (twin->op.param_floats[i] == op->op.param_floats[i] &&
            twin->forward.work == op->forward.work)
            continue;
        /* `destroy` also frees memory that ops of this kind allocate themselves */
        op->op.impl->destroy(&op->op);
        return ls_fail(err, LS_EINVAL, "lanes: the twin is another layer's");
    }
    *out = &op->op;
    return LS_OK;
}

void ls_lanes_op_set_params(ls_lanes_op *op, int outputs, int elements, int block, bool bias)
{
    const size_t padded = (size_t)(outputs + block - 1) / (size_t)block * (size_t)block;
    op->outputs = outputs;
    op->elements = elements;
    op->block = block;
    op->op.params = bias ? 2 : 1;
    op->op.param_floats[0] = padded * (size_t)elements;
    op->op.param_floats[1] = bias ? padded : 0;
}

/* ---- the passes ------------------------------------------------------------------------------ */

static int run(ls_op *base, unsigned flags, const ls_lanes_pass *pass)
{
    ls_lanes_op *op = (ls_lanes_op *)base;
    op->flags = flags;
    ls_team_run(op->team, pass->items, pass->work, op);
    return LS_OK;
}

int ls_lanes_op_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    (void)stream;
    (void)err;
    return run(op, flags, &((ls_lanes_op *)op)->forward);
}

int ls_lanes_op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_lanes_op *op = (ls_lanes_op *)base;
    (void)stream;
    (void)err;
    run(base, flags, &op->gradients);
    return op->needs_dx ? run(base, flags, &op->dx) : LS_OK;
}

int ls_lanes_op_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    (void)err;
    ((ls_lanes_op *)op)->b = *buffers;
    return LS_OK;
}

void ls_lanes_op_destroy(ls_op *op)
{
    if (op)
        ls_free(((ls_lanes_op *)op)->host, op);
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Returns the number of elements per output of parameter `index`; 0 if there is no such
 * parameter. */
static int elements_of(const ls_op *op, int index, ls_error *err)
{
    if (index >= 0 && index < op->params)
        return index == 0 ? ((const ls_lanes_op *)op)->elements : 1;
    ls_fail(err, LS_EINVAL, "there is no parameter %d", index);
    return 0;
}

int ls_lanes_op_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    const ls_lanes_op *op = (const ls_lanes_op *)base;
    const int elements = elements_of(base, index, err);
    if (!elements)
        return LS_EINVAL;
    memset(dst, 0, base->param_floats[index] * sizeof *src);
    for (int o = 0; o < op->outputs; o++)
        for (int e = 0; e < elements; e++)
            ((float *)dst)[ls_lanes_place(op->block, elements, o, e)] = *src++;
    return LS_OK;
}

int ls_lanes_op_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    const ls_lanes_op *op = (const ls_lanes_op *)base;
    const int elements = elements_of(base, index, err);
    if (!elements)
        return LS_EINVAL;
    for (int o = 0; o < op->outputs; o++)
        for (int e = 0; e < elements; e++)
            *dst++ = ((const float *)src)[ls_lanes_place(op->block, elements, o, e)];
    return LS_OK;
}

const ls_op_impl ls_lanes_passes = LS_LANES_IMPL(ls_lanes_op_forward, ls_lanes_op_backward);
