/* Winograd's transforms in one direction, for m = 2 and 4 outputs; `m` is a constant wherever these
 * are used. With the points p, m of them finite and beside 0, and N(p) = Π (p − q) over the other
 * finite points q:
 *
 *     inputs     values at p: the coefficients of Π (x − q); at ∞: of Π (x − q) over all
 *     weights    (g0 + g1·p + g2·p²) / N(p); at ∞ g2
 *     outputs    y_i = Σ p^i · value(p), to the last one that at ∞
 *
 * A gradient's transforms are these transposed. For m = 2, 1/N goes as ½ to weights and the sign of
 * the point ∞ to the inputs. */
#ifndef CPU_WINO_POINTS_KERNEL_H
#define CPU_WINO_POINTS_KERNEL_H

#include "cpu/lanes_vec.h"

#define WINO_VALUES_MOST 6

/* The points ±A and ±B for m = 4, by whose choice rounding errors are half those of ±1 and ±2. */
#define WINO_A 0.625f
#define WINO_B 1.5f
#define WINO_A2 (WINO_A * WINO_A)
#define WINO_B2 (WINO_B * WINO_B)
#define WINO_N0 (1 / (WINO_A2 * WINO_B2))
#define WINO_NA (1 / (2 * WINO_A2 * (WINO_A2 - WINO_B2)))
#define WINO_NB (1 / (2 * WINO_B2 * (WINO_B2 - WINO_A2)))

/* factor · v + to. */
LANES_INLINE vec wino_add(float factor, vec v, vec to)
{
    return vec_fma(vec_all(factor), v, to);
}

/* a · v + b · w. */
LANES_INLINE vec wino_two(float a, vec v, float b, vec w)
{
    return vec_fma(vec_all(a), v, vec_all(b) * w);
}

/* m + 2 values ← as many pixels. */
LANES_INLINE void wino_input_1d(vec *v, const vec *d, const int m)
{
    if (m == 2) {
        v[0] = d[0] - d[2];
        v[1] = d[1] + d[2];
        v[2] = d[2] - d[1];
        v[3] = d[1] - d[3];
        return;
    }
    vec even_a = wino_add(-WINO_B2, d[2], d[4]), odd_a = wino_add(-WINO_B2, d[1], d[3]);
    vec even_b = wino_add(-WINO_A2, d[2], d[4]), odd_b = wino_add(-WINO_A2, d[1], d[3]);
    v[0] = d[4] + wino_two(WINO_A2 * WINO_B2, d[0], -(WINO_A2 + WINO_B2), d[2]);
    v[1] = wino_add(WINO_A, odd_a, even_a);
    v[2] = wino_add(-WINO_A, odd_a, even_a);
    v[3] = wino_add(WINO_B, odd_b, even_b);
    v[4] = wino_add(-WINO_B, odd_b, even_b);
    v[5] = d[5] + wino_two(WINO_A2 * WINO_B2, d[1], -(WINO_A2 + WINO_B2), d[3]);
}

/* m + 2 values ← three weights. */
LANES_INLINE void wino_weights_1d(vec *v, const vec *g, const int m)
{
    if (m == 2) {
        vec even = g[0] + g[2], odd = 0.5f * g[1];
        v[0] = g[0];
        v[1] = wino_add(0.5f, even, odd);
        v[2] = wino_add(0.5f, even, -odd);
        v[3] = g[2];
        return;
    }
    vec even_a = wino_two(WINO_NA, g[0], WINO_NA * WINO_A2, g[2]);
    vec even_b = wino_two(WINO_NB, g[0], WINO_NB * WINO_B2, g[2]);
    v[0] = WINO_N0 * g[0];
    v[1] = wino_add(WINO_NA * WINO_A, g[1], even_a);
    v[2] = wino_add(-WINO_NA * WINO_A, g[1], even_a);
    v[3] = wino_add(WINO_NB * WINO_B, g[1], even_b);
    v[4] = wino_add(-WINO_NB * WINO_B, g[1], even_b);
    v[5] = g[2];
}

/* m outputs ← m + 2 values. */
LANES_INLINE void wino_output_1d(vec *y, const vec *v, const int m)
{
    if (m == 2) {
        y[0] = v[0] + v[1] + v[2];
        y[1] = v[1] - v[2] - v[3];
        return;
    }
    vec even_a = v[1] + v[2], odd_a = v[1] - v[2], even_b = v[3] + v[4], odd_b = v[3] - v[4];
    y[0] = v[0] + (even_a + even_b);
    y[1] = wino_two(WINO_A, odd_a, WINO_B, odd_b);
    y[2] = wino_two(WINO_A2, even_a, WINO_B2, even_b);
    y[3] = v[5] + wino_two(WINO_A2 * WINO_A, odd_a, WINO_B2 * WINO_B, odd_b);
}

/* m + 2 values ← the gradients of m outputs. */
LANES_INLINE void wino_error_1d(vec *v, const vec *dy, const int m)
{
    if (m == 2) {
        v[0] = dy[0];
        v[1] = dy[0] + dy[1];
        v[2] = dy[0] - dy[1];
        v[3] = -dy[1];
        return;
    }
    vec even_a = wino_add(WINO_A2, dy[2], dy[0]), even_b = wino_add(WINO_B2, dy[2], dy[0]);
    vec odd_a = wino_two(WINO_A, dy[1], WINO_A2 * WINO_A, dy[3]);
    vec odd_b = wino_two(WINO_B, dy[1], WINO_B2 * WINO_B, dy[3]);
    v[0] = dy[0];
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = dy[3];
}

/* The gradients of three weights ← m + 2 values. */
LANES_INLINE void wino_gradient_1d(vec *g, const vec *v, const int m)
{
    if (m == 2) {
        vec even = v[1] + v[2];
        g[0] = wino_add(0.5f, even, v[0]);
        g[1] = 0.5f * (v[1] - v[2]);
        g[2] = wino_add(0.5f, even, v[3]);
        return;
    }
    vec even_a = WINO_NA * (v[1] + v[2]), even_b = WINO_NB * (v[3] + v[4]);
    g[0] = wino_add(WINO_N0, v[0], even_a + even_b);
    g[1] = wino_two(WINO_NA * WINO_A, v[1] - v[2], WINO_NB * WINO_B, v[3] - v[4]);
    g[2] = v[5] + wino_two(WINO_A2, even_a, WINO_B2, even_b);
}

#endif
