/* SPDX-License-Identifier: MIT */
/* The timeline of a GPU: the device table's spans_begin, spans_take and spans_end. A span is one
 * kernel or copy on a stream.
 *
 * CUPTI is NVIDIA's library that records kernels and copies. CUPTI has one state for the whole
 * process, and its callbacks have no user argument. Therefore this file has one *collector* for all
 * devices; it is the back end's only state outside a device. CUPTI asks for a buffer of the
 * collector, fills it with records, and returns it on a thread of its own. The collector converts
 * each record to a span of the device whose stream the record names.
 *
 * Memory is bounded: LS_CUDA_SPAN_BUFFERS buffers, and LS_CUDA_SPANS spans of each device between
 * two calls of spans_take. Spans that exceed these limits are counted as lost. A record can name an
 * unknown stream, for example that of a branch of a graph. The span of such a record goes to a
 * device of the same GPU, if possible to one whose timeline is being taken.
 *
 * Clock: CUPTI asks a callback of this file for the time of the host's timeline, and converts the
 * GPU's times to this clock. (Without the callback CUPTI uses CLOCK_REALTIME, which jumps when
 * somebody sets it.) */
#include "cuda/cuda_device.h"

#include "base/clock.h"
#include "cuda/cupti_lib.h"

#include <stdio.h>
#include <string.h>

enum {
    LS_CUDA_SPAN_BUFFERS = 16,
    LS_CUDA_SPAN_BUFFER_BYTES = 1 << 20,
    /* largest number of names of a device; further names are shown as "other" */
    LS_CUDA_SPAN_NAMES = 512,
    LS_CUDA_SPAN_NAME = 96,
    LS_CUDA_SPAN_STREAMS = 64
};

/* ---- names ---------------------------------------------------------------------------------- */

/* Reads a decimal length and an identifier of that length, as in C++ mangled names. Returns the
 * text after the identifier, or NULL if there is no identifier. */
static const char *identifier(const char *at, const char **text, size_t *length)
{
    size_t n = 0;
    if (*at < '1' || *at > '9')
        return NULL;
    for (; *at >= '0' && *at <= '9' && n < 4096; at++)
        n = 10 * n + (size_t)(*at - '0');
    if (strnlen(at, n) < n)
        return NULL;
    *text = at;
    *length = n;
    return at + n;
}

void ls_cuda_readable_name(char *out, size_t size, const char *name)
{
    const char *at = name, *text = NULL;
    size_t used = 0, length = 0;
    if (strncmp(at, "_Z", 2) == 0) {
        const int nested = at[2] == 'N';
        at += nested ? 3 : 2;
        while ((at = identifier(at, &text, &length))) {
            if (strncmp(text, "_GLOBAL__N_", 11) != 0)
                used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? "::" : "",
                                         (int)length, text);
            if (!nested || used >= size)
                break;
        }
    }
    if (used == 0)
        snprintf(out, size, "%s", name);
}

#ifdef LS_HAVE_CUPTI
#include <pthread.h>
#include <time.h>

typedef struct name {
    uint64_t
        hash; /* hash of the whole name; names with the same hash count as equal; 0: free entry */
    char text[LS_CUDA_SPAN_NAME];
} name;

struct ls_cuda_spans {
    struct ls_cuda_spans *next;            /* next in the collector's list */
    int ordinal,                           /* CUDA's number of the GPU */
        collecting;                        /* non-zero: a timeline of this device is being taken */
    uint32_t stream[LS_CUDA_SPAN_STREAMS]; /* CUPTI's numbers of the device's streams */
    int streams;                           /* number of entries of `stream` */
    uint64_t taken,                        /* number of spans that spans_take has returned */
        put,                               /* number of spans that were stored in `ring` */
        lost;                              /* number of spans lost since the last spans_take */
    name name[LS_CUDA_SPAN_NAMES];         /* hash table of names */
    int names;                             /* number of entries of `name` in use */
    ls_device_span ring[LS_CUDA_SPANS];    /* span number i is in entry i % LS_CUDA_SPANS */
};
typedef struct ls_cuda_spans spans;

