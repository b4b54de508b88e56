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

#include "cpu/few.h"

/* A pass by Winograd's algorithm, if it is. */
typedef struct ls_conv_wino {
    bool used;
    ls_wino wino;
} ls_conv_wino;

/* Values of weights that stay from one forward to the next, where the parameters do (LS_RUN_CONSTANT). An op that is
 * not trained has them, and shares them with its twins. */
typedef struct ls_conv_kept {
    float *values;     /* NULL: none are kept */
    const float *from; /* the parameters that they are of; NULL: they are to be made */
} ls_conv_kept;

/* The direct form of few rows, in lanes of sixteen pixels, or pooled ones, that have the same rows of weights. */
typedef struct ls_few_run {
    int first, groups; /* of sixteen pixels */
    int up, rows;      /* rows of zeros above what they see, and rows of x that they see */
} ls_few_run;

typedef struct ls_few_conv {
    int32_t *index; /* [groups][16]: where a lane's x begins, and its y */
    int32_t *place;
    uint8_t *along; /* [groups][2]: whether all lanes are side by side in x, and in y */
    int groups;
    int copied; /* x goes through planes with zeros around them, h × w */
    int h, w;
    /* direct */
    ls_lanes_conv one; /* of one pixel, or window of the pool */
    ls_few_run *run;
    int runs;
    int most; /* groups that are computed at once */
    /* Winograd */
    ls_wino wino; /* of images of one tile */
    int down, across, m;
} ls_few_conv;

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
    ls_conv_kept own, *kept; /* kept: its own, or its twin's; NULL: none */
    ls_few_conv few;
} ls_conv_op;

#define LS_CONV_BAND 4                    /* channels of a band */
#define LS_CONV_BIAS_SUMS (16 * LS_LANES) /* floats of eight channels' */

/* The size of y of any convolution, also of a depthwise one, each output of so many inputs; `k` is filled in. Errors:
 * LS_EINVAL; LS_EUNSUPPORTED, if it is larger than kernels can count. */
int ls_conv_outputs(int *oh, int *ow, const ls_conv2d *k, const ls_tensor *x, int inputs,
                    ls_error *err);

/* The geometry of the description's convolution. Errors: LS_EINVAL, LS_EUNSUPPORTED. */
int ls_conv_geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err);

/* The values of weights for forward by Winograd's algorithm: those kept, or made in `room`. */
const float *ls_conv_values(const ls_conv_op *op, float *room);

/* Plans forward of few rows of a planned op; and frees what that took. Errors: LS_ENOMEM. */
int ls_few_conv_plan(ls_conv_op *op, const ls_op_desc *desc, ls_error *err);
void ls_few_conv_fini(ls_conv_op *op);

/* Plans an op whose base is made: all the rest of it, sizes of parameters and memory too. */
void ls_conv_plan(ls_conv_op *op, const ls_lanes_conv *c, int bias);

#endif
