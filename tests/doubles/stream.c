/* SPDX-License-Identifier: MIT */
/* Streams and launches. */
#include "doubles/inside.h"

#include <stdlib.h>
#include <string.h>

static cudaError_t create(cudaStream_t *out, unsigned flags)
{
    if (flags != cudaStreamNonBlocking) {
        dbl_complain("a stream that waits for the default stream: pass cudaStreamNonBlocking");
        return cudaErrorInvalidValue;
    }
    cudaStream_t s = calloc(1, sizeof *s);
    if (!s)
        return cudaErrorMemoryAllocation;
    s->device = dbl_current_device();
    atomic_store(&s->magic, DBL_ALIVE);
    cudaError_t error = dbl_stream_start(s);
    if (error) {
        free(s);
        return error;
    }
    dbl_count(DBL_STREAM, 1);
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    DBL_ENTER_CUDA(cudaStreamCreateWithFlags);
    return dbl_result(create(out, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    DBL_ENTER_CUDA(cudaStreamCreateWithPriority);
    (void)priority;
    return dbl_result(create(out, flags));
}

/* As the real one it returns at once; what the stream holds still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    int error;
    if (dbl_enter(DBL_cudaStreamDestroy, &error))
        return (cudaError_t)error;
    cudaError_t own = dbl_check_handle(stream, "cudaStreamDestroy");
    if (own == cudaErrorInvalidResourceHandle)
        return dbl_result(own);
    if (stream->capture)
        dbl_complain("cudaStreamDestroy of a stream that is being captured");
    atomic_store_explicit(&stream->magic, DBL_DEAD, memory_order_relaxed);
    dbl_stream_stop(stream);
    dbl_count(DBL_STREAM, -1);
    return dbl_result(error ? (cudaError_t)error : own);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaStreamSynchronize);
    cudaError_t error = dbl_check_handle(stream, "cudaStreamSynchronize");
    if (error)
        return dbl_result(error);
    error = dbl_drain(stream, "cudaStreamSynchronize");
    return dbl_result(error ? error : dbl_lost(stream->device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaStreamQuery);
    cudaError_t error = dbl_check_handle(stream, "cudaStreamQuery");
    if (error)
        return dbl_result(error);
    dbl_nudge(stream);
    return dbl_has_finished(stream, dbl_pushed(stream)) ? dbl_result(dbl_lost(stream->device))
                                                        : cudaErrorNotReady;
}

/* ---- launches ------------------------------------------------------------------------------- */

struct launch {
    void (*body)(const void *args);
    _Alignas(16) unsigned char args[];
};

static dbl_watcher *watching;
static _Thread_local dbl_cost cost; /* cost of the current body */

void dbl_watch(dbl_watcher *watcher)
{
    watching = watcher;
}

void dbl_computes(const char *name, double operations, double tiled)
{
    cost.name = name;
    cost.operations = operations;
    cost.tiled = tiled;
}

static dbl_progress run_body(dbl_work *work)
{
    const struct launch *l = (const struct launch *)work->data;
    cost = (dbl_cost){.name = work->name};
    l->body(l->args);
    if (watching)
        watching(&cost);
    return DBL_DONE;
}

/* ---- lazy loading ---------------------------------------------------------------------------- */

enum { KERNELS = 128 };
static _Atomic(const char *) loaded[DBL_DEVICES][KERNELS];

void dbl_launches_begin(void)
{
    memset(loaded, 0, sizeof loaded);
}

/* The first launch of a kernel loads it, which can wait for the kernels that run. If these are
 * NCCL's, and wait for another device whose thread waits too, nobody goes on. */
static void load_kernel(int device, const char *name)
{
    for (int i = 0; i < KERNELS; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&loaded[device][i], &none, name,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            if (dbl_nccl_pending(device) > 0)
                dbl_complain("the first launch of %s on device %d, while NCCL runs there", name,
                             device);
            return;
        }
        if (strcmp(none, name) == 0)
            return;
    }
    dbl_complain("more than %d kernels", KERNELS);
}

cudaError_t dbl_launch(cudaStream_t stream, const char *name, void (*body)(const void *args),
                       const void *args, size_t bytes)
{
    DBL_ENTER_CUDA(launch);
    cudaError_t error = dbl_check_stream(stream, name);
    if (error)
        return dbl_result(error);
    if (!stream->capture)
        load_kernel(stream->device, name);
    dbl_work *work = dbl_work_create(name, run_body, NULL, sizeof(struct launch) + bytes);
    struct launch *l = (struct launch *)work->data;
    l->body = body;
    memcpy(l->args, args, bytes);
    return dbl_result(dbl_enqueue(stream, work));
}

int dbl_may_touch(const void *memory, size_t bytes)
{
    cost.bytes += (double)bytes;
    int device = dbl_running_device();
    if (device < 0 || bytes == 0)
        return 1;
    int place = dbl_place(memory, bytes);
    if (place == DBL_ON_HOST || (place >= 0 && dbl_may_reach(device, place)))
        return 1;
    dbl_complain("work on device %d touched %zu bytes %s", device, bytes,
                 place >= 0                   ? "of a device it has no access to"
                 : place == DBL_OUT_OF_BOUNDS ? "that leave their allocation"
                                              : "that are no CUDA memory");
    dbl_fault(device, cudaErrorIllegalAddress);
    return 0;
}
