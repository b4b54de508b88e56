/* SPDX-License-Identifier: MIT */
/* Reads the text of a table field by field, after table_open.c has found its encoding and the
 * separator of fields (table.h). */
#include "data/table_source.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"
#include "prep/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ls_table_fail(const ls_table *t, const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is on the line before */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return ls_fail(t->err, LS_EDATA, "%.300s:%zu: %s", t->path, t->line, text);
}

int ls_table_no_memory(const ls_table *t)
{
    return ls_fail(t->err, LS_ENOMEM, "%.300s: out of memory", t->path);
}

/* The separators of fields, with their names in configs and in messages. */
static const struct {
    char is;
    const char *name, *said;
} separators[] = {{',', ",", "a comma"},
                  {';', ";", "a semicolon"},
                  {'\t', "tab", "a tab"},
                  {'|', "bar", "a bar"},
                  {' ', "space", "a blank"}};

enum { SEPARATORS = sizeof separators / sizeof *separators };

char ls_separator_of(const char *name)
{
    for (int i = 0; i < SEPARATORS; i++)
        if (strcmp(name, separators[i].name) == 0 || (name[0] == separators[i].is && !name[1]))
            return separators[i].is;
    return '\0';
}

const char *ls_separator_name(char separator)
{
    int i = SEPARATORS - 1;
    while (i > 0 && separators[i].is != separator)
        i--;
    return separators[i].said;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Copies the next bytes of the source, at most LS_TABLE_CHUNK, to `to`, and stores their number in
 * *got, which is 0 only at the end. */
static int fetch(ls_table *t, uint8_t *to, size_t *got)
{
    ls_table_source *s = t->source;
    if (s->file)
        return ls_read_ahead_some(s->file, to, LS_TABLE_CHUNK, got, t->err);
    *got = s->left < LS_TABLE_CHUNK ? s->left : LS_TABLE_CHUNK;
    if (*got > 0) {
        memcpy(to, s->memory, *got);
        ls_sha256_update(&s->hash, to, *got);
        s->memory += *got;
    }
    s->left -= *got;
    return LS_OK;
}

/* Writes the character `c` in UTF-8 and returns its length in bytes. */
static size_t encode(char *to, unsigned c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((0xF00 >> n) | c);
    return n;
}

size_t ls_table_decode(ls_table_source *s, char *to, const uint8_t *raw, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        s->odd[s->odds++] = raw[i];
        if (s->odds < 2)
            continue;
        const unsigned c = s->coding == LS_TABLE_UTF16_BIG ? (unsigned)s->odd[0] << 8 | s->odd[1]
                                                           : (unsigned)s->odd[1] << 8 | s->odd[0];
        const bool low = c >= 0xDC00 && c < 0xE000;
        s->odds = 0;
        if (s->high && low)
            used += encode(to + used, 0x10000 + ((s->high - 0xD800) << 10) + (c - 0xDC00));
        else if (s->high)
            used += encode(to + used, 0xFFFD);
        const bool paired = s->high && low;
        s->high = c >= 0xD800 && c < 0xDC00 ? c : 0;
        if (!paired && !s->high)
            used += encode(to + used, low ? 0xFFFD : c);
    }
    return used;
}

/* Enlarges the window if another chunk does not fit at its end. Moves the field that is being read
 * to the window's start. */
static int make_space(ls_table *t)
{
    ls_table_source *s = t->source;
    if (s->from > 0) {
        memmove(s->window, s->window + s->from, s->size - s->from);
        s->size -= s->from;
        s->at -= s->from;
        s->row -= s->row < s->from ? s->row : s->from;
        s->from = 0;
    }
    if (s->capacity - s->size > 2 * LS_TABLE_CHUNK)
        return LS_OK;
    const size_t capacity = 2 * s->capacity + 4 * LS_TABLE_CHUNK;
    char *window = ls_alloc(s->host, capacity);
    if (!window)
        return ls_table_no_memory(t);
    if (s->size > 0)
        memcpy(window, s->window, s->size);
    ls_free(s->host, s->window);
    s->window = window;
    s->capacity = capacity;
    return LS_OK;
}

