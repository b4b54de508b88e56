/* SPDX-License-Identifier: MIT */
/* Formats numbers with the fewest digits that read back as the same number, in the form of printf's
 * %g.
 *
 *     char text[LS_SHORTEST];
 *     int n = ls_shortest(text, 0.1, false);   → "0.1", 3
 *
 * 15 digits (of a float 6), without zeros at the end, are tried first, then one more at a time. */
#ifndef JSON_SHORTEST_H
#define JSON_SHORTEST_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_SHORTEST = 40 };

/* Formats a finite number; `is_float`: the value is a float. Writes a zero-terminated text and
 * returns its length. Any thread. */
int ls_shortest(char text[LS_SHORTEST], double value, bool is_float);

/* Formats an unsigned integer and returns the length of the text. Capacity of `text`: 24 bytes. */
int ls_shortest_uint(char *text, uint64_t value);
/* Formats a signed integer like ls_shortest_uint. */
int ls_shortest_int(char *text, int64_t value);

#endif
