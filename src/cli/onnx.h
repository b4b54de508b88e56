/* A model as an ONNX file, for inference.
 *
 * ONNX IR version 8, operators of version 17 of the standard set. Rows go in as they are in the user's files, and
 * everything that prepares them is in the graph; the number of rows is free:
 *
 *     bytes, images   "x", uint8 [batch, c, h, w], or [batch, values] where h and w are 1
 *     floats          "x", float32, of the same shapes
 *     a table         "x", float32 [batch, columns], NaN where a number is missing
 *     a table with texts   an input for each column, called like it, [batch, 1]: float32, or strings, which are empty where
 *                     one is missing; a text that the training rows did not have is an error of the run. A column whose
 *                     name is empty, has a colon, or is that of a tensor is called "column:NUMBER". Version 3 of ai.onnx.ml
 *
 * Outputs are "logits" [batch, classes] and, but of a model that learnt values, "probabilities". Weights have the names
 * that they have in safetensors files. Batch norm uses the running statistics; dropout is left out. The file's metadata
 * say what goes in and what comes out: "input" and "output" in words, "inputs" (name, type, shape and columns of each),
 * "size" [c, h, w], "mean" and "std" [c], and "class_names", "features" and "preparation", where the model's card
 * (card.h) has them, as JSON.
 */
#ifndef CLI_ONNX_H
#define CLI_ONNX_H

#include "base/buffer.h"
#include "nn/loss.h"
#include "nn/model.h"

enum { LS_ONNX_IR_VERSION = 8, LS_ONNX_OPSET = 17, LS_ONNX_ML_OPSET = 3 };

typedef struct ls_onnx_desc {
    const ls_model *model;
    const float *weights; /* canonical */
    ls_gather normalisation;
    const struct ls_prep *prep; /* how rows are prepared; NULL: as `normalisation` says */
    const char *name;           /* of the graph */
    const ls_loss *loss;        /* NULL: cross-entropy */
} ls_onnx_desc;

/* Appends the whole file to `out`. Errors: LS_EUNSUPPORTED (2 GB or more, protobuf's limit),
 * LS_ENOMEM. */
int ls_onnx_write(ls_buffer *out, const ls_onnx_desc *desc, ls_error *err);

/* The same, into a file, which replaces what was there only when it is whole. Errors: as above,
 * LS_EIO. */
int ls_onnx_save(const char *path, const ls_onnx_desc *desc, const ls_host *host, ls_error *err);

#endif
