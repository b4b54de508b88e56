/* Depthwise convolution: of one channel, with a kernel of its own.
 *
 *     for rows of the result
 *       for its columns, four at a time       four sums in registers, over (rows of weights, taps)
 *
 * A row of y is made of rows of x; a row of dx of rows of dy in the same way, where a stride cuts its columns
 * into as many phases, each with taps of its own. Columns beyond the edges are zeros that are not loaded. Sums are
 * made in an order that the shape alone decides.
 */
#ifndef CPU_LANES_DEPTH_KERNEL_H
#define CPU_LANES_DEPTH_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#include <string.h>

#define LANES_DEPTH_T 4

/* Columns of a result, n of them: out[t] = init + Σ w[row][tap] · x[row][first + t·step + tap·apart]. */
typedef struct lanes_depth_row {
    int rows, taps; /* of weights */
    int first, step, apart, width, n;
    float init;
    const float *x, *w;
    ptrdiff_t x_row, w_row, w_tap;
    float *out;
    ptrdiff_t out_t;
} lanes_depth_row;

LANES_INLINE vec lanes_depth_load(const float *x, int column, int width, const int edge)
{
    if (edge && (column < 0 || column >= width))
        return (vec){0};
    return vec_load(x + (ptrdiff_t)column * 16);
}

/* T results from t0 on. K taps side by side, and step S, where they are known: else 0. */
LANES_INLINE void lanes_depth_tile(const lanes_depth_row *r, int t0, int lane, const int K,
                                   const int S, const int T, const int edge)
{
    const int step = S ? S : r->step, apart = K ? 1 : r->apart, first = r->first + t0 * step;
    vec sum[LANES_DEPTH_T];
    LANES_UNROLL
    for (int t = 0; t < T; t++)
        sum[t] = vec_all(r->init);
    for (int row = 0; row < r->rows; row++) {
        const float *x = r->x + row * r->x_row + lane, *w = r->w + row * r->w_row;
        const int taps = K ? K : r->taps; /* unrolled where it is known */
        LANES_UNROLL
        for (int tap = 0; tap < taps; tap++) {
            const vec factor = vec_all(w[tap * r->w_tap]);
            LANES_UNROLL
            for (int t = 0; t < T; t++)
                sum[t] = vec_fma(
                    factor, lanes_depth_load(x, first + t * step + tap * apart, r->width, edge),
                    sum[t]);
        }
    }
    LANES_UNROLL
    for (int t = 0; t < T; t++)
        vec_store(r->out + (t0 + t) * r->out_t + lane, sum[t]);
}

/* The last four overlap those before them. */
LANES_INLINE void lanes_depth_run(const lanes_depth_row *r, const int K, const int S)
{
    const int reach = (LANES_DEPTH_T - 1) * r->step + (r->taps - 1) * r->apart;
    for (int lane = 0; lane < 16; lane += LANES_VEC) {
        for (int t = 0; t < r->n && r->n < LANES_DEPTH_T; t++)
            lanes_depth_tile(r, t, lane, K, S, 1, 1);
        for (int t = 0; t < r->n && r->n >= LANES_DEPTH_T; t += LANES_DEPTH_T) {
            const int t0 = t + LANES_DEPTH_T <= r->n ? t : r->n - LANES_DEPTH_T;
            const int first = r->first + t0 * r->step;
            if (first >= 0 && first + reach < r->width)
                lanes_depth_tile(r, t0, lane, K, S, LANES_DEPTH_T, 0);
            else
                lanes_depth_tile(r, t0, lane, K, S, LANES_DEPTH_T, 1);
        }
    }
}

typedef void lanes_depth_fn(const lanes_depth_row *r);

#define LANES_DEPTH(K, S)                                                                          \
    static void lanes_depth_##K##_##S(const lanes_depth_row *r)                                    \
    {                                                                                              \
        lanes_depth_run(r, K, S);                                                                  \
    }

