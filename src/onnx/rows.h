/* SPDX-License-Identifier: MIT */
/* Writes the part of an ONNX graph that converts rows, as they are in the user's files, to the
 * input of the first layer: the graph's inputs, the nodes of the preparation (prep/prep.h), and the
 * metadata that describe input and output. */
#ifndef ONNX_ROWS_H
#define ONNX_ROWS_H

#include "onnx/file.h"
#include "onnx/onnx.h"

#define LS_ONNX_LOGITS "logits"
#define LS_ONNX_PROBABILITIES "probabilities"
#define LS_ONNX_COUNTS "counts" /* output of the loss poisson only */

/* A tensor of the graph: an input of the graph, or the output of a node. */
typedef struct ls_onnx_tensor {
    char name[96];
    int rank; /* 2 or 4 */
} ls_onnx_tensor;

/* Returns whether an input of the graph consists of strings. Only operators of ai.onnx.ml read
 * strings. */
bool ls_onnx_has_texts(const ls_onnx_desc *desc);

/* Writes the graph's inputs and the nodes that prepare a row. Returns the tensor that the first
 * layer reads. */
ls_onnx_tensor ls_onnx_put_rows(ls_onnx_file *f, const ls_onnx_desc *desc);

/* Writes the nodes that make the outputs *y of rows with unknown values NaN, if rows are numbers,
 * and, if the target was scaled (desc->prep->targets), those that convert the outputs to the unit
 * of the target: output i belongs to target i modulo `targets`. Replaces *y by the outputs of these
 * nodes. */
void ls_onnx_give_back(ls_onnx_file *f, const ls_onnx_desc *desc, ls_onnx_tensor *y);

/* Writes the metadata that describe input and output (onnx.h) to `out`, after the graph. */
void ls_onnx_put_metadata(ls_buffer *out, ls_onnx_file *f, const ls_onnx_desc *desc);

#endif
