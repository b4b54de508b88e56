/* SPDX-License-Identifier: MIT */
/* Finds the shortest decimal digits of a number with exact integer arithmetic.
 *
 * It is correct, but slow, to call snprintf and strtod with one more digit at a time.
 *
 * Method: p is chosen such that the wanted digits are the integer part of value · 10^p, which is a
 * quotient of two integers. If both fit into 128 bits, two results can be computed exactly: the
 * quotient rounded to d digits (half to even, as in the C library), and whether these digits read
 * back as the same number. The digits read back as the same number if their distance from the value
 * is less than half of the distance from the value to the next number. If 128 bits are too few
 * (about below 10^-6 or above 10^15; floats: below 10^-22 or above 10^15), this file uses snprintf
 * and strtod with one more digit at a time. */
#include "json/shortest.h"

#include "base/thread_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- integers -------------------------------------------------------------------------------- */

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

/* ---- with the C library ---------------------------------------------------------------------- */

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

/* ---- with exact arithmetic ------------------------------------------------------------------- */

#if defined(__SIZEOF_INT128__)

__extension__ typedef unsigned __int128 wide;

typedef struct number {
    uint64_t m; /* value = m / 2^shift; m is the mantissa, its implicit first bit included */
    int shift, bits;
} number;

/* A number times a power of ten: value / unit. The distance to the next number is next / unit. */
typedef struct scaled {
    wide value, unit, next;
} scaled;

static uint64_t power_of_ten(int p)
{
    static const uint64_t power[] = {1u,
                                     10u,
                                     100u,
                                     1000u,
                                     10000u,
                                     100000u,
                                     1000000u,
                                     10000000u,
                                     100000000u,
                                     1000000000u,
                                     10000000000u,
                                     100000000000u,
                                     1000000000000u,
                                     10000000000000u,
                                     100000000000000u,
                                     1000000000000000u,
                                     10000000000000000u};
    return power[p];
}

/* Returns whether 128 bits suffice: 10^31 times the 24 bits of a float's mantissa fits, and 10^22
 * times the 53 bits of a double's. A shift of 40 bits is more than integers up to 10^15 need. */
static bool has_room(const number *v, int p)
{
    return p >= -16 && p <= (v->bits == 24 ? 31 : 22) && v->shift < 127 && v->shift >= -40;
}

/* Returns v · 10^p. */
static scaled scale(const number *v, int p)
{
    const int up = v->shift < 0 ? -v->shift : 0, down = v->shift > 0 ? v->shift : 0;
    const int more = p > 16 ? p - 16 : 0;
    const wide times = (wide)power_of_ten(p < 0 ? 0 : p - more) * power_of_ten(more);
    return (scaled){.value = ((wide)v->m << up) * times,
                    .unit = (wide)power_of_ten(p < 0 ? -p : 0) << down,
                    .next = ((wide)1 << up) * times};
}

/* Returns the integer part of `s`; s->value becomes the remainder. */
static uint64_t divide(scaled *s, int shift, int p)
{
    wide n;
    if (p >= 0 && shift >= 0)
        n = s->value >> shift;
    else if (s->value >> 64 == 0 && s->unit >> 64 == 0)
        n = (uint64_t)s->value / (uint64_t)s->unit;
    else
        n = s->value / s->unit;
    s->value -= n * s->unit;
    return (uint64_t)n;
}

/* Returns whether the number and its power of ten fit into 64 bits, as most printed numbers do. If
 * so, round_narrow computes the result of round_wide in half the time. */
static bool is_narrow(const number *v, int p)
{
    return p >= 0 && p <= (v->bits == 24 ? 11 : 2) && v->shift > 0 && v->shift < 62;
}

static uint64_t round_narrow(const number *v, int p, bool *exact)
{
    const uint64_t next = power_of_ten(p), value = v->m * next, unit = (uint64_t)1 << v->shift;
    const uint64_t n = value >> v->shift, rest = value & (unit - 1);
    const bool up = 2 * rest > unit || (2 * rest == unit && (n & 1));
    const uint64_t off = up ? unit - rest : rest;
    const bool lowest = v->m == (uint64_t)1 << (v->bits - 1);
    const uint64_t away = lowest && !up ? 4 * off : 2 * off;
    *exact = away < next || (away == next && (v->m & 1) == 0);
    return n + up;
}

