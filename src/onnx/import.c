/* SPDX-License-Identifier: MIT */
/* Reads a model from an ONNX file: the values of the graph, and its nodes in order (import.h). */
#include "onnx/importer.h"
#include "onnx/rows.h"

#include "base/error.h"
#include "base/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- operators ------------------------------------------------------------------------------- */

/* The operators that are read, with the attributes that are taken into account. Of other
 * attributes none is ignored. */
static const struct {
    const char *op, *attributes;
    ls_import_op *read;
} operators[] = {
    {"Add", "", ls_import_binary},
    {"AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides",
     ls_import_pool},
    {"BatchNormalization", "epsilon momentum spatial training_mode", ls_import_batch_norm},
    {"Cast", "to saturate", ls_import_cast},
    {"Ceil", "", ls_import_round},
    {"Clip", "min max", ls_import_clip},
    {"Concat", "axis", ls_import_concat},
    {"Constant", "value value_int value_ints value_float value_floats", ls_import_constant},
    {"ConstantOfShape", "value", ls_import_filled},
    {"Conv", "auto_pad dilations group kernel_shape pads strides", ls_import_conv},
    {"Div", "", ls_import_binary},
    {"Dropout", "ratio seed", ls_import_dropout},
    {"Erf", "", ls_import_unary},
    {"Flatten", "axis", ls_import_flatten},
    {"Floor", "", ls_import_round},
    {"Gather", "axis", ls_import_gather},
    {"Gelu", "approximate", ls_import_gelu},
    {"Gemm", "alpha beta transA transB", ls_import_gemm},
    {"GlobalAveragePool", "", ls_import_global},
    {"GlobalMaxPool", "", ls_import_global},
    {"HardSigmoid", "alpha beta", ls_import_unary},
    {"HardSwish", "", ls_import_unary},
    {"Identity", "", ls_import_identity},
    {"LayerNormalization", "axis epsilon stash_type", ls_import_layer_norm},
    {"LeakyRelu", "alpha", ls_import_unary},
    {"LogSoftmax", "axis", ls_import_softmax},
    {"MatMul", "", ls_import_matmul},
    {"Max", "", ls_import_limit},
    {"MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides",
     ls_import_pool},
    {"Min", "", ls_import_limit},
    {"Mul", "", ls_import_binary},
    {"Neg", "", ls_import_neg},
    {"Pad", "mode pads value", ls_import_pad},
    {"Pow", "", ls_import_power},
    {"ReduceMean", "axes keepdims noop_with_empty_axes", ls_import_mean},
    {"Relu", "", ls_import_unary},
    {"Reshape", "allowzero", ls_import_reshape},
    {"Resize",
     "mode coordinate_transformation_mode nearest_mode keep_aspect_ratio_policy cubic_coeff_a "
     "exclude_outside extrapolation_value antialias",
     ls_import_resize},
    {"Shape", "start end", ls_import_shape_of},
    {"Sigmoid", "", ls_import_unary},
    {"Slice", "starts ends axes", ls_import_slice},
    {"Softmax", "axis", ls_import_softmax},
    {"Sqrt", "", ls_import_sqrt},
    {"Squeeze", "axes", ls_import_squeeze},
    {"Sub", "", ls_import_binary},
    {"Sum", "", ls_import_sum},
    {"Tanh", "", ls_import_unary},
    {"Transpose", "perm", ls_import_transpose},
    {"Unsqueeze", "axes", ls_import_squeeze},
};

enum { OPERATORS = sizeof operators / sizeof *operators };

