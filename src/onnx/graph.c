/* SPDX-License-Identifier: MIT */
/* Converts a model's layers to nodes of an ONNX graph. A layer's output has its name. In the graph,
 * images have four dimensions and vectors two. If a layer reads a vector of n features as an image
 * of n × 1 × 1, or such an image as a vector, a Reshape node is put before its node. */
#include "onnx/onnx.h"

#include "base/error.h"
#include "base/host.h"
#include "onnx/operators.h"
#include "onnx/rows.h"
#include "store/durable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* protocol buffers are limited to 2 GB; this limit of the weights leaves the rest for the other
 * parts of the file */
#define MOST_FLOATS ((size_t)500 << 20)
#define OUTPUT LS_ONNX_LOGITS
#define PROBABILITIES LS_ONNX_PROBABILITIES

/* ---- the graph ---------------------------------------------------------------------- */

typedef ls_onnx_tensor tensor;

/* State of writing a graph. */
typedef struct graph {
    ls_onnx_file file;
    const ls_onnx_desc *desc;
    tensor input; /* the tensor that the preparation of rows produces */
    tensor *of;   /* [layers]: output of each layer */
} graph;

static const tensor *source(const graph *g, int layer)
{
    return layer == LS_INPUT ? &g->input : &g->of[layer];
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Returns `x` in `rank` dimensions. Adds a node that converts `x` if it has another rank. `reader`:
 * prefix of that node's name. */
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
        ls_onnx_node_begin(&g->file, "Flatten", y.name, x->name);
        ls_onnx_node_int(&g->file, "axis", 1);
    } else {
        const int64_t to[4] = {-1, shape->c, shape->h, shape->w};
        snprintf(constant, sizeof constant, "%.80s.shape", reader);
        ls_onnx_put_int64s(&g->file, constant, to, 4);
        ls_onnx_node_begin(&g->file, "Reshape", y.name, x->name);
        ls_onnx_node_input(&g->file, constant);
    }
    ls_onnx_node_end(&g->file, y.name);
    return y;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Begins the node of a layer, which reads the layer's input in `rank` dimensions (0: as many as the
 * input has). Sets the rank of the node's output *y to the same number. add_layer ends the node. */
static void begin(graph *g, const char *op, const ls_layer *layer, int rank, tensor *y)
{
    const tensor *from = source(g, layer->input[0]);
    y->rank = rank ? rank : from->rank;
    const tensor x = with_rank(g, from, &layer->in, y->rank, y->name);
    ls_onnx_node_begin(&g->file, op, layer->name, x.name);
}

static void add_params(graph *g, const ls_layer *layer)
{
    for (int i = 0; i < layer->params; i++)
        ls_onnx_node_input(&g->file, layer->param[i].name);
    for (int i = 0; i < layer->stats; i++)
        ls_onnx_node_input(&g->file, layer->stat[i].name);
}

/* Writes the attributes of a window. `pads`: at the top, left, bottom and right. */
static void add_window(graph *g, int kh, int kw, int sh, int sw, const int pads[4])
{
    const int kernel[2] = {kh, kw}, strides[2] = {sh, sw};
    ls_onnx_node_ints(&g->file, "kernel_shape", kernel, 2);
    ls_onnx_node_ints(&g->file, "strides", strides, 2);
    ls_onnx_node_ints(&g->file, "pads", pads, 4);
}

static void add_conv(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_conv2d *c = &layer->op.u.conv2d;
    begin(g, "Conv", layer, 4, y);
    add_params(g, layer);
    add_window(g, c->kh, c->kw, c->sh, c->sw, (const int[4]){c->ph, c->pw, c->ph, c->pw});
    if (c->dh > 1 || c->dw > 1)
        ls_onnx_node_ints(&g->file, "dilations", (const int[2]){c->dh, c->dw}, 2);
    if (c->groups > 1)
        ls_onnx_node_int(&g->file, "group", c->groups);
}

static void add_dense(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "Gemm", layer, 2, y);
    add_params(g, layer);
    ls_onnx_node_int(&g->file, "transB", 1);
}

/* Begins a node `name` that adds zeros around the image that the layer reads. `pads`: at the top,
 * left, bottom and right. */
static void begin_pad(graph *g, const ls_layer *layer, const char *name, const int pads[4],
                      tensor *y)
{
    const int64_t sides[8] = {0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]};
    char constant[112];
    const tensor x = with_rank(g, source(g, layer->input[0]), &layer->in, 4, y->name);
    y->rank = 4;
    snprintf(constant, sizeof constant, "%s:pads", layer->name);
    ls_onnx_put_int64s(&g->file, constant, sides, 8);
    ls_onnx_node_begin(&g->file, "Pad", name, x.name);
    ls_onnx_node_input(&g->file, constant);
}

