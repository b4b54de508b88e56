/* SPDX-License-Identifier: MIT */
#include "onnx/operators.h"

#include <stddef.h>
#include <string.h>

static const struct {
    ls_op_kind kind;
    const char *op, *type;
} rows[] = {
    {LS_OP_SIGMOID, "Sigmoid", "sigmoid"},
    {LS_OP_TANH, "Tanh", "tanh"},
    {LS_OP_HARD_SIGMOID, "HardSigmoid", "hard_sigmoid"},
    {LS_OP_HARD_SWISH, "HardSwish", "hard_swish"},
    {LS_OP_RELU, "Relu", "relu"},
    /* a relu with a slope */
    {LS_OP_RELU, "LeakyRelu", "leaky_relu"},
};

enum { ROWS = sizeof rows / sizeof *rows };

const char *ls_operator_of(ls_op_kind kind)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].kind == kind)
            return rows[i].op;
    return NULL;
}

const char *ls_operator_type(const char *op)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].op, op) == 0)
            return rows[i].type;
    return NULL;
}
