/* How rows as they are in the user's files become what the first layer reads: the graph's inputs, the preparation
 * behind them (prep/prep.h), and the metadata that name both. One thread. */
#ifndef CLI_ONNX_ROWS_H
#define CLI_ONNX_ROWS_H

#include "cli/onnx.h"
#include "cli/onnx_file.h"

#define LS_ONNX_LOGITS "logits"
#define LS_ONNX_PROBABILITIES "probabilities"

typedef struct ls_onnx_tensor {
    char name[96];
    int rank; /* 2 or 4 */
} ls_onnx_tensor;

/* Whether an input is of strings, which the operators of ai.onnx.ml read. */
bool ls_onnx_has_texts(const ls_onnx_desc *desc);

/* Puts the inputs, and the nodes that prepare a row; returns what the first layer reads. */
ls_onnx_tensor ls_onnx_put_rows(ls_onnx_file *f, const ls_onnx_desc *desc);

/* What the network gives becomes values in the target's unit, where `prep`, which may be NULL, says so. */
void ls_onnx_give_back(ls_onnx_file *f, const struct ls_prep *prep, ls_onnx_tensor *y);

void ls_onnx_put_metadata(ls_buffer *out, ls_onnx_file *f, const ls_onnx_desc *desc);

#endif