int ls_table_fill(ls_table *t)
{
    ls_table_source *s = t->source;
    size_t got;
    int status = make_space(t);
    if (status)
        return status;
    uint8_t *to = s->coding == LS_TABLE_PLAIN ? (uint8_t *)s->window + s->size : s->raw;
    status = fetch(t, to, &got);
    if (status)
        return status;
    s->ended = got == 0;
    s->size +=
        s->coding == LS_TABLE_PLAIN ? got : ls_table_decode(s, s->window + s->size, s->raw, got);
    s->window[s->size] = '\0';
    return LS_OK;
}

/* Sets *there to whether another byte of text follows. */
static int has_byte(ls_table *t, bool *there)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    while (status == LS_OK && s->at == s->size && !s->ended)
        status = ls_table_fill(t);
    *there = s->at < s->size;
    return status;
}

int ls_table_end(ls_table *t, char sha256[LS_SHA256_HEX])
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    while (status == LS_OK && !s->ended) {
        s->from = s->at = s->size;
        status = ls_table_fill(t);
    }
    if (status)
        return status;
    if (s->file)
        return ls_read_ahead_end(s->file, sha256, t->err);
    ls_sha256_final_hex(&s->hash, sha256);
    return LS_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool is_blank(const ls_table *t, char c)
{
    return c == ' ' || (c == '\t' && t->separator != '\t');
}

static int skip_blanks(ls_table *t)
{
    ls_table_source *s = t->source;
    bool there;
    int status = has_byte(t, &there);
    while (status == LS_OK && there && is_blank(t, s->window[s->at])) {
        s->at++;
        status = has_byte(t, &there);
    }
    return status;
}

static int fail_zero(const ls_table *t)
{
    return ls_table_fail(
        t, "expected text, found a zero byte; if the table is UTF-16 without a byte order mark, "
           "save it as UTF-8");
}

/* Reads a field in quotes. Two quotes in it stand for one, and are replaced in place. Stores where
 * the field begins, as an offset from s->from, and its length. */
static int read_quoted(ls_table *t, size_t *begin, size_t *length)
{
    ls_table_source *s = t->source;
    const size_t line = t->line;
    bool there;
    *begin = ++s->at - s->from;
    *length = 0;
    int status = has_byte(t, &there);
    for (; status == LS_OK && there; status = has_byte(t, &there)) {
        const char c = s->window[s->at++];
        if (c == '"') {
            status = has_byte(t, &there);
            if (status || !there || s->window[s->at] != '"')
                return status;
            s->at++;
        }
        t->line += c == '\n';
        if (c == '\0')
            return fail_zero(t);
        if (s->at - s->from > LS_FIELD_MOST)
            break;
        s->window[s->from + *begin + (*length)++] = c;
    }
    if (status)
        return status;
    t->line = line;
    return there ? ls_table_fail(t, "expected a field of less than 16 MiB; is a closing quote "
                                    "missing?")
                 : ls_table_fail(t, "expected a quote that ends the field that begins here");
}

static int read_plain(ls_table *t, size_t *begin, size_t *length)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    *begin = s->at - s->from;
    for (;;) {
        const char *p = s->window + s->at;
        while (!s->stop[(unsigned char)*p])
            p++;
        s->at = (size_t)(p - s->window);
        if (s->at < s->size || s->ended)
            break;
        if (s->at - s->from > LS_FIELD_MOST)
            return ls_table_fail(t, "expected a field of less than 16 MiB");
        status = ls_table_fill(t);
        if (status)
            return status;
    }
    if (s->at < s->size && s->window[s->at] == '\0')
        return fail_zero(t);
    *length = s->at - s->from - *begin;
    const char *text = s->window + s->from + *begin;
    while (*length > 0 && (is_blank(t, text[*length - 1]) || text[*length - 1] == '\r'))
        --*length;
    return LS_OK;
}

