/* SPDX-License-Identifier: MIT */
/* The sink for TensorBoard: writes a run's records (record.h) to an event file. The format is
 * TFRecord (length, masked CRC-32C of the length, data, masked CRC-32C of the data) with messages
 * of event.proto and summary.proto, as TensorFlow documents them. The buffers in which events are
 * composed are reused, so a step allocates nothing. */
#include "base/error.h"
#include "base/host.h"
#include "formats/protobuf.h"
#include "records/sink.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAMES = 1000 }; /* largest number of file names that open_new tries */

typedef struct event_sink {
    ls_sink base;
    const ls_host *host;
    uint64_t step;         /* number of the step recorded last */
    const char *judged_by; /* "test" or "validation": the rows on which the model is evaluated */
    uint32_t table[256];   /* table of masked_crc */
    /* the event that is being composed, parts of it, and the event as a TFRecord */
    ls_buffer event, summary, value, framed;
} event_sink;

/* ---- TFRecord ------------------------------------------------------------------------------- */

/* Fills the table for CRC-32C (Castagnoli), reflected: polynomial 0x82F63B78. */
static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        table[i] = c;
    }
}

static uint32_t masked_crc(const uint32_t table[256], const uint8_t *bytes, size_t count)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        c = table[(c ^ bytes[i]) & 255] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + 0xA282EAD8u;
}

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

/* Appends the composed event to the file as a TFRecord. */
static int put_event(event_sink *sink, ls_error *err)
{
    uint8_t head[12], tail[4];
    ls_buffer *out = &sink->framed;
    const ls_buffer *event = &sink->event;
    put_little(head, event->length, 8);
    put_little(head + 8, masked_crc(sink->table, head, 8), 4);
    put_little(tail, masked_crc(sink->table, (const uint8_t *)event->text, event->length), 4);
    out->length = 0;
    ls_buffer_add(out, (const char *)head, sizeof head);
    ls_buffer_add(out, event->text, event->length);
    ls_buffer_add(out, (const char *)tail, sizeof tail);
    out->failed |= event->failed;
    int status = ls_buffer_status(out, err);
    return status ? status : ls_log_file_put(sink->base.file, out->text, out->length, err);
}

/* ---- Event ---------------------------------------------------------------------------------- */

enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

