/* SPDX-License-Identifier: MIT */
/* Random descriptions of ops, drawn from a seed, so that every run of the tests has the same cases.
 * A *case* is a chain of ops (op_check.h). A row is an example of the batch. */
#ifndef OPS_OP_CASES_H
#define OPS_OP_CASES_H

#include "ops/op_check.h"

/* State of a sequence of random numbers. */
typedef struct op_draws {
    uint64_t seed, next;
} op_draws;

/* Draws an integer in [low, high]; small numbers are more frequent. */
int op_draw(op_draws *d, int low, int high);

/* Draws 0 or 1. */
int op_flip(op_draws *d);

/* Returns a chain without ops, for training, with the gradient of its input (dx), on a random
 * number of rows. */
op_chain op_case(op_draws *d, uint64_t seed);

/* Append an op with random sizes, strides and so on. The first op of a chain also sets the chain's
 * input. Each later op gets sizes that fit `*x`, the output of the previous op. Each function
 * stores the new output to `*x`, and keeps the work of a case small. */
void op_add_conv(op_chain *chain, op_draws *d, ls_tensor *x);
void op_add_dense(op_chain *chain, op_draws *d, ls_tensor *x);
void op_add_pool(op_chain *chain, op_draws *d, ls_tensor *x, int max);
void op_add_plain(op_chain *chain, ls_op_kind kind, ls_tensor *x);
/* Appends a loss of vectors as the last op. `seed` selects its rule. `x` has at most four channels
 * more afterwards if the loss has several quantiles. */
void op_add_vector_loss(op_chain *chain, op_draws *d, ls_tensor x, uint64_t seed);

/* Draws the shape of the chain's input, an image or a vector. The function that appends the first
 * op stores it. */
ls_tensor op_image(op_draws *d, int rows, int channels, int side);

/* Each op_make_… function returns the case of a seed. */
op_chain op_make_conv(uint64_t seed);
/* convolutions for which the CPU back end uses Winograd's algorithm */
op_chain op_make_winograd(uint64_t seed);
op_chain op_make_dilated(uint64_t seed);
op_chain op_make_grouped(uint64_t seed);
op_chain op_make_depthwise(uint64_t seed);
op_chain op_make_dense(uint64_t seed);
op_chain op_make_average(uint64_t seed);
op_chain op_make_maximum(uint64_t seed);
op_chain op_make_relu(uint64_t seed);
op_chain op_make_loss(uint64_t seed);
op_chain op_make_vector_loss(uint64_t seed);
op_chain op_make_export(uint64_t seed);

/* Fused forms. */
op_chain op_make_conv_relu(uint64_t seed);
op_chain op_make_depthwise_relu(uint64_t seed);
op_chain op_make_grouped_pool(uint64_t seed);
op_chain op_make_winograd_relu(uint64_t seed);
op_chain op_make_dense_relu(uint64_t seed);
op_chain op_make_conv_pool(uint64_t seed);

/* conv2d followed by an op that reads the output in the layout in which the convolution wrote it.
 */
op_chain op_make_after_conv(uint64_t seed);

/* gather → conv2d → relu → pool → dense → softmax_xent. */
op_chain op_make_network(uint64_t seed);

/* The LeNet of the Fashion-MNIST example on a few numbers of rows: 11 plain ops, or 6 fused
 * ones. */
op_chain op_make_lenet(uint64_t seed);
op_chain op_make_fused_lenet(uint64_t seed);

/* The cases above up to op_make_after_conv, as far as every device supports them; `seed` selects
 * the kind. */
op_chain op_make_any(uint64_t seed);

/* ---- op_cases_norm.c ------------------------------------------------------------------------ */

op_chain op_make_norm(uint64_t seed);
/* in evaluation; the ops are for training or for evaluation */
op_chain op_make_norm_evaluate(uint64_t seed);
op_chain op_make_add(uint64_t seed);
op_chain op_make_sigmoid(uint64_t seed);
op_chain op_make_tanh(uint64_t seed);
op_chain op_make_gelu(uint64_t seed);
op_chain op_make_layer_norm(uint64_t seed);
op_chain op_make_upsample(uint64_t seed);
/* padding of 0 to 3 pixels on each side */
ls_pad op_draw_pad(op_draws *d);
op_chain op_make_pad(uint64_t seed);
op_chain op_make_concat(uint64_t seed);
/* of two tensors of one shape, or with one factor for each channel */
op_chain op_make_multiply(uint64_t seed);
op_chain op_make_silu(uint64_t seed);
op_chain op_make_clamp(uint64_t seed);
op_chain op_make_gelu_tanh(uint64_t seed);
op_chain op_make_affine(uint64_t seed);
op_chain op_make_hard_sigmoid(uint64_t seed);
op_chain op_make_hard_swish(uint64_t seed);
op_chain op_make_dropout(uint64_t seed);
op_chain op_make_smooth_loss(uint64_t seed);
op_chain op_make_augmented(uint64_t seed);

/* Fused forms. */
op_chain op_make_norm_relu(uint64_t seed);
op_chain op_make_norm_add(uint64_t seed); /* usually with a relu too */
op_chain op_make_add_relu(uint64_t seed);

/* Ops that read the output of a convolution in the layout in which the convolution wrote it. */
op_chain op_make_add_of_convs(uint64_t seed);
/* the op is a batch norm, an activation or dropout */
op_chain op_make_norm_after_conv(uint64_t seed);
op_chain op_make_residual(uint64_t seed);

/* op_make_rowwise: any of the cases above in which a row's results do not depend on other rows.
 * op_make_any_norm: any case with batch norm. */
op_chain op_make_rowwise(uint64_t seed);
op_chain op_make_any_norm(uint64_t seed);

#endif
