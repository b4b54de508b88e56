/* SPDX-License-Identifier: MIT */
/* The device table: open, describe, bind, memory, copies, close. */
#include "cuda/cuda_device.h"

#include "cuda/comm/group.h"
#include "cuda/cuda_op.h"
#include "cuda/math/math_lib.h"
#include "cuda/shared_lib.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NEEDED_MAJOR = 8 /* lowest compute capability: the first one with bf16 and tf32 */ };

/* Version of the bits that Lockstep's own kernels compute. A change of the bits that any recipe
 * trains on GPUs raises it. Version 1 was not recorded. */
#define KERNELS "kernels 2"

/* ---- probing for a GPU ----------------------------------------------------------------------- */

static void version_text(char *out, size_t size, int version)
{
    snprintf(out, size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Writes the reason why there is no device. `broken` non-zero: there can be a GPU, but an old
 * driver or incompatible libraries make it unusable. `broken` 0: there is no driver or no GPU. */
__attribute__((format(printf, 3, 4))) static void say(ls_backend_info *out, int broken,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->reason, sizeof out->reason, format, args);
    va_end(args);
    out->devices = 0;
    out->broken = broken;
}

/* Writes the reason why the GPUs could not be counted. cudaErrorInsufficientDriver means that there
 * is no driver or that the driver is too old; the driver's version tells which. */
static void explain(ls_backend_info *out, cudaError_t error)
{
    int driver = 0, runtime = 0;
    char have[16], need[16];
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    version_text(have, sizeof have, driver);
    version_text(need, sizeof need, runtime);
    if (driver == 0)
        say(out, 0,
            "there is no NVIDIA driver (libcuda.so.1) on this machine; install one for "
            "CUDA %s or newer",
            need);
    else if (error == cudaErrorInsufficientDriver)
        say(out, 1,
            "the NVIDIA driver is for CUDA %s and this back end needs %s: update the driver", have,
            need);
    else if (error == cudaErrorNoDevice)
        say(out, 0, "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES set?)");
    else
        say(out, 1, "%s (%s)%s", cudaGetErrorString(error), cudaGetErrorName(error),
            cuda_advice(error));
}

static void probe(ls_backend_info *out)
{
    char runtime_text[16], math[64];
    int runtime = 0, count = 0;
    memset(out, 0, sizeof *out);
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        (void)cudaGetLastError();
    version_text(runtime_text, sizeof runtime_text, runtime);
    ls_math_version(math, sizeof math);
    snprintf(out->version, sizeof out->version, "CUDA %s, %s", runtime_text, math);
    if (ls_math_misfit(out->reason, sizeof out->reason)) {
        out->broken = 1;
        return;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        explain(out, error);
    else if (count < 1)
        explain(out, cudaErrorNoDevice);
    else
        out->devices = count;
}

/* ---- open and describe ---------------------------------------------------------------------- */

static int read_properties(ls_cuda_device *d, ls_error *err)
{
    struct cudaDeviceProp properties;
    cudaError_t e = cudaGetDeviceProperties(&properties, d->ordinal);
    if (e == cudaSuccess)
        e = cudaDriverGetVersion(&d->driver);
    if (e == cudaSuccess)
        e = cudaRuntimeGetVersion(&d->runtime);
    int status = cuda_check(err, e, "%s: reading the properties of the device", d->name);
    if (status)
        return status;
    snprintf(d->model, sizeof d->model, "%.*s", (int)sizeof d->model - 1, properties.name);
    d->major = properties.major;
    d->minor = properties.minor;
    d->memory_bytes = properties.totalGlobalMem;
    d->processors = properties.multiProcessorCount;
    if (d->major < NEEDED_MAJOR)
        return ls_fail(err, LS_EDEVICE,
                       "%s is a %s of compute capability %d.%d; this back end needs %d.0 or "
                       "newer",
                       d->name, d->model, d->major, d->minor, NEEDED_MAJOR);
    return LS_OK;
}

static void cuda_describe(const ls_device *device, ls_device_info *out)
{
    const ls_cuda_device *d = (const ls_cuda_device *)device;
    static const char *const precision[] = {"fp32", "tf32", "bf16"};
    char math[40], runtime[16], driver[16], nccl[16], adds[32] = "", library[160];
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->model, sizeof out->model, "%s", d->model);
    snprintf(out->isa, sizeof out->isa, "sm_%d%d %s", d->major, d->minor, precision[d->precision]);
    ls_math_version(math, sizeof math);
    version_text(runtime, sizeof runtime, d->runtime);
    version_text(driver, sizeof driver, d->driver);
    ls_nccl_version_text(nccl, d->nccl);
    if (d->nccl)
        snprintf(adds, sizeof adds, ", NCCL %s", nccl);
    snprintf(library, sizeof library, KERNELS ", CUDA %s, %s%s, driver %s", runtime, math, adds,
             driver);
    snprintf(out->library, sizeof out->library, "%.*s", (int)sizeof out->library - 1, library);
    out->memory_bytes = d->memory_bytes;
    out->threads = 1;
    out->shadow_bytes = d->precision == LS_PRECISION_BF16 ? (int)sizeof(uint16_t) : 0;
    out->flags = LS_DEVICE_DIGESTS;
}

/* ---- bind and close ------------------------------------------------------------------------- */

/* Logs with which libraries the plugin was built, and which ones were loaded: the program can have
 * loaded other copies before. */
static void log_libraries(const ls_cuda_device *d)
{
    cudaError_t (*const function)(int *) = cudaRuntimeGetVersion;
    char need[16], have[16], driver[16], built[64], path[160], loaded[384];
    version_text(need, sizeof need, CUDART_VERSION);
    version_text(have, sizeof have, d->runtime);
    version_text(driver, sizeof driver, d->driver);
    ls_math_built(built, sizeof built);
    ls_math_loaded(loaded, sizeof loaded);
    ls_shared_lib_path(path, sizeof path, &function);
    ls_log(d->host, LS_LOG_INFO, "%s: built with CUDA %s, %s; loaded CUDA %s (%s), %s, driver %s",
           d->name, need, built, have, path, loaded, driver);
}

static int open_math(ls_cuda_device *d, ls_error *err)
{
    ls_math_desc desc = {
        .host = d->host,
        .device = d->name,
        .model = d->model,
        .compute = d->major * 10 + d->minor,
        .processors = d->processors,
        .memory_bytes = d->memory_bytes,
        .precision = d->precision,
        .cache_dir = d->cache_dir,
    };
    return ls_math_open(&d->math, &desc, err);
}

/* Creates the parts of a device. If it fails, `close` destroys the parts that exist. */
static int cuda_bind(ls_device *device, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    void *fault = NULL;
    int status =
        cuda_check(err, cudaSetDevice(d->ordinal), "%s: making the device current", d->name);
    if (status == LS_OK)
        status = ls_cuda_stream_create(&d->compute, device, 0, err);
    if (status == LS_OK)
        status = ls_cuda_stream_create(&d->communication, device, 1, err);
    if (status == LS_OK)
        status = ls_cuda_staging_init(d, err);
    if (status == LS_OK)
        status = ls_cuda_pinned_alloc(&fault, device, sizeof *d->fault, err);
    d->fault = fault;
    if (status == LS_OK)
        log_libraries(d);
    return status == LS_OK ? open_math(d, err) : status;
}

static void cuda_close(ls_device *device)
{
    if (!device)
        return;
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_cuda_streams_fini(d); /* waits for the work in progress */
    ls_cuda_spans_fini(d);
    ls_math_close(d->math);
    ls_cuda_staging_fini(d);
    ls_cuda_pinned_fini(d);
    ls_free(d->host, d);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int cuda_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    size_t size = bytes > 0 ? bytes : 1;
    *out = NULL;
    cudaError_t e = cudaMalloc(out, size);
    if (e == cudaSuccess) {
        e = cudaMemsetAsync(*out, 0, size, d->compute->cuda);
        if (e == cudaSuccess) /* waits, because the memory must be zero for all streams, and the
                               * other streams do not wait for this one */
            e = cudaStreamSynchronize(d->compute->cuda);
        if (e != cudaSuccess) {
            cudaFree(*out);
            *out = NULL;
        }
    }
    return cuda_check(err, e, "%s: allocating %zu bytes", d->name, bytes);
}

static void cuda_free(ls_device *device, void *memory)
{
    (void)device;
    if (memory)
        cudaFree(memory);
}

static int cuda_copy(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                     ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    cudaError_t e = cudaSuccess;
    if (bytes > 0)
        e = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, ls_cuda_stream(d, stream));
    return cuda_check(err, e, "%s: copying %zu bytes", d->name, bytes);
}

