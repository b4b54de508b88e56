#include "cuda/cuda_op.h"

#include <string.h>

struct ls_layout {
    const char *name;
};
const ls_layout ls_cuda_channels_last = {"nhwc"};

static ls_cuda_op *self_of(ls_op *op)
{
    return (ls_cuda_op *)op;
}

/* ---- tensors -------------------------------------------------------------------------------- */

const ls_layout *ls_cuda_layout(const ls_tensor *shape)
{
    return shape->c > 1 && (shape->h > 1 || shape->w > 1) ? &ls_cuda_channels_last : NULL;
}

int ls_cuda_is_plain(const ls_tensor *tensor)
{
    return !tensor->layout && ls_cuda_layout(tensor);
}

size_t ls_cuda_elements(const ls_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->c * (size_t)tensor->h * (size_t)tensor->w;
}

ls_tensor ls_cuda_tensor(int rows, int c, int h, int w, int channels_last)
{
    ls_tensor t = {LS_F32, rows, c, h, w, NULL, 0};
    t.bytes = ls_cuda_elements(&t) * sizeof(float);
    t.layout = channels_last ? ls_cuda_layout(&t) : NULL;
    return t;
}

/* ---- memory --------------------------------------------------------------------------------- */

static ls_cuda_room reserve(size_t *total, size_t bytes, int saved)
{
    ls_cuda_room room = {*total, bytes, saved};
    *total += (bytes + 255) / 256 * 256;
    return room;
}

ls_cuda_room ls_cuda_saved(ls_cuda_op *op, size_t bytes)
{
    return reserve(&op->op.saved_bytes, bytes, 1);
}

ls_cuda_room ls_cuda_scratch(ls_cuda_op *op, size_t bytes)
{
    return reserve(&op->op.scratch_bytes, bytes, 0);
}

void *ls_cuda_at(const ls_cuda_op *op, const ls_cuda_room *room)
{
    char *base = room->saved ? op->b.saved : op->b.scratch;
    return room->bytes > 0 ? base + room->at : NULL;
}

/* ---- turning inputs and gradients ----------------------------------------------------------- */

int ls_cuda_done(const ls_cuda_op *op, cudaError_t error, ls_error *err)
{
    return cuda_check(err, error, "%s: %s", op->device->name, op->name);
}

static cudaError_t to_channels_last(float *to, const float *from, const ls_tensor *t,
                                    cudaStream_t stream)
{
    return ls_k_transpose(to, from, t->rows, t->c, t->h * t->w, stream);
}

static cudaError_t to_row_major(float *to, const float *from, const ls_tensor *t,
                                cudaStream_t stream)
{
    return ls_k_transpose(to, from, t->rows, t->h * t->w, t->c, stream);
}

int ls_cuda_take_x(const float **out, ls_cuda_op *op, cudaStream_t stream, int fresh, ls_error *err)
{
    const ls_tensor *t = &op->desc.x;
    float *turned = ls_cuda_at(op, &op->x);
    *out = op->x_turned ? turned : op->b.x;
    if (!op->x_turned || !fresh)
        return LS_OK;
    return ls_cuda_done(op, to_channels_last(turned, op->b.x, t, stream), err);
}

/* x2 as x lies, whichever way that is. */
int ls_cuda_take_x2(const float **out, ls_cuda_op *op, cudaStream_t stream, ls_error *err)
{
    const ls_tensor *t = &op->desc.x2;
    float *turned = ls_cuda_at(op, &op->x2);
    *out = op->x2_turned ? turned : op->b.x2;
    if (!op->x2_turned)
        return LS_OK;
    return ls_cuda_done(op,
                        ls_cuda_is_plain(t) ? to_channels_last(turned, op->b.x2, t, stream)
                                            : to_row_major(turned, op->b.x2, t, stream),
                        err);
}

float *ls_cuda_dx(ls_cuda_op *op)
{
    return op->x_turned ? ls_cuda_at(op, &op->dx) : op->b.dx;
}

float *ls_cuda_dx2(ls_cuda_op *op)
{
    return op->x2_turned ? ls_cuda_at(op, &op->dx2) : op->b.dx2;
}

int ls_cuda_give_dx(ls_cuda_op *op, cudaStream_t stream, ls_error *err)
{
    if (!op->x_turned)
        return LS_OK;
    return ls_cuda_done(op, to_row_major(op->b.dx, ls_cuda_dx(op), &op->desc.x, stream), err);
}

int ls_cuda_give_dx2(ls_cuda_op *op, cudaStream_t stream, ls_error *err)
{
    const ls_tensor *t = &op->desc.x2;
    if (!op->x2_turned)
        return LS_OK;
    return ls_cuda_done(op,
                        ls_cuda_is_plain(t)
                            ? to_row_major(op->b.dx2, ls_cuda_dx2(op), t, stream)
                            : to_channels_last(op->b.dx2, ls_cuda_dx2(op), t, stream),
                        err);
}

/* ---- the table of an op --------------------------------------------------------------------- */

static int missing(const ls_cuda_op *op, const char *what, ls_error *err)
{
    return ls_cuda_error(err, LS_EINVAL, "%s: bind needs `%s`", op->name, what);
}

