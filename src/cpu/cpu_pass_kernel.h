/* Passes over memory: batch normalisation, element-wise addition, the product of two rows. See
 * cpu_isa.h. */
#ifndef CPU_CPU_PASS_KERNEL_H
#define CPU_CPU_PASS_KERNEL_H

#include "cpu/cpu_isa.h"
#include "cpu/lanes_vec.h"

/* ---- batch normalisation, over one run of vectors -------------------------------------------- */

/* Calls PASS(part, n) for each register's share of a run's sixteen lanes: n is LANES_VEC, a
 * constant, wherever the share is whole. */
#define FOR_EACH_PART(run, PASS)                                                                   \
    do {                                                                                           \
        int part_ = 0;                                                                             \
        for (; part_ + LANES_VEC <= (run)->width; part_ += LANES_VEC)                              \
            PASS(part_, LANES_VEC);                                                                \
        if (part_ < (run)->width)                                                                  \
            PASS(part_, (run)->width - part_);                                                     \
    } while (0)

LANES_INLINE vec sum_few(const float *x, size_t step, size_t count, int n)
{
    vec s = {0};
    LANES_UNROLL
    for (size_t k = 0; k < count; k++)
        s += vec_load_part(x + k * step, n);
    return s;
}

LANES_INLINE void sum_part(const ls_run *run, int n, const float *x, double *sum)
{
    const size_t count = run->count, step = run->step;
    vec_wide s = {{0}, {0}};
    for (size_t r = 0; r < run->rows; r++, x += run->row) {
        size_t i = 0;
        for (; i + LANES_FEW <= count; i += LANES_FEW)
            vec_wide_add(&s, sum_few(x + i * step, step, LANES_FEW, n));
        vec_wide_add(&s, sum_few(x + i * step, step, count - i, n));
    }
    vec_wide_store_part(sum, &s, n);
}

static void norm_sum(const ls_run *run, const float *x, double *sum)
{
#define PASS(at, n) sum_part(run, n, x + (at), sum + (at))
    FOR_EACH_PART(run, PASS);
#undef PASS
}

LANES_INLINE vec squares_few(const float *x, size_t step, size_t count, vec mean, int n)
{
    vec s = {0};
    LANES_UNROLL
    for (size_t k = 0; k < count; k++) {
        vec d = vec_load_part(x + k * step, n) - mean;
        s = vec_fma(d, d, s);
    }
    return s;
}

LANES_INLINE void squares_part(const ls_run *run, int n, const float *x, const float *mean,
                               double *sum)
{
    const size_t count = run->count, step = run->step;
    vec m = vec_load_part(mean, n);
    vec_wide s = {{0}, {0}};
    for (size_t r = 0; r < run->rows; r++, x += run->row) {
        size_t i = 0;
        for (; i + LANES_FEW <= count; i += LANES_FEW)
            vec_wide_add(&s, squares_few(x + i * step, step, LANES_FEW, m, n));
        vec_wide_add(&s, squares_few(x + i * step, step, count - i, m, n));
    }
    vec_wide_store_part(sum, &s, n);
}

static void norm_squares(const ls_run *run, const float *x, const float *mean, double *sum)
{
#define PASS(at, n) squares_part(run, n, x + (at), mean + (at), sum + (at))
    FOR_EACH_PART(run, PASS);
#undef PASS
}

LANES_INLINE void normalise_part(const ls_run *run, int at, int n, const ls_norm *norm,
                                 const float *x, const float *x2, float *y, int relu)
{
    vec mean = vec_load_part(norm->mean + at, n), scale = vec_load_part(norm->scale + at, n);
    vec shift = vec_load_part(norm->shift + at, n);
    for (size_t r = 0; r < run->rows; r++) {
        size_t i = r * run->row + (size_t)at, end = i + run->count * run->step;
        for (; i < end; i += run->step) {
            vec v = vec_fma(vec_load_part(x + i, n) - mean, scale, shift);
            if (x2)
                v += vec_load_part(x2 + i, n);
            vec_store_part(y + i, relu ? vec_relu(v) : v, n);
        }
    }
}

static void norm_normalise(const ls_run *run, const ls_norm *norm, const float *x, const float *x2,
                           float *y, int relu)
{
#define PASS(at, n)                                                                                \
    do {                                                                                           \
        if (x2 && relu)                                                                            \
            normalise_part(run, at, n, norm, x, x2, y, 1);                                         \
        else if (x2)                                                                               \
            normalise_part(run, at, n, norm, x, x2, y, 0);                                         \
        else if (relu)                                                                             \
            normalise_part(run, at, n, norm, x, NULL, y, 1);                                       \
        else                                                                                       \
            normalise_part(run, at, n, norm, x, NULL, y, 0);                                       \
    } while (0)
    FOR_EACH_PART(run, PASS);
#undef PASS
}

