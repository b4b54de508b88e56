/* SPDX-License-Identifier: MIT */
/* Convolutions of stride 1 by Winograd's algorithm, and their gradients, in lanes (lanes_op.h).
 *
 * The algorithm. F(m×m, r×r) computes a *tile*, m × m outputs of a convolution with an r × r
 * filter. A convolution is a product of polynomials. A product of polynomials can be computed from
 * the values of its factors at enough *points*. There are m + r − 1 points in each direction, so a
 * tile has (m + r − 1)² points. A *value* is the transformed number at one point. One pass has
 * three parts:
 *
 *     transform      pixels of x → values of x              weights → values of the weights
 *     multiply       for each point: [outputs × inputs] values of the weights
 *                    times [inputs × tiles] values of x: one matrix product per point
 *     transform      the products, which are values of y → pixels of y
 *
 * Per pair of channels and tile, Winograd's algorithm takes (m + r − 1)² products, and the direct
 * form takes (m·r)². In each direction, a transform adds at most six terms. If there are four
 * points in a direction, they are 0, 1, −1 and ∞. If there are six, they are 0, ±5/8, ±3/2 and ∞.
 *
 * F(2×2, 5×5) *in halves* divides the five taps of each direction into three and two. The three are
 * computed by F(2, 3) with 4 points, the two by F(2, 2) with 3 points, and the results are added.
 * This takes (4 + 3)² = 49 products instead of 36, but its rounding errors are smaller, because
 * each half has fewer points.
 *
 * Storage. Images and their values are in lanes. Therefore a transform adds and multiplies whole
 * vectors and never moves numbers between lanes. Weights are stored as lanes_kernels.h says. Values
 * are stored as follows; "in" and "out" are numbers of channels, "even" means rounded up to an even
 * number:
 *
 *     values of an image                    [points][channels][tiles][16 lanes]
 *     values of weights                     [points][ceil(out/8)][in, even][8]
 *     values of the weights' gradient       [points][ceil(out/16)][in][16]
 *
 * The caller chooses the step from one point to the next. For the gradient of the weights, values
 * of dy are stored in another order: [points][ceil(out/16)][tiles][lane][16 outputs]. There sixteen
 * output channels lie side by side instead of sixteen images. A *panel* is the part of these values
 * for one point and sixteen output channels.
 *
 * All values of a point lie together, because the product reads them many times, whereas the
 * transforms access them only once. The step from one channel to the next is never a multiple of
 * eight tiles: with such a step the channels would share the same sets of the cache.
 *
 * Numbers. Products are added up over 64 channels at a time, and then those sums are added up; this
 * halves the errors of long sums. Products are added with vec_fma (kernels/vec.inc), in an order
 * that does not depend on the instruction set. All memory is aligned to 64 bytes. No function
 * fails, allocates or keeps state. */
#ifndef CPU_WINO_H
#define CPU_WINO_H

#include "cpu/cpu_team.h"
#include "cpu/few_kernels.h"

#include <stddef.h>
#include <stdint.h>

/* The forms F(2×2, 3×3), F(4×4, 3×3), F(2×2, 5×5), and F(2×2, 5×5) in halves. Only forward uses the
 * last one. */
enum { LS_WINO_2_3, LS_WINO_4_3, LS_WINO_2_5, LS_WINO_2_5_HALVES, LS_WINO_FORMS };

/* The images of a tensor as tiles. A tile is the same square of all sixteen images of its packet.
 * Tiles are numbered consecutively through all packets. Within a packet they are numbered image row
 * by image row, from left to right. Tile (y, x) of a packet covers pixels from (y·m − top, x·m −
 * left) on. */
typedef struct ls_wino_image {
    int channels, h, w; /* h, w: pixels; the image is surrounded by zeros */
    int from, to;       /* the channels to transform, from … to − 1; initially all */
    int top, left;      /* padding above and to the left, 0 … r − 1 */
    int down, across;   /* number of tiles from top to bottom and from left to right of an image */
    /* steps from one packet, channel and image row to the next; the step of a pixel is 16 floats */
    size_t packet, channel, line;
} ls_wino_image;

/* The operations on a pixel of y after its sum has been computed. */
typedef struct ls_wino_finish {
    const float *bias; /* may be NULL */
    uint8_t *mask;     /* [packet][channel][h][w] receives the signs before the relu; may be NULL */
    int relu;
    int pool; /* non-zero: average over windows of 2 × 2 */
} ls_wino_finish;

/* The operations on the outputs of few rows, in which sixteen channels lie side by side (few.h). */
typedef struct ls_few_outputs {
    const float *bias; /* [channels][16]; may be NULL */
    ls_few_finish finish;
    int pool; /* non-zero: average over windows of 2 × 2 */
} ls_few_outputs;

