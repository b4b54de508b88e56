/* SPDX-License-Identifier: MIT */
/* Runs the streams' work: on a thread for each stream, or on the thread that synchronises. */
#include "doubles/cupti.h"
#include "doubles/inside.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 2048 };

static cudaStream_t streams[STREAMS]; /* every stream since dbl_begin, destroyed ones too */
static _Atomic int stream_count;
static pthread_mutex_t creation = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t execution = PTHREAD_MUTEX_INITIALIZER; /* DBL_LAZY, DBL_EAGER */
static uint32_t turns;                                        /* the order's random state */
static _Atomic int ending;
static _Thread_local int running = -1;
static _Thread_local int running_stream;

int dbl_running_device(void)
{
    return running;
}

uint32_t dbl_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

dbl_progress dbl_work_run(dbl_work *work)
{
    int before = running;
    const uint64_t begin = dbl_cupti_wants() ? dbl_now_ns() : 0;
    running = work->device;
    dbl_progress progress = work->run(work);
    running = before;
    if (begin && progress == DBL_DONE)
        dbl_cupti_ran(work->name, work->device, running_stream, begin);
    return progress;
}

/* ---- one item ------------------------------------------------------------------------------- */

static dbl_progress try_one(cudaStream_t s)
{
    dbl_work *work = dbl_fifo_peek(&s->fifo);
    if (!work)
        return DBL_NOTHING;
    int lost = dbl_lost(s->device) != cudaSuccess;
    if (dbl_streams_stalled(s->device) && !lost)
        return DBL_BLOCKED;
    running_stream = s->number;
    if ((!lost || work->always) && dbl_work_run(work) == DBL_BLOCKED)
        return DBL_BLOCKED;
    dbl_fifo_pop(&s->fifo);
    uint64_t finished = atomic_load_explicit(&s->finished, memory_order_relaxed);
    atomic_store_explicit(&s->finished, finished + 1, memory_order_release);
    return DBL_DONE;
}

uint64_t dbl_pushed(cudaStream_t stream)
{
    return atomic_load_explicit(&stream->pushed, memory_order_relaxed);
}

int dbl_has_finished(cudaStream_t stream, uint64_t target)
{
    if (atomic_load_explicit(&stream->finished, memory_order_relaxed) < target)
        return 0;
    return atomic_load_explicit(&stream->finished, memory_order_acquire) >= target;
}

/* ---- a thread per stream -------------------------------------------------------------------- */

static void *stream_main(void *arg)
{
    cudaStream_t s = arg;
    dbl_idle idle = {0};
    while (!atomic_load_explicit(&ending, memory_order_acquire)) {
        int stop = atomic_load_explicit(&s->stop, memory_order_relaxed);
        if (try_one(s) == DBL_DONE)
            memset(&idle, 0, sizeof idle);
        else if (stop && dbl_has_finished(s, dbl_pushed(s)))
            break;
        else
            dbl_idle_briefly(&idle);
    }
    return NULL;
}

/* ---- whoever synchronises ------------------------------------------------------------------- */

/* Tries streams in turn from number `start`, one item of the first that has one ready. */
static int advance_from(int start)
{
    int count = atomic_load(&stream_count);
    for (int i = 0; i < count; i++)
        if (try_one(streams[(start + i) % count]) == DBL_DONE)
            return 1;
    return 0;
}

/* One item of each stream that has one ready. */
static int advance_all(void)
{
    int progress = 0, count = atomic_load(&stream_count);
    for (int i = 0; i < count; i++)
        progress |= try_one(streams[i]) == DBL_DONE;
    return progress;
}

static int advance(cudaStream_t wanted)
{
    int progress;
    pthread_mutex_lock(&execution);
    if (dbl_world.mode == DBL_LAZY && dbl_world.seed) {
        int count = atomic_load(&stream_count);
        progress = count && advance_from((int)(dbl_random(&turns) % (uint32_t)count));
    } else {
        progress = (wanted && try_one(wanted) == DBL_DONE) || advance_all();
    }
    pthread_mutex_unlock(&execution);
    return progress;
}

void dbl_nudge(cudaStream_t wanted)
{
    if (dbl_world.mode != DBL_THREADS)
        advance(wanted);
}

