#include "json/scan.h"

#include "base/error.h"
#include "base/host.h"
#include "json/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tree builder copies a number into 64 bytes. A double needs 24 at most. */
enum { LONGEST = 63, DOUBLE = 24 };

/* ---- messages ---- */

void ls_json_line_column(const char *text, size_t offset, int *line, int *column)
{
    *line = 1;
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

int ls_scan_fail(ls_scan *s, size_t offset, const char *format, ...)
{
    char message[LS_ERROR_TEXT];
    int line;
    int column;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ls_json_line_column(s->text, offset, &line, &column);
    return ls_fail(s->err, LS_ECONFIG, "%s:%d:%d: %s", s->name, line, column, message);
}

/* Letters, digits and '_' from `offset` on: a bare word. */
static size_t word_length(const ls_scan *s, size_t offset)
{
    size_t n = 0;
    while (offset + n < s->len &&
           (ls_is_letter(s->text[offset + n]) || ls_is_digit(s->text[offset + n])))
        n++;
    return n;
}

/* Names what stands at `offset`, for "…, found …". */
const char *ls_scan_found(const ls_scan *s, size_t offset, char out[48])
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
        snprintf(out, 48, "'%.*s'", (int)ls_json_utf8_length(p, s->len - offset), (const char *)p);
    else
        snprintf(out, 48, "the control character 0x%02x", *p);
    return out;
}

/* Whether the last thing before here is a comma. */
int ls_scan_after_comma(const ls_scan *s)
{
    size_t i = s->at;
    while (i > 0 && strchr(" \t\n\r", s->text[i - 1]))
        i--;
    return i > 0 && s->text[i - 1] == ',';
}

/* ---- tokens ---- */