static void add_pad(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_pad *p = &layer->op.u.pad;
    begin_pad(g, layer, layer->name, (const int[4]){p->top, p->left, p->bottom, p->right}, y);
}

/* Begins the node of an average pool that counts its padding, and whose last windows extend beyond
 * the padding. What such windows are divided by depends on the operator set. Therefore a node of
 * its own pads the image. */
static void add_padded(graph *g, const ls_layer *layer, const int pads[4], tensor *y)
{
    char padded[112];
    snprintf(padded, sizeof padded, "%s:padded", layer->name);
    begin_pad(g, layer, padded, pads, y);
    ls_onnx_node_end(&g->file, padded);
    ls_onnx_node_begin(&g->file, "AveragePool", layer->name, padded);
}

/* A side of an image, and the windows of a pool along it. */
typedef struct side {
    int size, windows, kernel, step;
} side;

static side side_of(const ls_layer *layer, int axis)
{
    const ls_pool2d *p = &layer->op.pool;
    return axis ? (side){layer->in.w, layer->out.w, p->kw, p->sw}
                : (side){layer->in.h, layer->out.h, p->kh, p->sh};
}

/* Returns the number of pixels that the windows cover, padding included. */
static int covered(const side *s)
{
    return (s->windows - 1) * s->step + s->kernel;
}

/* With `ceil` a window that would begin in the padding at the bottom or right does not count, which
 * other programs decide in other ways. Makes this padding smaller, so that no such window fits;
 * negative, it cuts pixels off that no window reads. */
static void trim_pads(int pads[4], const ls_layer *layer)
{
    for (int i = 0; i < 2 && layer->op.pool.ceil; i++) {
        const side s = side_of(layer, i);
        const int all = s.size + pads[i] + pads[2 + i];
        if (ls_windows(all, s.kernel, s.step, 0, 0, 1) > s.windows)
            pads[2 + i] -= all - covered(&s);
    }
}

/* Pools do not cut off: if a padding is negative, makes both those of a pool that rounds down, with
 * as many windows. Returns whether the pool rounds up. */
static bool keeps_ceil(int pads[4], const ls_layer *layer)
{
    const bool ceil = layer->op.pool.ceil;
    if (!ceil || (pads[2] >= 0 && pads[3] >= 0))
        return ceil;
    for (int i = 0; i < 2; i++) {
        const side s = side_of(layer, i);
        const int lacking = covered(&s) - s.size - pads[i];
        pads[2 + i] = lacking > 0 ? lacking : 0;
    }
    return false;
}

static void add_pool(graph *g, const ls_layer *layer, tensor *y)
{
    static const int none[4] = {0};
    const ls_pool2d *p = &layer->op.pool;
    int pads[4] = {p->ph, p->pw, p->ph + p->eh, p->pw + p->ew};
    const bool apart = p->ceil && p->count_padding;
    trim_pads(pads, layer);
    const bool ceil = apart || keeps_ceil(pads, layer);
    if (apart)
        add_padded(g, layer, pads, y);
    else
        begin(g, p->max ? "MaxPool" : "AveragePool", layer, 4, y);
    add_window(g, p->kh, p->kw, p->sh, p->sw, apart ? none : pads);
    if (ceil)
        ls_onnx_node_int(&g->file, "ceil_mode", 1);
    if (!p->max)
        ls_onnx_node_int(&g->file, "count_include_pad", p->count_padding && !apart);
}

static void add_norm(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "BatchNormalization", layer, 0, y);
    add_params(g, layer);
    ls_onnx_node_float(&g->file, "epsilon", layer->op.u.batchnorm.epsilon);
}

/* Adds a layer norm, which normalises over all values of a row. Its scale has one dimension for
 * vectors, three for images. */
static void add_layer_norm(graph *g, const ls_layer *layer, tensor *y)
{
    const int rank = layer->param[0].rank + 1;
    begin(g, "LayerNormalization", layer, rank, y);
    add_params(g, layer);
    ls_onnx_node_int(&g->file, "axis", 1);
    ls_onnx_node_float(&g->file, "epsilon", layer->op.u.layernorm.epsilon);
}

static void add_upsample(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_upsample *by = &layer->op.u.upsample;
    const float scales[4] = {1, 1, (float)by->sh, (float)by->sw};
    const int four = 4;
    char constant[112];
    snprintf(constant, sizeof constant, "%s:scales", layer->name);
    begin(g, "Resize", layer, 4, y);
    ls_onnx_put_floats(&g->file, constant, &four, 1, scales, 4);
    /* the optional input `roi` (region of interest) is not given */
    ls_onnx_node_input(&g->file, "");
    ls_onnx_node_input(&g->file, constant);
    ls_onnx_node_text(&g->file, "mode", "nearest");
    ls_onnx_node_text(&g->file, "coordinate_transformation_mode", "asymmetric");
    ls_onnx_node_text(&g->file, "nearest_mode", "floor");
}

