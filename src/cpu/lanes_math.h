/* e^x, log, tanh, the logistic function and the normal distribution of a vector, out of additions, multiplications, fused
 * multiply-adds and divisions alone: the same bits on every CPU, where each libm has others. None of them
 * is off by more than 2 units in the last place, anywhere, the normal distribution by 8 (tests/lanes measures it
 * against double); NaN stays NaN, and results below the normal range are rounded as any other.
 *
 * The polynomials are the Taylor series of e^r and of artanh, as long as it takes for what is cut off to be
 * below a tenth of a unit where they are used; that of the normal distribution alone has fitted coefficients.
 */
#ifndef CPU_LANES_MATH_H
#define CPU_LANES_MATH_H

#include "cpu/lanes_vec.h"

LANES_INLINE ivec ivec_all(int value)
{
    return value - (ivec){0};
}

/* 2^n for −126 ≤ n ≤ 127. */
LANES_INLINE vec vec_power(ivec n)
{
    return (vec)((n + 127) << 23);
}

/* x = n·ln 2 + r, |r| ≤ ln 2 / 2: n by adding 1.5 · 2^23, which rounds to an integer; ln 2 in two pieces,
 * so that r is as good as exact. */
typedef struct vec_reduced {
    ivec n;
    vec r;
} vec_reduced;

#define LN2_HIGH 0.693359375f /* 355 / 512: its products with n are exact */
#define LN2_LOW (-2.12194440e-4f)

LANES_INLINE vec_reduced vec_reduce(vec x)
{
    const vec shift = vec_all(12582912.0f);
    vec t = vec_fma(x, vec_all(1.44269504f), shift), n = t - shift;
    vec r = vec_fma(n, vec_all(-LN2_HIGH), x);
    return (vec_reduced){(ivec)t - (ivec)shift, vec_fma(n, vec_all(-LN2_LOW), r)};
}

/* (e^r − 1 − r) / r² = 1/2! + r/3! + … + r⁵/7!; the next term is below 0.09 units of e^r. */
LANES_INLINE vec vec_exp_tail(vec r)
{
    vec p = vec_all(1.0f / 5040);
    p = vec_fma(p, r, vec_all(1.0f / 720));
    p = vec_fma(p, r, vec_all(1.0f / 120));
    p = vec_fma(p, r, vec_all(1.0f / 24));
    p = vec_fma(p, r, vec_all(1.0f / 6));
    return vec_fma(p, r, vec_all(0.5f));
}

/* The power of two comes in two factors: neither overflows, and only the second can round. */
LANES_INLINE vec vec_exp(vec x)
{
    x = vec_select(x < -104.0f, vec_all(-104.0f), x);
    x = vec_select(x > 89.0f, vec_all(89.0f), x);
    vec_reduced at = vec_reduce(x);
    vec p = vec_fma(vec_exp_tail(at.r) * at.r, at.r, at.r) + 1.0f;
    ivec half = at.n >> 1;
    return p * vec_power(half) * vec_power(at.n - half);
}

/* e^x − 1 for 0 ≤ x ≤ 30, and for NaN. */
LANES_INLINE vec vec_expm1_above_0(vec x)
{
    vec_reduced at = vec_reduce(x);
    vec small = vec_fma(vec_exp_tail(at.r) * at.r, at.r, at.r), power = vec_power(at.n);
    return vec_fma(small, power, power - 1.0f);
}

/* x = 2^e · (1 + f) with √½ ≤ 1 + f < √2, and log (1 + f) = 2 artanh s = f − (h − s·(h + R)), where
 * s = f / (2 + f), h = f² / 2, R = 2s²/3 + 2s⁴/5 + 2s⁶/7 + 2s⁸/9; what is cut off is below 0.02 units. */
