/* Compares texts that may be in different Unicode normal forms: an é may be one character, or an e
 * and a combining accent. File names occur in both forms, depending on the file system. The
 * comparison decomposes both texts, character by character. */
#include "prep/level.h"
#include "prep/prep.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

/* A character, and the two characters into which it is decomposed. */
typedef struct pair {
    uint16_t whole, first, second;
} pair;

static const pair pairs[] = {
#include "prep/pairs.inc"
};

enum {
    /* capacity of `waiting`: one more than the largest number of characters into which one
     * character is decomposed */
    DEPTH = 8,
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
    /* decomposed characters that `next` has not returned yet; the last entry is returned first */
    uint32_t waiting[DEPTH];
    int count; /* number of entries of `waiting` used */
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

/* Returns the next fully decomposed character; 0 at the end. */
static uint32_t next(reader *r)
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
            put(r, found->second);
            put(r, found->first);
        }
    }
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
