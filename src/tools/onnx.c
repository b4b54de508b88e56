/* From layers to nodes. A layer's output is called after the layer. Images have four dimensions in
 * the graph and vectors two; a node that wants the other gets a reshape before it, because a model
 * may read a vector of n features as an image of n × 1 × 1. */
#include "tools/onnx.h"

#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"
#include "tools/onnx_file.h"

#include <stdio.h>
#include <string.h>

#define MOST_FLOATS ((size_t)500 << 20) /* 2 GB with room for what is around them */
#define INPUT "x"
#define OUTPUT "logits"

typedef struct tensor {
    char name[96];
    int rank; /* 2 or 4 */
} tensor;

typedef struct graph {
    ls_onnx_file file;
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
        ls_onnx_node_begin(&g->file, "Flatten", y.name);
        ls_onnx_node_input(&g->file, x->name);
        ls_onnx_node_int(&g->file, "axis", 1);
    } else {
        const int64_t to[4] = {-1, shape->c, shape->h, shape->w};
        snprintf(constant, sizeof constant, "%.80s.shape", reader);
        ls_onnx_int64s(&g->file, constant, to, 4);
        ls_onnx_node_begin(&g->file, "Reshape", y.name);
        ls_onnx_node_input(&g->file, x->name);
        ls_onnx_node_input(&g->file, constant);
    }
    ls_onnx_node_output(&g->file, y.name);
    ls_onnx_node_end(&g->file);
    return y;
}

/* ---- layers --------------------------------------------------------------------------------- */

static void begin(graph *g, const char *op, const ls_layer *layer, const tensor *x)
{
    ls_onnx_node_begin(&g->file, op, layer->name);
    ls_onnx_node_input(&g->file, x->name);
}

static void end(graph *g, const tensor *y)
{
    ls_onnx_node_output(&g->file, y->name);
    ls_onnx_node_end(&g->file);
}

static void add_params(graph *g, const ls_layer *layer)
{
    for (int i = 0; i < layer->params; i++)
        ls_onnx_node_input(&g->file, layer->param[i].name);
    for (int i = 0; i < layer->stats; i++)
        ls_onnx_node_input(&g->file, layer->stat[i].name);
}

static void add_window(graph *g, int kh, int kw, int sh, int sw, int ph, int pw)
{
    const int kernel[2] = {kh, kw}, strides[2] = {sh, sw}, pads[4] = {ph, pw, ph, pw};
    ls_onnx_node_ints(&g->file, "kernel_shape", kernel, 2);
    ls_onnx_node_ints(&g->file, "strides", strides, 2);
    ls_onnx_node_ints(&g->file, "pads", pads, 4);
}

static void add_conv(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_conv2d *c = &layer->op.u.conv2d;
    const tensor x = with_rank(g, source(g, layer->input[0]), &layer->in, 4, y->name);
    begin(g, "Conv", layer, &x);
    add_params(g, layer);
    add_window(g, c->kh, c->kw, c->sh, c->sw, c->ph, c->pw);
    y->rank = 4;
    end(g, y);
}

static void add_dense(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor x = with_rank(g, source(g, layer->input[0]), &layer->in, 2, y->name);
    begin(g, "Gemm", layer, &x);
    add_params(g, layer);
    ls_onnx_node_int(&g->file, "transB", 1);
    y->rank = 2;
    end(g, y);
}

static void add_pool(graph *g, const ls_layer *layer, tensor *y)
{
    const ls_pool2d *p = &layer->op.pool;
    const tensor x = with_rank(g, source(g, layer->input[0]), &layer->in, 4, y->name);
    begin(g, p->max ? "MaxPool" : "AveragePool", layer, &x);
    add_window(g, p->kh, p->kw, p->sh, p->sw, p->ph, p->pw);
    if (!p->max) /* an average is over the pixels that are there */
        ls_onnx_node_int(&g->file, "count_include_pad", 0);
    y->rank = 4;
    end(g, y);
}

static void add_norm(graph *g, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    begin(g, "BatchNormalization", layer, x);
    add_params(g, layer);
    ls_onnx_node_float(&g->file, "epsilon", layer->op.u.batchnorm.epsilon);
    y->rank = x->rank;
    end(g, y);
}

/* Two vectors, of which one is an n × 1 × 1 image, are added as images. */
static void add_sum(graph *g, const ls_layer *layer, tensor *y)
{
    char second[96];
    const tensor *a = source(g, layer->input[0]), *b = source(g, layer->input[1]);
    y->rank = a->rank == b->rank ? a->rank : 4;
    snprintf(second, sizeof second, "%.80s.with", y->name);
    const tensor x = with_rank(g, a, &layer->in, y->rank, y->name);
    const tensor x2 = with_rank(g, b, &layer->in2, y->rank, second);
    begin(g, "Add", layer, &x);
    ls_onnx_node_input(&g->file, x2.name);
    end(g, y);
}

