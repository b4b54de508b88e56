/* SPDX-License-Identifier: MIT */
/* Encodes the parts of an ONNX file as protocol buffers. */
#include "onnx/file.h"

#include "formats/protobuf.h"
#include "onnx/onnx.h"

#include <lockstep/version.h>
#include <string.h>

void ls_onnx_file_init(ls_onnx_file *f, const ls_host *host)
{
    ls_buffer_init(&f->graph, host);
    ls_buffer_init(&f->node, host);
    ls_buffer_init(&f->attribute, host);
    ls_buffer_init(&f->tensor, host);
}

void ls_onnx_file_fini(ls_onnx_file *f)
{
    ls_buffer_fini(&f->tensor);
    ls_buffer_fini(&f->attribute);
    ls_buffer_fini(&f->node);
    ls_buffer_fini(&f->graph);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void ls_onnx_node_input(ls_onnx_file *f, const char *name)
{
    ls_pb_text(&f->node, NODE_INPUT, name);
}

void ls_onnx_node_begin(ls_onnx_file *f, const char *op, const char *name, const char *input)
{
    ls_pb_text(&f->node, NODE_OP, op);
    ls_pb_text(&f->node, NODE_NAME, name);
    ls_onnx_node_input(f, input);
}

static void attribute(ls_onnx_file *f, const char *name, int type)
{
    ls_pb_text(&f->attribute, ATTRIBUTE_NAME, name);
    ls_pb_int(&f->attribute, ATTRIBUTE_TYPE, type);
    ls_pb_message(&f->node, NODE_ATTRIBUTE, &f->attribute);
}

void ls_onnx_node_int(ls_onnx_file *f, const char *name, int64_t value)
{
    ls_pb_int(&f->attribute, ATTRIBUTE_I, value);
    attribute(f, name, TYPE_INT);
}

void ls_onnx_node_ints(ls_onnx_file *f, const char *name, const int *values, int count)
{
    for (int i = 0; i < count; i++)
        ls_pb_int(&f->attribute, ATTRIBUTE_INTS, values[i]);
    attribute(f, name, TYPE_INTS);
}

void ls_onnx_node_float(ls_onnx_file *f, const char *name, float value)
{
    ls_pb_float(&f->attribute, ATTRIBUTE_F, value);
    attribute(f, name, TYPE_FLOAT);
}

void ls_onnx_node_text(ls_onnx_file *f, const char *name, const char *value)
{
    ls_pb_text(&f->attribute, ATTRIBUTE_S, value);
    attribute(f, name, TYPE_STRING);
}

void ls_onnx_node_add_text(ls_onnx_file *f, const char *value)
{
    ls_pb_text(&f->attribute, ATTRIBUTE_STRINGS, value);
}

void ls_onnx_node_texts(ls_onnx_file *f, const char *name)
{
    attribute(f, name, TYPE_STRINGS);
}

void ls_onnx_node_domain(ls_onnx_file *f, const char *domain)
{
    ls_pb_text(&f->node, NODE_DOMAIN, domain);
}

void ls_onnx_node_end(ls_onnx_file *f, const char *output)
{
    ls_pb_text(&f->node, NODE_OUTPUT, output);
    ls_pb_message(&f->graph, GRAPH_NODE, &f->node);
}

/* ---- constants ------------------------------------------------------------------------------ */

/* Appends a number as raw data. ONNX requires little-endian order. */
static void put_little(ls_buffer *b, uint64_t bits, int bytes)
{
    char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (char)(bits >> (8 * i));
    ls_buffer_add(b, out, (size_t)bytes);
}

/* f->tensor contains the constant's numbers; the message TensorProto is composed in
 * f->attribute. */
void ls_onnx_put_tensor(ls_onnx_file *f, const char *name, int type, const int *dim, int rank)
{
    ls_buffer *t = &f->attribute;
    for (int i = 0; i < rank; i++)
        ls_pb_int(t, TENSOR_DIMS, dim[i]);
    ls_pb_int(t, TENSOR_TYPE, type);
    ls_pb_text(t, TENSOR_NAME, name);
    ls_pb_message(t, TENSOR_RAW, &f->tensor);
    ls_pb_message(&f->graph, GRAPH_TENSOR, t);
}

void ls_onnx_put_float(ls_onnx_file *f, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_little(&f->tensor, bits, 4);
}

void ls_onnx_put_double(ls_onnx_file *f, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_little(&f->tensor, bits, 8);
}

void ls_onnx_put_floats(ls_onnx_file *f, const char *name, const int *dim, int rank,
                        const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ls_onnx_put_float(f, values[i]);
    ls_onnx_put_tensor(f, name, LS_ONNX_FLOAT, dim, rank);
}

void ls_onnx_put_int64s(ls_onnx_file *f, const char *name, const int64_t *values, int count)
{
    for (int i = 0; i < count; i++)
        put_little(&f->tensor, (uint64_t)values[i], 8);
    ls_onnx_put_tensor(f, name, LS_ONNX_INT64, &count, 1);
}

/* ---- inputs, outputs and the model around the graph ------------------------------------------ */

static void put_value(ls_onnx_file *f, unsigned field, const char *name, int type, const int *dim,
                      int rank)
{
    ls_buffer *shape = &f->tensor, *inner = &f->attribute, *value = &f->node;
    ls_pb_text(inner, DIM_PARAM, "batch");
    ls_pb_message(shape, SHAPE_DIM, inner);
    for (int i = 0; i < rank; i++) {
        ls_pb_int(inner, DIM_VALUE, dim[i]);
        ls_pb_message(shape, SHAPE_DIM, inner);
    }
    ls_pb_int(inner, TENSOR_ELEMENT, type);
    ls_pb_message(inner, TENSOR_SHAPE, shape);
    ls_pb_message(shape, TYPE_TENSOR, inner);
    ls_pb_text(value, VALUE_NAME, name);
    ls_pb_message(value, VALUE_TYPE, shape);
    ls_pb_message(&f->graph, field, value);
}

void ls_onnx_put_input(ls_onnx_file *f, const char *name, int type, const int *dim, int rank)
{
    put_value(f, GRAPH_INPUT, name, type, dim, rank);
}

void ls_onnx_put_output(ls_onnx_file *f, const char *name, const int *dim, int rank)
{
    put_value(f, GRAPH_OUTPUT, name, LS_ONNX_FLOAT, dim, rank);
}

static void put_opset(ls_buffer *out, ls_onnx_file *f, const char *domain, int version)
{
    ls_pb_text(&f->node, OPSET_DOMAIN, domain);
    ls_pb_int(&f->node, OPSET_VERSION, version);
    ls_pb_message(out, MODEL_OPSET, &f->node);
}

void ls_onnx_finish(ls_buffer *out, ls_onnx_file *f, const char *name, int uses_ml)
{
    ls_pb_text(&f->graph, GRAPH_NAME, name);
    ls_pb_int(out, MODEL_IR, LS_ONNX_IR_VERSION);
    ls_pb_text(out, MODEL_PRODUCER, "lockstep");
    ls_pb_text(out, MODEL_PRODUCER_VERSION, LS_VERSION);
    ls_pb_message(out, MODEL_GRAPH, &f->graph);
    put_opset(out, f, "", LS_ONNX_OPSET);
    if (uses_ml)
        put_opset(out, f, "ai.onnx.ml", LS_ONNX_ML_OPSET);
}

void ls_onnx_put_entry(ls_buffer *out, ls_onnx_file *f, const char *key, const char *value)
{
    ls_pb_text(&f->node, ENTRY_KEY, key);
    ls_pb_text(&f->node, ENTRY_VALUE, value);
    ls_pb_message(out, MODEL_METADATA, &f->node);
}