cudaError_t dbl_wait_until(int (*done)(void *arg), void *arg, cudaStream_t wanted, const char *what)
{
    dbl_idle idle = {0};
    while (!done(arg)) {
        if (dbl_world.mode != DBL_THREADS && advance(wanted)) {
            memset(&idle, 0, sizeof idle);
            continue;
        }
        dbl_idle_briefly(&idle);
        if (dbl_idle_too_long(&idle)) {
            dbl_complain("%s: a hang", what);
            return cudaErrorLaunchTimeout;
        }
    }
    return cudaSuccess;
}

struct target {
    cudaStream_t stream;
    uint64_t number;
};

static int reached(void *arg)
{
    const struct target *t = arg;
    return dbl_has_finished(t->stream, t->number);
}

cudaError_t dbl_drain(cudaStream_t stream, const char *caller)
{
    struct target t = {stream, dbl_pushed(stream)};
    return dbl_wait_until(reached, &t, stream, caller);
}

cudaError_t dbl_drain_device(int device, const char *caller)
{
    cudaError_t error = cudaSuccess;
    int count = atomic_load_explicit(&stream_count, memory_order_acquire);
    for (int i = 0; i < count && error == cudaSuccess; i++)
        if (streams[i]->device == device)
            error = dbl_drain(streams[i], caller);
    return error ? error : dbl_lost(device);
}

/* ---- enqueueing ----------------------------------------------------------------------------- */

cudaError_t dbl_check_handle(cudaStream_t stream, const char *caller)
{
    if (stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        dbl_complain("%s on a default stream", caller);
        return cudaErrorInvalidResourceHandle;
    }
    if (atomic_load_explicit(&stream->magic, memory_order_relaxed) != DBL_ALIVE) {
        dbl_complain("%s on a stream that was destroyed", caller);
        return cudaErrorInvalidResourceHandle;
    }
    return dbl_lost(stream->device);
}

cudaError_t dbl_check_stream(cudaStream_t stream, const char *caller)
{
    cudaError_t error = dbl_check_handle(stream, caller);
    if (error == cudaSuccess && stream->device != dbl_current_device()) {
        dbl_complain("%s on a stream of device %d while device %d is current", caller,
                     stream->device, dbl_current_device());
        return cudaErrorInvalidResourceHandle;
    }
    return error;
}

cudaError_t dbl_enqueue(cudaStream_t stream, dbl_work *work)
{
    work->device = stream->device;
    if (stream->capture) {
        dbl_capture_append(stream, work);
        return cudaSuccess;
    }
    pthread_mutex_lock(&stream->producers);
    atomic_fetch_add_explicit(&stream->pushed, 1, memory_order_relaxed);
    dbl_fifo_push(&stream->fifo, work);
    pthread_mutex_unlock(&stream->producers);
    if (dbl_world.mode == DBL_EAGER)
        while (advance(NULL))
            ;
    return cudaSuccess;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

cudaError_t dbl_stream_start(cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    pthread_mutex_init(&stream->producers, NULL);
    dbl_fifo_init(&stream->fifo);
    pthread_mutex_lock(&creation);
    int number = atomic_load(&stream_count);
    stream->number = number;
    if (number == STREAMS || (dbl_world.mode == DBL_THREADS &&
                              pthread_create(&stream->thread, NULL, stream_main, stream) != 0)) {
        error = cudaErrorMemoryAllocation;
        dbl_fifo_fini(&stream->fifo);
    } else {
        streams[number] = stream;
        atomic_store(&stream_count, number + 1);
    }
    pthread_mutex_unlock(&creation);
    return error;
}

void dbl_stream_stop(cudaStream_t stream)
{
    atomic_store_explicit(&stream->stop, 1, memory_order_relaxed);
}

void dbl_executor_begin(void)
{
    atomic_store(&stream_count, 0);
    atomic_store(&ending, 0);
    turns = dbl_world.seed;
}

static void finish(cudaStream_t s)
{
    if (dbl_drain(s, "the end of the test") != cudaSuccess) {
        dbl_work *work = dbl_fifo_peek(&s->fifo);
        dbl_complain("a stream of device %d never got past '%s'", s->device,
                     work ? work->name : "nothing");
    }
}

void dbl_executor_end(void)
{
    int count = atomic_load(&stream_count);
    for (int i = 0; i < count; i++)
        finish(streams[i]);
    atomic_store_explicit(&ending, 1, memory_order_release);
    for (int i = 0; i < count; i++) {
        cudaStream_t s = streams[i];
        if (dbl_world.mode == DBL_THREADS)
            pthread_join(s->thread, NULL);
        dbl_fifo_fini(&s->fifo);
        pthread_mutex_destroy(&s->producers);
        free(s);
    }
    atomic_store(&stream_count, 0);
}
