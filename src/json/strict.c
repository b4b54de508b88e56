#include "json/strict.h"

#include "base/error.h"
#include "base/host.h"
#include "json/scan.h"
#include "json/utf8.h"

#include <string.h>

static int check_encoding(ls_scan *s)
{
    const unsigned char *p = (const unsigned char *)s->text;
    if (s->len >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        return ls_scan_fail(s, 0,
                            "expected JSON, found a byte order mark; save the file without one");
    if (s->len >= 2 && (memcmp(p, "\xFF\xFE", 2) == 0 || memcmp(p, "\xFE\xFF", 2) == 0))
        return ls_scan_fail(s, 0, "expected UTF-8, found UTF-16; save the file as UTF-8");
    for (size_t i = 0; i < s->len;) {
        size_t n = ls_json_utf8_length(p + i, s->len - i);
        if (n == 0)
            return ls_scan_fail(
                s, i, "expected UTF-8, found the byte 0x%02x; save the file as UTF-8", p[i]);
        if (p[i] == 0)
            return ls_scan_fail(s, i, "expected text, found a zero byte; save the file as UTF-8");
        i += n;
    }
    return LS_OK;
}

static void skip_space(ls_scan *s)
{
    while (s->at < s->len && strchr(" \t\n\r", s->text[s->at]))
        s->at++;
}

/* Whether a comment of some other language begins here: its own hint helps more than any other. */
static int fail_if_comment(ls_scan *s)
{
    int c = ls_scan_peek(s);
    if (c != '/' && c != '#')
        return LS_OK;
    return ls_scan_fail(s, s->at, "expected JSON, found '%c'; JSON has no comments, remove it", c);
}

static int add_place(ls_scan *s, uint32_t key)
{
    ls_json_places *p = s->places;
    if (p->count >= s->limits->values)
        return ls_scan_fail(s, s->at, "expected at most %u values, found more", s->limits->values);
    if (p->count == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 64;
        ls_json_place *items = ls_alloc_array(s->host, capacity, sizeof *items);
        if (!items)
            return ls_fail(s->err, LS_ENOMEM, "%s: out of memory", s->name);
        if (p->count > 0)
            memcpy(items, p->items, p->count * sizeof *items);
        ls_free(s->host, p->items);
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = (ls_json_place){.key = key, .value = (uint32_t)s->at};
    return LS_OK;
}

static int scan_value(ls_scan *s, uint32_t key);

/* At the key of a member, after a '{' or a ','. */
static int scan_member(ls_scan *s)
{
    char f[48];
    int rc = fail_if_comment(s);
    if (rc != LS_OK)
        return rc;
    int c = ls_scan_peek(s);
    if (c != '"') {
        const char *fix = c == '}' && ls_scan_after_comma(s) ? "; remove the comma before it"
                                                             : "; put keys in double quotes";
        return ls_scan_fail(s, s->at, "expected a key, found %s%s", ls_scan_found(s, s->at, f),
                            fix);
    }
    uint32_t key = (uint32_t)s->at;
    rc = ls_scan_string(s);
    if (rc != LS_OK)
        return rc;
    skip_space(s);
    if (ls_scan_peek(s) != ':')
        return ls_scan_fail(s, s->at, "expected ':' after the key, found %s",
                            ls_scan_found(s, s->at, f));
    s->at++;
    return scan_value(s, key);
}

static int fail_unclosed(ls_scan *s, size_t open, char close)
{
    int line;
    int column;
    ls_json_line_column(s->text, open, &line, &column);
    return ls_scan_fail(
        s, s->at,
        "expected '%c' for the '%c' at %d:%d, found the end of the text; is the file "
        "complete?",
        close, s->text[open], line, column);
}

/* After an element of the array or object that began at `open`: passes over the comma, or the
 * closing bracket and then clears `more`. */
static int scan_separator(ls_scan *s, size_t open, char close, int *more)
{
    char f[48];
    skip_space(s);
    int c = ls_scan_peek(s);
    if (c < 0)
        return fail_unclosed(s, open, close);
    if (c == ',' || c == close) {
        *more = c == ',';
        s->at++;
        skip_space(s);
        return LS_OK;
    }
    int rc = fail_if_comment(s);
    if (rc != LS_OK)
        return rc;
    const char *fix =
        c == '"' || c == '{' || c == '[' || ls_is_letter((char)c) || ls_is_digit((char)c)
            ? "; is a comma missing before it?"
            : "";
    return ls_scan_fail(s, s->at, "expected ',' or '%c', found %s%s", close,
                        ls_scan_found(s, s->at, f), fix);
}

/* At '{' or '['. Goes down at most `limits->depth` levels, so the stack is bounded. */
static int scan_container(ls_scan *s, char close)
{
    size_t open = s->at;
    if (s->depth >= s->limits->depth)
        return ls_scan_fail(s, open,
                            "expected at most %u arrays and objects in each other, found more",
                            s->limits->depth);
    s->depth++;
    s->at++;
    skip_space(s);
    int rc = LS_OK;
    int more = ls_scan_peek(s) != close;
    if (!more)
        s->at++;
    while (rc == LS_OK && more) {
        rc = ls_scan_peek(s) < 0 ? fail_unclosed(s, open, close)
             : close == '}'      ? scan_member(s)
                                 : scan_value(s, LS_JSON_NO_KEY);
        if (rc == LS_OK)
            rc = scan_separator(s, open, close, &more);
    }
    s->depth--;
    return rc;
}

static int scan_value(ls_scan *s, uint32_t key)
{
    skip_space(s);
    int rc = fail_if_comment(s);
    if (rc == LS_OK)
        rc = add_place(s, key);
    if (rc != LS_OK)
        return rc;
    int c = ls_scan_peek(s);
    if (c == '{')
        return scan_container(s, '}');
    if (c == '[')
        return scan_container(s, ']');
    if (c == '"')
        return ls_scan_string(s);
    if (c == '-' || ls_is_digit((char)c))
        return ls_scan_number(s);
    return ls_scan_word(s);
}

int ls_json_scan(ls_json_places *out, char **shortened, const char *name, const char *text,
                 size_t len, const ls_json_limits *limits, const ls_host *host, ls_error *err)
{
    char f[48];
    ls_scan s = {.name = name,
                 .text = text,
                 .len = len,
                 .limits = limits,
                 .places = out,
                 .shortened = shortened,
                 .host = host,
                 .err = err};
    *out = (ls_json_places){0};
    *shortened = NULL;
    if (len > limits->bytes)
        return ls_fail(err, LS_ECONFIG, "%s: expected at most %zu bytes, found %zu", name,
                       limits->bytes, len);
    int rc = check_encoding(&s);
    if (rc == LS_OK)
        rc = scan_value(&s, LS_JSON_NO_KEY);
    if (rc != LS_OK)
        return rc;
    skip_space(&s);
    if (s.at < len)
        return ls_scan_fail(&s, s.at,
                            "expected the end of the text, found %s; remove what follows the "
                            "first value",
                            ls_scan_found(&s, s.at, f));
    return LS_OK;
}
