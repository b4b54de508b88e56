/* A device of the CUDA back end: one worker's view of one GPU.
 *
 *     ls_cuda_device *d = ls_cuda_device_of(device);       any ls_device of this back end
 *     cudaStream_t s = ls_cuda_stream(d, stream);          NULL: the compute stream
 *     return cuda_check(err, cudaMemsetAsync(p, 0, bytes, s), "%s: clearing %zu bytes", d->name, bytes);
 *
 * Several workers may open the same GPU: each has a device, streams and plans of its own in the
 * GPU's one primary context, so memory of one is visible to the others.
 *
 * Threads: as plugin.h says. `open` may run anywhere and touches no GPU state; `bind` makes the GPU
 * current on the worker's thread and creates everything below; all else runs on that thread.
 */
#ifndef CUDA_CUDA_DEVICE_H
#define CUDA_CUDA_DEVICE_H

#include "base/error.h"
#include "base/host.h"
#include "cuda/kernels/kernels.h"

#include <cuda_runtime_api.h>
#include <lockstep/sys/plugin.h>
#include <stdbool.h>
#include <stddef.h>

struct ls_math;       /* cuda/math/math_lib.h: convolutions and matrix products */
struct ls_cuda_spans; /* cuda_spans.c */

/* A stream, and the numbers of a step as kernels on it read them. */
struct ls_stream {
    cudaStream_t cuda;
    ls_k_args *args; /* [LS_RECORD_STEPS] on the GPU, at an address that never changes */
    ls_k_args known; /* what was put there last for the first step … */
    int has_known;   /* … if it was */
    int capturing;   /* non-zero: work goes into a graph, and it is … */
    int step;        /* … of this step of it, from 0 */
    ls_stream *next; /* of the device's list */
};

struct ls_event {
    cudaEvent_t cuda; /* without timing */
    ls_event *next;
};

/* Pinned memory through which the host's memory is reached: uploads leave the caller's memory free on
 * return, downloads reach it at the next synchronisation of their stream. */
enum {
    LS_CUDA_SLOTS = 16,
    LS_CUDA_SLOT_BYTES = 256 * 1024,
    LS_CUDA_BACK_BYTES = 1024 * 1024,
    LS_CUDA_BACK_PIECES = 64
};

/* A download under way: `bytes` at `from` of the pinned memory are for the caller's `to`. */
typedef struct ls_cuda_piece {
    const ls_stream *stream;
    void *to;
    size_t from, bytes;
} ls_cuda_piece;

typedef struct ls_cuda_staging {
    unsigned char *memory; /* LS_CUDA_SLOTS of LS_CUDA_SLOT_BYTES, then LS_CUDA_BACK_BYTES */
    cudaEvent_t free[LS_CUDA_SLOTS];
    int next;
    ls_cuda_piece piece[LS_CUDA_BACK_PIECES];
    int pieces;
    size_t taken; /* of the pinned memory for downloads */
} ls_cuda_staging;

/* Pinned memory that the device's user asked for. */
typedef struct ls_cuda_pinned {
    unsigned char *memory;
    size_t bytes;
    struct ls_cuda_pinned *next;
} ls_cuda_pinned;

typedef struct ls_cuda_device {
    ls_device device; /* first */
    const ls_host *host;
    const char *cache_dir; /* of the request */
    int ordinal;           /* of CUDA */
    char name[16];         /* "cuda(0)" */
    char model[96];
    int major, minor; /* compute capability */
    size_t memory_bytes;
    int driver; /* its version as CUDA counts: 13000 */
    ls_precision precision;
    bool lost; /* the context is dead, nothing of it may be waited for */

    ls_stream *compute;       /* the default stream */
    ls_stream *communication; /* of high priority, for communicators */
    ls_stream *streams;       /* all of them */
    ls_event *events;
    ls_cuda_staging staging;
    ls_cuda_pinned *pinned;
    ls_k_fault *fault; /* pinned; a kernel that meets bad data says so here */
    struct ls_math *math;
    struct ls_cuda_spans *spans; /* NULL: nobody has asked for a timeline */
} ls_cuda_device;

/* ---- errors --------------------------------------------------------------------------------- */

/* LS_OK for cudaSuccess, else fills `err` from the failed CUDA call and returns its status: LS_ENOMEM when memory
 * ran out, LS_EDEVICE when the device or its driver failed, LS_EINTERNAL for a call that was wrong. `what` (printf)
 * says what was tried, and on which device. Also clears the runtime's own note of it. */
