#include "base64.h"

static int value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(uint8_t *out, size_t count, const char *text)
{
    uint32_t bits = 0;
    int held = 0;
    size_t done = 0;
    for (; value(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)value(*text);
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        if (done == count)
            return 0;
        out[done++] = (uint8_t)(bits >> held);
        bits &= (1u << held) - 1;
    }
    for (int i = 0; i < 2 && *text == '='; i++)
        text++;
    return done == count && *text == '\0' && bits == 0 && held < 6;
}
