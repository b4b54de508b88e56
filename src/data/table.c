/* The text of a table, field by field (RFC 4180). */
#include "data/table.h"

#include "base/error.h"

#include <string.h>

int ls_table_fail(const ls_table *t, const char *text)
{
    return ls_fail(t->err, LS_EDATA, "%.300s:%zu: %s", t->path, t->line, text);
}

/* The text of a field in quotes: two quotes are one. */
static int read_quoted(ls_table *t, size_t *n)
{
    const size_t begin = t->line;
    for (t->at++; t->at < t->size; t->at++) {
        const char c = t->text[t->at];
        t->line += c == '\n';
        if (c == '"' && (t->at + 1 == t->size || t->text[t->at + 1] != '"')) {
            t->at++;
            return LS_OK;
        }
        t->at += c == '"';
        if (*n + 1 == LS_FIELD_BYTES || c == '\0')
            return ls_table_fail(
                t, c ? "expected a field of less than 4096 bytes; does a quote not end?"
                     : "expected text, found a zero byte");
        t->field[(*n)++] = c;
    }
    t->line = begin;
    return ls_table_fail(t, "expected a quote that ends the field that begins here");
}

static int read_plain(ls_table *t, size_t *n)
{
    for (; t->at < t->size && !strchr(",\n", t->text[t->at]); t->at++) {
        if (t->text[t->at] == '\r' && t->at + 1 < t->size && t->text[t->at + 1] == '\n')
            continue;
        if (*n + 1 == LS_FIELD_BYTES)
            return ls_table_fail(t, "expected a field of less than 4096 bytes");
        t->field[(*n)++] = t->text[t->at];
    }
    if (t->at < t->size && t->text[t->at] == '\0')
        return ls_table_fail(t, "expected text, found a zero byte");
    return LS_OK;
}

int ls_table_field(ls_table *t)
{
    size_t n = 0, first = 0;
    const bool quoted = t->at < t->size && t->text[t->at] == '"';
    int status = quoted ? read_quoted(t, &n) : read_plain(t, &n);
    if (status)
        return status;
    if (quoted && t->at < t->size && t->text[t->at] == '\r')
        t->at++;
    if (t->at < t->size && (t->text[t->at] == '\0' || !strchr(",\n", t->text[t->at])))
        return ls_table_fail(t, "expected a comma or the line's end behind a quoted field");
    while (!quoted && n > 0 && (t->field[n - 1] == ' ' || t->field[n - 1] == '\r'))
        n--;
    while (!quoted && first < n && t->field[first] == ' ')
        first++;
    memmove(t->field, t->field + first, n - first);
    t->field[n - first] = '\0';
    t->ends_row = t->at == t->size || t->text[t->at] == '\n';
    return LS_OK;
}

void ls_table_step(ls_table *t)
{
    t->line += t->at < t->size && t->text[t->at] == '\n';
    t->at += t->at < t->size;
}

bool ls_table_has_row(ls_table *t)
{
    if (t->at == 0 && t->size >= 3 && memcmp(t->text, "\xEF\xBB\xBF", 3) == 0)
        t->at = 3; /* the mark that spreadsheets begin a file with */
    while (t->at < t->size && strchr("\r\n", t->text[t->at]) && t->text[t->at])
        ls_table_step(t);
    return t->at < t->size;
}
