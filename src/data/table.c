/* SPDX-License-Identifier: MIT */
/* Reads the text of a table field by field. Detects the text's encoding and the separator of fields
 * (table.h). */
#include "data/table.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"
#include "data/foreign.h"
#include "data/read_ahead.h"
#include "prep/number.h"
#include "json/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 64 << 10,  /* number of bytes that are read at a time */
    PEEKED = 64 << 10, /* number of bytes after the header in which the separator is searched */
    PEEKED_MOST = 16 << 20, /* largest number of bytes of the header and the text after it */
    PEEKED_ROWS = 10
};

typedef enum coding { PLAIN, UTF16_LITTLE, UTF16_BIG } coding;

/* The source of the text, and the *window*: the part of the text in memory, with the current
 * field. */
struct ls_table_source {
    const ls_host *host;
    ls_read_ahead *file;   /* the file; NULL: the text is in memory */
    const uint8_t *memory; /* unread part of a text in memory, `left` bytes */
    size_t left;
    ls_sha256 hash; /* SHA-256 of a text in memory */
    coding coding;
    uint8_t odd[2]; /* UTF-16: incomplete character at the last chunk's end, `odds` bytes */
    size_t odds;
    unsigned high; /* first half of a surrogate pair; 0: none */
    char *window;  /* [capacity]: the window: `size` bytes of text, followed by a NUL */
    size_t capacity, size;
    /* index in `window` of the field that is being read; the text before that field is no longer
     * needed */
    size_t from;
    /* index in `window` of the beginning of the row that is being read, or of what the window still
     * has of it */
    size_t row;
    char other; /* another separator that the header has as well; 0: none */
    size_t at;
    bool ended; /* the window contains the end of the text */
    size_t next_line;
    bool stop[256]; /* [byte]: a field without quotes can end at this byte */
    char text[3 * LS_FIELD_BYTES];
    uint8_t raw[CHUNK];
};

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

static int no_memory(const ls_table *t)
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

/* The separators that are searched in a header; a blank is one only if there is no other. */
#define CANDIDATES ",;\t|"

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

/* Copies the next bytes of the source, at most CHUNK, to `to`, and stores their number in *got,
 * which is 0 only at the end. */
