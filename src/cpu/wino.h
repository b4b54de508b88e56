/* Convolutions of stride 1 by Winograd's algorithm, and their gradients, in lanes.
 *
 * F(m×m, r×r) makes m × m outputs, a *tile*, out of (m+r−1)² products per pair of channels where the
 * direct form needs (m·r)². Polynomials are multiplied by way of their values at m + r − 1 *points* in
 * each direction: inputs and weights are transformed to values, multiplied point by point, which is
 * one matrix product per point over channels, and transformed back. All transforms are sums of few
 * terms. The points are 0, 1, −1 and ∞, or, where there are six, 0, ±5/8, ±3/2 and ∞. F(2×2, 5×5) in
 * halves adds up F(2, 3) and F(2, 2) in each direction: 49 products instead of 36, with the errors of small points.
 *
 * Images lie in lanes (lanes_op.h), and so do their values: every transform is one of vectors. Weights lie
 * as lanes_kernels.h says. Values, `tiles` tiles of sixteen rows side by side:
 *
 *     of images               [channels][tiles][points, an odd number of lines][16]
 *     of weights              [points][ceil(out/8)][in, even][8]
 *     of their gradient       [points][ceil(out/16)][in][16]
 *
 * where of weights it is as far from one point to the next as the caller says. A tile's values lie side by
 * side, since it is the transforms that have many places to go to; a line more keeps tiles out of each
 * other's cache sets. Products are added up over 64
 * channels at a time, and those sums then, which halves the errors of long ones. All memory is
 * aligned to 64 bytes. Nothing here fails, allocates or keeps state. Products are added with vec_fma, in an
 * order that knows nothing of registers.
 */
#ifndef CPU_WINO_H
#define CPU_WINO_H

#include "cpu/cpu_team.h"

#include <stddef.h>
#include <stdint.h>

/* F(2×2, 3×3), …; the last one is of y alone. */
enum { LS_WINO_2_3, LS_WINO_4_3, LS_WINO_2_5, LS_WINO_2_5_HALVES, LS_WINO_FORMS };

/* Tiles are counted through all groups, in each from left to right and from top to bottom. Tile
 * (y, x) of a group covers pixels from (y·m − top, x·m − left) on. */
typedef struct ls_wino_image {
    int channels, h, w;          /* pixels; there are zeros around them */
    int from, to;                /* channels that are transformed: of an image as it is made, all */
    int top, left;               /* 0 … r − 1 */
    int down, across;            /* tiles of a group */
    size_t group, channel, line; /* floats from one to the next; pixels are 16 apart */
} ls_wino_image;

/* What follows the sums of an output. */
typedef struct ls_wino_finish {
    const float *bias; /* or NULL */
    uint8_t *mask;     /* of the signs in front of relu, [group][channel][h][w], or NULL */
    int relu;
    int pool; /* the average of windows of 2 × 2 */
} ls_wino_finish;

/* One point's product of values: out[to][tile] ← Σ over `from` of weights · in[from][tile]. */
typedef struct ls_wino_product {
    float *out;
    const float *weights, *in;
    size_t row;       /* of weights: floats from eight outputs to the next */
    int to, from;     /* channels */
    size_t tile;      /* of images: floats from one tile to the next, */
    int tiles, count; /* tiles from one channel to the next, and those to compute */
    int turned;       /* `from` are the weights' outputs, `to` their inputs */
} ls_wino_product;

