/* Work that is recorded once and enqueued again as a whole: CUDA graphs. */
#include "cuda/cuda_device.h"

struct ls_recording {
    cudaGraphExec_t exec;
    int steps;
};

int ls_cuda_not_recording(const ls_cuda_device *d, const ls_stream *stream, const char *what,
                          ls_error *err)
{
    if (!stream->capturing)
        return LS_OK;
    return ls_fail(err, LS_EINVAL, "%s: %s while the stream is being recorded", d->name, what);
}

/* Other threads may do what they like meanwhile; this one only enqueues. */
int ls_cuda_record_begin(ls_device *device, ls_stream *stream, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_stream *s = ls_cuda_stream_of(d, stream);
    if (s->capturing)
        return ls_fail(err, LS_EINVAL, "%s: the stream is being recorded already", d->name);
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
        return ls_fail(err, LS_EINVAL, "%s: another step in %s", d->name,
                       s->capturing ? "a recording that is full" : "no recording");
    s->step++;
    return LS_OK;
}

static int instantiate(ls_recording **out, ls_cuda_device *d, cudaGraph_t graph, int steps,
                       ls_error *err)
{
    ls_recording *r = ls_alloc(d->host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a recording", d->name);
    cudaError_t e = cudaGraphInstantiate(&r->exec, graph, 0);
    if (e != cudaSuccess) {
        ls_free(d->host, r);
        return cuda_fail(err, e, "%s: making a graph of a recording", d->name);
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
        return ls_fail(err, LS_EINVAL, "%s: the stream is not being recorded", d->name);
    s->capturing = 0;
    cudaError_t e = cudaStreamEndCapture(s->cuda, &graph);
    int status = cuda_check(err, e, "%s: the end of a recording", d->name);
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
    int status = ls_cuda_args_of_steps(d, stream, args, recording->steps, err);
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
