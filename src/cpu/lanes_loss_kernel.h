/* Softmax with cross-entropy: one row per lane, so that maxima and sums over the classes are
 * element-wise. */
#ifndef CPU_LANES_LOSS_KERNEL_H
#define CPU_LANES_LOSS_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#include <math.h>

/* e^x for x ≤ 0, relative error below 2e-7; smaller results than e^-87 become that, NaN stays.
 * x = n·ln 2 + r with |r| ≤ ln 2 / 2, ln 2 in two pieces so that r is exact; e^r is its Taylor
 * polynomial of degree 7. */
LANES_INLINE vec vec_exp(vec x)
{
    const vec shift = vec_all(12582912.0f); /* 1.5 · 2^23: adding it rounds to an integer */
    x = vec_select(x < -87.0f, vec_all(-87.0f), x);
    vec t = x * 1.44269504f + shift;
    vec n = t - shift;
    vec r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vec p = vec_all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    ivec power = (((ivec)t - (ivec)shift) + 127) << 23;
    return p * (vec)power;
}

/* The lanes from `lane` on whose number is below `rows`. */
LANES_INLINE ivec lanes_used(int lane, int rows)
{
    ivec number;
    for (int i = 0; i < LANES_VEC; i++)
        number[i] = lane + i;
    return number < rows;
}

static void lanes_loss_part(int classes, int rows, int lane, const float *x,
                            const uint8_t *labels, float *dx, float *loss, float *correct)
{
    vec top = vec_load(x), sum = {0};
    ivec best = {0};
    for (int k = 1; k < classes; k++) {
        vec v = vec_load(x + k * 16);
        ivec better = v > top;
        best = ((k - (ivec){0}) & better) | (best & ~better);
        top = vec_select(better, v, top);
    }
    for (int k = 0; k < classes; k++)
        sum += vec_exp(vec_load(x + k * 16) - top);
    for (int i = 0; i < LANES_VEC && lane + i < rows; i++) {
        loss[i] += logf(sum[i]) - (x[labels[i] * 16 + i] - top[i]);
        correct[i] += best[i] == labels[i] ? 1.0f : 0.0f;
    }
    if (!dx)
        return;
    const ivec used = lanes_used(lane, rows);
    const vec inverse = 1.0f / sum;
    for (int k = 0; k < classes; k++) {
        vec p = vec_exp(vec_load(x + k * 16) - top) * inverse;
        vec_store(dx + k * 16, vec_select(used, p, (vec){0}));
    }
    for (int i = 0; i < LANES_VEC && lane + i < rows; i++)
        dx[labels[i] * 16 + i] -= 1.0f;
}

static void lanes_loss(int classes, int rows, const float *x, const uint8_t *labels, float *dx,
                       float *loss, float *correct)
{
    for (int lane = 0; lane < 16; lane += LANES_VEC)
        lanes_loss_part(classes, rows, lane, x + lane, labels + lane, dx ? dx + lane : NULL,
                        loss + lane, correct + lane);
}

#endif
