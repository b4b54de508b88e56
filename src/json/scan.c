/* SPDX-License-Identifier: MIT */
/* The strict parser of JSON: scans tokens, checks their order and builds the tree in one pass. */
#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "base/utf8.h"
#include "json/doc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of a scan. */
typedef struct scan {
    ls_json *doc; /* document that records the origins of nodes */
    const char *label;
    const char *name;
    const char *text; /* text[len] is 0 */
    size_t len;
    int line;       /* number of the first line in messages */
    size_t at;      /* offset of the next byte */
    uint32_t depth; /* number of arrays and objects that contain the next byte */
    uint32_t first; /* index of the root's origin in the document */
    cJSON *root;
    ls_error *err;
} scan;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the next byte, or −1 at the end. */
static int peek(const scan *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

void ls_json_line_column(const char *text, size_t offset, int first, int *line, int *column)
{
    *line = first;
    *column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80) {
            ++*column; /* continuation bytes belong to the character before them */
        }
    }
}

__attribute__((format(printf, 3, 4))) static int fail(scan *s, size_t offset, const char *format,
                                                      ...)
{
    char message[LS_ERROR_TEXT];
    int line;
    int column;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ls_json_line_column(s->text, offset, s->line, &line, &column);
    return ls_fail(s->err, LS_ECONFIG, "%s:%d:%d: %s", s->name, line, column, message);
}

/* Returns the length of the bare word at `offset`: letters, digits and '_'. */
static size_t word_length(const scan *s, size_t offset)
{
    size_t n = 0;
    while (offset + n < s->len && (is_letter(s->text[offset + n]) || is_digit(s->text[offset + n])))
        n++;
    return n;
}

/* Describes the text at `offset` for "…, found …" in messages. */
static const char *found(const scan *s, size_t offset, char out[48])
{
    if (offset >= s->len)
        return "the end of the text";
    const unsigned char *p = (const unsigned char *)s->text + offset;
    size_t word = word_length(s, offset);
    if (*p == '\n' || *p == '\r')
        return "the end of the line";
    if (word > 1 && word <= 24)
        snprintf(out, 48, "%.*s", (int)word, (const char *)p);
    else if (*p == '\'')
        return "a single quote";
    else if (*p >= 0x20 && *p != 0x7F)
        snprintf(out, 48, "'%.*s'", (int)ls_utf8_length(p, s->len - offset), (const char *)p);
    else
        snprintf(out, 48, "the control character 0x%02x", *p);
    return out;
}

