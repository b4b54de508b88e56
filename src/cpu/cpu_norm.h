/* Inside batch normalisation: what the op (cpu_norm.c) prepares and its passes over memory
 * (cpu_norm_pass.c) share. */
#ifndef CPU_CPU_NORM_H
#define CPU_CPU_NORM_H

#include "cpu/cpu_op.h"
#include "cpu/cpu_pieces.h"

/* One value per lane of each part: channel c is lane c % planes.channels of part c /
 * planes.channels; where a part is one channel, all its lanes say the same. */
typedef struct ls_norm_state {
    ls_cpu_op *op;
    const ls_cpu_kernels *kernels;
    ls_pieces pieces;
    int channels, training, needs_dx, fuse_relu, fuse_add;
    float epsilon;
    double n;                    /* values per channel */
    int x, x2, y, dy, dx, dx2;   /* values of the program */
    float *mean, *scale, *shift; /* [parts][16] */
    float *to;                   /* [parts][3][16]: dx = a·g + b·(x − mean) + c */
    double *inverse;             /* [parts][16]: 1 / √(variance + ε) */
    double *first, *second; /* [parts][16]: mean and Σ(x − mean)², or Σg and Σg·(x − mean) */
} ls_norm_state;

/* y, and in training the contribution, from x (and x2). */
void ls_norm_run_forward(ls_norm_state *s, unsigned flags);

/* The gradients of the parameters and, with needs_dx, dx (and dx2) from x and dy. */
void ls_norm_run_backward(ls_norm_state *s, unsigned flags);

#endif
