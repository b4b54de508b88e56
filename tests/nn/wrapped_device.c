/* SPDX-License-Identifier: MIT */
#include "nn/wrapped_device.h"

#include "base/error.h"

static wrapped_device *of(ls_device *device)
{
    return (wrapped_device *)device;
}

static void wrap_describe(const ls_device *device, ls_device_info *out)
{
    const wrapped_device *w = (const wrapped_device *)device;
    w->inner->ops->describe(w->inner, out);
    out->block_rows = w->block_rows;
    if (!w->host_memory)
        out->flags &= ~(unsigned)LS_DEVICE_HOST_MEMORY;
}

static int wrap_bind(ls_device *device, ls_error *err)
{
    return of(device)->inner->ops->bind(of(device)->inner, err);
}

static void wrap_close(ls_device *device)
{
    of(device)->inner->ops->close(of(device)->inner);
}

static int wrap_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    return of(device)->inner->ops->alloc(out, of(device)->inner, bytes, err);
}

static void wrap_free(ls_device *device, void *memory)
{
    of(device)->inner->ops->free(of(device)->inner, memory);
}

static int wrap_copy(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                     ls_error *err)
{
    return of(device)->inner->ops->copy(of(device)->inner, stream, dst, src, bytes, err);
}

static int wrap_download(ls_device *device, ls_stream *stream, void *dst, const void *src,
                         size_t bytes, ls_error *err)
{
    wrapped_device *w = of(device);
    if (w->fail_download && --w->fail_download == 0)
        return ls_fail(err, LS_EDEVICE, "wrapped: nothing comes home");
    w->under_way++;
    return wrap_copy(device, stream, dst, src, bytes, err);
}

static int wrap_add(ls_device *device, ls_stream *stream, float *dst, const float *a,
                    const float *b, size_t count, ls_error *err)
{
    return of(device)->inner->ops->add(of(device)->inner, stream, dst, a, b, count, err);
}

static int wrap_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    of(device)->under_way = 0;
    return of(device)->inner->ops->sync(of(device)->inner, stream, err);
}

static int is_layer(ls_op_kind kind)
{
    return kind == LS_OP_CONV2D || kind == LS_OP_DENSE || kind == LS_OP_POOL || kind == LS_OP_RELU;
}

static int wrap_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    wrapped_device *w = of(device);
    if (w->decline_fused && (desc->fuse_relu || desc->fuse_pool))
        return ls_fail(err, LS_EUNSUPPORTED, "wrapped: nothing is fused");
    if (w->fail_op && !desc->fuse_pool && ++w->ops == w->fail_op)
        return ls_fail(err, LS_EDEVICE, "wrapped: no");
    int rc = w->inner->ops->op_create(out, w->inner, desc, err);
    if (rc == LS_OK && desc->kind == LS_OP_GATHER && !desc->training)
        (*out)->y.bytes += w->more_in_evaluation;
    if (rc == LS_OK && is_layer(desc->kind)) {
        if (w->layer_ops++ == 0)
            w->rows_of_first_layer_op = desc->x.rows;
        w->twins += desc->twin != NULL;
    }
    return rc;
}

static const ls_device_ops ops = {
    .size = sizeof(ls_device_ops),
    .describe = wrap_describe,
    .bind = wrap_bind,
    .close = wrap_close,
    .alloc = wrap_alloc,
    .free = wrap_free,
    .upload = wrap_copy,
    .download = wrap_download,
    .copy = wrap_copy,
    .add = wrap_add,
    .sync = wrap_sync,
    .op_create = wrap_op_create,
};

void wrap_device(wrapped_device *w, ls_device *inner, int block_rows)
{
    *w = (wrapped_device){
        .device = {&ops}, .inner = inner, .block_rows = block_rows, .host_memory = 1};
}

void unwrap_device(wrapped_device *w)
{
    wrap_close(&w->device);
}
