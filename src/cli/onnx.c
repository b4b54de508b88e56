/* From layers to nodes. A layer's output is called after the layer. Images have four dimensions in
 * the graph and vectors two; a node that wants the other gets a reshape before it, because a model
 * may read a vector of n features as an image of n × 1 × 1. */
#include "cli/onnx.h"

#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"
#include "train/protobuf.h"
#include "json/json.h"
#include "json/writer.h"

#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>

#define MOST_FLOATS ((size_t)500 << 20) /* 2 GB with room for what is around them */
#define INPUT "x"
#define OUTPUT "logits"

/* ---- the file: field numbers are those of onnx.proto ---------------------------------------- */

/* onnx.proto, by message. */
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7 };
enum { MODEL_OPSET = 8, MODEL_METADATA = 14, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_S = 4, ATTRIBUTE_INTS = 8 };
enum { ATTRIBUTE_TYPE = 20, TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { DATA_FLOAT = 1, DATA_INT64 = 7 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2 };

/* The graph being written. `node` is the NodeProto under way. */
typedef struct onnx_file {
    ls_buffer graph; /* GraphProto, without name, input and output */
    ls_buffer node, attribute, tensor;
} onnx_file;

static void file_init(onnx_file *f, const ls_host *host)
{
    ls_buffer_init(&f->graph, host);
    ls_buffer_init(&f->node, host);
    ls_buffer_init(&f->attribute, host);
    ls_buffer_init(&f->tensor, host);
}

static void file_fini(onnx_file *f)
{
    ls_buffer_fini(&f->tensor);
    ls_buffer_fini(&f->attribute);
    ls_buffer_fini(&f->node);
    ls_buffer_fini(&f->graph);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void node_input(onnx_file *f, const char *name)
{
    ls_pb_text(&f->node, NODE_INPUT, name);
}

static void node_begin(onnx_file *f, const char *op, const char *name, const char *input)
{
    ls_pb_text(&f->node, NODE_OP, op);
    ls_pb_text(&f->node, NODE_NAME, name);
    node_input(f, input);
}

static void attribute(onnx_file *f, const char *name, int type)
{
    ls_pb_text(&f->attribute, ATTRIBUTE_NAME, name);
    ls_pb_int(&f->attribute, ATTRIBUTE_TYPE, type);
    ls_pb_message(&f->node, NODE_ATTRIBUTE, &f->attribute);
}

static void node_int(onnx_file *f, const char *name, int64_t value)
{
    ls_pb_int(&f->attribute, ATTRIBUTE_I, value);
    attribute(f, name, TYPE_INT);
}

static void node_ints(onnx_file *f, const char *name, const int *values, int count)
{
    for (int i = 0; i < count; i++)
        ls_pb_int(&f->attribute, ATTRIBUTE_INTS, values[i]);
    attribute(f, name, TYPE_INTS);
}

static void node_float(onnx_file *f, const char *name, float value)
{
    ls_pb_float(&f->attribute, ATTRIBUTE_F, value);
    attribute(f, name, TYPE_FLOAT);
}

static void node_text(onnx_file *f, const char *name, const char *value)
{
    ls_pb_text(&f->attribute, ATTRIBUTE_S, value);
    attribute(f, name, TYPE_STRING);
}

static void node_end(onnx_file *f, const char *output)
{
    ls_pb_text(&f->node, NODE_OUTPUT, output);
    ls_pb_message(&f->graph, GRAPH_NODE, &f->node);
}

/* ---- constants ------------------------------------------------------------------------------ */

/* Raw data are little-endian whatever the machine. */
static void put_little(ls_buffer *b, uint64_t bits, int bytes)
{
    char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (char)(bits >> (8 * i));
    ls_buffer_add(b, out, (size_t)bytes);
}

/* The raw data lie in f->tensor; what describes them is written into f->attribute. */
static void put_tensor(onnx_file *f, const char *name, int type, const int *dim, int rank)
{
    ls_buffer *t = &f->attribute;
    for (int i = 0; i < rank; i++)
        ls_pb_int(t, TENSOR_DIMS, dim[i]);
    ls_pb_int(t, TENSOR_TYPE, type);
    ls_pb_text(t, TENSOR_NAME, name);
    ls_pb_message(t, TENSOR_RAW, &f->tensor);
    ls_pb_message(&f->graph, GRAPH_TENSOR, t);
}

static void put_float(onnx_file *f, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_little(&f->tensor, bits, 4);
}

static void put_floats(onnx_file *f, const char *name, const int *dim, int rank,
                       const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_float(f, values[i]);
    put_tensor(f, name, DATA_FLOAT, dim, rank);
}

/* Of channel `i`: there are four values, and the last is also that of the channels behind. */
static float value_of(const float value[4], int i)
{
    return value[i < 4 ? i : 3];
}

static void put_int64s(onnx_file *f, const char *name, const int64_t *values, int count)
{
    for (int i = 0; i < count; i++)
        put_little(&f->tensor, (uint64_t)values[i], 8);
    put_tensor(f, name, DATA_INT64, &count, 1);
}

/* ---- input, output, and what is around ------------------------------------------------------- */

static void put_value(onnx_file *f, unsigned field, const char *name, const int *dim, int rank)
{
    ls_buffer *shape = &f->tensor, *inner = &f->attribute, *value = &f->node;
    ls_pb_text(inner, DIM_PARAM, "batch");
    ls_pb_message(shape, SHAPE_DIM, inner);
    for (int i = 0; i < rank; i++) {
        ls_pb_int(inner, DIM_VALUE, dim[i]);
        ls_pb_message(shape, SHAPE_DIM, inner);
    }
    ls_pb_int(inner, TENSOR_ELEMENT, DATA_FLOAT);
    ls_pb_message(inner, TENSOR_SHAPE, shape);
    ls_pb_message(shape, TYPE_TENSOR, inner);
    ls_pb_text(value, VALUE_NAME, name);
    ls_pb_message(value, VALUE_TYPE, shape);
    ls_pb_message(&f->graph, field, value);
}

static void put_entry(ls_buffer *out, onnx_file *f, const char *key, const char *value)
{
    ls_pb_text(&f->node, ENTRY_KEY, key);
    ls_pb_text(&f->node, ENTRY_VALUE, value);
    ls_pb_message(out, MODEL_METADATA, &f->node);
}

/* What `w` has written, which begins anew. */
static void put_json(ls_buffer *out, onnx_file *f, const char *key, ls_json_writer *w)
{
    const char *text = ls_json_writer_text(w, NULL, NULL);
    if (text)
        put_entry(out, f, key, text);
    out->failed |= !text;
    ls_json_writer_reset(w);
}

/* A number for each channel. */
static void put_numbers(ls_buffer *out, onnx_file *f, const char *key, ls_json_writer *w,
                        const float value[4], int n)
{
    ls_json_open_array(w, NULL);
    for (int i = 0; i < n; i++)
        ls_json_put_float(w, NULL, value_of(value, i));
    ls_json_close(w);
    put_json(out, f, key, w);
}

/* What the card knows besides. */
static void put_card(ls_buffer *out, onnx_file *f, ls_json_writer *w, const char *card)
{
    static const char *const keys[] = {"class_names", "features"};
    ls_json *doc = NULL;
    out->failed |= ls_json_parse(&doc, "", card, strlen(card), out->host, NULL) != LS_OK;
    for (int i = 0; i < 2 && doc; i++) {
        const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), keys[i]);
        if (node) {
            ls_json_put_node(w, NULL, node);
            put_json(out, f, keys[i], w);
        }
    }
    ls_json_destroy(doc);
}

