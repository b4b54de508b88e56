/* Passes over memory: batch normalisation, addition, curves; see lanes_kernels.h. Everything goes lane by
 * lane, sums included, so that the bits do not depend on the width of a register. */
#ifndef CPU_LANES_PASS_KERNEL_H
#define CPU_LANES_PASS_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_math.h"

/* ---- batch normalisation, over sixteens of one channel --------------------------------------- */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): it declares `part` */
#define EACH_PART(part) for (int part = 0; part < 16; part += LANES_VEC)

LANES_INLINE void lanes_store_wide(double *sum, const vec_wide *w)
{
    double lane[LANES_VEC];
    memcpy(lane, w, sizeof lane);
    for (int i = 0; i < LANES_VEC; i++)
        sum[i] = lane[i];
}

LANES_INLINE vec_wide lanes_sums_of(const float *x, size_t n, vec mean, const int squares)
{
    vec_wide sum = {{0}, {0}};
    for (size_t i = 0; i < n;) {
        size_t few = n - i < LANES_FEW ? n - i : LANES_FEW;
        vec s = {0};
        for (size_t k = 0; k < few; k++, i++) {
            vec v = vec_load(x + i * 16);
            s = squares ? vec_fma(v - mean, v - mean, s) : s + v;
        }
        vec_wide_add(&sum, s);
    }
    return sum;
}

static void lanes_norm_sum(size_t n, const float *x, double *sum)
{
    EACH_PART(part)
    {
        vec_wide s = lanes_sums_of(x + part, n, (vec){0}, 0);
        lanes_store_wide(sum + part, &s);
    }
}

static void lanes_norm_squares(size_t n, const float *x, float mean, double *sum)
{
    EACH_PART(part)
    {
        vec_wide s = lanes_sums_of(x + part, n, vec_all(mean), 1);
        lanes_store_wide(sum + part, &s);
    }
}

LANES_INLINE void lanes_normalise_all(size_t n, const ls_lanes_norm *norm, const float *x,
                                      const float *x2, float *y, const int add, const int relu)
{
    vec mean = vec_all(norm->mean), scale = vec_all(norm->scale), shift = vec_all(norm->shift);
    for (size_t i = 0; i < n * 16; i += LANES_VEC) {
        vec v = vec_fma(vec_load(x + i) - mean, scale, shift);
        if (add)
            v += vec_load(x2 + i);
        vec_store(y + i, relu ? vec_relu(v) : v);
    }
}

static void lanes_normalise(size_t n, const ls_lanes_norm *norm, const float *x, const float *x2,
                            float *y, int relu)
{
    if (x2 && relu)
        lanes_normalise_all(n, norm, x, x2, y, 1, 1);
    else if (x2)
        lanes_normalise_all(n, norm, x, x2, y, 1, 0);
    else if (relu)
        lanes_normalise_all(n, norm, x, NULL, y, 0, 1);
    else
        lanes_normalise_all(n, norm, x, NULL, y, 0, 0);
}

/* Backward reads two or three streams at once, which the hardware follows less well than one: asks
 * for what is this many floats ahead. */
#define LANES_AHEAD (64 * 16)

/* dy behind the mask; `d` is x − mean. */
LANES_INLINE vec lanes_norm_g(const ls_lanes_norm *norm, const ls_lanes_mask mask, vec d,
                              const float *y, const float *dy)
{
    vec g = vec_load(dy);
    if (mask == LS_LANES_MASK_X)
        return vec_where_positive(vec_fma(d, vec_all(norm->scale), vec_all(norm->shift)), g);
    return mask == LS_LANES_MASK_Y ? vec_where_positive(vec_load(y), g) : g;
}

LANES_INLINE void lanes_norm_sums_all(const ls_lanes_norm_pass *p, const ls_lanes_mask mask,
                                      const int with_dx2, int part, double *sum)
{
    const ls_lanes_norm norm = p->norm;
    vec_wide all_g = {{0}, {0}}, all_gx = {{0}, {0}};
    for (size_t i = 0; i < p->n;) {
        size_t few = p->n - i < LANES_FEW ? p->n - i : LANES_FEW;
        vec sum_g = {0}, sum_gx = {0};
        for (size_t k = 0; k < few; k++, i++) {
            size_t at = i * 16 + (size_t)part;
            __builtin_prefetch(p->x + at + LANES_AHEAD);
            __builtin_prefetch(p->dy + at + LANES_AHEAD);
            vec d = vec_load(p->x + at) - norm.mean;
            vec g = lanes_norm_g(&norm, mask, d, p->y + at, p->dy + at);
            sum_g += g;
            sum_gx = vec_fma(g, d, sum_gx);
            if (with_dx2)
                vec_store(p->dx2 + at, g);
        }
        vec_wide_add(&all_g, sum_g);
        vec_wide_add(&all_gx, sum_gx);
    }
    lanes_store_wide(sum + part, &all_g);
    lanes_store_wide(sum + 16 + part, &all_gx);
}

