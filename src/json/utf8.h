/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef JSON_UTF8_H
#define JSON_UTF8_H

#include <stddef.h>

/* How many bytes the UTF-8 character at `text` has (1 … 4), or 0 when it is not valid. */
size_t ls_json_utf8_length(const unsigned char *p, size_t available);

/* Puts '?' for every byte that is a control character or no UTF-8: messages that quote input are
 * one line of UTF-8, wherever they were cut. */
void ls_json_tidy(char *text);

#endif
