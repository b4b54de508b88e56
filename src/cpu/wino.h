/* Convolutions of stride 1 by Winograd's algorithm, and their gradients, in lanes.
 *
 * F(m×m, r×r) computes m × m outputs, a *tile*, with (m+r−1)² products per pair of channels, where
 * the direct form needs (m·r)². It multiplies polynomials by way of their values at m + r − 1
 * *points* in each direction: inputs and weights are transformed to values, the values are
 * multiplied point by point, which is one matrix product over channels per point, and the products
 * are transformed back. Every transform is a sum of few terms. The points are 0, 1, −1 and ∞ or,
 * where there are six, 0, ±5/8, ±3/2 and ∞. F(2×2, 5×5) in halves adds up F(2, 3) and F(2, 2) in
 * each direction: it takes 49 products instead of 36, with the smaller errors of few points.
 *
 * Images and their values are in lanes (lanes_op.h), so that every transform is one of vectors.
 * Weights are stored as lanes_kernels.h says. The values of `tiles` tiles of sixteen rows are
 * stored as
 *
 *     of images               [points][channels][tiles][16]
 *     of weights              [points][ceil(out/8)][in, even][8]
 *     of their gradient       [points][ceil(out/16)][in][16]
 *
 * where the caller chooses the distance from one point to the next. All values of a point lie
 * together because a product reads them many times, while the transforms pass over them once. A
 * number of tiles that is no multiple of eight keeps the channels out of each other's cache sets.
 *
 * Products are added up over 64 channels at a time, and then those sums are added up; this halves
 * the errors of long sums. Products are added with vec_fma, in an order that does not depend on the
 * number of registers. All memory is aligned to 64 bytes. No function fails, allocates or keeps
 * state. */
#ifndef CPU_WINO_H
#define CPU_WINO_H

#include "cpu/cpu_team.h"

#include <stddef.h>
#include <stdint.h>

/* The forms F(2×2, 3×3), F(4×4, 3×3), F(2×2, 5×5), and F(2×2, 5×5) in halves, which only forward
 * uses. */
enum { LS_WINO_2_3, LS_WINO_4_3, LS_WINO_2_5, LS_WINO_2_5_HALVES, LS_WINO_FORMS };

/* An image as tiles. Tiles are numbered through all groups, within a group from left to right and
 * from top to bottom. Tile (y, x) of a group covers pixels from (y·m − top, x·m − left) on. */
typedef struct ls_wino_image {
    int channels, h, w;          /* h, w: pixels; the image is surrounded by zeros */
    int from, to;                /* the channels to transform, from … to − 1; initially all */
    int top, left;               /* 0 … r − 1 */
    int down, across;            /* number of tiles in a column and in a row of a group */
    size_t group, channel, line; /* floats from one to the next; pixels are 16 floats apart */
} ls_wino_image;

/* The operations on an output after its sum. */
typedef struct ls_wino_finish {
    const float *bias; /* may be NULL */
    uint8_t *mask;     /* receives the signs before the relu, [group][channel][h][w]; may be NULL */
    int relu;
    int pool; /* non-zero: average over windows of 2 × 2 */
} ls_wino_finish;

/* The product of one point: out[to][tile] ← Σ over `from` of weights · in[from][tile]. */
typedef struct ls_wino_product {
    float *out;
    const float *weights, *in;
    size_t row;       /* floats from a block of eight outputs of the weights to the next */
    int to, from;     /* number of result channels; number of channels to sum over */
    int tiles, count; /* tiles from one channel to the next; number of tiles to compute */
    int turned;       /* non-zero: the sum is over the weights' output channels (for dx) */
} ls_wino_product;

/* The values of a block of tiles of an image. */
typedef struct ls_wino_values {
    float *p;
    size_t point; /* floats from one point to the next */
    int tiles;    /* tiles from one channel to the next */
} ls_wino_values;

