/* The pieces of an ONNX file that a graph is made of; field numbers are those of onnx.proto. */
#ifndef TOOLS_ONNX_FILE_H
#define TOOLS_ONNX_FILE_H

#include "train/protobuf.h"

/* The graph being written. `node` is the NodeProto under way. */
typedef struct ls_onnx_file {
    ls_buffer graph; /* GraphProto, without name, input and output */
    ls_buffer node, attribute, tensor;
} ls_onnx_file;

void ls_onnx_init(ls_onnx_file *f, const ls_host *host);
void ls_onnx_fini(ls_onnx_file *f);

/* node_begin, its inputs, attributes and output in any order, node_end. */
void ls_onnx_node_begin(ls_onnx_file *f, const char *op, const char *name);
void ls_onnx_node_input(ls_onnx_file *f, const char *name);
void ls_onnx_node_output(ls_onnx_file *f, const char *name);
void ls_onnx_node_int(ls_onnx_file *f, const char *name, int64_t value);
void ls_onnx_node_ints(ls_onnx_file *f, const char *name, const int *values, int count);
void ls_onnx_node_float(ls_onnx_file *f, const char *name, float value);
void ls_onnx_node_end(ls_onnx_file *f);

/* Constants of the graph: numbers in row-major order. */
void ls_onnx_floats(ls_onnx_file *f, const char *name, const int *dim, int rank,
                    const float *values, size_t count);
void ls_onnx_int64s(ls_onnx_file *f, const char *name, const int64_t *values, int count);

/* The graph's input or output: fp32 [batch, dim[0], dim[1], …], batch being free. */
void ls_onnx_input(ls_onnx_file *f, const char *name, const int *dim, int rank);
void ls_onnx_output(ls_onnx_file *f, const char *name, const int *dim, int rank);

/* Appends the ModelProto around the graph, which is empty then. */
void ls_onnx_finish(ls_buffer *out, ls_onnx_file *f, const char *graph_name, int ir_version,
                    int opset);

#endif