/* Returns whether a comma precedes the next byte, with nothing but spaces between them. */
static bool after_comma(const scan *s)
{
    size_t i = s->at;
    while (i > 0 && strchr(" \t\n\r", s->text[i - 1]))
        i--;
    return i > 0 && s->text[i - 1] == ',';
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Returns the value of the four digits of \uXXXX at `offset`, or −1. */
static int hex4(const scan *s, size_t offset)
{
    int code = 0;
    for (size_t i = offset; i < offset + 4; i++) {
        char c = i < s->len ? s->text[i] : '\0';
        int digit = is_digit(c)              ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Scans a \uXXXX escape at its 'u'. Fails if only one half of a surrogate pair is there. */
static int scan_unicode_escape(scan *s)
{
    size_t start = s->at - 1;
    int code = hex4(s, s->at + 1);
    if (code < 0)
        return fail(s, start, "expected four hexadecimal digits after \\u");
    if (code == 0)
        return fail(
            s, start,
            "expected a character other than \\u0000, which texts must not contain; remove it");
    s->at += 5;
    if (code < 0xD800 || code > 0xDFFF)
        return LS_OK;
    int low = -1;
    if (code <= 0xDBFF && s->len - s->at >= 6 && memcmp(s->text + s->at, "\\u", 2) == 0)
        low = hex4(s, s->at + 2);
    if (low < 0xDC00 || low > 0xDFFF)
        return fail(s, start, "\\u%04x is half of a surrogate pair; write both halves",
                    (unsigned)code);
    s->at += 6;
    return LS_OK;
}

static int scan_escape(scan *s)
{
    s->at++;
    int c = peek(s);
    if (c == 'u')
        return scan_unicode_escape(s);
    if (c < 0 || !strchr("\"\\/bfnrt", c))
        return fail(s, s->at - 1,
                    "expected an escape such as \\n, \\\\ or \\u00e9 after a "
                    "backslash; write two backslashes for one");
    s->at++;
    return LS_OK;
}

/* Scans a string at its opening quote. */
static int scan_string(scan *s)
{
    size_t start = s->at++;
    for (int c = peek(s); c != '"'; c = peek(s)) {
        if (c < 0 || c == '\n')
            return fail(s, start, "this string has no closing quote");
        if (c < 0x20)
            return fail(s, s->at, "control character 0x%02x inside a string; write it as \\u%04x",
                        (unsigned)c, (unsigned)c);
        if (c != '\\') {
            s->at++;
            continue;
        }
        int status = scan_escape(s);
        if (status)
            return status;
    }
    s->at++; /* skips the closing quote */
    return LS_OK;
}

static size_t skip_digits(scan *s)
{
    size_t start = s->at;
    while (s->at < s->len && is_digit(s->text[s->at]))
        s->at++;
    return s->at - start;
}

/* Scans a number: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?` */
static int scan_number_grammar(scan *s)
{
    char f[48];
    size_t start = s->at;
    if (peek(s) == '-')
        s->at++;
    if (is_letter((char)peek(s)))
        return fail(s, start, "expected a number, found -%s; numbers must be finite",
                    found(s, s->at, f));
    if (peek(s) == '0' && s->at + 1 < s->len && is_digit(s->text[s->at + 1]))
        return fail(s, start, "expected a number, found a leading zero; remove it");
    if (skip_digits(s) == 0)
        return fail(s, s->at, "expected a digit, found %s", found(s, s->at, f));
    if (peek(s) == '.') {
        s->at++;
        if (skip_digits(s) == 0)
            return fail(s, s->at, "expected a digit after the decimal point, found %s",
                        found(s, s->at, f));
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (skip_digits(s) == 0)
            return fail(s, s->at, "expected a digit in the exponent, found %s", found(s, s->at, f));
    }
    return LS_OK;
}

static int scan_number(scan *s, cJSON *node)
{
    const size_t start = s->at;
    int status = scan_number_grammar(s);
    const size_t count = s->at - start;
    if (status)
        return status;
    node->type = cJSON_Number;
    /* A letter follows the number, as in 0x10; the caller refuses it. strtod is not called, because
     * it also accepts the x10. */
    if (is_letter((char)peek(s)))
        return LS_OK;
    if (isfinite(cJSON_SetNumberHelper(node, strtod(s->text + start, NULL))))
        return LS_OK;
    return fail(s, start,
                "expected a finite number, found %.*s%s; the largest is "
                "1.797e308",
                count > 40 ? 40 : (int)count, s->text + start, count > 40 ? "…" : "");
}

/* Reports that there is no value where one should begin. */
static int fail_no_value(scan *s)
{
    char f[48];
    int c = peek(s);
    size_t word = word_length(s, s->at);
    const char *fix = "";
    static const struct {
        const char *word;
        const char *fix;
    } words[] = {
        {"NaN", "; numbers must be finite"},
        {"nan", "; numbers must be finite"},
        {"Infinity", "; numbers must be finite"},
        {"inf", "; numbers must be finite"},
        {"True", "; write true"},
        {"False", "; write false"},
        {"None", "; write null"},
    };
    if (c < 0)
        fix = "; is the file complete?";
    else if ((c == '}' || c == ']') && after_comma(s))
        fix = "; remove the comma before it";
    else if (c == '\'')
        fix = "; use double quotes";
    else if (c == '+' || c == '.')
        fix = "; a number begins with a digit or '-'";
    else if (is_letter((char)c))
        fix = "; put strings in double quotes";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == word && memcmp(words[i].word, s->text + s->at, word) == 0)
            fix = words[i].fix;
    return fail(s, s->at, "expected a value, found %s%s", found(s, s->at, f), fix);
}

static int scan_word(scan *s, cJSON *node)
{
    static const struct {
        const char *word;
        int type;
    } words[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    size_t n = word_length(s, s->at);
    for (size_t i = 0; i < 3; i++) {
        if (strlen(words[i].word) == n && memcmp(words[i].word, s->text + s->at, n) == 0) {
            node->type = words[i].type;
            s->at += n;
            return LS_OK;
        }
    }
    return fail_no_value(s);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int no_memory(const scan *s)
{
    return ls_fail(s->err, LS_ENOMEM, "%s: out of memory", s->name);
}

static char *put_utf8(char *out, uint32_t c)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(n == 1 ? c : (0xF00u >> n & 0xFFu) | c);
    return out + n;
}

/* Decodes the \u escape whose 'u' is at the given offset, and appends the character to *out. The
 * escape has been checked before. Returns the offset after the escape. */
static size_t unescape(const scan *s, size_t at, char **out)
{
    const uint32_t code = (uint32_t)hex4(s, at + 1);
    const bool pair = code >= 0xD800 && code <= 0xDFFF;
    *out = put_utf8(*out,
                    !pair ? code
                          : 0x10000 + ((code & 0x3FF) << 10) + ((uint32_t)hex4(s, at + 7) & 0x3FF));
    return at + (pair ? 11 : 5);
}

/* Decodes the string whose opening quote is at `start`. The string has been checked before. Returns
 * a copy, which cJSON frees, or NULL if memory ran out. */
static char *string_at(const scan *s, size_t start)
{
    static const char escape[] = "bfnrt", meant[] = "\b\f\n\r\t";
    size_t end = start + 1;
    while (s->text[end] != '"')
        end += s->text[end] == '\\' ? 2 : 1;
    char *string = cJSON_malloc(end - start), *out = string;
    for (size_t i = start + 1; string && i < end;) {
        if (s->text[i] != '\\') {
            *out++ = s->text[i++];
        } else if (s->text[i + 1] == 'u') {
            i = unescape(s, i + 1, &out);
        } else {
            const char *known = strchr(escape, s->text[i + 1]);
            *out++ = known ? meant[known - escape] : s->text[i + 1];
            i += 2;
        }
    }
    if (string)
        *out = '\0';
    return string;
}

/* Adds a node for the value that begins at the next byte, as the last child of `parent` or as the
 * root. Until the value has been scanned, the node is a JSON null. */
static int add_node(scan *s, cJSON **out, cJSON *parent, uint32_t key)
{
    const uint32_t before = s->doc->count;
    if (before - s->first >= LS_JSON_VALUES)
        return fail(s, s->at, "expected at most %d values, found more", LS_JSON_VALUES);
    cJSON *node = *out = cJSON_CreateNull();
    if (!node)
        return no_memory(s);
    if (parent)
        cJSON_AddItemToArray(parent, node);
    else
        s->root = node;
    if (key != LS_JSON_NO_KEY && !(node->string = string_at(s, key)))
        return no_memory(s);
    return ls_json_note(s->doc, &(ls_json_origin){node, s->label, key, (uint32_t)s->at}, s->err);
}

/* ---- duplicate keys -------------------------------------------------------------------------- */

typedef struct member {
    const char *key;
    const ls_json_origin *origin;
} member;

static int by_key_then_place(const void *a, const void *b)
{
    const member *x = a, *y = b;
    const int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->origin > y->origin) - (x->origin < y->origin);
}

static int fail_key(scan *s, const member *again, const member *first)
{
    int line, column;
    ls_json_line_column(s->text, first->origin->key, s->line, &line, &column);
    return fail(s, again->origin->key,
                "expected each key once, found \"%.64s\" again (first at %d:%d); remove one of "
                "the two",
                again->key, line, column);
}

/* Checks that no key of an object occurs twice. `index`: the first origin inside the object.
 * Sorting keeps this fast for an object with a million members. */
static int check_keys(scan *s, const cJSON *object, uint32_t index)
{
    const member *again = NULL; /* the first repetition in the text */
    size_t count = 0;
    if (!object->child || !object->child->next)
        return LS_OK;
    member *members =
        ls_alloc_array(s->doc->host, (size_t)cJSON_GetArraySize(object), sizeof *members);
    if (!members)
        return no_memory(s);
    for (const cJSON *child = object->child; child; index++)
        if (s->doc->origins[index].node == child) {
            members[count++] = (member){child->string, &s->doc->origins[index]};
            child = child->next;
        }
    qsort(members, count, sizeof *members, by_key_then_place);
    for (size_t i = 1; i < count; i++)
        if (strcmp(members[i].key, members[i - 1].key) == 0 &&
            (!again || members[i].origin < again->origin))
            again = &members[i];
    int status = again ? fail_key(s, again, again - 1) : LS_OK;
    ls_free(s->doc->host, members);
    return status;
}

/* ---- the whole text -------------------------------------------------------------------------- */

static int check_encoding(scan *s)
{
    const unsigned char *p = (const unsigned char *)s->text;
    if (s->len >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        return fail(s, 0, "expected JSON, found a byte order mark; save the file without one");
    if (s->len >= 2 && (memcmp(p, "\xFF\xFE", 2) == 0 || memcmp(p, "\xFE\xFF", 2) == 0))
        return fail(s, 0, "expected UTF-8, found UTF-16; save the file as UTF-8");
    for (size_t i = 0; i < s->len;) {
        size_t n = ls_utf8_length(p + i, s->len - i);
        if (n == 0)
            return fail(s, i, "expected UTF-8, found the byte 0x%02x; save the file as UTF-8",
                        p[i]);
        if (p[i] == 0)
            return fail(s, i, "expected text, found a zero byte; save the file as UTF-8");
        i += n;
    }
    return LS_OK;
}

static void skip_space(scan *s)
{
    while (s->at < s->len && strchr(" \t\n\r", s->text[s->at]))
        s->at++;
}

/* Fails with a message about comments if the next bytes begin a comment of another language. This
 * message is more helpful than the general one. */
static int fail_if_comment(scan *s)
{
    int c = peek(s);
    if (c != '/' && c != '#')
        return LS_OK;
    return fail(s, s->at, "expected JSON, found '%c'; JSON has no comments, remove it", c);
}

static int scan_value(scan *s, cJSON *parent, uint32_t key);

/* Scans a member at its key, after '{' or ','. */
static int scan_member(scan *s, cJSON *object)
{
    char f[48];
    int status = fail_if_comment(s);
    if (status)
        return status;
    int c = peek(s);
    if (c != '"') {
        const char *fix = c == '}' && after_comma(s) ? "; remove the comma before it"
                                                     : "; put keys in double quotes";
        return fail(s, s->at, "expected a key, found %s%s", found(s, s->at, f), fix);
    }
    uint32_t key = (uint32_t)s->at;
    status = scan_string(s);
    if (status)
        return status;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, s->at, "expected ':' after the key, found %s", found(s, s->at, f));
    s->at++;
    return scan_value(s, object, key);
}

static int fail_unclosed(scan *s, size_t open, char close)
{
    int line;
    int column;
    ls_json_line_column(s->text, open, s->line, &line, &column);
    return fail(s, s->at,
                "expected '%c' for the '%c' at %d:%d, found the end of the text; is the file "
                "complete?",
                close, s->text[open], line, column);
}

/* Scans the separator after an element of the array or object that began at `open`: a comma, or the
 * closing bracket, which sets *more to false. */
static int scan_separator(scan *s, size_t open, char close, bool *more)
{
    char f[48];
    skip_space(s);
    int c = peek(s);
    if (c < 0)
        return fail_unclosed(s, open, close);
    if (c == ',' || c == close) {
        *more = c == ',';
        s->at++;
        skip_space(s);
        return LS_OK;
    }
    int status = fail_if_comment(s);
    if (status)
        return status;
    const char *fix = c == '"' || c == '{' || c == '[' || is_letter((char)c) || is_digit((char)c)
                          ? "; is a comma missing before it?"
                          : "";
    return fail(s, s->at, "expected ',' or '%c', found %s%s", close, found(s, s->at, f), fix);
}

/* Scans an array or object at its '{' or '['. The recursion has at most LS_JSON_DEPTH levels, so
 * the stack is bounded. */
static int scan_container(scan *s, cJSON *node, char close)
{
    const size_t open = s->at;
    const uint32_t index = s->doc->count;
    if (s->depth >= LS_JSON_DEPTH)
        return fail(s, open, "expected at most %d nested arrays and objects, found more",
                    LS_JSON_DEPTH);
    node->type = close == '}' ? cJSON_Object : cJSON_Array;
    s->depth++;
    s->at++;
    skip_space(s);
    int status = LS_OK;
    bool more = peek(s) != close;
    if (!more)
        s->at++;
    while (status == LS_OK && more) {
        status = peek(s) < 0    ? fail_unclosed(s, open, close)
                 : close == '}' ? scan_member(s, node)
                                : scan_value(s, node, LS_JSON_NO_KEY);
        if (status == LS_OK)
            status = scan_separator(s, open, close, &more);
    }
    s->depth--;
    return status == LS_OK && close == '}' ? check_keys(s, node, index) : status;
}

static int scan_value(scan *s, cJSON *parent, uint32_t key)
{
    cJSON *node = NULL;
    skip_space(s);
    int status = fail_if_comment(s);
    if (status == LS_OK)
        status = add_node(s, &node, parent, key);
    if (status)
        return status;
    const int c = peek(s);
    if (c == '{')
        return scan_container(s, node, '}');
    if (c == '[')
        return scan_container(s, node, ']');
    if (c == '-' || is_digit((char)c))
        return scan_number(s, node);
    if (c != '"')
        return scan_word(s, node);
    const size_t start = s->at;
    status = scan_string(s);
    if (status)
        return status;
    node->type = cJSON_String;
    node->valuestring = string_at(s, start);
    return node->valuestring ? LS_OK : no_memory(s);
}

static int scan_text(scan *s)
{
    char f[48];
    if (s->len > LS_JSON_BYTES)
        return ls_fail(s->err, LS_ECONFIG, "%s: expected at most %d bytes, found %zu", s->name,
                       LS_JSON_BYTES, s->len);
    int status = check_encoding(s);
    if (status == LS_OK)
        status = scan_value(s, NULL, LS_JSON_NO_KEY);
    if (status)
        return status;
    skip_space(s);
    if (s->at == s->len)
        return LS_OK;
    return fail(s, s->at,
                "expected the end of the text, found %s; remove what follows the first value",
                found(s, s->at, f));
}

int ls_json_scan(cJSON **root, ls_json *doc, const char *name, const char *text, size_t len,
                 int line, const char *label, ls_error *err)
{
    scan s = {.doc = doc,
              .label = label,
              .name = name,
              .text = text,
              .len = len,
              .line = line,
              .first = doc->count,
              .err = err};
    /* The decimal separator must be '.' in any locale of the host. */
    ls_c_locale locale = ls_c_locale_enter();
    int status = scan_text(&s);
    ls_c_locale_leave(locale);
    if (status) {
        cJSON_Delete(s.root);
        doc->count = s.first;
    }
    *root = status ? NULL : s.root;
    return status;
}
