/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

size_t ls_utf8_length(const unsigned char *p, size_t available)
{
    const unsigned char first = available > 0 ? p[0] : 0xFF;
    const size_t n = first < 0x80   ? 1
                     : first < 0xC2 ? 0
                     : first < 0xE0 ? 2
                     : first < 0xF0 ? 3
                     : first < 0xF5 ? 4
                                    : 0;
    if (n > available)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    const bool overlong = (first == 0xE0 && p[1] < 0xA0) || (first == 0xF0 && p[1] < 0x90);
    const bool surrogate = first == 0xED && p[1] >= 0xA0;
    const bool too_large = first == 0xF4 && p[1] >= 0x90;
    return overlong || surrogate || too_large ? 0 : n;
}

void ls_utf8_tidy(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t n = ls_utf8_length((const unsigned char *)text, left);
        if (n == 0 || (unsigned char)*text < 0x20 || *text == 0x7F) {
            *text = '?';
            n = 1;
        }
        text += n;
        left -= n;
    }
}