/* The collector. A thread that begins or ends a timeline holds the mutex `turn`, also while it
 * calls CUPTI. CUPTI's callbacks take only `lock`. No thread holds `lock` during a call that can
 * run a callback. */
static struct collector {
    pthread_mutex_t turn, lock;
    ls_cupti cupti; /* `turn` protects this field and the next ones up to `memory` */
    int loaded,     /* non-zero: `cupti` is valid */
        users,      /* number of timelines that are being taken */
        enabled;    /* number of kinds of records that CUPTI has been told to record */
    const ls_host *host;
    unsigned char *memory;
    spans *list; /* the spans of all devices; `lock` protects this field and the next ones */
    unsigned char *free[LS_CUDA_SPAN_BUFFERS];
    int frees; /* number of free buffers */
} collector = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- from records to spans; `lock` is held --------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h ? h : 1;
}

static const char *keep_name(spans *s, const char *text)
{
    const uint64_t hash = hash_of(text);
    size_t at = hash % LS_CUDA_SPAN_NAMES;
    while (s->name[at].hash != 0 && s->name[at].hash != hash)
        at = (at + 1) % LS_CUDA_SPAN_NAMES;
    if (s->name[at].hash == 0) {
        /* one entry of the table stays free, so that each search ends */
        if (s->names == LS_CUDA_SPAN_NAMES - 1)
            return "other";
        s->names++;
        s->name[at].hash = hash;
        ls_cuda_readable_name(s->name[at].text, sizeof s->name[at].text, text);
    }
    return s->name[at].text;
}

static spans *owner_of(uint32_t ordinal, uint32_t stream)
{
    spans *any = NULL;
    for (spans *s = collector.list; s; s = s->next) {
        if ((uint32_t)s->ordinal != ordinal)
            continue;
        if (!any || s->collecting > any->collecting)
            any = s;
        for (int i = 0; i < s->streams; i++)
            if (s->stream[i] == stream)
                return s;
    }
    return any;
}

static void spans_put(uint32_t ordinal, uint32_t stream, const char *text, uint64_t begin,
                      uint64_t end)
{
    spans *s = owner_of(ordinal, stream);
    if (!s)
        return;
    if (s->put - s->taken == LS_CUDA_SPANS || begin == 0 || end < begin) {
        s->lost++; /* the ring is full, or the work was still running when collecting ended */
        return;
    }
    s->ring[s->put++ % LS_CUDA_SPANS] =
        (ls_device_span){.begin_ns = begin,
                         .end_ns = end,
                         .name = keep_name(s, text ? text : "kernel"),
                         .stream = stream};
}

static const char *copy_name(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy to the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy within the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "copy between devices";
    default: return "copy";
    }
}

static void take_record(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const ls_cupti_kernel *k = (const void *)record;
        spans_put(k->deviceId, k->streamId, k->name, k->start, k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const ls_cupti_copy *c = (const void *)record;
        spans_put(c->deviceId, c->streamId, copy_name(c->copyKind), c->start, c->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const ls_cupti_peer_copy *c = (const void *)record;
        spans_put(c->deviceId, c->streamId, "copy between devices", c->start, c->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const ls_cupti_fill *f = (const void *)record;
        spans_put(f->deviceId, f->streamId, "fill", f->start, f->end);
        break;
    }
    default: break;
    }
}

/* ---- CUPTI's callbacks, on any thread -------------------------------------------------------- */

static uint64_t CUPTIAPI now_ns(void)
{
    return ls_now_ns();
}

/* Gives CUPTI a free buffer. If there is none, CUPTI drops records and counts them. */
static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = NULL;
    *size = 0;
    *most = 0;
    pthread_mutex_lock(&collector.lock);
    if (collector.frees > 0) {
        *buffer = collector.free[--collector.frees];
        *size = LS_CUDA_SPAN_BUFFER_BYTES;
    }
    pthread_mutex_unlock(&collector.lock);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    const ls_cupti *cupti =
        &collector.cupti; /* read without `turn`: no thread writes to it while CUPTI records */
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    if (cupti->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) != CUPTI_SUCCESS)
        dropped = 0;
    pthread_mutex_lock(&collector.lock);
    if (collector.list)
        collector.list->lost += dropped;
    while (valid > 0 && cupti->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        take_record(record);
    collector.free[collector.frees++] = buffer;
    pthread_mutex_unlock(&collector.lock);
}

