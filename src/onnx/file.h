/* SPDX-License-Identifier: MIT */
/* Writes an ONNX file as protocol buffers: nodes, constants, inputs and outputs. The field numbers
 * are those of onnx.proto. A failed allocation marks a buffer as failed (base/buffer.h); the caller
 * checks this at the end. Only one thread may use an ls_onnx_file. */
#ifndef ONNX_FILE_H
#define ONNX_FILE_H

#include "base/buffer.h"
#include "onnx/proto.h"

#include <stddef.h>
#include <stdint.h>

/* State of writing a file. `node` is the NodeProto that is being written. */
typedef struct ls_onnx_file {
    ls_buffer graph; /* GraphProto, without name, input and output */
    ls_buffer node, attribute, tensor;
} ls_onnx_file;

/* Initialises the buffers, which get their memory from `host`. */
void ls_onnx_file_init(ls_onnx_file *f, const ls_host *host);
/* Frees the buffers. */
void ls_onnx_file_fini(ls_onnx_file *f);

/* These functions write a node called `name`: ls_onnx_node_begin with its first input, then the
 * other inputs and the attributes in any order, and ls_onnx_node_end with its output. */
void ls_onnx_node_begin(ls_onnx_file *f, const char *op, const char *name, const char *input);
void ls_onnx_node_input(ls_onnx_file *f, const char *name);
void ls_onnx_node_int(ls_onnx_file *f, const char *name, int64_t value);
void ls_onnx_node_ints(ls_onnx_file *f, const char *name, const int *values, int count);
void ls_onnx_node_float(ls_onnx_file *f, const char *name, float value);
void ls_onnx_node_text(ls_onnx_file *f, const char *name, const char *value);
/* Write an attribute that is a list of texts: ls_onnx_node_add_text for each text, then
 * ls_onnx_node_texts with the attribute's name. */
void ls_onnx_node_add_text(ls_onnx_file *f, const char *value);
void ls_onnx_node_texts(ls_onnx_file *f, const char *name);
void ls_onnx_node_domain(ls_onnx_file *f, const char *domain);
void ls_onnx_node_end(ls_onnx_file *f, const char *output);

/* Write a constant: first its numbers, one by one, with ls_onnx_put_float or ls_onnx_put_double,
 * then ls_onnx_put_tensor with its name, type and shape dim [rank]. ls_onnx_put_floats and
 * ls_onnx_put_int64s write a whole constant. */
void ls_onnx_put_float(ls_onnx_file *f, float value);
void ls_onnx_put_double(ls_onnx_file *f, double value);
void ls_onnx_put_tensor(ls_onnx_file *f, const char *name, int type, const int *dim, int rank);
void ls_onnx_put_floats(ls_onnx_file *f, const char *name, const int *dim, int rank,
                        const float *values, size_t count);
void ls_onnx_put_int64s(ls_onnx_file *f, const char *name, const int64_t *values, int count);

/* Writes an input of the graph. Its shape is [batch] followed by dim [rank]. */
void ls_onnx_put_input(ls_onnx_file *f, const char *name, int type, const int *dim, int rank);
/* Writes an output of the graph. Its shape is [batch] followed by dim [rank]. */
void ls_onnx_put_output(ls_onnx_file *f, const char *name, const int *dim, int rank);

/* Writes the whole file, with the graph that has been written to `f`, to `out`. `uses_ml`: the
 * graph has nodes of ai.onnx.ml. */
void ls_onnx_finish(ls_buffer *out, ls_onnx_file *f, const char *name, int uses_ml);
/* Appends an entry of the file's metadata to `out`. Must be called after ls_onnx_finish. */
void ls_onnx_put_entry(ls_buffer *out, ls_onnx_file *f, const char *key, const char *value);

#endif
