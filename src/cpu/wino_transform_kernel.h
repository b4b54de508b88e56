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
 * the point ∞ to the inputs. n = 7 is F(2, 5) in halves: three weights at 0, 1, −1 and ∞, and the other
 * two, with pixels three further on, at 0, 1 and ∞. */

#define WINO_VALUES_MOST 7

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
    if (n == 4 || n == 7) {
        v[0] = d[0] - d[2];
        v[1] = d[1] + d[2];
        v[2] = d[2] - d[1];
        v[3] = d[1] - d[3];
        if (n == 4)
            return;
        v[4] = d[3] - d[4];
        v[5] = d[4];
        v[6] = d[5] - d[4];
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

/* `n` pixels ← as many values: what each pixel gave to them, the other way round. */
LANES_INLINE void wino_spread_1d(vec *d, const vec *v, const int n, const int r)
{
    (void)r;
    if (n == 4) {
        d[0] = v[0];
        d[1] = v[1] - v[2] + v[3];
        d[2] = v[1] + v[2] - v[0];
        d[3] = -v[3];
        return;
    }
    vec even_a = v[1] + v[2], odd_a = WINO_A * (v[1] - v[2]);
    vec even_b = v[3] + v[4], odd_b = WINO_B * (v[3] - v[4]);
    d[0] = WINO_A2 * WINO_B2 * v[0];
    d[1] = wino_add(WINO_A2 * WINO_B2, v[5], wino_two(-WINO_B2, odd_a, -WINO_A2, odd_b));
    d[2] = wino_add(-(WINO_A2 + WINO_B2), v[0], wino_two(-WINO_B2, even_a, -WINO_A2, even_b));
    d[3] = wino_add(-(WINO_A2 + WINO_B2), v[5], odd_a + odd_b);
    d[4] = v[0] + (even_a + even_b);
    d[5] = v[5];
}

/* `n` values ← r weights. */
LANES_INLINE void wino_weights_1d(vec *v, const vec *g, const int n, const int r)
{
    if (n == 4 || n == 7) {
        vec even = g[0] + g[2], odd = 0.5f * g[1];
        v[0] = g[0];
        v[1] = wino_add(0.5f, even, odd);
        v[2] = wino_add(0.5f, even, -odd);
        v[3] = g[2];
        if (n == 4)
            return;
        v[4] = g[3];
        v[5] = g[3] + g[4];
        v[6] = g[4];
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
    if (n == 4 || n == 7) {
        y[0] = v[0] + v[1] + v[2];
        y[1] = v[1] - v[2] - v[3];
        if (n == 4)
            return;
        y[0] += v[4] + v[5];
        y[1] += v[5] + v[6];
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

/* The same of all lanes. */
LANES_INLINE void wino_2d_all(wino_square out, wino_square in, wino_1d *transform, const int to,
                              const int from, const int n, const int r)
{
    for (int part = 0; part < LANES_PARTS; part++) {
        wino_2d(out, in, transform, to, from, n, r);
        in.p += LANES_VEC;
        out.p += LANES_VEC;
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

/* Asks for the pixels of side × side from (y, x) on that exist; `write`: a constant. */
LANES_INLINE void wino_ask(const ls_wino_image *image, const float *plane, int y, int x,
                           const int side, const int write)
{
    const int bottom = image->h - y < side ? image->h - y : side;
    const int right = image->w - x < side ? image->w - x : side;
    for (int j = y < 0 ? -y : 0; j < bottom; j++) {
        const float *line = plane + (ptrdiff_t)(y + j) * (ptrdiff_t)image->line + (ptrdiff_t)x * 16;
        for (int i = x < 0 ? -x : 0; i < right; i++)
            if (write)
                __builtin_prefetch(line + i * 16, 1);
            else
                __builtin_prefetch(line + i * 16, 0);
    }
}

/* Pixels of `side` × `side`, a tile every m of them, to values. */
LANES_INLINE void wino_to_values(float *values, int tiles, const ls_wino_image *image,
                                 const float *x, int first, int count, wino_1d *transform,
                                 const int side, const int m, const int r, const int n)
{
    const size_t tile = (size_t)(n * n | 1) * 16;
    float patch[WINO_VALUES_MOST * WINO_VALUES_MOST * 16] __attribute__((aligned(64)));
    for (int channel = image->from; channel < image->to; channel++) {
        wino_place at = wino_place_of(image, first);
        float *to = values + (size_t)channel * (size_t)tiles * tile;
        for (int t = 0; t < count; t++, to += tile, wino_next(image, &at)) {
            const float *from =
                x + (size_t)at.group * image->group + (size_t)channel * image->channel;
            const int top = at.y * m - image->top, left = at.x * m - image->left;
            wino_square in = wino_pixels(image, from, top, left, patch, side);
            if (channel + 1 < image->channels)
                wino_ask(image, from + image->channel, top, left, side, 0);
            wino_2d_all((wino_square){to, (size_t)n * 16, 16}, in, transform, n, side, n, r);
        }
    }
}

/* Sixteen outputs (or the last few) of a tile of m × m pixels from (y, x) on, those that exist, turned: [m][m][lane][16]. */
LANES_INLINE void wino_turn(float *turned, const ls_wino_image *image, const float *dy, int outputs,
                            int y, int x, const int m)
{
    const int right = image->w - x < m ? image->w - x : m;
    if (right < m || image->h - y < m)
        memset(turned, 0, (size_t)(m * m) * 256 * sizeof *turned);
    for (int j = 0; j < m && y + j < image->h; j++)
        lanes_panel(turned + j * m * 256,
                    dy + (ptrdiff_t)(y + j) * (ptrdiff_t)image->line + (ptrdiff_t)x * 16, outputs,
                    image->channel, right, 16);
}

/* Pixels are turned, and not the more values that they come to. */
LANES_INLINE void wino_panels(float *panels, size_t point, const ls_wino_image *image,
                              const float *dy, int first, int count, const int m, const int r,
                              const int n)
{
    float turned[4 * 4 * 256] __attribute__((aligned(64)));
    for (int o = image->from; o < image->to; o += 16) {
        wino_place at = wino_place_of(image, first);
        for (int t = 0; t < count; t++, panels += 256, wino_next(image, &at)) {
            const float *from = dy + (size_t)at.group * image->group + (size_t)o * image->channel;
            wino_turn(turned, image, from, image->to - o < 16 ? image->to - o : 16, at.y * m,
                      at.x * m, m);
            for (int k = 0; k < 256; k += LANES_VEC)
                wino_2d((wino_square){panels + k, (size_t)n * point, point},
                        (wino_square){turned + k, (size_t)m * 256, 256}, wino_error_1d, n, m, n, r);
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
                                   const int m, const int r, const int n)
{
    const int unit = f->pool ? 2 : 1;
    const size_t plane = (size_t)image->h * (size_t)image->w; /* of the mask */
    const size_t step = (size_t)(n * n | 1) * 16;
    float tile[4 * 4 * 16] __attribute__((aligned(64)));
    for (int channel = image->from; channel < image->to; channel++) {
        wino_place at = wino_place_of(image, first);
        const float *from = values + (size_t)channel * (size_t)tiles * step;
        for (int t = 0; t < count; t++, from += step, wino_next(image, &at)) {
            wino_2d_all((wino_square){tile, (size_t)m * 16, 16},
                        (wino_square){(float *)from, (size_t)n * 16, 16}, wino_output_1d, m, n, n,
                        r);
            const int row = at.y * m, column = at.x * m;
            if (!f->pool && channel + 1 < image->channels)
                wino_ask(image,
                         y + (size_t)at.group * image->group +
                             (size_t)(channel + 1) * image->channel,
                         row, column, m, 1);
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

/* Adds a tile of `n` × `n` to pixels from (y, x) on, those that exist. */
LANES_INLINE void wino_give(const ls_wino_image *image, float *plane, int y, int x,
                            const float *tile, const int n)
{
    const int bottom = image->h - y < n ? image->h - y : n;
    const int right = image->w - x < n ? image->w - x : n;
    for (int j = y < 0 ? -y : 0; j < bottom; j++)
        for (int i = x < 0 ? -x : 0; i < right; i++) {
            float *to = plane + (ptrdiff_t)(y + j) * (ptrdiff_t)image->line + (x + i) * 16;
            const float *from = tile + (j * n + i) * 16;
            LANES_UNROLL
            for (int part = 0; part < 16; part += LANES_VEC)
                vec_store(to + part, vec_load(to + part) + vec_load(from + part));
        }
}

LANES_INLINE void wino_spread(float *dx, const ls_wino_image *image, const float *values, int tiles,
                              int first, int count, const int m, const int n)
{
    const size_t step = (size_t)(n * n | 1) * 16;
    float tile[WINO_VALUES_MOST * WINO_VALUES_MOST * 16] __attribute__((aligned(64)));
    for (int channel = image->from; channel < image->to; channel++) {
        wino_place at = wino_place_of(image, first);
        const float *from = values + (size_t)channel * (size_t)tiles * step;
        for (int t = 0; t < count; t++, from += step, wino_next(image, &at)) {
            float *plane = dx + (size_t)at.group * image->group + (size_t)channel * image->channel;
            wino_2d_all((wino_square){tile, (size_t)n * 16, 16},
                        (wino_square){(float *)from, (size_t)n * 16, 16}, wino_spread_1d, n, n, n,
                        0);
            if (at.y == 0 && at.x == 0)
                memset(plane, 0, (size_t)image->h * image->line * sizeof *plane);
            wino_give(image, plane, at.y * m - image->top, at.x * m - image->left, tile, n);
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
    return __builtin_shufflevector(low, high, LANES_LOW, LANES_HIGH);
#else
    (void)next;
    (void)exists;
    return vec_load(p);
#endif
}

LANES_INLINE void wino_weights(float *values, size_t point, const float *weights, int from,
                               int turn, const int r, const int n)
{
    const int taps = r * r;
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
                                int from, int outputs, int add, const int r, const int n)
{
    const int taps = r * r;
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

#define WINO_FORWARD(form, m, r, n)                                                                \
    static void wino_weights_##form(float *values, size_t point, const float *weights, int from,   \
                                    int turn)                                                      \
    {                                                                                              \
        wino_weights(values, point, weights, from, turn, r, n);                                    \
    }                                                                                              \
    static void wino_input_##form(float *values, int tiles, const ls_wino_image *image,            \
                                  const float *x, int first, int count)                            \
    {                                                                                              \
        wino_to_values(values, tiles, image, x, first, count, wino_input_1d, (m) + (r)-1, m, r,    \
                       n);                                                                         \
    }                                                                                              \
    static void wino_output_##form(float *y, const ls_wino_image *image, const float *values,      \
                                   int tiles, int first, int count, const ls_wino_finish *finish)  \
    {                                                                                              \
        wino_from_values(y, image, values, tiles, first, count, finish, m, r, n);                  \
    }

#define WINO_BACKWARD(form, m, r, n)                                                               \
    static void wino_error_##form(float *values, int tiles, const ls_wino_image *image,            \
                                  const float *dy, int first, int count)                           \
    {                                                                                              \
        wino_to_values(values, tiles, image, dy, first, count, wino_error_1d, m, m, r, n);         \
    }                                                                                              \
    static void wino_spread_##form(float *dx, const ls_wino_image *image, const float *values,     \
                                   int tiles, int first, int count)                                \
    {                                                                                              \
        wino_spread(dx, image, values, tiles, first, count, m, n);                                 \
    }                                                                                              \
    static void wino_panels_##form(float *panels, size_t point, const ls_wino_image *image,        \
                                   const float *dy, int first, int count)                          \
    {                                                                                              \
        wino_panels(panels, point, image, dy, first, count, m, r, n);                              \
    }                                                                                              \
    static void wino_gradient_##form(float *weights, size_t eight, const float *values,            \
                                     size_t point, int from, int outputs, int add)                 \
    {                                                                                              \
        wino_gradient(weights, eight, values, point, from, outputs, add, r, n);                    \
    }

WINO_FORWARD(2_3, 2, 3, 4)
WINO_FORWARD(4_3, 4, 3, 6)
WINO_FORWARD(2_5, 2, 5, 6)
WINO_FORWARD(2_5_halves, 2, 5, 7)
WINO_BACKWARD(2_3, 2, 3, 4)
WINO_BACKWARD(4_3, 4, 3, 6)
WINO_BACKWARD(2_5, 2, 5, 6)

#endif
