/* SPDX-License-Identifier: MIT */
/* Opens and closes tables (table.h). Detects the encoding of the text by its byte order mark, and
 * the separator of fields by the header and the rows below it. */
#include "data/table_source.h"

#include "base/error.h"
#include "base/host.h"
#include "data/foreign.h"

#include <string.h>

enum {
    PEEKED = 64 << 10, /* number of bytes after the header in which the separator is searched */
    PEEKED_MOST = 16 << 20, /* largest number of bytes of the header and the text after it */
    PEEKED_ROWS = 10
};

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
        status = ls_table_fill(t);
    if (status)
        return status;
    const uint8_t *mark = (const uint8_t *)s->window;
    if (s->size >= 3 && memcmp(mark, "\xEF\xBB\xBF", 3) == 0)
        s->at = 3;
    else if (s->size >= 2 && memcmp(mark, "\xFF\xFE", 2) == 0)
        s->coding = LS_TABLE_UTF16_LITTLE;
    else if (s->size >= 2 && memcmp(mark, "\xFE\xFF", 2) == 0)
        s->coding = LS_TABLE_UTF16_BIG;
    if (s->coding == LS_TABLE_PLAIN)
        return refuse_foreign(t);
    /* The bytes that are in the window are decoded into a new window. */
    char *window = ls_alloc(s->host, 2 * s->capacity);
    if (!window)
        return ls_table_no_memory(t);
    s->size = ls_table_decode(s, window, mark + 2, s->size - 2);
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
    const size_t fields = ls_count_fields(s->window, s->size, separator, &at);
    bool same = fields > 1;
    for (size_t row = 0; same && row < PEEKED_ROWS && at < s->size; row++) {
        const size_t begin = at;
        const size_t found = ls_count_fields(s->window, s->size, separator, &at);
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
        status = ls_table_fill(t);
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
    for (const char *c = LS_SEPARATOR_CANDIDATES; *c; c++) {
        size_t at = s->at;
        const size_t fields = ls_count_fields(s->window, s->size, *c, &at);
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
        *fields = ls_count_fields(s->window, s->size, t->separator, &at);
    return status;
}
