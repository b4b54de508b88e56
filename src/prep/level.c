/* SPDX-License-Identifier: MIT */
/* Compares the levels of a column (level.h). */
#include "prep/level.h"

#include "prep/number.h"

#include <string.h>

enum {
    ROUNDED_BYTES = 17, /* older versions compared longer texts byte by byte */
    DOUBLE_DIGITS = 15, /* a double holds any number of this many digits */
    /* Powers of ten of the first digit: at 10^308 a number may be too large for a double, and below
     * 10^-307 a double has fewer digits. */
    TOO_LARGE = 308,
    TOO_SMALL = -308
};

/* Steps over the point, which may stand between two digits. */
static const char *digit_at(const char *p)
{
    return p + (*p == '.');
}

/* Compares the absolute values of two numbers. */
static int compare_sizes(const ls_digits *a, const ls_digits *b)
{
    if (a->count == 0 || b->count == 0)
        return (a->count > 0) - (b->count > 0);
    if (a->power != b->power)
        return a->power < b->power ? -1 : 1;
    const int shorter = a->count < b->count ? a->count : b->count;
    const char *p = a->first, *q = b->first;
    for (int i = 0; i < shorter; i++, p++, q++) {
        p = digit_at(p);
        q = digit_at(q);
        if (*p != *q)
            return *p < *q ? -1 : 1;
    }
    return (a->count > shorter) - (b->count > shorter);
}

static int compare(const ls_digits *a, const ls_digits *b)
{
    if (a->minus != b->minus)
        return a->minus ? -1 : 1;
    return a->minus ? -compare_sizes(a, b) : compare_sizes(a, b);
}

/* Returns the word of logic that the text is, in lower case; NULL: it is none. */
static const char *logical(const char *text)
{
    static const char *const words[] = {"true", "false"};
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        while (words[i][n] && (text[n] | 0x20) == words[i][n])
            n++;
        if (!words[i][n] && !text[n])
            return words[i];
    }
    return NULL;
}

bool ls_level_is_logical(const char *text)
{
    return logical(text) != NULL;
}

bool ls_level_is_same(const char *a, const char *b, bool codes)
{
    ls_digits x, y;
    if (strcmp(a, b) == 0 || (logical(a) && logical(a) == logical(b)))
        return true;
    if (!codes && ls_field_digits(a, &x) && ls_field_digits(b, &y))
        return compare(&x, &y) == 0;
    return ls_text_is_same(a, b);
}

uint64_t ls_level_hash(const char *text, bool codes)
{
    ls_digits n;
    const char *word = logical(text);
    if (word || codes || !ls_field_digits(text, &n))
        return ls_text_hash(word ? word : text);
    uint64_t h = ((uint64_t)(int64_t)n.power << 1 | n.minus) * 2 + 14695981039346656037u + 1;
    for (const char *p = n.first; p < n.end; p++)
        h = *p == '.' ? h : (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

int ls_level_order(const char *a, const char *b)
{
    ls_digits x, y;
    const bool is_number = ls_field_digits(a, &x), other_is = ls_field_digits(b, &y);
    if (is_number != other_is)
        return is_number ? -1 : 1;
    const int order = is_number ? compare(&x, &y) : 0;
    return order ? order : strcmp(a, b);
}

bool ls_level_is_code(const char *text)
{
    return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

bool ls_level_was_rounded(const char *text)
{
    static const char whole[] = "9007199254740992"; /* 2^53: doubles hold all whole numbers below */
    static const ls_digits exact = {.first = whole, .end = whole + 16, .count = 16, .power = 15};
    ls_digits n;
    if (strlen(text) > ROUNDED_BYTES || !ls_field_digits(text, &n))
        return false;
    if (n.count > 0 && (n.power >= TOO_LARGE || n.power <= TOO_SMALL))
        return true;
    if (n.count > n.power + 1) /* a fraction */
        return n.count > DOUBLE_DIGITS;
    return n.power == ROUNDED_BYTES - 1 ||
           (n.power == exact.power && compare_sizes(&n, &exact) >= 0);
}
