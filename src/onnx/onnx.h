/* SPDX-License-Identifier: MIT */
/* Exports a model as an ONNX file for inference.
 *
 * The file has ONNX IR version 8 and uses version 17 of the standard operators. The input of the
 * graph is rows as they are in the user's files, because the graph contains their whole preparation
 * (prep/prep.h). `batch` may be any number of rows:
 *
 *     bytes, images   "x", uint8 [batch, c, h, w], or [batch, values] if h and w are 1
 *     floats          "x", float32, of the same shapes
 *     table           "x", float32 [batch, columns], NaN where a number is missing
 *     table with texts
 *                     an input [batch, 1] for each column, with its name: float32, or strings; an
 *                     empty string is a missing text. A text that the training rows did not have
 *                     is an error at run time. A column whose name is empty, contains a colon or is
 *                     the name of a tensor is called "column:NUMBER". Needs version 3 of ai.onnx.ml
 *
 * The outputs are "logits" [batch, classes] and of the same shape, if the model predicts classes,
 * "probabilities", or with the loss poisson "counts", which are eᶻ for a logit z. Weights have the
 * same names as in safetensors files. Batch norm uses the running statistics; dropout is left out.
 *
 * The file's metadata describe input and output: "input" and "output" in words, "inputs" (name,
 * type, shape and columns of each), "size" [c, h, w], "mean" and "std" [c], and "class_names",
 * "features" and "preparation", as JSON, if the model's card (config/card.h) has them.
 * "layers_from" and "layers_to" are the names of the tensors that the first layer reads and the
 * last one gives, between which is what import.h reads again. */
#ifndef ONNX_ONNX_H
#define ONNX_ONNX_H

#include "base/buffer.h"
#include "nn/loss.h"
#include "nn/network.h"

#define LS_ONNX_FROM "layers_from"
#define LS_ONNX_TO "layers_to"

enum { LS_ONNX_IR_VERSION = 8, LS_ONNX_OPSET = 17, LS_ONNX_ML_OPSET = 3 };

/* Describes the model to export. */
typedef struct ls_onnx_desc {
    const ls_network *model;
    const float *weights; /* [model->floats], in the canonical layout (nn/network.h) */
    ls_gather normalisation;
    const struct ls_prep *prep; /* how rows are prepared; NULL: only by `normalisation` */
    const char *name;           /* name of the graph */
    const ls_loss *loss;        /* NULL: cross-entropy */
    ls_vector_loss vector_loss; /* its quantiles, for the names of the outputs */
} ls_onnx_desc;

/* Appends the complete file to `out`. Errors: LS_EUNSUPPORTED (2 GB or more, the limit of protocol
 * buffers; or a layer without an operator), LS_ENOMEM. */
int ls_onnx_write(ls_buffer *out, const ls_onnx_desc *desc, ls_error *err);

/* Writes the file to `path`. An existing file is replaced only when the new file is complete.
 * Errors: those of ls_onnx_write, LS_EIO. */
int ls_onnx_save(const char *path, const ls_onnx_desc *desc, const ls_host *host, ls_error *err);

#endif
