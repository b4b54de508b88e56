/* The gradients of a convolution. */
#ifndef CPU_LANES_CONV_BWD_KERNEL_H
#define CPU_LANES_CONV_BWD_KERNEL_H

#include "cpu/lanes_conv_fwd_kernel.h"
#include "cpu/lanes_panel_kernel.h"

#include <string.h>

/* ---- of the weights -------------------------------------------------------------------------- */

/* Gradient of a convolution's weights and bias, as one sum per lane; see lanes_kernels.h.
 *
 *     for input channels
 *       for channels in fours
 *         for kernel rows, columns in tiles   J channels × T columns of sums, each a vector, over
 *                                             (group, y, x)
 *
 * Sums go to memory as vectors, [input][kh][kw][8][16]; lanes_sum_lanes then takes the sums over
 * lanes, sixteen at a time, in the order in which the weights lie.
 */

/* `height` channels by all columns of one kernel row. `tile` has the steps; `out` is where the
 * first sum goes, `d` the first channel's row y0. */
LANES_INLINE void lanes_correlate_row(const ls_lanes_conv *c, lanes_tile *tile, const float *x,
                                      const float *d, ptrdiff_t d_row, int ky, int y0, int y1,
                                      int height, float *out)
{
    int from, to;
    ls_lanes_results_inside(c->ph - ky * c->dh, c->sh, c->ih, y0, y1, &from, &to);
    const lanes_cut cut = lanes_cut_into(ls_lanes_conv_columns(c), lanes_widest(height));
    const float *line = x + (ptrdiff_t)(from * c->sh + ky * c->dh - c->ph) * c->iw * 16;
    tile->n[1] = to - from;
    for (int piece = 0; piece < cut.pieces; piece++) {
        int columns = lanes_piece(cut, piece);
        tile->x = line;
        tile->w = d + (from - y0) * d_row;
        tile->out = out;
        lanes_tile_all(tile, LANES_W_VECTORS, lanes_tile_of(LANES_W_VECTORS, height, columns));
        line += columns * tile->x_t;
        out += (ptrdiff_t)columns * LS_LANES_OC * 16;
    }
}

static void lanes_conv_correlate(const ls_lanes_conv *c, const float *x, ls_lanes_grad g,
                                 int groups, int n, int i0, int i1, int y0, int y1, float *sums,
                                 int add)
{
    const ptrdiff_t plane = (ptrdiff_t)c->ih * c->iw * 16;
    const ptrdiff_t row = (ptrdiff_t)ls_lanes_conv_columns(c) * LS_LANES_OC * 16;
    lanes_tile tile = {
        .n = {groups, 0, c->ow},
        .x_step = {c->ic * plane, (ptrdiff_t)c->sh * c->iw * 16, (ptrdiff_t)c->sw * 16},
        .w_step = {g.group, g.row, 16},
        .x_t = c->kh * c->kw == 1 ? plane : (ptrdiff_t)c->dw * 16,
        .w_j = g.channel,
        .out_j = 16,
        .out_t = LS_LANES_OC * 16,
        .add = add,
    };
    for (int i = i0; i < i1; i++) {
        int height;
        for (int o = 0; o < n; o += height) {
            height = lanes_tallest(n - o, 4);
            for (int ky = 0; ky < c->kh; ky++)
                lanes_correlate_row(c, &tile, x + i * plane, g.d + o * g.channel, g.row, ky, y0, y1,
                                    height, sums + ((i - i0) * c->kh + ky) * row + o * 16);
        }
    }
}

LANES_INLINE vec lanes_sum_few(const float *p, int n)
{
    vec sum = {0};
    LANES_UNROLL
    for (int k = 0; k < n; k++)
        sum += vec_load(p + k * 16);
    return sum;
}

/* The sum of one channel, one part of the lanes. */
LANES_INLINE vec lanes_bias_sum(const ls_lanes_conv *c, const float *d, ls_lanes_grad g, int groups,
                                int rows)
{
    vec_wide sum = {{0}, {0}};
    for (int i = 0; i < groups; i++) {
        for (int y = 0; y < rows; y++) {
            const float *p = d + i * g.group + y * g.row;
            int left = c->ow;
            for (; left >= LANES_FEW; left -= LANES_FEW, p += LANES_FEW * 16)
                vec_wide_add(&sum, lanes_sum_few(p, LANES_FEW));
            vec_wide_add(&sum, lanes_sum_few(p, left));
        }
    }
    return vec_narrow(&sum);
}

