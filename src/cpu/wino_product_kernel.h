/* The products of Winograd's algorithm, point by point. See wino.h. */
#ifndef CPU_WINO_PRODUCT_KERNEL_H
#define CPU_WINO_PRODUCT_KERNEL_H

#include "cpu/lanes_panel_kernel.h"
#include "cpu/wino.h"

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
