/* SPDX-License-Identifier: MIT */
/* A planned convolution. lanes_conv_plan.c writes the plan, and lanes_conv.c runs it.
 *
 * Each of the three passes (forward, gradient of the weights, dx) is either direct or uses
 * Winograd's algorithm (wino.h). The shape alone decides. Therefore the choice is the same on
 * every CPU and for any number of rows.
 *
 * d is the gradient of the convolution's result before the fused relu and pool. The direct gradient
 * of the weights is computed from x and d in one of two forms. For a small number of channels it
 * computes one sum per lane, for exactly the channels that exist. For many channels it is a matrix
 * product of *panels*. A panel is d of sixteen output channels and up to 32 pixels, transposed. In
 * a panel sixteen channels lie side by side instead of sixteen rows:
 *
 *     d in lanes    [channel][pixel][16 lanes]
 *     panel         [pixel][lane][16 channels]
 *
 * dx is computed from the weights and d. If there is a relu or a pool, d is *staged*: computed from
 * dy into scratch memory. Without relu and pool, dy itself is d. If dx is needed, d of a whole
 * block is staged, because dx sums over all channels. A network's first layer needs no dx. There d
 * can be staged in *bands* (ls_conv_op.banded): four channels by some image rows, as many as fit
 * the L1 cache. A band is used as soon as it is computed, while it is in that cache. */
#ifndef CPU_LANES_CONV_H
#define CPU_LANES_CONV_H

#include "cpu/few.h"

/* One pass, and its plan if it uses Winograd's algorithm. */
typedef struct ls_conv_wino {
    bool by_winograd; /* the pass uses Winograd's algorithm; false: it is direct */
    ls_wino wino;
} ls_conv_wino;

/* Data that an op keeps (ls_kept in few.h): the transformed weights of the two passes by Winograd's
 * algorithm, and the pack of the weights for the layout `few`. */
enum { LS_CONV_FORWARD, LS_CONV_DX, LS_CONV_FEW, LS_CONV_KEPT };

/* A run of the direct form for the layout `few` (see few.h): pixels of y (before the fused pool)
 * whose sums use the same rows of the filter. */
typedef struct ls_few_run {
    int first, count;  /* index of the first pixel in the arrays of the plan; number of pixels */
    int tap_row, rows; /* the first of these filter rows, and their number */
} ls_few_run;

/* Plan of forward for the layout `few`. */
typedef struct ls_few_conv {
    ls_lanes_conv conv; /* geometry as described, without flattening of 1 × 1 filters */
    bool flat;          /* x has the layout `flat` */
    size_t pack;        /* floats of the pack: the packed weights, then the bias */
    /* [pixels or tiles] offset of each in x, in y, or in the memory of the values */
    int32_t *in_at, *out_at;
    /* Direct form. */
    bool copied; /* x is read from a copy with columns of zeros */
    /* steps in x or in its copy, in floats: from one row of the batch, sixteen of inputs, input,
     * image row and pixel to the next */
    size_t row, sixteen, input, line, pixel;
    ls_few_run *run;
    int runs; /* number of runs */
    /* Winograd's algorithm. */
    ls_wino_image x, y;      /* packets are rows of the batch; channels are sixteens */
    int block;               /* number of tiles that are computed together */
    int tiles;               /* step from one sixteen of values to the next, in tiles */
    size_t point_x, point_y; /* steps from one point to the next in the values of x and of y */
} ls_few_conv;

/* How the work on the direct forward and on the direct gradient of the weights is divided. */
typedef struct ls_conv_cut {
    /* number of parts into which a team divides y of a packet: sets of eights if `by_eights` is
     * true, else parts of image rows (ls_lanes_forward_parts) */
    uint32_t forward_parts;
    bool by_eights;
    bool forward_copies;       /* forward reads a copy of x, which is padded or sampled */
    uint32_t eights, sixteens; /* number of eights and of sixteens of output channels */
    uint32_t slots; /* number of parts of scratch memory, each for the sums of one eight */
    int inputs;     /* number of input channels whose sums exist at the same time */
    int band_rows;  /* image rows of a band: whole pooling windows */
    /* image rows that are multiplied with all inputs, for sums per lane of large images; 0: the
     * whole image with one input after another */
    int resume_rows;
    int panel_rows, panel_columns; /* image rows and columns of d that are in panels at a time */
    /* number of parts into which a team divides the sixteens, and the inputs, for a gradient from
     * panels */
    uint32_t panel_parts, input_parts;
    size_t band_floats, /* floats of a band, which has four channels */
        panel_floats;   /* floats of the panels of one sixteen */
    size_t sum_floats;  /* floats of the sums of one eight */
} ls_conv_cut;

/* Layout of the scratch memory, in floats. `forward` is a size. The other fields are the offsets of
 * the parts of the scratch memory of forward (forward_x) and of backward. */
typedef struct ls_conv_scratch {
    size_t forward;   /* forward: size of each thread's memory for sums and a patch */
    size_t forward_x; /* copies of x as the direct kernels read it, of each thread or each packet */
    size_t x,         /* a block of x as the direct kernels read it */
        d,            /* the staged gradient */
        bias,         /* the sums of the bias */
        weights,      /* working memory for the gradient of the weights */
        sampled_dx,   /* dx at the pixels that a strided 1 × 1 filter reads */
        dx_weights,   /* the weights in the form that dx needs */
        dx_values;    /* working memory of ls_wino_conv for dx */
} ls_conv_scratch;