static const char *say_output(const ls_loss *loss)
{
    if (!loss || !loss->vectors)
        return "a logit for each class, whose softmax are probabilities";
    return loss->bits ? "logits, whose sigmoids are probabilities" : "the values themselves";
}

static void put_metadata(ls_buffer *out, onnx_file *f, const ls_onnx_desc *d)
{
    const ls_shape *in = &d->model->input;
    const float size[4] = {(float)in->c, (float)in->h, (float)in->w};
    char text[160];
    ls_json_writer w;
    ls_json_writer_init(&w, 0, out->host);
    snprintf(text, sizeof text,
             "%s, fp32, batch x channels x height x width; mean and std are in the graph",
             d->normalisation.floats ? "values as in the data" : "pixels / 255");
    put_entry(out, f, "input", text);
    put_entry(out, f, "output", say_output(d->loss));
    put_numbers(out, f, "size", &w, size, 3);
    put_numbers(out, f, "mean", &w, d->normalisation.mean, in->c);
    put_numbers(out, f, "std", &w, d->normalisation.std, in->c);
    if (d->model->card)
        put_card(out, f, &w, d->model->card);
    ls_json_writer_fini(&w);
}

static void finish_file(ls_buffer *out, onnx_file *f, const ls_onnx_desc *desc)
{
    ls_pb_text(&f->graph, GRAPH_NAME, desc->name);
    ls_pb_int(out, MODEL_IR, LS_ONNX_IR_VERSION);
    ls_pb_text(out, MODEL_PRODUCER, "lockstep");
    ls_pb_text(out, MODEL_PRODUCER_VERSION, LS_VERSION);
    ls_pb_message(out, MODEL_GRAPH, &f->graph);
    ls_pb_text(&f->node, OPSET_DOMAIN, "");
    ls_pb_int(&f->node, OPSET_VERSION, LS_ONNX_OPSET);
    ls_pb_message(out, MODEL_OPSET, &f->node);
    put_metadata(out, f, desc);
}

