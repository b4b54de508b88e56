/* Depthwise convolution: of one channel, with a kernel of its own.
 *
 *     for rows of the result
 *       for its columns, a tile at a time     their sums in registers
 *         for rows of weights
 *           for columns of x                  each is loaded once, and goes to all sums that it belongs to
 *
 * A plane of y is made of x's; one of dx of dy's in the same way, where strides cut rows and columns into as many
 * phases, each with taps of its own. Columns beyond the edges are zeros that are not loaded. Sums are made in an
 * order that the shape alone decides.
 */
#ifndef CPU_LANES_DEPTH_KERNEL_H
#define CPU_LANES_DEPTH_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#include <stdbool.h>
#include <string.h>

/* How results along one side come about, n of them: result r of pixels first + r·step + tap·apart, of `size`. */
typedef struct lanes_depth_side {
    int taps, first, step, apart, size, n;
} lanes_depth_side;

/* out[row][column] = init + Σ w[tap of rows][tap of columns] · x[…][…] */
typedef struct lanes_depth_plane {
    lanes_depth_side rows, columns;
    float init;
    const float *x, *w;
    ptrdiff_t w_row, w_tap;
    float *out;
    ptrdiff_t out_row, out_t;
} lanes_depth_plane;

/* What the tiles of one row of results have in common: `rows` of weights meet x. */
typedef struct lanes_depth_line {
    int rows;
    const float *x, *w;
    float *out;
} lanes_depth_line;

/* One result, whatever the taps. */
LANES_INLINE void lanes_depth_one(const lanes_depth_plane *p, lanes_depth_line l, int t)
{
    const lanes_depth_side *c = &p->columns;
    vec sum = vec_all(p->init);
    for (; l.rows > 0; l.rows--) {
        int column = c->first + t * c->step;
        for (int tap = 0; tap < c->taps; tap++, column += c->apart) {
            const bool is_there = column >= 0 && column < c->size;
            const vec v = is_there ? vec_load(l.x + (ptrdiff_t)column * 16) : (vec){0};
            sum = vec_fma(vec_all(l.w[tap * p->w_tap]), v, sum);
        }
        l.x += (ptrdiff_t)p->rows.apart * c->size * 16;
        l.w += p->w_row;
    }
    vec_store(l.out + t * p->out_t, sum);
}

#define LANES_DEPTH_T 8 /* columns of the widest tile */

/* T results from t0 on, of K taps side by side, S columns from one to the next. Of the first and the last columns
 * `left` and `right` are missing. */
LANES_INLINE void lanes_depth_tile(const lanes_depth_plane *p, lanes_depth_line l, int t0,
                                   const int K, const int S, const int T, const int left,
                                   const int right)
{
    const int columns = (T - 1) * S + K;
    const ptrdiff_t tap = p->w_tap, w_row = p->w_row;
    ptrdiff_t at = ((ptrdiff_t)p->columns.first + t0 * S) * 16; /* of the first column, in x */
    const ptrdiff_t x_row = (ptrdiff_t)p->rows.apart * p->columns.size * 16, out_t = p->out_t;
    float *out = l.out + t0 * out_t;
    vec sum[LANES_DEPTH_T];
    LANES_UNROLL
    for (int t = 0; t < T; t++)
        sum[t] = vec_all(p->init);
    for (; l.rows > 0; l.rows--) {
        const float *w = l.w;
        vec factor[5];
        LANES_UNROLL
        for (int k = 0; k < K; k++, w += tap)
            factor[k] = vec_all(*w);
        LANES_UNROLL
        for (int j = 0; j < T + (K - 1) / S; j++) {
            LANES_UNROLL
            for (int s = 0; s < 2; s++) {
                const int i = j * S + s;
                if (s >= S || i >= columns)
                    break;
                const bool is_there = i >= left && i < columns - right;
                const vec v = is_there ? vec_load(l.x + (at + i * 16)) : (vec){0};
                LANES_UNROLL
                for (int k = i % S; k < K; k += S)
                    if (i >= k && (i - k) / S < T)
                        sum[(i - k) / S] = vec_fma(factor[k], v, sum[(i - k) / S]);
            }
        }
        at += x_row;
        l.w += w_row;
    }
    LANES_UNROLL
    for (int t = 0; t < T; t++, out += out_t)
        vec_store(out, sum[t]);
}

/* What is missing at the right of an even side, by stride 2; of an odd one, and by stride 1, it is half a kernel. */
LANES_INLINE int lanes_depth_even(const int K, const int S)
{
    return K / 2 - (S == 2);
}

