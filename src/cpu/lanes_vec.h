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
#define LANES_LOW 0, 1, 2, 3, 4, 5, 6, 7 /* the lanes of a vector's two halves */
#define LANES_HIGH 8, 9, 10, 11, 12, 13, 14, 15
#include <immintrin.h>
typedef uint16_t lanes_bits;
#elif defined(__AVX__)
#define LANES_VEC 8
#define LANES_SUMS 12
#define LANES_CHANNELS 4
#define LANES_LOW 0, 1, 2, 3
#define LANES_HIGH 4, 5, 6, 7
#include <immintrin.h>
typedef uint8_t lanes_bits;
#else
#define LANES_VEC 4
#define LANES_SUMS 12
#define LANES_CHANNELS 4
#define LANES_LOW 0, 1
#define LANES_HIGH 2, 3
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
    vec_half low = __builtin_shufflevector(v, v, LANES_LOW);
    vec_half high = __builtin_shufflevector(v, v, LANES_HIGH);
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
    return __builtin_shufflevector(low, high, LANES_LOW, LANES_HIGH);
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

/* Lane l of the result is of `a`, or, where bit s of l is set, of `b`: of the two lanes there that differ in that bit
 * the one without it (near) or with it (far). */
#define LANES_NEAR(l, s) (((l) & (s)) ? LANES_VEC + (l) - (s) : (l))
#define LANES_FAR(l, s) (((l) & (s)) ? LANES_VEC + (l) : (l) + (s))
/* clang-format off */
#if LANES_VEC == 16
#define LANES_ALL(at, s) \
    at(0, s), at(1, s), at(2, s), at(3, s), at(4, s), at(5, s), at(6, s), at(7, s), \
    at(8, s), at(9, s), at(10, s), at(11, s), at(12, s), at(13, s), at(14, s), at(15, s)
#elif LANES_VEC == 8
#define LANES_ALL(at, s) \
    at(0, s), at(1, s), at(2, s), at(3, s), at(4, s), at(5, s), at(6, s), at(7, s)
#else
#define LANES_ALL(at, s) at(0, s), at(1, s), at(2, s), at(3, s)
#endif
/* clang-format on */
#define VEC_NEAR(a, b, s) __builtin_shufflevector(a, b, LANES_ALL(LANES_NEAR, s))
#define VEC_FAR(a, b, s) __builtin_shufflevector(a, b, LANES_ALL(LANES_FAR, s))

/* One step of summing lanes: those that differ in bit s. */
#define LANES_FOLD(v, s)                                                                           \
    LANES_UNROLL                                                                                   \
    for (int i = 0; i < (s); i++)                                                                  \
        (v)[i] = VEC_NEAR((v)[i], (v)[i + (s)], s) + VEC_FAR((v)[i], (v)[i + (s)], s);

/* Lane i of the result is the sum of the lanes of v[i]; v holds LANES_VEC vectors and is used
 * up. */
LANES_INLINE vec vec_sum_each(vec *v)
{
#if LANES_VEC >= 16
    LANES_FOLD(v, 8)
#endif
#if LANES_VEC >= 8
    LANES_FOLD(v, 4)
#endif
    LANES_FOLD(v, 2)
    LANES_FOLD(v, 1)
    return v[0];
}

/* to[i] (+)= the sum of the sixteen lanes of from[i], for `n` sixteens in memory. `from` has room
 * for n rounded up to a multiple of sixteen; `to` need not be aligned. */
LANES_INLINE void lanes_sum_lanes(float *to, const float *from, int n, int add)
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
