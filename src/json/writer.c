#include "json/writer.h"

#include "base/error.h"
#include "base/thread_state.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ---- */

static bool is_continuation(unsigned char c)
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
        bool overlong = p[0] == 0xE0 && p[1] < 0xA0;
        bool surrogate = p[0] == 0xED && p[1] >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if (available < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) ||
            !is_continuation(p[3]))
            return 0;
        bool overlong = p[0] == 0xF0 && p[1] < 0x90;
        bool too_large = p[0] == 0xF4 && p[1] >= 0x90;
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

/* ---- the text ---- */

void ls_json_writer_init(ls_json_writer *w, int indent, const ls_host *host)
{
    *w = (ls_json_writer){.indent = indent, .first = true};
    ls_buffer_init(&w->out, host);
}

void ls_json_writer_fini(ls_json_writer *w)
{
    ls_buffer_fini(&w->out);
}

void ls_json_writer_reset(ls_json_writer *w)
{
    w->out.length = 0;
    w->out.failed = false;
    w->depth = 0;
    w->first = true;
}

static void append(ls_json_writer *w, const char *bytes, size_t n)
{
    ls_buffer_add(&w->out, bytes, n);
}

const char *ls_json_writer_text(ls_json_writer *w, size_t *length, ls_error *err)
{
    assert(w->depth == 0);
    ls_buffer_put(&w->out, ""); /* a zero, even if nothing was written */
    if (ls_buffer_status(&w->out, err) != LS_OK)
        return NULL;
    if (length)
        *length = w->out.length;
    return w->out.text;
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
    bool in_object = w->depth > 0 && w->close[w->depth - 1] == '}';
    assert(in_object == (key != NULL));
    assert(w->depth > 0 || w->first); /* one outermost value */
    if (!w->first)
        append(w, ",", 1);
    if (w->depth > 0)
        new_line(w);
    w->first = false;
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
    w->first = true;
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
    w->first = false;
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
static void put_number(ls_json_writer *w, const char *key, double value, bool is_float)
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
    put_number(w, key, value, false);
}

void ls_json_put_float(ls_json_writer *w, const char *key, float value)
{
    put_number(w, key, (double)value, true);
}

void ls_json_put_int(ls_json_writer *w, const char *key, int64_t value)
{
    begin_value(w, key);
    ls_buffer_format(&w->out, "%" PRId64, value);
}

void ls_json_put_uint(ls_json_writer *w, const char *key, uint64_t value)
{
    begin_value(w, key);
    ls_buffer_format(&w->out, "%" PRIu64, value);
}

void ls_json_put_bool(ls_json_writer *w, const char *key, bool value)
{
    begin_value(w, key);
    append(w, value ? "true" : "false", value ? 4 : 5);
}

void ls_json_put_null(ls_json_writer *w, const char *key)
{
    begin_value(w, key);
    append(w, "null", 4);
}