/* The last tile overlaps the one before it. Where columns are missing they are mostly half of a kernel. */
LANES_INLINE void lanes_depth_tiles(const lanes_depth_plane *p, lanes_depth_line l, const int K,
                                    const int S, const int T)
{
    const int reach = (T - 1) * S + K, n = p->columns.n;
    const int half = K / 2, even = lanes_depth_even(K, S);
    for (int t = 0; t < n; t += T) {
        const int t0 = t + T <= n ? t : n - T, first = p->columns.first + t0 * S;
        const int over = first + reach - p->columns.size;
        if (first >= 0 && over <= 0)
            lanes_depth_tile(p, l, t0, K, S, T, 0, 0);
        else if (first == -half && over <= 0)
            lanes_depth_tile(p, l, t0, K, S, T, half, 0);
        else if (first >= 0 && over == even)
            lanes_depth_tile(p, l, t0, K, S, T, 0, even);
        else if (first >= 0 && over == half)
            lanes_depth_tile(p, l, t0, K, S, T, 0, half);
        else if (first == -half && over == half)
            lanes_depth_tile(p, l, t0, K, S, T, half, half);
        else
            for (int k = t0; k < t0 + T; k++)
                lanes_depth_one(p, l, k);
    }
}

/* K 0: of any taps. */
LANES_INLINE void lanes_depth_run(const lanes_depth_plane *p, const int K, const int S, const int T)
{
    for (int row = 0; row < p->rows.n; row++) {
        const lanes_depth_side *r = &p->rows;
        const int top = r->first + row * r->step;
        int from, to;
        ls_lanes_taps_inside(top, r->taps, r->apart, r->size, &from, &to);
        const ptrdiff_t y = (ptrdiff_t)top + (ptrdiff_t)from * r->apart;
        for (int lane = 0; lane < 16; lane += LANES_VEC) {
            const lanes_depth_line l = {to - from, p->x + y * p->columns.size * 16 + lane,
                                        p->w + from * p->w_row, p->out + row * p->out_row + lane};
            if (K)
                lanes_depth_tiles(p, l, K, S, T);
            for (int t = 0; !K && t < p->columns.n; t++)
                lanes_depth_one(p, l, t);
        }
    }
}

typedef void lanes_depth_fn(const lanes_depth_plane *p);

#define LANES_DEPTH(K, S, T)                                                                       \
    static void lanes_depth_##K##_##S##_##T(const lanes_depth_plane *p)                            \
    {                                                                                              \
        lanes_depth_run(p, K, S, T);                                                               \
    }
#define LANES_DEPTH_EACH(K, S) LANES_DEPTH(K, S, 4) LANES_DEPTH(K, S, 7) LANES_DEPTH(K, S, 8)

/* clang-format off */
LANES_DEPTH(0, 0, 0)
LANES_DEPTH_EACH(1, 1) LANES_DEPTH_EACH(2, 1) LANES_DEPTH_EACH(3, 1) LANES_DEPTH_EACH(5, 1)
LANES_DEPTH_EACH(3, 2) LANES_DEPTH_EACH(5, 2)
/* clang-format on */

#define LANES_DEPTH_LIST(K, S)                                                                     \
    {                                                                                              \
        lanes_depth_##K##_##S##_4, lanes_depth_##K##_##S##_7, lanes_depth_##K##_##S##_8            \
    }

    /* The width of tiles, 0 … 2, by which n columns take the fewest of them, each as dear as one column more; 3:
     * there are too few. */
    LANES_INLINE int lanes_depth_width(int n)
{
    static const int width[] = {4, 7, 8};
    int best = 3, least = 0;
    for (int i = 0; i < 3 && width[i] <= n; i++) {
        const int cost = (n + width[i] - 1) / width[i] * (width[i] + 1);
        if (best == 3 || cost <= least) {
            best = i;
            least = cost;
        }
    }
    return best;
}

LANES_INLINE lanes_depth_fn *lanes_depth_of(const lanes_depth_side *c)
{
    static lanes_depth_fn *const table[2][6][3] = {
        {[1] = LANES_DEPTH_LIST(1, 1),
         [2] = LANES_DEPTH_LIST(2, 1),
         [3] = LANES_DEPTH_LIST(3, 1),
         [5] = LANES_DEPTH_LIST(5, 1)},
        {[3] = LANES_DEPTH_LIST(3, 2), [5] = LANES_DEPTH_LIST(5, 2)}};
    const int width = lanes_depth_width(c->n);
    const bool fits = (c->apart == 1 || c->taps == 1) && c->taps <= 5 && c->step <= 2 && width < 3;
    lanes_depth_fn *found = fits ? table[c->step - 1][c->taps][width] : NULL;
    return found ? found : lanes_depth_0_0_0;
}

