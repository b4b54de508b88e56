/* SPDX-License-Identifier: MIT */
/* The ops as textbooks define them, in double and without optimisation. Tests check the reference
 * back end (src/ref) with these definitions, which share no code with its loops. Arrays are
 * row-major. A row is an example of the batch. */
#ifndef OPS_DEFINITIONS_H
#define OPS_DEFINITIONS_H

#include <lockstep/sys/plugin.h>

typedef struct definition_inputs {
    const double *x, *x2, *weight, *bias; /* bias: NULL if the op has none */
    const int32_t *labels;                /* labels, or targets as floats */
    int row_weights;                      /* non-zero: rows have the weights of op_row_weight */
    const uint32_t *rows;                 /* row numbers in the data set, for dropout */
    uint64_t seed;
    uint32_t epoch;
} definition_inputs;

/* Computes the result of `desc` in training: y, or for softmax_xent the summed loss as y[0].
 * Returns the number of values. Supports every kind of op that has an input x except gather, and
 * also fused add and relu. */
size_t define(double *y, const ls_op_desc *desc, const definition_inputs *in);

/* Computes the contribution of a batchnorm to the running statistics, 2·c values. */
void define_contribution(double *out, const ls_op_desc *desc, const double *x,
                         const float *running);

#endif