/* ---- the graph ---------------------------------------------------------------------- */

typedef struct tensor {
    char name[96];
    int rank; /* 2 or 4 */
} tensor;

typedef struct graph {
    onnx_file file;
    const ls_onnx_desc *desc;
    tensor input; /* behind the normalisation */
    tensor *of;   /* [layers] */
} graph;

static const tensor *source(const graph *g, int layer)
{
    return layer == LS_INPUT ? &g->input : &g->of[layer];
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* The input of `layer` in `rank` dimensions: with a node of its own where it has others. */
static tensor with_rank(graph *g, const tensor *x, const ls_shape *shape, int rank,
                        const char *reader)
{
    tensor y = *x;
    char constant[112];
    if (x->rank == rank)
        return y;
    y.rank = rank;
    snprintf(y.name, sizeof y.name, "%.80s.input%d", reader, rank);
    if (rank == 2) {
        node_begin(&g->file, "Flatten", y.name, x->name);
        node_int(&g->file, "axis", 1);
    } else {
        const int64_t to[4] = {-1, shape->c, shape->h, shape->w};
        snprintf(constant, sizeof constant, "%.80s.shape", reader);
        put_int64s(&g->file, constant, to, 4);
        node_begin(&g->file, "Reshape", y.name, x->name);
        node_input(&g->file, constant);
    }
    node_end(&g->file, y.name);
    return y;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* A node that reads the layer's input in `rank` dimensions, 0: as it is, and makes `y` of as many; add_layer ends it. */
static void begin(graph *g, const char *op, const ls_layer *layer, int rank, tensor *y)
{
    const tensor *from = source(g, layer->input[0]);
    y->rank = rank ? rank : from->rank;
    const tensor x = with_rank(g, from, &layer->in, y->rank, y->name);
    node_begin(&g->file, op, layer->name, x.name);
}

static void add_params(graph *g, const ls_layer *layer)
{
    for (int i = 0; i < layer->params; i++)
        node_input(&g->file, layer->param[i].name);
    for (int i = 0; i < layer->stats; i++)
        node_input(&g->file, layer->stat[i].name);
}

static void add_window(graph *g, int kh, int kw, int sh, int sw, int ph, int pw)
{
    const int kernel[2] = {kh, kw}, strides[2] = {sh, sw}, pads[4] = {ph, pw, ph, pw};
    node_ints(&g->file, "kernel_shape", kernel, 2);
    node_ints(&g->file, "strides", strides, 2);
    node_ints(&g->file, "pads", pads, 4);
}

static void add_conv(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_conv2d *c = &layer->op.u.conv2d;
    begin(g, "Conv", layer, 4, y);
    add_params(g, layer);
    add_window(g, c->kh, c->kw, c->sh, c->sw, c->ph, c->pw);
    if (c->dh > 1 || c->dw > 1)
        node_ints(&g->file, "dilations", (const int[2]){c->dh, c->dw}, 2);
    if (c->groups > 1)
        node_int(&g->file, "group", c->groups);
}

static void add_dense(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "Gemm", layer, 2, y);
    add_params(g, layer);
    node_int(&g->file, "transB", 1);
}

static void add_pool(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_pool2d *p = &layer->op.pool;
    begin(g, p->max ? "MaxPool" : "AveragePool", layer, 4, y);
    add_window(g, p->kh, p->kw, p->sh, p->sw, p->ph, p->pw);
    if (!p->max) /* an average is over the pixels that are there */
        node_int(&g->file, "count_include_pad", 0);
}

static void add_norm(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "BatchNormalization", layer, 0, y);
    add_params(g, layer);
    node_float(&g->file, "epsilon", layer->op.u.batchnorm.epsilon);
}