static int cuda_add(ls_device *device, ls_stream *stream, float *dst, const float *a,
                    const float *b, size_t count, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    return cuda_check(err, ls_k_sum(dst, a, b, count, ls_cuda_stream(d, stream)),
                      "%s: adding %zu floats", d->name, count);
}

static int cuda_shadow(ls_device *device, ls_stream *stream, void *shadow, const float *param,
                       size_t count, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    return cuda_check(err, ls_k_to_bf16(shadow, param, count, ls_cuda_stream(d, stream)),
                      "%s: rounding %zu parameters", d->name, count);
}

static int cuda_add_tensor(ls_device *device, ls_stream *stream, const ls_tensor *tensor, void *sum,
                           const void *part, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    const int half = ls_cuda_form_of(tensor) == LS_FORM_HALF;
    return cuda_check(
        err, ls_k_add(sum, sum, part, half, 0, ls_cuda_elements(tensor), ls_cuda_stream(d, stream)),
        "%s: adding two gradients", d->name);
}

static size_t cuda_choices(const ls_device *device, char *out, size_t size)
{
    return ls_math_choices(((const ls_cuda_device *)device)->math, out, size);
}

static int cuda_choose(ls_device *device, const char *text, ls_error *err)
{
    return ls_math_choose(ls_cuda_device_of(device)->math, text, err);
}

