/* Winograd's transforms of images and weights, in both directions. See wino.h. */
#ifndef CPU_WINO_TRANSFORM_KERNEL_H
#define CPU_WINO_TRANSFORM_KERNEL_H

#include "cpu/lanes_panel_kernel.h"
#include "cpu/wino.h"

/* ---- in one direction ------------------------------------------------------------------------ */

/* Winograd's transforms in one direction, of n = m + r − 1 values; `n` and `r` are constants wherever these
 * are used. With the points p, n − 2 of them finite and beside 0, and N(p) = Π (p − q) over the other
 * finite points q:
 *
 *     inputs     values at p: the coefficients of Π (x − q); at ∞: of Π (x − q) over all
 *     weights    (g0 + g1·p + g2·p² + …) / N(p); at ∞ the last one
 *     outputs    y_i = Σ p^i · value(p), to the last one that at ∞
 *
 * A gradient's transforms are these transposed. For n = 4, 1/N goes as ½ to weights and the sign of
 * the point ∞ to the inputs. */

#define WINO_VALUES_MOST 6

/* The points ±A and ±B for n = 6, by whose choice rounding errors are half those of ±1 and ±2. */
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

/* `n` = m + r − 1 values ← as many pixels. */
LANES_INLINE void wino_input_1d(vec *v, const vec *d, const int n, const int r)
{
    (void)r;
    if (n == 4) {
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

/* `n` values ← r weights. */
LANES_INLINE void wino_weights_1d(vec *v, const vec *g, const int n, const int r)
{
    if (n == 4) {
        vec even = g[0] + g[2], odd = 0.5f * g[1];
        v[0] = g[0];
        v[1] = wino_add(0.5f, even, odd);
        v[2] = wino_add(0.5f, even, -odd);
        v[3] = g[2];
        return;
    }
    vec even_a = wino_two(WINO_NA, g[0], WINO_NA * WINO_A2, g[2]), odd_a = g[1];
    vec even_b = wino_two(WINO_NB, g[0], WINO_NB * WINO_B2, g[2]), odd_b = g[1];
    if (r == 5) {
        even_a = wino_add(WINO_NA * WINO_A2 * WINO_A2, g[4], even_a);
        even_b = wino_add(WINO_NB * WINO_B2 * WINO_B2, g[4], even_b);
        odd_a = wino_add(WINO_A2, g[3], odd_a);
        odd_b = wino_add(WINO_B2, g[3], odd_b);
    }
    v[0] = WINO_N0 * g[0];
    v[1] = wino_add(WINO_NA * WINO_A, odd_a, even_a);
    v[2] = wino_add(-WINO_NA * WINO_A, odd_a, even_a);
    v[3] = wino_add(WINO_NB * WINO_B, odd_b, even_b);
    v[4] = wino_add(-WINO_NB * WINO_B, odd_b, even_b);
    v[5] = g[r - 1];
}

/* m outputs ← `n` values. */
LANES_INLINE void wino_output_1d(vec *y, const vec *v, const int n, const int r)
{
    if (n == 4) {
        y[0] = v[0] + v[1] + v[2];
        y[1] = v[1] - v[2] - v[3];
        return;
    }
    vec even_a = v[1] + v[2], odd_a = v[1] - v[2], even_b = v[3] + v[4], odd_b = v[3] - v[4];
    y[0] = v[0] + (even_a + even_b);
    y[1] = wino_two(WINO_A, odd_a, WINO_B, odd_b);
    if (r == 5) {
        y[1] = v[5] + y[1];
        return;
    }
    y[2] = wino_two(WINO_A2, even_a, WINO_B2, even_b);
    y[3] = v[5] + wino_two(WINO_A2 * WINO_A, odd_a, WINO_B2 * WINO_B, odd_b);
}

/* `n` values ← the gradients of m outputs. */
LANES_INLINE void wino_error_1d(vec *v, const vec *dy, const int n, const int r)
{
    if (n == 4) {
        v[0] = dy[0];
        v[1] = dy[0] + dy[1];
        v[2] = dy[0] - dy[1];
        v[3] = -dy[1];
        return;
    }
    vec even_a = dy[0], even_b = dy[0], odd_a = WINO_A * dy[1], odd_b = WINO_B * dy[1];
    if (r == 3) {
        even_a = wino_add(WINO_A2, dy[2], dy[0]);
        even_b = wino_add(WINO_B2, dy[2], dy[0]);
        odd_a = wino_two(WINO_A, dy[1], WINO_A2 * WINO_A, dy[3]);
        odd_b = wino_two(WINO_B, dy[1], WINO_B2 * WINO_B, dy[3]);
    }
    v[0] = dy[0];
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = dy[r == 3 ? 3 : 1];
}

/* The gradients of r weights ← `n` values. */
LANES_INLINE void wino_gradient_1d(vec *g, const vec *v, const int n, const int r)
{
    if (n == 4) {
        vec even = v[1] + v[2];
        g[0] = wino_add(0.5f, even, v[0]);
        g[1] = 0.5f * (v[1] - v[2]);
        g[2] = wino_add(0.5f, even, v[3]);
        return;
    }
    vec even_a = WINO_NA * (v[1] + v[2]), even_b = WINO_NB * (v[3] + v[4]);
    vec odd_a = v[1] - v[2], odd_b = v[3] - v[4];
    g[0] = wino_add(WINO_N0, v[0], even_a + even_b);
    g[1] = wino_two(WINO_NA * WINO_A, odd_a, WINO_NB * WINO_B, odd_b);
    g[2] = wino_two(WINO_A2, even_a, WINO_B2, even_b);
    if (r == 5) {
        g[3] = wino_two(WINO_NA * WINO_A2 * WINO_A, odd_a, WINO_NB * WINO_B2 * WINO_B, odd_b);
        g[4] = wino_two(WINO_A2 * WINO_A2, even_a, WINO_B2 * WINO_B2, even_b);
    }
    g[r - 1] = v[5] + g[r - 1];
}

/* ---- in both --------------------------------------------------------------------------------- */

typedef void wino_1d(vec *to, const vec *from, int n, int r);

/* A square of vectors: `line` floats from one line to the next, `pixel` from one to the next. */
typedef struct wino_square {
    float *p;
    size_t line, pixel;
} wino_square;

/* `to` × `to` ← `from` × `from`: columns first, then lines. */
LANES_INLINE void wino_2d(wino_square out, const wino_square in, wino_1d *transform, const int to,
                          const int from, const int n, const int r)
{
    vec half[WINO_VALUES_MOST][WINO_VALUES_MOST];
    LANES_UNROLL
    for (int x = 0; x < from; x++) {
        vec a[WINO_VALUES_MOST], b[WINO_VALUES_MOST];
        LANES_UNROLL
        for (int y = 0; y < from; y++)
            a[y] = vec_load(in.p + (size_t)y * in.line + (size_t)x * in.pixel);
        transform(b, a, n, r);
        LANES_UNROLL
        for (int y = 0; y < to; y++)
            half[y][x] = b[y];
    }
    LANES_UNROLL
    for (int y = 0; y < to; y++) {
        vec b[WINO_VALUES_MOST];
        transform(b, half[y], n, r);
        LANES_UNROLL
        for (int x = 0; x < to; x++)
            vec_store(out.p + (size_t)y * out.line + (size_t)x * out.pixel, b[x]);
    }
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Where a tile is. */
typedef struct wino_place {
    int group, y, x;
} wino_place;

LANES_INLINE wino_place wino_place_of(const ls_wino_image *image, int tile)
{
    int line = tile / image->across;
    return (wino_place){line / image->down, line % image->down, tile % image->across};
}

LANES_INLINE void wino_next(const ls_wino_image *image, wino_place *at)
{
    if (++at->x < image->across)
        return;
    at->x = 0;
    if (++at->y < image->down)
        return;
    at->y = 0;
    at->group++;
}

/* The pixels of side × side from (y, x) on of one channel: where they are, or, when not
 * all of them exist, a copy in `patch` with zeros for the others. */
LANES_INLINE wino_square wino_pixels(const ls_wino_image *image, const float *plane, int y, int x,
                                     float *patch, const int side)
{
    int top = y < 0 ? -y : 0, left = x < 0 ? -x : 0;
    int bottom = image->h - y < side ? image->h - y : side;
    int right = image->w - x < side ? image->w - x : side;
    ptrdiff_t line = (ptrdiff_t)image->line, start = y * line + x * 16;
    if (!top && !left && bottom == side && right == side)
        return (wino_square){(float *)plane + start, image->line, 16};
    for (int j = 0; j < side; j++)
        for (int i = 0; i < side; i++) {
            const int exists = j >= top && j < bottom && i >= left && i < right;
            const float *from = plane + (start + j * line + i * 16);
            float *to = patch + (j * side + i) * 16;
            LANES_UNROLL
            for (int part = 0; part < 16; part += LANES_VEC)
                vec_store(to + part, exists ? vec_load(from + part) : (vec){0});
        }
    return (wino_square){patch, (size_t)side * 16, 16};
}

/* Pixels of `side` × `side`, a tile every m of them, to values. */
LANES_INLINE void wino_to_values(float *values, int tiles, const ls_wino_image *image,
                                 const float *x, int first, int count, wino_1d *transform,
                                 const int side, const int m, const int r)
{
    const int n = m + r - 1;
    const size_t tile = (size_t)(n * n + 1) * 16;
    float patch[WINO_VALUES_MOST * WINO_VALUES_MOST * 16] __attribute__((aligned(64)));
    for (int channel = image->from; channel < image->to; channel++) {
        wino_place at = wino_place_of(image, first);
        float *to = values + (size_t)channel * (size_t)tiles * tile;
        for (int t = 0; t < count; t++, to += tile, wino_next(image, &at)) {
            const float *from =
                x + (size_t)at.group * image->group + (size_t)channel * image->channel;
            wino_square in = wino_pixels(image, from, at.y * m - image->top, at.x * m - image->left,
                                         patch, side);
            wino_square out = {to, (size_t)n * 16, 16};
            for (int part = 0; part < LANES_PARTS; part++) {
                wino_2d(out, in, transform, n, side, n, r);
                in.p += LANES_VEC;
                out.p += LANES_VEC;
            }
        }
    }
}

/* Where a tile's outputs go: the places of its first one. */
typedef struct wino_target {
    float *y;
    uint8_t *mask; /* or NULL */
    float bias;
    int down, across; /* of its outputs, those that exist */
} wino_target;

LANES_INLINE vec wino_finished(const wino_target *to, const ls_wino_image *image, const float *tile,
                               int y, int x, int relu, int part, const int m)
{
    vec v = vec_load(tile + (y * m + x) * 16 + part * LANES_VEC) + vec_all(to->bias);
    if (to->mask)
        *(lanes_bits *)(to->mask + (y * image->w + x) * LANES_MASK_BYTES +
                        part * (int)sizeof(lanes_bits)) = vec_positive(v);
    return relu ? vec_relu(v) : v;
}

LANES_INLINE void wino_put(const wino_target *to, const ls_wino_image *image, const float *tile,
                           int relu, const int m)
{
    for (int y = 0; y < to->down; y++)
        for (int x = 0; x < to->across; x++)
            for (int part = 0; part < LANES_PARTS; part++)
                vec_store(to->y + (size_t)y * image->line + x * 16 + part * LANES_VEC,
                          wino_finished(to, image, tile, y, x, relu, part, m));
}

/* Averages of 2 × 2: of the image, those pixels exist that they read. */
LANES_INLINE void wino_put_pooled(const wino_target *to, const ls_wino_image *image,
                                  const float *tile, int relu, const int m)
{
    for (int y = 0; y < to->down; y += 2)
        for (int x = 0; x < to->across; x += 2)
            for (int part = 0; part < LANES_PARTS; part++) {
                vec sum[2];
                for (int i = 0; i < 2; i++)
                    sum[i] = wino_finished(to, image, tile, y + i, x, relu, part, m) +
                             wino_finished(to, image, tile, y + i, x + 1, relu, part, m);
                vec_store(to->y + (size_t)(y / 2) * image->line + x / 2 * 16 + part * LANES_VEC,
                          0.25f * (sum[0] + sum[1]));
            }
}

LANES_INLINE void wino_from_values(float *y, const ls_wino_image *image, const float *values,
                                   int tiles, int first, int count, const ls_wino_finish *f,
                                   const int m, const int r)
{
    const int n = m + r - 1, unit = f->pool ? 2 : 1;
    const size_t plane = (size_t)image->h * (size_t)image->w; /* of the mask */
    const size_t step = (size_t)(n * n + 1) * 16;
    float tile[4 * 4 * 16] __attribute__((aligned(64)));
    for (int channel = image->from; channel < image->to; channel++) {
        wino_place at = wino_place_of(image, first);
        const float *from = values + (size_t)channel * (size_t)tiles * step;
        for (int t = 0; t < count; t++, from += step, wino_next(image, &at)) {
            wino_square in = {(float *)from, (size_t)n * 16, 16};
            wino_square out = {tile, (size_t)m * 16, 16};
            for (int part = 0; part < LANES_PARTS; part++) {
                wino_2d(out, in, wino_output_1d, m, n, n, r);
                in.p += LANES_VEC;
                out.p += LANES_VEC;
            }
            const int row = at.y * m, column = at.x * m;
            wino_target to = {.bias = f->bias ? f->bias[channel] : 0};
            to.down = image->h - row < m ? image->h - row : m;
            to.across = image->w - column < m ? image->w - column : m;
            to.y = y + (size_t)at.group * image->group + (size_t)channel * image->channel +
                   (size_t)(row / unit) * image->line + (size_t)(column / unit) * 16;
            if (f->mask)
                to.mask = f->mask +
                          (((size_t)at.group * (size_t)image->channels + (size_t)channel) * plane +
                           (size_t)row * (size_t)image->w + (size_t)column) *
                              LANES_MASK_BYTES;
            if (f->pool)
                wino_put_pooled(&to, image, tile, f->relu, m);
            else
                wino_put(&to, image, tile, f->relu, m);
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* A vector has one input's weights of its eight outputs, those of two inputs, or half of one's. */
#define WINO_INPUTS (LANES_VEC > 8 ? 2 : 1)

/* The taps at `p`, of the next input as well where that is in the vector and exists. */
LANES_INLINE vec wino_taps(const float *p, ptrdiff_t next, int exists)
{
#if LANES_VEC == 16
    const lanes_eight low = *(const lanes_eight *)p;
    const lanes_eight high = *(const lanes_eight *)(exists ? p + next : p);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    (void)next;
    (void)exists;
    return vec_load(p);
#endif
}

LANES_INLINE void wino_weights(float *values, size_t point, const float *weights, int from,
                               int turn, const int m, const int r)
{
    const int n = m + r - 1, taps = r * r;
    for (int i = 0; i < from; i += WINO_INPUTS)
        for (int lane = 0; lane < 8; lane += LANES_VEC) {
            float tap[25 * LANES_VEC] __attribute__((aligned(64)));
            const float *p = weights + (ptrdiff_t)i * taps * 8 + lane;
            LANES_UNROLL
            for (int k = 0; k < taps; k++)
                vec_store(tap + k * LANES_VEC,
                          wino_taps(p + (turn ? taps - 1 - k : k) * 8, taps * 8, i + 1 < from));
            wino_2d((wino_square){values + (ptrdiff_t)i * 8 + lane, point * (size_t)n, point},
                    (wino_square){tap, (size_t)r * LANES_VEC, LANES_VEC}, wino_weights_1d, n, r, n,
                    r);
        }
}

LANES_INLINE void wino_gradient(float *weights, size_t eight, const float *values, size_t point,
                                int from, int outputs, int add, const int m, const int r)
{
    const int n = m + r - 1, taps = r * r;
    float tap[25 * 16] __attribute__((aligned(64)));
    for (int i = 0; i < from; i++, values += 16, weights += taps * 8) {
        for (int lane = 0; lane < 16; lane += LANES_VEC)
            wino_2d((wino_square){tap + lane, (size_t)r * 16, 16},
                    (wino_square){(float *)values + lane, point * (size_t)n, point},
                    wino_gradient_1d, r, n, n, r);
        for (int k = 0; k < taps; k++)
            lanes_put_sixteen(weights + k * 8, (ptrdiff_t)eight, tap + k * 16, outputs, add);
    }
}

/* ---- all forms ------------------------------------------------------------------------------- */

#define WINO_TRANSFORMS(m, r)                                                                      \
    static void wino_weights_##m##_##r(float *values, size_t point, const float *weights,          \
                                       int from, int turn)                                         \
    {                                                                                              \
        wino_weights(values, point, weights, from, turn, m, r);                                    \
    }                                                                                              \
    static void wino_input_##m##_##r(float *values, int tiles, const ls_wino_image *image,         \
                                     const float *x, int first, int count)                         \
    {                                                                                              \
        wino_to_values(values, tiles, image, x, first, count, wino_input_1d, (m) + (r)-1, m, r);   \
    }                                                                                              \
    static void wino_output_##m##_##r(float *y, const ls_wino_image *image, const float *values,   \
                                      int tiles, int first, int count,                             \
                                      const ls_wino_finish *finish)                                \
    {                                                                                              \
        wino_from_values(y, image, values, tiles, first, count, finish, m, r);                     \
    }                                                                                              \
    static void wino_error_##m##_##r(float *values, int tiles, const ls_wino_image *image,         \
                                     const float *dy, int first, int count)                        \
    {                                                                                              \
        wino_to_values(values, tiles, image, dy, first, count, wino_error_1d, m, m, r);            \
    }                                                                                              \
    static void wino_gradient_##m##_##r(float *weights, size_t eight, const float *values,         \
                                        size_t point, int from, int outputs, int add)              \
    {                                                                                              \
        wino_gradient(weights, eight, values, point, from, outputs, add, m, r);                    \
    }

WINO_TRANSFORMS(2, 3)
WINO_TRANSFORMS(4, 3)
WINO_TRANSFORMS(2, 5)

#endif