/* Over all of a row; the scale of a vector has one dimension, that of an image three. */
static void add_layer_norm(graph *g, const ls_layer *layer, tensor *y)
{
    const int rank = layer->param[0].rank + 1;
    begin(g, "LayerNormalization", layer, rank, y);
    add_params(g, layer);
    node_int(&g->file, "axis", 1);
    node_float(&g->file, "epsilon", layer->op.u.layernorm.epsilon);
}

static void add_upsample(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_upsample *by = &layer->op.u.upsample;
    const float scales[4] = {1, 1, (float)by->sh, (float)by->sw};
    const int four = 4;
    char constant[112];
    snprintf(constant, sizeof constant, "%s:scales", layer->name);
    begin(g, "Resize", layer, 4, y);
    put_floats(&g->file, constant, &four, 1, scales, 4);
    node_input(&g->file, ""); /* no region of interest */
    node_input(&g->file, constant);
    node_text(&g->file, "mode", "nearest");
    node_text(&g->file, "coordinate_transformation_mode", "asymmetric");
    node_text(&g->file, "nearest_mode", "floor");
}

/* Of two vectors one may be an n × 1 × 1 image: then both are taken as images. */
static void add_both(graph *g, const char *op, const ls_layer *layer, tensor *y)
{
    char second[96];
    const tensor *a = source(g, layer->input[0]), *b = source(g, layer->input[1]);
    y->rank = a->rank == b->rank ? a->rank : 4;
    snprintf(second, sizeof second, "%.80s.with", y->name);
    const tensor x = with_rank(g, a, &layer->in, y->rank, y->name);
    const tensor x2 = with_rank(g, b, &layer->in2, y->rank, second);
    node_begin(&g->file, op, layer->name, x.name);
    node_input(&g->file, x2.name);
    if (layer->op.kind == LS_OP_CONCAT)
        node_int(&g->file, "axis", 1);
}

static void add_elementwise(graph *g, const char *op, const ls_layer *layer, tensor *y)
{
    begin(g, op, layer, 0, y);
    if (layer->op.kind == LS_OP_RELU && layer->op.u.relu.slope != 0)
        node_float(&g->file, "alpha", layer->op.u.relu.slope);
}

/* One of several nodes that make up a layer: op(x, x2), x2 may be NULL. */
static tensor add_part(graph *g, const char *op, const ls_layer *layer, const char *part,
                       const tensor *x, const char *x2)
{
    tensor y = {.rank = x->rank};
    snprintf(y.name, sizeof y.name, "%s:%s", layer->name, part);
    node_begin(&g->file, op, y.name, x->name);
    if (x2)
        node_input(&g->file, x2);
    node_end(&g->file, y.name);
    return y;
}

/* op(x, value). */
static tensor add_scalar(graph *g, const char *op, const ls_layer *layer, const char *part,
                         const tensor *x, float value)
{
    char constant[112];
    snprintf(constant, sizeof constant, "%s:%s.by", layer->name, part);
    put_floats(&g->file, constant, NULL, 0, &value, 1);
    return add_part(g, op, layer, part, x, constant);
}

/* x·(1 + erf(x/√2))/2 */
static void add_gelu(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    tensor part = add_scalar(g, "Mul", layer, "root", x, 0.70710678f);
    part = add_part(g, "Erf", layer, "erf", &part, NULL);
    part = add_scalar(g, "Add", layer, "twice", &part, 1);
    part = add_part(g, "Mul", layer, "product", &part, x->name);
    *y = add_scalar(g, "Mul", layer, "out", &part, 0.5f);
}

static void add_silu(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    const tensor sigmoid = add_part(g, "Sigmoid", layer, "sigmoid", x, NULL);
    *y = add_part(g, "Mul", layer, "out", &sigmoid, x->name);
}

static void add_flatten(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "Flatten", layer, 0, y);
    node_int(&g->file, "axis", 1);
    y->rank = 2;
}