/* ---- y --------------------------------------------------------------------------------------- */

static void lanes_depth_forward(const ls_lanes_depth *d, const float *x, const float *w,
                                const float *b, float *y)
{
    const ls_conv2d *k = &d->k;
    const lanes_depth_plane p = {.rows = {k->kh, -k->ph, k->sh, k->dh, d->ih, d->oh},
                                 .columns = {k->kw, -k->pw, k->sw, k->dw, d->iw, d->ow},
                                 .init = b ? *b : 0,
                                 .x = x,
                                 .w = w,
                                 .w_row = k->kw,
                                 .w_tap = 1,
                                 .out = y,
                                 .out_row = (ptrdiff_t)d->ow * 16,
                                 .out_t = 16};
    lanes_depth_of (&p.columns)(&p);
}

/* ---- dx -------------------------------------------------------------------------------------- */

/* How every `stride`-th pixel of x from `phase` on gets its gradient along one side, of `size` pixels: from `tap` of
 * the weights on, back by `less`. */
typedef struct lanes_depth_phase {
    lanes_depth_side side;
    int tap, less;
} lanes_depth_phase;

LANES_INLINE lanes_depth_phase lanes_depth_phase_of(int phase, int padding, int kernel, int stride,
                                                    int dilation, int size, int pixels)
{
    lanes_depth_phase s = {.side = {.step = 1, .size = size}, .less = 1};
    int tap = 0;
    s.side.n = (pixels - phase + stride - 1) / stride;
    while (s.less * dilation % stride)
        s.less++;
    s.side.apart = s.less * dilation / stride;
    while (tap < kernel && tap < s.less && (phase + padding - tap * dilation) % stride)
        tap++;
    if (tap >= kernel || tap >= s.less)
        return s;
    s.side.taps = (kernel - 1 - tap) / s.less + 1;
    s.tap = tap + (s.side.taps - 1) * s.less;
    s.side.first = (phase + padding - s.tap * dilation) / stride;
    return s;
}