int cuda_check(ls_error *err, cudaError_t error, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether after this error every later call on the device fails too. */
bool cuda_is_lost(cudaError_t error);

/* ---- of cuda_device.c alone ----------------------------------------------------------------- */

/* cuda_stream.c. The table's streams, with their step arguments, and events; and the end of all of them. */
int ls_cuda_stream_create(ls_stream **out, ls_device *device, int high_priority, ls_error *err);
void ls_cuda_stream_destroy(ls_device *device, ls_stream *stream);
int ls_cuda_record(ls_event **event, ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_wait(ls_device *device, ls_stream *stream, ls_event *event, ls_error *err);
void ls_cuda_streams_fini(ls_cuda_device *device);
int ls_cuda_reached(int *out, ls_device *device, ls_event *event, ls_error *err);

/* cuda_staging.c. The table's, and its end. */
int ls_cuda_pinned_alloc(void **out, ls_device *device, size_t bytes, ls_error *err);
void ls_cuda_pinned_free(ls_device *device, void *memory);
void ls_cuda_pinned_fini(ls_cuda_device *device);

/* cuda_staging.c. The table's upload and download; ls_cuda_deliver brings the downloads of a stream
 * that has just been waited for to where they belong. */
int ls_cuda_staging_init(ls_cuda_device *device, ls_error *err);
void ls_cuda_staging_fini(ls_cuda_device *device);
int ls_cuda_upload(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                   ls_error *err);
int ls_cuda_download(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                     ls_error *err);
void ls_cuda_deliver(ls_cuda_device *device, const ls_stream *stream);

/* cuda_stream.c. The table's recordings. */
int ls_cuda_record_begin(ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_record_next(ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_record_end(ls_recording **out, ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_launch(ls_device *device, ls_stream *stream, ls_recording *recording,
                   const ls_step_args *args, ls_error *err);
void ls_cuda_recording_destroy(ls_device *device, ls_recording *recording);

/* cuda_spans.c. What a GPU does, and when: the table's; so many spans of a device between two takes at most. */
enum { LS_CUDA_SPANS = 1 << 17 };
int ls_cuda_spans_begin(ls_device *device, ls_error *err);
int ls_cuda_spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost);
void ls_cuda_spans_end(ls_device *device);

/* The device's thread: a stream was made. */
void ls_cuda_spans_stream(ls_cuda_device *device, const ls_stream *stream);
/* The device closes. */
void ls_cuda_spans_fini(ls_cuda_device *device);

/* "cutlass::Kernel" of "_ZN7cutlass6KernelI…", for people; what is no such name stays as it is. */
void ls_cuda_readable_name(char *out, size_t size, const char *name);

/* LS_OK, or LS_EINVAL while the stream is recorded, when `what` cannot be done. */
int ls_cuda_not_recording(const ls_cuda_device *device, const ls_stream *stream, const char *what,
                          ls_error *err);

/* cuda_ops.c. The table's op_create. */
int ls_cuda_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err);

static inline ls_cuda_device *ls_cuda_device_of(ls_device *device)
{
    return (ls_cuda_device *)device;
}

/* The stream that `stream` means: NULL is the compute stream. */
static inline ls_stream *ls_cuda_stream_of(const ls_cuda_device *device, ls_stream *stream)
{
    return stream ? stream : device->compute;
}

static inline cudaStream_t ls_cuda_stream(const ls_cuda_device *device, ls_stream *stream)
{
    return ls_cuda_stream_of(device, stream)->cuda;
}

/* Brings `args` to the stream, unless they are there: *out is what kernels read. Enqueues at most
 * one small kernel and never waits; while the stream is captured into a graph it enqueues nothing,
 * and whoever launches the graph calls this before. */
int ls_cuda_args(const ls_k_args **out, ls_cuda_device *device, ls_stream *stream,
                 const ls_step_args *args, ls_error *err);

/* The table's sync: waits for one stream, or with NULL for all; then reports the first error of work that was
 * enqueued, bad data included. */
int ls_cuda_sync(ls_device *device, ls_stream *stream, ls_error *err);
/* Whether the work before an event is done, without waiting; `what` that work is, for messages. */
int ls_cuda_passed(bool *out, ls_cuda_device *device, cudaEvent_t event, const char *what,
                   ls_error *err);

#endif
