/* SPDX-License-Identifier: MIT */
/* A device of the CUDA back end: the state that one worker keeps for one GPU.
 *
 *     ls_cuda_device *d = ls_cuda_device_of(device);       any ls_device of this back end
 *     cudaStream_t s = ls_cuda_stream(d, stream);          NULL: the compute stream
 *     return cuda_check(err, cudaMemsetAsync(p, 0, bytes, s), "%s: clearing", d->name);
 *
 * Several workers may open the same GPU. Each worker has a device and streams of its own, and
 * chooses the kernels of its ops itself.
 * All these devices use the primary context of the GPU, so that a kernel of one worker can access
 * the memory of another worker.
 *
 * Threads: the rules are those of plugin.h. `open` may run on any thread and touches no GPU state.
 * `bind` makes the GPU current on the worker's thread and creates the streams, the staging memory
 * and the handles of the libraries; all other functions run on that thread. */
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

/* A CUDA stream, with its own copy of the arguments of the current training step on the GPU. The
 * kernels on the stream read the arguments from this copy. */
struct ls_stream {
    cudaStream_t cuda;
    /* [LS_RECORD_STEPS] arguments of the training steps of one launch, on the GPU, at an address
     * that never changes */
    ls_k_args *args;
    ls_k_args sent;  /* the arguments that will be in args[0] when the enqueued work is done */
    int has_sent;    /* non-zero: `sent` is valid */
    int capturing;   /* non-zero: work is captured into a graph */
    int step;        /* number of the training step that is being captured into the graph, from 0 */
    ls_stream *next; /* next stream of the device */
};

struct ls_event {
    cudaEvent_t cuda; /* created without timing */
    ls_event *next;
};

/* Staging: pinned (page-locked) host memory, through which data in other host memory are copied to
 * and from the GPU. Uploads use LS_CUDA_SLOTS parts of this memory (*slots*) in turn. Downloads use
 * the part after the slots. When an upload returns, the caller may reuse its memory. A download
 * reaches the caller's memory at the next synchronisation of its stream. */
enum {
    LS_CUDA_SLOTS = 16,
    LS_CUDA_SLOT_BYTES = 256 * 1024,
    LS_CUDA_BACK_BYTES = 1024 * 1024, /* size of the part for downloads (from the GPU *back*) */
    LS_CUDA_BACK_PIECES = 64          /* largest number of downloads in progress */
};

/* A download in progress. When its stream is synchronised, `bytes` bytes at offset `from` of the
 * pinned memory are copied to `to`, the caller's memory. */
typedef struct ls_cuda_piece {
    const ls_stream *stream;
    void *to;
    size_t from, bytes;
} ls_cuda_piece;

typedef struct ls_cuda_staging {
    unsigned char *memory; /* LS_CUDA_SLOTS slots of LS_CUDA_SLOT_BYTES, then LS_CUDA_BACK_BYTES */
    cudaEvent_t free[LS_CUDA_SLOTS];          /* [slot]: completes with the slot's last upload */
    int next;                                 /* number of the next slot */
    ls_cuda_piece piece[LS_CUDA_BACK_PIECES]; /* downloads in progress */
    int pieces;                               /* number of downloads in progress */
    size_t taken; /* bytes of the LS_CUDA_BACK_BYTES that downloads in progress use */
} ls_cuda_staging;

/* Pinned memory that the device's user has allocated (pinned_alloc of the device table). */
typedef struct ls_cuda_pinned {
    unsigned char *memory;
    size_t bytes;
    struct ls_cuda_pinned *next;
} ls_cuda_pinned;

typedef struct ls_cuda_device {
    ls_device device; /* base; must be first */
    const ls_host *host;
    /* directory in which the choices of kernels are stored for later runs (math/cache.c), as
     * ls_device_request says (plugin.h); NULL: they are not stored */
    const char *cache_dir;
    int ordinal;   /* CUDA's number of the GPU */
    char name[16]; /* "cuda(0)" */
    char model[96];
    int major, minor; /* compute capability */
    size_t memory_bytes;
    int processors; /* number of multiprocessors */
    int driver;     /* driver version as CUDA counts: 13000 */
    int runtime;    /* version of the loaded CUDA runtime, counted in the same way */
    int nccl; /* version of NCCL, as NCCL counts (22809), if NCCL adds gradients; 0: it does not */
    ls_precision precision;
    /* the CUDA context has failed: every later call fails, and no function waits for the GPU */
    bool lost;

    ls_stream *compute;       /* the default stream */
    ls_stream *communication; /* high-priority stream for communicators */
    ls_stream *streams;       /* all streams of the device */
    ls_event *events;
    ls_cuda_staging staging;
    ls_cuda_pinned *pinned;
    ls_k_fault *fault; /* pinned; a kernel that reads a label that is no class reports it here */
    struct ls_math *math;
    struct ls_cuda_spans *spans; /* NULL: no timeline has been requested */
} ls_cuda_device;

/* ---- errors --------------------------------------------------------------------------------- */

/* Returns LS_OK for cudaSuccess. Otherwise fills `err` from the failed CUDA call, clears the error
 * that the CUDA runtime has recorded, and returns the status: LS_ENOMEM if memory ran out,
 * LS_EDEVICE if the device or its driver failed, LS_EINTERNAL if this back end made a wrong call.
 * `what` (a printf format) says what was tried and on which device. */
