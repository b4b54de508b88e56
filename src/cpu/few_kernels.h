/* SPDX-License-Identifier: MIT */
/* The vector kernels for the layout `few`: batches of one to eight rows (few.h). lanes_op.h
 * explains the words.
 *
 * A *strip* is the outputs whose weights are read together: `strip` sixteens, or fewer in the last
 * strip. Weights are *packed*: copied to one stream of memory, in the order in which the products
 * read them, [strip][input][tap][outputs of the strip]. Outputs that do not exist have zeros. */
#ifndef CPU_FEW_KERNELS_H
#define CPU_FEW_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Operations on a result before it is stored: v ← (v − mean) · scale + shift, unless `scale` is
 * NULL; then v ← v + x2, unless x2 is NULL; then a relu, if `relu` is non-zero. The four arrays
 * begin at the first channel that a kernel computes. x2 is read at the offsets of the results. */
typedef struct ls_few_finish {
    const float *mean, *scale, *shift;
    const float *x2;
    int relu;
} ls_few_finish;

/* A product of the pixels of x with the weights of one strip, for `count` pixels of y.
 *
 *     out[out_at[p]] ← bias + Σ w[input][tap] · in[in_at[p]]      the sum runs over the inputs, and
 *                                                                over rows × columns taps of each
 */
typedef struct ls_few_product {
    int count;
    const int32_t *in_at, *out_at; /* [count] offset of each pixel in `in` and `out` */
    const float *in;
    float *out;
    int inputs;
    /* steps in `in` from one input to the next, and from sixteen inputs to the next sixteen */
    ptrdiff_t input, sixteen;
    int rows, columns;     /* number of taps down and across; with 0 rows the sum is empty */
    ptrdiff_t row, column; /* steps in `in` from one tap to the next */
    const float *w;
    ptrdiff_t w_input, w_row; /* steps of w from one input, and from one row of taps, to the next */
    int outs;                 /* number of sixteens of the strip */
    int half; /* 1: the last sixteen has at most eight outputs; the other sums are zeros */
    ptrdiff_t out_step; /* step in `out` from one sixteen to the next */
    const float *bias;  /* [outs][16], with which the sums begin; NULL: 0 */
    int add;            /* non-zero: the sums are added to `out` instead of overwriting it */
    const ls_few_finish *finish; /* NULL: no further operations */
} ls_few_product;

/* A dense layer of `rows` rows. Weights are stored as for the layout `lanes`. y has room for whole
 * sixteens of outputs. */
typedef struct ls_few_dense {
    int in, rows;
    int from, to;        /* the call computes the sixteens of outputs from … to − 1 */
    size_t x_row, y_row; /* floats from one row to the next */
    const float *x, *w;
    const float *b; /* may be NULL */
    float *y;
    int relu;
} ls_few_dense;

typedef struct ls_few_kernels {
    int strip; /* number of sixteens of a strip */
    void (*product)(const ls_few_product *p);
    void (*dense)(const ls_few_dense *d);
    /* y ← x after the operations of `finish`, over n vectors of one sixteen. */
    void (*apply)(size_t n, const ls_few_finish *finish, const float *x, float *y);
    /* scale[i] ← weight[i] / √(variance[i] + epsilon) for i < n, computed in double, and 0 for the
     * other channels of the last sixteen. */
    void (*scales)(int n, float epsilon, const float *weight, const float *variance, float *scale);
    /* y[oh / ph][ow / pw][16] ← the averages of the windows of ph × pw pixels of x, [oh][ow][16].
     */
    void (*average)(int oh, int ow, int ph, int pw, const float *x, float *y);
} ls_few_kernels;

#endif