LANES_INLINE vec vec_log(vec x)
{
    const ivec tiny = x < 1.17549435e-38f, bad = ~(ivec)(x >= 0);
    vec scaled = vec_select(tiny, x * 16777216.0f, x);
    ivec bits = (ivec)((uvec)scaled - 0x3F3504F3u), e = bits >> 23; /* the bits of √½ */
    vec f = (vec)((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
    vec k = __builtin_convertvector(e - (tiny & 24), vec);
    vec s = f / (f + 2.0f), z = s * s, h = 0.5f * f * f;
    vec r = vec_fma(z, vec_all(2.0f / 9), vec_all(2.0f / 7));
    r = z * vec_fma(z, vec_fma(z, r, vec_all(2.0f / 5)), vec_all(2.0f / 3));
    vec rest = vec_fma(s, h + r, k * LN2_LOW);
    vec y = vec_fma(k, vec_all(LN2_HIGH), f - (h - rest));
    y = vec_select(x == 0, vec_all(-__builtin_inff()), y);
    y = vec_select(x == __builtin_inff(), x, y);
    return vec_select(bad, vec_all(__builtin_nanf("")),
                      y); /* of numbers below zero: NaN, as of NaN */
}

LANES_INLINE vec vec_tanh(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    vec a = (vec)((ivec)x & INT32_MAX);
    a = vec_select(a > 15.0f, vec_all(15.0f), a);
    vec m = vec_expm1_above_0(a + a), d = m + 2.0f, q = m / d;
    vec lost = m - (d - 2.0f); /* of d, while that counts; 1 / d is (1 − q) / 2 */
    lost = vec_select(m > 1e4f, (vec){0}, lost);
    q = vec_fma(-q * lost, 0.5f - 0.5f * q, q);
    return (vec)((ivec)q | sign);
}

/* 1 / (1 + e⁻ˣ), by e^−|x|, which does not overflow. */
LANES_INLINE vec vec_sigmoid(vec x)
{
    vec z = vec_exp(-(vec)((ivec)x & INT32_MAX));
    vec d = z + 1.0f, lost = z - (d - 1.0f), q = vec_select(x >= 0, vec_all(1.0f), z) / d;
    return vec_fma(-q * lost, vec_select(x >= 0, q, 1.0f - q), q); /* 1 / d is q, or 1 − q */
}

/* −∞ as the lowest number: what goes to 0 faster than x grows makes 0 of their product, which is its limit, where
 * 0 · ∞ is NaN. All other x, NaN too, stay as they are. */
LANES_INLINE vec vec_from_lowest(vec x)
{
    return vec_select(x < -__FLT_MAX__, vec_all(-__FLT_MAX__), x);
}

/* The same at both ends. */
LANES_INLINE vec vec_finite(vec x)
{
    return vec_select(x > __FLT_MAX__, vec_all(__FLT_MAX__), vec_from_lowest(x));
}

LANES_INLINE vec vec_silu_slope(vec x)
{
    vec s = vec_sigmoid(x);
    x = vec_finite(x);
    return s * vec_fma(x, 1.0f - s, vec_all(1.0f));
}

/* The normal distribution at x: how much lies below, and the density. */
typedef struct vec_normal_at {
    vec below, density;
} vec_normal_at;

/* What lies beyond a = |x| is e^(−a²/2)·t·p(t), t = 1 / (1 + a/4), with p by interpolation at ten Chebyshev points
 * between a = 0 and 14.5, behind which all is 0; off by 1.3e-8 of it. a² is taken in two pieces, so that the
 * far end is as good as the middle. */
LANES_INLINE vec_normal_at vec_normal(vec x)
{
    vec a = (vec)((ivec)x & INT32_MAX);
    a = vec_select(a > 20.0f, vec_all(20.0f), a);
    vec square = a * a, lost = vec_fma(a, a, -square), e = vec_exp(square * -0.5f);
    vec t = 1.0f / vec_fma(a, vec_all(0.25f), vec_all(1.0f)), p = vec_all(0.0157418443f);
    e = vec_fma(e * lost, vec_all(-0.5f), e);
    p = vec_fma(p, t, vec_all(-0.0583709809f));
    p = vec_fma(p, t, vec_all(0.0415892886f));
    p = vec_fma(p, t, vec_all(0.0413678065f));
    p = vec_fma(p, t, vec_all(0.00240036129f));
    p = vec_fma(p, t, vec_all(0.0919320933f));
    p = vec_fma(p, t, vec_all(0.0702728827f));
    p = vec_fma(p, t, vec_all(0.0958633852f));
    p = vec_fma(p, t, vec_all(0.0994535661f));
    p = vec_fma(p, t, vec_all(0.0997497554f));
    vec beyond = e * (p * t);
    return (vec_normal_at){vec_select(x < 0, beyond, 1.0f - beyond), e * 0.398942280f};
}

/* (x·Φ(x))' */
LANES_INLINE vec vec_normal_slope(vec x)
{
    vec_normal_at at = vec_normal(x);
    return vec_fma(vec_finite(x), at.density, at.below);
}

#endif
