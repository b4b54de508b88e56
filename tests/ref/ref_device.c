/* SPDX-License-Identifier: MIT */
#include "ref/ref.h"

#include "base/error.h"
#include "base/host.h"
#include "ref/ref_op.h"

#include <stdio.h>
#include <string.h>

static ref_device *of(ls_device *device)
{
    return (ref_device *)device;
}

static void ref_describe(const ls_device *device, ls_device_info *out)
{
    const ref_device *d = (const ref_device *)device;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s(%d)", d->name, d->index);
    snprintf(out->model, sizeof out->model, "reference loops");
    snprintf(out->isa, sizeof out->isa, "c");
    snprintf(out->library, sizeof out->library, "%s", d->kernels->name);
    out->flags = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS | LS_DEVICE_DIGESTS;
    out->threads = 1;
}

static int ref_bind(ls_device *device, ls_error *err)
{
    (void)device;
    (void)err;
    return LS_OK;
}

static void ref_close(ls_device *device)
{
    if (device)
        ls_free(of(device)->host, device);
}

static int ref_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    *out = ls_alloc(of(device)->host, bytes);
    if (!*out)
        return ls_fail(err, LS_ENOMEM, "%s(%d): no memory for %zu bytes", of(device)->name,
                       of(device)->index, bytes);
    return LS_OK;
}

static void ref_free(ls_device *device, void *memory)
{
    ls_free(of(device)->host, memory);
}

/* Upload, download and copy: all memory is the host's. */
static int ref_copy(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                    ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    if (bytes)
        memmove(dst, src, bytes);
    return LS_OK;
}

static int ref_add(ls_device *device, ls_stream *stream, float *dst, const float *a, const float *b,
                   size_t count, ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    for (size_t i = 0; i < count; i++)
        dst[i] = a[i] + b[i];
    return LS_OK;
}

static int ref_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    (void)device;
    (void)stream;
    (void)err;
    return LS_OK;
}

static const ls_device_ops device_ops = {
    .size = sizeof(ls_device_ops),
    .describe = ref_describe,
    .bind = ref_bind,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .upload = ref_copy,
    .download = ref_copy,
    .copy = ref_copy,
    .add = ref_add,
    .sync = ref_sync,
    .op_create = ref_op_create,
};

static int open_flavour(ls_device **out, const ls_device_request *request, const char *name,
                        const ref_kernels *kernels, ls_error *err)
{
    if (request->index < 0 || request->index >= REF_DEVICES)
        return ls_fail(err, LS_EINVAL, "%s(%d): devices are numbered 0 to %d", name, request->index,
                       REF_DEVICES - 1);
    ref_device *d = ls_alloc(request->host, sizeof *d);
    if (!d)
        return ls_fail(err, LS_ENOMEM, "%s(%d): no memory for the device", name, request->index);
    d->base.ops = &device_ops;
    d->host = request->host;
    d->name = name;
    d->index = request->index;
    d->kernels = kernels;
    *out = &d->base;
    return LS_OK;
}

static int open_f32(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return open_flavour(out, request, "ref", &ref_kernels_f32, err);
}

static int open_f64(ls_device **out, const ls_device_request *request, ls_error *err)
{
    return open_flavour(out, request, "ref64", &ref_kernels_f64, err);
}

static void ref_probe(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    out->devices = REF_DEVICES;
    snprintf(out->version, sizeof out->version, "reference loops");
}

static const ls_backend backend_f32 = {
    LS_PLUGIN_ABI, sizeof(ls_backend), "ref", 1, ref_probe, open_f32,
};
static const ls_backend backend_f64 = {
    LS_PLUGIN_ABI, sizeof(ls_backend), "ref64", 1, ref_probe, open_f64,
};

const ls_backend *ls_ref_backend(void)
{
    return &backend_f32;
}

const ls_backend *ls_ref64_backend(void)
{
    return &backend_f64;
}
