/* SPDX-License-Identifier: MIT */
#include "doubles/cupti.h"

#include "cuda/cupti_lib.h"

#ifdef LS_HAVE_CUPTI
#include "doubles/inside.h"

#include <string.h>

enum { STREAM_BASE = 13 }; /* ids are no indices */

static struct {
    pthread_mutex_t lock; /* guards everything below, and is held in calls of the client */
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc now;
    int kernels, copies, fills;
    uint8_t *buffer;
    size_t size, used, records, most, dropped;
    size_t records_most;
    const char *failing, *called;
    int failing_in;
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic int wanted; /* relaxed: nothing of the streams is ordered by it */

/* ---- control -------------------------------------------------------------------------------- */

void dbl_cupti_fail(const char *function, int nth)
{
    pthread_mutex_lock(&cupti.lock);
    cupti.failing = function;
    cupti.failing_in = nth;
    pthread_mutex_unlock(&cupti.lock);
}

void dbl_cupti_buffer_records(size_t most)
{
    pthread_mutex_lock(&cupti.lock);
    cupti.records_most = most;
    pthread_mutex_unlock(&cupti.lock);
}

void dbl_cupti_name(const char *name)
{
    pthread_mutex_lock(&cupti.lock);
    cupti.called = name;
    pthread_mutex_unlock(&cupti.lock);
}

int dbl_cupti_wants(void)
{
    return atomic_load_explicit(&wanted, memory_order_relaxed);
}

static int fails(const char *function)
{
    pthread_mutex_lock(&cupti.lock);
    int now = cupti.failing && strcmp(cupti.failing, function) == 0 && --cupti.failing_in <= 0;
    pthread_mutex_unlock(&cupti.lock);
    return now;
}

/* ---- records -------------------------------------------------------------------------------- */

static size_t size_of(CUpti_ActivityKind kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(ls_cupti_kernel);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(ls_cupti_copy);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(ls_cupti_fill);
    default: return 0;
    }
}

static void deliver(void)
{
    uint8_t *buffer = cupti.buffer;
    if (!buffer)
        return;
    cupti.buffer = NULL;
    cupti.complete(NULL, 0, buffer, cupti.size, cupti.used);
}

/* Room for a record, perhaps in a new buffer; NULL: it is dropped. */
static void *room_for(size_t bytes)
{
    if (cupti.buffer &&
        (cupti.used + bytes > cupti.size || (cupti.most > 0 && cupti.records == cupti.most)))
        deliver();
    if (!cupti.buffer) {
        size_t most = 0;
        cupti.request(&cupti.buffer, &cupti.size, &most);
        cupti.most = cupti.records_most ? cupti.records_most : most;
        cupti.used = cupti.records = 0;
    }
    if (!cupti.buffer) {
        cupti.dropped++;
        return NULL;
    }
    void *record = cupti.buffer + cupti.used;
    memset(record, 0, bytes);
    cupti.used += bytes;
    cupti.records++;
    return record;
}

static void note_kernel(const char *name, int device, int stream, uint64_t begin)
{
    ls_cupti_kernel *k = cupti.kernels ? room_for(sizeof *k) : NULL;
    if (!k)
        return;
    k->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k->name = cupti.called ? cupti.called : name;
    k->deviceId = (uint32_t)device;
    k->streamId = (uint32_t)(STREAM_BASE + stream);
    k->start = begin;
    k->end = cupti.now();
}

static void note_copy(int device, int stream, uint64_t begin)
{
    ls_cupti_copy *c = cupti.copies ? room_for(sizeof *c) : NULL;
    if (!c)
        return;
    c->kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    c->copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    c->deviceId = (uint32_t)device;
    c->streamId = (uint32_t)(STREAM_BASE + stream);
    c->start = begin;
    c->end = cupti.now();
}

static void note_fill(int device, int stream, uint64_t begin)
{
    ls_cupti_fill *f = cupti.fills ? room_for(sizeof *f) : NULL;
    if (!f)
        return;
    f->kind = CUPTI_ACTIVITY_KIND_MEMSET;
    f->deviceId = (uint32_t)device;
    f->streamId = (uint32_t)(STREAM_BASE + stream);
    f->start = begin;
    f->end = cupti.now();
}

/* A graph's kernels are there one by one; events are no activities. */
void dbl_cupti_ran(const char *what, int device, int stream, uint64_t begin_ns)
{
    static const char *const none[] = {"graph", "event record", "event wait"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(what, none[i]) == 0)
            return;
    pthread_mutex_lock(&cupti.lock);
    if (strcmp(what, "copy") == 0)
        note_copy(device, stream, begin_ns);
    else if (strcmp(what, "fill") == 0)
        note_fill(device, stream, begin_ns);
    else
        note_kernel(what, device, stream, begin_ns);
    pthread_mutex_unlock(&cupti.lock);
}

