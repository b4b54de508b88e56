/* SPDX-License-Identifier: MIT */
/* Lockstep's own kernels for convolutions of few channels (kernels/kernels.h, ls_k_conv): which
 * convolutions they compute, and how a plan runs them. They are a candidate beside cuDNN's engines
 * (math/choice.c). An op whose plan runs them can call them itself, with relu and pool fused
 * (cuda_conv.c).
 *
 * They multiply and add in fp32 in every precision; with bf16 they read and write bf16. */
#ifndef CUDA_OWN_CONV_H
#define CUDA_OWN_CONV_H

#include "cuda/kernels/kernels.h"
#include "cuda/math/math_lib.h"

#include <stdbool.h>

/* Version of the kernels' bits. It is part of the key and of the text of a choice
 * (math/choice.c). */
#define LS_OWN_CONV_VERSION "1"
#define LS_OWN_CONV_TEXT "own kernels\n" LS_OWN_CONV_VERSION

/* Returns true if the kernels compute the shape: y or the gradient of the weights, at most 4 input
 * channels in one group, at most 196 taps, and a multiple of 4 output channels. */
bool ls_own_conv_takes(const ls_math_shape *shape);

/* Returns true if a plan runs the kernels when nothing is measured: if the filter has at most 32
 * taps, as 3 × 3 of three channels and 5 × 5 of one channel. With more taps the sums take longer
 * than the copies that the kernels save. */
bool ls_own_conv_is_first(const ls_math_shape *shape);

/* Returns the arguments of the kernels for a shape, without a pool. */
ls_k_conv ls_own_conv_of(const ls_math_shape *shape);

/* Returns the bytes of workspace of a plan. */
size_t ls_own_conv_workspace(const ls_math_shape *shape);

/* Enqueues the work of a plan. */
cudaError_t ls_own_conv_run(const ls_math_shape *shape, const ls_math_operands *operands,
                            cudaStream_t stream);

#endif