/* Adds a node with two inputs. If one is a vector and the other an n × 1 × 1 image, both are read
 * as images. */
static void add_both(graph *g, const char *op, const ls_layer *layer, tensor *y)
{
    char second[96];
    const tensor *a = source(g, layer->input[0]), *b = source(g, layer->input[1]);
    y->rank = a->rank == b->rank ? a->rank : 4;
    snprintf(second, sizeof second, "%.80s.with", y->name);
    const tensor x = with_rank(g, a, &layer->in, y->rank, y->name);
    const tensor x2 = with_rank(g, b, &layer->in2, y->rank, second);
    ls_onnx_node_begin(&g->file, op, layer->name, x.name);
    ls_onnx_node_input(&g->file, x2.name);
    if (layer->op.kind == LS_OP_CONCAT)
        ls_onnx_node_int(&g->file, "axis", 1);
}

static void add_elementwise(graph *g, const char *op, const ls_layer *layer, tensor *y)
{
    begin(g, op, layer, 0, y);
    if (layer->op.kind == LS_OP_RELU && layer->op.u.relu.slope != 0)
        ls_onnx_node_float(&g->file, "alpha", layer->op.u.relu.slope);
    if (layer->op.kind == LS_OP_HARD_SIGMOID) {
        ls_onnx_node_float(&g->file, "alpha", layer->op.u.hard_sigmoid.slope);
        ls_onnx_node_float(&g->file, "beta", layer->op.u.hard_sigmoid.offset);
    }
}

/* Adds a clip or relu6, whose limits are optional inputs of the node. */
static void add_clip(graph *g, const ls_layer *layer, tensor *y)
{
    const float limits[2] = {layer->op.u.clamp.least, layer->op.u.clamp.most};
    static const char *const name[2] = {"min", "max"};
    char constant[112];
    begin(g, "Clip", layer, 0, y);
    for (int i = 0; i < 2; i++) {
        const bool limited = isfinite(limits[i]);
        snprintf(constant, sizeof constant, "%s:%s", layer->name, name[i]);
        if (limited)
            ls_onnx_put_floats(&g->file, constant, NULL, 0, &limits[i], 1);
        ls_onnx_node_input(&g->file, limited ? constant : "");
    }
}

/* Adds one of the nodes into which a layer is decomposed: op(x, x2), or op(x) if x2 is NULL. */
static tensor add_part(graph *g, const char *op, const ls_layer *layer, const char *part,
                       const tensor *x, const char *x2)
{
    tensor y = {.rank = x->rank};
    snprintf(y.name, sizeof y.name, "%s:%s", layer->name, part);
    ls_onnx_node_begin(&g->file, op, y.name, x->name);
    if (x2)
        ls_onnx_node_input(&g->file, x2);
    ls_onnx_node_end(&g->file, y.name);
    return y;
}

/* Adds a node op(x, value), one of those into which a layer is decomposed. */
static tensor add_scalar(graph *g, const char *op, const ls_layer *layer, const char *part,
                         const tensor *x, float value)
{
    char constant[112];
    snprintf(constant, sizeof constant, "%s:%s.by", layer->name, part);
    ls_onnx_put_floats(&g->file, constant, NULL, 0, &value, 1);
    return add_part(g, op, layer, part, x, constant);
}

/* Adds nodes for GELU: x·(1 + erf(x/√2))/2. */
static void add_gelu(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    tensor part = add_scalar(g, "Mul", layer, "root", x, 0.70710678f);
    part = add_part(g, "Erf", layer, "erf", &part, NULL);
    part = add_scalar(g, "Add", layer, "twice", &part, 1);
    part = add_part(g, "Mul", layer, "product", &part, x->name);
    *y = add_scalar(g, "Mul", layer, "out", &part, 0.5f);
}

/* Adds nodes for the approximation of GELU: x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2. */
static void add_gelu_tanh(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    tensor part = add_part(g, "Mul", layer, "square", x, x->name);
    part = add_part(g, "Mul", layer, "cube", &part, x->name);
    part = add_scalar(g, "Mul", layer, "small", &part, 0.044715f);
    part = add_part(g, "Add", layer, "sum", &part, x->name);
    part = add_scalar(g, "Mul", layer, "root", &part, 0.797884561f);
    part = add_part(g, "Tanh", layer, "tanh", &part, NULL);
    part = add_scalar(g, "Add", layer, "twice", &part, 1);
    part = add_part(g, "Mul", layer, "product", &part, x->name);
    *y = add_scalar(g, "Mul", layer, "out", &part, 0.5f);
}