/* The product of one point: out[to][tile] ← Σ over the channels `from` of weights[to][from] ·
 * in[from][tile]. All tiles are vectors of sixteen lanes. */
typedef struct ls_wino_product {
    float *out;
    const float *weights, *in;
    size_t eight_step; /* step from one eight of the weights' output channels to the next */
    int to, from;      /* number of result channels; number of channels to sum over */
    int tiles, count;  /* step from one channel to the next, in tiles; number of tiles to compute */
    /* non-zero: the sum runs over the weights' output channels, not over their input channels (for
     * dx) */
    int transposed;
} ls_wino_product;

/* The values of a *block of tiles*, the consecutive tiles that a pass processes at a time. */
typedef struct ls_wino_values {
    float *p;
    size_t point; /* step from one point to the next */
    int tiles;    /* step from one channel to the next, in tiles */
} ls_wino_values;

typedef struct ls_wino_kernels {
    /* In the comments of this struct, "a ← b" means that b is computed and stored to a.
     *
     * values ← transformed weights of an eight of outputs and of all `from` inputs. If `rotate` is
     * non-zero, each filter is rotated by 180° first. */
    void (*weights[LS_WINO_FORMS])(float *values, size_t point, const float *weights, int from,
                                   int rotate);
    /* values ← transformed x, for `count` tiles from `first` on. */
    void (*input[LS_WINO_FORMS])(ls_wino_values values, const ls_wino_image *image, const float *x,
                                 int first, int count);
    /* y ← values transformed back, followed by the operations of `finish`. */
    void (*output[LS_WINO_FORMS])(float *y, const ls_wino_image *image, ls_wino_values values,
                                  int first, int count, const ls_wino_finish *finish);
    /* values ← transformed dy. */
    void (*dy[LS_WINO_FORMS])(ls_wino_values values, const ls_wino_image *image, const float *dy,
                              int first, int count);
    /* dx += the pixels that result from the tiles' values, tile by tile. Before it adds the first
     * tile of a packet, the function sets dx of the packet to zero. */
    void (*spread[LS_WINO_FORMS])(float *dx, const ls_wino_image *image, ls_wino_values values,
                                  int first, int count);
    /* panels ← transformed dy: for each point [ceil(outputs/16)][count][lane][16], with zeros
     * beyond the last output. */
    void (*panels[LS_WINO_FORMS])(float *panels, size_t point, const ls_wino_image *image,
                                  const float *dy, int first, int count);
    /* Transforms values of the gradient of the weights back, for `outputs` ≤ 16 outputs. Stores the
     * result to `weights`, or adds it there if `add` is non-zero. `eight_step`: step from one eight
     * of outputs to the next. */
    void (*gradient[LS_WINO_FORMS])(float *weights, size_t eight_step, const float *values,
                                    size_t point, int from, int outputs, int add);

    /* For few rows. A packet of `image` is one row, and a channel is a sixteen of channels. The
     * other forms, which forward does not use, are NULL.
     *
     * y ← values transformed back, followed by the operations of `outputs`. Those of its arrays
     * that have a float per channel begin at channel 0. */
    void (*few_outputs[LS_WINO_FORMS])(float *y, const ls_wino_image *image, ls_wino_values values,
                                       int first, int count, const ls_few_outputs *outputs);
    /* values ← transformed weights of sixteen outputs and of `inputs` inputs. `low`, `high`:
     * weights of the first and of the last eight of the outputs; `high` NULL: there are only eight.
     * `input`: step in `values` from one input to the next. */
    void (*few_weights[LS_WINO_FORMS])(float *values, size_t point, size_t input, const float *low,
                                       const float *high, int inputs);

    void (*multiply)(const ls_wino_product *p);
    /* The product of one point for the gradient of the weights, for `panels` panels, which lie one
     * after another. Computes, for each panel p and input channel i, the sum of
     * panel[p][tile][lane][16] · x[i][tile][lane] over `count` tiles and their lanes. Stores it to
     * out[p][i][16], or adds it there if `add` is non-zero. `from`: number of input channels. */
    void (*correlate)(float *out, const float *panel, const float *x, int from, int panels,
                      int tiles, int count, int add);
} ls_wino_kernels;

/* ---- the passes ------------------------------------------------------------------------------ */

