/* Products over rows, as gradients of weights need them, and those of Winograd's algorithm.
 *
 * A gradient sums over pixels and rows: over lanes. Instead of a sum for each lane, and then one over
 * lanes, the gradient of the output is turned around first: a *panel* has sixteen outputs side by side,
 * [pixel][lane][16], and x, a scalar after the other, is multiplied with them. Of the turned ones there
 * are few, and each is read for every input and tap.
 */
#ifndef CPU_LANES_PANEL_KERNEL_H
#define CPU_LANES_PANEL_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_tile_kernel.h"

/* ---- panels ---------------------------------------------------------------------------------- */

/* Eight floats in memory, or as many of them as a register holds. */
typedef float lanes_eight
    __attribute__((vector_size(LANES_VEC > 8 ? 32 : LANES_VEC * 4), may_alias));

/* Exchanges bit s of a lane's number with that of its vector's. */
#define LANES_EXCHANGE(v, s)                                                                       \
    LANES_UNROLL                                                                                   \
    for (int i = 0; i < LANES_VEC; i++) {                                                          \
        if (i & (s))                                                                               \
            continue;                                                                              \
        vec near = VEC_NEAR((v)[i], (v)[i + (s)], s);                                              \
        (v)[i + (s)] = VEC_FAR((v)[i], (v)[i + (s)], s);                                           \
        (v)[i] = near;                                                                             \
    }

/* LANES_VEC rows of as many columns. */
LANES_INLINE void lanes_turn(vec *v)
{
    LANES_EXCHANGE(v, 1)
    LANES_EXCHANGE(v, 2)
#if LANES_VEC >= 8
    LANES_EXCHANGE(v, 4)
#endif
#if LANES_VEC >= 16
    LANES_EXCHANGE(v, 8)
#endif
}

/* panel[pixel][lane][16] ← d[output][pixel][lane] of `n` ≤ 16 outputs `step` floats apart, zeros beyond, whose
 * pixels are `pixel` apart. */
static void lanes_panel(float *panel, const float *d, int n, size_t step, int pixels, size_t pixel)
{
    for (int p = 0; p < pixels; p++, panel += 256, d += pixel)
        for (int lane = 0; lane < 16; lane += LANES_VEC)
            for (int o = 0; o < 16; o += LANES_VEC) {
                vec v[LANES_VEC];
                LANES_UNROLL
                for (int i = 0; i < LANES_VEC; i++)
                    v[i] = o + i < n ? vec_load(d + (size_t)(o + i) * step + lane) : (vec){0};
                lanes_turn(v);
                LANES_UNROLL
                for (int i = 0; i < LANES_VEC; i++)
                    vec_store(panel + (lane + i) * 16 + o, v[i]);
            }
}

/* Sixteen outputs to where weights lie, in two eights `apart` floats apart, those that exist. */
LANES_INLINE void lanes_put_sixteen(float *to, ptrdiff_t apart, const float *from, int outputs,
                                    int add)
{
    const int step = sizeof(lanes_eight) / sizeof(float);
    for (int eight = 0; eight < outputs && eight < 16; eight += 8, to += apart, from += 8)
        for (int i = 0; i < 8; i += step) {
            lanes_eight *p = (lanes_eight *)(to + i), v = *(const lanes_eight *)(from + i);
            if (add)
                v += *p;
            *p = v;
        }
}

/* ---- of Winograd's algorithm ----------------------------------------------------------------- */

#define WINO_FAR (1 << 17) /* weights of a point that find no place in a second-level cache */

/* Asks for `floats` of each of some rows of weights. */
LANES_INLINE void wino_prefetch(const float *w, int rows, ptrdiff_t row, int floats)
{
    for (int r = 0; r < rows; r++, w += row)
        for (int i = 0; i < floats; i += 16)
            __builtin_prefetch(w + i);
}

/* `n` channels from `first` on, `columns` tiles of the product's from the t-th, all outputs. */
LANES_INLINE void wino_multiply_tiles(const ls_wino_product *p, int first, int n, int t,
                                      int columns)
{
    const ptrdiff_t line = p->tiles * (ptrdiff_t)p->tile, row = (ptrdiff_t)p->row;
    const lanes_w kind = p->turned ? LANES_W_STRIDED : LANES_W_ADJACENT;
    const int eights = p->turned && n > 8 ? n / 8 : 1;
    lanes_tile tile = {
        .n = {1, eights, n / eights},
        .x_step = {0, 8 * line, line},
        .w_step = {0, row, p->turned ? 1 : 8},
        .x_t = (ptrdiff_t)p->tile,
        .w_j = 8,
        .out_j = line,
        .out_t = (ptrdiff_t)p->tile,
        .add = first > 0,
    };
    const int far = (size_t)p->to * (size_t)p->from >= WINO_FAR;
    int height;
    for (int o = 0; o < p->to; o += height) {
        int left = 8 - o % 8;
        height = lanes_tallest(left < p->to - o ? left : p->to - o, LANES_CHANNELS);
        tile.x = p->in + first * line + t * (ptrdiff_t)p->tile;
        tile.out = p->out + o * line + t * (ptrdiff_t)p->tile;
        tile.w = p->weights + (p->turned ? first / 8 * row + (ptrdiff_t)o * 8
                                         : o / 8 * row + (ptrdiff_t)first * 8 + o % 8);
        if (far && t == 0) /* the first to read them, from the second level on */
            wino_prefetch(tile.w + (p->turned ? 64 : row), eights, row, p->turned ? 64 : n * 8);
        lanes_tile_all(&tile, kind, lanes_tile_of(kind, height, columns));
    }
}

static void wino_multiply(const ls_wino_product *p)
{
    const lanes_cut cut = lanes_cut_into(p->count, lanes_widest(LANES_CHANNELS));
    for (int first = 0, n; first < p->from; first += n) {
        n = p->from - first < LS_LANES_DEPTH ? p->from - first : LS_LANES_DEPTH;
        /* Turned ones are read eight outputs by eight; those beyond the last whole eight are by themselves. */
        if (p->turned && n > 8)
            n = n / 8 * 8;
        for (int piece = 0, t = 0, columns; piece < cut.pieces; piece++, t += columns) {
            columns = lanes_piece(cut, piece);
            wino_multiply_tiles(p, first, n, t, columns);
        }
    }
}

/* Scalars times panels. */
static void wino_correlate(float *out, const float *panel, const float *x, size_t tile_step,
                           int from, int panels, int tiles, int count, int add)
{
    const lanes_cut cut = lanes_cut_into(panels, lanes_widest(LANES_CHANNELS));
    lanes_tile tile = {
        .n = {1, count, 16},
        .x_step = {0, 256, 16},
        .w_step = {0, (ptrdiff_t)tile_step, 1},
        .x_t = (ptrdiff_t)count * 256,
        .w_j = tiles * (ptrdiff_t)tile_step,
        .out_j = 16,
        .out_t = (ptrdiff_t)from * 16,
        .add = add,
    };
    for (int piece = 0; piece < cut.pieces; piece++) {
        const int wide = lanes_piece(cut, piece);
        int height;
        for (int c = 0; c < from; c += height) {
            height = lanes_tallest_of(from - c, wide);
            tile.x = panel;
            tile.w = x + c * tile.w_j;
            tile.out = out + (ptrdiff_t)c * 16;
            lanes_tile_all(&tile, LANES_W_STRIDED, lanes_tile_of(LANES_W_STRIDED, height, wide));
        }
        panel += wide * tile.x_t;
        out += wide * tile.out_t;
    }
}

#endif
