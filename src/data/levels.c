/* SPDX-License-Identifier: MIT */
/* A hash table of the levels of a column (prep/prep.h). */
#include "data/levels.h"

#include "base/host.h"
#include "prep/level.h"

#include <stdlib.h>
#include <string.h>

/* Returns the slot of the level of `text`, or the empty slot in which that level would be
 * inserted. */
static size_t slot_of(const ls_levels *l, const char *text)
{
    uint64_t hash = ls_level_hash(text, l->codes);
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u;
    size_t i = (hash ^ hash >> 29) & (l->slots - 1);
    while (l->slot[i] && !ls_level_is_same(l->level[l->slot[i] - 1].text, text, l->codes))
        i = (i + 1) & (l->slots - 1);
    return i;
}

int ls_levels_find(const ls_levels *l, const char *text)
{
    return l->slots ? (int)l->slot[slot_of(l, text)] - 1 : -1;
}

static void fill_slots(ls_levels *l)
{
    for (int i = 0; i < l->count; i++)
        l->slot[slot_of(l, l->level[i].text)] = (uint32_t)i + 1;
}

void ls_levels_become_codes(ls_levels *l)
{
    l->codes = true;
    if (l->slots)
        memset(l->slot, 0, l->slots * sizeof *l->slot);
    fill_slots(l);
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
    fill_slots(l);
    return true;
}

bool ls_levels_add(ls_levels *l, const char *text, const ls_host *host)
{
    ls_level *all = ls_grown(host, l->level, (size_t)l->count, &l->capacity, sizeof *all);
    if (!all)
        return false;
    l->level = all;
    if (!grow(l, host))
        return false;
    ls_level *new = &l->level[l->count];
    *new = (ls_level){.text = ls_strdup(host, text)};
    if (!new->text)
        return false;
    l->slot[slot_of(l, text)] = (uint32_t)++l->count;
    return true;
}

static int by_pointer(const void *a, const void *b)
{
    return ls_level_order((*(ls_level *const *)a)->text, (*(ls_level *const *)b)->text);
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
