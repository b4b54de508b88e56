/* The fewest digits that read back as the same number, in the form of printf's %g.
 *
 *     char text[LS_SHORTEST];
 *     int n = ls_shortest(text, 0.1, false);   → "0.1", 3
 *
 * As many as 15 digits, of floats 6, are tried first, as %g prints them; then one more at a time.
 */
#ifndef JSON_SHORTEST_H
#define JSON_SHORTEST_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_SHORTEST = 40 };

/* A finite number, a float where it is said to be one → the text with a zero at its end, and its length. Any
 * thread. */
int ls_shortest(char text[LS_SHORTEST], double value, bool is_float);

/* The same of whole numbers; `text` has room for 24. */
int ls_shortest_uint(char *text, uint64_t value);
int ls_shortest_int(char *text, int64_t value);

#endif