int cuda_check(ls_error *err, cudaError_t error, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns what to do about an error that the environment causes, as ": start …"; "" for other
 * errors. */
const char *cuda_advice(cudaError_t error);

/* Returns true if every later call on the device fails after this error. */
bool cuda_is_lost(cudaError_t error);

/* ---- functions of the device table (ls_device_ops in plugin.h) and their support ------------- */

/* cuda_stream.c: the functions of the device table for streams and events. ls_cuda_record records
 * an event. (The functions ls_cuda_record_begin, _next and _end below record a CUDA graph.)
 * ls_cuda_reached tells whether an event is complete. ls_cuda_streams_fini destroys all streams and
 * events of the device. */
int ls_cuda_stream_create(ls_stream **out, ls_device *device, int high_priority, ls_error *err);
void ls_cuda_stream_destroy(ls_device *device, ls_stream *stream);
int ls_cuda_record(ls_event **event, ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_wait(ls_device *device, ls_stream *stream, ls_event *event, ls_error *err);
void ls_cuda_streams_fini(ls_cuda_device *device);
int ls_cuda_reached(int *out, ls_device *device, ls_event *event, ls_error *err);

/* cuda_staging.c: the functions of the device table for pinned memory. ls_cuda_pinned_fini frees
 * the pinned memory that the user has not freed. */
int ls_cuda_pinned_alloc(void **out, ls_device *device, size_t bytes, ls_error *err);
void ls_cuda_pinned_free(ls_device *device, void *memory);
void ls_cuda_pinned_fini(ls_cuda_device *device);

/* cuda_staging.c: upload and download of the device table. ls_cuda_finish_downloads copies the
 * downloads of a stream to the callers' memory. The caller has synchronised the stream since its
 * last download.
 */
int ls_cuda_staging_init(ls_cuda_device *device, ls_error *err);
void ls_cuda_staging_fini(ls_cuda_device *device);
int ls_cuda_upload(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                   ls_error *err);
int ls_cuda_download(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                     ls_error *err);
void ls_cuda_finish_downloads(ls_cuda_device *device, const ls_stream *stream);

/* cuda_stream.c: the functions of the device table for recordings (CUDA graphs). */
int ls_cuda_record_begin(ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_record_next(ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_record_end(ls_recording **out, ls_device *device, ls_stream *stream, ls_error *err);
int ls_cuda_launch(ls_device *device, ls_stream *stream, ls_recording *recording,
                   const ls_step_args *args, ls_error *err);
void ls_cuda_recording_destroy(ls_device *device, ls_recording *recording);

/* cuda_spans.c: the functions of the device table for the timeline. A span is one kernel or copy.
 * Between two calls of ls_cuda_spans_take at most LS_CUDA_SPANS spans of a device are kept. Further
 * spans are dropped, and the next call counts them in *lost. */
enum { LS_CUDA_SPANS = 1 << 17 };
int ls_cuda_spans_begin(ls_device *device, ls_error *err);
int ls_cuda_spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost);
void ls_cuda_spans_end(ls_device *device);

/* Tells the timeline about a new stream. Thread: the device's. */
void ls_cuda_spans_stream(ls_cuda_device *device, const ls_stream *stream);
/* Ends the device's timeline before the device closes. */
void ls_cuda_spans_fini(ls_cuda_device *device);

/* Writes a readable form of a mangled C++ name, for example "cutlass::Kernel" for
 * "_ZN7cutlass6KernelI…". Other names are copied unchanged. */
void ls_cuda_readable_name(char *out, size_t size, const char *name);

/* Called at the beginning of a function that must not run while its stream is being recorded.
 * Returns LS_EINVAL if the stream is being recorded, else LS_OK. `what`: name of the refused
 * operation for the message, such as "an upload". */
int ls_cuda_not_recording(const ls_cuda_device *device, const ls_stream *stream, const char *what,
                          ls_error *err);

/* cuda_ops.c: the device table's op_create. */
int ls_cuda_op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err);

static inline ls_cuda_device *ls_cuda_device_of(ls_device *device)
{
    return (ls_cuda_device *)device;
}

/* Returns the stream that `stream` stands for: NULL is the compute stream. */
static inline ls_stream *ls_cuda_stream_of(const ls_cuda_device *device, ls_stream *stream)
{
    return stream ? stream : device->compute;
}

static inline cudaStream_t ls_cuda_stream(const ls_cuda_device *device, ls_stream *stream)
{
    return ls_cuda_stream_of(device, stream)->cuda;
}

/* Makes `args` available to the kernels that the caller enqueues next, in the GPU memory *out.
 * Enqueues a small kernel that copies them, unless they are there already. Never waits. While the
 * stream is captured into a graph, enqueues nothing, because each launch of the graph copies the
 * arguments. */
int ls_cuda_args(const ls_k_args **out, ls_cuda_device *device, ls_stream *stream,
                 const ls_step_args *args, ls_error *err);

/* sync of the device table: waits for one stream, or for all streams if `stream` is NULL. Then
 * returns the first error of the enqueued work. Bad data that a kernel has found is an error of
 * this kind. */
int ls_cuda_sync(ls_device *device, ls_stream *stream, ls_error *err);
/* Sets *out to whether the work that was enqueued before `event`, an event of the CUDA library, is
 * done. Does not wait. (ls_cuda_reached does it for an event of the device table, and finds bad
 * data too.) `what`: name of the work for messages. Errors: those of cuda_check. */
int ls_cuda_passed(bool *out, ls_cuda_device *device, cudaEvent_t event, const char *what,
                   ls_error *err);

#endif