/* Returns whether `list`, words with spaces between them, has the word. */
static bool has_word(const char *list, ls_onnx_text word)
{
    for (const char *at = list; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (n == word.length && memcmp(at, word.at, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* Advice for operators that are not read: what is read instead. */
static const struct {
    const char *ops, *instead;
} others[] = {
    {"Celu Elu HardShrink Hardmax Mish PRelu Selu Shrink Softplus Softsign ThresholdedRelu",
     "of activations Relu, LeakyRelu, Clip, Sigmoid, HardSigmoid, HardSwish, Tanh and Gelu are "
     "read"},
    {"GroupNormalization InstanceNormalization LRN LpNormalization MeanVarianceNormalization "
     "RMSNormalization",
     "of norms BatchNormalization and, over all values of a row, LayerNormalization are read"},
    {"ConvTranspose DepthToSpace Upsample GridSample",
     "images are enlarged by Resize to a whole multiple, with the nearest pixel"},
    {"ReduceL1 ReduceL2 ReduceMax ReduceMin ReduceSum LpPool GlobalLpPool",
     "of the values of a channel ReduceMean, GlobalAveragePool and GlobalMaxPool are read"},
    {"Attention Einsum GRU LSTM RNN RotaryEmbedding",
     "networks of convolutions and dense layers are read"},
    {"ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul "
     "QuantizeLinear",
     "export the network before its weights become integers"},
    {"If Loop Scan",
     "nodes that are always computed, and once, are read; if the condition of an If is constant, "
     "onnxsim IN.onnx OUT.onnx (the package onnxsim) puts its nodes in its place"},
    {"Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
     "nodes that give the same for the same rows are read; if a dropout needs it, export the "
     "network after net.eval()"},
};

static bool is_standard(const ls_onnx_node *n)
{
    return n->domain.length == 0 || ls_onnx_is(n->domain, "ai.onnx");
}

/* Returns the row of a node's operator, or −1 if the operator is not read. */
static int row_of(const ls_onnx_node *n)
{
    for (int row = 0; row < OPERATORS && is_standard(n); row++)
        if (ls_onnx_is(n->op, operators[row].op))
            return row;
    return -1;
}

static int fail_operator(const ls_import *g, const ls_onnx_node *n)
{
    const char *instead = "docs/layers.md lists those that are";
    char domain[64];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_word(others[i].ops, n->op))
            instead = others[i].instead;
    if (!is_standard(n))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "the operator is not read, because it is one of \"%s\"; those of "
                              "the standard (ai.onnx) that docs/layers.md lists are",
                              ls_onnx_copy(domain, sizeof domain, n->domain));
    return ls_import_fail(g, n, LS_EUNSUPPORTED, "the operator is not read; %s", instead);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Adds a value, which the node `n` gives, or no node if it is NULL. Fails if there is one with this
 * name. */
static int add_value(ls_import *g, const ls_onnx_node *n, ls_onnx_text name, ls_import_value **out)
{
    char text[100];
    int *slot = ls_import_slot(g, name);
    ls_onnx_copy(text, sizeof text, name);
    if (*slot && n)
        return ls_import_fail(g, n, LS_EDATA, "expected each tensor once, found \"%s\" twice",
                              text);
    if (*slot)
        return ls_fail(g->err, LS_EDATA, "%.300s: expected each tensor once, found \"%s\" twice",
                       g->file.path, text);
    *out = &g->value[g->values++];
    (*out)->name = name;
    *slot = g->values;
    return LS_OK;
}

/* Adds the values of initializers, inputs and outputs of nodes. */
static int add_values(ls_import *g)
{
    const ls_onnx_model *m = &g->file;
    const size_t most = (size_t)m->tensor.count + (size_t)m->input.count + (size_t)m->text.count;
    ls_import_value *v = NULL;
    int status = LS_OK;
    for (g->slots = 16; g->slots < 2 * most;)
        g->slots *= 2;
    g->value = ls_alloc_array(g->host, most ? most : 1, sizeof *g->value);
    g->slot = ls_alloc_array(g->host, g->slots, sizeof *g->slot);
    g->needed = ls_alloc_array(g->host, (size_t)m->node.count + 1, sizeof *g->needed);
    if (!g->value || !g->slot || !g->needed)
        return ls_import_no_memory(g);
    for (int i = 0; i < m->tensor.count && status == LS_OK; i++)
        if ((status = add_value(g, NULL, m->tensor.at[i].name, &v)) == LS_OK)
            ls_import_keep(v, &m->tensor.at[i]);
    for (int i = 0; i < m->input.count && status == LS_OK; i++)
        if (!ls_import_find(g, m->input.at[i].name))
            status = add_value(g, NULL, m->input.at[i].name, &v);
    for (int i = 0; i < m->node.count && status == LS_OK; i++)
        for (int k = 0; k < m->node.at[i].outputs && status == LS_OK; k++) {
            const ls_onnx_text name = m->text.at[m->node.at[i].output + k];
            if (name.length)
                status = add_value(g, &m->node.at[i], name, &v);
        }
    return status;
}

/* Finds for each value the first node among those on which it depends whose operator is not read.
 */
static void find_unread(ls_import *g)
{
    const ls_onnx_model *m = &g->file;
    for (int i = 0; i < m->node.count; i++) {
        const ls_onnx_node *n = &m->node.at[i], *first = row_of(n) < 0 ? n : NULL;
        for (int k = 0; k < n->inputs; k++) {
            const ls_import_value *v = ls_import_input(g, n, k);
            if (v && v->unread && (!first || v->unread < first))
                first = v->unread;
        }
        for (int k = 0; k < n->outputs; k++) {
            const ls_onnx_text name = m->text.at[n->output + k];
            ls_import_value *v = name.length ? ls_import_find(g, name) : NULL;
            if (v && !v->begin)
                v->unread = first;
        }
    }
}

/* Returns the node that gives a value, or NULL. */
static const ls_onnx_node *giver_of(const ls_import *g, const ls_import_value *v)
{
    const ls_onnx_model *m = &g->file;
    for (int i = 0; i < m->node.count; i++)
        for (int k = 0; k < m->node.at[i].outputs; k++)
            if (v && ls_onnx_same(m->text.at[m->node.at[i].output + k], v->name))
                return &m->node.at[i];
    return NULL;
}

/* Returns the first node on which the output depends that reads a value, or NULL. */
static const ls_onnx_node *reader_of(const ls_import *g, const ls_import_value *v)
{
    for (int i = 0; i < g->file.node.count; i++)
        for (int k = 0; g->needed[i] && k < g->file.node.at[i].inputs; k++)
            if (ls_import_input(g, &g->file.node.at[i], k) == v)
                return &g->file.node.at[i];
    return NULL;
}

/* ---- input ----------------------------------------------------------------------------------- */

/* Fails with a message that names an input of the graph, and the first node that reads it. */
__attribute__((format(printf, 4, 5))) static int
fail_input(const ls_import *g, const ls_import_value *v, int status, const char *format, ...)
{
    char text[LS_ERROR_TEXT], name[80];
    const ls_onnx_node *n = reader_of(g, v);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls_onnx_copy(name, sizeof name, v->name);
    return n ? ls_import_fail(g, n, status, "its input \"%s\" %s", name, text)
             : ls_fail(g->err, status, "%.200s: its input \"%s\" %s", g->file.path, name, text);
}

int ls_import_set_rows(ls_import *g, ls_import_value *v, const int64_t *dim, int rank)
{
    v->kind = LS_VALUE_ROWS;
    v->begin = true;
    v->layer = LS_INPUT;
    v->rank = rank;
    memcpy(v->dim, dim, (size_t)rank * sizeof *dim);
    v->dim[0] = LS_ONNX_BATCH;
    const int64_t side[3] = {rank == 3 ? 1 : dim[1], rank == 2 ? 1 : dim[rank - 2],
                             rank == 2 ? 1 : dim[rank - 1]};
    for (int i = 0; i < 3; i++)
        if (side[i] < 1 || side[i] > 1 << 20)
            return fail_input(g, v, LS_EUNSUPPORTED,
                              "has a dimension of %lld; 1 to 1048576 are read", (long long)side[i]);
    if (side[0] * side[1] > LS_MODEL_VALUES || side[0] * side[1] * side[2] > LS_MODEL_VALUES)
        return fail_input(g, v, LS_EUNSUPPORTED,
                          "has more than %d values for a row, which are read", LS_MODEL_VALUES);
    g->input = (ls_shape){(int)side[0], (int)side[1], (int)side[2]};
    g->begin = v->name;
    return LS_OK;
}

/* Takes the sizes that the file leaves open from the source. */
static int take_given(const ls_import *g, const ls_import_value *v, const ls_onnx_value *input,
                      int64_t dim[4])
{
    const ls_shape *s = &g->source->input;
    const int given[3] = {s->c, s->h, s->w};
    for (int i = 1; i < input->rank; i++) {
        const int mine = given[input->rank == 3 ? i : i - 1];
        if (dim[i] < 0)
            dim[i] = mine;
        if (dim[i] < 1)
            return fail_input(g, v, LS_ECONFIG,
                              "leaves its size open; set model.input to [channels, height, width] "
                              "of a row");
        if (mine && dim[i] != mine)
            return fail_input(g, v, LS_ECONFIG, "has %lld in dimension %d, but model.input has %d",
                              (long long)dim[i], i, mine);
    }
    return LS_OK;
}

/* Finds the only input of the graph on which the output depends. `output`: the output. */
static int find_input(const ls_import *g, const ls_import_value *output, const ls_onnx_value **out)
{
    int inputs = 0, used = 0;
    char name[80], list[300] = "";
    *out = NULL;
    for (int i = 0; i < g->file.input.count; i++) {
        const ls_import_value *v = ls_import_find(g, g->file.input.at[i].name);
        if (v->kind == LS_VALUE_CONSTANT || v->uses == 0)
            continue;
        *out = &g->file.input.at[i];
        if (used < 200)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s\"%s\"",
                             inputs ? ", " : ": ", ls_onnx_copy(name, sizeof name, (*out)->name));
        inputs++;
    }
    if (inputs == 0)
        return ls_import_fail(g, giver_of(g, output), LS_EUNSUPPORTED,
                              "the output depends on no input; a network that reads rows is read");
    return inputs == 1 ? LS_OK
                       : fail_input(g, ls_import_find(g, (*out)->name), LS_EUNSUPPORTED,
                                    "is one of %d inputs without initial values on which the "
                                    "output depends%s; one is read, the rows, and weights that "
                                    "are initializers",
                                    inputs, list);
}

static int begin_input(ls_import *g, const ls_import_value *output)
{
    const ls_onnx_value *input;
    char dims[LS_ONNX_DIMS];
    int status = find_input(g, output, &input);
    if (status)
        return status;
    ls_import_value *v = ls_import_find(g, input->name), shape = {.rank = input->rank};
    if (input->type != LS_ONNX_FLOAT && input->type != LS_ONNX_FLOAT16 &&
        input->type != LS_ONNX_BFLOAT16 && input->type != LS_ONNX_DOUBLE)
        return fail_input(g, v, LS_EUNSUPPORTED,
                          "has values of the type %s in the file; a floating-point type is read",
                          ls_onnx_type_name(input->type));
    memcpy(shape.dim, input->dim, sizeof shape.dim);
    if (input->rank < 2 || input->rank > 4)
        return fail_input(g, v, LS_EUNSUPPORTED,
                          "has %s%s in the file; [rows, channels, height, width], [rows, height, "
                          "width] and [rows, features] are read",
                          input->rank < 0 ? "no shape" : "the shape ",
                          input->rank < 0 ? "" : ls_import_dims(dims, &shape));
    g->fixed = shape.dim[0] > 0 ? shape.dim[0] : 0;
    status = take_given(g, v, input, shape.dim);
    return status ? status : ls_import_set_rows(g, v, shape.dim, input->rank);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Fails because no output has been chosen: with an operator that is not read, if each output
 * depends on one, else with the names `list` of the outputs. */
static int fail_outputs(const ls_import *g, const char *list)
{
    const ls_onnx_model *m = &g->file;
    const ls_import_value *v = ls_import_find(g, m->output.at[0].name);
    const ls_onnx_node *unread = NULL;
    for (int i = 0; i < m->output.count; i++) {
        const ls_import_value *w = ls_import_find(g, m->output.at[i].name);
        unread = !w ? NULL : unread && w->unread > unread ? unread : w->unread;
        if (!unread)
            break;
    }
    return unread
               ? fail_operator(g, unread)
               : ls_import_fail(g, giver_of(g, v), LS_ECONFIG,
                                "it gives one of %d outputs; set model.output to one of them: %s",
                                m->output.count, list);
}

static int find_output(const ls_import *g, ls_onnx_text own, ls_import_value **out)
{
    const ls_onnx_model *m = &g->file;
    char list[300] = "", name[80];
    ls_onnx_text wanted = own;
    if (g->source->output)
        wanted = (ls_onnx_text){g->source->output, strlen(g->source->output)};
    else if (!own.length && m->output.count == 1)
        wanted = m->output.at[0].name;
    *out = wanted.length ? ls_import_find(g, wanted) : NULL;
    if (*out)
        return LS_OK;
    for (int i = 0, used = 0; i < m->output.count && used < 200; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s\"%s\"", i ? ", " : "",
                         ls_onnx_copy(name, sizeof name, m->output.at[i].name));
    ls_onnx_copy(name, sizeof name, wanted);
    if (wanted.length)
        return ls_fail(g->err, g->source->output ? LS_ECONFIG : LS_EDATA,
                       "%.300s: it has no tensor \"%s\"; its outputs: %s", m->path, name, list);
    if (m->output.count == 0)
        return ls_fail(g->err, LS_ECONFIG,
                       "%.300s: it names no output; set model.output to the tensor that its last "
                       "layer gives",
                       m->path);
    return fail_outputs(g, list);
}

/* Finds the nodes on which the output depends, and counts the uses of each value. */
static void find_needed(ls_import *g, ls_import_value *output)
{
    const ls_onnx_model *m = &g->file;
    output->uses++;
    for (int i = m->node.count - 1; i >= 0; i--) {
        const ls_onnx_node *n = &m->node.at[i];
        for (int k = 0; k < n->outputs; k++) {
            const ls_onnx_text name = m->text.at[n->output + k];
            const ls_import_value *v = name.length ? ls_import_find(g, name) : NULL;
            g->needed[i] |= v && v->uses > 0 && !v->begin;
        }
        for (int k = 0; k < n->inputs && g->needed[i]; k++) {
            ls_import_value *v = ls_import_input(g, n, k);
            if (v)
                v->uses++;
        }
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Checks what must hold for every node that is needed: its inputs are known, and its attributes are
 * taken into account. */
static int check_node(const ls_import *g, const ls_onnx_node *n, int row)
{
    char name[80];
    for (int i = 0; i < n->inputs; i++) {
        const ls_onnx_text text = g->file.text.at[n->input + i];
        const ls_import_value *v = ls_import_input(g, n, i);
        if (text.length && (!v || v->kind == LS_VALUE_NONE))
            return ls_import_fail(g, n, LS_EDATA, "its input \"%s\" is given by no earlier node",
                                  ls_onnx_copy(name, sizeof name, text));
    }
    for (int i = 0; i < n->attributes; i++) {
        const ls_onnx_text text = g->file.attribute.at[n->attribute + i].name;
        if (!has_word(operators[row].attributes, text))
            return ls_import_fail(g, n, LS_EUNSUPPORTED, "attribute \"%s\" is not read%s%s",
                                  ls_onnx_copy(name, sizeof name, text),
                                  *operators[row].attributes ? "; those that are: " : "",
                                  operators[row].attributes);
    }
    for (int k = 1; k < n->outputs; k++) {
        const ls_onnx_text text = g->file.text.at[n->output + k];
        const ls_import_value *v = text.length ? ls_import_find(g, text) : NULL;
        if (v && v->uses > 0)
            return ls_import_fail(g, n, LS_EUNSUPPORTED,
                                  "its output %d \"%s\" is used; its first output is read", k,
                                  ls_onnx_copy(name, sizeof name, text));
    }
    if (n->outputs < 1 || g->file.text.at[n->output].length == 0)
        return ls_import_fail(g, n, LS_EDATA, "expected an output");
    return LS_OK;
}

/* In a file that Lockstep wrote, settles the inputs that are formulas of other layers: two layers
 * of the user's do not become one. */
static int settle_inputs(ls_import *g, const ls_onnx_node *n)
{
    int status = LS_OK;
    for (int i = 0; i < n->inputs && g->own && status == LS_OK; i++) {
        ls_import_value *v = ls_import_input(g, n, i);
        if (v && v->kind == LS_VALUE_ROWS && v->node && !ls_import_same_layer(v->node, n))
            status = ls_import_settle(g, n, v);
    }
    return status;
}

static int read_node(ls_import *g, const ls_onnx_node *n)
{
    const int row = row_of(n);
    if (row < 0)
        return fail_operator(g, n);
    int status = check_node(g, n, row);
    if (status == LS_OK)
        status = settle_inputs(g, n);
    if (status == LS_OK)
        status = operators[row].read(g, n);
    if (g->large && status != LS_ENOMEM)
        status = ls_import_fail(g, n, LS_EUNSUPPORTED,
                                "its output has more than %d values for a row", LS_MODEL_VALUES);
    return status;
}

static int read_nodes(ls_import *g)
{
    int status = LS_OK;
    for (int i = 0; i < g->file.node.count && status == LS_OK; i++)
        if (g->needed[i]) {
            g->at = &g->file.node.at[i];
            status = read_node(g, g->at);
        }
    g->at = NULL;
    return status;
}

/* Fails if the output is not a vector for each row. `n`: the node that gives it. */
static int check_vector(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v)
{
    char name[80];
    bool vector = v->rank >= 2;
    for (int i = 2; i < v->rank; i++)
        vector &= v->dim[i] == 1;
    if (vector || v->kind != LS_VALUE_ROWS)
        return LS_OK;
    return ls_import_fail(g, n, LS_EUNSUPPORTED,
                          "its output \"%s\" has %d dimensions; a vector [rows, features] is "
                          "read; model.output can name another tensor",
                          ls_onnx_copy(name, sizeof name, v->name), v->rank);
}

/* Makes the output a vector, the output of the last layer. */
static int end_output(ls_import *g, ls_import_value *v)
{
    static const ls_onnx_node none = {0};
    const ls_onnx_node *giver = giver_of(g, v), *n = giver ? giver : &none;
    int layer, features;
    if (v->kind == LS_VALUE_ROWS && v->form == LS_FORM_SOFTMAX) {
        g->ending = "softmax";
        v->form = LS_FORM_PLAIN;
    }
    int status =
        v->kind == LS_VALUE_NONE
            ? ls_fail(g->err, LS_EDATA, "%.300s: its output is given by no node", g->file.path)
            : check_vector(g, n, v);
    if (status == LS_OK)
        status = ls_import_vector(g, n, v, &layer, &features);
    if (status == LS_OK && layer != g->layers - 1)
        status = ls_import_fail(g, n, LS_EUNSUPPORTED,
                                "it gives the output, but is not the last layer; a network whose "
                                "last layer gives the output is read");
    if (status == LS_OK && g->weights == 0)
        status = ls_import_fail(g, n, LS_EUNSUPPORTED,
                                "it gives the output, and neither it nor a node before it has "
                                "weights; a network with some is read");
    return status;
}

static int check_versions(const ls_import *g)
{
    if (g->file.opset >= LS_ONNX_OPSET_LEAST && g->file.opset <= LS_ONNX_OPSET_MOST)
        return LS_OK;
    return ls_fail(g->err, LS_EUNSUPPORTED,
                   "%.300s: it has version %lld of the operators; versions %d to %d are read; "
                   "export it again with opset_version 17, or convert it with "
                   "onnx.version_converter",
                   g->file.path, (long long)g->file.opset, LS_ONNX_OPSET_LEAST, LS_ONNX_OPSET_MOST);
}

static int import(ls_import *g, ls_onnx_net **out)
{
    ls_import_value *output = NULL, *begin = NULL;
    int status = ls_onnx_open(&g->file, g->source->path, g->host, g->err);
    if (status)
        return status;
    if (g->file.node.count == 0)
        return ls_fail(g->err, LS_EUNSUPPORTED, "%.300s: its graph has no nodes; a network is read",
                       g->file.path);
    ls_sha256_update(&g->hash, g->file.file.map, g->file.file.map_bytes);
    const ls_onnx_text from = ls_import_entry(g, LS_ONNX_FROM), to = ls_import_entry(g, LS_ONNX_TO);
    const bool own = ls_onnx_is(g->file.producer, "lockstep") && from.length && to.length;
    g->own = own;
    status = add_values(g);
    if (status == LS_OK && own && !(begin = ls_import_find(g, from)))
        status = ls_fail(g->err, LS_EDATA, "%.300s: its metadata name a tensor that it lacks",
                         g->file.path);
    if (status == LS_OK && own)
        status = ls_import_begin_own(g, begin);
    if (status)
        return status;
    /* an operator that is not read is a better reason than a version, an input or an output */
    find_unread(g);
    status = find_output(g, own ? to : (ls_onnx_text){0}, &output);
    if (status == LS_OK && output->unread)
        status = fail_operator(g, output->unread);
    if (status == LS_OK)
        status = check_versions(g);
    if (status)
        return status;
    find_needed(g, output);
    if (!own)
        status = begin_input(g, output);
    if (status == LS_OK)
        status = ls_import_begin_net(g);
    if (status == LS_OK)
        status = read_nodes(g);
    if (status == LS_OK)
        status = end_output(g, output);
    return status ? status : ls_import_finish_net(out, g);
}

static void fini(ls_import *g)
{
    for (int i = 0; i < g->block.count; i++)
        ls_free(g->host, g->block.at[i]);
    for (int i = 0; i < g->data.count; i++)
        ls_array_close(&g->data.at[i]);
    for (int i = 0; i < g->data_path.count; i++)
        ls_free(g->host, g->data_path.at[i]);
    ls_free(g->host, g->block.at);
    ls_free(g->host, g->data.at);
    ls_free(g->host, g->data_path.at);
    ls_free(g->host, g->value);
    ls_free(g->host, g->slot);
    ls_free(g->host, g->needed);
    ls_free(g->host, g->layer);
    ls_free(g->host, g->weight);
    ls_json_writer_fini(&g->json);
    ls_onnx_close(&g->file);
}

int ls_onnx_import(ls_onnx_net **out, const ls_onnx_source *source, const ls_host *host,
                   ls_error *err)
{
    ls_import g = {.host = host, .err = err, .source = source};
    *out = NULL;
    ls_sha256_init(&g.hash);
    int status = import(&g, out);
    fini(&g);
    return status;
}
