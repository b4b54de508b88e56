/* The vector type of the instruction set that this file is being compiled for.
 *
 * The kernels (*_kernel.h) are compiled once per instruction set, by cpu_isa_avx512.c,
 * cpu_isa_avx2.c and cpu_isa_generic.c. Data comes in sixteens (LS_LANES): one `vec` where a register
 * holds sixteen floats, else LANES_PARTS of them side by side, and the kernels work through one
 * part after the other. Compiler vector extensions do the arithmetic; only the three things that
 * they cannot say (a product added with one rounding, a maximum that keeps NaN, signs as bits) are
 * written per instruction set.
 */
#ifndef CPU_LANES_VEC_H
#define CPU_LANES_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES_VEC 16     /* floats in a register */
#define LANES_SUMS 24    /* sums that a kernel keeps in registers; the rest is for its operands */
#define LANES_CHANNELS 8 /* output channels of a forward tile: tall tiles read x less often */
#include <immintrin.h>
typedef uint16_t lanes_bits;
#elif defined(__AVX__)
#define LANES_VEC 8
#define LANES_SUMS 12
#define LANES_CHANNELS 4
#include <immintrin.h>
typedef uint8_t lanes_bits;
#else
#define LANES_VEC 4
#define LANES_SUMS 12
#define LANES_CHANNELS 4
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
typedef uint8_t lanes_bits;
#endif

#define LANES_PARTS (16 / LANES_VEC)

/* Signs of sixteen lanes in memory: one lanes_bits per part. */
#define LANES_MASK_BYTES ((int)sizeof(lanes_bits) * LANES_PARTS)

typedef float vec __attribute__((vector_size(LANES_VEC * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES_VEC * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES_VEC * 4))); /* may wrap around */
/* The same in memory, among floats. */
typedef float vec_memory __attribute__((vector_size(LANES_VEC * 4), may_alias));
typedef float vec_unaligned __attribute__((vector_size(LANES_VEC * 4), aligned(4), may_alias));

#define LANES_INLINE static inline __attribute__((always_inline, unused))

#if defined(__clang__)
#define LANES_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LANES_UNROLL _Pragma("GCC unroll 16")
#endif

LANES_INLINE vec vec_load(const float *p)
{
    return *(const vec_memory *)p;
}

LANES_INLINE void vec_store(float *p, vec v)
{
    *(vec_memory *)p = v;
}

LANES_INLINE vec vec_all(float value)
{
    return value - (vec){0};
}

/* Lanes of a where the lane of `mask` is −1, of b where it is 0. */
LANES_INLINE vec vec_select(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

/* A vector of doubles, in two registers: what long sums are made in. */
typedef double vec_doubles __attribute__((vector_size(LANES_VEC * 4)));
typedef float vec_half __attribute__((vector_size(LANES_VEC * 2)));
typedef struct vec_wide {
    vec_doubles low, high;
} vec_wide;

LANES_INLINE vec_wide vec_widen(vec v)
{
#if LANES_VEC == 16
    vec_half low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    vec_half high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES_VEC == 8
    vec_half low = __builtin_shufflevector(v, v, 0, 1, 2, 3);
    vec_half high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
    vec_half low = __builtin_shufflevector(v, v, 0, 1), high = __builtin_shufflevector(v, v, 2, 3);
#endif
    return (vec_wide){__builtin_convertvector(low, vec_doubles),
                      __builtin_convertvector(high, vec_doubles)};
}

LANES_INLINE void vec_wide_add(vec_wide *w, vec v)
{
    vec_wide wide = vec_widen(v);
    w->low += wide.low;
    w->high += wide.high;
}

LANES_INLINE vec vec_narrow(const vec_wide *w)
{
    vec_half low = __builtin_convertvector(w->low, vec_half);
    vec_half high = __builtin_convertvector(w->high, vec_half);
#if LANES_VEC == 16
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES_VEC == 8
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return __builtin_shufflevector(low, high, 0, 1, 2, 3);
#endif
}

#if !defined(__FMA__) && !defined(__aarch64__) && !defined(__FP_FAST_FMAF)
/* a · b + c rounded once, without an instruction for it: a product of two floats is exact in double, and a
 * sum that is rounded to odd in double (its last bit is set where bits are lost) is rounded right as it
 * becomes a float (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008). The
 * error of the sum is Knuth's. */
LANES_INLINE vec_doubles vec_fma_odd(vec_doubles product, vec_doubles c)
{
    typedef int64_t bits __attribute__((vector_size(LANES_VEC * 4)));
    vec_doubles sum = product + c, shadow = sum - product;
    vec_doubles lost = (product - (sum - shadow)) + (c - shadow);
    vec_doubles side =
        lost * sum; /* below zero: the sum is too far from zero. It does not underflow */
    bits towards = side < 0, inexact = towards | (side > 0);
    return (vec_doubles)(((bits)sum + towards) | (inexact & 1));
}
#endif

/* a · b + c, rounded once. Sums of products are written with it and with nothing else: a compiler that
 * may contract a product and a sum need not. */
LANES_INLINE vec vec_fma(vec a, vec b, vec c)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < LANES_VEC; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    vec_wide x = vec_widen(a), y = vec_widen(b), z = vec_widen(c);
    vec_wide sum = {vec_fma_odd(x.low * y.low, z.low), vec_fma_odd(x.high * y.high, z.high)};
    return vec_narrow(&sum);
#endif
}

/* Numbers that are added up in float before their sum goes to a vec_wide: its conversions then
 * cost little, and the sum is as good. */