static int add_layer(graph *g, const ls_layer *layer, ls_error *err)
{
    tensor *y = &g->of[layer->index];
    snprintf(y->name, sizeof y->name, "%s:out", layer->name);
    switch ((int)layer->op.kind) {
    case 0: add_flatten(g, layer, y); break;
    case LS_OP_CONV2D: add_conv(g, layer, y); break;
    case LS_OP_DENSE: add_dense(g, layer, y); break;
    case LS_OP_POOL: add_pool(g, layer, y); break;
    case LS_OP_BATCHNORM: add_norm(g, layer, y); break;
    case LS_OP_LAYERNORM: add_layer_norm(g, layer, y); break;
    case LS_OP_UPSAMPLE: add_upsample(g, layer, y); break;
    case LS_OP_ADD: add_both(g, "Add", layer, y); break;
    case LS_OP_CONCAT: add_both(g, "Concat", layer, y); break;
    case LS_OP_RELU:
        add_elementwise(g, layer->op.u.relu.slope != 0 ? "LeakyRelu" : "Relu", layer, y);
        break;
    case LS_OP_SIGMOID: add_elementwise(g, "Sigmoid", layer, y); break;
    case LS_OP_TANH: add_elementwise(g, "Tanh", layer, y); break;
    case LS_OP_GELU: add_gelu(g, layer, y); return LS_OK;
    case LS_OP_SILU: add_silu(g, layer, y); return LS_OK;
    case LS_OP_DROPOUT: *y = *source(g, layer->input[0]); return LS_OK; /* its readers read that */
    default:
        return ls_fail(err, LS_EUNSUPPORTED, "layer '%s': ONNX has no operator for %s here",
                       layer->name, layer->type->name);
    }
    node_end(&g->file, y->name);
    return LS_OK;
}

/* ---- both ends ------------------------------------------------------------------------------ */

static void add_weights(graph *g)
{
    const ls_model *m = g->desc->model;
    for (int i = 0; i < m->params + m->stats; i++) {
        const ls_param *p = m->tensor[i];
        put_floats(&g->file, p->name, p->dim, p->rank, g->desc->weights + p->offset, p->count);
    }
}

/* x → (x − mean) / std, where that changes something. */
static void add_step(graph *g, const char *op, const char *constant, const float value[4],
                     float nothing)
{
    const int channels = g->desc->model->input.c, dim[4] = {1, channels, 1, 1};
    bool changes = false;
    for (int i = 0; i < channels; i++)
        changes |= value_of(value, i) != nothing;
    if (!changes)
        return;
    for (int i = 0; i < channels; i++)
        put_float(&g->file, value_of(value, i));
    put_tensor(&g->file, constant, DATA_FLOAT, dim, 4);
    node_begin(&g->file, op, op, g->input.name);
    node_input(&g->file, constant);
    snprintf(g->input.name, sizeof g->input.name, INPUT ":%s", constant);
    node_end(&g->file, g->input.name);
}

/* Whatever the last tensor is called, the graph's output is "logits". */
static void add_output(graph *g)
{
    const ls_model *m = g->desc->model;
    const ls_layer *last = &m->layer[m->layers - 1];
    const tensor y = with_rank(g, source(g, last->index), &last->out, 2, OUTPUT ":in");
    node_begin(&g->file, "Identity", OUTPUT, y.name);
    node_end(&g->file, OUTPUT);
    put_value(&g->file, GRAPH_OUTPUT, OUTPUT, &m->classes, 1);
}

static int write_graph(ls_buffer *out, graph *g, ls_error *err)
{
    const ls_onnx_desc *d = g->desc;
    const ls_model *m = d->model;
    const int shape[3] = {m->input.c, m->input.h, m->input.w};
    g->input = (tensor){INPUT, 4};
    put_value(&g->file, GRAPH_INPUT, INPUT, shape, 3);
    add_weights(g);
    add_step(g, "Sub", "mean", d->normalisation.mean, 0);
    add_step(g, "Div", "std", d->normalisation.std, 1);
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < m->layers; i++)
        status = add_layer(g, &m->layer[i], err);
    if (status)
        return status;
    add_output(g);
    finish_file(out, &g->file, d);
    return ls_buffer_status(out, err);
}

int ls_onnx_write(ls_buffer *out, const ls_onnx_desc *desc, ls_error *err)
{
    const ls_model *m = desc->model;
    graph g = {.desc = desc};
    if (m->floats > MOST_FLOATS)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "an ONNX file holds less than 2 GB, but the model has %zu parameters; export "
            "to safetensors instead",
            m->floats);
    g.of = ls_alloc_array(out->host, (size_t)m->layers, sizeof *g.of);
    if (!g.of)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d layers", m->layers);
    file_init(&g.file, out->host);
    int status = write_graph(out, &g, err);
    file_fini(&g.file);
    ls_free(out->host, g.of);
    return status;
}

int ls_onnx_save(const char *path, const ls_onnx_desc *desc, const ls_host *host, ls_error *err)
{
    ls_buffer file;
    ls_buffer_init(&file, host);
    int status = ls_onnx_write(&file, desc, err);
    if (status == LS_OK)
        status = ls_replace_file(path, file.text, file.length, host, err);
    ls_buffer_fini(&file);
    return status;
}