/* clang-format off */
LANES_DEPTH(0, 0)
LANES_DEPTH(1, 1) LANES_DEPTH(2, 1) LANES_DEPTH(3, 1) LANES_DEPTH(5, 1)
LANES_DEPTH(3, 2) LANES_DEPTH(5, 2)
    /* clang-format on */

    LANES_INLINE lanes_depth_fn *lanes_depth_of(int taps, int step, int apart)
{
    static lanes_depth_fn *const table[2][6] = {{lanes_depth_0_0, lanes_depth_1_1, lanes_depth_2_1,
                                                 lanes_depth_3_1, lanes_depth_0_0, lanes_depth_5_1},
                                                {lanes_depth_0_0, lanes_depth_0_0, lanes_depth_0_0,
                                                 lanes_depth_3_2, lanes_depth_0_0,
                                                 lanes_depth_5_2}};
    return (apart == 1 || taps == 1) && taps <= 5 && step <= 2 ? table[step - 1][taps]
                                                               : lanes_depth_0_0;
}

/* ---- y --------------------------------------------------------------------------------------- */

/* Rows of weights that meet one of `size` rows, of which the first meets row `top`: [*from, *to). */
LANES_INLINE void lanes_depth_inside(int top, int kernel, int dilation, int size, int *from,
                                     int *to)
{
    *from = top < 0 ? (dilation - 1 - top) / dilation : 0;
    *to = size > top ? (size - top + dilation - 1) / dilation : 0;
    *to = *to < kernel ? *to : kernel;
    *to = *to < *from ? *from : *to;
}

static void lanes_depth_forward(const ls_lanes_depth *d, const float *x, const float *w,
                                const float *b, float *y)
{
    const ls_conv2d *k = &d->k;
    lanes_depth_fn *run = lanes_depth_of(k->kw, k->sw, k->dw);
    lanes_depth_row r = {.taps = k->kw,
                         .first = -k->pw,
                         .step = k->sw,
                         .apart = k->dw,
                         .width = d->iw,
                         .n = d->ow,
                         .init = b ? *b : 0,
                         .x_row = (ptrdiff_t)k->dh * d->iw * 16,
                         .w_row = k->kw,
                         .w_tap = 1,
                         .out_t = 16};
    for (int row = 0; row < d->oh; row++) {
        const int top = row * k->sh - k->ph;
        int from, to;
        lanes_depth_inside(top, k->kh, k->dh, d->ih, &from, &to);
        r.rows = to - from;
        r.x = x + ((ptrdiff_t)top + (ptrdiff_t)from * k->dh) * d->iw * 16;
        r.w = w + (ptrdiff_t)from * k->kw;
        r.out = y + (ptrdiff_t)row * d->ow * 16;
        run(&r);
    }
}

/* ---- dx -------------------------------------------------------------------------------------- */

/* The taps through which a pixel of x gets its gradient along one side: `count` of them, from `tap` back by
 * `less`, which meet the gradient's pixels from `at` on by `more`. */
typedef struct lanes_depth_taps {
    int count, tap, less, at, more;
} lanes_depth_taps;

LANES_INLINE lanes_depth_taps lanes_depth_taps_of(int pixel, int padding, int kernel, int stride,
                                                  int dilation)
{
    lanes_depth_taps s = {.less = 1};
    int tap = 0;
    while (s.less * dilation % stride)
        s.less++;
    s.more = s.less * dilation / stride;
    while (tap < kernel && tap < s.less && (pixel + padding - tap * dilation) % stride)
        tap++;
    if (tap >= kernel || tap >= s.less)
        return s;
    s.count = (kernel - 1 - tap) / s.less + 1;
    s.tap = tap + (s.count - 1) * s.less;
    s.at = (pixel + padding - s.tap * dilation) / stride;
    return s;
}

