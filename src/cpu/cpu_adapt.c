#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes.h"

#include <stdio.h>

/* Buffers: saved is [x in lanes | the inner op's], scratch is [dx in lanes | the larger of the
 * inner op's and the program's]. */
typedef struct adapt_op {
    ls_op op; /* first */
    ls_cpu_device *device;
    ls_op *inner;
    size_t lanes_bytes; /* of x */
    int dx_in_forward;  /* the loss writes dx there */
    int needs_dx;
    ls_program x_program, dx_program;
    char kernel[160];
} adapt_op;

static int adapt_bind(ls_op *op, const ls_op_buffers *b, ls_error *err)
{
    adapt_op *a = (adapt_op *)op;
    char *saved = b->saved, *scratch = b->scratch;
    char *dx = a->needs_dx ? scratch : NULL;
    char *rest = scratch ? scratch + (a->needs_dx ? a->lanes_bytes : 0) : NULL;
    ls_op_buffers in = {.x = b->x, .y = saved, .scratch = rest};
    ls_op_buffers back = {.x = dx, .y = b->dx, .scratch = rest};
    ls_op_buffers inner = *b;
    inner.x = saved;
    inner.dx = dx;
    inner.saved = saved + a->lanes_bytes;
    inner.scratch = rest;
    int status = ls_program_bind(&a->x_program, &in, err);
    if (status == LS_OK)
        status = ls_program_bind(&a->dx_program, &back, err);
    return status == LS_OK ? a->inner->impl->bind(a->inner, &inner, err) : status;
}

static int adapt_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    adapt_op *a = (adapt_op *)op;
    int status = ls_program_forward(&a->x_program, 0, err);
    if (status == LS_OK)
        status = a->inner->impl->forward(a->inner, stream, flags, err);
    if (status == LS_OK && a->needs_dx && a->dx_in_forward)
        status = ls_program_forward(&a->dx_program, 0, err);
    return status;
}

static int adapt_backward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    adapt_op *a = (adapt_op *)op;
    int status = a->inner->impl->backward(a->inner, stream, flags, err);
    if (status == LS_OK && a->needs_dx)
        status = ls_program_forward(&a->dx_program, 0, err);
    return status;
}

static int adapt_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    ls_op *inner = ((adapt_op *)op)->inner;
    return inner->impl->import_param(inner, index, dst, src, err);
}

static int adapt_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    ls_op *inner = ((adapt_op *)op)->inner;
    return inner->impl->export_param(inner, index, dst, src, err);
}

static void adapt_destroy(ls_op *op)
{
    adapt_op *a = (adapt_op *)op;
    if (!a)
        return;
    if (a->inner)
        a->inner->impl->destroy(a->inner);
    ls_program_fini(&a->x_program);
    ls_program_fini(&a->dx_program);
    ls_free(a->device->host, a);
}

static const ls_op_impl adapt_impl = {
    .size = sizeof(ls_op_impl),
    .bind = adapt_bind,
    .forward = adapt_forward,
    .backward = adapt_backward,
    .import_param = adapt_import,
    .export_param = adapt_export,
    .destroy = adapt_destroy,
};

/* Around the loss, which writes dx in forward and has no parameters. */
static const ls_op_impl adapt_loss_impl = {
    .size = sizeof(ls_op_impl),
    .bind = adapt_bind,
    .forward = adapt_forward,
    .destroy = adapt_destroy,
};

static int build_programs(adapt_op *a, const ls_op_desc *desc)
{
    ls_tensor lanes = ls_lanes_tensor(&desc->x);
    ls_program *x = &a->x_program, *dx = &a->dx_program;
    ls_program_copy(x, ls_program_tensor(x, &desc->x, LS_AT_X),
                    ls_program_tensor(x, &lanes, LS_AT_Y));
    if (desc->needs_dx)
        ls_program_copy(dx, ls_program_tensor(dx, &lanes, LS_AT_X),
                        ls_program_tensor(dx, &desc->x, LS_AT_Y));
    return x->status ? x->status : dx->status;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void set_sizes(adapt_op *a)
{
    const ls_op *inner = a->inner;
    a->op.y = inner->y;
    a->op.params = inner->params;
    for (int i = 0; i < LS_OP_PARAMS; i++)
        a->op.param_floats[i] = inner->param_floats[i];
    a->op.saved_bytes = a->lanes_bytes + inner->saved_bytes;
    size_t rest =
        larger(ls_program_scratch_bytes(&a->x_program), ls_program_scratch_bytes(&a->dx_program));
    a->op.scratch_bytes = (a->needs_dx ? a->lanes_bytes : 0) + larger(rest, inner->scratch_bytes);
    snprintf(a->kernel, sizeof a->kernel, "%s (x packed into lanes)", inner->kernel);
    a->op.kernel = a->kernel;
}

int ls_cpu_adapt_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_op_desc inner = *desc;
    *out = NULL;
    adapt_op *a = ls_alloc(device->host, sizeof *a);
    if (!a)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op");
    inner.x = ls_lanes_tensor(&desc->x);
    a->dx_in_forward = desc->kind == LS_OP_SOFTMAX_XENT;
    a->op.impl = a->dx_in_forward ? &adapt_loss_impl : &adapt_impl;
    a->device = device;
    a->lanes_bytes = inner.x.bytes;
    a->needs_dx = desc->needs_dx;
    ls_program_init(&a->x_program, device, "packing", err);
    ls_program_init(&a->dx_program, device, "unpacking", err);
    int status = ls_lanes_op_create(&a->inner, device, &inner, err);
    if (status == LS_OK)
        status = build_programs(a, desc);
    if (status) {
        adapt_destroy(&a->op);
        return status;
    }
    set_sizes(a);
    *out = &a->op;
    return LS_OK;
}

const ls_op *ls_cpu_adapt_inner(const ls_op *op)
{
    return op && op->impl == &adapt_impl ? ((const adapt_op *)op)->inner : op;
}
