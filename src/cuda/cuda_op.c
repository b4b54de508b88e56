/* SPDX-License-Identifier: MIT */
/* The parts that all ops of the CUDA back end share: memory, conversion of tensors between their
 * forms, and parameters. */
#include "cuda/cuda_op.h"

#include <stdint.h>
#include <string.h>

struct ls_layout {
    const char *name;
};
const ls_layout ls_cuda_channels_last = {"nhwc"};
const ls_layout ls_cuda_channels_last_half = {"nhwc bf16"};

static ls_cuda_op *self_of(ls_op *op)
{
    return (ls_cuda_op *)op;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Returns true if row-major and channels last differ for this tensor. */
static bool has_two_orders(const ls_tensor *t)
{
    return t->c > 1 && (t->h > 1 || t->w > 1);
}

ls_cuda_form ls_cuda_form_of(const ls_tensor *tensor)
{
    if (tensor->layout == &ls_cuda_channels_last_half)
        return LS_FORM_HALF;
    return !tensor->layout && has_two_orders(tensor) ? LS_FORM_PLAIN : LS_FORM_LAST;
}

size_t ls_cuda_elements(const ls_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->c * (size_t)tensor->h * (size_t)tensor->w;
}

static size_t bytes_in(const ls_tensor *tensor, ls_cuda_form form)
{
    return ls_cuda_elements(tensor) * (form == LS_FORM_HALF ? sizeof(uint16_t) : sizeof(float));
}

ls_tensor ls_cuda_tensor(int rows, int c, int h, int w, ls_cuda_form form)
{
    static const ls_layout *const layouts[] = {NULL, &ls_cuda_channels_last,
                                               &ls_cuda_channels_last_half};
    ls_tensor t = {LS_F32, rows, c, h, w, NULL, 0};
    if (has_two_orders(&t))
        t.layout = layouts[form];
    t.bytes = bytes_in(&t, ls_cuda_form_of(&t));
    return t;
}

/* ---- memory --------------------------------------------------------------------------------- */

static ls_cuda_room reserve(size_t *total, size_t bytes, bool saved)
{
    ls_cuda_room room = {*total, bytes, saved};
    *total += (bytes + 255) / 256 * 256;
    return room;
}

ls_cuda_room ls_cuda_saved(ls_cuda_op *op, size_t bytes)
{
    return reserve(&op->op.saved_bytes, bytes, true);
}

ls_cuda_room ls_cuda_scratch(ls_cuda_op *op, size_t bytes)
{
    return reserve(&op->op.scratch_bytes, bytes, false);
}

void *ls_cuda_at(const ls_cuda_op *op, const ls_cuda_room *room)
{
    char *base = room->saved ? op->b.saved : op->b.scratch;
    return room->bytes > 0 ? base + room->at : NULL;
}

/* ---- converting inputs and gradients -------------------------------------------------------- */

int ls_cuda_done(const ls_cuda_op *op, cudaError_t error, ls_error *err)
{
    return cuda_check(err, error, "%s: %s", op->device->name, op->name);
}

/* Returns the form in which an op that asks for `form` uses a tensor. It is `form`, except that
 * row-major counts as channels last if both orders of the tensor are the same. */
static ls_cuda_form effective(const ls_tensor *t, ls_cuda_form form)
{
    return form == LS_FORM_PLAIN && !has_two_orders(t) ? LS_FORM_LAST : form;
}

void ls_cuda_use_x(ls_cuda_op *op, ls_cuda_form form, int again)
{
    const ls_op_desc *d = &op->desc;
    const ls_cuda_form comes = ls_cuda_form_of(&d->x);
    op->x_form = effective(&d->x, form);
    if (op->x_form == comes)
        return;
    const size_t bytes = bytes_in(&d->x, op->x_form);
    op->x = again && d->training ? ls_cuda_saved(op, bytes) : ls_cuda_scratch(op, bytes);
    op->dx = ls_cuda_scratch(op, d->training && d->needs_dx ? bytes : 0);
    if (op->x_form != LS_FORM_LAST && comes != LS_FORM_LAST)
        op->between = ls_cuda_scratch(op, bytes_in(&d->x, LS_FORM_LAST));
}

void ls_cuda_use_x2(ls_cuda_op *op, ls_cuda_form form, int again)
{
    const ls_op_desc *d = &op->desc;
    op->x2_form = effective(&d->x2, form);
    if (op->x2_form == ls_cuda_form_of(&d->x2))
        return;
    const size_t bytes = bytes_in(&d->x2, op->x2_form);
    op->x2 = again && d->training ? ls_cuda_saved(op, bytes) : ls_cuda_scratch(op, bytes);
    op->dx2 = ls_cuda_scratch(op, d->training && d->needs_dx ? bytes : 0);
}

/* Converts between fp32 channels last and one of the other two forms. */
static cudaError_t one_step(void *to, ls_cuda_form to_form, const void *from,
                            ls_cuda_form from_form, const ls_tensor *t, cudaStream_t stream)
{
    if (to_form == LS_FORM_HALF)
        return ls_k_to_bf16(to, from, ls_cuda_elements(t), stream);
    if (from_form == LS_FORM_HALF)
        return ls_k_from_bf16(to, from, ls_cuda_elements(t), 0, stream);
    return to_form == LS_FORM_LAST ? ls_k_transpose(to, from, t->rows, t->c, t->h * t->w, stream)
                                   : ls_k_transpose(to, from, t->rows, t->h * t->w, t->c, stream);
}

static int convert(ls_cuda_op *op, void *to, ls_cuda_form to_form, const void *from,
                   ls_cuda_form from_form, const ls_tensor *t, cudaStream_t stream, ls_error *err)
{
    void *between = ls_cuda_at(op, &op->between);
    if (to_form == LS_FORM_LAST || from_form == LS_FORM_LAST)
        return ls_cuda_done(op, one_step(to, to_form, from, from_form, t, stream), err);
    int status = ls_cuda_done(op, one_step(between, LS_FORM_LAST, from, from_form, t, stream), err);
    return status ? status
                  : ls_cuda_done(op, one_step(to, to_form, between, LS_FORM_LAST, t, stream), err);
}

/* Returns the memory reserved for a converted tensor if there is any, else the caller's tensor. */
static void *in_room(const ls_cuda_op *op, const ls_cuda_room *room, const void *callers)
{
    void *at = ls_cuda_at(op, room);
    return at ? at : (void *)callers;
}

const void *ls_cuda_x(const ls_cuda_op *op)
{
    return in_room(op, &op->x, op->b.x);
}

const void *ls_cuda_x2(const ls_cuda_op *op)
{
    return in_room(op, &op->x2, op->b.x2);
}

void *ls_cuda_dx(const ls_cuda_op *op)
{
    return in_room(op, &op->dx, op->b.dx);
}

void *ls_cuda_dx2(const ls_cuda_op *op)
{
    return in_room(op, &op->dx2, op->b.dx2);
}

/* Converts a caller's tensor to the op's form, into the memory `room`. If `room` has no memory, the
 * tensor is in the op's form already, and the function does nothing. */
static int convert_input(ls_cuda_op *op, const ls_cuda_room *room, ls_cuda_form form,
                         const void *from, const ls_tensor *t, cudaStream_t on, ls_error *err)
{
    void *to = ls_cuda_at(op, room);
    return to ? convert(op, to, form, from, ls_cuda_form_of(t), t, on, err) : LS_OK;
}

/* Converts a gradient from the op's form to the caller's. If `room` has no memory, the gradient is
 * in the caller's form already, and the function does nothing. */
static int convert_gradient_back(ls_cuda_op *op, void *to, const ls_cuda_room *room,
                                 ls_cuda_form form, const ls_tensor *t, cudaStream_t on,
                                 ls_error *err)
{
    const void *from = ls_cuda_at(op, room);
    return from ? convert(op, to, ls_cuda_form_of(t), from, form, t, on, err) : LS_OK;
}

/* ---- the op's table -------------------------------------------------------------------------- */

static int missing(const ls_cuda_op *op, const char *what, ls_error *err)
{
    return ls_fail(err, LS_EINVAL, "%s: bind needs `%s`", op->name, what);
}

static int op_bind(ls_op *base, const ls_op_buffers *b, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    for (int i = 0; i < base->params; i++)
        if (!b->param[i] || (op->desc.training && !b->grad[i]))
            return missing(op, b->param[i] ? "grad" : "param", err);
    for (int i = 0; i < base->params && op->needs_shadow; i++)
        if (!b->shadow[i] || (op->desc.training && !b->shadow_grad[i]))
            return missing(op, b->shadow[i] ? "shadow_grad" : "shadow", err);
    if (base->y.bytes > 0 && (!b->x || !b->y))
        return missing(op, b->x ? "y" : "x", err);
    if (base->saved_bytes > 0 && !b->saved)
        return missing(op, "saved", err);
    if (base->scratch_bytes > 0 && !b->scratch)
        return missing(op, "scratch", err);
    op->b = *b;
    op->bound = true;
    return LS_OK;
}

static int enqueue(ls_cuda_op *op, const ls_cuda_work *work, ls_stream *on, unsigned flags,
                   ls_error *err)
{
    op->flags = flags;
    return work->kernels ? ls_cuda_done(op, work->kernels(op, on->cuda), err)
                         : work->pass(op, on, err);
}

static int op_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    ls_stream *on = ls_cuda_stream_of(op->device, stream);
    if (!op->bound)
        return ls_fail(err, LS_EINVAL, "%s: bind must be called before forward and backward",
                       op->name);
    int status = convert_input(op, &op->x, op->x_form, op->b.x, &op->desc.x, on->cuda, err);
    if (status == LS_OK)
        status = convert_input(op, &op->x2, op->x2_form, op->b.x2, &op->desc.x2, on->cuda, err);
    return status ? status : enqueue(op, &op->forward, on, flags, err);
}