typedef struct norm_vecs {
    vec mean, scale, shift;
} norm_vecs;

LANES_INLINE norm_vecs norm_load(const ls_norm *norm, int at, int n)
{
    return (norm_vecs){vec_load_part(norm->mean + at, n), vec_load_part(norm->scale + at, n),
                       vec_load_part(norm->shift + at, n)};
}

/* Backward reads two or three streams at once, which the hardware follows less well than one: asks
 * for what is this many vectors ahead. */
#define AHEAD 64

/* dy behind the mask; `d` is x − mean. */
LANES_INLINE vec norm_g(const norm_vecs *v, ls_norm_mask mask, vec d, const float *y,
                        const float *dy, int n)
{
    vec g = vec_load_part(dy, n);
    if (mask == LS_NORM_OF_X)
        return vec_where_positive(vec_fma(d, v->scale, v->shift), g);
    if (mask == LS_NORM_OF_Y)
        return vec_where_positive(vec_load_part(y, n), g);
    return g;
}

LANES_INLINE void norm_sum_at(const norm_vecs *v, ls_norm_mask mask, size_t i, size_t ahead, int n,
                              const float *x, const float *y, const float *dy, float *dx2,
                              vec *sum_g, vec *sum_gx)
{
    __builtin_prefetch(x + i + ahead);
    __builtin_prefetch(dy + i + ahead);
    vec d = vec_load_part(x + i, n) - v->mean;
    vec g = norm_g(v, mask, d, y + i, dy + i, n);
    *sum_g += g;
    *sum_gx = vec_fma(g, d, *sum_gx);
    if (dx2)
        vec_store_part(dx2 + i, g, n);
}

typedef struct norm_streams {
    const float *x, *y, *dy;
    float *dx2;
} norm_streams;

/* Some vectors from `i` on: their sums in float, added to those in double. */
LANES_INLINE void norm_sums_few(const norm_vecs *v, ls_norm_mask mask, const norm_streams *m,
                                size_t i, size_t step, size_t count, int n, vec_wide *sum_g,
                                vec_wide *sum_gx)
{
    vec g = {0}, gx = {0};
    LANES_UNROLL
    for (size_t k = 0; k < count; k++)
        norm_sum_at(v, mask, i + k * step, AHEAD * step, n, m->x, m->y, m->dy, m->dx2, &g, &gx);
    vec_wide_add(sum_g, g);
    vec_wide_add(sum_gx, gx);
}

LANES_INLINE void norm_sums_part(const ls_run *run, int at, int n, const ls_norm *norm,
                                 ls_norm_mask mask, const float *x, const float *y, const float *dy,
                                 float *dx2, double *sum)
{
    const norm_vecs v = norm_load(norm, at, n);
    const norm_streams m = {x, y, dy, dx2};
    const size_t step = run->step;
    vec_wide g = {{0}, {0}}, gx = {{0}, {0}};
    for (size_t r = 0; r < run->rows; r++) {
        size_t i = r * run->row + (size_t)at, left = run->count;
        for (; left >= LANES_FEW; left -= LANES_FEW, i += LANES_FEW * step)
            norm_sums_few(&v, mask, &m, i, step, LANES_FEW, n, &g, &gx);
        norm_sums_few(&v, mask, &m, i, step, left, n, &g, &gx);
    }
    vec_wide_store_part(sum + at, &g, n);
    vec_wide_store_part(sum + LS_RUN_LANES + at, &gx, n);
}

static void norm_sums(const ls_run *run, const ls_norm *norm, ls_norm_mask mask, const float *x,
                      const float *y, const float *dy, float *dx2, double *sum)
{
#define PASS(at, n)                                                                                \
    do {                                                                                           \
        if (mask == LS_NORM_OF_Y && dx2)                                                           \
            norm_sums_part(run, at, n, norm, LS_NORM_OF_Y, x, y, dy, dx2, sum);                    \
        else if (mask == LS_NORM_OF_X && !dx2)                                                     \
            norm_sums_part(run, at, n, norm, LS_NORM_OF_X, x, x, dy, NULL, sum);                   \
        else if (mask == LS_NORM_OF_Y)                                                             \
            norm_sums_part(run, at, n, norm, LS_NORM_OF_Y, x, y, dy, NULL, sum);                   \
        else                                                                                       \
            norm_sums_part(run, at, n, norm, LS_NORM_ALL, x, x, dy, dx2, sum);                     \
    } while (0)
    FOR_EACH_PART(run, PASS);
#undef PASS
}