static void lanes_conv_bias(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int n, int y0,
                            int y1, float *sums, int add)
{
    for (int o = 0; o < n; o++) {
        for (int lane = 0; lane < 16; lane += LANES_VEC) {
            float *to = sums + o * 16 + lane;
            vec sum = lanes_bias_sum(c, g.d + o * g.channel + lane, g, groups, y1 - y0);
            if (add)
                sum = vec_load(to) + sum;
            vec_store(to, sum);
        }
    }
}

/* ---- of the weights, by panels --------------------------------------------------------------- */

static void lanes_conv_panels(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int y0, int y1,
                              float *panels)
{
    const ptrdiff_t row = (ptrdiff_t)c->ow * 256;
    for (int o = 0; o < c->oc; o += 16)
        for (int i = 0; i < groups; i++)
            for (int y = y0; y < y1; y++, panels += row)
                lanes_panel(panels, g.d + o * g.channel + i * g.group + y * g.row,
                            c->oc - o < 16 ? c->oc - o : 16, (size_t)g.channel, c->ow, 16);
}

/* A few inputs and as many panels as fit, through one kernel element. */
LANES_INLINE void lanes_weights_tile(const ls_lanes_conv *c, lanes_tile *tile, const float *x,
                                     const float *panel, int groups, int height, int wide)
{
    const ptrdiff_t x_group = (ptrdiff_t)c->ic * c->ih * c->iw * 16;
    float *const out = tile->out;
    lanes_tile_fn *run = lanes_tile_of(LANES_W_STRIDED, height, wide);
    tile->out_t = height * 16;
    for (int i = 0; i < groups; i++) {
        tile->add = i > 0;
        tile->x = panel + i * (tile->x_t / groups);
        tile->w = x + i * x_group;
        tile->out = out;
        lanes_tile_all(tile, LANES_W_STRIDED, run);
    }
    tile->out = out;
}

/* `height` inputs from the i-th and `wide` panels from the o-th output: all elements of the kernel. */
LANES_INLINE void lanes_weights_part(const ls_lanes_conv *c, lanes_tile *tile, const float *x,
                                     const float *panel, int groups, int y0, int y1, int i,
                                     int height, int o, int wide, float *gw, int add)
{
    const ptrdiff_t taps = (ptrdiff_t)c->kh * c->kw * 8;
    for (int e = 0; e < c->kh * c->kw; e++) {
        const int ky = e / c->kw, kx = e % c->kw;
        int from, to;
        ls_lanes_results_inside(c->ph - ky * c->dh, c->sh, c->ih, y0, y1, &from, &to);
        tile->n[0] = to - from;
        const ptrdiff_t line = (ptrdiff_t)i * c->ih + from * c->sh + ky * c->dh - c->ph;
        lanes_weights_tile(c, tile, x + (line * c->iw + kx * c->dw) * 16,
                           panel + (ptrdiff_t)(from - y0) * c->ow * 256, groups, height, wide);
        for (int t = 0; t < wide; t++)
            for (int j = 0; j < height; j++)
                lanes_put_sixteen(gw + ((ptrdiff_t)(o / 8 + 2 * t) * c->ic + i + j) * taps + e * 8,
                                  c->ic * taps, tile->out + (t * height + j) * 16,
                                  c->oc - o - t * 16, add);
    }
}

static void lanes_conv_weights(const ls_lanes_conv *c, const float *x, const float *panels,
                               int groups, int y0, int y1, float *gw, int add)
{
    float sums[LANES_CHANNELS * LANES_T_MAX * 16] __attribute__((aligned(64)));
    const int together = c->sw == 1; /* neighbouring pixels' lanes lie side by side */
    const lanes_cut cut = lanes_cut_into((c->oc + 15) / 16, lanes_widest(LANES_CHANNELS));
    lanes_tile tile = {
        .n = {0, together ? 1 : c->ow, together ? c->ow * 16 : 16},
        .x_step = {(ptrdiff_t)c->ow * 256, 256, 16},
        .w_step = {(ptrdiff_t)c->sh * c->iw * 16, (ptrdiff_t)c->sw * 16, 1},
        .x_t = (ptrdiff_t)groups * (y1 - y0) * c->ow * 256,
        .w_j = (ptrdiff_t)c->ih * c->iw * 16,
        .out = sums,
        .out_j = 16,
    };
    for (int piece = 0, o = 0, wide; piece < cut.pieces; piece++, o += wide * 16) {
        int height;
        wide = lanes_piece(cut, piece);
        for (int i = 0; i < c->ic; i += height) {
            height = lanes_tallest_of(c->ic - i, wide);
            lanes_weights_part(c, &tile, x, panels + o / 16 * tile.x_t, groups, y0, y1, i, height,
                               o, wide, gw, add);
        }
    }
}

