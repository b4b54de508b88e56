/* TensorBoard's event files. Sources: the TFRecord framing (length, masked CRC-32C of it, data,
 * masked CRC-32C of them) and event.proto and summary.proto as TensorFlow documents them.
 *
 * Records come as text. What is needed of them are a few numbers at their top level, so that a scan
 * does, and nothing is allocated in a step. */
#include "base/error.h"
#include "base/host.h"
#include "train/sink.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENT = 1024, NAMES = 1000 };

typedef struct event_sink {
    ls_sink base;
    const ls_host *host;
    uint64_t step; /* the last one that was recorded */
    uint32_t table[256];
} event_sink;

/* ---- TFRecord ------------------------------------------------------------------------------- */

/* CRC-32C (Castagnoli), reflected: polynomial 0x82F63B78. */
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

static int put_record(event_sink *sink, const uint8_t *data, size_t count, ls_error *err)
{
    uint8_t out[EVENT + 16];
    put_little(out, count, 8);
    put_little(out + 8, masked_crc(sink->table, out, 8), 4);
    memcpy(out + 12, data, count);
    put_little(out + 12 + count, masked_crc(sink->table, data, count), 4);
    return ls_log_file_put(sink->base.file, out, count + 16, err);
}

/* ---- Event ---------------------------------------------------------------------------------- */

enum { FIXED_64 = 1, LENGTH = 2, FIXED_32 = 5 };
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

/* An event under way; what would not fit is left out. */
typedef struct event {
    size_t used;
    uint8_t bytes[EVENT];
} event;

static void put_byte(event *e, unsigned byte)
{
    if (e->used < EVENT)
        e->bytes[e->used++] = (uint8_t)byte;
}

static void put_varint(event *e, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(e, (unsigned)value | 0x80);
    put_byte(e, (unsigned)value);
}

static void put_fixed(event *e, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(e, (unsigned)(bits >> (8 * i)) & 255);
}

static void put_text(event *e, unsigned field, const char *text, size_t count)
{
    put_byte(e, field << 3 | LENGTH);
    put_varint(e, count);
    for (size_t i = 0; i < count; i++)
        put_byte(e, (unsigned char)text[i]);
}

static void begin(event *e, uint64_t step)
{
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    e->used = 0;
    put_byte(e, WALL_TIME << 3 | FIXED_64);
    put_fixed(e, bits, 8);
    put_byte(e, STEP << 3);
    put_varint(e, step);
}

/* summary { value { tag, simple_value } }. A tag has fewer than 100 bytes, so that every length is
 * one byte. */
static void put_scalar(event *e, const char *tag, double value)
{
    const float single = (float)value;
    const size_t length = strlen(tag), inner = 2 + length + 5;
    uint32_t bits;
    if (!isfinite(value))
        return;
    memcpy(&bits, &single, sizeof bits);
    put_byte(e, SUMMARY << 3 | LENGTH);
    put_varint(e, inner + 2);
    put_byte(e, SUMMARY_VALUE << 3 | LENGTH);
    put_varint(e, inner);
    put_text(e, VALUE_TAG, tag, length);
    put_byte(e, VALUE_SIMPLE << 3 | FIXED_32);
    put_fixed(e, bits, 4);
}

/* ---- records -------------------------------------------------------------------------------- */

/* The number behind "key" at the top level of a record; NaN when there is none. `json` ends with a
 * zero. */
static double number(const char *json, size_t length, const char *key)
{
    const size_t n = strlen(key);
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        if (json[i] == '{' || json[i] == '[')
            depth++;
        else if (json[i] == '}' || json[i] == ']')
            depth--;
        if (json[i] != '"')
            continue;
        const size_t from = ++i;
        while (i < length && json[i] != '"')
            i += json[i] == '\\' ? 2 : 1;
        if (depth != 1 || i - from != n || memcmp(json + from, key, n) != 0 || i + 2 >= length ||
            json[i + 1] != ':')
            continue;
        const char first = json[i + 2];
        return first == '-' || (first >= '0' && first <= '9') ? strtod(json + i + 2, NULL) : NAN;
    }
    return NAN;
}

