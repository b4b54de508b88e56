/* SPDX-License-Identifier: MIT */
/* Compares texts that may be in different Unicode normal forms: an é may be one character, or an e
 * and a combining accent. File names occur in both forms, depending on the file system. The
 * comparison decomposes both texts, character by character, and sorts the combining marks of each
 * letter as Unicode does (canonical decomposition, Unicode 3.11). */
#include "prep/level.h"
#include "prep/prep.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

/* A character, and the two characters into which it is decomposed, or the only one (second 0). */
typedef struct pair {
    uint16_t whole, first, second;
} pair;

/* Combining marks, and the class by which the marks after a letter are sorted. */
typedef struct mark_range {
    uint16_t first, last;
    uint8_t class;
} mark_range;

static const pair pairs[] = {
#include "prep/pairs.inc"
};

static const mark_range marks[] = {
#include "prep/marks.inc"
};

enum {
    /* capacity of `waiting`: one more than the largest number of characters into which one
     * character is decomposed */
    DEPTH = 8,
    MARKS = 32, /* most marks of a letter that are sorted; Unicode's text streams have up to 30 */
    /* Hangul syllables are composed of two or three letters by a rule (Unicode 3.12). */
    SYLLABLES = 0xAC00,
    SYLLABLES_END = 0xD7A4,
    INVALID = 0x110000, /* a byte that is invalid UTF-8, plus the byte; above all characters */
    LEADING = 0x1100,
    VOWELS = 0x1161,
    TRAILING = 0x11A7,
    OF_VOWEL = 28,
    OF_LEADING = 588
};

/* Reads the fully decomposed characters of a text, one by one. */
typedef struct reader {
    const unsigned char *at;
    size_t left;
    /* decomposed characters that `take` has not returned yet; the last entry is returned first */
    uint32_t waiting[DEPTH];
    int count; /* number of entries of `waiting` used */
    /* [marks]: the sorted marks of a letter, of which `next` has returned the first `mark` */
    uint32_t sorted[MARKS];
    int marks, mark;
    bool
        keeps_invalid; /* an invalid byte becomes INVALID plus the byte; false: it becomes U+FFFD */
} reader;

static int by_whole(const void *a, const void *b)
{
    return ((const pair *)a)->whole - ((const pair *)b)->whole;
}

static void put(reader *r, uint32_t c)
{
    if (r->count < DEPTH)
        r->waiting[r->count++] = c;
}

/* Decodes the next character. */
static void fetch(reader *r)
{
    static const unsigned char first[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const size_t n = ls_utf8_length(r->at, r->left);
    uint32_t c = n ? r->at[0] & first[n] : r->keeps_invalid ? INVALID | r->at[0] : 0xFFFD;
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (r->at[i] & 0x3F);
    r->at += n ? n : 1;
    r->left -= n ? n : 1;
    put(r, c);
}

static void take_syllable_apart(reader *r, uint32_t c)
{
    const uint32_t s = c - SYLLABLES, trailing = s % OF_VOWEL;
    if (trailing)
        put(r, TRAILING + trailing);
    put(r, VOWELS + s % OF_LEADING / OF_VOWEL);
    put(r, LEADING + s / OF_LEADING);
}

/* Returns the next fully decomposed character of the text; 0 at the end. */
static uint32_t take(reader *r)
{
    if (r->count == 0 && r->left == 0)
        return 0;
    if (r->count == 0)
        fetch(r);
    for (;;) {
        const uint32_t c = r->waiting[--r->count];
        const pair wanted = {.whole = (uint16_t)c};
        const pair *found = c > 0xFFFF ? NULL
                                       : bsearch(&wanted, pairs, sizeof pairs / sizeof *pairs,
                                                 sizeof *pairs, by_whole);
        if (c >= SYLLABLES && c < SYLLABLES_END)
            take_syllable_apart(r, c);
        else if (!found)
            return c;
        else {
            if (found->second)
                put(r, found->second);
            put(r, found->first);
        }
    }
}

static int by_range(const void *a, const void *b)
{
    const uint32_t c = *(const uint32_t *)a;
    const mark_range *range = b;
    return c < range->first ? -1 : c > range->last;
}

/* Returns the canonical combining class of a mark; 0: the character is none. */
static int class_of(uint32_t c)
{
    const mark_range *found =
        c < marks[0].first || c > 0xFFFF
            ? NULL
            : bsearch(&c, marks, sizeof marks / sizeof *marks, sizeof *marks, by_range);
    return found ? found->class : 0;
}

/* Reads the marks after `mark`, which it is given, and sorts all of them by class. Marks of one
 * class keep their order. */
static void sort_marks(reader *r, uint32_t mark)
{
    r->marks = r->mark = 0;
    while (class_of(mark) > 0 && r->marks < MARKS) {
        int i = r->marks++;
        for (; i > 0 && class_of(r->sorted[i - 1]) > class_of(mark); i--)
            r->sorted[i] = r->sorted[i - 1];
        r->sorted[i] = mark;
        mark = take(r);
    }
    if (mark)
        put(r, mark);
}

/* Returns the next character of the text's canonical decomposition; 0 at the end. */
static uint32_t next(reader *r)
{
    if (r->mark == r->marks) {
        const uint32_t c = take(r);
        if (class_of(c) == 0)
            return c;
        sort_marks(r, c);
    }
    return r->sorted[r->mark++];
}

static bool are_equal(const char *name, const char *text, bool keeps_invalid)
{
    reader a = {.at = (const unsigned char *)name,
                .left = strlen(name),
                .keeps_invalid = keeps_invalid},
           b = {.at = (const unsigned char *)text,
                .left = strlen(text),
                .keeps_invalid = keeps_invalid};
    if (strcmp(name, text) == 0)
        return true;
    for (;;) {
        const uint32_t c = next(&a);
        if (c != next(&b))
            return false;
        if (c == 0)
            return true;
    }
}

bool ls_prep_is_name(const char *name, const char *text)
{
    return are_equal(name, text, false);
}

bool ls_text_is_same(const char *a, const char *b)
{
    return are_equal(a, b, true);
}

bool ls_text_has_one_form(const char *text)
{
    while (*text && (unsigned char)*text < 0x80 && !strchr(";K`", *text))
        text++;
    return *text == '\0';
}

uint64_t ls_text_hash(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text && (unsigned char)*text < 0x80; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    reader r = {.at = (const unsigned char *)text, .left = strlen(text), .keeps_invalid = true};
    for (uint32_t c = next(&r); c; c = next(&r))
        h = (h ^ c) * 1099511628211u;
    return h;
}
