/* Common parts of the files of the doubles. */
#ifndef TESTS_DOUBLES_INSIDE_H
#define TESTS_DOUBLES_INSIDE_H

#include "doubles/control.h"
#include "doubles/launch.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* ---- calls.c: what every function does first ------------------------------------------------ */

typedef enum dbl_call {
#define CALL(name, traits, error) DBL_##name,
#include "doubles/calls.def"
#undef CALL
    DBL_CALLS
} dbl_call;

enum {
    DBL_RELEASES = 1,    /* does its work even when it reports an error */
    DBL_NEVER_FAILS = 2, /* no rule applies, and it is not counted in NULL's total */
    DBL_ANYTIME = 4,     /* works on a device that is lost */
    DBL_UNSAFE = 8,      /* not in a thread that captures */
    DBL_NCCL = 16        /* returns an ncclResult_t */
};

/* Counts the call and applies rules, lost devices and the laws of capture. Non-zero: the function
 * returns *error now. Zero with *error set: a release that does its work and then returns it. */
int dbl_enter(dbl_call call, int *error);
void dbl_calls_begin(void);

/* The start of a function that releases nothing. */
#define DBL_ENTER(name, type)                                                                      \
    do {                                                                                           \
        int error_;                                                                                \
        if (dbl_enter(DBL_##name, &error_))                                                        \
            return (type)error_;                                                                   \
    } while (0)
#define DBL_ENTER_CUDA(name) DBL_ENTER(name, cudaError_t)

/* Remembers `error` for cudaGetLastError and returns it. */
cudaError_t dbl_result(cudaError_t error);

/* Non-zero while dbl_stall_streams holds the device's streams. */
int dbl_streams_stalled(int device);

/* ---- ledger.c: complaints and what is live -------------------------------------------------- */

void dbl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void dbl_ledger_begin(void);

typedef enum dbl_thing {
    DBL_ALLOCATION,
    DBL_PINNED,
    DBL_STREAM,
    DBL_EVENT,
    DBL_GRAPH,
    DBL_EXEC,
    DBL_COMM,
    DBL_THINGS
} dbl_thing;
void dbl_count(dbl_thing thing, int change);
/* Leaks are complained about. */
void dbl_count_leaks(void);

/* Handles are freed at the end only, so that a late use finds a dead object and not a new one. */
void dbl_bury(void *memory);
void dbl_empty_graves(void);

/* ---- idle.c: waiting without ordering anything ---------------------------------------------- */

typedef struct dbl_idle {
    unsigned rounds;
    uint64_t start_ns;
} dbl_idle;
uint64_t dbl_now_ns(void);
void dbl_idle_briefly(dbl_idle *idle); /* starts from a zeroed one */
/* Non-zero once the wait has taken longer than the options allow. */
int dbl_idle_too_long(dbl_idle *idle);

extern dbl_options dbl_world; /* frozen between dbl_begin and dbl_end */

/* ---- device.c ------------------------------------------------------------------------------- */

int dbl_current_device(void);
cudaError_t dbl_lost(int device); /* cudaSuccess: it is not */
int dbl_may_reach(int device, int memory_of);
void dbl_devices_begin(void);

/* ---- memory.c ------------------------------------------------------------------------------- */

enum { DBL_ON_HOST = -1, DBL_PAGEABLE = -2, DBL_OUT_OF_BOUNDS = -3 };

/* Where the bytes lie: a device's number, DBL_ON_HOST for pinned memory, DBL_PAGEABLE for memory
 * that CUDA does not know, DBL_OUT_OF_BOUNDS when they leave the allocation they start in. */
int dbl_place(const void *memory, size_t bytes);

/* Marks the allocation as one that a collective may touch; freeing it meanwhile is a breach. */
void dbl_hold(const void *memory, int change);
size_t dbl_taken_bytes(int device);
void dbl_memory_begin(void);
void dbl_memory_end(void); /* frees what leaked */

/* ---- work.c: a queue of work, one producer at a time, one consumer -------------------------- */

typedef enum dbl_progress { DBL_DONE, DBL_BLOCKED, DBL_NOTHING } dbl_progress;

typedef struct dbl_work dbl_work;
struct dbl_work {
    _Atomic(dbl_work *) next;
    const char *name;
    int device;
    /* On the consumer's side, again and again until it says DBL_DONE. */
    dbl_progress (*run)(dbl_work *work);
    void (*drop)(dbl_work *work); /* or NULL: before it is freed, run or not */
    int always;                   /* non-zero: runs even where the device is lost */
    size_t bytes;
    _Alignas(16) unsigned char data[];
};

/* `data` NULL: zeros. */
dbl_work *dbl_work_create(const char *name, dbl_progress (*run)(dbl_work *work), const void *data,
                          size_t bytes);
dbl_work *dbl_work_copy(const dbl_work *work);
void dbl_work_destroy(dbl_work *work);
/* One try, as the device `work->device`. */
dbl_progress dbl_work_run(dbl_work *work);

typedef struct dbl_fifo {
    dbl_work *first; /* consumer's: behind it lies the next item */
    dbl_work *last;  /* producers' */
} dbl_fifo;
void dbl_fifo_init(dbl_fifo *fifo);
void dbl_fifo_fini(dbl_fifo *fifo);
void dbl_fifo_push(dbl_fifo *fifo, dbl_work *work);
dbl_work *dbl_fifo_peek(dbl_fifo *fifo); /* or NULL */
void dbl_fifo_pop(dbl_fifo *fifo);

/* ---- executor.c: who runs the streams' work, and when --------------------------------------- */

/* Takes the work over. Into the graph when the stream is being captured. */
cudaError_t dbl_enqueue(cudaStream_t stream, dbl_work *work);
/* The stream's handle is alive and its device not lost; else the error. */
cudaError_t dbl_check_handle(cudaStream_t stream, const char *caller);
/* The same, and its device is current: work may be enqueued. */
cudaError_t dbl_check_stream(cudaStream_t stream, const char *caller);

/* The executor owns the stream from here to dbl_end; `stop`: when it has run what it holds. */
cudaError_t dbl_stream_start(cudaStream_t stream);
void dbl_stream_stop(cudaStream_t stream);
uint64_t dbl_pushed(cudaStream_t stream);
/* Has the stream's item number `target` finished? A synchronisation if so. */
int dbl_has_finished(cudaStream_t stream, uint64_t target);
/* Waits until done(arg); meanwhile, in DBL_LAZY, runs what it takes. `wanted` may be NULL: any. */
cudaError_t dbl_wait_until(int (*done)(void *arg), void *arg, cudaStream_t wanted,
                           const char *what);
/* In DBL_LAZY: runs one item, preferably of `wanted`, for somebody who asks again and again. */
void dbl_nudge(cudaStream_t wanted);
/* Waits for everything the device's streams hold. */
cudaError_t dbl_drain_device(int device, const char *caller);
void dbl_executor_begin(void);
void dbl_executor_end(void);
/* The device whose work the calling thread runs, −1 outside. */
int dbl_running_device(void);
/* The device is lost by what its work did. */
void dbl_fault(int device, cudaError_t error);
uint32_t dbl_random(uint32_t *state);

enum { DBL_ALIVE = 0x11fe, DBL_DEAD = 0xdead };

struct CUstream_st {
    _Atomic int magic;
    int number;
    int device;
    pthread_mutex_t producers; /* one at a time; the consumer never takes it */
    dbl_fifo fifo;
    _Atomic uint64_t pushed, finished;
    _Atomic int stop, exited;
    pthread_t thread;
    struct CUgraph_st *capture; /* or NULL; the capturing thread's */
    int slot;                   /* of the capture */
};

struct CUevent_st {
    _Atomic int magic;
    int device;
    int timed;
    _Atomic uint64_t recorded, done;
    _Atomic uint64_t time_ns;
    _Atomic(cudaStream_t) stream; /* recorded on last */
    struct CUgraph_st *capture;   /* recorded there, or NULL */
    uint32_t clock[8];            /* of the capture, as recorded */
};

/* ---- graph.c -------------------------------------------------------------------------------- */

/* Non-zero if the calling thread must not do unsafe things; its captures are then invalid. */
int dbl_capture_forbids(const char *caller);
void dbl_capture_append(cudaStream_t stream, dbl_work *work);
void dbl_capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t dbl_capture_wait(cudaStream_t stream, cudaEvent_t event);
/* cudaDeviceSynchronize, whoever calls it, breaks captures on the device. */
int dbl_capture_breaks(int device);
void dbl_graphs_begin(void);

/* ---- nccl_comm.c ---------------------------------------------------------------------------- */

void dbl_nccl_end(void);

#endif
