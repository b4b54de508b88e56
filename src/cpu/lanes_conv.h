/* The convolution op of the lanes family; inside the family only. */
#ifndef CPU_LANES_CONV_H
#define CPU_LANES_CONV_H

#include "cpu/lanes_op.h"

typedef struct ls_lanes_conv_op {
    ls_lanes_op base; /* first */
    ls_lanes_conv conv;
    int bias;
    int staged;                          /* dy has to go back through pool and relu before use */
    size_t x_group;                      /* floats of a group of x (and of dx) */
    size_t padded_group;                 /* the same with padded columns */
    size_t y_group, d_group, mask_group; /* floats, floats, bytes */
} ls_lanes_conv_op;

/* out ← x of one group with columns of zeros left and right. */
void ls_lanes_conv_pad(const ls_lanes_conv *c, const float *x, float *out);

/* The op's backward slot, and the floats of scratch that it takes. */
int ls_lanes_conv_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err);
size_t ls_lanes_conv_backward_floats(const ls_lanes_conv_op *op);

/* Floats of the parameters, padding included. */
size_t ls_lanes_conv_weight_floats(const ls_lanes_conv *c);
size_t ls_lanes_conv_bias_floats(const ls_lanes_conv *c);

/* The slots of the op's table. */
int ls_lanes_conv_import(ls_op *op, int index, void *dst, const float *src, ls_error *err);
int ls_lanes_conv_export(ls_op *op, int index, float *dst, const void *src, ls_error *err);

/* Weights rearranged for the gradient of the input, and the floats they take. */
size_t ls_lanes_conv_packed_floats(const ls_lanes_conv *c);
void ls_lanes_conv_pack(const ls_lanes_conv *c, const float *w, float *packed);

#endif