static int op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    ls_stream *on = ls_cuda_stream_of(op->device, stream);
    if (!op->desc.training)
        return ls_fail(err, LS_EINVAL, "%s: backward needs an op that was created with `training`",
                       op->name);
    if (!op->bound)
        return ls_fail(err, LS_EINVAL, "%s: bind must be called before forward and backward",
                       op->name);
    if (base->params == 0 && !op->desc.needs_dx)
        return LS_OK;
    int status = enqueue(op, &op->backward, on, flags, err);
    if (status == LS_OK)
        status =
            convert_gradient_back(op, op->b.dx, &op->dx, op->x_form, &op->desc.x, on->cuda, err);
    return status ? status
                  : convert_gradient_back(op, op->b.dx2, &op->dx2, op->x2_form, &op->desc.x2,
                                          on->cuda, err);
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* to[r][j][i] ← from[r][i][j] */
static void turn(float *to, const float *from, int rows, int a, int b)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < a; i++)
            for (int j = 0; j < b; j++)
                to[((size_t)r * (size_t)b + (size_t)j) * (size_t)a + (size_t)i] =
                    from[((size_t)r * (size_t)a + (size_t)i) * (size_t)b + (size_t)j];
}

static int check_param(const ls_cuda_op *op, int index, ls_error *err)
{
    if (index >= 0 && index < op->op.params)
        return LS_OK;
    return ls_fail(err, LS_EINVAL, "%s: there is no parameter %d", op->name, index);
}