/* Skips the separator or line end after a field. A line end may follow a carriage return. */
static int end_field(ls_table *t, bool quoted)
{
    ls_table_source *s = t->source;
    bool there;
    int status = quoted || t->separator == ' ' ? skip_blanks(t) : LS_OK;
    if (status == LS_OK)
        status = has_byte(t, &there);
    if (status)
        return status;
    if (there && s->window[s->at] == '\r' && (quoted || t->separator == ' ')) {
        s->at++;
        status = has_byte(t, &there);
    }
    t->ends_row = !there || s->window[s->at] == '\n';
    if (status || !there)
        return status;
    if (quoted && t->separator != ' ' && !t->ends_row && s->window[s->at] != t->separator)
        return ls_table_fail(t, "expected %s or the line's end after a quoted field",
                             ls_separator_name(t->separator));
    s->next_line += t->ends_row;
    s->at += t->ends_row || t->separator != ' ';
    return LS_OK;
}

int ls_table_field(ls_table *t)
{
    ls_table_source *s = t->source;
    size_t begin = 0, length = 0;
    bool there;
    t->line = s->next_line;
    s->from = s->at;
    int status = skip_blanks(t);
    if (status == LS_OK)
        status = has_byte(t, &there);
    if (status)
        return status;
    const bool quoted = there && s->window[s->at] == '"';
    status = quoted ? read_quoted(t, &begin, &length) : read_plain(t, &begin, &length);
    if (status)
        return status;
    s->next_line = t->line;
    status = end_field(t, quoted);
    t->field = s->window + s->from + begin;
    t->length = length;
    return status;
}

bool ls_table_number(ls_table *t, double *value, unsigned *form)
{
    ls_table_source *s = t->source;
    const char *begin = s->window + s->at;
    if (t->separator == ' ')
        return false;
    while (*begin == ' ')
        begin++;
    const char *end = ls_number_scan(begin, value, form);
    if (!end)
        return false;
    const size_t length = (size_t)(end - begin);
    while (*end == ' ')
        end++;
    end += *end == '\r' && end[1] == '\n';
    if (*end != t->separator && *end != '\n')
        return false;
    t->line = s->next_line;
    t->field = begin;
    t->length = length;
    t->ends_row = *end == '\n';
    s->next_line += t->ends_row;
    s->at = (size_t)(end - s->window) + 1;
    return true;
}

size_t ls_count_fields(const char *text, size_t size, char separator, size_t *at)
{
    size_t fields = 1, i = *at;
    bool quoted = false, begins = true;
    while (separator == ' ' && i < size && text[i] == ' ')
        i++;
    for (; i < size && (quoted || text[i] != '\n'); i++) {
        const char c = text[i];
        if (quoted) {
            quoted = c != '"';
        } else if (c == '"' && begins) {
            quoted = true;
        } else if (c == separator) {
            while (separator == ' ' && i + 1 < size && text[i + 1] == ' ')
                i++;
            const bool last =
                separator == ' ' && (i + 1 == size || text[i + 1] == '\n' || text[i + 1] == '\r');
            fields += !last;
        }
        begins = c == separator || (begins && c == ' ');
    }
    const bool ends = i < size;
    *at = i + ends;
    return quoted ? 0 : fields;
}

/* Finds the separator that the row has in place of some or all of those of the header, which has
 * `columns` fields; 0: none. */
static char other_separator(const ls_table *t, int columns)
{
    const ls_table_source *s = t->source;
    size_t at = s->row;
    const size_t fields = ls_count_fields(s->window, s->size, t->separator, &at);
    for (const char *c = LS_SEPARATOR_CANDIDATES; *c; c++) {
        at = s->row;
        const size_t others = *c == t->separator ? 1 : ls_count_fields(s->window, s->size, *c, &at);
        if (others > 1 && fields + others == (size_t)columns + 1)
            return *c;
    }
    return '\0';
}

