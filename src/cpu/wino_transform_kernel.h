/* Winograd's transforms of images and weights, in both directions. See wino.h. */
#ifndef CPU_WINO_TRANSFORM_KERNEL_H
#define CPU_WINO_TRANSFORM_KERNEL_H

#include "cpu/lanes_vec.h"
#include "cpu/wino.h"

/* ---- in one direction ------------------------------------------------------------------------ */

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

/* ---- in both --------------------------------------------------------------------------------- */

typedef void wino_1d(vec *to, const vec *from, int m);

/* A square of vectors: `line` floats from one line to the next, `pixel` from one to the next. */
typedef struct wino_square {
    float *p;
    size_t line, pixel;
} wino_square;

/* `to` × `to` ← `from` × `from`: columns first, then lines. */
LANES_INLINE void wino_2d(wino_square out, const wino_square in, wino_1d *transform, const int to,
                          const int from, const int m)
{
    vec half[WINO_VALUES_MOST][WINO_VALUES_MOST];
    LANES_UNROLL
    for (int x = 0; x < from; x++) {
        vec a[WINO_VALUES_MOST], b[WINO_VALUES_MOST];
        LANES_UNROLL
        for (int y = 0; y < from; y++)
            a[y] = vec_load(in.p + (size_t)y * in.line + (size_t)x * in.pixel);
        transform(b, a, m);
        LANES_UNROLL
        for (int y = 0; y < to; y++)
            half[y][x] = b[y];
    }
    LANES_UNROLL
    for (int y = 0; y < to; y++) {
        vec b[WINO_VALUES_MOST];
        transform(b, half[y], m);
        LANES_UNROLL
        for (int x = 0; x < to; x++)
            vec_store(out.p + (size_t)y * out.line + (size_t)x * out.pixel, b[x]);
    }
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Where a tile is. */
typedef struct wino_place {
    int row, y, x;
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
    at->row++;
}

/* The pixels of side × side from (y, x) on of one block of channels: where they are, or, when not
 * all of them exist, a copy in `patch` with zeros for the others. */
LANES_INLINE wino_square wino_pixels(const ls_wino_image *image, const float *plane, int y, int x,
                                     float *patch, const int side)
{
    int top = y < 0 ? -y : 0, left = x < 0 ? -x : 0;
    int bottom = image->h - y < side ? image->h - y : side;
    int right = image->w - x < side ? image->w - x : side;
    ptrdiff_t line = (ptrdiff_t)image->w * 16, start = y * line + x * 16;
    if (!top && !left && bottom == side && right == side)
        return (wino_square){(float *)plane + start, (size_t)line, 16};
    LANES_UNROLL
    for (int i = 0; i < side * side * 16; i += LANES_VEC)
        vec_store(patch + i, (vec){0});
    for (int j = top; j < bottom; j++)
        for (int i = left * 16; i < right * 16; i += LANES_VEC)
            vec_store(patch + j * side * 16 + i, vec_load(plane + (start + j * line + i)));
    return (wino_square){patch, (size_t)side * 16, 16};
}

/* Pixels of `side` × `side`, a tile every m of them, to values. */
LANES_INLINE void wino_to_values(float *values, size_t point, int tiles, const ls_wino_image *image,
                                 const float *x, int first, int count, wino_1d *transform,
                                 const int side, const int m)
{
    float patch[WINO_VALUES_MOST * WINO_VALUES_MOST * 16] __attribute__((aligned(64)));
    size_t plane = (size_t)image->h * (size_t)image->w * 16;
    for (int block = 0; block < image->blocks; block++) {
        wino_place at = wino_place_of(image, first);
        float *to = values + (size_t)block * (size_t)tiles * 16;
        for (int t = 0; t < count; t++, to += 16, wino_next(image, &at)) {
            const float *from =
                x + ((size_t)at.row * (size_t)image->blocks + (size_t)block) * plane;
            wino_square in = wino_pixels(image, from, at.y * m - image->top, at.x * m - image->left,
                                         patch, side);
            wino_square out = {to, point * (size_t)(m + 2), point};
            for (int part = 0; part < LANES_PARTS; part++) {
                wino_2d(out, in, transform, m + 2, side, m);
                in.p += LANES_VEC;
                out.p += LANES_VEC;
            }
        }
    }
}

/* Adds the bias and clips what is not part of the image. */
LANES_INLINE void wino_put(float *plane, const ls_wino_image *image, wino_place at,
                           const float *tile, const float *bias, int relu, const int m)
{
    int down = image->h - at.y * m, across = image->w - at.x * m;
    float *to = plane + ((size_t)(at.y * m) * (size_t)image->w + (size_t)(at.x * m)) * 16;
    for (int y = 0; y < m && y < down; y++, to += (size_t)image->w * 16) {
        for (int x = 0; x < m && x < across; x++) {
            LANES_UNROLL
            for (int part = 0; part < 16; part += LANES_VEC) {
                vec v = vec_load(tile + (y * m + x) * 16 + part);
                if (bias)
                    v += *(const vec_unaligned *)(bias + part);
                vec_store(to + x * 16 + part, relu ? vec_relu(v) : v);
            }
        }
    }
}

LANES_INLINE void wino_from_values(float *y, const ls_wino_image *image, const float *values,
                                   size_t point, int tiles, int first, int count, const float *bias,
                                   int relu, const int m)
{
    float tile[4 * 4 * 16] __attribute__((aligned(64)));
    size_t plane = (size_t)image->h * (size_t)image->w * 16;
    for (int block = 0; block < image->blocks; block++) {
        wino_place at = wino_place_of(image, first);
        const float *from = values + (size_t)block * (size_t)tiles * 16;
        const float *b = bias ? bias + block * 16 : NULL;
        for (int t = 0; t < count; t++, from += 16, wino_next(image, &at)) {
            wino_square in = {(float *)from, point * (size_t)(m + 2), point};
            wino_square out = {tile, (size_t)m * 16, 16};
            for (int part = 0; part < LANES_PARTS; part++) {
                wino_2d(out, in, wino_output_1d, m, m + 2, m);
                in.p += LANES_VEC;
                out.p += LANES_VEC;
            }
            wino_put(y + ((size_t)at.row * (size_t)image->blocks + (size_t)block) * plane, image,
                     at, tile, b, relu, m);
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

LANES_INLINE void wino_weights(float *values, size_t point, const float *weights, int from,
                               size_t step, int turn, const int m)
{
    for (int i = 0; i < from; i++, weights += step, values += 256)
        for (int lane = 0; lane < 256; lane += LANES_VEC) {
            float tap[9 * LANES_VEC] __attribute__((aligned(64)));
            LANES_UNROLL
            for (int k = 0; k < 9; k++)
                vec_store(tap + k * LANES_VEC, vec_load(weights + (turn ? 8 - k : k) * 256 + lane));
            wino_2d((wino_square){values + lane, point * (size_t)(m + 2), point},
                    (wino_square){tap, (size_t)3 * LANES_VEC, LANES_VEC}, wino_weights_1d, m + 2, 3,
                    m);
        }
}

LANES_INLINE void wino_gradient(float *weights, const float *values, size_t point, int from,
                                const int m)
{
    for (int i = 0; i < from; i++, weights += 9 * 256, values += 256)
        for (int lane = 0; lane < 256; lane += LANES_VEC)
            wino_2d((wino_square){weights + lane, (size_t)3 * 256, 256},
                    (wino_square){(float *)values + lane, point * (size_t)(m + 2), point},
                    wino_gradient_1d, 3, m + 2, m);
}

/* ---- both sizes ------------------------------------------------------------------------------ */

#define WINO_TRANSFORMS(m)                                                                         \
    static void wino_weights_##m(float *values, size_t point, const float *weights, int from,      \
                                 size_t step, int turn)                                            \
    {                                                                                              \
        wino_weights(values, point, weights, from, step, turn, m);                                 \
    }                                                                                              \
    static void wino_input_##m(float *values, size_t point, int tiles, const ls_wino_image *image, \
                               const float *x, int first, int count)                               \
    {                                                                                              \
        wino_to_values(values, point, tiles, image, x, first, count, wino_input_1d, (m) + 2, m);   \
    }                                                                                              \
    static void wino_output_##m(float *y, const ls_wino_image *image, const float *values,         \
                                size_t point, int tiles, int first, int count, const float *bias,  \
                                int relu)                                                          \
    {                                                                                              \
        wino_from_values(y, image, values, point, tiles, first, count, bias, relu, m);             \
    }                                                                                              \
    static void wino_error_##m(float *values, size_t point, int tiles, const ls_wino_image *image, \
                               const float *dy, int first, int count)                              \
    {                                                                                              \
        wino_to_values(values, point, tiles, image, dy, first, count, wino_error_1d, m, m);        \
    }                                                                                              \
    static void wino_gradient_##m(float *weights, const float *values, size_t point, int from)     \
    {                                                                                              \
        wino_gradient(weights, values, point, from, m);                                            \
    }

WINO_TRANSFORMS(2)
WINO_TRANSFORMS(4)

#endif