static void add_elementwise(graph *g, const char *op, const ls_layer *layer, tensor *y)
{
    const tensor *x = source(g, layer->input[0]);
    begin(g, op, layer, x);
    if (layer->op.kind == LS_OP_RELU && layer->op.u.relu.slope != 0)
        ls_onnx_node_float(&g->file, "alpha", layer->op.u.relu.slope);
    y->rank = x->rank;
    end(g, y);
}

static void add_flatten(graph *g, const ls_layer *layer, tensor *y)
{
    begin(g, "Flatten", layer, source(g, layer->input[0]));
    ls_onnx_node_int(&g->file, "axis", 1);
    y->rank = 2;
    end(g, y);
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
    case LS_OP_ADD: add_sum(g, layer, y); break;
    case LS_OP_RELU:
        add_elementwise(g, layer->op.u.relu.slope != 0 ? "LeakyRelu" : "Relu", layer, y);
        break;
    case LS_OP_SIGMOID: add_elementwise(g, "Sigmoid", layer, y); break;
    case LS_OP_TANH: add_elementwise(g, "Tanh", layer, y); break;
    case LS_OP_DROPOUT: *y = *source(g, layer->input[0]); break; /* whoever reads it reads that */
    default:
        return ls_fail(err, LS_EUNSUPPORTED, "layer '%s': ONNX has no operator for %s here",
                       layer->name, layer->type->name);
    }
    return LS_OK;
}

/* ---- both ends ------------------------------------------------------------------------------ */

static void add_weights(graph *g)
{
    const ls_model *m = g->desc->model;
    for (int i = 0; i < m->params + m->stats; i++) {
        const ls_param *p = m->tensor[i];
        ls_onnx_floats(&g->file, p->name, p->dim, p->rank, g->desc->weights + p->offset, p->count);
    }
}

/* x → (x − mean) / std, where that changes something. Channels beyond the fourth use the fourth's. */
static int add_step(graph *g, const char *op, const char *constant, const float value[4],
                    float nothing, ls_error *err)
{
    const int channels = g->desc->model->input.c, dim[4] = {1, channels, 1, 1};
    int changes = 0;
    float *each = ls_alloc_array(g->file.graph.host, (size_t)channels, sizeof *each);
    if (!each)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d channels", channels);
    for (int i = 0; i < channels; i++) {
        each[i] = value[i < 4 ? i : 3];
        changes |= each[i] != nothing;
    }
    if (changes) {
        ls_onnx_floats(&g->file, constant, dim, 4, each, (size_t)channels);
        ls_onnx_node_begin(&g->file, op, op);
        ls_onnx_node_input(&g->file, g->input.name);
        ls_onnx_node_input(&g->file, constant);
        snprintf(g->input.name, sizeof g->input.name, INPUT ":%s", constant);
        ls_onnx_node_output(&g->file, g->input.name);
        ls_onnx_node_end(&g->file);
    }
    ls_free(g->file.graph.host, each);
    return LS_OK;
}

/* Whatever the last tensor is called, the graph's output is "logits". */
static void add_output(graph *g)
{
    const ls_model *m = g->desc->model;
    const ls_layer *last = &m->layer[m->layers - 1];
    const tensor y = with_rank(g, source(g, last->index), &last->out, 2, OUTPUT ":in");
    ls_onnx_node_begin(&g->file, "Identity", OUTPUT);
    ls_onnx_node_input(&g->file, y.name);
    ls_onnx_node_output(&g->file, OUTPUT);
    ls_onnx_node_end(&g->file);
    ls_onnx_output(&g->file, OUTPUT, &m->classes, 1);
}

static int write_graph(ls_buffer *out, graph *g, ls_error *err)
{
    const ls_onnx_desc *d = g->desc;
    const ls_model *m = d->model;
    const int shape[3] = {m->input.c, m->input.h, m->input.w};
    g->input = (tensor){INPUT, 4};
    ls_onnx_input(&g->file, INPUT, shape, 3);
    add_weights(g);
    int status = add_step(g, "Sub", "mean", d->normalisation.mean, 0, err);
    if (status == LS_OK)
        status = add_step(g, "Div", "std", d->normalisation.std, 1, err);
    for (int i = 0; status == LS_OK && i < m->layers; i++)
        status = add_layer(g, &m->layer[i], err);
    if (status)
        return status;
    add_output(g);
    ls_onnx_finish(out, &g->file, d->name, LS_ONNX_IR_VERSION, LS_ONNX_OPSET);
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
    ls_onnx_init(&g.file, out->host);
    int status = write_graph(out, &g, err);
    ls_onnx_fini(&g.file);
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