/* A pass computes y, dx or the gradient of the weights. It goes through the tiles of all packets in
 * blocks of tiles. A block is so small that the values of its inputs and outputs stay in the L2
 * cache between the transforms and the products.
 *
 * The threads of a team divide a pass as follows. Each thread has values in memory of its own, so
 * that they stay in the cache of its core.
 *
 *     y, dx         by tiles, in one job: a thread takes consecutive tiles through all three parts
 *                   of the algorithm. A spread pass (see below) is divided by packets.
 *     gradient      by blocks, in two jobs: a thread computes the values of the gradient of one
 *                   block (*sums*), for all outputs or for some of them. Then the threads add up
 *                   the blocks' sums in ascending order, and transform them.
 *
 * A pass with fewer tiles than threads, or with so many weights that reading them takes most of the
 * time, is divided within each block instead: the transforms by channels, and the products by
 * points or by outputs, with a job for each.
 *
 * dx is computed in one of two ways:
 *
 *     convolution   dx is a convolution of dy with the weights rotated by 180° and *transposed*.
 *                   Transposed means that the output channels of the weights are the inputs of this
 *                   convolution, and their input channels are its outputs. The tiles are tiles of
 *                   dx.
 *     spread        The parts of the forward algorithm are transposed and run in reverse. For each
 *                   tile of y, the values of dy are multiplied with the weights, which are
 *                   transposed but not rotated. The products are transformed to (m + r − 1)²
 *                   pixels, which are added to dx. In dx, neighbouring tiles overlap. A spread pass
 *                   takes fewer products if y has fewer tiles than x, for example without padding.
 *
 * The result of a row depends on that row and the weights alone. In a spread pass the tiles of a
 * packet are added to dx in ascending order, also across blocks.
 *
 * The gradient of the weights adds up the blocks in ascending order. In the last layers of a
 * network the values of this gradient take more memory than the values of all images. In such a
 * layer all tiles are one block (`whole`), and the gradient is computed part by part. A part is up
 * to 48 outputs by 32 inputs, whose values stay in the cache from the products to the transform. */

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
    int transposed; /* non-zero: computes dx from dy, with transposed weights */
    int spread;     /* non-zero: a spread pass: tiles of y are added to dx */
    int whole;      /* non-zero: the gradient of the weights takes all tiles as one block */
    int block;      /* number of tiles of a block */
    int most;       /* gradient: largest number of tiles of a call */
    /* the inputs and the outputs of the pass; the caller may change their steps packet, channel and
     * line */
    ls_wino_image x, y;
    int tiles; /* step from one channel of a block's values to the next, in tiles */
    /* steps from one point to the next in the values of x, y, the weights and their gradient */
    size_t point_x, point_y, point_weights, point_gradient;
} ls_wino;

/* Plans forward. Sets the steps of x and y to those of whole tensors in lanes. */
void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *shape);

/* Plans dx, as a convolution or as a spread pass, whichever has fewer tiles. Sets the steps of x
 * and y as ls_wino_init does. */
void ls_wino_init_data(ls_wino *w, const ls_wino_kernels *kernels, int form,
                       const ls_wino_shape *shape);

/* Plans the gradient of the weights. Each call of ls_wino_gradient will process `packets` packets
 * at most. Sets the steps of x and y as ls_wino_init does. */
void ls_wino_init_gradient(ls_wino *w, const ls_wino_kernels *kernels, int form,
                           const ls_wino_shape *shape, int packets);

/* Sets the number of tiles of a block, at least 1. The results of ls_wino_conv do not depend on
 * this number. */
void ls_wino_set_block(ls_wino *w, int tiles);

/* Makes all tiles of `packets` packets one block, if their values fit the cache. */
void ls_wino_fit(ls_wino *w, int packets);

/* Returns the number of floats of the transformed weights. */
size_t ls_wino_weight_floats(const ls_wino *w);
/* Returns the number of floats of the `memory` of ls_wino_conv. */
size_t ls_wino_conv_floats(const ls_wino *w);
/* Returns the number of floats of the `work` memory of ls_wino_gradient. */
size_t ls_wino_gradient_floats(const ls_wino *w);

/* Transforms the weights and stores them to `values`. */
void ls_wino_weights(const ls_wino *w, float *values, const float *weights);

/* Computes y of `packets` packets: the convolution of x with the weights, followed by the
 * operations of `finish`. `values` are the weights as ls_wino_weights has transformed them. */
void ls_wino_conv(const ls_wino *w, int packets, float *y, const float *x,
                  const ls_wino_finish *finish, const float *values, float *memory);

/* Computes the gradient of the weights from x and dy, the gradient of y. Stores it to `gradient`,
 * or adds it there if `add` is non-zero. */
void ls_wino_gradient(const ls_wino *w, int packets, float *gradient, const float *x,
                      const float *dy, int add, float *work);

#endif