static int op_bind(ls_op *base, const ls_op_buffers *b, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    for (int i = 0; i < base->params; i++)
        if (!b->param[i] || (op->desc.training && !b->grad[i]))
            return missing(op, b->param[i] ? "grad" : "param", err);
    if (base->y.bytes > 0 && (!b->x || !b->y))
        return missing(op, b->x ? "y" : "x", err);
    if (base->saved_bytes > 0 && !b->saved)
        return missing(op, "saved", err);
    if (base->scratch_bytes > 0 && !b->scratch)
        return missing(op, "scratch", err);
    op->b = *b;
    op->bound = 1;
    return LS_OK;
}

static int run(ls_cuda_op *op, ls_cuda_pass *pass, ls_stream *stream, unsigned flags, ls_error *err)
{
    if (!op->bound)
        return ls_cuda_error(err, LS_EINVAL, "%s: it is run before bind", op->name);
    return pass(op, stream, flags, err);
}

static int op_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    return run(self_of(op), self_of(op)->forward, stream, flags, err);
}

static int op_backward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    if (!self_of(op)->desc.training)
        return ls_cuda_error(err, LS_EINVAL, "%s: backward of an op that is not for training",
                             self_of(op)->name);
    return run(self_of(op), self_of(op)->backward, stream, flags, err);
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
    return ls_cuda_error(err, LS_EINVAL, "%s: there is no parameter %d", op->name, index);
}

static int no_memory(const ls_cuda_op *op, ls_error *err)
{
    return ls_cuda_error(err, LS_ENOMEM, "%s: out of memory for %s", op->device->name, op->name);
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
    float *turned = ls_cuda_host_alloc(op->device->host, bytes);
    if (!turned)
        return no_memory(op, err);
    turn(turned, src, op->turned[index].rows, op->turned[index].a, op->turned[index].b);
    status = ls_cuda_upload(device, NULL, dst, turned, bytes, err);
    ls_cuda_host_free(op->device->host, turned);
    return status;
}

static int op_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    ls_cuda_op *op = self_of(base);
    int status = check_param(op, index, err);
    if (status)
        return status;
    size_t bytes = base->param_floats[index] * sizeof(float);
    float *lying = op->turned[index].rows > 0 ? ls_cuda_host_alloc(op->device->host, bytes) : dst;
    if (!lying)
        return no_memory(op, err);
    status = ls_cuda_download(&op->device->device, NULL, lying, src, bytes, err);
    if (status == LS_OK)
        status = ls_cuda_sync(op->device, op->device->compute, err);
    if (status == LS_OK && lying != dst)
        turn(dst, lying, op->turned[index].rows, op->turned[index].b, op->turned[index].a);
    if (lying != dst)
        ls_cuda_host_free(op->device->host, lying);
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

int ls_cuda_op_match_twin(const ls_cuda_op *op, ls_error *err)
{
    const ls_cuda_op *twin = (const ls_cuda_op *)op->desc.twin;
    for (int i = 0; twin && i < LS_OP_PARAMS; i++)
        if (twin->op.param_floats[i] != op->op.param_floats[i] ||
            memcmp(&twin->turned[i], &op->turned[i], sizeof op->turned[i]) != 0)
            return ls_cuda_error(err, LS_EINVAL, "%s: the twin is another layer's", op->name);
    return LS_OK;
}

/* ---- create and destroy --------------------------------------------------------------------- */

static const ls_op_impl layer_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .backward = op_backward,
    .import_param = op_import,
    .export_param = op_export,
    .destroy = ls_cuda_op_destroy,
};
static const ls_op_impl forward_only_impl = {
    .size = sizeof(ls_op_impl),
    .bind = op_bind,
    .forward = op_forward,
    .destroy = ls_cuda_op_destroy,
};

int ls_cuda_op_new(ls_cuda_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                   const char *name, ls_error *err)
{
    const ls_cuda_op *twin = (const ls_cuda_op *)desc->twin;
    *out = NULL;
    if (twin && twin->desc.kind != desc->kind)
        return ls_cuda_error(err, LS_EINVAL, "%s: the twin is another layer's", name);
    ls_cuda_op *op = ls_cuda_host_alloc(device->host, sizeof *op);
    if (!op)
        return ls_cuda_error(err, LS_ENOMEM, "%s: out of memory for %s", device->name, name);
    op->device = device;
    op->desc = *desc;
    op->name = name;
    op->op.kernel = op->kernel;
    op->m = (size_t)desc->x.rows * (size_t)desc->x.h * (size_t)desc->x.w;
    *out = op;
    return LS_OK;
}

int ls_cuda_op_finish(ls_op **out, ls_cuda_op *op, int status)
{
    *out = NULL;
    if (status) {
        ls_cuda_op_destroy(&op->op);
        return status;
    }
    op->op.impl = op->backward ? &layer_impl : &forward_only_impl;
    *out = &op->op;
    return LS_OK;
}

void ls_cuda_op_destroy(ls_op *base)
{
    if (!base)
        return;
    ls_cuda_op *op = self_of(base);
    if (op->release)
        op->release(op);
    for (int p = 0; p < LS_PASSES; p++)
        ls_math_plan_destroy(op->plan[p]);
    ls_cuda_host_free(op->device->host, op);
}
