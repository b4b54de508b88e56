/* SPDX-License-Identifier: MIT */
/* Streams, events, waiting, the arguments of a training step on the GPU, and recordings. */
#include "cuda/cuda_device.h"

#include <string.h>

/* ---- streams -------------------------------------------------------------------------------- */

static int make_stream(cudaStream_t *out, const ls_cuda_device *d, int high, ls_error *err)
{
    int least = 0, greatest = 0;
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, high ? greatest : least);
    return cuda_check(err, e, "%s: creating a stream", d->name);
}

int ls_cuda_stream_create(ls_stream **out, ls_device *device, int high_priority, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    void *args = NULL;
    *out = NULL;
    ls_stream *s = ls_alloc(d->host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a stream", d->name);
    s->next = d->streams;
    d->streams = s;
    int status = make_stream(&s->cuda, d, high_priority, err);
    if (status == LS_OK)
        status = cuda_check(err, cudaMalloc(&args, LS_RECORD_STEPS * sizeof *s->args),
                            "%s: allocating the step arguments of a stream", d->name);
    s->args = args;
    if (status != LS_OK) {
        ls_cuda_stream_destroy(device, s);
        return status;
    }
    ls_cuda_spans_stream(d, s);
    *out = s;
    return LS_OK;
}

void ls_cuda_stream_destroy(ls_device *device, ls_stream *stream)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    if (!stream)
        return;
    for (ls_stream **at = &d->streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    if (stream->cuda && !d->lost && cudaStreamSynchronize(stream->cuda) == cudaSuccess)
        ls_cuda_finish_downloads(d, stream);
    if (stream->cuda)
        cudaStreamDestroy(stream->cuda);
    if (stream->args)
        cudaFree(stream->args);
    ls_free(d->host, stream);
}

void ls_cuda_streams_fini(ls_cuda_device *d)
{
    while (d->events) {
        ls_event *event = d->events;
        d->events = event->next;
        if (event->cuda)
            cudaEventDestroy(event->cuda);
        ls_free(d->host, event);
    }
    while (d->streams)
        ls_cuda_stream_destroy(&d->device, d->streams);
    d->compute = d->communication = NULL;
}

/* ---- events; a device frees its events when it is closed ---------------------------------- */

static int make_event(ls_event **out, ls_cuda_device *d, ls_error *err)
{
    ls_event *event = ls_alloc(d->host, sizeof *event);
    if (!event)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for an event", d->name);
    int status = cuda_check(err, cudaEventCreateWithFlags(&event->cuda, cudaEventDisableTiming),
                            "%s: creating an event", d->name);
    if (status) {
        ls_free(d->host, event);
        return status;
    }
    event->next = d->events;
    d->events = event;
    *out = event;
    return LS_OK;
}

int ls_cuda_record(ls_event **event, ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    int status = *event ? LS_OK : make_event(event, d, err);
    if (status != LS_OK)
        return status;
    return cuda_check(err, cudaEventRecord((*event)->cuda, ls_cuda_stream(d, stream)),
                      "%s: recording an event", d->name);
}

int ls_cuda_wait(ls_device *device, ls_stream *stream, ls_event *event, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    return cuda_check(err, cudaStreamWaitEvent(ls_cuda_stream(d, stream), event->cuda, 0),
                      "%s: waiting for an event", d->name);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Fails with LS_EDATA if a kernel has found a label that is not a class. Clears the kernel's
 * report, so that the failure is returned only once. */
static int report_fault(ls_cuda_device *d, ls_error *err)
{
    ls_k_fault fault = *d->fault;
    if (fault.code == 0)
        return LS_OK;
    memset(d->fault, 0, sizeof *d->fault);
    return ls_fail(err, LS_EDATA, "softmax: row %d has label %d, but there are %d classes",
                   fault.row, fault.label, fault.classes);
}

static int sync_one(ls_cuda_device *d, const ls_stream *stream, ls_error *err)
{
    cudaError_t e = cudaStreamSynchronize(stream->cuda);
    d->lost |= cuda_is_lost(e);
    if (e == cudaSuccess)
        ls_cuda_finish_downloads(d, stream);
    return cuda_check(err, e, "%s: work on the device failed", d->name);
}

int ls_cuda_sync(ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    int status = LS_OK;
    /* While a stream is being recorded, this thread must not wait for any stream: CUDA would then
     * invalidate the recording. */
    for (const ls_stream *s = d->streams; s && status == LS_OK; s = s->next)
        status = ls_cuda_not_recording(d, s, "waiting", err);
    if (status)
        return status;
    if (stream)
        status = sync_one(d, stream, err);
    for (ls_stream *s = d->streams; !stream && s; s = s->next) {
        int ended = sync_one(d, s, status == LS_OK ? err : NULL);
        status = status == LS_OK ? ended : status;
    }
    return status == LS_OK ? report_fault(d, err) : status;
}

int ls_cuda_passed(bool *out, ls_cuda_device *d, cudaEvent_t event, const char *what, ls_error *err)
{
    cudaError_t e = cudaEventQuery(event);
    *out = e == cudaSuccess;
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* the CUDA runtime records this result as an error */
        return LS_OK;
    }
    d->lost |= cuda_is_lost(e);
    return cuda_check(err, e, "%s: %s", d->name, what);
}

int ls_cuda_reached(int *out, ls_device *device, ls_event *event, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    bool passed;
    int status = ls_cuda_passed(&passed, d, event->cuda, "work on the device failed", err);
    *out = passed;
    return passed ? report_fault(d, err) : status;
}

/* ---- arguments of a step --------------------------------------------------------------------- */

_Static_assert(LS_K_STEPS == LS_RECORD_STEPS,
               "one launch copies the arguments of all steps of its recording");

/* Returns the arguments as kernels read them. Zeroes the padding of the struct, because send_args
 * compares arguments byte by byte. */
static ls_k_args kernel_args(const ls_step_args *args)
{
    ls_k_args now;
    memset(&now, 0, sizeof now);
    now.rows = args->rows;
    now.rows_before = args->rows_before;
    now.rows_after = args->rows_after;
    now.stats_copy = args->stats_copy;
    now.digest = args->digest;
    now.step = args->step;
    now.seed = args->seed;
    now.epoch = args->epoch;
    now.lr = args->lr;
    now.scale = args->scale;
    now.row_scale = args->row_scale;
    return now;
}

/* Enqueues a kernel that copies the arguments of `count` training steps to the stream's `args` on
 * the GPU. If `count` is 1 and the arguments are the same as those that were sent last, enqueues
 * nothing. */
static int send_args(ls_cuda_device *d, ls_stream *stream, const ls_step_args *args, int count,
                     ls_error *err)
{
    ls_stream *s = ls_cuda_stream_of(d, stream);
    ls_k_steps now;
    memset(&now, 0, sizeof now);
    for (int i = 0; i < count; i++)
        now.step[i] = kernel_args(&args[i]);
    if (count == 1 && s->has_sent && memcmp(&now.step[0], &s->sent, sizeof s->sent) == 0)
        return LS_OK;
    int status = cuda_check(err, ls_k_set_args(s->args, &now, count, s->cuda),
                            "%s: copying the arguments of a step", d->name);
    s->has_sent = status == LS_OK;
    memcpy(&s->sent, &now.step[0], sizeof s->sent);
    return status;
}

int ls_cuda_args(const ls_k_args **out, ls_cuda_device *d, ls_stream *stream,
                 const ls_step_args *args, ls_error *err)
{
    ls_stream *s = ls_cuda_stream_of(d, stream);
    *out = s->args + (s->capturing ? s->step : 0);
    return s->capturing ? LS_OK : send_args(d, stream, args, 1, err);
}

/* ---- recordings ----------------------------------------------------------------------------- */

/* A recording of the device table: a CUDA graph. */
struct ls_recording {
    cudaGraphExec_t exec;
    int steps;
};

int ls_cuda_not_recording(const ls_cuda_device *d, const ls_stream *stream, const char *what,
                          ls_error *err)
{
    if (!stream->capturing)
        return LS_OK;
    return ls_fail(err, LS_EINVAL, "%s: %s is not allowed while the stream is being recorded",
                   d->name, what);
}

/* Begins a recording. The capture mode restricts only the calling thread: until the recording ends,
 * this thread may enqueue work but must not wait. */
int ls_cuda_record_begin(ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_stream *s = ls_cuda_stream_of(d, stream);
    if (s->capturing)
        return ls_fail(err, LS_EINVAL,
                       "%s: cannot begin a recording: the stream is being recorded already",
                       d->name);
    cudaError_t e = cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal);
    s->capturing = e == cudaSuccess;
    s->step = 0;
    return cuda_check(err, e, "%s: recording a stream", d->name);
}

