/* SPDX-License-Identifier: MIT */
/* Operands for measuring a product, and single outputs of the product in double. (tune.h) */
#ifndef CUDA_MATH_SAMPLE_H
#define CUDA_MATH_SAMPLE_H

#include "cuda/math/math_lib.h"

/* Size in bytes of the block that an operand consists of: an operand is this block, repeated. */
enum { LS_SAMPLE_BLOCK = 1 << 20 };

/* The blocks of the operands a and b and of the bias, in host memory. */
typedef struct ls_sample_data {
    unsigned char *a, *b, *bias; /* LS_SAMPLE_BLOCK bytes each */
} ls_sample_data;

/* An output, computed from the operands. */
typedef struct ls_sample {
    size_t at;    /* index of the output */
    double exact; /* its value, rounded nowhere */
    /* its value if operands and result are rounded as the format requires, and tensor cores, if
     * they are used, truncate their sums */
    double rounded;
    double magnitude; /* sum of the magnitudes of all terms */
} ls_sample;

/* Returns the size in elements of operand 0 (a), 1 (b) or 2 (out). */
size_t ls_sample_elements(const ls_math_shape *shape, int which);
/* Returns the size in bytes of an element of a and b, or of out and the bias. */
size_t ls_sample_factor_bytes(const ls_math_shape *shape);
size_t ls_sample_result_bytes(const ls_math_shape *shape);

/* Fills the blocks with numbers of a kind (tune.h): 0 uniform, 1 as after a relu, 2 rows of
 * different sizes. */
void ls_sample_fill(const ls_sample_data *data, const ls_math_shape *shape, int kind);

/* Chooses the outputs: 16 in the corners of the result, the others by a hash of the shape. */
void ls_sample_choose(ls_sample *out, int count, const ls_math_shape *shape);
/* Computes `exact`, `rounded` and `magnitude` of an output whose index is set. */
void ls_sample_compute(ls_sample *out, const ls_sample_data *data, const ls_math_shape *shape,
                       ls_precision precision);

/* Returns the value of element `at` of an array of fp32 (`bytes` 4) or bf16 (2) numbers. */
double ls_sample_value(const void *memory, size_t at, size_t bytes);

#endif