typedef struct ls_wino_kernels {
    /* values ← the weights of eight outputs, from all of `from` inputs; turned by 180° if asked for. */
    void (*weights[LS_WINO_FORMS])(float *values, size_t point, const float *weights, int from,
                                   int turn);
    /* values ← x, of `count` tiles from `first` on; `tiles` are from one channel to the next. */
    void (*input[LS_WINO_FORMS])(float *values, int tiles, const ls_wino_image *image,
                                 const float *x, int first, int count);
    /* y ← values and what follows. */
    void (*output[LS_WINO_FORMS])(float *y, const ls_wino_image *image, const float *values,
                                  int tiles, int first, int count, const ls_wino_finish *finish);
    /* values ← the gradient dy of outputs. */
    void (*error[LS_WINO_FORMS])(float *values, int tiles, const ls_wino_image *image,
                                 const float *dy, int first, int count);
    /* dx ← what the tiles' values give to its pixels, added up tile by tile; a group's first clears it. */
    void (*spread[LS_WINO_FORMS])(float *dx, const ls_wino_image *image, const float *values,
                                  int tiles, int first, int count);
    /* Values of the image's outputs as panels: of each point [ceil(outputs/16)][count][lane][16], zeros beyond the
     * last output. */
    void (*panels[LS_WINO_FORMS])(float *panels, size_t point, const ls_wino_image *image,
                                  const float *dy, int first, int count);
    /* The gradient of the weights of `outputs` ≤ 16 outputs, eights of them `eight` floats apart, ← or, with
     * `add`, += its values. */
    void (*gradient[LS_WINO_FORMS])(float *weights, size_t eight, const float *values, size_t point,
                                    int from, int outputs, int add);

    void (*multiply)(const ls_wino_product *p);
    /* One point: out[panel][from][16] ← or, with `add`, += Σ over `count` tiles and their lanes of panels of
     * dy, side by side, · x[from]. */
    void (*correlate)(float *out, const float *panel, const float *x, size_t tile, int from,
                      int panels, int tiles, int count, int add);
} ls_wino_kernels;

/* ---- the passes ------------------------------------------------------------------------------ */

/* Work goes through blocks of tiles: the values of a block's inputs and outputs stay in the L2 cache between
 * the transforms and the products. A team divides the transforms by channels and the products by points, or by
 * outputs. A row's result depends on that row and the weights alone; a gradient that is spread adds up a group's tiles
 * in order, across blocks, too. The gradient of the weights adds up the blocks in
 * order; or, where its values are more than those of all images, as late in a network, it is made of all tiles at
 * once, in parts of it that stay in the cache from products to transforms. */

/* A convolution y = weights · x. */
typedef struct ls_wino_shape {
    int in, out;
    int h, w;   /* of x */
    int oh, ow; /* of y: those that are wanted */
    int ph, pw; /* 0 … r − 1 */
} ls_wino_shape;

typedef struct ls_wino {
    const ls_wino_kernels *kernels;
    ls_team *team; /* set behind init; NULL: the caller alone */
    int form, points;
    int turned;         /* the gradient of x from that of y, through these weights */
    int spread;         /* that gradient out of tiles of y's, which give to pixels of x in common */
    int whole;          /* the gradient of the weights, of all tiles at once */
    int block;          /* tiles of a block */
    ls_wino_image x, y; /* as inputs and as outputs; whose steps may be changed */
    size_t tile;        /* floats of a tile's values */
    size_t point_weights, point_gradient; /* floats from one point to the next */
} ls_wino;

/* For tensors in lanes, whose steps are set so. */
void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *shape);

/* The same of the gradient of x from that of y: of the convolution that gives it; or, where y has fewer tiles
 * than x, as without padding, of the convolution's own algorithm, each step of it transposed. */
void ls_wino_init_data(ls_wino *w, const ls_wino_kernels *kernels, int form,
                       const ls_wino_shape *shape);

/* The same of the gradient of the weights over `groups` groups at a time. */
void ls_wino_init_gradient(ls_wino *w, const ls_wino_kernels *kernels, int form,
                           const ls_wino_shape *shape, int groups);

/* Floats of the values of weights, of ls_wino_conv's memory beside them, and of ls_wino_gradient's. */
size_t ls_wino_weight_floats(const ls_wino *w);
size_t ls_wino_conv_floats(const ls_wino *w);
size_t ls_wino_gradient_floats(const ls_wino *w);

/* values ← those of weights. */
void ls_wino_weights(const ls_wino *w, float *values, const float *weights);

/* y ← x · weights, whose values ls_wino_weights has made, and what follows, of some groups. */
void ls_wino_conv(const ls_wino *w, int groups, float *y, const float *x,
                  const ls_wino_finish *finish, const float *values, float *memory);

/* The gradient of the weights from that of y ← or, with `add`, +=. */
void ls_wino_gradient(const ls_wino *w, int groups, float *gradient, const float *x,
                      const float *dy, int add, float *work);

#endif