/* ---- of the input ---------------------------------------------------------------------------- */

/* Gradient of a convolution's input, and the step in front of both gradients that undoes the
 * fused pool and relu.
 *
 *     for output rows
 *       for output channels, 64 at a time
 *         for tiles of columns           their gradients stay in L1
 *           for input channels in fours
 *             for kernel columns, rows   each moves the tile to another place of dx: J channels
 *                                        × T columns of sums, over oc, added to it
 *
 * Only products that exist are computed, whatever stride and padding: nothing is multiplied with
 * the zeros around the image.
 */

/* One row of one channel, one part of the lanes. */
LANES_INLINE void lanes_unpool_row(const ls_lanes_conv *c, const float *dy, const uint8_t *mask,
                                   vec share, float *d)
{
    for (int q = 0; q < c->y_w; q++) {
        vec g = vec_load(dy) * share;
        for (int t = 0; t < c->pool_w; t++) {
            vec kept = g;
            if (mask) {
                kept = vec_keep(*(const lanes_bits *)mask, g);
                mask += LANES_MASK_BYTES;
            }
            vec_store(d, kept);
            d += 16;
        }
        dy += 16;
    }
}

/* The usual row: two columns to a window, and relu in front. */
LANES_INLINE void lanes_unpool_pairs(const ls_lanes_conv *c, const float *dy, const uint8_t *mask,
                                     vec share, float *d)
{
    for (int q = 0; q < c->y_w; q++, dy += 16, d += 32, mask += 2 * LANES_MASK_BYTES) {
        vec g = vec_load(dy) * share;
        vec_store(d, vec_keep(*(const lanes_bits *)mask, g));
        vec_store(d + 16, vec_keep(*(const lanes_bits *)(mask + LANES_MASK_BYTES), g));
    }
}

static void lanes_conv_unpool(const ls_lanes_conv *c, const float *dy, const uint8_t *mask,
                              int first, int n, int y0, int y1, float *d)
{
    const vec share = vec_all(1.0f / (float)(c->pool_h * c->pool_w));
    for (int o = 0; o < n; o++) {
        for (int y = y0; y < y1; y++) {
            ptrdiff_t row = (ptrdiff_t)(first + o) * c->oh + y;
            ptrdiff_t pooled = (ptrdiff_t)(first + o) * c->y_h + y / c->pool_h;
            for (int lane = 0; lane < 16; lane += LANES_VEC) {
                const uint8_t *bits = mask ? mask + row * c->ow * LANES_MASK_BYTES +
                                                 lane / LANES_VEC * (int)sizeof(lanes_bits)
                                           : NULL;
                const float *from = dy + pooled * c->y_w * 16 + lane;
                float *to = d + ((ptrdiff_t)(y - y0) * n + o) * c->ow * 16 + lane;
                if (c->pool_w == 2 && bits)
                    lanes_unpool_pairs(c, from, bits, share, to);
                else
                    lanes_unpool_row(c, from, bits, share, to);
            }
        }
    }
}

/* How conv_data's weights lie: floats from one kernel element, output channel, eight of them, and input
 * channel to the next; of inputs, every fourth is `four` floats on. */
typedef struct lanes_data_weights {
    ptrdiff_t element, out, eight, in, four;
} lanes_data_weights;

LANES_INLINE lanes_data_weights lanes_weights_of(const ls_lanes_conv *c)
{
    const ptrdiff_t taps = (ptrdiff_t)c->kh * c->kw;
    if (ls_lanes_packs(c))
        return (lanes_data_weights){(ptrdiff_t)c->oc * 4, 4, 32, 1, taps * c->oc * 4};
    return (lanes_data_weights){8, 1, c->ic * taps * 8, taps * 8, 4 * taps * 8};
}

