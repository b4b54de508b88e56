/* SPDX-License-Identifier: MIT */
/* UTF-8: the length of a character, and texts that become one line. UTF-8 is checked strictly: no
 * overlong forms, no surrogates, nothing above U+10FFFF. All functions: any thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Returns the number of bytes of the UTF-8 character at `p`, 1 to 4, or 0 if it is invalid.
 * `available`: number of bytes at `p`. */
size_t ls_utf8_length(const unsigned char *p, size_t available);

/* Replaces each byte that is a control character or invalid UTF-8 by '?'. A text that quotes input
 * is then one line of valid UTF-8, even if it was truncated within a character. */
void ls_utf8_tidy(char *text);

#endif