/* ---- the functions -------------------------------------------------------------------------- */

static CUptiResult register_clock(CUpti_TimestampCallbackFunc now)
{
    if (fails("cuptiActivityRegisterTimestampCallback"))
        return CUPTI_ERROR_UNKNOWN;
    pthread_mutex_lock(&cupti.lock);
    cupti.now = now;
    pthread_mutex_unlock(&cupti.lock);
    return CUPTI_SUCCESS;
}

static CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                      CUpti_BuffersCallbackCompleteFunc complete)
{
    if (fails("cuptiActivityRegisterCallbacks"))
        return CUPTI_ERROR_UNKNOWN;
    pthread_mutex_lock(&cupti.lock);
    cupti.request = request;
    cupti.complete = complete;
    pthread_mutex_unlock(&cupti.lock);
    return CUPTI_SUCCESS;
}

static void set(CUpti_ActivityKind kind, int on)
{
    pthread_mutex_lock(&cupti.lock);
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
        cupti.kernels = on;
    else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY)
        cupti.copies = on;
    else if (kind == CUPTI_ACTIVITY_KIND_MEMSET)
        cupti.fills = on;
    atomic_store_explicit(&wanted, cupti.kernels || cupti.copies || cupti.fills,
                          memory_order_relaxed);
    pthread_mutex_unlock(&cupti.lock);
}

static CUptiResult enable(CUpti_ActivityKind kind)
{
    if (fails("cuptiActivityEnable"))
        return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    set(kind, 1);
    return CUPTI_SUCCESS;
}

static CUptiResult disable(CUpti_ActivityKind kind)
{
    set(kind, 0);
    return fails("cuptiActivityDisable") ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

static CUptiResult flush(uint32_t flag)
{
    (void)flag;
    if (fails("cuptiActivityFlushAll"))
        return CUPTI_ERROR_UNKNOWN;
    pthread_mutex_lock(&cupti.lock);
    deliver();
    pthread_mutex_unlock(&cupti.lock);
    return CUPTI_SUCCESS;
}

/* In the client's callback: `lock` is held. */
static CUptiResult next_record(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    size_t at = *record ? (size_t)((uint8_t *)*record - buffer) + size_of((*record)->kind) : 0;
    if (at >= valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)(buffer + at);
    return size_of((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

static CUptiResult dropped(CUcontext context, uint32_t stream, size_t *out)
{
    (void)context;
    (void)stream;
    *out = cupti.dropped;
    cupti.dropped = 0;
    return CUPTI_SUCCESS;
}

static CUptiResult stream_id(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id)
{
    (void)context;
    (void)per_thread;
    if (fails("cuptiGetStreamIdEx"))
        return CUPTI_ERROR_INVALID_STREAM;
    *id = (uint32_t)(STREAM_BASE + stream->number);
    return CUPTI_SUCCESS;
}

static CUptiResult result_text(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                          : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

int ls_cupti_load(ls_cupti *out, ls_error *err)
{
    if (fails("load")) {
        if (err) {
            memset(err, 0, sizeof *err);
            err->status = LS_EUNSUPPORTED;
            strcpy(err->text, "CUPTI does not load: there is no double of it");
        }
        return LS_EUNSUPPORTED;
    }
    *out = (ls_cupti){
        .cuptiActivityRegisterTimestampCallback = register_clock,
        .cuptiActivityRegisterCallbacks = register_callbacks,
        .cuptiActivityEnable = enable,
        .cuptiActivityDisable = disable,
        .cuptiActivityFlushAll = flush,
        .cuptiActivityGetNextRecord = next_record,
        .cuptiActivityGetNumDroppedRecords = dropped,
        .cuptiGetStreamIdEx = stream_id,
        .cuptiGetResultString = result_text,
    };
    return LS_OK;
}

#else /* no header */

void dbl_cupti_ran(const char *what, int device, int stream, uint64_t begin_ns)
{
    (void)what;
    (void)device;
    (void)stream;
    (void)begin_ns;
}

int dbl_cupti_wants(void)
{
    return 0;
}

void dbl_cupti_fail(const char *function, int nth)
{
    (void)function;
    (void)nth;
}

void dbl_cupti_name(const char *name)
{
    (void)name;
}
#endif
