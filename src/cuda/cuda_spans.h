/* What a GPU does, and when, for a timeline: the table's spans_begin, spans_take, spans_end.
 *
 * CUPTI exists once in a process, and its callbacks carry no argument of ours: so there is one
 * collector for all devices, the back end's only state that is not a device's. It hands CUPTI buffers
 * that were allocated at its start; a full one comes back on whatever thread CUPTI likes, its
 * records become spans of the device whose stream they name, and the buffer is free again.
 *
 * Bounded: LS_CUDA_SPAN_BUFFERS buffers, and LS_CUDA_SPANS spans of each device between two takes.
 * What finds no room is counted. A stream that nobody knows, as a branch of a graph may have one,
 * goes to the first device of that GPU.
 *
 * Clock: CUPTI is given ours (a callback) and relates the GPU's to it. To subtract an offset from its
 * own, CLOCK_REALTIME, would draw every step that somebody sets that clock by.
 */
#ifndef CUDA_CUDA_SPANS_H
#define CUDA_CUDA_SPANS_H

#include "cuda/cuda_device.h"

enum {
    LS_CUDA_SPANS = 1 << 17,
    LS_CUDA_SPAN_BUFFERS = 16,
    LS_CUDA_SPAN_BUFFER_BYTES = 1 << 20,
    LS_CUDA_SPAN_NAMES = 512, /* of a device; further ones are "other" */
    LS_CUDA_SPAN_NAME = 96,
    LS_CUDA_SPAN_STREAMS = 64
};

int ls_cuda_spans_begin(ls_device *device, ls_error *err);
int ls_cuda_spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost);
void ls_cuda_spans_end(ls_device *device);

/* The device's thread: a stream was made. */
void ls_cuda_spans_stream(ls_cuda_device *device, const ls_stream *stream);
/* The device closes. */
void ls_cuda_spans_fini(ls_cuda_device *device);

/* "cutlass::Kernel" of "_ZN7cutlass6KernelI…", for people; what is no such name stays as it is. */
void ls_cuda_readable_name(char *out, size_t size, const char *name);

#endif
