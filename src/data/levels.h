/* The different texts of a column. Numbers that are equal are one, however they are written: 1, 1.0 and 01. */
#ifndef DATA_LEVELS_H
#define DATA_LEVELS_H

#include <lockstep/host.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_level {
    char *text; /* as it came first */
    double value;
    bool number;
    int place; /* among all, once they are sorted */
} ls_level;

typedef struct ls_levels {
    ls_level *level; /* [count], as they came */
    int count;
    int *sorted; /* [count]: by place; NULL: they are not sorted */
    size_t room;
    uint32_t *slot; /* [slots]: 1 and more: a level's number and 1 */
    size_t slots;
} ls_levels;

/* The number of a text; −1: it is not among them. In the C locale. */
int ls_levels_find(const ls_levels *l, const char *text);
/* Adds one that is not among them, which gets the next number. False: no memory. */
bool ls_levels_add(ls_levels *l, const char *text, const ls_host *host);
/* Sorts them: numbers by their value, before texts by their bytes. False: no memory. */
bool ls_levels_sort(ls_levels *l, const ls_host *host);
void ls_levels_free(ls_levels *l, const ls_host *host);

#endif