static int no_memory(const ls_cuda_op *op, ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "%s: out of memory for %s", op->device->name, op->name);
}

static int op_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    ls_device *device = &op->device->device;
    int status = check_param(op, index, err);
    if (status)
        return status;
    size_t bytes = base->param_floats[index] * sizeof(float);
    if (op->turned[index].rows == 0)
        return ls_cuda_upload(device, NULL, dst, src, bytes, err);
    float *turned = ls_alloc(op->device->host, bytes);
    if (!turned)
        return no_memory(op, err);
    turn(turned, src, op->turned[index].rows, op->turned[index].a, op->turned[index].b);
    status = ls_cuda_upload(device, NULL, dst, turned, bytes, err);
    ls_free(op->device->host, turned);
    return status;
}

static int op_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    int status = check_param(op, index, err);
    if (status)
        return status;
    size_t bytes = base->param_floats[index] * sizeof(float);
    float *lying = op->turned[index].rows > 0 ? ls_alloc(op->device->host, bytes) : dst;
    if (!lying)
        return no_memory(op, err);
    status = ls_cuda_download(&op->device->device, NULL, lying, src, bytes, err);
    if (status == LS_OK)
        status = ls_cuda_sync(&op->device->device, op->device->compute, err);
    if (status == LS_OK && lying != dst)
        turn(dst, lying, op->turned[index].rows, op->turned[index].b, op->turned[index].a);
    if (lying != dst)
        ls_free(op->device->host, lying);
    return status;
}