int ls_cuda_record_next(ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_stream *s = ls_cuda_stream_of(d, stream);
    if (!s->capturing || s->step + 1 == LS_RECORD_STEPS)
        return ls_fail(err, LS_EINVAL, "%s: cannot begin another step: %s", d->name,
                       s->capturing ? "the recording is full" : "no recording is in progress");
    s->step++;
    return LS_OK;
}

static int instantiate(ls_recording **out, ls_cuda_device *d, cudaGraph_t graph, int steps,
                       ls_error *err)
{
    ls_recording *r = ls_alloc(d->host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a recording", d->name);
    int status = cuda_check(err, cudaGraphInstantiate(&r->exec, graph, 0),
                            "%s: making a graph of a recording", d->name);
    if (status) {
        ls_free(d->host, r);
        return status;
    }
    r->steps = steps;
    *out = r;
    return LS_OK;
}

int ls_cuda_record_end(ls_recording **out, ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_stream *s = ls_cuda_stream_of(d, stream);
    cudaGraph_t graph = NULL;
    *out = NULL;
    if (!s->capturing)
        return ls_fail(err, LS_EINVAL,
                       "%s: cannot end a recording: the stream is not being recorded", d->name);
    s->capturing = 0;
    cudaError_t e = cudaStreamEndCapture(s->cuda, &graph);
    int status = cuda_check(err, e, "%s: ending a recording", d->name);
    if (status == LS_OK)
        status = instantiate(out, d, graph, s->step + 1, err);
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

int ls_cuda_launch(ls_device *device, ls_stream *stream, ls_recording *recording,
                   const ls_step_args *args, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    int status = send_args(d, stream, args, recording->steps, err);
    if (status)
        return status;
    return cuda_check(err, cudaGraphLaunch(recording->exec, ls_cuda_stream(d, stream)),
                      "%s: enqueuing a recording", d->name);
}

void ls_cuda_recording_destroy(ls_device *device, ls_recording *recording)
{
    if (!recording)
        return;
    cudaGraphExecDestroy(recording->exec);
    ls_free(ls_cuda_device_of(device)->host, recording);
}