static void lanes_norm_sums(const ls_lanes_norm_pass *p, double *sum)
{
    EACH_PART(part)
    {
        if (p->mask == LS_LANES_MASK_Y && p->dx2)
            lanes_norm_sums_all(p, LS_LANES_MASK_Y, 1, part, sum);
        else if (p->mask == LS_LANES_MASK_Y)
            lanes_norm_sums_all(p, LS_LANES_MASK_Y, 0, part, sum);
        else if (p->mask == LS_LANES_MASK_X)
            lanes_norm_sums_all(p, LS_LANES_MASK_X, 0, part, sum);
        else if (p->dx2)
            lanes_norm_sums_all(p, LS_LANES_MASK_NONE, 1, part, sum);
        else
            lanes_norm_sums_all(p, LS_LANES_MASK_NONE, 0, part, sum);
    }
}

/* −1 in the lanes from `part` on that are rows. */
LANES_INLINE ivec lanes_rows(int part, int rows)
{
    ivec mask;
    for (int i = 0; i < LANES_VEC; i++)
        mask[i] = part + i < rows ? -1 : 0;
    return mask;
}

LANES_INLINE void lanes_norm_dx_all(const ls_lanes_norm_pass *p, const ls_lanes_mask mask, int part)
{
    const ls_lanes_norm norm = p->norm;
    const vec a = vec_all(p->a), b = vec_all(p->b), c = vec_all(p->c);
    const ivec rows = lanes_rows(part, p->rows);
    for (size_t i = (size_t)part; i < p->n * 16; i += 16) {
        __builtin_prefetch(p->x + i + LANES_AHEAD);
        __builtin_prefetch(p->dy + i + LANES_AHEAD);
        __builtin_prefetch(p->dx + i + LANES_AHEAD, 1);
        vec d = vec_load(p->x + i) - norm.mean;
        vec g = lanes_norm_g(&norm, mask, d, p->y + i, p->dy + i);
        vec_store(p->dx + i, (vec)((ivec)vec_fma(a, g, vec_fma(b, d, c)) & rows));
    }
}

static void lanes_norm_dx(const ls_lanes_norm_pass *p)
{
    EACH_PART(part)
    {
        if (p->mask == LS_LANES_MASK_Y)
            lanes_norm_dx_all(p, LS_LANES_MASK_Y, part);
        else if (p->mask == LS_LANES_MASK_X)
            lanes_norm_dx_all(p, LS_LANES_MASK_X, part);
        else
            lanes_norm_dx_all(p, LS_LANES_MASK_NONE, part);
    }
}

/* ---- layer norm: a lane is a row ------------------------------------------------------------- */

/* Σ(x − mean)² of a lane in double alone: where the squares of floats leave their range. */
static double lanes_far_squares(size_t n, const float *x, float mean)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)(x[i * 16] - mean);
        sum += d * d;
    }
    return sum;
}

/* 1 / √(Σ(x − mean)² / n + epsilon) of each lane. */
LANES_INLINE vec lanes_inverse_root(size_t n, const float *x, vec mean, float epsilon)
{
    const vec_wide sum = lanes_sums_of(x, n, mean, 1);
    double lane[LANES_VEC];
    vec out;
    lanes_store_wide(lane, &sum);
    for (int i = 0; i < LANES_VEC; i++) {
        if (lane[i] == __builtin_inf())
            lane[i] = lanes_far_squares(n, x + i, mean[i]);
        out[i] = (float)(1 / __builtin_sqrt(lane[i] / (double)n + (double)epsilon));
    }
    return out;
}

LANES_INLINE vec lanes_mean_of(vec_wide sum, size_t n)
{
    sum.low /= (double)n;
    sum.high /= (double)n;
    return vec_narrow(&sum);
}

static void lanes_layer_forward(size_t n, float epsilon, const float *x, const float *w,
                                const float *b, float *y, float *stats)
{
    EACH_PART(part)
    {
        vec mean = lanes_mean_of(lanes_sums_of(x + part, n, (vec){0}, 0), n);
        vec inverse = lanes_inverse_root(n, x + part, mean, epsilon);
        vec_store(stats + part, mean);
        vec_store(stats + 16 + part, inverse);
        for (size_t i = 0; i < n; i++) {
            vec unit = (vec_load(x + i * 16 + part) - mean) * inverse;
            vec_store(y + i * 16 + part, vec_fma(unit, vec_all(w[i]), vec_all(b[i])));
        }
    }
}

