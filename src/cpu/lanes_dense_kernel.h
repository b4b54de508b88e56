/* The dense layer on lanes.
 *
 *     forward    J outputs × T groups of sums, over the inputs, 256 at a time: x stays in L1
 *     data       J inputs × T groups, over the outputs, by the same weights
 *     weights    J inputs × T sixteens of outputs, over the rows of the block
 *
 * In the third form a vector holds sixteen outputs of one row, not sixteen rows of one output:
 * the gradient of the output is transposed first, which is small, and no sum over lanes is left.
 */
#ifndef CPU_LANES_DENSE_KERNEL_H
#define CPU_LANES_DENSE_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_tile_kernel.h"

#define LANES_DENSE_INPUTS 256

LANES_INLINE int lanes_sixteens(int n)
{
    return (n + 15) / 16;
}

/* Bias is in the sums; what is left is relu and its signs, over one vector of lanes. */
static void lanes_relu_forward(size_t n, const float *x, float *y, uint8_t *mask)
{
    for (size_t i = 0; i < n * LANES_PARTS; i++) {
        vec v = vec_load(x + i * LANES_VEC);
        if (mask)
            *(lanes_bits *)(mask + i * sizeof(lanes_bits)) = vec_positive(v);
        vec_store(y + i * LANES_VEC, vec_relu(v));
    }
}

static void lanes_relu_backward(size_t n, const float *dy, const uint8_t *mask, float *dx)
{
    for (size_t i = 0; i < n * LANES_PARTS; i++) {
        lanes_bits bits = *(const lanes_bits *)(mask + i * sizeof(lanes_bits));
        vec_store(dx + i * LANES_VEC, vec_keep(bits, vec_load(dy + i * LANES_VEC)));
    }
}

/* Adds the share of inputs first … first + n − 1 to the sums of all outputs. */
static void lanes_dense_inputs(int in, int out, int groups, int first, int n, const float *x,
                               const float *w, const float *b, float *y)
{
    lanes_tile tile = {
        .n = {1, 1, n},
        .x_step = {0, 0, 16},
        .w_step = {0, 0, LS_LANES_OUT},
        .x_t = (ptrdiff_t)in * 16,
        .out_j = 16,
        .out_t = (ptrdiff_t)out * 16,
        .add = first > 0,
    };
    int height;
    for (int o = 0; o < out; o += height) {
        int in_sixteen = o % LS_LANES_OUT, left = LS_LANES_OUT - in_sixteen;
        height = lanes_tallest(left < out - o ? left : out - o, LANES_CHANNELS);
        const lanes_cut cut = lanes_cut_into(groups, lanes_widest(height));
        for (int piece = 0, g = 0, n_g; piece < cut.pieces; piece++, g += n_g) {
            n_g = lanes_piece(cut, piece);
            tile.x = x + ((ptrdiff_t)g * in + first) * 16;
            tile.w = w + ((ptrdiff_t)(o / LS_LANES_OUT) * in + first) * LS_LANES_OUT + in_sixteen;
            tile.init = b && first == 0 ? b + o : NULL;
            tile.out = y + ((ptrdiff_t)g * out + o) * 16;
            lanes_tile_all(&tile, LANES_W_ADJACENT, lanes_tile_of(LANES_W_ADJACENT, height, n_g));
        }
    }
}

static void lanes_dense_forward(int in, int out, int groups, const float *x, const float *w,
                                const float *b, int relu, float *y, uint8_t *mask)
{
    for (int first = 0; first < in; first += LANES_DENSE_INPUTS) {
        int n = in - first < LANES_DENSE_INPUTS ? in - first : LANES_DENSE_INPUTS;
        lanes_dense_inputs(in, out, groups, first, n, x, w, b, y);
    }
    if (relu)
        lanes_relu_forward((size_t)groups * (size_t)out, y, y, mask);
}

