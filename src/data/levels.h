/* SPDX-License-Identifier: MIT */
/* The levels of a table's column: the set of the different texts that occur in it. prep/level.h
 * says which texts are one level. */
#ifndef DATA_LEVELS_H
#define DATA_LEVELS_H

#include <lockstep/host.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A level. */
typedef struct ls_level {
    char *text;   /* the text of its first occurrence */
    int position; /* position among the sorted levels, from 0; set by ls_levels_sort */
} ls_level;

/* The levels of a column. */
typedef struct ls_levels {
    ls_level *level; /* [count], in the order of their first occurrence */
    int count;
    int *sorted;     /* [count]: indices in `level`, in sorted order; NULL: not sorted */
    size_t capacity; /* size of the array `level` */
    uint32_t *slot;  /* [slots]: hash table of level index + 1; 0: an empty slot */
    size_t slots;
    bool codes; /* the column has codes (prep/level.h) */
} ls_levels;

/* Returns the index of the level of `text`; −1: there is none. */
int ls_levels_find(const ls_levels *l, const char *text);
/* Adds a level for `text`, which must not have one yet. The index of the new level is the old
 * `count`. Returns false if there is no memory. */
bool ls_levels_add(ls_levels *l, const char *text, const ls_host *host);
/* From now on the column has codes, so texts that were one level before may have to be two. Keeps
 * the levels and their indices. */
void ls_levels_become_codes(ls_levels *l);
/* Sorts the levels (ls_level_order). Returns false if there is no memory. */
bool ls_levels_sort(ls_levels *l, const ls_host *host);
/* Frees the levels and zeroes *l. */
void ls_levels_free(ls_levels *l, const ls_host *host);

#endif
