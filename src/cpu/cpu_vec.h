/* Vectors of the instruction set that a file is compiled for, and parts of them. */
#ifndef CPU_CPU_VEC_H
#define CPU_CPU_VEC_H

#include "cpu/lanes_vec.h"

#include <string.h>

/* The first `n` floats at p, zeros behind them. Where n is LANES_VEC at compile time, one load. */
LANES_INLINE vec vec_load_part(const float *p, int n)
{
    if (n == LANES_VEC)
        return *(const vec_unaligned *)p;
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    vec v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
#endif
}

LANES_INLINE void vec_store_part(float *p, vec v, int n)
{
    if (n == LANES_VEC) {
        *(vec_unaligned *)p = v;
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    memcpy(p, &v, (size_t)n * sizeof(float));
#endif
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

/* sum[i] += lane i of w, for the first `n` lanes. */
LANES_INLINE void vec_wide_store_part(double *sum, const vec_wide *w, int n)
{
    double lane[LANES_VEC];
    memcpy(lane, w, sizeof lane);
    for (int i = 0; i < n; i++)
        sum[i] += lane[i];
}

#endif