static int fetch(ls_table *t, uint8_t *to, size_t *got)
{
    ls_table_source *s = t->source;
    if (s->file)
        return ls_read_ahead_some(s->file, to, CHUNK, got, t->err);
    *got = s->left < CHUNK ? s->left : CHUNK;
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

/* Converts `count` bytes of UTF-16 to UTF-8, and returns the number of bytes written: at most three
 * for every two. An unpaired surrogate becomes U+FFFD. */
static size_t decode(ls_table_source *s, char *to, const uint8_t *raw, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        s->odd[s->odds++] = raw[i];
        if (s->odds < 2)
            continue;
        const unsigned c = s->coding == UTF16_BIG ? (unsigned)s->odd[0] << 8 | s->odd[1]
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
    if (s->capacity - s->size > 2 * CHUNK)
        return LS_OK;
    const size_t capacity = 2 * s->capacity + 4 * CHUNK;
    char *window = ls_alloc(s->host, capacity);
    if (!window)
        return no_memory(t);
    if (s->size > 0)
        memcpy(window, s->window, s->size);
    ls_free(s->host, s->window);
    s->window = window;
    s->capacity = capacity;
    return LS_OK;
}

/* Appends another chunk of text to the window. At the end of the text, sets s->ended instead. */
static int fill(ls_table *t)
{
    ls_table_source *s = t->source;
    size_t got;
    int status = make_space(t);
    if (status)
        return status;
    uint8_t *to = s->coding == PLAIN ? (uint8_t *)s->window + s->size : s->raw;
    status = fetch(t, to, &got);
    if (status)
        return status;
    s->ended = got == 0;
    s->size += s->coding == PLAIN ? got : decode(s, s->window + s->size, s->raw, got);
    s->window[s->size] = '\0';
    return LS_OK;
}

/* Sets *there to whether another byte of text follows. */
static int has_byte(ls_table *t, bool *there)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    while (status == LS_OK && s->at == s->size && !s->ended)
        status = fill(t);
    *there = s->at < s->size;
    return status;
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
        status = fill(t);
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

/* Returns the number of fields in the row at offset *at, and moves *at to the next row. Returns 0
 * if the row does not end within `size` bytes. */
static size_t count_fields(const char *text, size_t size, char separator, size_t *at)
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
    const size_t fields = count_fields(s->window, s->size, t->separator, &at);
    for (const char *c = CANDIDATES; *c; c++) {
        at = s->row;
        const size_t others = *c == t->separator ? 1 : count_fields(s->window, s->size, *c, &at);
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

/* ---- opening --------------------------------------------------------------------------------- */

static int refuse_foreign(const ls_table *t)
{
    const ls_table_source *s = t->source;
    const char *found = ls_foreign_format(s->window + s->at, s->size - s->at);
    return found ? ls_table_fail(t, "expected text, found %s", found) : LS_OK;
}

/* Skips a byte order mark, and selects the encoding of the text by it. */
static int find_coding(ls_table *t)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    while (status == LS_OK && s->size < 3 && !s->ended)
        status = fill(t);
    if (status)
        return status;
    const uint8_t *mark = (const uint8_t *)s->window;
    if (s->size >= 3 && memcmp(mark, "\xEF\xBB\xBF", 3) == 0)
        s->at = 3;
    else if (s->size >= 2 && memcmp(mark, "\xFF\xFE", 2) == 0)
        s->coding = UTF16_LITTLE;
    else if (s->size >= 2 && memcmp(mark, "\xFE\xFF", 2) == 0)
        s->coding = UTF16_BIG;
    if (s->coding == PLAIN)
        return refuse_foreign(t);
    /* The bytes that are in the window are decoded into a new window. */
    char *window = ls_alloc(s->host, 2 * s->capacity);
    if (!window)
        return no_memory(t);
    s->size = decode(s, window, mark + 2, s->size - 2);
    ls_free(s->host, s->window);
    s->window = window;
    s->capacity *= 2;
    return LS_OK;
}

/* Returns whether, with this separator, the rows below the header have as many fields as the
 * header. If the separator is a blank, all of them may have one field more, as in files of R with
 * row names. A row that does not end within the window is ignored. */
static bool fits(const ls_table_source *s, char separator)
{
    size_t at = s->at, rows = 0, expected = 0;
    const size_t fields = count_fields(s->window, s->size, separator, &at);
    bool same = fields > 1;
    for (size_t row = 0; same && row < PEEKED_ROWS && at < s->size; row++) {
        const size_t begin = at;
        const size_t found = count_fields(s->window, s->size, separator, &at);
        const bool empty = at - begin <= 2 && strspn(s->window + begin, "\r\n") > 0;
        if (empty || (at == s->size && !s->ended))
            continue;
        expected = rows++ ? expected : found;
        same = found == expected && (found == fields || (separator == ' ' && found == fields + 1));
    }
    return same && (rows > 0 || separator != ' ');
}

/* Reads the header and the first rows into the window, in which find_separator looks at them.
 * Stores the length of the header. */
static int peek(ls_table *t, size_t *header)
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    for (;;) {
        const char *end = s->size > s->at ? memchr(s->window + s->at, '\n', s->size - s->at) : NULL;
        *header = end ? (size_t)(end - s->window) : s->size;
        if (s->ended || (end && s->size - *header > PEEKED) || s->size > PEEKED_MOST)
            return LS_OK;
        status = fill(t);
        if (status)
            return status;
    }
}

/* Spreadsheet programs may begin a file with a line sep=X. Skips that line, and takes X as the
 * separator. */
static void take_dialect(ls_table *t)
{
    ls_table_source *s = t->source;
    const char *p = s->window + s->at;
    if (s->size - s->at < 6 || memcmp(p, "sep=", 4) != 0 || !p[4] || !strchr(",;\t|", p[4]) ||
        !(p[5] == '\n' || (p[5] == '\r' && p[6] == '\n')))
        return;
    if (!t->separator)
        t->separator = p[4];
    s->at += p[5] == '\r' ? 7 : 6;
    s->next_line++;
}

/* Chooses the separator: the only candidate that occurs in the header, or, if several do, the one
 * by which the rows below have as many fields as the header. */