#define LANES_FEW 8

#if defined(__AVX512F__)

/* max(v, 0); NaN stays NaN. */
LANES_INLINE vec vec_relu(vec v)
{
    return (vec)_mm512_max_ps(_mm512_setzero_ps(), (__m512)v);
}

/* Bit i: lane i is above zero. */
LANES_INLINE lanes_bits vec_positive(vec v)
{
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_GT_OQ);
}

/* The lanes whose bit is set, 0 elsewhere. */
LANES_INLINE vec vec_keep(lanes_bits bits, vec v)
{
    return (vec)_mm512_maskz_mov_ps(bits, (__m512)v);
}

#else

#if defined(__AVX__)
LANES_INLINE lanes_bits vec_positive(vec v)
{
    return (lanes_bits)_mm256_movemask_ps((__m256)(v > 0));
}
#else
LANES_INLINE lanes_bits vec_positive(vec v)
{
    ivec bit = (v > 0) & (ivec){1, 2, 4, 8};
    return (lanes_bits)(bit[0] | bit[1] | bit[2] | bit[3]);
}
#endif

LANES_INLINE vec vec_relu(vec v)
{
    return vec_select(v < 0, (vec){0}, v);
}

LANES_INLINE vec vec_keep(lanes_bits bits, vec v)
{
#if LANES_VEC == 8
    const ivec weight = {1, 2, 4, 8, 16, 32, 64, 128};
#else
    const ivec weight = {1, 2, 4, 8};
#endif
    ivec all = (int32_t)bits - (ivec){0};
    return (vec)(((all & weight) != 0) & (ivec)v);
}

#endif

/* One step of summing lanes: where bit `s` of a lane's number is clear the sum of the two lanes
 * of `a` that differ in that bit, where it is set that of `b`. */
#define LANES_FOLD(a, b, lo, hi)                                                                   \
    (__builtin_shufflevector(a, b, lo) + __builtin_shufflevector(a, b, hi))

/* Lane i of the result is the sum of the lanes of v[i]; v holds LANES_VEC vectors and is used
 * up. */
LANES_INLINE vec vec_sum_each(vec *v)
{
#define LANES_LIST(...) __VA_ARGS__
#if LANES_VEC == 16
    LANES_UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = LANES_FOLD(v[i], v[i + 8],
                          LANES_LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                          LANES_LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    LANES_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = LANES_FOLD(v[i], v[i + 4],
                          LANES_LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                          LANES_LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    LANES_UNROLL
    for (int i = 0; i < 2; i++)
        v[i] = LANES_FOLD(v[i], v[i + 2],
                          LANES_LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                          LANES_LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    return LANES_FOLD(v[0], v[1],
                      LANES_LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                      LANES_LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
#elif LANES_VEC == 8
    LANES_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = LANES_FOLD(v[i], v[i + 4], LANES_LIST(0, 1, 2, 3, 8, 9, 10, 11),
                          LANES_LIST(4, 5, 6, 7, 12, 13, 14, 15));
    LANES_UNROLL
    for (int i = 0; i < 2; i++)
        v[i] = LANES_FOLD(v[i], v[i + 2], LANES_LIST(0, 1, 8, 9, 4, 5, 12, 13),
                          LANES_LIST(2, 3, 10, 11, 6, 7, 14, 15));
    return LANES_FOLD(v[0], v[1], LANES_LIST(0, 8, 2, 10, 4, 12, 6, 14),
                      LANES_LIST(1, 9, 3, 11, 5, 13, 7, 15));
#else
    LANES_UNROLL
    for (int i = 0; i < 2; i++)
        v[i] = LANES_FOLD(v[i], v[i + 2], LANES_LIST(0, 1, 4, 5), LANES_LIST(2, 3, 6, 7));
    return LANES_FOLD(v[0], v[1], LANES_LIST(0, 4, 2, 6), LANES_LIST(1, 5, 3, 7));
#endif
#undef LANES_LIST
}

/* to[i] (+)= the sum of the sixteen lanes of from[i], for `n` sixteens in memory. `from` has room
 * for n rounded up to a multiple of sixteen; `to` need not be aligned. */
LANES_INLINE void lanes_sum_each(float *to, const float *from, int n, int add)
{
    for (int i = 0; i < n; i += LANES_VEC) {
        vec v[LANES_VEC];
        for (int k = 0; k < LANES_VEC; k++) {
            const float *p = from + (ptrdiff_t)(i + k) * 16;
            v[k] = vec_load(p);
            /* In the order of vec_sum_each: lanes eight apart first. */
            if (LANES_PARTS == 2)
                v[k] += vec_load(p + 8);
            if (LANES_PARTS == 4)
                v[k] = (v[k] + vec_load(p + 8)) + (vec_load(p + 4) + vec_load(p + 12));
        }
        vec sum = vec_sum_each(v);
        if (i + LANES_VEC <= n) {
            vec_unaligned *out = (vec_unaligned *)(to + i);
            if (add)
                sum += *out;
            *out = sum;
        } else {
            for (int k = 0; i + k < n; k++)
                to[i + k] = add ? to[i + k] + sum[k] : sum[k];
        }
    }
}

/* v where `sign` is above zero, else 0. */
LANES_INLINE vec vec_where_positive(vec sign, vec v)
{
#if defined(__AVX512F__)
    return vec_keep(vec_positive(sign), v);
#else
    return (vec)((ivec)(sign > 0) & (ivec)v);
#endif
}

#endif
