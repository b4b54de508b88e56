/* A hash table of the *levels* of a column, the different texts in it. Texts with the same numeric
 * value are one level. */
#include "data/levels.h"

#include "base/host.h"
#include "prep/number.h"

#include <stdlib.h>
#include <string.h>

/* Greatest length of a text that is compared as a number. A double cannot represent all digits of
 * most longer numbers, so a longer number is compared as a text. */
enum { NUMBER_BYTES = 17 };

/* The key by which two levels are compared: the value if both are numbers, else the text. */
typedef struct key {
    const char *text;
    double value;
    bool number;
    uint64_t hash;
} key;

static key key_of(const char *text)
{
    key k = {.text = text};
    const size_t n = strlen(text);
    k.number = n <= NUMBER_BYTES && ls_field_is_number(text, &k.value);
    if (k.number) {
        k.value += 0.0; /* turns −0 into 0 */
        memcpy(&k.hash, &k.value, sizeof k.hash);
    } else {
        k.hash = 14695981039346656037u;
        for (size_t i = 0; i < n; i++)
            k.hash = (k.hash ^ (unsigned char)text[i]) * 1099511628211u;
    }
    k.hash = (k.hash ^ k.hash >> 32) * 0x9E3779B97F4A7C15u;
    k.hash ^= k.hash >> 29;
    return k;
}

static bool is_level(const ls_level *l, const key *k)
{
    if (l->number != k->number)
        return false;
    return l->number ? l->value == k->value : strcmp(l->text, k->text) == 0;
}

/* Returns the slot of the level that has the key, or the empty slot in which that level would be
 * inserted. */
static size_t slot_of(const ls_levels *l, const key *k)
{
    size_t i = k->hash & (l->slots - 1);
    while (l->slot[i] && !is_level(&l->level[l->slot[i] - 1], k))
        i = (i + 1) & (l->slots - 1);
    return i;
}

int ls_levels_find(const ls_levels *l, const char *text)
{
    if (l->slots == 0)
        return -1;
    const key k = key_of(text);
    return (int)l->slot[slot_of(l, &k)] - 1;
}

/* Enlarges the hash table if half of its slots are occupied. Returns false if there is no
 * memory. */
static bool grow(ls_levels *l, const ls_host *host)
{
    if (2 * (size_t)l->count < l->slots)
        return true;
    const size_t slots = l->slots ? 2 * l->slots : 16;
    uint32_t *slot = ls_alloc_array(host, slots, sizeof *slot);
    if (!slot)
        return false;
    ls_free(host, l->slot);
    l->slot = slot;
    l->slots = slots;
    for (int i = 0; i < l->count; i++) {
        const key k = key_of(l->level[i].text);
        l->slot[slot_of(l, &k)] = (uint32_t)i + 1;
    }
    return true;
}

bool ls_levels_add(ls_levels *l, const char *text, const ls_host *host)
{
    const key k = key_of(text);
    ls_level *all = ls_grown(host, l->level, (size_t)l->count, &l->capacity, sizeof *all);
    if (!all)
        return false;
    l->level = all;
    if (!grow(l, host))
        return false;
    ls_level *new = &l->level[l->count];
    *new = (ls_level){.text = ls_strdup(host, text), .value = k.value, .number = k.number};
    if (!new->text)
        return false;
    l->slot[slot_of(l, &k)] = (uint32_t)++l->count;
    return true;
}

static int compare(const ls_level *a, const ls_level *b)
{
    if (a->number != b->number)
        return a->number ? -1 : 1;
    if (a->number)
        return a->value < b->value ? -1 : a->value > b->value;
    return strcmp(a->text, b->text);
}

static int by_pointer(const void *a, const void *b)
{
    return compare(*(ls_level *const *)a, *(ls_level *const *)b);
}

bool ls_levels_sort(ls_levels *l, const ls_host *host)
{
    const size_t n = (size_t)l->count;
    ls_level **at = ls_alloc_array(host, n + 1, sizeof *at);
    ls_free(host, l->sorted);
    l->sorted = ls_alloc_array(host, n + 1, sizeof *l->sorted);
    const bool enough = at && l->sorted;
    for (size_t i = 0; enough && i < n; i++)
        at[i] = &l->level[i];
    if (enough)
        qsort(at, n, sizeof *at, by_pointer);
    for (size_t i = 0; enough && i < n; i++) {
        at[i]->position = (int)i;
        l->sorted[i] = (int)(at[i] - l->level);
    }
    ls_free(host, at);
    return enough;
}

void ls_levels_free(ls_levels *l, const ls_host *host)
{
    for (int i = 0; i < l->count; i++)
        ls_free(host, l->level[i].text);
    ls_free(host, l->level);
    ls_free(host, l->sorted);
    ls_free(host, l->slot);
    *l = (ls_levels){0};
}