typedef struct ls_wino_kernels {
    /* values ← the weights of a block of eight outputs and all `from` inputs, rotated by 180° if
     * `turn` is non-zero. */
    void (*weights[LS_WINO_FORMS])(float *values, size_t point, const float *weights, int from,
                                   int turn);
    /* values ← x, for `count` tiles from `first` on. */
    void (*input[LS_WINO_FORMS])(ls_wino_values values, const ls_wino_image *image, const float *x,
                                 int first, int count);
    /* y ← values, followed by the operations of `finish`. */
    void (*output[LS_WINO_FORMS])(float *y, const ls_wino_image *image, ls_wino_values values,
                                  int first, int count, const ls_wino_finish *finish);
    /* values ← the gradient dy of the outputs. */
    void (*error[LS_WINO_FORMS])(ls_wino_values values, const ls_wino_image *image, const float *dy,
                                 int first, int count);
    /* dx ← the contributions of the tiles' values to its pixels, added up tile by tile. The first
     * tile of a group clears the group. */
    void (*spread[LS_WINO_FORMS])(float *dx, const ls_wino_image *image, ls_wino_values values,
                                  int first, int count);
    /* panels ← the values of the image's outputs: for each point
     * [ceil(outputs/16)][count][lane][16], zeros beyond the last output. */
    void (*panels[LS_WINO_FORMS])(float *panels, size_t point, const ls_wino_image *image,
                                  const float *dy, int first, int count);
    /* weights ← or, with `add`, += the gradient of the weights of `outputs` ≤ 16 outputs, from its
     * values. Blocks of eight outputs are `eight` floats apart. */
    void (*gradient[LS_WINO_FORMS])(float *weights, size_t eight, const float *values, size_t point,
                                    int from, int outputs, int add);

    void (*multiply)(const ls_wino_product *p);
    /* One point: out[panel][from][16] ← or, with `add`, += Σ over `count` tiles and their lanes of
     * panels of dy, which are adjacent, · x[from]. */
    void (*correlate)(float *out, const float *panel, const float *x, int from, int panels,
                      int tiles, int count, int add);
} ls_wino_kernels;

/* ---- the passes ------------------------------------------------------------------------------ */

/* Work proceeds in blocks of tiles: the values of a block's inputs and outputs stay in the L2 cache
 * between the transforms and the products. A team divides the transforms by channels, and the
 * products by points or by outputs. The result of a row depends on that row and the weights alone.
 * A gradient of x that is spread (see `spread` below) adds up a group's tiles in order, across
 * blocks as well. The gradient of the weights adds up the blocks in order. If its values are more
 * than those of all images, as late in a network, it is computed from all tiles at once, in parts
 * that stay in the cache from the products to the transforms. */

/* Shape of a convolution y = weights · x. */
typedef struct ls_wino_shape {
    int in, out;
    int h, w;   /* size of x */
    int oh, ow; /* size of the part of y that is wanted */
    int ph, pw; /* padding, 0 … r − 1 */
} ls_wino_shape;

typedef struct ls_wino {
    const ls_wino_kernels *kernels;
    ls_team *team; /* set after init; NULL: the caller's thread alone */
    int form, points;
    int turned; /* non-zero: computes the gradient of x from that of y with these weights */
    int spread; /* non-zero: computes it from tiles of y, several of which add to a pixel of x */
    int whole;  /* non-zero: computes the gradient of the weights from all tiles at once */
    int block;  /* tiles of a block */
    /* the inputs and the outputs of the pass; the caller may change their steps */
    ls_wino_image x, y;
    int tiles; /* tiles from one channel of a block's values to the next */
    /* floats from one point to the next */
    size_t point_x, point_y, point_weights, point_gradient;
} ls_wino;

/* Plans forward for tensors in lanes; the steps of x and y are set accordingly. */
void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *shape);

/* Plans the gradient of x from that of y in the same way. dx is a convolution of dy with the
 * weights rotated by 180°, whose outputs are the pixels of x. If y has fewer tiles than x (which is
 * so without padding), the pass instead transposes each step of the algorithm for y: it goes
 * through the tiles of y, and adds the contributions of each tile to dx (`spread`). */
void ls_wino_init_data(ls_wino *w, const ls_wino_kernels *kernels, int form,
                       const ls_wino_shape *shape);

/* Plans the gradient of the weights over `groups` groups at a time in the same way. */
void ls_wino_init_gradient(ls_wino *w, const ls_wino_kernels *kernels, int form,
                           const ls_wino_shape *shape, int groups);

/* Sets the number of tiles of a block, at least 1. It changes no bits of ls_wino_conv. */
void ls_wino_set_block(ls_wino *w, int tiles);

/* Takes all tiles of `groups` groups in one block if their values fit the cache. */
void ls_wino_fit(ls_wino *w, int groups);

/* Returns the number of floats of the transformed weights. */
size_t ls_wino_weight_floats(const ls_wino *w);
/* Returns the number of floats of the `memory` of ls_wino_conv. */
size_t ls_wino_conv_floats(const ls_wino *w);
/* Returns the number of floats of the `work` memory of ls_wino_gradient. */
size_t ls_wino_gradient_floats(const ls_wino *w);

/* values ← the transformed weights. */
void ls_wino_weights(const ls_wino *w, float *values, const float *weights);

/* y ← x · weights for `groups` groups, followed by `finish`. `values` are the weights as
 * ls_wino_weights has transformed them. */
void ls_wino_conv(const ls_wino *w, int groups, float *y, const float *x,
                  const ls_wino_finish *finish, const float *values, float *memory);

/* gradient ← or, with `add`, += the gradient of the weights, computed from x and the gradient of
 * y. */
void ls_wino_gradient(const ls_wino *w, int groups, float *gradient, const float *x,
                      const float *dy, int add, float *work);

#endif
