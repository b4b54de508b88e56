/* A convolution as it was planned (lanes_conv_plan.c) for the code that runs it (lanes_conv.c).
 *
 * Each of the three passes is direct or by Winograd's algorithm (wino.h), as the shape alone decides: the
 * same on every CPU and for any number of rows. A direct gradient of the weights is a sum for each lane, exact
 * in its channels, where they are few, else a product of panels of sixteen output channels, of a few pixels at
 * a time.
 *
 * The gradient in front of the fused pool and relu is made in scratch ("staged"). Where dx is needed a whole
 * block of it is, since dx sums over all channels. In a network's first layer it is made in bands, four
 * channels by a few rows that stay in L1, and consumed at once.
 */
#ifndef CPU_LANES_CONV_H
#define CPU_LANES_CONV_H

#include "cpu/lanes_op.h"

/* A pass by Winograd's algorithm, if it is. */
typedef struct ls_conv_wino {
    bool used;
    ls_wino wino;
} ls_conv_wino;

/* How the direct gradient of the weights is cut. */
typedef struct ls_conv_cut {
    uint32_t eights, sixteens; /* of outputs */
    uint32_t slots;            /* eights that have sums of their own */
    int inputs;                /* whose sums exist at a time */
    int band_rows;             /* whole pooling windows */
    int panel_rows, panel_columns;
    size_t band_floats, panel_floats; /* of four channels; of sixteen */
    size_t sum_floats;                /* of eight channels' sums */
} ls_conv_cut;

/* Where the parts of scratch memory start in floats: forward, the room of each thread; backward, a block of x
 * as the direct kernels read it, the staged gradient, sums of the bias, what the gradient of the weights needs,
 * dx of the pixels seen, and the weights for dx. */
typedef struct ls_conv_scratch {
    size_t forward;
    size_t x, d, bias, weights, seen, data;
} ls_conv_scratch;

typedef struct ls_conv_op {
    ls_lanes_op base; /* first */
    ls_lanes_conv conv;
    ls_conv_wino forward, weights, data;
    bool bias;
    bool staged; /* dy has to go back through pool and relu before use */
    bool banded; /* nothing but a direct gradient of the weights needs the staged one */
    bool panels; /* the gradient of the weights, where it is direct, is a product of panels */
    bool
        sampled; /* a kernel of one element with a stride: a plain product over the pixels it sees */
    int x_h, x_w, sh, sw;                /* of x itself, where it is sampled */
    size_t x_group;                      /* floats of a group of x (and of dx) */
    size_t padded_group;                 /* the same with padded columns, or of the pixels seen */
    size_t y_group, d_group, mask_group; /* floats, floats, bytes */
    ls_conv_cut cut;
    ls_conv_scratch at;
} ls_conv_op;

#define LS_CONV_BAND 4                    /* channels of a band */
#define LS_CONV_BIAS_SUMS (16 * LS_LANES) /* floats of eight channels' */

/* The size of y of any convolution, also of a depthwise one, each output of so many inputs; `k` is filled in. Errors:
 * LS_EINVAL; LS_EUNSUPPORTED, if it is larger than kernels can count. */
int ls_conv_outputs(int *oh, int *ow, const ls_conv2d *k, const ls_tensor *x, int inputs,
                    ls_error *err);

/* The geometry of the description's convolution. Errors: LS_EINVAL, LS_EUNSUPPORTED. */
int ls_conv_geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err);

/* Plans an op whose base is made: all the rest of it, sizes of parameters and memory too. */
void ls_conv_plan(ls_conv_op *op, const ls_lanes_conv *c, int bias);

#endif
