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
    vec t = vec_fma(x, vec_all(1.44269504f), shift);
    vec n = t - shift;
    vec r = vec_fma(n, vec_all(-0.693359375f), x);
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec p = vec_all(1.0f / 5040);
    p = vec_fma(p, r, vec_all(1.0f / 720));
    p = vec_fma(p, r, vec_all(1.0f / 120));
    p = vec_fma(p, r, vec_all(1.0f / 24));
    p = vec_fma(p, r, vec_all(1.0f / 6));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    ivec power = (((ivec)t - (ivec)shift) + 127) << 23;
    return p * (vec)power;
}

LANES_INLINE ivec ivec_all(int value)
{
    return value - (ivec){0};
}

/* The labels of the lanes from `lane` on; −1, which is no class, beyond `rows`. */
LANES_INLINE ivec lanes_labels(const uint8_t *labels, int lane, int rows)
{
    ivec label;
    for (int i = 0; i < LANES_VEC; i++)
        label[i] = lane + i < rows ? labels[lane + i] : -1;
    return label;
}

/* The largest logit of each lane, and in `best` its class: the first of equal ones. */
LANES_INLINE vec lanes_largest(int classes, const float *x, ivec *best)
{
    vec top = vec_load(x);
    *best = (ivec){0};
    for (int k = 1; k < classes; k++) {
        vec v = vec_load(x + k * 16);
        ivec better = v > top;
        *best = (ivec_all(k) & better) | (*best & ~better);
        top = vec_select(better, v, top);
    }
    return top;
}

/* The label's gradient is p − 1 = −(the other classes' share), which is computed as such: close to
 * p = 1 the difference would have no digits left. */
static void lanes_loss_part(int classes, int rows, int lane, const float *x, const uint8_t *labels,
                            float *dx, float *loss, float *correct)
{
    const ivec label = lanes_labels(labels, lane, rows);
    ivec best;
    const vec top = lanes_largest(classes, x, &best);
    vec others = {0}, own = {0}, logit = {0};
    for (int k = 0; k < classes; k++) {
        vec z = vec_load(x + k * 16), e = vec_exp(z - top);
        ivec is_label = label == ivec_all(k);
        others += vec_select(is_label, (vec){0}, e);
        own = vec_select(is_label, e, own);
        logit = vec_select(is_label, z, logit);
    }
    const vec sum = own + others, inverse = 1.0f / sum;
    for (int i = 0; i < LANES_VEC && lane + i < rows; i++) {
        loss[i] += logf(sum[i]) - (logit[i] - top[i]);
        correct[i] += best[i] == label[i] ? 1.0f : 0.0f;
    }
    for (int k = 0; dx && k < classes; k++) {
        vec p = vec_exp(vec_load(x + k * 16) - top) * inverse;
        p = vec_select(label == ivec_all(k), -(others * inverse), p);
        vec_store(dx + k * 16, vec_select(label >= 0, p, (vec){0}));
    }
}

static void lanes_loss(int classes, int rows, const float *x, const uint8_t *labels, float *dx,
                       float *loss, float *correct)
{
    for (int lane = 0; lane < 16; lane += LANES_VEC)
        lanes_loss_part(classes, rows, lane, x + lane, labels, dx ? dx + lane : NULL, loss + lane,
                        correct + lane);
}

#endif
