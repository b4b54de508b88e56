/* SPDX-License-Identifier: MIT */
#include "base/portable_math.h"

#include <math.h>
#include <string.h>

/* Returns c[0] + c[1]·x + … + c[n − 1]·xⁿ⁻¹. */
static double polynomial(const double *c, int n, double x)
{
    double y = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

/* Returns 2ⁿ for −1022 ≤ n ≤ 1023. */
static double two_to(int n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define LN2_HIGH 0x1.62e42fee00000p-1 /* first 32 bits of ln 2; k or e times it is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33 /* ln 2 − LN2_HIGH */

double ls_exp(double x)
{
    /* Coefficients 1/2! … 1/14! of (eʳ − 1 − r) / r², for |r| ≤ ln 2 / 2. */
    static const double c[] = {1.0 / 2,          1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,        1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800,    1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
                               1.0 / 87178291200};
    if (!(x >= -708))
        return x < -708 ? 0 : x;
    if (x > 709)
        return INFINITY;
    const double k = floor(x * 1.4426950408889634 + 0.5);
    const double high = x - k * LN2_HIGH, low = k * LN2_LOW, r = high - low;
    const double rest = r * r * polynomial(c, sizeof c / sizeof *c, r) - ((r - high) + low);
    const double y = 1 + (r + rest);
    return k > 1022 ? y * two_to(1022) * two_to((int)k - 1022) : y * two_to((int)k);
}

double ls_ln(double x)
{
    /* Coefficients of s²/3 + s⁴/5 + …, doubled. With s = f / (2 + f),
     * ln(1 + f) = 2 (s + s³/3 + s⁵/5 + …) = f − s (f − 2 (s²/3 + s⁴/5 + …)). */
    static const double c[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                               2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    double m = x * two_to(e > 1021 ? -1021 : -e) * (e > 1021 ? two_to(1021 - e) : 1);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    const double f = m - 1, s = f / (2 + f), z = s * s;
    const double less = s * (f - z * polynomial(c, sizeof c / sizeof *c, z));
    return e * LN2_HIGH + (f - (less - e * LN2_LOW));
}

double ls_log1p(double x)
{
    const double u = 1 + x;
    return ls_ln(u) + (x - (u - 1)) / u; /* the second term corrects the rounding of 1 + x */
}

/* Returns sin x for |x| ≤ π/4. */
static double sine(double x)
{
    static const double c[] = {-1.0 / 6,
                               1.0 / 120,
                               -1.0 / 5040,
                               1.0 / 362880,
                               -1.0 / 39916800,
                               1.0 / 6227020800,
                               -1.0 / 1307674368000,
                               1.0 / 355687428096000,
                               -1.0 / 121645100408832000};
    return x + x * (x * x) * polynomial(c, sizeof c / sizeof *c, x * x);
}

/* Returns cos x for |x| ≤ π/4. */
static double cosine(double x)
{
    static const double c[] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
    const double z = x * x, half = 0.5 * z, most = 1 - half;
    return most + (((1 - most) - half) + z * z * polynomial(c, sizeof c / sizeof *c, z));
}

double ls_cos(double x)
{
    const double k = floor(fabs(x) * 0.63661977236758134 + 0.5); /* number of quarter turns */
    double r = fabs(x) - k * 0x1.921fb54400000p+0;
    r = (r - k * 0x1.0b4611a600000p-34) - k * 0x1.3198a2e037073p-69;
    switch ((int)k % 4) {
    case 0: return cosine(r);
    case 1: return -sine(r);
    case 2: return -cosine(r);
    default: return sine(r);
    }
}

double ls_power(double x, uint64_t n)
{
    double y = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}