static int find_separator(ls_table *t, size_t header)
{
    ls_table_source *s = t->source;
    char in_header[5] = "", fitting[5] = "";
    size_t n = 0, m = 0;
    for (const char *c = CANDIDATES; *c; c++) {
        size_t at = s->at;
        const size_t fields = count_fields(s->window, s->size, *c, &at);
        if (fields == 1 || !memchr(s->window + s->at, *c, header - s->at))
            continue;
        in_header[n++] = *c;
        if (fits(s, *c))
            fitting[m++] = *c;
    }
    if (n == 0)
        t->separator = fits(s, ' ') ? ' ' : ',';
    else if (n == 1 || m == 1)
        t->separator = n == 1 ? in_header[0] : fitting[0];
    else if (m == 0 && in_header[0] == ',')
        t->separator = ',';
    else
        return ls_because(
            t->err,
            ls_table_fail(t,
                          "expected one separator, found %s and %s in the header; set "
                          "data.separator, or put names that have one in quotes",
                          ls_separator_name(m > 1 ? fitting[0] : in_header[0]),
                          ls_separator_name(m > 1 ? fitting[1] : in_header[1])),
            LS_REASON_SEPARATOR);
    if (n > 1 && m == 0)
        s->other = in_header[0] == t->separator ? in_header[1] : in_header[0];
    return LS_OK;
}

static int begin(ls_table *t)
{
    ls_table_source *s = t->source;
    size_t header = 0;
    bool more;
    int status = find_coding(t);
    if (status == LS_OK)
        status = ls_table_has_row(t, &more);
    if (status == LS_OK && !more)
        return ls_table_fail(t, "expected a header with the columns' names, found an empty file");
    if (status == LS_OK)
        status = peek(t, &header);
    if (status)
        return status;
    const char *cr = memchr(s->window + s->at, '\r', header - s->at);
    if (cr && header == s->size && cr + 1 < s->window + s->size && cr[1] != '\n')
        return ls_table_fail(
            t, "expected lines that end with a line feed, found carriage returns alone, "
               "as of old Macintosh programs; save the table anew");
    take_dialect(t);
    status = peek(t, &header);
    if (status == LS_OK && !t->separator)
        status = find_separator(t, header);
    s->stop[0] = s->stop['\n'] = s->stop[(unsigned char)t->separator] = true;
    if (t->separator == ' ')
        s->stop['\t'] = true;
    return status;
}

static int create(ls_table **out, const char *name, char separator, const ls_host *host,
                  ls_error *err)
{
    ls_table *t = *out = ls_alloc(host, sizeof *t);
    ls_table_source *s = t ? ls_alloc(host, sizeof *s) : NULL;
    if (!s) {
        ls_free(host, t);
        *out = NULL;
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory", name);
    }
    *t = (ls_table){.path = name, .line = 1, .separator = separator, .source = s, .err = err};
    s->host = host;
    s->next_line = 1;
    ls_sha256_init(&s->hash);
    return LS_OK;
}

static int begin_or_close(ls_table **out, int status)
{
    if (status == LS_OK)
        status = begin(*out);
    if (status) {
        ls_table_close(*out);
        *out = NULL;
    }
    return status;
}

int ls_table_open(ls_table **out, const char *path, char separator, const ls_host *host,
                  ls_error *err)
{
    int status = create(out, path, separator, host, err);
    if (status)
        return status;
    return begin_or_close(out, ls_read_ahead_open(&(*out)->source->file, path, host, err));
}

int ls_table_read(ls_table **out, const char *name, const void *text, size_t bytes, char separator,
                  const ls_host *host, ls_error *err)
{
    int status = create(out, name, separator, host, err);
    if (status)
        return status;
    (*out)->source->memory = text;
    (*out)->source->left = bytes;
    return begin_or_close(out, LS_OK);
}

void ls_table_close(ls_table *t)
{
    if (!t)
        return;
    const ls_host *host = t->source->host;
    ls_read_ahead_close(t->source->file);
    ls_free(host, t->source->window);
    ls_free(host, t->source);
    ls_free(host, t);
}

int ls_table_count(ls_table *t, size_t *fields)
{
    const ls_table_source *s = t->source;
    size_t header, at;
    int status = peek(t, &header);
    at = s->at;
    if (status == LS_OK)
        *fields = count_fields(s->window, s->size, t->separator, &at);
    return status;
}

int ls_table_end(ls_table *t, char sha256[LS_SHA256_HEX])
{
    ls_table_source *s = t->source;
    int status = LS_OK;
    while (status == LS_OK && !s->ended) {
        s->from = s->at = s->size;
        status = fill(t);
    }
    if (status)
        return status;
    if (s->file)
        return ls_read_ahead_end(s->file, sha256, t->err);
    ls_sha256_final_hex(&s->hash, sha256);
    return LS_OK;
}