static void add_affine(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor part = add_scalar(g, "Mul", layer, "product", source(g, layer->input[0]),
                                   layer->op.u.affine.slope);
    *y = add_scalar(g, "Add", layer, "out", &part, layer->op.u.affine.offset);
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
    ls_onnx_node_int(&g->file, "axis", 1);
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
    case LS_OP_PAD: add_pad(g, layer, y); break;
    case LS_OP_ADD: add_both(g, "Add", layer, y); break;
    case LS_OP_CONCAT: add_both(g, "Concat", layer, y); break;
    case LS_OP_MULTIPLY: add_both(g, "Mul", layer, y); break;
    case LS_OP_RELU:
        if (layer->op.u.relu.slope != 0)
            add_elementwise(g, "LeakyRelu", layer, y);
        else
            add_elementwise(g, ls_operator_of(layer->op.kind), layer, y);
        break;
    case LS_OP_SIGMOID:
    case LS_OP_HARD_SIGMOID:
    case LS_OP_HARD_SWISH:
    case LS_OP_TANH: add_elementwise(g, ls_operator_of(layer->op.kind), layer, y); break;
    case LS_OP_CLAMP: add_clip(g, layer, y); break;
    case LS_OP_GELU: add_gelu(g, layer, y); return LS_OK;
    case LS_OP_GELU_TANH: add_gelu_tanh(g, layer, y); return LS_OK;
    case LS_OP_AFFINE: add_affine(g, layer, y); return LS_OK;
    case LS_OP_SILU: add_silu(g, layer, y); return LS_OK;
    /* no node: layers that read the dropout's output read its input instead */
    case LS_OP_DROPOUT: *y = *source(g, layer->input[0]); return LS_OK;
    default:
        return ls_fail(err, LS_EUNSUPPORTED, "layer '%s': ONNX has no operator for %s here",
                       layer->name, layer->type->name);
    }
    ls_onnx_node_end(&g->file, y->name);
    return LS_OK;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* Adds the second output: probabilities, or counts. Outputs that are values have none. */
static void add_probabilities(graph *g)
{
    const ls_loss *loss = g->desc->loss;
    if (loss && loss->counts) {
        ls_onnx_node_begin(&g->file, "Exp", LS_ONNX_COUNTS, OUTPUT);
        ls_onnx_node_end(&g->file, LS_ONNX_COUNTS);
        ls_onnx_put_output(&g->file, LS_ONNX_COUNTS, &g->desc->model->classes, 1);
    }
    if (loss && loss->vectors && !loss->bits)
        return;
    ls_onnx_node_begin(&g->file, loss && loss->bits ? "Sigmoid" : "Softmax", PROBABILITIES, OUTPUT);
    if (!loss || !loss->bits)
        ls_onnx_node_int(&g->file, "axis", 1);
    ls_onnx_node_end(&g->file, PROBABILITIES);
    ls_onnx_put_output(&g->file, PROBABILITIES, &g->desc->model->classes, 1);
}

/* Adds the graph's output "logits": the output of the last layer, under this name. */
static void add_output(graph *g)
{
    const ls_network *m = g->desc->model;
    const ls_layer *last = &m->layer[m->layers - 1];
    tensor y = with_rank(g, source(g, last->index), &last->out, 2, OUTPUT ":in");
    ls_onnx_give_back(&g->file, g->desc, &y);
    ls_onnx_node_begin(&g->file, "Identity", OUTPUT, y.name);
    ls_onnx_node_end(&g->file, OUTPUT);
    ls_onnx_put_output(&g->file, OUTPUT, &m->classes, 1);
    add_probabilities(g);
}

static int write_graph(ls_buffer *out, graph *g, ls_error *err)
{
    const ls_onnx_desc *d = g->desc;
    const ls_network *m = d->model;
    g->input = ls_onnx_put_rows(&g->file, d);
    for (int i = 0; i < m->params + m->stats; i++) {
        const ls_param *p = m->tensor[i];
        ls_onnx_put_floats(&g->file, p->name, p->dim, p->rank, d->weights + p->offset, p->count);
    }
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < m->layers; i++)
        status = add_layer(g, &m->layer[i], err);
    if (status)
        return status;
    add_output(g);
    ls_onnx_finish(out, &g->file, d->name, ls_onnx_has_texts(d));
    ls_onnx_put_metadata(out, &g->file, d);
    ls_onnx_put_entry(out, &g->file, LS_ONNX_FROM, g->input.name);
    ls_onnx_put_entry(out, &g->file, LS_ONNX_TO, source(g, m->layers - 1)->name);
    return ls_buffer_status(out, err);
}

int ls_onnx_write(ls_buffer *out, const ls_onnx_desc *desc, ls_error *err)
{
    const ls_network *m = desc->model;
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
    ls_onnx_file_init(&g.file, out->host);
    int status = write_graph(out, &g, err);
    ls_onnx_file_fini(&g.file);
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