static void lanes_dense_grad(int out, int groups, const float *dy, const uint8_t *mask, float *dz,
                             float *dzt)
{
    const int padded = lanes_sixteens(out) * 16;
    for (int g = 0; g < groups; g++) {
        for (int o = 0; o < padded; o++) {
            ptrdiff_t from = ((ptrdiff_t)g * out + o) * 16;
            float *to = dz + ((ptrdiff_t)g * padded + o) * 16;
            for (int part = 0; part < LANES_PARTS; part++) {
                ptrdiff_t lane = part * LANES_VEC;
                vec v = o < out ? vec_load(dy + from + lane) : (vec){0};
                if (mask && o < out)
                    v = vec_keep(*(const lanes_bits *)(mask + from / 16 * LANES_MASK_BYTES +
                                                       part * (int)sizeof(lanes_bits)),
                                 v);
                vec_store(to + lane, v);
            }
            for (int lane = 0; lane < 16; lane++)
                dzt[((ptrdiff_t)g * 16 + lane) * padded + o] = to[lane];
        }
    }
}

static void lanes_dense_weights(int in, int out, int groups, const float *x, const float *dzt,
                                float *gw, float *gb, int add)
{
    const int sixteens = lanes_sixteens(out), padded = sixteens * 16;
    int height;
    for (int i = 0; i < in; i += height) {
        /* Where registers are few it is 4 as well. NOLINTNEXTLINE(bugprone-branch-clone) */
        height = lanes_tallest(in - i, sixteens < 3 ? LANES_CHANNELS : 4);
        int widest = lanes_widest(height);
        const lanes_cut cut = lanes_cut_into(sixteens, widest < 4 ? widest : 4);
        for (int piece = 0, s = 0, n_s; piece < cut.pieces; piece++, s += n_s) {
            n_s = lanes_piece(cut, piece);
            lanes_tile tile = {
                .n = {1, groups, 16},
                .x_step = {0, (ptrdiff_t)16 * padded, padded},
                .w_step = {0, (ptrdiff_t)in * 16, 1},
                .x_t = 16,
                .x = dzt + s * 16,
                .w = x + (ptrdiff_t)i * 16,
                .out = gw + ((ptrdiff_t)s * in + i) * LS_LANES_OUT,
                .out_j = LS_LANES_OUT,
                .out_t = (ptrdiff_t)in * LS_LANES_OUT,
                .add = add,
            };
            lanes_tile_all(&tile, LANES_W_APART, lanes_tile_of(LANES_W_APART, height, n_s));
        }
    }
    for (int o = 0; gb && o < padded; o += LANES_VEC) {
        vec sum = {0};
        for (int r = 0; r < groups * 16; r++)
            sum += vec_load(dzt + (ptrdiff_t)r * padded + o);
        vec_store(gb + o, add ? vec_load(gb + o) + sum : sum);
    }
}

static void lanes_dense_data(int in, int out, int groups, const float *dz, const float *w,
                             float *dx)
{
    const int sixteens = lanes_sixteens(out);
    int height;
    for (int i = 0; i < in; i += height) {
        height = lanes_tallest(in - i, LANES_CHANNELS);
        const lanes_cut cut = lanes_cut_into(groups, lanes_widest(height));
        for (int piece = 0, g = 0, n_g; piece < cut.pieces; piece++, g += n_g) {
            n_g = lanes_piece(cut, piece);
            lanes_tile tile = {
                .n = {1, sixteens, 16},
                .x_step = {0, 16 * 16, 16},
                .w_step = {0, (ptrdiff_t)in * LS_LANES_OUT, 1},
                .x_t = (ptrdiff_t)sixteens * 16 * 16,
                .x = dz + (ptrdiff_t)g * sixteens * 16 * 16,
                .w = w + (ptrdiff_t)i * LS_LANES_OUT,
                .out = dx + ((ptrdiff_t)g * in + i) * 16,
                .out_j = 16,
                .out_t = (ptrdiff_t)in * 16,
            };
            lanes_tile_all(&tile, LANES_W_APART, lanes_tile_of(LANES_W_APART, height, n_g));
        }
    }
}

#endif
