/* What the files of the strict pass share: the position in a text, and its tokens. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include "json/strict.h"

typedef struct ls_scan {
    const char *name;
    const char *text;
    size_t len;
    size_t at;      /* the next byte to look at */
    uint32_t depth; /* of arrays and objects around it */
    const ls_json_limits *limits;
    ls_json_places *places;
    char **shortened;
    const ls_host *host;
    ls_error *err;
} ls_scan;

static inline int ls_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static inline int ls_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next byte, or −1 at the end. */
static inline int ls_scan_peek(const ls_scan *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

/* Fails with LS_ECONFIG and "NAME:LINE:COLUMN: message" for the byte at `offset`. */
int ls_scan_fail(ls_scan *s, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Names what stands at `offset`, for "…, found …". */
const char *ls_scan_found(const ls_scan *s, size_t offset, char out[48]);

/* Whether the last thing before the position is a comma. */
int ls_scan_after_comma(const ls_scan *s);

/* Pass over a string (at its opening quote), a number, or one of true, false and null; what is
 * none of them fails as a missing value. */
int ls_scan_string(ls_scan *s);
int ls_scan_number(ls_scan *s);
int ls_scan_word(ls_scan *s);

#endif
