/* SPDX-License-Identifier: MIT */
/* Comparison of two JSON values. */
#ifndef JSON_COMPARE_H
#define JSON_COMPARE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum { LS_JSON_PLACE = 160 }; /* size of a place in bytes, the zero included */

/* Finds the first difference of two values; numbers must be equal to the last bit, and the order of
 * the members of an object does not matter. Returns whether there is one, and then appends its
 * place to the value's name in `place`: "data.test.rows", "chain[3].link". A value that only one of
 * the two has is a difference; NULL is none. */
bool ls_json_differs(char place[LS_JSON_PLACE], const cJSON *a, const cJSON *b);

#endif
