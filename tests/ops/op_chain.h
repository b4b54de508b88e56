/* Chains of ops as descriptions: shapes and sizes, without a device. Shared by the op_*.c files. */
#ifndef OPS_OP_CHAIN_H
#define OPS_OP_CHAIN_H

#include "ops/op_check.h"

#include <stddef.h>

/* Returns `n` zeroed elements of the C library's memory; fails the test if there is none. */
void *op_zeros(size_t n, size_t size);

/* Returns the number of elements in one row of a tensor. */
size_t op_row(const ls_tensor *t);
/* Returns the weight of a class in a weighted loss: 0.25 to 1.5. */
float op_class_weight(int class);

/* Returns the name of a kind, such as "conv2d". */
const char *op_kind_name(int kind);

int op_is_loss(int kind);
int op_ends_in_loss(const op_chain *chain);
/* Returns the number of words in a row's label, or in its target if the chain's loss is one of
 * vectors. */
size_t op_label_words(const op_chain *chain);

/* Returns the number of the chain's rows and of the other rows of the shard before and after
 * them. */
size_t op_shard_rows(const op_chain *chain);
int op_has_params(const ls_op_desc *d);
int op_has_x2(const ls_op_desc *d);

/* Return the number of the op that feeds x, or x2, of op i; −1: the chain's x; OP_SECOND: its
 * x2. */
int op_source(const op_chain *chain, int i);
int op_source2(const op_chain *chain, int i);

/* Return the input and output tensors of op i, fused parts included. */
ls_tensor op_x_of(const op_chain *chain, int i);
ls_tensor op_x2_of(const op_chain *chain, int i);
ls_tensor op_shape_after(const op_chain *chain, int i);

/* Returns the number of elements of parameter p of op i in canonical form. */
size_t op_canonical(const op_chain *chain, int i, int p);

#endif