/* Begins the composition of an event with the present time. */
static void begin(event_sink *sink, uint64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    sink->event.length = 0;
    ls_pb_double(&sink->event, WALL_TIME, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    ls_pb_int(&sink->event, STEP, (int64_t)step);
}

/* Adds summary { value { tag, simple_value } }, unless the number is not finite. */
static void put_scalar(event_sink *sink, const char *tag, double value)
{
    if (!isfinite(value))
        return;
    ls_pb_text(&sink->value, VALUE_TAG, tag);
    ls_pb_float(&sink->value, VALUE_SIMPLE, (float)value);
    ls_pb_message(&sink->summary, SUMMARY_VALUE, &sink->value);
    ls_pb_message(&sink->event, SUMMARY, &sink->summary);
}

/* ---- records -------------------------------------------------------------------------------- */

static int put_step(event_sink *sink, const ls_step_values *v, ls_error *err)
{
    sink->step = v->step;
    begin(sink, v->step);
    put_scalar(sink, "train/loss", (double)v->loss);
    if (v->hits)
        put_scalar(sink, "train/accuracy", (double)v->correct / (double)v->rows);
    put_scalar(sink, "train/lr", (double)v->lr);
    put_scalar(sink, "train/grad_norm", (double)v->gradient_norm);
    put_scalar(sink, "train/images_per_s", (double)v->images_per_s);
    return put_event(sink, err);
}

/* Adds a metric of an evaluation, under the name of the evaluated rows. */
static void put_judged(event_sink *sink, const char *name, double value)
{
    char tag[48];
    snprintf(tag, sizeof tag, "%s/%s", sink->judged_by, name);
    put_scalar(sink, tag, value);
}

static int put_eval(event_sink *sink, const ls_eval_values *v, ls_error *err)
{
    begin(sink, sink->step);
    put_judged(sink, "loss", v->test_loss);
    put_judged(sink, "accuracy", v->test_accuracy);
    for (int m = LS_METRIC_TOP5; m < LS_METRICS; m++)
        put_judged(sink, ls_metric_names[m], v->measured.value[m]);
    return put_event(sink, err);
}

/* Writes an event that makes TensorBoard discard the steps of an earlier file that the resumed run
 * computes again. */
static int put_resume(event_sink *sink, uint64_t step, ls_error *err)
{
    sink->step = step;
    begin(sink, step + 1);
    ls_pb_int(&sink->value, SESSION_STATUS, SESSION_START);
    ls_pb_message(&sink->event, SESSION_LOG, &sink->value);
    return put_event(sink, err);
}

static int event_emit(ls_sink *base, const ls_record *r, ls_error *err)
{
    event_sink *sink = (event_sink *)base;
    const bool begins = r->type == LS_RECORD_RUN_START || r->type == LS_RECORD_RESUME;
    const char *judged_by = begins ? r->of.start.summary.judged_by : NULL;
    if (judged_by && strcmp(judged_by, "validation") == 0)
        sink->judged_by = "validation";
    switch (r->type) {
    case LS_RECORD_STEP: return put_step(sink, &r->of.step, err);
    case LS_RECORD_EVAL: return put_eval(sink, &r->of.eval, err);
    case LS_RECORD_RESUME: return put_resume(sink, r->of.start.step, err);
    default: return LS_OK;
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static int event_close(ls_sink *base, ls_error *err)
{
    event_sink *sink = (event_sink *)base;
    int status = ls_log_file_close(base->file, err);
    ls_buffer_fini(&sink->event);
    ls_buffer_fini(&sink->summary);
    ls_buffer_fini(&sink->value);
    ls_buffer_fini(&sink->framed);
    ls_free(sink->host, sink);
    return status;
}

/* Creates the file. Its name begins as TensorBoard expects. Each start of a run creates a new file,
 * also a start with --resume. */
static int open_new(event_sink *sink, const char *dir, ls_error *err)
{
    static const ls_log_kind kind = {0, "TensorBoard events",
                                     "free some space, or set metrics.tensorboard to false"};
    const long long now = (long long)time(NULL);
    char name[80], path[LS_PATH_BYTES];
    int status = LS_EAGAIN;
    for (int i = 0; status == LS_EAGAIN && i < NAMES; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%lld.lockstep.%d", now, i);
        status = ls_log_file_open(&sink->base.file, ls_path_join(path, dir, name), LS_LOG_FILE_NEW,
                                  &kind, sink->host, err);
    }
    return status == LS_EAGAIN ? LS_EIO : status;
}

int ls_sink_tensorboard(ls_sink **out, const char *dir, const ls_host *host, ls_error *err)
{
    event_sink *sink = ls_alloc(host, sizeof *sink);
    if (!sink)
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    sink->base = (ls_sink){.emit = event_emit, .close = event_close};
    sink->host = host;
    sink->judged_by = "test";
    ls_buffer_init(&sink->event, host);
    ls_buffer_init(&sink->summary, host);
    ls_buffer_init(&sink->value, host);
    ls_buffer_init(&sink->framed, host);
    make_table(sink->table);
    int status = open_new(sink, dir, err);
    if (status) {
        ls_free(host, sink);
        return status;
    }
    begin(sink, 0); /* the first event of a file contains the version of the format */
    ls_pb_text(&sink->event, FILE_VERSION, "brain.Event:2");
    status = put_event(sink, err);
    if (status == LS_OK)
        *out = &sink->base;
    else
        event_close(&sink->base, NULL);
    return status;
}