/* ---- begin and end; `turn` is held ----------------------------------------------------------- */

static int check(CUptiResult result, const char *call, ls_error *err)
{
    const char *text = NULL;
    if (result == CUPTI_SUCCESS)
        return LS_OK;
    if (collector.cupti.cuptiGetResultString(result, &text) != CUPTI_SUCCESS || !text)
        text = "no text";
    return ls_fail(err, LS_EUNSUPPORTED, "%.*s: %s (%d)", (int)strcspn(call, "("), call, text,
                   (int)result);
}
#define CHECK(call, err) check(collector.cupti.call, #call, err)

static int load(ls_error *err)
{
    if (collector.loaded)
        return LS_OK;
    int status = ls_cupti_load(&collector.cupti, err);
    collector.loaded = status == LS_OK;
    return status;
}

static int get_buffers(const ls_host *host, ls_error *err)
{
    if (collector.memory)
        return LS_OK;
    collector.memory = ls_alloc(host, (size_t)LS_CUDA_SPAN_BUFFERS * LS_CUDA_SPAN_BUFFER_BYTES);
    if (!collector.memory)
        return ls_fail(err, LS_ENOMEM, "out of memory for a timeline");
    collector.host = host;
    pthread_mutex_lock(&collector.lock);
    for (int i = 0; i < LS_CUDA_SPAN_BUFFERS; i++)
        collector.free[i] = collector.memory + (size_t)i * LS_CUDA_SPAN_BUFFER_BYTES;
    collector.frees = LS_CUDA_SPAN_BUFFERS;
    pthread_mutex_unlock(&collector.lock);
    return LS_OK;
}

/* Frees the buffers. If CUPTI has not returned all buffers, CUPTI can still write to them. Then the
 * memory stays allocated, and the next timeline uses it. */
static void put_buffers_away(void)
{
    pthread_mutex_lock(&collector.lock);
    const int all = collector.frees == LS_CUDA_SPAN_BUFFERS;
    if (all)
        collector.frees = 0;
    pthread_mutex_unlock(&collector.lock);
    if (!all)
        return;
    ls_free(collector.host, collector.memory);
    collector.memory = NULL;
}

static void spans_stop(void)
{
    while (collector.enabled > 0)
        (void)collector.cupti.cuptiActivityDisable(kinds[--collector.enabled]);
    (void)collector.cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    put_buffers_away();
}

static int spans_start(const ls_host *host, ls_error *err)
{
    int status = load(err);
    if (status)
        return status;
    status = get_buffers(host, err);
    if (status)
        return status;
    /* The clock's callback is registered first, because CUPTI uses its own clock for records that
     * begin earlier. */
    status = CHECK(cuptiActivityRegisterTimestampCallback(now_ns), err);
    if (status == LS_OK)
        status = CHECK(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), err);
    for (; status == LS_OK && collector.enabled < KINDS; collector.enabled += status == LS_OK)
        status = CHECK(cuptiActivityEnable(kinds[collector.enabled]), err);
    if (status)
        spans_stop();
    return status;
}

static int name_stream(spans *s, const ls_stream *stream, ls_error *err)
{
    uint32_t id = 0;
    int status = CHECK(cuptiGetStreamIdEx(NULL, stream->cuda, 0, &id), err);
    if (status)
        return status;
    pthread_mutex_lock(&collector.lock);
    if (s->streams < LS_CUDA_SPAN_STREAMS)
        s->stream[s->streams++] = id;
    pthread_mutex_unlock(&collector.lock);
    return LS_OK;
}

static int name_streams(ls_cuda_device *d, ls_error *err)
{
    int status = LS_OK;
    pthread_mutex_lock(&collector.lock);
    d->spans->streams = 0;
    pthread_mutex_unlock(&collector.lock);
    for (const ls_stream *s = d->streams; status == LS_OK && s; s = s->next)
        status = name_stream(d->spans, s, err);
    return status;
}

