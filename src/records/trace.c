/* SPDX-License-Identifier: MIT */
/* Writes the timeline of a run as a Chrome trace. trace.h explains spans, tracks, marks, ranges and
 * the coordinator. */
#include "records/trace.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "nn/replica.h"
#include "store/durable.h"
#include "json/writer.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKS 16384 /* largest number of marks of a worker between two calls of ls_trace_drain */
#define BUFFER (1u << 16) /* bytes of the buffer before the file */
#define LINE 512          /* largest number of bytes that one call of `put` writes */
#define TAKEN 4096        /* largest number of spans taken from a device at a time */
#define STREAMS 16        /* largest number of streams of a device that have tracks */
#define SIDE_BY_SIDE 8    /* largest number of tracks of a stream */
#define SUBMITTED 8       /* number of submissions that are stored: more than can be in progress */
/* Distance between the sort indices of two workers. The tracks of the first worker's device have
 * the indices between them. */
#define SORT_STEP 256

/* Activities of a worker: REST (none), then BEGIN to APPLY in the sequence in which they follow
 * each other in a step, then OPEN (opens the device) and EXPORT (copies data back to the host).
 * RECORDED stands for GATHER to BACKWARD in a step that the device runs as one recording. `names`:
 * the names of the activities in the timeline. */
typedef enum phase {
    REST,
    BEGIN,
    GATHER,
    FORWARD,
    BACKWARD,
    RECORDED,
    ADD,
    MERGE,
    APPLY,
    OPEN,
    EXPORT
} phase;
static const char *const names[] = {"rest",     "begin",         "gather",   "forward",
                                    "backward", "recorded step", "add up",   "merge",
                                    "apply",    "open",          "read back"};

/* A stream of a device: its tracks, and the end of the last span on each track. */
typedef struct stream {
    uint32_t id;
    /* `tracks`: number of the stream's tracks; `number`: their numbers in the file */
    int tracks, number[SIDE_BY_SIDE];
    uint64_t end_ns[SIDE_BY_SIDE];
} stream;

/* A worker's marks, and the spans that are still open. */
typedef struct lane {
    ls_marks marks;
    int place; /* position of the last mark in the work (LS_PLACE_…, or an op's number) */
    phase phase;
    /* times at which the position `place`, the phase and the step began; step_ns 0: no step */
    uint64_t place_ns, phase_ns, step_ns;
    uint64_t sent_ns; /* time at which the range that begins with this step was submitted; 0: no
                       * arrow leads to this step */
    uint32_t step;    /* number of the present step, from 1; 0: none */
    int queued;       /* last value of the counter "queue depth" for this worker */
    /* The device, if it reports spans, or NULL. The worker's thread stores the pointer with release
     * order, after it has called spans_begin and written device_name. The coordinator loads it with
     * acquire order, so a coordinator that sees the device also sees device_name and the effects of
     * spans_begin. */
    _Atomic(ls_device *) device;
    char device_name[16]; /* written before `device` */
    stream stream[STREAMS];
    /* `streams`: number of entries of `stream` used; `tracks`: number of all their tracks */
    int streams, tracks;
} lane;

/* A submitted range: its first step, and the time at which its submission began. */
typedef struct submission {
    uint64_t first_step, ns; /* `first_step`: number of the step, from 1; `ns`: time of ls_now_ns */
} submission;

struct ls_trace {
    const ls_host *host;
    ls_file_writer file;
    ls_error failure; /* first error; status 0: none */
    bool ops, finished;
    int workers;
    /* `begin_ns`: time at which the trace began; `lost`: number of marks that were lost */
    uint64_t begin_ns, lost;
    lane *lane;
    submission submitted[SUBMITTED]; /* the ranges that were submitted last */
    uint64_t submissions, arrows; /* numbers of submissions so far, and of arrows written so far */
    /* Whether a device cannot report spans. 0: no such device; 1: a worker's thread is writing
     * `why`; 2: `why` is complete. A thread changes 0 to 1 by a compare-exchange, so only one
     * thread writes `why`. It then stores 2 with release order. ls_trace_finish loads the value
     * with acquire order, and reads `why` only after it has read 2. */
    _Atomic int refused;
    ls_error why;
    ls_device_span *span;       /* [TAKEN] buffer of the coordinator */
    uint64_t spans, lost_spans; /* numbers of spans of devices that were written, and lost */
    int next_track;             /* number in the file for the next track of a device */
    ls_json_writer quoted;      /* writer of quoted names */
    size_t used;                /* number of bytes in the buffer */
    char buffer[BUFFER];
};