LANES_INLINE void norm_dx_part(const ls_run *run, int at, int n, const ls_norm *norm,
                               ls_norm_mask mask, const float *x, const float *y, const float *dy,
                               const float *to, float *dx)
{
    const norm_vecs v = norm_load(norm, at, n);
    const size_t ahead = AHEAD * run->step;
    vec a = vec_load_part(to + at, n), b = vec_load_part(to + LS_RUN_LANES + at, n);
    vec c = vec_load_part(to + 2 * LS_RUN_LANES + at, n);
    for (size_t r = 0; r < run->rows; r++) {
        size_t i = r * run->row + (size_t)at, end = i + run->count * run->step;
        for (; i < end; i += run->step) {
            __builtin_prefetch(x + i + ahead);
            __builtin_prefetch(dy + i + ahead);
            __builtin_prefetch(dx + i + ahead, 1);
            vec d = vec_load_part(x + i, n) - v.mean;
            vec g = norm_g(&v, mask, d, y + i, dy + i, n);
            vec_store_part(dx + i, vec_fma(a, g, vec_fma(b, d, c)), n);
        }
    }
}

static void norm_dx(const ls_run *run, const ls_norm *norm, ls_norm_mask mask, const float *x,
                    const float *y, const float *dy, const float *to, float *dx)
{
#define PASS(at, n)                                                                                \
    do {                                                                                           \
        if (mask == LS_NORM_OF_Y)                                                                  \
            norm_dx_part(run, at, n, norm, LS_NORM_OF_Y, x, y, dy, to, dx);                        \
        else if (mask == LS_NORM_OF_X)                                                             \
            norm_dx_part(run, at, n, norm, LS_NORM_OF_X, x, x, dy, to, dx);                        \
        else                                                                                       \
            norm_dx_part(run, at, n, norm, LS_NORM_ALL, x, x, dy, to, dx);                         \
    } while (0)
    FOR_EACH_PART(run, PASS);
#undef PASS
}

/* ---- addition and its gradient, over whole tensors ------------------------------------------- */

LANES_INLINE vec add_at(const float *a, const float *b, int n, int relu)
{
    vec v = vec_load_part(a, n) + vec_load_part(b, n);
    return relu ? vec_relu(v) : v;
}

static void add_forward(const float *a, const float *b, float *y, size_t n, int relu)
{
    size_t i = 0;
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        vec_store_part(y + i, add_at(a + i, b + i, LANES_VEC, relu), LANES_VEC);
    int rest = (int)(n - i);
    if (rest)
        vec_store_part(y + i, add_at(a + i, b + i, rest, relu), rest);
}

LANES_INLINE void add_dx_at(const float *y, const float *dy, float *dx, float *dx2, int n)
{
    vec g = vec_load_part(dy, n);
    if (y)
        g = vec_where_positive(vec_load_part(y, n), g);
    vec_store_part(dx, g, n);
    if (dx2)
        vec_store_part(dx2, g, n);
}

static void add_backward(const float *y, const float *dy, float *dx, float *dx2, size_t n)
{
    size_t i = 0;
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        add_dx_at(y ? y + i : NULL, dy + i, dx + i, dx2 ? dx2 + i : NULL, LANES_VEC);
    int rest = (int)(n - i);
    if (rest)
        add_dx_at(y ? y + i : NULL, dy + i, dx + i, dx2 ? dx2 + i : NULL, rest);
}

/* ---- the product of two rows ----------------------------------------------------------------- */

LANES_INLINE vec dot_add(vec sum, const float *a, const float *b, int n)
{
    return vec_fma(vec_load_part(a, n), vec_load_part(b, n), sum);
}

static double dot(const float *a, const float *b, size_t n)
{
    vec_wide sum = {{0}, {0}};
    vec few = {0};
    size_t i = 0;
    for (; i + LANES_FEW * LANES_VEC <= n; i += LANES_FEW * LANES_VEC) {
        vec s = {0};
        LANES_UNROLL
        for (size_t k = 0; k < LANES_FEW; k++)
            s = dot_add(s, a + i + k * LANES_VEC, b + i + k * LANES_VEC, LANES_VEC);
        vec_wide_add(&sum, s);
    }
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        few = dot_add(few, a + i, b + i, LANES_VEC);
    if (i < n)
        few = dot_add(few, a + i, b + i, (int)(n - i));
    vec_wide_add(&sum, few);
    double lane[LANES_VEC] = {0}, all = 0;
    vec_wide_store_part(lane, &sum, LANES_VEC);
    for (int l = 0; l < LANES_VEC; l++)
        all += lane[l];
    return all;
}

#endif
