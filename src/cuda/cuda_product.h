/* What layers that multiply (conv2d, dense) share: factors in bf16, the relu's mask and the bias's
 * gradient. A part of the back end's inside. */
#ifndef CUDA_CUDA_PRODUCT_H
#define CUDA_CUDA_PRODUCT_H

#include "cuda/cuda_op.h"

/* The end of a creator: makes the plans of the passes that the op needs from `forward`, whose kind is
 * that of the forward pass and is followed by the kinds of the other two. A fused form that the
 * library declines is replaced by the plain one. Reserves the workspace. */
int ls_cuda_product_finish(ls_op **out, ls_cuda_op *op, const ls_math_shape *forward,
                           ls_error *err);

/* Reserves x (which is used in that form) and dy in bf16 where the op multiplies so and they are not
 * bf16 already, and the masked dy. */
void ls_cuda_product_reserve(ls_cuda_op *op, ls_cuda_form x_form);

/* A parameter as the op multiplies it: its shadow in bf16, else itself. */
const void *ls_cuda_param(const ls_cuda_op *op, int index);

/* `from` as a factor: itself, or rounded into `room` if that has bytes. */
int ls_cuda_factor(const void **out, ls_cuda_op *op, const ls_cuda_room *room, const void *from,
                   size_t count, cudaStream_t stream, ls_error *err);

/* Adds the bias to y and applies the relu, unless the forward plan has done so. */
int ls_cuda_product_bias(ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* dy as it is before the fused relu, in y's form; writes the bias's gradient on the way. */
int ls_cuda_product_dy(const void **out, ls_cuda_op *op, unsigned flags, cudaStream_t stream,
                       ls_error *err);

/* dx from dy as a factor. */
int ls_cuda_product_dx(ls_cuda_op *op, const void *dy, cudaStream_t stream, ls_error *err);

/* Runs one of the op's plans. */
int ls_cuda_product_run(ls_cuda_op *op, int pass, const void *a, const void *b, void *out, int add,
                        cudaStream_t stream, ls_error *err);

#endif
