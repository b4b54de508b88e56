#include "base/closest.h"

#include <string.h>

enum { MAX_WORD = 63 };

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The restricted Damerau-Levenshtein distance: three rows of the usual table suffice, because a
 * swap looks two rows back. Both words have at most MAX_WORD bytes. */
static size_t edits(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][MAX_WORD + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *now = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *above2 = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned char x = lower(a[i - 1]);
            unsigned char y = lower(b[j - 1]);
            size_t best = min_of(above[j], now[j - 1]) + 1;
            best = min_of(best, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                best = min_of(best, above2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[a_len % 3][b_len];
}

const char *ls_closest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strlen(word);
    if (length == 0 || length > MAX_WORD)
        return NULL;
    size_t allowed = length <= 3 ? 1 : length < 9 ? 2 : length / 3;
    const char *closest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other > MAX_WORD)
            continue;
        size_t distance = edits(word, length, candidates[i], other);
        if (distance <= allowed) {
            closest = candidates[i];
            if (distance == 0)
                break;
            allowed = distance - 1;
        }
    }
    return closest;
}
