/* Digits are made in whole numbers of 128 bits where these hold all of them: value · 10^p = m · 10^p / 2^s, m of 53
 * bits (of a float 24) and p at most 22 (31). That is exact, and so is what follows: how it rounds to d digits, half
 * to even as the C library does, and whether they read back as m, which is whether they are less than half of the
 * distance to the next number, 10^p, away. Other numbers, below 10^-6 or above 10^15 (of floats 10^-22 and 10^6),
 * are left to the C library, which is tried with one more digit at a time. */
#include "json/shortest.h"

#include "base/thread_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole numbers --------------------------------------------------------------------------- */

int ls_shortest_uint(char *text, uint64_t value)
{
    char reversed[24];
    int n = 0;
    do
        reversed[n++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    for (int i = 0; i < n; i++)
        text[i] = reversed[n - 1 - i];
    text[n] = '\0';
    return n;
}

int ls_shortest_int(char *text, int64_t value)
{
    if (value >= 0)
        return ls_shortest_uint(text, (uint64_t)value);
    text[0] = '-';
    return 1 + ls_shortest_uint(text + 1, 0 - (uint64_t)value);
}

/* ---- by the C library ------------------------------------------------------------------------ */

static int by_trying(char text[LS_SHORTEST], double value, bool is_float)
{
    const int most = is_float ? 9 : 17;
    int n = 0;
    ls_c_locale locale = ls_c_locale_enter();
    for (int digits = is_float ? 6 : 15; digits <= most; digits++) {
        n = snprintf(text, LS_SHORTEST, "%.*g", digits, value);
        if ((is_float ? (double)strtof(text, NULL) : strtod(text, NULL)) == value)
            break;
    }
    ls_c_locale_leave(locale);
    return n;
}

/* ---- exactly --------------------------------------------------------------------------------- */

#if defined(__SIZEOF_INT128__)

__extension__ typedef unsigned __int128 wide;

typedef struct number {
    uint64_t m; /* value = m / 2^shift, its first bit that of the mantissa */
    int shift, bits;
} number;

static wide power_of_ten(int p)
{
    wide power = 1;
    for (wide ten = 10; p > 0; p >>= 1, ten *= ten)
        power *= p & 1 ? ten : 1;
    return power;
}

/* Whether all that is computed has room. */
static bool has_room(const number *v, int p)
{
    return p >= 0 && p <= (v->bits == 24 ? 31 : 22) && v->shift > 0 && v->shift < 127;
}

/* `digits` of it, 10^exponent the first one's weight; or 0, where they have no room. Whether they read back: *exact. */
static uint64_t digits_of(const number *v, int digits, int *exponent, bool *exact)
{
    const uint64_t least = (uint64_t)power_of_ten(digits - 1);
    int p = digits - 1 - *exponent;
    if (!has_room(v, p))
        return 0;
    wide power = power_of_ten(p), all = v->m * power;
    if (all >> v->shift >= least * 10) { /* the exponent was guessed, one too low at most */
        ++*exponent;
        if (--p < 0)
            return 0;
        power = power_of_ten(p);
        all = v->m * power;
    }
    uint64_t n = (uint64_t)(all >> v->shift);
    const wide rest = all & (((wide)1 << v->shift) - 1), half = (wide)1 << (v->shift - 1);
    const bool up = rest > half || (rest == half && (n & 1));
    const wide off = up ? ((wide)1 << v->shift) - rest : rest;
    const bool lowest = v->m == (uint64_t)1 << (v->bits - 1); /* what is below is nearer */
    const wide away = lowest && !up ? 4 * off : 2 * off;
    *exact = away < power || (away == power && (v->m & 1) == 0);
    n += up;
    if (n == least * 10) {
        n = least;
        ++*exponent;
    }
    return n;
}

/* As %g: without zeros at the end, as a power of ten where it is below 10^-4 or has more digits than are wanted. */
static int put_digits(char *text, uint64_t n, int digits, int exponent)
{
    char digit[24];
    char *to = text;
    for (int i = digits - 1; i >= 0; i--, n /= 10)
        digit[i] = (char)('0' + n % 10);
    const bool scientific = exponent < -4 || exponent >= digits;
    while (digits > 1 && digit[digits - 1] == '0')
        digits--;
    const int whole = scientific ? 1 : exponent + 1; /* digits in front of the point */
    if (whole <= 0) {
        memcpy(to, "0.", 2);
        to += 2;
        for (int i = whole; i < 0; i++)
            *to++ = '0';
    }
    for (int i = 0; i < digits || i < whole; i++) {
        if (i == whole && i > 0)
            *to++ = '.';
        *to++ = i < digits ? digit[i] : '0';
    }
    if (scientific)
        to += snprintf(to, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    *to = '\0';
    return (int)(to - text);
}

/* 0 where it is left to the C library. */
static int exactly(char text[LS_SHORTEST], double value, bool is_float)
{
    int power;
    number v = {.bits = is_float ? 24 : 53};
    const double part = frexp(fabs(value), &power); /* ½ … 1 */
    v.m = (uint64_t)ldexp(part, v.bits);
    v.shift = v.bits - power;
    /* The power of ten at or one below the value's: log10 of 2 is a little more than 1233/4096. */
    const int at = power - 1, guess = at >= 0 ? at * 1233 / 4096 : -((-at * 1234 + 4095) / 4096);
    const int most = is_float ? 9 : 17;
    for (int digits = is_float ? 6 : 15; digits <= most; digits++) {
        int exponent = guess;
        bool exact;
        const uint64_t n = digits_of(&v, digits, &exponent, &exact);
        if (n == 0)
            return 0;
        if (exact || digits == most) {
            text[0] = '-';
            return signbit(value) ? 1 + put_digits(text + 1, n, digits, exponent)
                                  : put_digits(text, n, digits, exponent);
        }
    }
    return 0;
}

#else

static int exactly(char text[LS_SHORTEST], double value, bool is_float)
{
    (void)text;
    (void)value;
    (void)is_float;
    return 0;
}

#endif

int ls_shortest(char text[LS_SHORTEST], double value, bool is_float)
{
    if (value == 0) {
        strcpy(text, signbit(value) ? "-0" : "0");
        return (int)strlen(text);
    }
    const int n = exactly(text, value, is_float);
    return n > 0 ? n : by_trying(text, value, is_float);
}
