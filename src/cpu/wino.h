/* 3 × 3 convolutions of stride 1 by Winograd's algorithm, and their gradients; see wino_kernels.h
 * for the algorithm and for how tensors lie.
 *
 * Work goes through blocks of tiles: the values of a block's inputs and outputs stay in the L2 cache
 * between the transforms and the products. A row's result depends on that row and the weights alone.
 * The gradient of the weights adds up the blocks in order. */
#ifndef CPU_WINO_H
#define CPU_WINO_H

#include "cpu/wino_kernels.h"

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
