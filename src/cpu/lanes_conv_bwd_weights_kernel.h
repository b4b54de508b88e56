/* Gradient of a convolution's weights and bias.
 *
 *     for channels in fours               their gradients, two groups, stay in L1
 *       for input channels
 *         for kernel rows, taps in tiles  J channels × T taps of sums, each over (group, y, x);
 *                                         a sum is a vector: one number per lane
 *         the sums over lanes are taken sixteen at a time and added to gw, where they are adjacent
 *
 * A 1 × 1 kernel has one tap only; there the input channels are the taps.
 */
#ifndef CPU_LANES_CONV_BWD_WEIGHTS_KERNEL_H
#define CPU_LANES_CONV_BWD_WEIGHTS_KERNEL_H

#include "cpu/lanes_conv_fwd_kernel.h"

#include <string.h>

/* Output rows [*from, *to) that kernel row `ky` connects with a row of the image. */
LANES_INLINE void lanes_outputs_inside(const ls_lanes_conv *c, int ky, int *from, int *to)
{
    int top = c->ph - ky;
    *from = top > 0 ? (top + c->sh - 1) / c->sh : 0;
    int end = c->ih + top > 0 ? (c->ih + top + c->sh - 1) / c->sh : 0;
    *to = end < c->oh ? end : c->oh;
    if (*to < *from)
        *to = *from;
}

/* Sums of `height` channels by all taps of one kernel row into sums[tap][8][16]. */
LANES_INLINE void lanes_corr_row(const ls_lanes_conv *c, const float *x, ls_lanes_grad g,
                                 int groups, int ky, int taps, ptrdiff_t tap, int height,
                                 float *sums)
{
    int from, to;
    lanes_outputs_inside(c, ky, &from, &to);
    int pieces = lanes_pieces(taps, lanes_widest(height));
    for (int piece = 0; piece < pieces; piece++) {
        int t0 = lanes_cut(taps, pieces, piece), t1 = lanes_cut(taps, pieces, piece + 1);
        ptrdiff_t line = (ptrdiff_t)(from * c->sh + ky - c->ph) * c->iw * 16;
        lanes_tile tile = {
            .n = {groups, to - from, c->ow},
            .x_step = {(ptrdiff_t)c->ic * c->ih * c->iw * 16, (ptrdiff_t)c->sh * c->iw * 16,
                       (ptrdiff_t)c->sw * 16},
            .w_step = {g.group, g.row, 16},
            .x_t = tap,
            .w_j = g.channel,
            .x = x + line + t0 * tap,
            .w = g.d + from * g.row,
            .out = sums + (ptrdiff_t)t0 * LS_LANES_OC * 16,
            .out_j = 16,
            .out_t = LS_LANES_OC * 16,
        };
        lanes_tile_all(&tile, LANES_W_VECTORS, lanes_tile_of(LANES_W_VECTORS, height, t1 - t0));
    }
}

/* gb[0 … 7] (+)= the sums of g over groups, rows and columns; of n channels, the rest are zero as
 * `sums` is. */
LANES_INLINE void lanes_bias_sums(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int n,
                                  float *gb, int add, float *sums)
{
    for (int o = 0; o < n; o++) {
        for (int lane = 0; lane < 16; lane += LANES_VEC) {
            vec sum[4] = {{0}, {0}, {0}, {0}}; /* chains side by side, for the adds' latency */
            for (int i = 0; i < groups; i++) {
                for (int y = 0; y < c->oh; y++) {
                    const float *d = g.d + i * g.group + o * g.channel + y * g.row + lane;
                    int t = 0;
                    for (; t + 4 <= c->ow; t += 4, d += 64) {
                        LANES_UNROLL
                        for (int k = 0; k < 4; k++)
                            sum[k] += vec_load(d + k * 16);
                    }
                    for (; t < c->ow; t++, d += 16)
                        sum[0] += vec_load(d);
                }
            }
            vec_store(sums + o * 16 + lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
    }
    lanes_sum_each(gb, sums, LS_LANES_OC, add);
}

static void lanes_conv_weights(const ls_lanes_conv *c, const float *x, ls_lanes_grad g, int groups,
                               int first, float *gw, float *gb, int add, float *sums)
{
    int n = c->oc - first < LS_LANES_OC ? c->oc - first : LS_LANES_OC;
    memset(sums, 0, ls_lanes_conv_sums(c) * sizeof *sums); /* channels beyond oc stay zero */
    if (gb)
        lanes_bias_sums(c, g, groups, n, gb + first, add, sums);

    int single = c->kh * c->kw == 1;
    int inputs = single ? 1 : c->ic, taps = single ? c->ic : c->kw;
    ptrdiff_t plane = (ptrdiff_t)c->ih * c->iw * 16, tap = single ? plane : 16;
    int per_input = c->kh * taps * LS_LANES_OC;
    for (int i = 0; i < inputs; i++) {
        int height;
        for (int o = 0; o < n; o += height) {
            height = lanes_tallest(n - o, 4);
            ls_lanes_grad part = g;
            part.d += o * g.channel;
            for (int ky = 0; ky < c->kh; ky++)
                lanes_corr_row(c, x + i * plane, part, groups, ky, taps, tap, height,
                               sums + ((ptrdiff_t)ky * taps * LS_LANES_OC + o) * 16);
        }
        lanes_sum_each(gw + ((ptrdiff_t)(first / LS_LANES_OC) * inputs + i) * per_input, sums,
                       per_input, add);
    }
}

#endif
