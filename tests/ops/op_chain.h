/* Chains of ops as descriptions: shapes and sizes, without a device. Shared by the op_*.c files. */
#ifndef OPS_OP_CHAIN_H
#define OPS_OP_CHAIN_H

#include "ops/op_check.h"

#include <stddef.h>

/* `n` zeroed elements of the C library's memory; fails the test when there is none. */
void *op_zeros(size_t n, size_t size);

/* Elements of one row of a tensor. */
size_t op_row(const ls_tensor *t);
/* Of a class, where a loss is weighted: 0.25 to 1.5. */
float op_class_weight(int class);

/* "conv2d". */
const char *op_kind_name(int kind);

int op_is_loss(int kind);
int op_ends_in_loss(const op_chain *chain);
/* Words of a row's label, or of its target where the chain's loss is one of vectors. */
size_t op_label_words(const op_chain *chain);

/* Of the chain's rows and those before and behind them. */
size_t op_shard_rows(const op_chain *chain);
int op_has_params(const ls_op_desc *d);
int op_has_x2(const ls_op_desc *d);

/* The number of the op that feeds x, or x2, of op i; −1: the chain's x does; OP_SECOND: its x2. */
int op_source(const op_chain *chain, int i);
int op_source2(const op_chain *chain, int i);

/* The tensors that op i of the chain takes and puts out, fused parts included. */
ls_tensor op_x_of(const op_chain *chain, int i);
ls_tensor op_x2_of(const op_chain *chain, int i);
ls_tensor op_shape_after(const op_chain *chain, int i);

/* Elements of parameter p of op i in canonical form. */
size_t op_canonical(const op_chain *chain, int i, int p);

#endif
