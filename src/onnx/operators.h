/* SPDX-License-Identifier: MIT */
/* Operators that stand for one layer without weights, which computes value by value. Both writing
 * (graph.c) and reading (import_form.c) use this table. */
#ifndef ONNX_OPERATORS_H
#define ONNX_OPERATORS_H

#include <lockstep/sys/plugin.h>

/* Returns the operator of a layer's op, or NULL if the table has none. */
const char *ls_operator_of(ls_op_kind kind);
/* Returns the layer type that an operator stands for, or NULL. */
const char *ls_operator_type(const char *op);

#endif
