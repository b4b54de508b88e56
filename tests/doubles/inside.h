/* SPDX-License-Identifier: MIT */
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

/* ---- calls.c: the beginning of every function ------------------------------------------------ */

typedef enum dbl_call {
#define CALL(name, traits, error) DBL_##name,
#include "doubles/calls.def"
#undef CALL
    DBL_CALLS
} dbl_call;

enum {
    DBL_RELEASES = 1,    /* does its work even if it reports an error */
    DBL_NEVER_FAILS = 2, /* no rule applies, and it is not counted in the total of NULL */
    DBL_ANYTIME = 4,     /* works on a lost device */
    DBL_UNSAFE = 8,      /* not allowed in a thread that captures */
    DBL_NCCL = 16        /* returns an ncclResult_t */
};

/* Counts the call and applies rules, lost devices and the rules of capture. Returns non-zero if the
 * function must return *error at once. Returns zero with *error set for a release that does its
 * work and then returns the error. */
int dbl_enter(dbl_call call, int *error);
void dbl_calls_begin(void);

/* The beginning of a function that releases nothing. */
#define DBL_ENTER(name, type)                                                                      \
    do {                                                                                           \
        int error_;                                                                                \
        if (dbl_enter(DBL_##name, &error_))                                                        \
            return (type)error_;                                                                   \
    } while (0)
#define DBL_ENTER_CUDA(name) DBL_ENTER(name, cudaError_t)

/* Stores `error` for cudaGetLastError and returns it. */
cudaError_t dbl_result(cudaError_t error);

/* Returns non-zero while dbl_stall_streams stops the device's streams. */
int dbl_streams_stalled(int device);

/* ---- ledger.c: complaints and live objects --------------------------------------------------- */

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
/* Reports leaks as complaints. */
void dbl_count_leaks(void);

/* Handles are freed only at the end, so that a late use finds a dead object and not a new one. */
void dbl_bury(void *memory);
void dbl_empty_graves(void);

/* ---- stream.c ------------------------------------------------------------------------------- */

void dbl_launches_begin(void);

/* ---- idle.c: waiting without ordering memory ------------------------------------------------- */

typedef struct dbl_idle {
    unsigned rounds;
    uint64_t start_ns;
} dbl_idle;
uint64_t dbl_now_ns(void);
void dbl_idle_briefly(dbl_idle *idle); /* must be zeroed before the first call */
/* Returns non-zero once the wait has taken longer than the options allow. */
int dbl_idle_too_long(dbl_idle *idle);

extern dbl_options dbl_world; /* constant between dbl_begin and dbl_end */

/* ---- device.c ------------------------------------------------------------------------------- */

int dbl_current_device(void);
cudaError_t dbl_lost(int device); /* cudaSuccess: it is not lost */
int dbl_may_reach(int device, int memory_of);
void dbl_devices_begin(void);

/* ---- memory.c ------------------------------------------------------------------------------- */

enum { DBL_ON_HOST = -1, DBL_PAGEABLE = -2, DBL_OUT_OF_BOUNDS = -3 };

/* Returns the place of the bytes: a device's number, DBL_ON_HOST for pinned memory, DBL_PAGEABLE
 * for memory unknown to CUDA, DBL_OUT_OF_BOUNDS if they exceed the allocation in which they
 * start. */
int dbl_place(const void *memory, size_t bytes);

/* Marks the allocation as one that a collective may access. Freeing it meanwhile is a violation. */
void dbl_hold(const void *memory, int change);
size_t dbl_taken_bytes(int device);
void dbl_memory_begin(void);
void dbl_memory_end(void); /* frees leaked memory */

/* ---- work.c: a queue of work with one producer at a time and one consumer -------------------- */

typedef enum dbl_progress { DBL_DONE, DBL_BLOCKED, DBL_NOTHING } dbl_progress;

typedef struct dbl_work dbl_work;
struct dbl_work {
    _Atomic(dbl_work *) next;
    const char *name;
    int device;
    /* Called by the consumer again and again until it returns DBL_DONE. */
    dbl_progress (*run)(dbl_work *work);
    void (*drop)(dbl_work *work); /* called before the item is freed, run or not; may be NULL */
    int always;                   /* non-zero: runs even if the device is lost */
    size_t bytes;
    _Alignas(16) unsigned char data[];
};

/* Creates an item. `data` NULL: zeros. */
dbl_work *dbl_work_create(const char *name, dbl_progress (*run)(dbl_work *work), const void *data,
                          size_t bytes);
dbl_work *dbl_work_copy(const dbl_work *work);
void dbl_work_destroy(dbl_work *work);
/* Tries once to run the item, as the device `work->device`. */
dbl_progress dbl_work_run(dbl_work *work);

typedef struct dbl_fifo {
    dbl_work *first; /* used by the consumer: the next item follows it */
    dbl_work *last;  /* used by producers */
} dbl_fifo;
void dbl_fifo_init(dbl_fifo *fifo);
void dbl_fifo_fini(dbl_fifo *fifo);
void dbl_fifo_push(dbl_fifo *fifo, dbl_work *work);
dbl_work *dbl_fifo_peek(dbl_fifo *fifo); /* NULL if it is empty */
void dbl_fifo_pop(dbl_fifo *fifo);

/* ---- executor.c: the threads that run the streams' work -------------------------------------- */

/* Enqueues the work, which it then owns; adds it to the graph if the stream is being captured. */
cudaError_t dbl_enqueue(cudaStream_t stream, dbl_work *work);
/* Returns cudaSuccess if the stream's handle is alive and its device not lost; else the error. */
cudaError_t dbl_check_handle(cudaStream_t stream, const char *caller);
/* Checks in addition that the stream's device is current, so that work may be enqueued. */
cudaError_t dbl_check_stream(cudaStream_t stream, const char *caller);

/* The executor owns the stream from here to dbl_end. dbl_stream_stop stops it after its present
 * work. */
cudaError_t dbl_stream_start(cudaStream_t stream);
void dbl_stream_stop(cudaStream_t stream);
uint64_t dbl_pushed(cudaStream_t stream);
/* Returns whether the stream's item number `target` has finished. If so, it is a
 * synchronisation. */
int dbl_has_finished(cudaStream_t stream, uint64_t target);
/* Waits until done(arg). Meanwhile, in DBL_LAZY, runs the work that is needed. `wanted` may be
 * NULL: any stream. */
cudaError_t dbl_wait_until(int (*done)(void *arg), void *arg, cudaStream_t wanted,
                           const char *what);
/* In DBL_LAZY: runs one item, preferably of `wanted`, for a caller that polls. */
void dbl_nudge(cudaStream_t wanted);
/* Waits for all work in the stream. */
cudaError_t dbl_drain(cudaStream_t stream, const char *caller);
/* Waits for all work in the device's streams. */
cudaError_t dbl_drain_device(int device, const char *caller);
void dbl_executor_begin(void);
void dbl_executor_end(void);
/* Returns the device whose work the calling thread runs; −1 outside such work. */
int dbl_running_device(void);
/* Marks the device as lost because of its work. */
void dbl_fault(int device, cudaError_t error);
uint32_t dbl_random(uint32_t *state);

enum { DBL_ALIVE = 0x11fe, DBL_DEAD = 0xdead };

struct CUstream_st {
    _Atomic int magic;
    int number;
    int device;
    pthread_mutex_t producers; /* one producer at a time; the consumer never takes it */
    dbl_fifo fifo;
    _Atomic uint64_t pushed, finished;
    _Atomic int stop, exited;
    pthread_t thread;
    struct CUgraph_st *capture; /* graph of the capturing thread, or NULL */
    int slot;                   /* index in the capture */
};

struct CUevent_st {
    _Atomic int magic;
    int device;
    int timed;
    _Atomic uint64_t recorded, done;
    _Atomic uint64_t time_ns;
    _Atomic(cudaStream_t) stream; /* on which it was last recorded */
    struct CUgraph_st *capture;   /* capture in which it was recorded, or NULL */
    uint32_t clock[8];            /* vector clock of the capture when it was recorded */
};

/* ---- graph.c -------------------------------------------------------------------------------- */

/* Returns non-zero if the calling thread must not make unsafe calls; its captures are then
 * invalid. */
int dbl_capture_forbids(const char *caller);
void dbl_capture_append(cudaStream_t stream, dbl_work *work);
void dbl_capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t dbl_capture_wait(cudaStream_t stream, cudaEvent_t event);
/* cudaDeviceSynchronize on any thread invalidates captures on the device. */
int dbl_capture_breaks(int device);
void dbl_graphs_begin(void);

/* ---- nccl_comm.c ---------------------------------------------------------------------------- */

void dbl_nccl_begin(void);
/* Returns the number of NCCL operations that are enqueued or run on the device. */
int dbl_nccl_pending(int device);
void dbl_nccl_end(void);

#endif