static void lanes_depth_data(const ls_lanes_depth *d, const float *dy, const float *w, float *dx)
{
    const ls_conv2d *k = &d->k;
    for (int row = 0; row < k->sh && row < d->ih; row++)
        for (int column = 0; column < k->sw && column < d->iw; column++) {
            const lanes_depth_phase r =
                lanes_depth_phase_of(row, k->ph, k->kh, k->sh, k->dh, d->oh, d->ih);
            const lanes_depth_phase c =
                lanes_depth_phase_of(column, k->pw, k->kw, k->sw, k->dw, d->ow, d->iw);
            const lanes_depth_plane p = {.rows = r.side,
                                         .columns = c.side,
                                         .x = dy,
                                         .w = w + (ptrdiff_t)r.tap * k->kw + c.tap,
                                         .w_row = -(ptrdiff_t)r.less * k->kw,
                                         .w_tap = -c.less,
                                         .out = dx + ((ptrdiff_t)row * d->iw + column) * 16,
                                         .out_row = (ptrdiff_t)k->sh * d->iw * 16,
                                         .out_t = (ptrdiff_t)k->sw * 16};
            lanes_depth_of (&p.columns)(&p);
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

/* n results' part, with C sums of each tap, in turns: more than the latency of an addition takes. Of the first and the
 * last of their columns `left` and `right` are missing; S 0: of any step, and any may be. */
LANES_INLINE void lanes_depth_add(vec sum[5][4], const lanes_depth_band *b, const float *x,
                                  const float *dy, int t0, const int n, const int K, const int S,
                                  const int C, const int left, const int right)
{
    const int columns = (n - 1) * S + K, step = S ? S : b->step, column = b->first + t0 * step;
    const ptrdiff_t first = (ptrdiff_t)column * 16;
    dy += (ptrdiff_t)t0 * 16;
    LANES_UNROLL
    for (int t = 0; t < n; t++) {
        const vec g = vec_load(dy + t * 16);
        LANES_UNROLL
        for (int k = 0; k < K; k++) {
            const int i = t * S + k, at = column + t * step + k;
            const bool is_there = S ? i >= left && i < columns - right : at >= 0 && at < b->width;
            const vec v = is_there ? vec_load(x + (first + (t * step + k) * 16)) : (vec){0};
            sum[k][t % C] = vec_fma(g, v, sum[k][t % C]);
        }
    }
}

/* The same, with nothing missing at the end, or as much as of an even or an odd side. */
LANES_INLINE void lanes_depth_end(vec sum[5][4], const lanes_depth_band *b, const float *x,
                                  const float *dy, int t0, const int n, const int K, const int S,
                                  const int C, const int right)
{
    const int even = lanes_depth_even(K, S);
    if (right > even)
        lanes_depth_add(sum, b, x, dy, t0, n, K, S, C, 0, K / 2);
    else if (right > 0)
        lanes_depth_add(sum, b, x, dy, t0, n, K, S, C, 0, even);
    else
        lanes_depth_add(sum, b, x, dy, t0, n, K, S, C, 0, 0);
}

/* All rows, of n results each, in fours; nothing is missing on either side, or half a kernel on the left, or on the right
 * what may be (lanes_depth_end). */
LANES_INLINE void lanes_depth_rows(vec sum[5][4], const lanes_depth_band *b, int lane, const int K,
                                   const int S, const int C, const int n, const bool left,
                                   const int right)
{
    const int rest = n % 4, last = rest ? rest : 4;
    for (int row = 0; row < b->rows; row++) {
        const float *x = b->x + row * b->x_row + lane, *dy = b->dy + row * b->dy_row + lane;
        if (left)
            lanes_depth_add(sum, b, x, dy, 0, 4, K, S, C, K / 2, 0);
        for (int t = left ? 4 : 0; t < n - last; t += 4)
            lanes_depth_add(sum, b, x, dy, t, 4, K, S, C, 0, 0);
        if (rest == 0)
            lanes_depth_end(sum, b, x, dy, n - 4, 4, K, S, C, right);
        if (rest == 1)
            lanes_depth_end(sum, b, x, dy, n - 1, 1, K, S, C, right);
        if (rest == 2)
            lanes_depth_end(sum, b, x, dy, n - 2, 2, K, S, C, right);
        if (rest == 3)
            lanes_depth_end(sum, b, x, dy, n - 3, 3, K, S, C, right);
    }
}

/* Rows of seven, the end of many a network, have a loop of their own. */
LANES_INLINE void lanes_depth_band_run(const lanes_depth_band *b, const int K, const int S,
                                       const int C)
{
    const int half = K / 2, n = b->n, last = (n - 1) % 4 + 1;
    const int left = -b->first, right = b->first + (n - 1) * b->step + K - b->width;
    const bool known =
        S && n > 4 && (left == 0 || left == half) &&
        (right <= 0 || ((right == half || right == lanes_depth_even(K, S)) && last * S >= half));
    for (int lane = 0; lane < 16; lane += LANES_VEC) {
        vec sum[5][4] = {{{0}}};
        if (known && n == 7 && left > 0 && (right > 0) == (S == 1))
            lanes_depth_rows(sum, b, lane, K, S, C, 7, true, S == 1 ? half : 0);
        else if (known)
            lanes_depth_rows(sum, b, lane, K, S, C, n, left > 0, right);
        else
            lanes_depth_rows(sum, b, lane, K, 0, C, n, false, 0);
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
    int from, to;
    ls_lanes_results_inside(up, k->sh, d->ih, y0, y1, &from, &to);
    if (from == to)
        return;
    b->rows = to - from;
    b->x = x + ((ptrdiff_t)from * k->sh - up) * d->iw * 16;
    b->dy = dy + (ptrdiff_t)from * d->ow * 16;
    b->first = -k->pw;
    b->sums = sums;
    const bool fits = k->dw == 1 && k->sw <= 2 && k->pw < k->kw;
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
    memset(sums, 0, (size_t)(k->kh * k->kw + 15) / 16 * 16 * 16 * sizeof *sums);
    for (int g = 0; g < groups; g++, x += x_group, dy += dy_group)
        for (int y = 0; y < d->oh; y += rows)
            for (int ky = 0; ky < k->kh; ky++)
                lanes_depth_weight_row(d, &b, x, dy, ky, y, y + rows < d->oh ? y + rows : d->oh,
                                       sums + (ptrdiff_t)ky * k->kw * 16);
    lanes_sum_lanes(gw, sums, k->kh * k->kw, add);
}

#endif
