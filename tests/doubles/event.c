/* SPDX-License-Identifier: MIT */
/* Events of the doubles: a record releases, a wait acquires. */
#include "doubles/inside.h"

#include <stdlib.h>

static cudaError_t check(cudaEvent_t event, const char *caller)
{
    if (event && atomic_load_explicit(&event->magic, memory_order_relaxed) == DBL_ALIVE)
        return dbl_lost(event->device);
    dbl_complain("%s of an event that does not exist any more", caller);
    return cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    DBL_ENTER_CUDA(cudaEventCreateWithFlags);
    cudaEvent_t event = calloc(1, sizeof *event);
    if (!event)
        return dbl_result(cudaErrorMemoryAllocation);
    event->device = dbl_current_device();
    event->timed = !(flags & cudaEventDisableTiming);
    atomic_store(&event->magic, DBL_ALIVE);
    dbl_count(DBL_EVENT, 1);
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    int error;
    if (dbl_enter(DBL_cudaEventDestroy, &error))
        return (cudaError_t)error;
    cudaError_t own = check(event, "cudaEventDestroy");
    if (own == cudaErrorInvalidResourceHandle)
        return dbl_result(own);
    atomic_store_explicit(&event->magic, DBL_DEAD, memory_order_relaxed);
    dbl_count(DBL_EVENT, -1);
    dbl_bury(event); /* work that was enqueued may still refer to it */
    return dbl_result(error ? (cudaError_t)error : own);
}

struct point {
    cudaEvent_t event;
    uint64_t number; /* which record of the event */
};

static int passed(void *arg)
{
    const struct point *p = arg;
    if (dbl_lost(p->event->device))
        return 1; /* nothing will come any more */
    if (atomic_load_explicit(&p->event->done, memory_order_relaxed) < p->number)
        return 0;
    return atomic_load_explicit(&p->event->done, memory_order_acquire) >= p->number;
}

static dbl_progress run_record(dbl_work *work)
{
    const struct point *p = (const struct point *)work->data;
    atomic_store_explicit(&p->event->time_ns, dbl_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&p->event->done, p->number, memory_order_release);
    return DBL_DONE;
}

static dbl_progress run_wait(dbl_work *work)
{
    return passed(work->data) ? DBL_DONE : DBL_BLOCKED;
}

static struct point newest(cudaEvent_t event)
{
    return (struct point){event, atomic_load_explicit(&event->recorded, memory_order_relaxed)};
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    DBL_ENTER_CUDA(cudaEventRecord);
    cudaError_t error = check(event, "cudaEventRecord");
    if (!error)
        error = dbl_check_handle(stream, "cudaEventRecord");
    if (!error && event->device != stream->device) {
        dbl_complain("cudaEventRecord of an event of device %d on a stream of device %d",
                     event->device, stream->device);
        error = cudaErrorInvalidResourceHandle;
    }
    if (error)
        return dbl_result(error);
    event->capture = NULL;
    if (stream->capture) {
        dbl_capture_record(event, stream);
        return cudaSuccess;
    }
    atomic_store_explicit(&event->stream, stream, memory_order_relaxed);
    atomic_fetch_add_explicit(&event->recorded, 1, memory_order_relaxed);
    struct point p = newest(event);
    return dbl_result(
        dbl_enqueue(stream, dbl_work_create("event record", run_record, &p, sizeof p)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    DBL_ENTER_CUDA(cudaStreamWaitEvent);
    (void)flags;
    cudaError_t error = check(event, "cudaStreamWaitEvent");
    if (!error)
        error = dbl_check_handle(stream, "cudaStreamWaitEvent");
    if (error)
        return dbl_result(error);
    if (event->capture || stream->capture)
        return dbl_result(dbl_capture_wait(stream, event));
    struct point p = newest(event);
    return dbl_result(dbl_enqueue(stream, dbl_work_create("event wait", run_wait, &p, sizeof p)));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    DBL_ENTER_CUDA(cudaEventQuery);
    cudaError_t error = check(event, "cudaEventQuery");
    if (!error && event->capture)
        error = cudaErrorCapturedEvent;
    if (error)
        return dbl_result(error);
    struct point p = newest(event);
    if (p.number)
        dbl_nudge(atomic_load_explicit(&event->stream, memory_order_relaxed));
    return passed(&p) ? dbl_result(dbl_lost(event->device)) : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    DBL_ENTER_CUDA(cudaEventSynchronize);
    cudaError_t error = check(event, "cudaEventSynchronize");
    if (!error && event->capture)
        error = cudaErrorCapturedEvent;
    if (error)
        return dbl_result(error);
    struct point p = newest(event);
    error = dbl_wait_until(passed, &p, atomic_load_explicit(&event->stream, memory_order_relaxed),
                           "cudaEventSynchronize");
    return dbl_result(error ? error : dbl_lost(event->device));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    DBL_ENTER_CUDA(cudaEventElapsedTime);
    cudaError_t error = check(start, "cudaEventElapsedTime");
    if (!error)
        error = check(end, "cudaEventElapsedTime");
    if (!error && (!start->timed || !end->timed))
        error = cudaErrorInvalidResourceHandle;
    if (error)
        return dbl_result(error);
    struct point a = newest(start), b = newest(end);
    if (!passed(&a) || !passed(&b))
        return cudaErrorNotReady;
    int64_t ns = (int64_t)(end->time_ns - start->time_ns);
    *ms = (float)((double)ns * 1e-6);
    return cudaSuccess;
}