static int is_type(const char *json, const char *type)
{
    const char *before = "{\"type\":\"";
    const size_t n = strlen(before), m = strlen(type);
    return strncmp(json, before, n) == 0 && strncmp(json + n, type, m) == 0 && json[n + m] == '"';
}

static int put_step(event_sink *sink, const char *json, size_t length, ls_error *err)
{
    event e;
    sink->step = (uint64_t)number(json, length, "step");
    begin(&e, sink->step);
    put_scalar(&e, "train/loss", number(json, length, "loss"));
    put_scalar(&e, "train/accuracy",
               number(json, length, "correct") / number(json, length, "rows"));
    put_scalar(&e, "train/lr", number(json, length, "lr"));
    put_scalar(&e, "train/images_per_s", number(json, length, "images_per_s"));
    return put_record(sink, e.bytes, e.used, err);
}

static int put_eval(event_sink *sink, const char *json, size_t length, ls_error *err)
{
    event e;
    begin(&e, sink->step);
    put_scalar(&e, "test/loss", number(json, length, "test_loss"));
    put_scalar(&e, "test/accuracy", number(json, length, "test_accuracy"));
    return put_record(sink, e.bytes, e.used, err);
}

/* Tells TensorBoard to forget what an earlier file has of the steps that are done again. */
static int put_resume(event_sink *sink, const char *json, size_t length, ls_error *err)
{
    event e;
    sink->step = (uint64_t)number(json, length, "step");
    begin(&e, sink->step + 1);
    put_byte(&e, SESSION_LOG << 3 | LENGTH);
    put_varint(&e, 2);
    put_byte(&e, SESSION_STATUS << 3);
    put_varint(&e, SESSION_START);
    return put_record(sink, e.bytes, e.used, err);
}

static int event_emit(ls_sink *base, const char *json, size_t length, ls_error *err)
{
    event_sink *sink = (event_sink *)base;
    return is_type(json, "step")     ? put_step(sink, json, length, err)
           : is_type(json, "eval")   ? put_eval(sink, json, length, err)
           : is_type(json, "resume") ? put_resume(sink, json, length, err)
                                     : LS_OK;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int event_close(ls_sink *base, ls_error *err)
{
    int status = ls_log_file_close(base->file, err);
    ls_free(((event_sink *)base)->host, base);
    return status;
}

/* A resumed run has a file of each of its lives; names begin as TensorBoard expects. */
static int open_new(event_sink *sink, const char *dir, ls_error *err)
{
    static const ls_log_kind kind = {0, "TensorBoard events",
                                     "free some space, or set metrics.tensorboard to false"};
    const size_t size = strlen(dir) + 80;
    const long long now = (long long)time(NULL);
    int status = LS_EAGAIN;
    char *path = ls_alloc(sink->host, size);
    if (!path)
        return ls_fail(err, LS_ENOMEM, "out of memory for a path");
    for (int i = 0; status == LS_EAGAIN && i < NAMES; i++) {
        snprintf(path, size, "%s/events.out.tfevents.%lld.lockstep.%d", dir, now, i);
        status = ls_log_file_open(&sink->base.file, path, LS_LOG_FILE_NEW, &kind, sink->host, err);
    }
    ls_free(sink->host, path);
    return status == LS_EAGAIN ? LS_EIO : status;
}

static int put_version(event_sink *sink, ls_error *err)
{
    static const char version[] = "brain.Event:2";
    event e;
    begin(&e, 0);
    put_text(&e, FILE_VERSION, version, sizeof version - 1);
    return put_record(sink, e.bytes, e.used, err);
}

int ls_sink_tensorboard(ls_sink **out, const char *dir, const ls_host *host, ls_error *err)
{
    event_sink *sink = ls_alloc(host, sizeof *sink);
    if (!sink)
        return ls_fail(err, LS_ENOMEM, "out of memory for a metrics sink");
    sink->base = (ls_sink){.emit = event_emit, .close = event_close};
    sink->host = host;
    make_table(sink->table);
    int status = open_new(sink, dir, err);
    if (status) {
        ls_free(host, sink);
        return status;
    }
    status = put_version(sink, err);
    if (status == LS_OK)
        *out = &sink->base;
    else
        event_close(&sink->base, NULL);
    return status;
}
