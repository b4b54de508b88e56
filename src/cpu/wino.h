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
#ifndef CPU_WINO_H
#define CPU_WINO_H

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

/* ---- the passes ------------------------------------------------------------------------------ */

/* 3 × 3 convolutions of stride 1 by Winograd's algorithm, and their gradients.
 *
 * Work goes through blocks of tiles: the values of a block's inputs and outputs stay in the L2 cache
 * between the transforms and the products. A row's result depends on that row and the weights alone.
 * The gradient of the weights adds up the blocks in order. */

/* A convolution y = weights · x, both multiples of 16 channels; padding is 0, 1 or 2. */
typedef struct ls_wino_shape {
    int rows, in, out;
    int h, w;   /* of x */
    int ph, pw; /* y has h + 2·ph − 2 lines */
} ls_wino_shape;

typedef struct ls_wino {
    const ls_wino_kernels *kernels;
    int size;   /* LS_WINO_2 or LS_WINO_4 */
    int points; /* 16 or 36 */
    int threads;
    int tiles, block;     /* all, and those of a block */
    ls_wino_image x, y;   /* as inputs and as outputs */
    size_t point_x;       /* floats from one point to the next: of a block's inputs, */
    size_t point_y;       /* its outputs */
    size_t point_weights; /* and the weights */
} ls_wino;

/* `threads` work together; results do not depend on how many. */
void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int size, const ls_wino_shape *shape,
                  int threads);

/* The convolution that gives the gradient of x from that of y. */
ls_wino_shape ls_wino_transposed(const ls_wino_shape *shape);

/* Floats of the memory that each of the two below works in. */
size_t ls_wino_floats(const ls_wino *w);

/* How the weights lie: [to][from] blocks, or [from][to] with the taps in reverse order, as a
 * gradient of x reads them; either way sixteen of `to` side by side. */
typedef enum ls_wino_weights { LS_WINO_AS_IS, LS_WINO_TRANSPOSED } ls_wino_weights;

/* y ← x · weights, plus the bias unless it is NULL, then relu if asked for. */
void ls_wino_conv(const ls_wino *w, float *y, const float *x, const float *weights,
                  ls_wino_weights order, const float *bias, int relu, float *work);

/* The gradient of the weights from that of y. */
void ls_wino_gradient(const ls_wino *w, float *weights, const float *x, const float *dy,
                      float *work);

#endif