/* Only what meets one of `size` pixels. */
LANES_INLINE void lanes_depth_clip(lanes_depth_taps *s, int size)
{
    for (; s->count > 0 && s->at < 0; s->count--) {
        s->at += s->more;
        s->tap -= s->less;
    }
    while (s->count > 0 && s->at + (s->count - 1) * s->more >= size)
        s->count--;
}

/* The columns of one phase of a row of dx; `row`: of the taps that it has in rows. */
LANES_INLINE void lanes_depth_phase(const ls_lanes_depth *d, const lanes_depth_taps *row, int phase,
                                    const float *dy, const float *w, float *out)
{
    const ls_conv2d *k = &d->k;
    const lanes_depth_taps column = lanes_depth_taps_of(phase, k->pw, k->kw, k->sw, k->dw);
    const lanes_depth_row r = {.rows = column.count ? row->count : 0,
                               .taps = column.count,
                               .first = column.at,
                               .step = 1,
                               .apart = column.more,
                               .width = d->ow,
                               .n = (d->iw - phase + k->sw - 1) / k->sw,
                               .x = dy + (ptrdiff_t)row->at * d->ow * 16,
                               .x_row = (ptrdiff_t)row->more * d->ow * 16,
                               .w = w + (ptrdiff_t)row->tap * k->kw + column.tap,
                               .w_row = -(ptrdiff_t)row->less * k->kw,
                               .w_tap = -column.less,
                               .out = out + (ptrdiff_t)phase * 16,
                               .out_t = (ptrdiff_t)k->sw * 16};
    lanes_depth_of(column.count, 1, column.more)(&r);
}

static void lanes_depth_data(const ls_lanes_depth *d, const float *dy, const float *w, float *dx)
{
    const ls_conv2d *k = &d->k;
    for (int y = 0; y < d->ih; y++, dx += (ptrdiff_t)d->iw * 16) {
        lanes_depth_taps row = lanes_depth_taps_of(y, k->ph, k->kh, k->sh, k->dh);
        lanes_depth_clip(&row, d->oh);
        for (int phase = 0; phase < k->sw && phase < d->iw; phase++)
            lanes_depth_phase(d, &row, phase, dy, w, dx);
    }
}

/* ---- the weights ----------------------------------------------------------------------------- */

/* Some rows of dy, and the rows of x that one row of weights meets in them. */
typedef struct lanes_depth_band {
    int rows, n, first, step, width;
    const float *x, *dy;
    ptrdiff_t x_row, dy_row;
    float *sums; /* of K taps */
} lanes_depth_band;

/* C sums of each tap, in turns: more than the latency of an addition takes. */
LANES_INLINE void lanes_depth_add(vec sum[5][4], const lanes_depth_band *b, const float *x,
                                  const float *dy, int t0, int left, const int K, const int S,
                                  const int C, const int edge)
{
    const int step = S ? S : b->step, first = b->first + t0 * step;
    LANES_UNROLL
    for (int t = 0; t < 4; t++) {
        if (edge && t >= left)
            break;
        const vec g = vec_load(dy + (ptrdiff_t)(t0 + t) * 16);
        LANES_UNROLL
        for (int k = 0; k < K; k++)
            sum[k][t % C] = vec_fma(g, lanes_depth_load(x, first + t * step + k, b->width, edge),
                                    sum[k][t % C]);
    }
}

LANES_INLINE void lanes_depth_band_run(const lanes_depth_band *b, const int K, const int S,
                                       const int C)
{
    for (int lane = 0; lane < 16; lane += LANES_VEC) {
        vec sum[5][4] = {{{0}}};
        for (int row = 0; row < b->rows; row++) {
            const float *x = b->x + row * b->x_row + lane, *dy = b->dy + row * b->dy_row + lane;
            for (int t = 0; t < b->n; t += 4) {
                const int first = b->first + t * b->step;
                if (t + 4 <= b->n && first >= 0 && first + 3 * b->step + K - 1 < b->width)
                    lanes_depth_add(sum, b, x, dy, t, 4, K, S, C, 0);
                else
                    lanes_depth_add(sum, b, x, dy, t, b->n - t, K, S, C, 1);
            }
        }
        LANES_UNROLL
        for (int k = 0; k < K; k++) {
            vec all = sum[k][0] + sum[k][1];
            if (C == 4)
                all += sum[k][2] + sum[k][3];
            vec_store(b->sums + k * 16 + lane, vec_load(b->sums + k * 16 + lane) + all);
        }
    }
}

