/* SPDX-License-Identifier: MIT */
/* Copies and fills. */
#include "doubles/inside.h"

#include <string.h>

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct fill {
    void *to;
    int value;
    size_t bytes;
};

static int usable(int place, int asynchronous)
{
    return place >= DBL_ON_HOST || (place == DBL_PAGEABLE && !asynchronous);
}

/* Returns whether a place agrees with one side of a cudaMemcpyKind. */
static int side_fits(int place, int device_side)
{
    return device_side ? place >= 0 : place == DBL_ON_HOST || place == DBL_PAGEABLE;
}

static cudaError_t check_kind(int to, int from, enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return cudaSuccess;
    int to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    int from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (side_fits(to, to_device) && side_fits(from, from_device))
        return cudaSuccess;
    dbl_complain("a copy in another direction than its kind says");
    return cudaErrorInvalidMemcpyDirection;
}

static cudaError_t check_copy(const struct copy *c, enum cudaMemcpyKind kind, int asynchronous)
{
    int to = dbl_place(c->to, c->bytes), from = dbl_place(c->from, c->bytes);
    if (c->bytes == 0 || (usable(to, asynchronous) && usable(from, asynchronous)))
        return c->bytes ? check_kind(to, from, kind) : cudaSuccess;
    int outside = to == DBL_OUT_OF_BOUNDS || from == DBL_OUT_OF_BOUNDS;
    dbl_complain(outside ? "a copy of %zu bytes leaves its allocation"
                         : "an asynchronous copy of %zu bytes from or to pageable memory",
                 c->bytes);
    return cudaErrorInvalidValue;
}

/* Both sides must still be what they were. */
static dbl_progress run_copy(dbl_work *work)
{
    const struct copy *c = (const struct copy *)work->data;
    if (dbl_place(c->to, c->bytes) < DBL_ON_HOST || dbl_place(c->from, c->bytes) < DBL_ON_HOST) {
        dbl_complain("a copy whose memory was freed before it ran");
        dbl_fault(work->device, cudaErrorIllegalAddress);
    } else {
        memmove(c->to, c->from, c->bytes);
    }
    return DBL_DONE;
}

static cudaError_t enqueue_copy(struct copy c, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = dbl_check_stream(stream, "cudaMemcpyAsync");
    if (!error)
        error = check_copy(&c, kind, 1);
    if (error || c.bytes == 0)
        return dbl_result(error);
    return dbl_result(dbl_enqueue(stream, dbl_work_create("copy", run_copy, &c, sizeof c)));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaMemcpyAsync);
    return enqueue_copy((struct copy){to, from, bytes}, kind, stream);
}

/* At once, on the caller's thread: streams that do not block know nothing of the default stream. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    DBL_ENTER_CUDA(cudaMemcpy);
    struct copy c = {to, from, bytes};
    cudaError_t error = check_copy(&c, kind, 0);
    if (!error && bytes)
        memmove(to, from, bytes);
    return dbl_result(error);
}

static cudaError_t check_fill(void *to, size_t bytes)
{
    if (bytes == 0 || dbl_place(to, bytes) >= DBL_ON_HOST)
        return cudaSuccess;
    dbl_complain("a fill of %zu bytes that are no CUDA memory or leave their allocation", bytes);
    return cudaErrorInvalidValue;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    DBL_ENTER_CUDA(cudaMemset);
    cudaError_t error = check_fill(to, bytes);
    if (!error && bytes)
        memset(to, value, bytes);
    return dbl_result(error);
}

static dbl_progress run_fill(dbl_work *work)
{
    const struct fill *f = (const struct fill *)work->data;
    if (dbl_may_touch(f->to, f->bytes))
        memset(f->to, f->value, f->bytes);
    return DBL_DONE;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaMemsetAsync);
    cudaError_t error = dbl_check_stream(stream, "cudaMemsetAsync");
    if (!error)
        error = check_fill(to, bytes);
    if (error || bytes == 0)
        return dbl_result(error);
    struct fill f = {to, value, bytes};
    return dbl_result(dbl_enqueue(stream, dbl_work_create("fill", run_fill, &f, sizeof f)));
}