/* Fails because a row has another number of fields than the header. `one`: it has one more. */
static int fail_count(const ls_table *t, int columns, bool more, bool one)
{
    const char other = more ? t->source->other : other_separator(t, columns);
    if (other)
        return ls_table_fail(
            t,
            "expected %d fields with %s between them, as the header has, found %s; %s has %s as "
            "well: write the whole table with one separator",
            columns, ls_separator_name(t->separator), more ? "more" : "fewer",
            more ? "the header" : "this row", ls_separator_name(other));
    return ls_table_fail(t, "expected %d fields, as the header has, found %s%s", columns,
                         more ? "more" : "fewer",
                         one ? "; if the first one is the row's name, as R writes it, write the "
                               "table without (row.names = FALSE)"
                             : "");
}

int ls_table_has_row(ls_table *t, bool *more)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    for (;;) {
        s->from = s->at;
        if (t->separator == ' ')
            status = skip_blanks(t);
        if (status == LS_OK)
            status = has_byte(t, more);
        if (status || !*more || (s->window[s->at] != '\r' && s->window[s->at] != '\n'))
            break;
        s->next_line += s->window[s->at++] == '\n';
    }
    t->line = s->next_line;
    return status;
}

int ls_table_row(ls_table *t, int columns, int (*take)(void *user, int i), void *user)
{
    int status = LS_OK, i = 0;
    t->ends_row = false;
    t->source->row = t->source->at;
    for (; status == LS_OK && i < columns && !t->ends_row; i++)
        status = take(user, i);
    if (status && !(status == LS_EDATA && t->ends_row && i < columns))
        return status;
    if (t->ends_row && i == columns)
        return LS_OK;
    const bool more = !t->ends_row;
    for (; !t->ends_row && i <= columns + 1; i++)
        if (ls_table_field(t) != LS_OK)
            break;
    return fail_count(t, columns, more, more && i == columns + 1 && t->ends_row);
}

/* Code points of the bytes 0x80 … 0x9F in Windows-1252. */
static const uint16_t windows[32] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                     0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                     0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

static size_t first_bad(const char *text, size_t n)
{
    size_t at = 0, length = 1;
    while (at < n && length > 0) {
        length = (signed char)text[at] >= 0
                     ? 1
                     : ls_utf8_length((const unsigned char *)text + at, n - at);
        at += length;
    }
    return at;
}

bool ls_table_is_utf8(const ls_table *t)
{
    return first_bad(t->field, t->length) == t->length;
}

int ls_table_text(ls_table *t, bool utf8, const char **out)
{
    char *text = t->source->text;
    size_t used = 0;
    *out = text;
    if (t->length >= LS_FIELD_BYTES)
        return ls_table_fail(t, "expected a field of less than 4096 bytes; is a closing quote "
                                "missing?");
    for (size_t i = 0; t->latin1 && i < t->length; i++) {
        const unsigned c = (unsigned char)t->field[i];
        used += encode(text + used, c >= 0x80 && c < 0xA0 ? windows[c - 0x80] : c);
    }
    if (!t->latin1) {
        const size_t bad = utf8 ? first_bad(t->field, t->length) : t->length;
        if (bad < t->length)
            return ls_because(
                t->err,
                ls_table_fail(t,
                              "expected UTF-8, found the byte 0x%02X; if the table is Latin-1 or "
                              "Windows-1252, set data.encoding to \"latin-1\"; else save it as "
                              "UTF-8",
                              (unsigned)(unsigned char)t->field[bad]),
                LS_REASON_ENCODING);
        memcpy(text, t->field, t->length);
        used = t->length;
    }
    text[used] = '\0';
    return LS_OK;
}