typedef void lanes_depth_band_fn(const lanes_depth_band *b);

#define LANES_DEPTH_BAND(K, S, C)                                                                  \
    static void lanes_depth_band_##K##_##S(const lanes_depth_band *b)                              \
    {                                                                                              \
        lanes_depth_band_run(b, K, S, C);                                                          \
    }

/* clang-format off */
LANES_DEPTH_BAND(1, 0, 4)
LANES_DEPTH_BAND(3, 1, 4) LANES_DEPTH_BAND(3, 2, 4)
LANES_DEPTH_BAND(5, 1, 2) LANES_DEPTH_BAND(5, 2, 2)
/* clang-format on */

#define LANES_DEPTH_PIXELS 128 /* of a band */

    /* One row of weights and rows y0 … y1 − 1 of dy. */
    LANES_INLINE
    void lanes_depth_weight_row(const ls_lanes_depth *d, lanes_depth_band *b, const float *x,
                                const float *dy, int ky, int y0, int y1, float *sums)
{
    const ls_conv2d *k = &d->k;
    const int up = k->ph - ky * k->dh;
    const int start = up > 0 ? (up + k->sh - 1) / k->sh : 0;
    const int end = d->ih + up > 0 ? (d->ih + up + k->sh - 1) / k->sh : 0;
    const int from = start > y0 ? start : y0, to = end < y1 ? end : y1;
    if (to <= from)
        return;
    b->rows = to - from;
    b->x = x + ((ptrdiff_t)from * k->sh - up) * d->iw * 16;
    b->dy = dy + (ptrdiff_t)from * d->ow * 16;
    b->first = -k->pw;
    b->sums = sums;
    const int fits = k->dw == 1 && k->sw <= 2;
    if (fits && k->kw == 3) {
        (k->sw == 1 ? lanes_depth_band_3_1 : lanes_depth_band_3_2)(b);
        return;
    }
    if (fits && k->kw == 5) {
        (k->sw == 1 ? lanes_depth_band_5_1 : lanes_depth_band_5_2)(b);
        return;
    }
    for (int kx = 0; kx < k->kw; kx++, b->first += k->dw, b->sums += 16)
        lanes_depth_band_1_0(b);
}

static void lanes_depth_weights(const ls_lanes_depth *d, const float *x, const float *dy,
                                ptrdiff_t x_group, ptrdiff_t dy_group, int groups, float *gw,
                                int add)
{
    float sums[LS_LANES_DEPTH_TAPS * 16] __attribute__((aligned(64)));
    const ls_conv2d *k = &d->k;
    const int rows = d->ow < LANES_DEPTH_PIXELS ? LANES_DEPTH_PIXELS / d->ow : 1;
    lanes_depth_band b = {.n = d->ow,
                          .step = k->sw,
                          .width = d->iw,
                          .x_row = (ptrdiff_t)k->sh * d->iw * 16,
                          .dy_row = (ptrdiff_t)d->ow * 16};
    memset(sums, 0, sizeof sums);
    for (int g = 0; g < groups; g++, x += x_group, dy += dy_group)
        for (int y = 0; y < d->oh; y += rows)
            for (int ky = 0; ky < k->kh; ky++)
                lanes_depth_weight_row(d, &b, x, dy, ky, y, y + rows < d->oh ? y + rows : d->oh,
                                       sums + (ptrdiff_t)ky * k->kw * 16);
    lanes_sum_each(gw, sums, k->kh * k->kw, add);
}

#endif
