/* SPDX-License-Identifier: MIT */
/* Chains of ops (op_check.h) as descriptions: shapes and sizes, without a device. Shared by the
 * op_*.c files. */
#ifndef OPS_OP_CHAIN_H
#define OPS_OP_CHAIN_H

#include "ops/op_check.h"

#include <stddef.h>

/* Returns memory of the C library for `n` zeroed elements. Fails the test if memory runs out. */
void *op_zeros(size_t n, size_t size);

/* Returns the number of elements in one row of a tensor. */
size_t op_row(const ls_tensor *t);
/* Returns the weight of a class in a weighted loss: 0.25 to 1.5. */
float op_class_weight(int class);

/* Returns the weight of a row of the inputs, or of the data set that a gather reads: 0 to 2. */
float op_row_weight(size_t row);

/* Returns the name of a kind, such as "conv2d". */
const char *op_kind_name(int kind);

int op_is_loss(int kind);
int op_ends_in_loss(const op_chain *chain);
/* Returns the number of 32-bit words of a row's label, or of its target vector if the chain has a
 * vector loss. */
size_t op_label_words(const op_chain *chain);

/* Returns the number of rows of the shard: the chain's rows and the rows before and after them. */
size_t op_shard_rows(const op_chain *chain);
int op_has_params(const ls_op_desc *d);
int op_has_x2(const ls_op_desc *d);

/* Return the number of the op whose output is x, or x2, of op i. −1: it is the chain's x.
 * OP_SECOND: it is the chain's x2. */
int op_source(const op_chain *chain, int i);
int op_source2(const op_chain *chain, int i);

/* Return the input and output tensors of op i, fused parts included. */
ls_tensor op_x_of(const op_chain *chain, int i);
ls_tensor op_x2_of(const op_chain *chain, int i);
ls_tensor op_shape_after(const op_chain *chain, int i);

/* Returns the number of elements of parameter p of op i in the canonical order of files, without
 * padding. */
size_t op_canonical(const op_chain *chain, int i, int p);

#endif