/* The four digits of \uXXXX at `offset`, or −1. */
static int hex4(const ls_scan *s, size_t offset)
{
    int code = 0;
    for (size_t i = offset; i < offset + 4; i++) {
        char c = i < s->len ? s->text[i] : '\0';
        int digit = ls_is_digit(c)           ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* At the 'u' of an escape. Halves of a surrogate pair must come together. */
static int scan_unicode_escape(ls_scan *s)
{
    size_t start = s->at - 1;
    int code = hex4(s, s->at + 1);
    if (code < 0)
        return ls_scan_fail(s, start, "expected four hexadecimal digits after \\u");
    if (code == 0)
        return ls_scan_fail(
            s, start,
            "expected a character other than \\u0000, which no text here can hold; remove it");
    s->at += 5;
    if (code < 0xD800 || code > 0xDFFF)
        return LS_OK;
    int low = -1;
    if (code <= 0xDBFF && s->len - s->at >= 6 && memcmp(s->text + s->at, "\\u", 2) == 0)
        low = hex4(s, s->at + 2);
    if (low < 0xDC00 || low > 0xDFFF)
        return ls_scan_fail(s, start, "\\u%04x is half of a surrogate pair; write both halves",
                            (unsigned)code);
    s->at += 6;
    return LS_OK;
}

static int scan_escape(ls_scan *s)
{
    s->at++;
    int c = ls_scan_peek(s);
    if (c == 'u')
        return scan_unicode_escape(s);
    if (c < 0 || !strchr("\"\\/bfnrt", c))
        return ls_scan_fail(s, s->at - 1,
                            "expected an escape such as \\n, \\\\ or \\u00e9 after a "
                            "backslash; write two backslashes for one");
    s->at++;
    return LS_OK;
}

/* At the opening quote. */
int ls_scan_string(ls_scan *s)
{
    size_t start = s->at++;
    for (;;) {
        int c = ls_scan_peek(s);
        if (c < 0 || c == '\n')
            return ls_scan_fail(s, start, "this string has no closing quote");
        if (c == '"') {
            s->at++;
            return LS_OK;
        }
        if (c < 0x20)
            return ls_scan_fail(s, s->at,
                                "control character 0x%02x inside a string; write it as \\u%04x",
                                (unsigned)c, (unsigned)c);
        if (c == '\\') {
            int rc = scan_escape(s);
            if (rc != LS_OK)
                return rc;
        } else {
            s->at++;
        }
    }
}

static size_t skip_digits(ls_scan *s)
{
    size_t start = s->at;
    while (s->at < s->len && ls_is_digit(s->text[s->at]))
        s->at++;
    return s->at - start;
}

/* `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`, letters right behind it included in what
 * is wrong. */
static int scan_number_grammar(ls_scan *s)
{
    char f[48];
    size_t start = s->at;
    if (ls_scan_peek(s) == '-')
        s->at++;
    if (ls_is_letter((char)ls_scan_peek(s)))
        return ls_scan_fail(s, start, "expected a number, found -%s; numbers must be finite",
                            ls_scan_found(s, s->at, f));
    if (ls_scan_peek(s) == '0' && s->at + 1 < s->len && ls_is_digit(s->text[s->at + 1]))
        return ls_scan_fail(s, start, "expected a number, found a leading zero; remove it");
    if (skip_digits(s) == 0)
        return ls_scan_fail(s, s->at, "expected a digit, found %s", ls_scan_found(s, s->at, f));
    if (ls_scan_peek(s) == '.') {
        s->at++;
        if (skip_digits(s) == 0)
            return ls_scan_fail(s, s->at, "expected a digit after the decimal point, found %s",
                                ls_scan_found(s, s->at, f));
    }
    if (ls_scan_peek(s) == 'e' || ls_scan_peek(s) == 'E') {
        s->at++;
        if (ls_scan_peek(s) == '+' || ls_scan_peek(s) == '-')
            s->at++;
        if (skip_digits(s) == 0)
            return ls_scan_fail(s, s->at, "expected a digit in the exponent, found %s",
                                ls_scan_found(s, s->at, f));
    }
    return LS_OK;
}

/* The value of the `count` characters at `start`, which are a number; they are rounded once. */
static int read_number(double *out, ls_scan *s, size_t start, size_t count)
{
    char few[LONGEST + 1], *number = few;
    if (count > LONGEST && !(number = ls_alloc(s->host, count + 1)))
        return ls_fail(s->err, LS_ENOMEM, "%s: out of memory", s->name);
    memcpy(number, s->text + start, count);
    number[count] = '\0';
    *out = strtod(number, NULL);
    if (number != few)
        ls_free(s->host, number);
    return isfinite(*out)
               ? LS_OK
               : ls_scan_fail(s, start,
                              "expected a finite number, found %.*s%s; the largest is "
                              "1.797e308",
                              count > 40 ? 40 : (int)count, s->text + start, count > 40 ? "…" : "");
}

/* In the text that the tree is built from, a long number is its value in few digits and blanks. */
static int shorten(ls_scan *s, double value, size_t start, size_t count)
{
    char digits[DOUBLE + 1];
    if (!*s->shortened) {
        *s->shortened = ls_alloc(s->host, s->len);
        if (!*s->shortened)
            return ls_fail(s->err, LS_ENOMEM, "%s: out of memory", s->name);
        memcpy(*s->shortened, s->text, s->len);
    }
    const int n = snprintf(digits, sizeof digits, "%.17g", value);
    memset(*s->shortened + start, ' ', count);
    memcpy(*s->shortened + start, digits, (size_t)n);
    return LS_OK;
}

int ls_scan_number(ls_scan *s)
{
    double value = 0;
    const size_t start = s->at;
    int rc = scan_number_grammar(s);
    if (rc == LS_OK)
        rc = read_number(&value, s, start, s->at - start);
    return rc == LS_OK && s->at - start > LONGEST ? shorten(s, value, start, s->at - start) : rc;
}

/* Where a value should begin but none does. */
static int fail_no_value(ls_scan *s)
{
    char f[48];
    int c = ls_scan_peek(s);
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
    else if ((c == '}' || c == ']') && ls_scan_after_comma(s))
        fix = "; remove the comma before it";
    else if (c == '\'')
        fix = "; use double quotes";
    else if (c == '+' || c == '.')
        fix = "; a number begins with a digit or '-'";
    else if (ls_is_letter((char)c))
        fix = "; put strings in double quotes";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == word && memcmp(words[i].word, s->text + s->at, word) == 0)
            fix = words[i].fix;
    return ls_scan_fail(s, s->at, "expected a value, found %s%s", ls_scan_found(s, s->at, f), fix);
}

int ls_scan_word(ls_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t n = word_length(s, s->at);
    for (size_t i = 0; i < 3; i++) {
        if (strlen(words[i]) == n && memcmp(words[i], s->text + s->at, n) == 0) {
            s->at += n;
            return LS_OK;
        }
    }
    return fail_no_value(s);
}
