/* The kernels of 3 × 3 convolutions by Winograd's algorithm, as one table per instruction set.
 *
 * F(m×m, 3×3) makes m × m outputs, a *tile*, out of (m+2)² products per pair of channels where the
 * direct form needs 9·m². Polynomials are multiplied by way of their values at m + 2 *points* in
 * each direction: inputs and weights are transformed to values, multiplied point by point, which is
 * one matrix product per point over channels, and transformed back. All transforms are sums of few
 * terms. m is 2 or 4: the points are 0, 1, −1 and ∞, or 0, ±5/8, ±3/2 and ∞.
 *
 * Images lie as [rows][channels/16][h][w][16]; weights as [to/16][from/16][3][3][16 from][16 to],
 * for a pass `from` some channels `to` others. Transformed ones, of `tiles` tiles side by side:
 *
 *     values of images    [points][channels/16][tiles][16]
 *     values of weights   [points][to/16][from][16]
 *
 * where from one point to the next it is as far as the caller says. Products are added up over 64
 * channels at a time, and those sums then, which halves the errors of long ones. All memory is
 * aligned to 64 bytes. Nothing here fails, allocates or keeps state. Products are
 * added with vec_fma.
 */
#ifndef CPU_WINO_KERNELS_H
#define CPU_WINO_KERNELS_H

#include <stddef.h>

#define LS_WINO_DEPTH 4 /* blocks of channels whose products are added up at a time */

enum { LS_WINO_2, LS_WINO_4, LS_WINO_SIZES }; /* F(2×2, 3×3), F(4×4, 3×3) */

/* Tiles are counted through all rows, in each from left to right and from top to bottom. Tile
 * (y, x) of a row covers pixels from (y·m − top, x·m − left) on. */
typedef struct ls_wino_image {
    int blocks;       /* channels / 16 */
    int h, w;         /* pixels; there are zeros around them */
    int top, left;    /* 0 … 2 */
    int down, across; /* tiles of a row */
} ls_wino_image;

typedef struct ls_wino_kernels {
    const char *name;
    int tiles; /* of a product's tile: `multiply` is given multiples of this */

    /* values ← the weights from `from` blocks of channels, which are `step` floats apart, to one;
     * turned by 180° if asked for. */
    void (*weights[LS_WINO_SIZES])(float *values, size_t point, const float *weights, int from,
                                   size_t step, int turn);
    /* values ← x, of `count` tiles from `first` on; `tiles` are from one block to the next. */
    void (*input[LS_WINO_SIZES])(float *values, size_t point, int tiles, const ls_wino_image *image,
                                 const float *x, int first, int count);
    /* y ← values, plus the bias unless it is NULL, then relu if asked for. */
    void (*output[LS_WINO_SIZES])(float *y, const ls_wino_image *image, const float *values,
                                  size_t point, int tiles, int first, int count, const float *bias,
                                  int relu);
    /* values ← the gradient dy of outputs. */
    void (*error[LS_WINO_SIZES])(float *values, size_t point, int tiles, const ls_wino_image *image,
                                 const float *dy, int first, int count);
    /* The gradient of the weights from `from` blocks to one ← its values. */
    void (*gradient[LS_WINO_SIZES])(float *weights, const float *values, size_t point, int from);

    /* One point: out[to][tile] ← Σ over `from` of weights · in[from][tile], `count` tiles. */
    void (*multiply)(float *out, const float *weights, const float *in, int to, int from, int tiles,
                     int count);
    /* One point: out[to][from] ← or, with `add`, += Σ over `count` tiles of dy[to] · x[from]. */
    void (*correlate)(float *out, const float *dy, const float *x, int to, int from, int tiles,
                      int count, int add);
} ls_wino_kernels;

/* The best that this CPU runs; and the i-th of all, NULL beyond those that it runs. */
const ls_wino_kernels *ls_wino_kernels_best(void);
const ls_wino_kernels *ls_wino_kernels_of(int i);

extern const ls_wino_kernels ls_wino_avx512, ls_wino_avx2, ls_wino_generic;

#endif
