#include "json/writer.h"

#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ---- */

static int is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t ls_json_utf8_length(const unsigned char *p, size_t available)
{
    if (available == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF)
        return available >= 2 && is_continuation(p[1]) ? 2 : 0;
    if ((p[0] & 0xF0) == 0xE0) {
        if (available < 3 || !is_continuation(p[1]) || !is_continuation(p[2]))
            return 0;
        int overlong = p[0] == 0xE0 && p[1] < 0xA0;
        int surrogate = p[0] == 0xED && p[1] >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if (available < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) ||
            !is_continuation(p[3]))
            return 0;
        int overlong = p[0] == 0xF0 && p[1] < 0x90;
        int too_large = p[0] == 0xF4 && p[1] >= 0x90;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

void ls_json_tidy(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t n = ls_json_utf8_length((const unsigned char *)text, left);
        if (n == 0 || (unsigned char)*text < 0x20 || *text == 0x7F) {
            *text = '?';
            n = 1;
        }
        text += n;
        left -= n;
    }
}

/* ---- the buffer ---- */

void ls_json_writer_init(ls_json_writer *w, int indent, const ls_host *host)
{
    *w = (ls_json_writer){.host = host, .indent = indent, .first = 1};
}

void ls_json_writer_fini(ls_json_writer *w)
{
    ls_free(w->host, w->text);
    w->text = NULL;
    w->capacity = 0;
}

void ls_json_writer_reset(ls_json_writer *w)
{
    w->length = 0;
    w->depth = 0;
    w->first = 1;
    w->failed = 0;
}

/* Room for `n` more bytes and the terminating zero. */
static int reserve(ls_json_writer *w, size_t n)
{
    if (w->failed)
        return 0;
    if (n < w->capacity - w->length) /* one stays free for the zero; 0 − 0 at first */
        return 1;
    size_t capacity = w->capacity ? w->capacity : 512;
    while (capacity - w->length <= n && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    char *text = capacity - w->length > n ? ls_alloc(w->host, capacity) : NULL;
    if (!text) {
        w->failed = 1;
        return 0;
    }
    if (w->length > 0)
        memcpy(text, w->text, w->length);
    ls_free(w->host, w->text);
    w->text = text;
    w->capacity = capacity;
    return 1;
}

static void append(ls_json_writer *w, const char *bytes, size_t n)
{
    if (!reserve(w, n))
        return;
    memcpy(w->text + w->length, bytes, n);
    w->length += n;
}

const char *ls_json_writer_text(ls_json_writer *w, size_t *length, ls_error *err)
{
    assert(w->depth == 0);
    if (!reserve(w, 0)) {
        ls_fail(err, LS_ENOMEM, "out of memory for JSON output");
        return NULL;
    }
    w->text[w->length] = '\0';
    if (length)
        *length = w->length;
    return w->text;
}

/* ---- punctuation ---- */

static void new_line(ls_json_writer *w)
{
    if (w->indent == 0)
        return;
    append(w, "\n", 1);
    for (int i = 0; i < w->depth * w->indent; i++)
        append(w, " ", 1);
}

static void append_string(ls_json_writer *w, const char *s);

/* What comes before a value: comma, line, key. */
static void begin_value(ls_json_writer *w, const char *key)
{
    int in_object = w->depth > 0 && w->close[w->depth - 1] == '}';
    assert(in_object == (key != NULL));
    assert(w->depth > 0 || w->first); /* one outermost value */
    if (!w->first)
        append(w, ",", 1);
    if (w->depth > 0)
        new_line(w);
    w->first = 0;
    if (in_object) {
        append_string(w, key);
        append(w, ": ", w->indent ? 2 : 1);
    }
}

static void open_level(ls_json_writer *w, const char *key, const char *open, char close)
{
    begin_value(w, key);
    append(w, open, 1);
    assert(w->depth < LS_JSON_WRITER_DEPTH);
    w->close[w->depth++] = close;
    w->first = 1;
}

void ls_json_open_object(ls_json_writer *w, const char *key)
{
    open_level(w, key, "{", '}');
}

void ls_json_open_array(ls_json_writer *w, const char *key)
{
    open_level(w, key, "[", ']');
}

void ls_json_close(ls_json_writer *w)
{
    assert(w->depth > 0);
    w->depth--;
    if (!w->first)
        new_line(w);
    append(w, &w->close[w->depth], 1);
    w->first = 0;
}

/* ---- values ---- */

/* One character that must not stand in a string as it is. */
static void append_escaped(ls_json_writer *w, unsigned char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char letters[] = "\"\\bfnrt";
    char code[8];
    const char *p = memchr(plain, c, sizeof plain - 1);
    int n = p ? snprintf(code, sizeof code, "\\%c", letters[p - plain])
              : snprintf(code, sizeof code, "\\u%04x", c);
    append(w, code, (size_t)n);
}

static void append_string(ls_json_writer *w, const char *s)
{
    size_t left = strlen(s);
    append(w, "\"", 1);
    while (left > 0) {
        unsigned char c = (unsigned char)*s;
        size_t n = ls_json_utf8_length((const unsigned char *)s, left);
        if (n == 0)
            append(w, "\xEF\xBF\xBD", 3);
        else if (c < 0x20 || c == 0x7F || c == '"' || c == '\\')
            append_escaped(w, c);
        else
            append(w, s, n);
        n = n ? n : 1;
        s += n;
        left -= n;
    }
    append(w, "\"", 1);
}

void ls_json_put_string(ls_json_writer *w, const char *key, const char *value)
{
    if (!value) {
        ls_json_put_null(w, key);
        return;
    }
    begin_value(w, key);
    append_string(w, value);
}

/* Tries growing numbers of digits: `few` suffice for most values, `most` for all. */
static void put_number(ls_json_writer *w, const char *key, double value, int is_float)
{
    char text[40];
    if (!isfinite(value)) {
        ls_json_put_null(w, key);
        return;
    }
    int few = is_float ? 6 : 15;
    int most = is_float ? 9 : 17;
    int n = 0;
    ls_c_locale locale = ls_c_locale_enter();
    for (int digits = few; digits <= most; digits++) {
        n = snprintf(text, sizeof text, "%.*g", digits, value);
        double back = is_float ? (double)strtof(text, NULL) : strtod(text, NULL);
        if (back == value)
            break;
    }
    ls_c_locale_leave(locale);
    begin_value(w, key);
    append(w, text, (size_t)n);
}

void ls_json_put_double(ls_json_writer *w, const char *key, double value)
{
    put_number(w, key, value, 0);
}

void ls_json_put_float(ls_json_writer *w, const char *key, float value)
{
    put_number(w, key, (double)value, 1);
}

void ls_json_put_int(ls_json_writer *w, const char *key, int64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRId64, value);
    begin_value(w, key);
    append(w, text, (size_t)n);
}

void ls_json_put_uint(ls_json_writer *w, const char *key, uint64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRIu64, value);
    begin_value(w, key);
    append(w, text, (size_t)n);
}

void ls_json_put_bool(ls_json_writer *w, const char *key, int value)
{
    begin_value(w, key);
    append(w, value ? "true" : "false", value ? 4 : 5);
}

void ls_json_put_null(ls_json_writer *w, const char *key)
{
    begin_value(w, key);
    append(w, "null", 4);
}