static int make_spans(ls_cuda_device *d, ls_error *err)
{
    if (d->spans)
        return LS_OK;
    spans *s = ls_alloc(d->host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a timeline", d->name);
    s->ordinal = d->ordinal;
    pthread_mutex_lock(&collector.lock);
    s->next = collector.list;
    collector.list = s;
    pthread_mutex_unlock(&collector.lock);
    d->spans = s;
    return LS_OK;
}

static void set_collecting(spans *s, int collecting)
{
    pthread_mutex_lock(&collector.lock);
    s->collecting = collecting;
    if (collecting)
        s->taken = s->put = s->lost = 0;
    pthread_mutex_unlock(&collector.lock);
}

/* ---- functions of the device table ----------------------------------------------------------- */

int ls_cuda_spans_begin(ls_device *device, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    pthread_mutex_lock(&collector.turn);
    int status = make_spans(d, err);
    if (status == LS_OK && d->spans->collecting)
        status = ls_fail(err, LS_EINVAL, "%s: another timeline is being taken", d->name);
    else if (status == LS_OK) {
        set_collecting(d->spans, 1);
        status = collector.users == 0 ? spans_start(d->host, err) : LS_OK;
        const int started = status == LS_OK;
        if (started)
            status = name_streams(d, err);
        if (status == LS_OK)
            collector.users++;
        else
            set_collecting(d->spans, 0);
        if (started && collector.users == 0)
            spans_stop();
    }
    pthread_mutex_unlock(&collector.turn);
    return status;
}

void ls_cuda_spans_stream(ls_cuda_device *d, const ls_stream *stream)
{
    if (!d->spans)
        return;
    pthread_mutex_lock(&collector.turn);
    /* an error is ignored: spans of a stream without a known number also go to a device of this
     * GPU */
    if (d->spans->collecting)
        (void)name_stream(d->spans, stream, NULL);
    pthread_mutex_unlock(&collector.turn);
}

int ls_cuda_spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost)
{
    spans *s = ls_cuda_device_of(device)->spans;
    int count = 0;
    *lost = 0;
    if (!s)
        return 0;
    pthread_mutex_lock(&collector.lock);
    for (; count < most && s->taken < s->put; s->taken++)
        out[count++] = s->ring[s->taken % LS_CUDA_SPANS];
    *lost = s->lost;
    s->lost = 0;
    pthread_mutex_unlock(&collector.lock);
    return count;
}

/* Ends the device's timeline. If it is the last timeline, also makes CUPTI return the records that
 * it still has, of all devices. */
void ls_cuda_spans_end(ls_device *device)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    pthread_mutex_lock(&collector.turn);
    if (d->spans && d->spans->collecting) {
        if (--collector.users == 0)
            spans_stop();
        set_collecting(d->spans, 0);
    }
    pthread_mutex_unlock(&collector.turn);
}

void ls_cuda_spans_fini(ls_cuda_device *d)
{
    if (!d->spans)
        return;
    ls_cuda_spans_end(&d->device);
    pthread_mutex_lock(&collector.lock);
    for (spans **at = &collector.list; *at; at = &(*at)->next)
        if (*at == d->spans) {
            *at = d->spans->next;
            break;
        }
    pthread_mutex_unlock(&collector.lock);
    ls_free(d->host, d->spans);
    d->spans = NULL;
}

#else /* built without CUPTI */

int ls_cuda_spans_begin(ls_device *device, ls_error *err)
{
    return ls_fail(err, LS_EUNSUPPORTED, "%s: this plugin was built without CUPTI's header",
                   ls_cuda_device_of(device)->name);
}

int ls_cuda_spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost)
{
    (void)device;
    (void)out;
    (void)most;
    *lost = 0;
    return 0;
}

void ls_cuda_spans_end(ls_device *device)
{
    (void)device;
}

void ls_cuda_spans_stream(ls_cuda_device *device, const ls_stream *stream)
{
    (void)device;
    (void)stream;
}

void ls_cuda_spans_fini(ls_cuda_device *device)
{
    (void)device;
}
#endif
