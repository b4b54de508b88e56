/* Converts rows as they are in the user's files to the input of the first layer: writes the graph's
 * inputs, the preparation (prep/prep.h) and the metadata that describe both. One thread. */
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

/* Returns whether an input consists of strings, which operators of ai.onnx.ml read. */
bool ls_onnx_has_texts(const ls_onnx_desc *desc);

/* Writes the inputs and the nodes that prepare a row. Returns the input of the first layer. */
ls_onnx_tensor ls_onnx_put_rows(ls_onnx_file *f, const ls_onnx_desc *desc);

/* Converts the network's output `y` to the unit of the target, if `prep` says so. `prep` may be
 * NULL. */
void ls_onnx_give_back(ls_onnx_file *f, const struct ls_prep *prep, ls_onnx_tensor *y);

/* Writes the metadata that describe input and output (onnx.h) to `out`, after the graph. */
void ls_onnx_put_metadata(ls_buffer *out, ls_onnx_file *f, const ls_onnx_desc *desc);

#endif
