#include "json/utf8.h"

#include <string.h>

static int is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t ls_json_utf8_length(const unsigned char *p, size_t available)
{
    if (available == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF)
        return available >= 2 && is_continuation(p[1]) ? 2 : 0;
    if ((p[0] & 0xF0) == 0xE0) {
        if (available < 3 || !is_continuation(p[1]) || !is_continuation(p[2]))
            return 0;
        int overlong = p[0] == 0xE0 && p[1] < 0xA0;
        int surrogate = p[0] == 0xED && p[1] >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if (available < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) ||
            !is_continuation(p[3]))
            return 0;
        int overlong = p[0] == 0xF0 && p[1] < 0x90;
        int too_large = p[0] == 0xF4 && p[1] >= 0x90;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

void ls_json_tidy(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t n = ls_json_utf8_length((const unsigned char *)text, left);
        if (n == 0 || (unsigned char)*text < 0x20 || *text == 0x7F) {
            *text = '?';
            n = 1;
        }
        text += n;
        left -= n;
    }
}
