/* SPDX-License-Identifier: MIT */
/* Reads the bytes of an ONNX file into a list of nodes, tensors, inputs and outputs.
 *
 * The lists point into the mapped file: names are texts without a terminating zero, attributes and
 * tensors are messages that are decoded when they are used. Each list has at most LS_ONNX_MOST
 * entries. The graph's meaning is not checked here (importer.h). */
#ifndef ONNX_READ_H
#define ONNX_READ_H

#include "formats/arrays.h"
#include "formats/protobuf.h"
#include "onnx/proto.h"

#include <lockstep/host.h>

enum { LS_ONNX_MOST = 20000, LS_ONNX_RANK = 8 };

/* A text in the file, or in a constant of the program. */
typedef struct ls_onnx_text {
    const char *at;
    size_t length;
} ls_onnx_text;

typedef struct ls_onnx_attribute {
    ls_onnx_text name;
    ls_pb_reader message; /* AttributeProto */
} ls_onnx_attribute;

typedef struct ls_onnx_node {
    ls_onnx_text op, name, domain;
    int input, inputs;         /* index of the first in ls_onnx_model.text, and number */
    int output, outputs;       /* index of the first in ls_onnx_model.text, and number */
    int attribute, attributes; /* index of the first in ls_onnx_model.attribute, and number */
} ls_onnx_node;

/* A tensor: an initializer of the graph, or an attribute. */
typedef struct ls_onnx_stored {
    ls_onnx_text name;
    int type; /* LS_ONNX_FLOAT and others */
    int rank;
    int64_t dim[LS_ONNX_RANK];
    ls_pb_reader message; /* TensorProto */
} ls_onnx_stored;

/* An input or output of the graph. */
typedef struct ls_onnx_value {
    ls_onnx_text name;
    int type;                  /* 0: not given, or not a tensor */
    int rank;                  /* −1: not given */
    int64_t dim[LS_ONNX_RANK]; /* −1: any number */
} ls_onnx_value;

/* An entry of the file's metadata. */
typedef struct ls_onnx_entry {
    ls_onnx_text key, value;
} ls_onnx_entry;

/* A list with room for more entries (ls_grown of base/host.h). */
#define LS_ONNX_LIST(type)                                                                         \
    struct {                                                                                       \
        type *at;                                                                                  \
        int count;                                                                                 \
        size_t room;                                                                               \
    }

typedef struct ls_onnx_model {
    const ls_host *host;
    const char *path; /* belongs to the caller; messages begin with it */
    ls_array file;
    int64_t opset; /* version of the standard operators; 0: not given */
    ls_onnx_text producer, version, doc, graph_name;
    LS_ONNX_LIST(ls_onnx_node) node;
    LS_ONNX_LIST(ls_onnx_text) text;
    LS_ONNX_LIST(ls_onnx_attribute) attribute;
    LS_ONNX_LIST(ls_onnx_stored) tensor;
    LS_ONNX_LIST(ls_onnx_value) input;
    LS_ONNX_LIST(ls_onnx_value) output;
    LS_ONNX_LIST(ls_onnx_entry) entry;
} ls_onnx_model;

/* Maps and reads the file at `path`, which must outlive *out. The caller calls ls_onnx_close, also
 * after a failure. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA (not an ONNX file, damaged, or
 * more than LS_ONNX_MOST entries in a list). */
int ls_onnx_open(ls_onnx_model *out, const char *path, const ls_host *host, ls_error *err);
/* Unmaps the file and frees the lists. A zeroed model is allowed. */
void ls_onnx_close(ls_onnx_model *m);

/* Reads a TensorProto. Errors: LS_EDATA. */
int ls_onnx_read_tensor(ls_onnx_stored *out, const ls_onnx_model *m, ls_pb_reader message,
                        ls_error *err);

/* Returns the name of a type of values, as onnx.proto has it, in small letters. */
const char *ls_onnx_type_name(int type);

/* Returns whether two texts are equal. */
bool ls_onnx_same(ls_onnx_text a, ls_onnx_text b);
/* Returns whether a text is equal to a zero-terminated text. */
bool ls_onnx_is(ls_onnx_text a, const char *b);
/* Copies a text to `out`, which has room for `size` bytes, zero-terminated, truncated if it is
 * longer, as one line of valid UTF-8. Returns `out`. */
const char *ls_onnx_copy(char *out, size_t size, ls_onnx_text text);

#endif