/* Adds what `columns` pixels of one output row contribute, through all kernel elements, to `height`
 * channels of dx. `tile` has loops and steps, d is the first pixel's, w the first channel's weights. */
LANES_INLINE void lanes_scatter(const ls_lanes_conv *c, lanes_tile *tile, const float *d,
                                const float *w, ptrdiff_t element, int height, int y, int x0,
                                int columns, float *dx)
{
    int from, to;
    ls_lanes_taps_inside(y * c->sh - c->ph, c->kh, c->dh, c->ih, &from, &to);
    /* From the last column back, so that a pixel of dx sums over those of the gradient from left to right,
     * however they are cut into tiles. */
    for (int kx = c->kw - 1; kx >= 0; kx--) {
        /* Columns whose product lands inside dx: 0 ≤ at + n · sw < x_w. */
        int at = x0 * c->sw + kx * c->dw - c->pw, n = columns, skip = 0;
        for (; at < 0 && n > 0; at += c->sw, n--)
            skip++;
        for (; n > 0 && at + (n - 1) * c->sw >= c->x_w;)
            n--;
        if (n == 0)
            continue;
        lanes_tile_fn *run = lanes_tile_of(LANES_W_STRIDED, height, n);
        for (int ky = from; ky < to; ky++) {
            tile->x = d + (ptrdiff_t)skip * 16;
            tile->w = w + (ky * c->kw + kx) * element;
            tile->out = dx + ((ptrdiff_t)(y * c->sh + ky * c->dh - c->ph) * c->x_w + at) * 16;
            lanes_tile_all(tile, LANES_W_STRIDED, run);
        }
    }
}

/* `n` output channels of one row, and dx's from i to before `end`. */
LANES_INLINE void lanes_scatter_row(const ls_lanes_conv *c, const float *d, ptrdiff_t channel,
                                    const float *w, int n, int y, int i, int end, float *dx)
{
    const ptrdiff_t plane = (ptrdiff_t)c->ih * c->x_w * 16;
    const lanes_data_weights lie = lanes_weights_of(c);
    const lanes_cut cut = lanes_cut_into(c->ow, lanes_widest(4));
    const int eights = n > 8 && !ls_lanes_packs(c) ? n / 8 : 1;
    lanes_tile tile = {
        .n = {1, eights, n / eights},
        .x_step = {0, 8 * channel, channel},
        .w_step = {0, lie.eight, lie.out},
        .x_t = 16,
        .w_j = lie.in,
        .out_j = plane,
        .out_t = (ptrdiff_t)c->sw * 16,
        .add = 1,
    };
    for (int piece = 0, x0 = 0, columns; piece < cut.pieces; piece++, x0 += columns) {
        int height;
        columns = lanes_piece(cut, piece);
        for (int at = i; at < end; at += height) {
            height = lanes_tallest(end - at < 4 - at % 4 ? end - at : 4 - at % 4, 4);
            lanes_scatter(c, &tile, d + (ptrdiff_t)x0 * 16, w + at / 4 * lie.four + at % 4 * lie.in,
                          lie.element, height, y, x0, columns, dx + at * plane);
        }
    }
}

static void lanes_conv_data(const ls_lanes_conv *c, ls_lanes_grad g, const float *w, float *dx)
{
    const lanes_data_weights lie = lanes_weights_of(c);
    /* For each row all weights, or for each few weights all rows. */
    const int few = ls_lanes_few_pixels(c), rows = few ? c->oh : 1, inputs = few ? 4 : c->ic;
    memset(dx, 0, (size_t)c->ic * (size_t)c->ih * (size_t)c->x_w * 16 * sizeof *dx);
    for (int y0 = 0; y0 < c->oh; y0 += rows)
        for (int first = 0, n; first < c->oc; first += n) {
            n = c->oc - first < LS_LANES_DEPTH ? c->oc - first : LS_LANES_DEPTH;
            for (int i = 0; i < c->ic; i += inputs)
                for (int y = y0; y < y0 + rows; y++)
                    lanes_scatter_row(c, g.d + first * g.channel + y * g.row, g.channel,
                                      w + first / 8 * lie.eight, n, y, i,
                                      i + inputs < c->ic ? i + inputs : c->ic, dx);
        }
}

#endif