/* ---- writing -------------------------------------------------------------------------------- */

static void flush(ls_trace *t)
{
    if (t->used > 0 && t->failure.status == LS_OK)
        ls_file_writer_write(&t->file, t->buffer, t->used, &t->failure);
    t->used = 0;
}

/* Writes a text of less than LINE bytes to the buffer. A longer text is cut. */
static void put(ls_trace *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(ls_trace *t, const char *format, ...)
{
    va_list arguments;
    if (BUFFER - t->used < LINE)
        flush(t);
    va_start(arguments, format);
    int n = vsnprintf(t->buffer + t->used, LINE, format, arguments);
    va_end(arguments);
    t->used += n < LINE ? (size_t)n : LINE - 1;
}

/* Writes microseconds with three decimals, independently of the locale. */
static void put_time(ls_trace *t, const char *key, uint64_t ns)
{
    put(t, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* Returns the number of a track in the file. The process has the number 1. Viewers regard the
 * thread with the process's number as the main thread, so the coordinator has the number 1. */
static int track_number(const ls_trace *t, int track)
{
    if (track >= 0)
        return track + 2;
    return track == LS_TRACK_COORDINATOR ? 1 : t->workers + 2;
}

/* Writes a key and a text, quoted as in JSON. */
static void put_text(ls_trace *t, const char *key, const char *text)
{
    size_t count;
    ls_json_writer_reset(&t->quoted);
    ls_json_put_string(&t->quoted, NULL, text);
    const char *quoted = ls_json_writer_text(&t->quoted, &count, NULL);
    put(t, "\"%s\":%s", key, quoted ? "" : "\"?\"");
    if (!quoted)
        return;
    if (BUFFER - t->used < count)
        flush(t);
    memcpy(t->buffer + t->used, quoted, count);
    t->used += count;
}

/* Begins an event. The time is written before the texts, because Perfetto's importers of before
 * 2022 search an event for its time, and refuse the event if a text with \u precedes the time. */
static void put_event(ls_trace *t, char kind, uint64_t ns, int number)
{
    put(t, ",\n{\"ph\":\"%c\"", kind);
    put_time(t, "ts", ns - t->begin_ns);
    put(t, ",\"pid\":1,\"tid\":%d,", number);
}

/* Writes a span. `unit`, `value`: name and value of an argument of the span; `unit` NULL: the span
 * has no argument. */
static void put_numbered(ls_trace *t, int number, const char *category, const char *name,
                         uint64_t begin, uint64_t end, const char *unit, uint64_t value)
{
    put_event(t, 'X', begin, number);
    put(t, "\"cat\":\"%s\",", category);
    put_text(t, "name", name);
    put_time(t, "dur", end - begin);
    if (unit)
        put(t, ",\"args\":{\"%s\":%llu}", unit, (unsigned long long)value);
    put(t, "}");
}

/* Writes a span of a worker. If the worker is in a step, the span has the step's number as an
 * argument. */
static void put_span(ls_trace *t, int worker, const char *category, const char *name,
                     uint64_t begin, uint64_t end)
{
    const uint64_t step = t->lane[worker].step;
    put_numbered(t, track_number(t, worker), category, name, begin, end, step > 0 ? "step" : NULL,
                 step);
}

/* Writes the name of a track, and the index by which viewers sort the tracks. */
static void put_track(ls_trace *t, int number, int order, const char *name)
{
    put(t,
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\","
        "\"args\":{\"name\":\"%s\"}}",
        number, name);
    put(t,
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":"
        "{\"sort_index\":%d}}",
        number, order);
}

/* ---- from marks to spans -------------------------------------------------------------------- */

static phase phase_of(int place)
{
    switch (place) {
    case LS_PLACE_IDLE: return REST;
    case LS_PLACE_STEP: return BEGIN;
    case LS_PLACE_ADD: return ADD;
    case LS_PLACE_MERGE:
    case LS_PLACE_WAIT: return MERGE;
    case LS_PLACE_APPLY: return APPLY;
    case LS_PLACE_OPEN: return OPEN;
    case LS_PLACE_EXPORT: return EXPORT;
    default: break;
    }
    switch (ls_replica_phase(place)) {
    case LS_PHASE_GATHER: return GATHER;
    case LS_PHASE_BACKWARD: return BACKWARD;
    case LS_PHASE_RECORDED: return RECORDED;
    default: return FORWARD;
    }
}

/* Ends the span that the last mark began. Reading *replica is safe after a mark of an op, without
 * further synchronisation: the worker sets that pointer before its replica runs an op, and then
 * pushes the mark of the op, which is a release; taking the mark is an acquire (sync/ring.h). */
static void end_place(ls_trace *t, int worker, const ls_replica *const *replica, uint64_t ns)
{
    const lane *l = &t->lane[worker];
    char name[96];
    if (l->place == LS_PLACE_WAIT)
        put_span(t, worker, "wait", "wait", l->place_ns, ns);
    if (!t->ops || ls_replica_phase(l->place) == LS_PHASE_NONE)
        return;
    if (ls_replica_place(name, sizeof name, *replica, l->place))
        put_span(t, worker, "op", name, l->place_ns, ns);
}

/* Returns the time at which the range that begins with the current step was submitted, or 0 if the
 * step is not the first of a range. A repeated step was submitted several times. Then the result is
 * the time of the last submission before the step began. */
static uint64_t time_of_submission(const ls_trace *t, const lane *l)
{
    for (uint64_t i = 0; i < SUBMITTED && i < t->submissions; i++) {
        const submission *s = &t->submitted[(t->submissions - 1 - i) % SUBMITTED];
        if (s->first_step == l->step && s->ns < l->step_ns)
            return s->ns;
    }
    return 0;
}

/* Writes an arrow from the submission of a range to the range's first step. By the trace format,
 * the head of an arrow without a binding point belongs to the next span that begins on the track;
 * if two spans begin at the same time, the arrow belongs to the longer span. */
static void put_arrow(ls_trace *t, int worker)
{
    static const char text[] = "\"cat\":\"submit\",\"name\":\"submit\",\"id\":%llu}";
    const unsigned long long id = ++t->arrows;
    put_event(t, 's', t->lane[worker].sent_ns, track_number(t, LS_TRACK_COORDINATOR));
    put(t, text, id);
    put_event(t, 'f', t->lane[worker].step_ns - 1, track_number(t, worker));
    put(t, text, id);
}

/* Ends the present step, if there is one, and writes its span and its arrow. */
static void end_step(ls_trace *t, int worker, uint64_t ns)
{
    lane *l = &t->lane[worker];
    if (l->step_ns == 0)
        return;
    put_span(t, worker, "step", "step", l->step_ns, ns);
    if (l->sent_ns > 0)
        put_arrow(t, worker);
    l->step_ns = 0;
    l->step = 0;
}

/* Continues after marks were lost. Open spans are dropped, because their ends are unknown. */
static void restart_lane(ls_trace *t, lane *l, const ls_mark *mark)
{
    t->lost += mark->number;
    l->place = LS_PLACE_IDLE;
    l->phase = REST;
    l->step_ns = 0;
    l->step = 0;
}

/* Handles a mark: ends the spans that end at the mark, and begins the spans that begin at the
 * mark. */
static void take_mark(ls_trace *t, int worker, const ls_replica *const *replica,
                      const ls_mark *mark)
{
    lane *l = &t->lane[worker];
    if (mark->place == LS_MARKS_LOST) {
        restart_lane(t, l, mark);
        return;
    }
    const phase next = phase_of(mark->place);
    end_place(t, worker, replica, mark->ns);
    if (next != l->phase || next == BEGIN) {
        if (l->phase != REST)
            put_span(t, worker, "phase", names[l->phase], l->phase_ns, mark->ns);
        l->phase = next;
        l->phase_ns = mark->ns;
    }
    if (next == REST || next == BEGIN)
        end_step(t, worker, mark->ns);
    if (next == BEGIN) {
        l->step_ns = mark->ns;
        l->step = mark->number;
        l->sent_ns = time_of_submission(t, l);
    }
    l->place = mark->place;
    l->place_ns = mark->ns;
}

/* ---- spans of devices ----------------------------------------------------------------------- */

void ls_trace_device(ls_trace *t, int worker, ls_device *device)
{
    ls_device_info info;
    ls_error err = {0};
    int none = 0;
    if (!t || !device->ops->spans_begin)
        return;
    device->ops->describe(device, &info);
    if (device->ops->spans_begin(device, &err) == LS_OK) {
        lane *l = &t->lane[worker];
        snprintf(l->device_name, sizeof l->device_name, "%s", info.name);
        atomic_store_explicit(&l->device, device, memory_order_release);
        return;
    }
    if (!atomic_compare_exchange_strong(&t->refused, &none, 1))
        return;
    t->why = err;
    atomic_store_explicit(&t->refused, 2, memory_order_release);
    ls_log(t->host, LS_LOG_WARNING, "the timeline has nothing of %s's own: %s", info.name,
           err.text);
}

/* Returns the stream with this id, or adds it. NULL: there are STREAMS other streams. */
static stream *stream_of(lane *l, uint32_t id)
{
    for (int i = 0; i < l->streams; i++)
        if (l->stream[i].id == id)
            return &l->stream[i];
    if (l->streams == STREAMS)
        return NULL;
    l->stream[l->streams].id = id;
    return &l->stream[l->streams++];
}

/* Returns a track of the stream on which no span is open at time `begin`: the first existing one,
 * or else a new track. Returns −1 if the stream has SIDE_BY_SIDE tracks and a span is open on each
 * of them. */
static int free_track(ls_trace *t, int worker, stream *s, uint64_t begin)
{
    lane *l = &t->lane[worker];
    char name[64], suffix[16] = "";
    for (int i = 0; i < s->tracks; i++)
        if (s->end_ns[i] <= begin)
            return i;
    if (s->tracks == SIDE_BY_SIDE)
        return -1;
    if (s->tracks > 0)
        snprintf(suffix, sizeof suffix, " (%d)", s->tracks + 1);
    snprintf(name, sizeof name, "%s stream %lu%s", l->device_name, (unsigned long)s->id, suffix);
    s->number[s->tracks] = t->next_track++;
    put_track(t, s->number[s->tracks], (worker + 1) * SORT_STEP + ++l->tracks, name);
    return s->tracks++;
}

/* Writes a span of a device. Counts the span as lost if no track is free for it. */
static void put_device_span(ls_trace *t, int worker, const ls_device_span *span)
{
    stream *s = stream_of(&t->lane[worker], span->stream);
    int track = s && span->begin_ns >= t->begin_ns && span->end_ns >= span->begin_ns
                    ? free_track(t, worker, s, span->begin_ns)
                    : -1;
    if (track < 0) {
        t->lost_spans++;
        return;
    }
    s->end_ns[track] = span->end_ns;
    t->spans++;
    put_numbered(t, s->number[track], "device", span->name, span->begin_ns, span->end_ns, NULL, 0);
}

static int by_begin(const void *a, const void *b)
{
    const ls_device_span *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Takes all new spans of the worker's device, and writes them. */
static void drain_device(ls_trace *t, int worker)
{
    ls_device *device = atomic_load_explicit(&t->lane[worker].device, memory_order_acquire);
    int count = TAKEN;
    if (!device)
        return;
    while (count == TAKEN) {
        uint64_t lost = 0;
        count = device->ops->spans_take(device, t->span, TAKEN, &lost);
        t->lost_spans += lost;
        qsort(t->span, (size_t)count, sizeof *t->span, by_begin);
        for (int i = 0; i < count; i++)
            put_device_span(t, worker, &t->span[i]);
    }
}

void ls_trace_leave_devices(ls_trace *t)
{
    for (int w = 0; t && w < t->workers; w++) {
        ls_device *device = atomic_load_explicit(&t->lane[w].device, memory_order_acquire);
        if (device)
            device->ops->spans_end(device);
    }
    for (int w = 0; t && w < t->workers; w++) {
        if (!t->finished)
            drain_device(t, w);
        atomic_store_explicit(&t->lane[w].device, NULL, memory_order_relaxed);
    }
}

void ls_trace_drain(ls_trace *t, int worker, const ls_replica *const *replica)
{
    ls_mark mark;
    if (!t || t->finished)
        return;
    while (ls_marks_take(&t->lane[worker].marks, &mark))
        take_mark(t, worker, replica, &mark);
    drain_device(t, worker);
}

/* ---- the coordinator ------------------------------------------------------------------------ */

void ls_trace_span(ls_trace *t, int track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                   const char *unit, uint64_t number)
{
    if (t && !t->finished)
        put_numbered(t, track_number(t, track), "coordinator", name, begin_ns, end_ns, unit,
                     number);
}

void ls_trace_submit(ls_trace *t, uint64_t first_step, uint64_t begin_ns, uint64_t end_ns)
{
    ls_trace_span(t, LS_TRACK_COORDINATOR, "submit", begin_ns, end_ns, "step", first_step);
    if (t && !t->finished)
        t->submitted[t->submissions++ % SUBMITTED] = (submission){first_step, begin_ns};
}

void ls_trace_queues(ls_trace *t, uint64_t ns, const int queued[])
{
    bool changed = false;
    for (int w = 0; t && w < t->workers; w++) {
        changed = changed || t->lane[w].queued != queued[w];
        t->lane[w].queued = queued[w];
    }
    if (!changed || t->finished)
        return;
    put_event(t, 'C', ns, track_number(t, LS_TRACK_COORDINATOR));
    put(t, "\"name\":\"queue depth\",\"args\":{");
    for (int w = 0; w < t->workers; w++)
        put(t, "%s\"worker %d\":%d", w > 0 ? "," : "", w, queued[w]);
    put(t, "}}");
}

void ls_trace_rate(ls_trace *t, uint64_t ns, double rows_per_s)
{
    if (!t || t->finished || !(rows_per_s >= 0 && rows_per_s < 1e15))
        return;
    const uint64_t thousandths = (uint64_t)(rows_per_s * 1e3 + 0.5);
    put_event(t, 'C', ns, track_number(t, LS_TRACK_COORDINATOR));
    put(t, "\"name\":\"throughput\",\"args\":{\"rows/s\":%llu.%03u}}",
        (unsigned long long)(thousandths / 1000), (unsigned)(thousandths % 1000));
}

/* ---- life ----------------------------------------------------------------------------------- */

static void begin_file(ls_trace *t)
{
    char name[32];
    put(t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
           "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"lockstep\"}}");
    put_track(t, track_number(t, LS_TRACK_COORDINATOR), 0, "coordinator");
    for (int w = 0; w < t->workers; w++) {
        snprintf(name, sizeof name, "worker %d", w);
        put_track(t, track_number(t, w), (w + 1) * SORT_STEP, name);
    }
    t->next_track = track_number(t, LS_TRACK_SAVER);
    put_track(t, t->next_track++, (t->workers + 1) * SORT_STEP, "saver");
}

int ls_trace_create(ls_trace **out, const char *path, bool ops, int workers, const ls_host *host,
                    ls_error *err)
{
    ls_trace *t = ls_alloc(host, sizeof *t);
    if (!t)
        return ls_fail(err, LS_ENOMEM, "out of memory for a trace");
    t->host = host;
    ls_json_writer_init(&t->quoted, 0, host);
    t->ops = ops;
    t->begin_ns = ls_now_ns();
    t->lane = ls_alloc_array(host, (size_t)workers, sizeof *t->lane);
    t->span = ls_alloc_array(host, TAKEN, sizeof *t->span);
    char target[LS_PATH_BYTES];
    int status = t->lane && t->span ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a trace");
    for (; status == LS_OK && t->workers < workers; t->workers++)
        status = ls_marks_init(&t->lane[t->workers].marks, host, MARKS, err);
    if (status == LS_OK)
        status = ls_follow_links(target, path, err);
    if (status == LS_OK)
        status = ls_replace_begin(&t->file, target, host, err);
    if (status) {
        ls_trace_destroy(t);
        return status;
    }
    begin_file(t);
    *out = t;
    return LS_OK;
}

ls_marks *ls_trace_marks(ls_trace *t, int worker)
{
    return &t->lane[worker].marks;
}

int ls_trace_finish(ls_trace *t, ls_error *err)
{
    if (!t || t->finished)
        return LS_OK;
    ls_trace_leave_devices(t);
    t->finished = true;
    put(t, "\n],\"otherData\":{\"lost_marks\":\"%llu\",\"device_spans\":\"%llu\"",
        (unsigned long long)t->lost, (unsigned long long)t->spans);
    put(t, ",\"lost_device_spans\":\"%llu\"", (unsigned long long)t->lost_spans);
    if (atomic_load_explicit(&t->refused, memory_order_acquire) == 2) {
        put(t, ",");
        put_text(t, "no_device_spans", t->why.text);
    }
    put(t, "}}\n");
    flush(t);
    if (t->failure.status == LS_OK)
        ls_replace_commit(&t->file, &t->failure);
    return t->failure.status ? ls_fail(err, t->failure.status, "%s", t->failure.text) : LS_OK;
}

void ls_trace_destroy(ls_trace *t)
{
    if (!t)
        return;
    ls_file_writer_abandon(&t->file);
    for (int w = 0; t->lane && w < t->workers; w++)
        ls_marks_fini(&t->lane[w].marks);
    ls_json_writer_fini(&t->quoted);
    ls_free(t->host, t->span);
    ls_free(t->host, t->lane);
    ls_free(t->host, t);
}