typedef struct ls_conv_op {
    ls_lanes_op base; /* base; must be first */
    ls_lanes_conv conv;
    ls_conv_wino forward, weights, dx;
    bool bias;
    bool staged; /* there is a relu or a pool: d is computed from dy into scratch memory */
    /* d is staged in bands: dx is not needed, and the gradient of the weights is one sum per
     * lane */
    bool banded;
    bool panels; /* the direct gradient of the weights is a product of panels */
    /* the filter is 1 × 1 and has a stride: the convolution is a matrix product over the pixels
     * that the filter reads, which are copied first */
    bool sampled;
    int x_h, x_w, sh, sw; /* sizes and strides of x itself, before sampling */
    size_t x_packet;      /* floats of a packet of x and of dx */
    size_t padded_packet; /* floats of a packet of x with padded columns, or sampled pixels */
    size_t y_packet,      /* floats of a packet of y */
        d_packet,         /* floats of a packet of d */
        mask_packet;      /* bytes of a packet's mask: the signs of the sums before the relu */
    ls_conv_cut cut;
    ls_conv_scratch at;
    /* `kept` points to `own` of this op or of its twin. NULL: the data are not kept. */
    ls_kept own[LS_CONV_KEPT], *kept[LS_CONV_KEPT];
    ls_few_conv few;
} ls_conv_op;

/* Called at the beginning of each forward: without a promise in `flags` that the parameters have
 * not changed, nothing that was kept before is valid. (An op and its twins keep different data. A
 * later call with LS_RUN_SAME must not find data that are older than this forward.) */
static inline void ls_kept_begin(ls_kept *kept, unsigned flags)
{
    if (kept && !(flags & (LS_RUN_CONSTANT | LS_RUN_SAME)))
        kept->source = NULL;
}

#define LS_CONV_BAND 4                    /* output channels of a band */
#define LS_CONV_BIAS_SUMS (16 * LS_LANES) /* floats of the bias sums of one eight */

/* Computes the height and width of y for any convolution, a depthwise one included, in which each
 * output sums over `inputs` channels. `k` must be filled in (ls_conv2d_filled). Errors: LS_EINVAL;
 * LS_EUNSUPPORTED if sizes exceed what the kernels' ints can count. */
int ls_conv_outputs(int *oh, int *ow, const ls_conv2d *k, const ls_tensor *x, int inputs,
                    ls_error *err);

/* Computes the geometry of the described convolution. Errors: LS_EINVAL, LS_EUNSUPPORTED. */
int ls_conv_geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err);

/* Calls ls_kept_begin for all that the op keeps. `op->base.flags` are the flags of the forward. */
void ls_conv_begin(const ls_conv_op *op);

/* Returns the transformed weights for a pass by Winograd's algorithm, LS_CONV_FORWARD or
 * LS_CONV_DX. If the op keeps transformed weights and they are valid, the function returns them and
 * computes nothing. Otherwise it transforms the weights, into the memory of the kept weights, or
 * into `room` if the op keeps none. `flags`: flags of the current call. */
const float *ls_conv_transformed_weights(const ls_conv_op *op, int pass, unsigned flags,
                                         float *room);

/* Plans forward for the layout `few` (see few.h), for an op that ls_conv_plan has planned. If the
 * tensors are too large for the offsets of the plan, which are ints, the op gets no code for this
 * layout. Errors: LS_EUNSUPPORTED, LS_EINVAL, LS_ENOMEM. */
int ls_few_conv_plan(ls_conv_op *op, const ls_op_desc *desc, ls_error *err);
/* Allocates the pack of an op that has code for the layout `few`. Errors: LS_ENOMEM. */
int ls_few_conv_keep(ls_conv_op *op, ls_error *err);
/* Frees what ls_few_conv_plan allocated. */
void ls_few_conv_fini(ls_conv_op *op);

/* Functions of few_wino.c for few_conv.c: the parts of ls_few_conv_plan, of packing the weights and
 * of forward that Winograd's algorithm needs. */
int ls_few_wino_plan(ls_conv_op *op, ls_error *err);
void ls_few_wino_pack(const ls_conv_op *op, float *pack);
void ls_few_wino(ls_lanes_op *base);
/* Functions of few_conv.c for few_wino.c: the pack of the weights, computed if it is not valid; the
 * bias in it, or NULL; the number of outputs of the strip that begins with output `first`, whole
 * sixteens; and 1 if the last sixteen of the strip that ends before `end` has at most eight
 * outputs, else 0. */
const float *ls_few_conv_packed(const ls_conv_op *op);
const float *ls_few_conv_bias(const ls_conv_op *op, const float *pack);
int ls_few_conv_strip(const ls_conv_op *op, int first);
int ls_few_conv_half(const ls_conv_op *op, int end);

/* Plans an op whose base is initialized: sets all fields of the op except the memory sizes, and the
 * sizes of its parameters. */
void ls_conv_plan(ls_conv_op *op, const ls_lanes_conv *c, int bias);
/* Plans the sizes of saved and scratch memory. The caller has set `kept` before. */
void ls_conv_plan_memory(ls_conv_op *op);

#endif
