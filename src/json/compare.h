/* SPDX-License-Identifier: MIT */
/* Comparison of two JSON values. */
#ifndef JSON_COMPARE_H
#define JSON_COMPARE_H

#include <cjson/cJSON.h>
#include <lockstep/host.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    LS_JSON_PLACE = 160, /* size of a place in bytes, the zero included */
    LS_JSON_SHOWN = 80,  /* size of a value in a message in bytes, the zero included */
};

/* A difference of two values. */
typedef struct ls_json_difference {
    char place[LS_JSON_PLACE]; /* "data.test.rows", "chain[3].link" */
    const cJSON *a, *b;        /* values at that place; NULL: one of the two has none */
} ls_json_difference;

/* Finds the first difference of two values; numbers must be equal to the last bit, and the order of
 * the members of an object does not matter. Returns whether there is one. The caller sets
 * out->place to the name of the value; the function appends where in the value the difference is. A
 * value that only one of the two has is a difference; NULL is none. */
bool ls_json_differs(ls_json_difference *out, const cJSON *a, const cJSON *b);

/* Writes a value for a message: its first bytes as JSON, or "nothing" for NULL. */
void ls_json_show(char out[LS_JSON_SHOWN], const cJSON *value, const ls_host *host);

#endif