/* ---- the tables ----------------------------------------------------------------------------- */

static const ls_device_ops device_ops = {
    .size = sizeof(ls_device_ops),
    .communicators = ls_cuda_comms,
    .describe = cuda_describe,
    .bind = cuda_bind,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = ls_cuda_upload,
    .download = ls_cuda_download,
    .copy = cuda_copy,
    .add = cuda_add,
    .add_tensor = cuda_add_tensor,
    .shadow = cuda_shadow,
    .sync = ls_cuda_sync,
    .choices = cuda_choices,
    .choose = cuda_choose,
    .op_create = ls_cuda_op_create,
    .stream_create = ls_cuda_stream_create,
    .stream_destroy = ls_cuda_stream_destroy,
    .record = ls_cuda_record,
    .wait = ls_cuda_wait,
    .record_begin = ls_cuda_record_begin,
    .record_next = ls_cuda_record_next,
    .record_end = ls_cuda_record_end,
    .launch = ls_cuda_launch,
    .recording_destroy = ls_cuda_recording_destroy,
    .pinned_alloc = ls_cuda_pinned_alloc,
    .pinned_free = ls_cuda_pinned_free,
    .reached = ls_cuda_reached,
    .spans_begin = ls_cuda_spans_begin,
    .spans_take = ls_cuda_spans_take,
    .spans_end = ls_cuda_spans_end,
};

static int check_request(const ls_device_request *request, ls_error *err)
{
    ls_backend_info info;
    if (request->size != sizeof *request || request->index < 0)
        return ls_fail(err, LS_EINVAL, "cuda: device %d is requested; devices are numbered from 0",
                       request->index);
    if ((int)request->precision < LS_PRECISION_FP32 || request->precision > LS_PRECISION_BF16)
        return ls_fail(err, LS_EINVAL, "cuda: %d is no precision (ls_precision)",
                       (int)request->precision);
    probe(&info);
    if (info.devices < 1)
        return ls_fail(err, LS_EDEVICE, "no cuda device: %s (%s)", info.reason,
                       info.broken ? "broken" : "absent");
    if (request->index >= info.devices)
        return ls_fail(err, LS_EDEVICE, "there is no cuda:%d, only 0 … %d", request->index,
                       info.devices - 1);
    return LS_OK;
}

static int cuda_open(ls_device **out, const ls_device_request *request, ls_error *err)
{
    *out = NULL;
    int status = check_request(request, err);
    if (status)
        return status;
    ls_cuda_device *d = ls_alloc(request->host, sizeof *d);
    if (!d)
        return ls_fail(err, LS_ENOMEM, "cuda(%d): out of memory", request->index);
    d->device.ops = &device_ops;
    d->host = request->host;
    d->cache_dir = request->cache_dir;
    d->precision = request->precision;
    d->ordinal = request->index;
    snprintf(d->name, sizeof d->name, "cuda(%d)", request->index);
    status = read_properties(d, err);
    if (status) {
        cuda_close(&d->device);
        return status;
    }
    *out = &d->device;
    return LS_OK;
}

__attribute__((visibility("default"))) ls_plugin_entry_fn ls_plugin_backend;

const ls_backend *ls_plugin_backend(void)
{
    static const ls_backend backend = {
        .abi = LS_PLUGIN_ABI,
        .size = sizeof(ls_backend),
        .name = "cuda",
        .counted = 0,
        .probe = probe,
        .open = cuda_open,
    };
    return &backend;
}