void ls_cuda_op_param(ls_cuda_op *op, int rows, int a, int b)
{
    int index = op->op.params++;
    op->op.param_floats[index] = (size_t)(rows > 0 ? rows : 1) * (size_t)a * (size_t)b;
    if (rows > 0 && a > 1 && b > 1) {
        op->turned[index].rows = rows;
        op->turned[index].a = a;
        op->turned[index].b = b;
    }
}

/* ---- create and destroy --------------------------------------------------------------------- */

/* Checks that the twin (the op of the same layer for another number of rows), if there is one, has
 * the same parameters in the same order. */
static int match_twin(const ls_cuda_op *op, ls_error *err)
{
    const ls_cuda_op *twin = (const ls_cuda_op *)op->desc.twin;
    for (int i = 0; twin && i < LS_OP_PARAMS; i++)
        if (twin->op.param_floats[i] != op->op.param_floats[i] ||
            memcmp(&twin->turned[i], &op->turned[i], sizeof op->turned[i]) != 0)
            return ls_fail(err, LS_EINVAL, "%s: the twin is an op of another layer", op->name);
    return LS_OK;
}

static void op_destroy(ls_op *base)
{
    if (!base)
        return;
    ls_cuda_op *op = self_of(base);
    for (int p = 0; p < LS_PASSES; p++)
        ls_math_plan_destroy(op->plan[p]);
    ls_free(op->device->host, op);
}

static const ls_op_impl layer_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .backward = op_backward,
    .import_param = op_import,
    .export_param = op_export,
    .destroy = op_destroy,
};
static const ls_op_impl forward_only_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .destroy = op_destroy,
};

int ls_cuda_op_make(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc, const char *name,
                    ls_cuda_setup *setup, ls_error *err)
{
    const ls_cuda_op *twin = (const ls_cuda_op *)desc->twin;
    if (twin && twin->desc.kind != desc->kind)
        return ls_fail(err, LS_EINVAL, "%s: the twin is an op of another layer", name);
    ls_cuda_op *op = ls_alloc(device->host, sizeof *op);
    if (!op)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for %s", device->name, name);
    op->device = device;
    op->desc = *desc;
    op->name = name;
    op->op.kernel = "cuda";
    op->m = (size_t)desc->x.rows * (size_t)desc->x.h * (size_t)desc->x.w;
    int status = setup(op, err);
    if (status == LS_OK)
        status = match_twin(op, err);
    if (status) {
        op_destroy(&op->op);
        return status;
    }
    const bool is_layer = op->backward.pass || op->backward.kernels;
    op->op.impl = is_layer ? &layer_impl : &forward_only_impl;
    *out = &op->op;
    return LS_OK;
}