static uint64_t round_wide(const number *v, int p, bool *exact)
{
    scaled s = scale(v, p);
    const uint64_t n = divide(&s, v->shift, p);
    const bool up = 2 * s.value > s.unit || (2 * s.value == s.unit && (n & 1));
    const wide off = up ? s.unit - s.value : s.value;
    const bool lowest =
        v->m == (uint64_t)1 << (v->bits -
                                1); /* the next smaller number is nearer than the next larger one */
    const wide away = lowest && !up ? 4 * off : 2 * off;
    *exact = away < s.next || (away == s.next && (v->m & 1) == 0);
    return n + up;
}

/* Computes the first `digits` digits of the number. 10^*exponent is the weight of the first
 * digit; the caller sets a guess. *exact: the digits read back as the same number. Returns 0 if
 * 128 bits are too few. */
static uint64_t digits_of(const number *v, int digits, int *exponent, bool *exact)
{
    const uint64_t least = power_of_ten(digits - 1);
    int p = digits - 1 - *exponent;
    if (!has_room(v, p))
        return 0;
    uint64_t n = is_narrow(v, p) ? round_narrow(v, p, exact) : round_wide(v, p, exact);
    if (n > least * 10) { /* the guessed exponent was too low, by one at most */
        ++*exponent;
        if (!has_room(v, --p))
            return 0;
        n = is_narrow(v, p) ? round_narrow(v, p, exact) : round_wide(v, p, exact);
    }
    if (n == least * 10) {
        n = least;
        ++*exponent;
    }
    return n;
}

/* Formats digits as %g does: without zeros at the end, and with a power of ten if the number is
 * below 10^-4 or has more digits before the point than `digits`. */
static int put_digits(char *text, uint64_t n, int digits, int exponent)
{
    char digit[24];
    char *to = text;
    for (int i = digits - 1; i >= 0; i--, n /= 10)
        digit[i] = (char)('0' + n % 10);
    const bool scientific = exponent < -4 || exponent >= digits;
    while (digits > 1 && digit[digits - 1] == '0')
        digits--;
    const int whole = scientific ? 1 : exponent + 1; /* digits before the decimal point */
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
    if (scientific) { /* two digits; for exponents of three digits the C library is used */
        *to++ = 'e';
        *to++ = exponent < 0 ? '-' : '+';
        *to++ = (char)('0' + abs(exponent) / 10);
        *to++ = (char)('0' + abs(exponent) % 10);
    }
    *to = '\0';
    return (int)(to - text);
}

/* Splits a number that is not 0 into value = m / 2^shift. Returns false for subnormal numbers, for
 * which the C library is used. */
static bool take_apart(number *v, double value, bool is_float)
{
    const float narrow = (float)value;
    uint32_t word;
    uint64_t bits;
    if (is_float) {
        memcpy(&word, &narrow, sizeof word);
        const int exponent = (int)(word >> 23 & 0xFF);
        *v = (number){(word & 0x7FFFFFu) | 0x800000u, 150 - exponent, 24};
        return exponent > 0;
    }
    memcpy(&bits, &value, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7FF);
    *v = (number){(bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52, 1075 - exponent, 53};
    return exponent > 0;
}

/* Returns the length of the text, or 0 if the C library must be used for the number. */
static int exactly(char text[LS_SHORTEST], double value, bool is_float)
{
    number v;
    if (!take_apart(&v, value, is_float))
        return 0;
    /* Guesses the exponent of ten, exact or one too low: log10(2) is a little
     * more than 1233/4096. */
    const int at = v.bits - v.shift - 1,
              guess = at >= 0 ? at * 1233 / 4096 : -((-at * 1234 + 4095) / 4096);
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
