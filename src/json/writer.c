/* SPDX-License-Identifier: MIT */
#include "json/writer.h"

#include "base/error.h"
#include "base/utf8.h"
#include "json/shortest.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the text -------------------------------------------------------------------------------- */

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
    ls_buffer_put(&w->out, ""); /* ends the text with a zero, even if nothing was written */
    if (ls_buffer_status(&w->out, err) != LS_OK)
        return NULL;
    if (length)
        *length = w->out.length;
    return w->out.text;
}

/* ---- punctuation ----------------------------------------------------------------------------- */

static void new_line(ls_json_writer *w)
{
    if (w->indent == 0)
        return;
    append(w, "\n", 1);
    for (int i = 0; i < w->depth * w->indent; i++)
        append(w, " ", 1);
}

/* Appends a character that a string must not contain unescaped. */
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

/* Returns whether a string may contain the character unescaped. */
static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

/* Returns the number of bytes at `s`, up to `count`, that a string may contain unescaped. */
static size_t plain_bytes(const char *s, size_t count)
{
    size_t n = 0;
    while (n < count && is_plain(s[n]))
        n++;
    return n;
}

static void append_string(ls_json_writer *w, const char *s)
{
    size_t left = strlen(s);
    append(w, "\"", 1);
    while (left > 0) {
        unsigned char c = (unsigned char)*s;
        size_t n = plain_bytes(s, left);
        if (n == 0)
            n = ls_utf8_length((const unsigned char *)s, left);
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

enum { SHORT_KEY = 60 };

/* Writes comma, key and colon of a member in one pass, for speed. If the text is indented, or the
 * key is long or needs escapes, writes nothing and returns false. */
static bool put_plain_key(ls_json_writer *w, const char *key)
{
    char *const start = w->indent == 0 ? ls_buffer_room(&w->out, SHORT_KEY + 4) : NULL;
    char *to = start;
    if (!start)
        return false;
    if (!w->first)
        *to++ = ',';
    *to++ = '"';
    int n = 0;
    for (; n < SHORT_KEY && is_plain(key[n]); n++)
        *to++ = key[n];
    if (key[n])
        return false;
    *to++ = '"';
    *to++ = ':';
    ls_buffer_keep(&w->out, (size_t)(to - start));
    w->first = false;
    return true;
}

/* Writes the text that precedes a value: comma, line break, key. */
static void begin_value(ls_json_writer *w, const char *key)
{
    bool in_object = w->depth > 0 && w->close[w->depth - 1] == '}';
    assert(in_object == (key != NULL));
    assert(w->depth > 0 || w->first); /* there is only one outermost value */
    if (key && put_plain_key(w, key))
        return;
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

/* ---- values ---------------------------------------------------------------------------------- */

void ls_json_put_string(ls_json_writer *w, const char *key, const char *value)
{
    if (!value) {
        ls_json_put_null(w, key);
        return;
    }
    begin_value(w, key);
    append_string(w, value);
}

static void put_number(ls_json_writer *w, const char *key, double value, bool is_float)
{
    if (!isfinite(value)) {
        ls_json_put_null(w, key);
        return;
    }
    begin_value(w, key);
    char *text = ls_buffer_room(&w->out, LS_SHORTEST);
    if (text)
        ls_buffer_keep(&w->out, (size_t)ls_shortest(text, value, is_float));
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
    char *text = ls_buffer_room(&w->out, LS_SHORTEST);
    if (text)
        ls_buffer_keep(&w->out, (size_t)ls_shortest_int(text, value));
}

void ls_json_put_uint(ls_json_writer *w, const char *key, uint64_t value)
{
    begin_value(w, key);
    char *text = ls_buffer_room(&w->out, LS_SHORTEST);
    if (text)
        ls_buffer_keep(&w->out, (size_t)ls_shortest_uint(text, value));
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
