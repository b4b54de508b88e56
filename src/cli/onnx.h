/* A model as an ONNX file, for inference.
 *
 * ONNX IR version 8, operators of version 17 of the standard set. The graph has one input "x",
 * [batch, c, h, w] fp32 with a free batch dimension: pixels divided by 255, as PyTorch's ToTensor
 * makes them, or floats as they are in the data; where the config's mean and std are not 0 and 1, the graph begins with them. Its
 * output "logits" is [batch, classes]. Weights have the names that they have in safetensors files.
 * Batch norm uses the running statistics; dropout is left out. The file's metadata say what goes in and what comes
 * out: "input" and "output" in words, "size" [c, h, w], "mean" and "std" [c], which are in the graph already, and
 * "class_names" and "features", where the model's card (card.h) has them, as JSON.
 */
#ifndef CLI_ONNX_H
#define CLI_ONNX_H

#include "base/buffer.h"
#include "nn/loss.h"
#include "nn/model.h"

enum { LS_ONNX_IR_VERSION = 8, LS_ONNX_OPSET = 17 };

typedef struct ls_onnx_desc {
    const ls_model *model;
    const float *weights; /* canonical */
    ls_gather normalisation;
    const char *name;    /* of the graph */
    const ls_loss *loss; /* NULL: cross-entropy */
} ls_onnx_desc;

/* Appends the whole file to `out`. Errors: LS_EUNSUPPORTED (2 GB or more, protobuf's limit),
 * LS_ENOMEM. */
int ls_onnx_write(ls_buffer *out, const ls_onnx_desc *desc, ls_error *err);

/* The same, into a file, which replaces what was there only when it is whole. Errors: as above,
 * LS_EIO. */
int ls_onnx_save(const char *path, const ls_onnx_desc *desc, const ls_host *host, ls_error *err);

#endif