static void lanes_layer_dx(size_t n, const float *x, const float *dy, const float *w,
                           const float *stats, float *dx)
{
    EACH_PART(part)
    {
        const vec mean = vec_load(stats + part), inverse = vec_load(stats + 16 + part);
        vec_wide all_g = {{0}, {0}}, all_gx = {{0}, {0}};
        for (size_t i = 0; i < n;) {
            size_t few = n - i < LANES_FEW ? n - i : LANES_FEW;
            vec sum_g = {0}, sum_gx = {0};
            for (size_t k = 0; k < few; k++, i++) {
                vec g = vec_load(dy + i * 16 + part) * w[i];
                sum_g += g;
                sum_gx = vec_fma(g, (vec_load(x + i * 16 + part) - mean) * inverse, sum_gx);
            }
            vec_wide_add(&all_g, sum_g);
            vec_wide_add(&all_gx, sum_gx);
        }
        const vec g = lanes_mean_of(all_g, n), gx = lanes_mean_of(all_gx, n);
        for (size_t i = 0; i < n; i++) {
            vec unit = (vec_load(x + i * 16 + part) - mean) * inverse;
            vec own = vec_load(dy + i * 16 + part) * w[i] - g;
            vec_store(dx + i * 16 + part, inverse * vec_fma(-unit, gx, own));
        }
    }
}

static void lanes_layer_weights(int n, int groups, size_t step, const float *x, const float *dy,
                                const float *stats, float *gw, float *gb, int add)
{
    _Alignas(64) float weight[256] = {0}, bias[256] = {0};
    for (int i = 0; i < n; i++)
        EACH_PART(part)
        {
            vec w = {0}, b = {0};
            for (int g = 0; g < groups; g++) {
                const size_t at = (size_t)g * step + (size_t)(i * 16 + part);
                const float *of = stats + (size_t)g * 32 + part;
                vec d = vec_load(dy + at);
                w = vec_fma(d, (vec_load(x + at) - vec_load(of)) * vec_load(of + 16), w);
                b += d;
            }
            vec_store(weight + i * 16 + part, w);
            vec_store(bias + i * 16 + part, b);
        }
    lanes_sum_lanes(gw, weight, n, add);
    lanes_sum_lanes(gb, bias, n, add);
}

/* ---- addition -------------------------------------------------------------------------------- */

static void lanes_add(size_t n, const float *a, const float *b, int relu, float *y)
{
    for (size_t i = 0; i < n * 16; i += LANES_VEC) {
        vec v = vec_load(a + i) + vec_load(b + i);
        vec_store(y + i, relu ? vec_relu(v) : v);
    }
}

static void lanes_add_dx(size_t n, const float *y, const float *dy, float *dx, float *dx2)
{
    for (size_t i = 0; i < n * 16; i += LANES_VEC) {
        vec g = vec_load(dy + i);
        if (y)
            g = vec_where_positive(vec_load(y + i), g);
        vec_store(dx + i, g);
        if (dx2)
            vec_store(dx2 + i, g);
    }
}

/* ---- curves ---------------------------------------------------------------------------------- */

#define LANES_FUNCTION(name, VALUE)                                                                \
    static void lanes_##name(size_t n, float slope, const float *in, float *out)                   \
    {                                                                                              \
        (void)slope;                                                                               \
        for (size_t i = 0; i < n * 16; i += LANES_VEC) {                                           \
            vec x = vec_load(in + i);                                                              \
            vec_store(out + i, VALUE);                                                             \
        }                                                                                          \
    }

#define LANES_SLOPE(name, VALUE)                                                                   \
    static void lanes_##name##_slope(size_t n, float slope, const float *at, const float *dy,      \
                                     float *dx)                                                    \
    {                                                                                              \
        (void)slope;                                                                               \
        for (size_t i = 0; i < n * 16; i += LANES_VEC) {                                           \
            vec v = vec_load(at + i), g = vec_load(dy + i);                                        \
            vec_store(dx + i, VALUE);                                                              \
        }                                                                                          \
    }

LANES_FUNCTION(relu, vec_relu(x))
LANES_FUNCTION(leaky, vec_select(x < 0, x *slope, x))
LANES_FUNCTION(sigmoid, vec_sigmoid(x))
LANES_FUNCTION(tanh, vec_tanh(x))
LANES_FUNCTION(gelu, vec_from_lowest(x) * vec_normal(x).below)
LANES_FUNCTION(silu, vec_from_lowest(x) * vec_sigmoid(x))
LANES_FUNCTION(exp, vec_exp(x))
LANES_FUNCTION(log, vec_log(x))

LANES_SLOPE(relu, vec_where_positive(v, g))
LANES_SLOPE(leaky, vec_select(v > 0, g, g *slope))
LANES_SLOPE(sigmoid, g *(v *(1.0f - v)))
LANES_SLOPE(tanh, g *vec_fma(-v, v, vec_all(1.0f)))
LANES_SLOPE(gelu, g *vec_normal_slope(v))
LANES_SLOPE(silu, g *vec_silu_slope(v))

#endif
