/* SPDX-License-Identifier: MIT */
/* Reads an ONNX file (read.h). */
#include "onnx/read.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- texts ---------------------------------------------------------------------------------- */

bool ls_onnx_same(ls_onnx_text a, ls_onnx_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

bool ls_onnx_is(ls_onnx_text a, const char *b)
{
    return ls_onnx_same(a, (ls_onnx_text){b, strlen(b)});
}

const char *ls_onnx_copy(char *out, size_t size, ls_onnx_text text)
{
    const size_t n = text.length < size ? text.length : size - 1;
    if (n)
        memcpy(out, text.at, n);
    for (size_t i = 0; i < n; i++)
        if (out[i] == '\0')
            out[i] = '?';
    out[n] = '\0';
    ls_utf8_tidy(out);
    return out;
}

static ls_onnx_text text_of(const ls_pb_field *f)
{
    return (ls_onnx_text){(const char *)f->bytes, f->length};
}

static ls_pb_reader message_of(const ls_pb_field *f)
{
    return (ls_pb_reader){.at = f->bytes, .end = f->bytes + f->length};
}

const char *ls_onnx_type_name(int type)
{
    static const char *const name[] = {"undefined",  "float",   "uint8",  "int8",   "uint16",
                                       "int16",      "int32",   "int64",  "string", "bool",
                                       "float16",    "double",  "uint32", "uint64", "complex64",
                                       "complex128", "bfloat16"};
    return type >= 0 && type < (int)(sizeof name / sizeof *name) ? name[type] : "of a few bits";
}

/* ---- lists and failures ---------------------------------------------------------------------- */

/* Fails if the message that `r` reads is damaged. */
static int check_end(const ls_onnx_model *m, const ls_pb_reader *r, const char *what, ls_error *err)
{
    const size_t size = m->file.map_bytes;
    const uint8_t *bytes = m->file.map;
    if (!r->broken)
        return LS_OK;
    if (r->cut && r->end == bytes + size)
        return ls_fail(err, LS_EDATA,
                       "%.300s: offset %zu: expected a whole field of %s, and the file ends within "
                       "it, after %zu bytes: it is cut off, or no ONNX file; copy it again",
                       m->path, (size_t)(r->at - bytes), what, size);
    return ls_fail(err, LS_EDATA,
                   "%.300s: offset %zu: expected a field of %s, found damaged bytes; is it an ONNX "
                   "file?",
                   m->path, (size_t)(r->at - bytes), what);
}

static int fail_many(const ls_onnx_model *m, const char *what, ls_error *err)
{
    return ls_fail(err, LS_EDATA, "%.300s: expected at most %d %s, found more", m->path,
                   LS_ONNX_MOST, what);
}

/* Makes room for one more entry in a list. `most`: largest number of entries. */
static int grow(const ls_onnx_model *m, void **at, int count, size_t *room, size_t size, int most,
                const char *what, ls_error *err)
{
    if (count >= most)
        return fail_many(m, what, err);
    void *grown = ls_grown(m->host, *at, (size_t)count, room, size);
    if (!grown)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for its %s", m->path, what);
    *at = grown;
    return LS_OK;
}

#define GROW(m, list, factor, what, err)                                                           \
    grow(m, (void **)&(m)->list.at, (m)->list.count, &(m)->list.room, sizeof *(m)->list.at,        \
         LS_ONNX_MOST *(factor), what, err)

/* ---- nodes ---------------------------------------------------------------------------------- */

static int add_text(ls_onnx_model *m, ls_onnx_text text, ls_error *err)
{
    int status = GROW(m, text, 8, "names of tensors (times 8)", err);
    if (status == LS_OK)
        m->text.at[m->text.count++] = text;
    return status;
}

static int add_attribute(ls_onnx_model *m, ls_pb_reader message, ls_error *err)
{
    ls_onnx_attribute a = {.message = message};
    ls_pb_reader r = message;
    ls_pb_field f;
    while (ls_pb_next(&f, &r))
        if (f.number == ATTRIBUTE_NAME && f.bytes)
            a.name = text_of(&f);
    int status = check_end(m, &r, "an attribute", err);
    if (status == LS_OK)
        status = GROW(m, attribute, 8, "attributes (times 8)", err);
    if (status == LS_OK)
        m->attribute.at[m->attribute.count++] = a;
    return status;
}

/* Reads the names of a node's inputs (`number` NODE_INPUT) or outputs. */
static int add_names(ls_onnx_model *m, ls_pb_reader r, unsigned number, int *first, int *count,
                     ls_error *err)
{
    ls_pb_field f;
    int status = LS_OK;
    *first = m->text.count;
    while (status == LS_OK && ls_pb_next(&f, &r))
        if (f.number == number && f.bytes)
            status = add_text(m, text_of(&f), err);
    *count = m->text.count - *first;
    return status;
}

static int add_node(ls_onnx_model *m, ls_pb_reader message, ls_error *err)
{
    ls_onnx_node n = {.attribute = m->attribute.count};
    ls_pb_reader r = message;
    ls_pb_field f;
    int status = GROW(m, node, 1, "nodes", err);
    if (status == LS_OK)
        status = add_names(m, message, NODE_INPUT, &n.input, &n.inputs, err);
    if (status == LS_OK)
        status = add_names(m, message, NODE_OUTPUT, &n.output, &n.outputs, err);
    while (status == LS_OK && ls_pb_next(&f, &r)) {
        if (!f.bytes)
            continue;
        switch (f.number) {
        case NODE_NAME: n.name = text_of(&f); break;
        case NODE_OP: n.op = text_of(&f); break;
        case NODE_DOMAIN: n.domain = text_of(&f); break;
        case NODE_ATTRIBUTE: status = add_attribute(m, message_of(&f), err); break;
        default: break;
        }
    }
    n.attributes = m->attribute.count - n.attribute;
    if (status == LS_OK)
        status = check_end(m, &r, "a node", err);
    if (status == LS_OK)
        m->node.at[m->node.count++] = n;
    return status;
}

/* ---- tensors, inputs and outputs ------------------------------------------------------------- */

static int add_dim(ls_onnx_stored *t, const ls_onnx_model *m, uint64_t value, ls_error *err)
{
    if (t->rank == LS_ONNX_RANK || value > INT32_MAX) {
        char name[80];
        return ls_fail(err, LS_EDATA,
                       "%.300s: tensor \"%s\": expected at most %d dimensions of at most %d",
                       m->path, ls_onnx_copy(name, sizeof name, t->name), LS_ONNX_RANK, INT32_MAX);
    }
    t->dim[t->rank++] = (int64_t)value;
    return LS_OK;
}

int ls_onnx_read_tensor(ls_onnx_stored *out, const ls_onnx_model *m, ls_pb_reader message,
                        ls_error *err)
{
    ls_pb_reader r = message;
    ls_pb_field f;
    uint64_t dim;
    int status = LS_OK;
    *out = (ls_onnx_stored){.message = message};
    while (status == LS_OK && ls_pb_next(&f, &r)) {
        if (f.number == TENSOR_NAME && f.bytes)
            out->name = text_of(&f);
        else if (f.number == TENSOR_TYPE && !f.bytes)
            out->type = f.value <= INT32_MAX ? (int)f.value : -1;
        else if (f.number == TENSOR_DIMS && !f.bytes)
            status = add_dim(out, m, f.value, err);
        else if (f.number == TENSOR_DIMS)
            for (ls_pb_reader dims = message_of(&f);
                 status == LS_OK && ls_pb_next_packed(&dim, &dims);)
                status = add_dim(out, m, dim, err);
    }
    return status ? status : check_end(m, &r, "a tensor", err);
}

static int add_tensor(ls_onnx_model *m, ls_pb_reader message, ls_error *err)
{
    ls_onnx_stored t;
    int status = ls_onnx_read_tensor(&t, m, message, err);
    if (status == LS_OK)
        status = GROW(m, tensor, 1, "tensors", err);
    if (status == LS_OK)
        m->tensor.at[m->tensor.count++] = t;
    return status;
}

/* Returns the size that a TensorShapeProto.Dimension gives, or −1. */
static int64_t read_dim(ls_pb_reader r)
{
    ls_pb_field f;
    int64_t size = -1;
    while (ls_pb_next(&f, &r))
        if (f.number == DIM_VALUE && !f.bytes && f.value <= INT32_MAX && f.value > 0)
            size = (int64_t)f.value;
    return size;
}

static void read_shape(ls_onnx_value *v, ls_pb_reader r)
{
    ls_pb_field f;
    v->rank = 0;
    while (ls_pb_next(&f, &r))
        if (f.number == SHAPE_DIM && f.bytes && v->rank < LS_ONNX_RANK)
            v->dim[v->rank++] = read_dim(message_of(&f));
        else if (f.number == SHAPE_DIM)
            v->rank = LS_ONNX_RANK;
}

static void read_type(ls_onnx_value *v, ls_pb_reader r)
{
    ls_pb_field f, g;
    while (ls_pb_next(&f, &r)) {
        if (f.number != TYPE_TENSOR || !f.bytes)
            continue;
        for (ls_pb_reader inner = message_of(&f); ls_pb_next(&g, &inner);)
            if (g.number == TENSOR_ELEMENT && !g.bytes && g.value <= INT32_MAX)
                v->type = (int)g.value;
            else if (g.number == TENSOR_SHAPE && g.bytes)
                read_shape(v, message_of(&g));
    }
}

static ls_onnx_value read_value(ls_pb_reader r)
{
    ls_onnx_value v = {.rank = -1};
    ls_pb_field f;
    while (ls_pb_next(&f, &r))
        if (f.number == VALUE_NAME && f.bytes)
            v.name = text_of(&f);
        else if (f.number == VALUE_TYPE && f.bytes)
            read_type(&v, message_of(&f));
    return v;
}

/* ---- graph and model ------------------------------------------------------------------------- */

static int read_graph(ls_onnx_model *m, ls_pb_reader r, ls_error *err)
{
    ls_pb_field f;
    int status = LS_OK;
    while (status == LS_OK && ls_pb_next(&f, &r)) {
        if (!f.bytes)
            continue;
        switch (f.number) {
        case GRAPH_NAME: m->graph_name = text_of(&f); break;
        case GRAPH_NODE: status = add_node(m, message_of(&f), err); break;
        case GRAPH_TENSOR: status = add_tensor(m, message_of(&f), err); break;
        case GRAPH_INPUT:
            status = GROW(m, input, 1, "inputs", err);
            if (status == LS_OK)
                m->input.at[m->input.count++] = read_value(message_of(&f));
            break;
        case GRAPH_OUTPUT:
            status = GROW(m, output, 1, "outputs", err);
            if (status == LS_OK)
                m->output.at[m->output.count++] = read_value(message_of(&f));
            break;
        default: break;
        }
    }
    return status ? status : check_end(m, &r, "the graph", err);
}

static void read_opset(ls_onnx_model *m, ls_pb_reader r)
{
    ls_onnx_text domain = {0};
    int64_t version = 0;
    ls_pb_field f;
    while (ls_pb_next(&f, &r))
        if (f.number == OPSET_DOMAIN && f.bytes)
            domain = text_of(&f);
        else if (f.number == OPSET_VERSION && !f.bytes)
            version = (int64_t)f.value;
    if (domain.length == 0 || ls_onnx_is(domain, "ai.onnx"))
        m->opset = version;
}

static int add_entry(ls_onnx_model *m, ls_pb_reader r, ls_error *err)
{
    ls_onnx_entry e = {0};
    ls_pb_field f;
    int status = GROW(m, entry, 1, "entries of metadata", err);
    while (status == LS_OK && ls_pb_next(&f, &r))
        if (f.number == ENTRY_KEY && f.bytes)
            e.key = text_of(&f);
        else if (f.number == ENTRY_VALUE && f.bytes)
            e.value = text_of(&f);
    if (status == LS_OK)
        m->entry.at[m->entry.count++] = e;
    return status;
}

static int read_model(ls_onnx_model *m, ls_error *err)
{
    const uint8_t *bytes = m->file.map;
    ls_pb_reader r = {.at = bytes, .end = bytes + m->file.map_bytes};
    ls_pb_field f;
    bool graph = false;
    int status = LS_OK;
    while (status == LS_OK && ls_pb_next(&f, &r)) {
        if (!f.bytes)
            continue;
        switch (f.number) {
        case MODEL_PRODUCER: m->producer = text_of(&f); break;
        case MODEL_PRODUCER_VERSION: m->version = text_of(&f); break;
        case MODEL_DOC: m->doc = text_of(&f); break;
        case MODEL_OPSET: read_opset(m, message_of(&f)); break;
        case MODEL_METADATA: status = add_entry(m, message_of(&f), err); break;
        case MODEL_GRAPH:
            if (graph)
                return ls_fail(err, LS_EDATA, "%.300s: expected one graph, found two", m->path);
            graph = true;
            status = read_graph(m, message_of(&f), err);
            break;
        default: break;
        }
    }
    if (status == LS_OK)
        status = check_end(m, &r, "an ONNX model", err);
    if (status == LS_OK && !graph)
        status = ls_fail(err, LS_EDATA,
                         "%.300s: offset 0: expected an ONNX model, found no graph; is it an ONNX "
                         "file?",
                         m->path);
    return status;
}

int ls_onnx_open(ls_onnx_model *out, const char *path, const ls_host *host, ls_error *err)
{
    *out = (ls_onnx_model){.host = host, .path = path};
    int status = ls_file_map(&out->file, path, "an ONNX file", err);
    return status ? status : read_model(out, err);
}

void ls_onnx_close(ls_onnx_model *m)
{
    ls_free(m->host, m->node.at);
    ls_free(m->host, m->text.at);
    ls_free(m->host, m->attribute.at);
    ls_free(m->host, m->tensor.at);
    ls_free(m->host, m->input.at);
    ls_free(m->host, m->output.at);
    ls_free(m->host, m->entry.at);
    ls_array_close(&m->file);
    *m = (ls_onnx_model){0};
}
