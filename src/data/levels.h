/* The levels of a table's column: the set of the different texts that occur in it. Texts with the
 * same numeric value, such as 1, 1.0 and 01, are one level. */
#ifndef DATA_LEVELS_H
#define DATA_LEVELS_H

#include <lockstep/host.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A level: its text, and its value if the text is a number. */
typedef struct ls_level {
    char *text; /* the text of its first occurrence */
    double value;
    bool number;
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
} ls_levels;

/* Returns the index of the level of `text`; −1: there is none. The caller must have set the C
 * locale. */
int ls_levels_find(const ls_levels *l, const char *text);
/* Adds a level for `text`, which must not have one yet. The index of the new level is the old
 * `count`. Returns false if there is no memory. */
bool ls_levels_add(ls_levels *l, const char *text, const ls_host *host);
/* Sorts the levels: first the numbers in the order of their values, then the texts in the order of
 * their bytes. Returns false if there is no memory. */
bool ls_levels_sort(ls_levels *l, const ls_host *host);
/* Frees the levels and zeroes *l. */
void ls_levels_free(ls_levels *l, const ls_host *host);

#endif
