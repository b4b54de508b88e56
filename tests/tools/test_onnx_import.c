/* SPDX-License-Identifier: MIT */
/* Tests the reading of models from ONNX files. onnx_import.py compares their logits with those of
 * ONNX Runtime. */
#include "nn/nn_fixture.h"
#include "onnx/file.h"
#include "onnx/import.h"
#include "onnx/onnx.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/ls_onnx_XXXXXX";

static int open_path(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

/* ---- files that Lockstep has written ----------------------------------------------------------
 */

/* Returns whether a layer has an op that an exported file keeps. */
static int computes(const ls_layer *layer)
{
    return layer->op.kind != 0 && layer->op.kind != LS_OP_DROPOUT;
}

/* Returns the next layer that computes, from index *at on, or NULL. */
static const ls_layer *next_layer(const ls_network *m, int *at)
{
    while (*at < m->layers && !computes(&m->layer[*at]))
        ++*at;
    return *at < m->layers ? &m->layer[(*at)++] : NULL;
}

/* Checks that two models have the same ops in the same order, so that they compute the same bits
 * from the same weights. */
static void check_same_ops(const ls_network *a, const ls_network *b)
{
    int i = 0, k = 0;
    for (;;) {
        const ls_layer *x = next_layer(a, &i), *y = next_layer(b, &k);
        assert_true(!x == !y);
        if (!x)
            break;
        assert_int_equal(x->op.kind, y->op.kind);
        assert_memory_equal(&x->op.u, &y->op.u, sizeof x->op.u);
        assert_memory_equal(&x->op.pool, &y->op.pool, sizeof x->op.pool);
        /* an op that computes value by value may come before or after a flatten layer */
        assert_int_equal(x->out.c * x->out.h * x->out.w, y->out.c * y->out.h * y->out.w);
    }
}

static void read_back(const ls_network *model, const float *weights, ls_gather normalisation)
{
    const ls_onnx_desc d = {
        .model = model, .weights = weights, .normalisation = normalisation, .name = "n"};
    const ls_onnx_source source = {.path = path};
    ls_onnx_net *net;
    ls_network *again;
    ls_json *doc;
    ls_error err;
    must(ls_onnx_save(path, &d, NULL, &err), &err);
    must(ls_onnx_import(&net, &source, NULL, &err), &err);
    const char *text = ls_onnx_net_text(net);
    must(ls_json_parse(&doc, "layers", text, strlen(text), NULL, &err), &err);
    assert_int_equal(ls_onnx_net_about(net)->outputs, model->classes);
    must(ls_network_parse(&again, doc, ls_json_root(doc), model->input, model->classes, NULL, &err),
         &err);
    float *canonical = calloc(again->floats, sizeof *canonical);
    must(ls_onnx_net_load(canonical, net, again, &err), &err);
    assert_int_equal(again->floats, model->floats);
    assert_memory_equal(canonical, weights, model->floats * sizeof *weights);
    check_same_ops(model, again);
    free(canonical);
    ls_network_destroy(again, NULL);
    ls_json_destroy(doc);
    ls_onnx_net_destroy(net);
}

static void every_layer_that_is_exported_comes_back_with_its_weights(void **state)
{
    static const ls_gather shifted = {.mean = {0.5f, 0.25f, 0, 0}, .std = {0.5f, 2, 1, 1}};
    int models = 0;
    (void)state;
    for (const ls_layer_type *const *type = ls_layer_types(); *type; type++)
        for (int i = 0; (*type)->samples[i].layers; i++) {
            const struct ls_layer_sample *s = &(*type)->samples[i];
            ls_network *model = make_model(s->layers, s->input, LS_SAMPLE_CLASSES);
            float *weights = calloc(model->floats ? model->floats : 1, sizeof *weights);
            fill_weights(weights, model, 0.5f, 3);
            if (model->params > 0) {
                read_back(model, weights, i % 2 ? shifted : plain_pixels);
                models++;
            }
            free(weights);
            free_model(model);
        }
    assert_true(models > 30);
}

static void lenet_comes_back(void **state)
{
    (void)state;
    ls_network *model = make_model(lenet_json, (ls_shape){1, 28, 28}, 10);
    float *weights = calloc(model->floats, sizeof *weights);
    fill_weights(weights, model, 0.5f, 3);
    read_back(model, weights, plain_pixels);
    free(weights);
    free_model(model);
}

static void the_examples_come_back(void **state)
{
    static const char *const name[] = {"fashion_mnist", "mobilenet", "resnet18"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char file[4096];
        ls_json *doc;
        ls_network *model;
        ls_error err;
        snprintf(file, sizeof file, TEST_SOURCE_DIR "/../../examples/%s.json", name[i]);
        must(ls_json_read_file(&doc, file, NULL, &err), &err);
        must(ls_network_parse(&model, doc,
                              cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model"),
                              (ls_shape){1, 28, 28}, 10, NULL, &err),
             &err);
        float *weights = calloc(model->floats, sizeof *weights);
        fill_weights(weights, model, 0.5f, 3);
        read_back(model, weights, plain_pixels);
        free(weights);
        ls_network_destroy(model, NULL);
        ls_json_destroy(doc);
    }
}

/* ---- graphs of others ------------------------------------------------------------------------ */

/* A graph with the input x [batch, 2, 4, 4]; nodes are added by the tests. */
static void begin(ls_onnx_file *f)
{
    static const int dim[3] = {2, 4, 4};
    ls_onnx_file_init(f, NULL);
    ls_onnx_put_input(f, "x", LS_ONNX_FLOAT, dim, 3);
}

static void node(ls_onnx_file *f, const char *op, const char *in, const char *in2, const char *out)
{
    ls_onnx_node_begin(f, op, out, in);
    if (in2)
        ls_onnx_node_input(f, in2);
    ls_onnx_node_end(f, out);
}

static void scalar(ls_onnx_file *f, const char *name, float value)
{
    ls_onnx_put_floats(f, name, NULL, 0, &value, 1);
}

/* Adds a dense layer [32] → [3] that reads the image `in`, and gives the output "y". */
static void end_with_dense(ls_onnx_file *f, const char *in)
{
    static const float weight[96] = {1, 2, 3};
    static const int dim[2] = {32, 3};
    node(f, "Flatten", in, NULL, "flat");
    ls_onnx_put_floats(f, "fc.weight", dim, 2, weight, 96);
    node(f, "MatMul", "flat", "fc.weight", "y");
    ls_onnx_put_output(f, "y", dim + 1, 1);
}

/* Writes the file and reads it. Returns its layers, which the caller frees, or NULL if it was
 * refused, with the message in *err. */
static char *read_layers(ls_onnx_file *f, ls_error *err)
{
    const ls_onnx_source source = {.path = path};
    ls_buffer out;
    ls_onnx_net *net = NULL;
    ls_buffer_init(&out, NULL);
    ls_onnx_finish(&out, f, "g", 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(out.text, 1, out.length, file), out.length);
    fclose(file);
    ls_buffer_fini(&out);
    ls_onnx_file_fini(f);
    if (ls_onnx_import(&net, &source, NULL, err) != LS_OK)
        return NULL;
    char *text = strdup(ls_onnx_net_text(net));
    ls_onnx_net_destroy(net);
    return text;
}

static void check_layers(ls_onnx_file *f, const char *wanted)
{
    ls_error err = {0};
    char *text = read_layers(f, &err);
    if (!text)
        fail_msg("%s", err.text);
    const size_t n = strlen(wanted);
    char *start = strchr(text, '[');
    if (strncmp(start, wanted, n) != 0)
        fail_msg("expected %s, found %.*s", wanted, (int)n + 40, start);
    free(text);
}

static void check_refused(ls_onnx_file *f, const char *part)
{
    ls_error err = {0};
    char *text = read_layers(f, &err);
    assert_null(text);
    if (!strstr(err.text, part))
        fail_msg("expected \"%s\" in \"%s\"", part, err.text);
}

#define DENSE                                                                                      \
    "{\"type\":\"flatten\",\"name\":\"flatten\"},{\"type\":\"dense\",\"name\":\"fc\",\"out\":3,"   \
    "\"bias\":false}]"

static void formulas_become_the_layer_that_they_stand_for(void **state)
{
    (void)state;
    ls_onnx_file f;
    begin(&f); /* clip(x + 3, 0, 6) · x / 6 */
    scalar(&f, "3", 3), scalar(&f, "0", 0), scalar(&f, "6", 6);
    node(&f, "Add", "x", "3", "a");
    ls_onnx_node_begin(&f, "Clip", "b", "a");
    ls_onnx_node_input(&f, "0");
    ls_onnx_node_input(&f, "6");
    ls_onnx_node_end(&f, "b");
    node(&f, "Mul", "b", "x", "c");
    node(&f, "Div", "c", "6", "d");
    end_with_dense(&f, "d");
    check_layers(&f, "[{\"type\":\"hard_swish\",\"name\":\"d\"}," DENSE);

    begin(&f); /* x · (clip(x + 3, 0, 6) / 6): the same layer */
    scalar(&f, "3", 3), scalar(&f, "0", 0), scalar(&f, "6", 6);
    node(&f, "Add", "3", "x", "a");
    node(&f, "Max", "a", "0", "b");
    node(&f, "Min", "6", "b", "c");
    node(&f, "Div", "c", "6", "d");
    node(&f, "Mul", "x", "d", "e");
    end_with_dense(&f, "e");
    check_layers(&f, "[{\"type\":\"hard_swish\",\"name\":\"e\"}," DENSE);

    begin(&f); /* x · sigmoid(x) */
    node(&f, "Sigmoid", "x", NULL, "s");
    node(&f, "Mul", "x", "s", "m");
    end_with_dense(&f, "m");
    check_layers(&f, "[{\"type\":\"silu\",\"name\":\"m\"}," DENSE);

    begin(&f); /* x/2 · (erf(x/√2) + 1) */
    scalar(&f, "root", 1.41421356f), scalar(&f, "1", 1), scalar(&f, "half", 0.5f);
    node(&f, "Div", "x", "root", "a");
    node(&f, "Erf", "a", NULL, "b");
    node(&f, "Add", "b", "1", "c");
    node(&f, "Mul", "x", "half", "d");
    node(&f, "Mul", "d", "c", "e");
    end_with_dense(&f, "e");
    check_layers(&f, "[{\"type\":\"gelu\",\"name\":\"e\"}," DENSE);
}

/* Adds the approximation of Gelu to the input x in one of the orders in which programs write it. */
static void add_gelu_tanh(ls_onnx_file *f, int form)
{
    scalar(f, "1", 1), scalar(f, "2", 2), scalar(f, "3", 3), scalar(f, "half", 0.5f);
    scalar(f, "small", 0.044715f), scalar(f, "root", 0.797884583f);
    if (form == 0) { /* torch.onnx: half·(x·(1 + tanh(root·(x + small·x³)))) */
        node(f, "Mul", "x", "x", "a");
        node(f, "Mul", "x", "a", "b");
    } else { /* the exporter with dynamo=True, and 0.5·x·(…) */
        node(f, "Pow", "x", "3", "b");
    }
    if (form < 2) {
        node(f, "Mul", "small", "b", "c");
        node(f, "Add", "x", "c", "d");
        node(f, "Mul", "root", "d", "e");
    } else { /* x·root·(1 + small·x·x) */
        node(f, "Mul", "x", "small", "c");
        node(f, "Mul", "c", "x", "d");
        node(f, "Add", "d", "1", "d2");
        node(f, "Mul", "x", "root", "d3");
        node(f, "Mul", "d3", "d2", "e");
    }
    node(f, "Tanh", "e", NULL, "g");
    node(f, "Add", "1", "g", "h");
    node(f, "Mul", "x", form ? "half" : "h", "i");
    node(f, "Mul", form ? "h" : "half", "i", "j");
}

static void gelu_with_tanh_is_read_in_every_order(void **state)
{
    static const char wanted[] =
        "[{\"type\":\"gelu\",\"name\":\"j\",\"approximate\":\"tanh\"}," DENSE;
    (void)state;
    ls_onnx_file f;
    for (int form = 0; form < 3; form++) {
        begin(&f);
        add_gelu_tanh(&f, form);
        end_with_dense(&f, "j");
        check_layers(&f, wanted);
    }
    begin(&f);
    ls_onnx_node_begin(&f, "Gelu", "j", "x");
    ls_onnx_node_text(&f, "approximate", "tanh");
    ls_onnx_node_end(&f, "j");
    end_with_dense(&f, "j");
    check_layers(&f, wanted);
    begin(&f); /* of x + 1, which several nodes read: x + 1 is a layer */
    scalar(&f, "1", 1), scalar(&f, "root", 0.70710678f), scalar(&f, "half", 0.5f);
    node(&f, "Add", "x", "1", "a");
    node(&f, "Mul", "a", "root", "b");
    node(&f, "Erf", "b", NULL, "e");
    node(&f, "Add", "e", "1", "h");
    node(&f, "Mul", "h", "a", "i");
    node(&f, "Mul", "i", "half", "j");
    end_with_dense(&f, "j");
    check_layers(&f, "[{\"type\":\"affine\",\"name\":\"a\",\"offset\":1},"
                     "{\"type\":\"gelu\",\"name\":\"j\"}," DENSE);
    begin(&f); /* something else that begins in the same way: x³ and then x + 0.5·x³ */
    scalar(&f, "half", 0.5f), scalar(&f, "3", 3);
    node(&f, "Pow", "x", "3", "p");
    node(&f, "Mul", "p", "half", "m");
    node(&f, "Add", "m", "x", "s");
    end_with_dense(&f, "s");
    check_layers(&f, "[{\"type\":\"multiply\",\"name\":\"s\",\"with\":\"input\"},"
                     "{\"type\":\"multiply\",\"name\":\"s_2\",\"with\":\"input\"},"
                     "{\"type\":\"affine\",\"name\":\"s_3\",\"slope\":0.5},"
                     "{\"type\":\"add\",\"name\":\"s_4\",\"with\":\"input\"}," DENSE);
}

static void limits_and_constants_become_clip_and_affine(void **state)
{
    (void)state;
    ls_onnx_file f;
    begin(&f);
    scalar(&f, "low", -0.5f), scalar(&f, "high", 2);
    ls_onnx_node_begin(&f, "Clip", "c", "x");
    ls_onnx_node_input(&f, "low");
    ls_onnx_node_input(&f, "high");
    ls_onnx_node_end(&f, "c");
    end_with_dense(&f, "c");
    check_layers(&f, "[{\"type\":\"clip\",\"name\":\"c\",\"min\":-0.5,\"max\":2}," DENSE);
    begin(&f);
    scalar(&f, "high", 2);
    node(&f, "Min", "x", "high", "c");
    end_with_dense(&f, "c");
    check_layers(&f, "[{\"type\":\"clip\",\"name\":\"c\",\"max\":2}," DENSE);
    begin(&f); /* (clip(4·x − 1, −2, 2)) · 3 */
    scalar(&f, "4", 4), scalar(&f, "1", 1), scalar(&f, "low", -2), scalar(&f, "high", 2);
    scalar(&f, "3", 3);
    node(&f, "Mul", "4", "x", "a");
    node(&f, "Sub", "a", "1", "b");
    node(&f, "Max", "b", "low", "c");
    node(&f, "Min", "c", "high", "d");
    node(&f, "Mul", "d", "3", "e");
    end_with_dense(&f, "e");
    check_layers(&f, "[{\"type\":\"affine\",\"name\":\"e\",\"slope\":4,\"offset\":-1},"
                     "{\"type\":\"clip\",\"name\":\"e_2\",\"min\":-2,\"max\":2},"
                     "{\"type\":\"affine\",\"name\":\"e_3\",\"slope\":3}," DENSE);
    begin(&f);
    scalar(&f, "low", 2), scalar(&f, "high", -2);
    ls_onnx_node_begin(&f, "Clip", "c", "x");
    ls_onnx_node_input(&f, "low");
    ls_onnx_node_input(&f, "high");
    ls_onnx_node_end(&f, "c");
    end_with_dense(&f, "c");
    check_refused(&f, "node 0 \"c\" (Clip): its limits are 2 and -2");
}

/* Adds a Pad at the top, left, bottom and right. */
static void pad(ls_onnx_file *f, const char *in, const int side[4], const char *out)
{
    const int64_t pads[8] = {0, 0, side[0], side[1], 0, 0, side[2], side[3]};
    ls_onnx_put_int64s(f, "pads", pads, 8);
    node(f, "Pad", in, "pads", out);
}

/* Adds a window with 3×3 pixels and a stride of 2: a Conv, or a pool. */
static void window(ls_onnx_file *f, const char *op, const char *in, const int *pads,
                   const char *way, const char *out)
{
    static const float weight[36] = {1};
    static const int dim[4] = {2, 2, 3, 3};
    ls_onnx_node_begin(f, op, out, in);
    if (*op == 'C') {
        ls_onnx_put_floats(f, "c.weight", dim, 4, weight, 36);
        ls_onnx_node_input(f, "c.weight");
    } else {
        ls_onnx_node_ints(f, "kernel_shape", dim + 2, 2);
    }
    ls_onnx_node_ints(f, "strides", dim, 2);
    if (pads)
        ls_onnx_node_ints(f, "pads", pads, 4);
    if (way)
        ls_onnx_node_text(f, "auto_pad", way);
    ls_onnx_node_end(f, out);
}

/* Writes a graph that ends with the vector of the image `in`'s means. */
static void end_with_mean(ls_onnx_file *f, const char *in)
{
    static const float weight[4] = {1};
    static const int two[2] = {2, 2};
    node(f, "GlobalAveragePool", in, NULL, "mean");
    node(f, "Flatten", "mean", NULL, "flat");
    ls_onnx_put_floats(f, "fc.weight", two, 2, weight, 4);
    node(f, "MatMul", "flat", "fc.weight", "y");
    ls_onnx_put_output(f, "y", two, 1);
}

#define PADDED(name, sides) "{\"type\":\"pad\",\"name\":\"" name "\",\"padding\":" sides "},"
#define CONV "{\"type\":\"conv2d\",\"name\":\"c\",\"out\":2,\"kernel\":3,\"stride\":2"

static void padding_that_a_convolution_has_not_becomes_a_layer(void **state)
{
    static const int end[4] = {0, 0, 1, 1}, all[4] = {1, 1, 1, 1}, three[4] = {3, 3, 3, 3};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    window(&f, "Conv", "x", end, NULL, "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" PADDED("pad", "[0,0,1,1]") CONV ",\"bias\":false}");
    begin(&f);
    window(&f, "Conv", "x", NULL, "SAME_UPPER", "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" PADDED("pad", "[0,0,1,1]") CONV ",\"bias\":false}");
    begin(&f);
    window(&f, "Conv", "x", NULL, "SAME_LOWER", "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" PADDED("pad", "[1,1,0,0]") CONV ",\"bias\":false}");
    begin(&f); /* a Pad, as programs write it */
    pad(&f, "x", end, "p");
    window(&f, "Conv", "p", NULL, NULL, "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" PADDED("p", "[0,0,1,1]") CONV ",\"bias\":false}");
    begin(&f); /* padding that is the same on all sides stays in the convolution */
    pad(&f, "x", all, "p");
    window(&f, "Conv", "p", NULL, NULL, "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" CONV ",\"padding\":1,\"bias\":false}");
    begin(&f); /* unless it is as large as the kernel */
    window(&f, "Conv", "x", three, NULL, "c");
    end_with_mean(&f, "c");
    check_layers(&f, "[" PADDED("pad", "[3,3,3,3]") CONV ",\"bias\":false}");
}

static void a_pad_before_other_nodes_is_a_layer(void **state)
{
    static const int end[4] = {0, 0, 1, 1}, three[4] = {3, 3, 3, 3};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    pad(&f, "x", end, "p");
    node(&f, "Tanh", "p", NULL, "t");
    end_with_mean(&f, "t");
    check_layers(&f, "[" PADDED("p", "[0,0,1,1]") "{\"type\":\"tanh\",\"name\":\"t\"},");
    begin(&f); /* the zeros take part in the maximum, which the padding of a pool does not */
    pad(&f, "x", end, "p");
    window(&f, "MaxPool", "p", NULL, NULL, "m");
    end_with_mean(&f, "m");
    check_layers(&f, "[" PADDED("p", "[0,0,1,1]") "{\"type\":\"max_pool\",\"name\":\"m\","
                                                  "\"kernel\":3,\"stride\":2},");
    begin(&f);
    pad(&f, "x", end, "p");
    window(&f, "AveragePool", "p", NULL, NULL, "m");
    end_with_mean(&f, "m");
    check_layers(&f, "[{\"type\":\"avg_pool\",\"name\":\"m\",\"kernel\":3,\"stride\":2,"
                     "\"padding\":[0,0,1,1],\"count_include_pad\":true},");
    begin(&f);
    window(&f, "MaxPool", "x", three, NULL, "m");
    end_with_mean(&f, "m");
    check_refused(&f,
                  "node 0 \"m\" (MaxPool): attribute \"pads\": padding smaller than the kernel");
}

static void a_part_of_a_formula_that_others_read_becomes_a_layer(void **state)
{
    (void)state;
    ls_onnx_file f;
    begin(&f);
    node(&f, "Sigmoid", "x", NULL, "s");
    node(&f, "Mul", "x", "s", "m");
    node(&f, "Add", "m", "s", "sum");
    end_with_dense(&f, "sum");
    check_layers(&f, "[{\"type\":\"silu\",\"name\":\"m\"},{\"type\":\"sigmoid\",\"name\":\"s\","
                     "\"from\":\"input\"},{\"type\":\"add\",\"name\":\"sum\",\"from\":\"m\","
                     "\"with\":\"s\"}," DENSE);
}

static void shapes_are_folded_whether_the_rows_are_free_or_fixed(void **state)
{
    static const int64_t all[2] = {-1, 32}, zero = 0, rest = -1;
    (void)state;
    ls_onnx_file f;
    begin(&f); /* reshape(x, concat(shape(x)[0], −1)) */
    ls_onnx_put_int64s(&f, "i", &zero, 1);
    ls_onnx_put_int64s(&f, "rest", &rest, 1);
    node(&f, "Shape", "x", NULL, "a");
    node(&f, "Gather", "a", "i", "b");
    ls_onnx_node_begin(&f, "Concat", "c", "b");
    ls_onnx_node_input(&f, "rest");
    ls_onnx_node_int(&f, "axis", 0);
    ls_onnx_node_end(&f, "c");
    node(&f, "Reshape", "x", "c", "d");
    end_with_dense(&f, "d");
    check_layers(&f, "[" DENSE);
    begin(&f);
    ls_onnx_put_int64s(&f, "all", all, 2);
    node(&f, "Reshape", "x", "all", "d");
    end_with_dense(&f, "d");
    check_layers(&f, "[" DENSE);
}

/* The pads of F.pad(x, [0, 1, 0, 1]) as PyTorch computes them: in pairs, from the last dimension.
 */
static void pads_that_the_graph_computes_are_folded(void **state)
{
    static const int64_t ends[8] = {0, 1, 0, 1}, pairs[2] = {-1, 2}, zero = 0, last = -1,
                         before = -INT64_MAX;
    static const int perm[2] = {1, 0};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    ls_onnx_put_int64s(&f, "ends", ends, 8);
    ls_onnx_put_int64s(&f, "pairs", pairs, 2);
    ls_onnx_put_int64s(&f, "zero", &zero, 1);
    ls_onnx_put_int64s(&f, "last", &last, 1);
    ls_onnx_put_int64s(&f, "before", &before, 1);
    node(&f, "Reshape", "ends", "pairs", "a");
    ls_onnx_node_begin(&f, "Slice", "b", "a");
    ls_onnx_node_input(&f, "last");
    ls_onnx_node_input(&f, "before");
    ls_onnx_node_input(&f, "zero");
    ls_onnx_node_input(&f, "last");
    ls_onnx_node_end(&f, "b");
    ls_onnx_node_begin(&f, "Transpose", "c", "b");
    ls_onnx_node_ints(&f, "perm", perm, 2);
    ls_onnx_node_end(&f, "c");
    node(&f, "Reshape", "c", "last", "d");
    node(&f, "Pad", "x", "d", "p");
    window(&f, "Conv", "p", NULL, NULL, "c0");
    end_with_mean(&f, "c0");
    check_layers(&f, "[" PADDED("p", "[0,0,1,1]") CONV ",\"bias\":false}");
}

/* Adds Slice of `in` with the given starts, ends and steps. */
static void slice(ls_onnx_file *f, const char *in, int64_t start, int64_t end, int64_t step,
                  const char *out)
{
    static const int64_t zero = 0;
    ls_onnx_put_int64s(f, "start", &start, 1);
    ls_onnx_put_int64s(f, "end", &end, 1);
    ls_onnx_put_int64s(f, "axis", &zero, 1);
    ls_onnx_put_int64s(f, "step", &step, 1);
    ls_onnx_node_begin(f, "Slice", out, in);
    ls_onnx_node_input(f, "start");
    ls_onnx_node_input(f, "end");
    ls_onnx_node_input(f, "axis");
    ls_onnx_node_input(f, "step");
    ls_onnx_node_end(f, out);
}

static void a_slice_has_the_numbers_of_its_list_alone(void **state)
{
    static const int64_t list[3] = {32, -1, 7}, all[2] = {-1, 32};
    (void)state;
    ls_onnx_file f;
    begin(&f); /* backwards: −1, 32 */
    ls_onnx_put_int64s(&f, "list", list, 3);
    slice(&f, "list", 1, -9, -1, "to");
    node(&f, "Reshape", "x", "to", "d");
    end_with_dense(&f, "d");
    check_layers(&f, "[" DENSE);
    for (int step = -1; step <= 1; step += 2) { /* nothing of an empty list */
        begin(&f);
        ls_onnx_put_int64s(&f, "none", list, 0);
        ls_onnx_put_int64s(&f, "all", all, 2);
        slice(&f, "none", -1, step < 0 ? -5 : 5, step, "part");
        ls_onnx_node_begin(&f, "Concat", "to", "part");
        ls_onnx_node_input(&f, "all");
        ls_onnx_node_int(&f, "axis", 0);
        ls_onnx_node_end(&f, "to");
        node(&f, "Reshape", "x", "to", "d");
        end_with_dense(&f, "d");
        check_layers(&f, "[" DENSE);
    }
}

static void what_is_not_read_is_refused_with_its_node(void **state)
{
    static const int64_t moved[4] = {-1, 4, 2, 4};
    static const int perm[4] = {0, 2, 3, 1}, turned[4] = {0, 1, 3, 2}, twos[2] = {2, 2};
    static const float ones[2] = {1, 1};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    node(&f, "Einsum", "x", NULL, "e");
    end_with_dense(&f, "e");
    check_refused(&f, "node 0 \"e\" (Einsum): the operator is not read");
    begin(&f);
    node(&f, "Elu", "x", NULL, "e");
    end_with_dense(&f, "e");
    check_refused(&f, "node 0 \"e\" (Elu): the operator is not read; of activations Relu, ");
    begin(&f); /* an attribute that means something is not ignored */
    ls_onnx_node_begin(&f, "Relu", "r", "x");
    ls_onnx_node_int(&f, "limit", 3);
    ls_onnx_node_end(&f, "r");
    end_with_dense(&f, "r");
    check_refused(&f, "node 0 \"r\" (Relu): attribute \"limit\" is not read");
    begin(&f); /* values in another order */
    ls_onnx_node_begin(&f, "Transpose", "t", "x");
    ls_onnx_node_ints(&f, "perm", perm, 4);
    ls_onnx_node_end(&f, "t");
    end_with_dense(&f, "t");
    check_refused(&f, "node 0 \"t\" (Transpose): it moves the channels of images [rows, 2, 4, 4] "
                      "to the end; images with the channels first are read");
    begin(&f);
    ls_onnx_node_begin(&f, "Transpose", "t", "x");
    ls_onnx_node_ints(&f, "perm", turned, 4);
    ls_onnx_node_end(&f, "t");
    end_with_dense(&f, "t");
    check_refused(&f, "node 0 \"t\" (Transpose): it rearranges the values of rows [rows, 2, 4, 4]");
    begin(&f); /* an image of another shape, which a layer reads as an image */
    ls_onnx_put_int64s(&f, "moved", moved, 4);
    node(&f, "Reshape", "x", "moved", "t");
    node(&f, "GlobalAveragePool", "t", NULL, "g");
    ls_onnx_put_output(&f, "g", perm, 1);
    check_refused(&f, "node 1 \"g\" (GlobalAveragePool): it reads 2×4×4 values of a row in the "
                      "shape [rows, 4, 2, 4]; an image whose channels");
    begin(&f);
    ls_onnx_node_begin(&f, "MaxPool", "m", "x");
    ls_onnx_node_ints(&f, "kernel_shape", twos, 2);
    ls_onnx_node_ints(&f, "dilations", twos, 2);
    ls_onnx_node_end(&f, "m");
    end_with_mean(&f, "m");
    check_refused(&f, "node 0 \"m\" (MaxPool): attribute \"dilations\": 1 is read");
    begin(&f);
    ls_onnx_node_begin(&f, "Resize", "u", "x");
    ls_onnx_node_text(&f, "mode", "linear");
    ls_onnx_node_end(&f, "u");
    end_with_mean(&f, "u");
    check_refused(&f, "node 0 \"u\" (Resize): attribute \"mode\": nearest is read");
    begin(&f); /* a norm over a part of the values of a row */
    ls_onnx_put_floats(&f, "scale", perm + 1, 1, ones, 2);
    node(&f, "LayerNormalization", "x", "scale", "n");
    end_with_mean(&f, "n");
    check_refused(&f, "node 0 \"n\" (LayerNormalization): attribute \"axis\": a norm over all");
    begin(&f);
    node(&f, "Add", "x", "nowhere", "r");
    end_with_dense(&f, "r");
    check_refused(&f, "its input \"nowhere\" is given by no earlier node");
}

/* Writes a graph whose node n, which reads x, has the tensor `list` as its second input, and a file
 * that ends with what it gives. */
static void list_node(ls_onnx_file *f, const char *op, const int64_t *list, int count)
{
    begin(f);
    ls_onnx_put_int64s(f, "list", list, count);
    node(f, op, "x", "list", "n");
    end_with_dense(f, "n");
}

static void axes_that_occur_twice_are_refused(void **state)
{
    static const int64_t same[2] = {2, 2}, back[2] = {1, -5}, rows[2] = {-4, 0};
    (void)state;
    ls_onnx_file f;
    list_node(&f, "Unsqueeze", same, 2);
    check_refused(&f, "node 0 \"n\" (Unsqueeze): \"axes\": 2 occurs twice");
    list_node(&f, "Unsqueeze", back, 2); /* of six dimensions */
    check_refused(&f, "node 0 \"n\" (Unsqueeze): \"axes\": 1 occurs twice");
    list_node(&f, "Squeeze", rows, 2);
    check_refused(&f, "node 0 \"n\" (Squeeze): \"axes\": 0 occurs twice");
    begin(&f);
    node(&f, "Unsqueeze", "x", NULL, "n");
    end_with_dense(&f, "n");
    check_refused(&f, "node 0 \"n\" (Unsqueeze): expected \"axes\"");
}

/* Reads the file as a model for rows of the shape and a number of classes that it does not have,
 * and checks the message. */
static void check_misfit(ls_shape input, int classes, const char *said)
{
    const ls_onnx_source source = {.path = path};
    char wanted[300];
    ls_onnx_net *net;
    ls_network *model;
    ls_json *doc;
    ls_error err;
    must(ls_onnx_import(&net, &source, NULL, &err), &err);
    must(ls_onnx_net_parse(&doc, net, &err), &err);
    assert_int_equal(ls_network_parse(&model, doc, ls_json_root(doc), input, classes, NULL, &err),
                     LS_ECONFIG);
    snprintf(wanted, sizeof wanted, "%s: %s", path, said);
    if (strncmp(err.text, wanted, strlen(wanted)) != 0)
        fail_msg("expected \"%s\" at the start of \"%s\"", wanted, err.text);
    ls_json_destroy(doc);
    ls_onnx_net_destroy(net);
}

static void a_message_about_a_model_that_was_read_names_the_node(void **state)
{
    (void)state;
    ls_onnx_file f;
    ls_error err;
    begin(&f);
    node(&f, "Relu", "x", NULL, "r");
    end_with_dense(&f, "r");
    free(read_layers(&f, &err)); /* leaves the file */
    check_misfit((ls_shape){2, 8, 8}, 3,
                 "input \"x\": model: the model reads rows of 2×4×4 (channels, height, width), but "
                 "the data have 2×8×8");
    check_misfit((ls_shape){2, 4, 4}, 5, "node 2 \"y\" (MatMul): ");
}

/* Adds a Resize of the image x to twice its height and width. */
static void twice(ls_onnx_file *f, const char *policy)
{
    static const float by[4] = {1, 1, 2, 2};
    static const int four = 4;
    begin(f);
    ls_onnx_put_floats(f, "by", &four, 1, by, 4);
    ls_onnx_node_begin(f, "Resize", "u", "x");
    ls_onnx_node_input(f, "");
    ls_onnx_node_input(f, "by");
    ls_onnx_node_text(f, "mode", "nearest");
    ls_onnx_node_text(f, "keep_aspect_ratio_policy", policy);
    ls_onnx_node_end(f, "u");
    end_with_mean(f, "u");
}

static void a_resize_may_say_that_it_stretches(void **state)
{
    (void)state;
    ls_onnx_file f;
    twice(&f, "stretch");
    check_layers(&f, "[{\"type\":\"upsample\",\"name\":\"u\",\"scale\":2}");
    twice(&f, "not_larger");
    check_refused(&f, "node 0 \"u\" (Resize): attribute \"keep_aspect_ratio_policy\": stretch");
}

static void an_output_that_is_an_image_is_refused_by_its_name(void **state)
{
    static const int dim[3] = {2, 4, 4};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    node(&f, "Relu", "x", NULL, "r");
    ls_onnx_put_output(&f, "r", dim, 3);
    check_refused(
        &f,
        "node 0 \"r\" (Relu): its output \"r\" has 4 dimensions; a vector [rows, features] is read");
}

static void a_second_input_is_refused_with_the_names_of_both(void **state)
{
    static const int dim[3] = {2, 4, 4};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    ls_onnx_put_input(&f, "z", LS_ONNX_FLOAT, dim, 3);
    node(&f, "Add", "x", "z", "s");
    end_with_dense(&f, "s");
    check_refused(&f,
                  "node 0 \"s\" (Add): its input \"z\" is one of 2 inputs without initial values "
                  "on which the output depends: \"x\", \"z\"; one is read");
}

/* Begins a graph whose input x has the shape [batch, 2, 3, 4, 5], which is not read. */
static void begin_large(ls_onnx_file *f)
{
    static const int dim[4] = {2, 3, 4, 5};
    ls_onnx_file_init(f, NULL);
    ls_onnx_put_input(f, "x", LS_ONNX_FLOAT, dim, 4);
}

static void an_input_is_refused_with_the_node_that_reads_it(void **state)
{
    static const int dim[3] = {2, 4, 4};
    (void)state;
    ls_onnx_file f;
    begin_large(&f);
    node(&f, "Relu", "x", NULL, "unused");
    node(&f, "Tanh", "x", NULL, "t");
    end_with_dense(&f, "t");
    check_refused(&f, "node 1 \"t\" (Tanh): its input \"x\" has the shape [?, 2, 3, 4, 5] in the "
                      "file; [rows, channels, height, width], ");
    ls_onnx_file_init(&f, NULL);
    ls_onnx_put_input(&f, "x", LS_ONNX_INT64, dim, 3);
    node(&f, "Relu", "x", NULL, "r");
    end_with_dense(&f, "r");
    check_refused(&f,
                  "node 0 \"r\" (Relu): its input \"x\" has values of the type int64 in the file");
    begin(&f);
    node(&f, "Relu", "x", NULL, "r");
    node(&f, "Flatten", "r", NULL, "flat");
    ls_onnx_put_output(&f, "flat", dim, 1);
    check_refused(&f, "node 1 \"flat\" (Flatten): it gives the output, and neither it nor a node "
                      "before it has weights");
    begin(&f);
    ls_onnx_put_output(&f, "x", dim, 1);
    check_refused(&f, ": its graph has no nodes");
}

static void an_operator_that_is_not_read_is_the_first_reason(void **state)
{
    static const int dim[3] = {2, 4, 4};
    (void)state;
    ls_onnx_file f;
    begin_large(&f); /* before the shape of the input */
    node(&f, "Relu", "x", NULL, "r");
    node(&f, "Einsum", "r", NULL, "e");
    node(&f, "Elu", "e", NULL, "elu");
    end_with_dense(&f, "elu");
    check_refused(&f, "node 1 \"e\" (Einsum): the operator is not read");
    begin(&f); /* before the choice of an output, if each depends on one */
    node(&f, "Einsum", "x", NULL, "e");
    ls_onnx_put_output(&f, "e", dim, 3);
    end_with_dense(&f, "e");
    check_refused(&f, "node 0 \"e\" (Einsum): the operator is not read");
    begin(&f); /* else not */
    node(&f, "Einsum", "x", NULL, "e");
    ls_onnx_put_output(&f, "e", dim, 3);
    end_with_dense(&f, "x");
    check_refused(&f,
                  "node 0 \"e\" (Einsum): it gives one of 2 outputs; set model.output to one of "
                  "them: \"e\", \"y\"");
    begin(&f); /* nor one on which the output does not depend */
    node(&f, "Einsum", "x", NULL, "e");
    end_with_dense(&f, "x");
    check_layers(&f, "[" DENSE);
    begin(&f);
    node(&f, "If", "x", NULL, "i");
    end_with_dense(&f, "i");
    check_refused(&f,
                  "node 0 \"i\" (If): the operator is not read; nodes that are always computed, "
                  "and once, are read; if the condition of an If is constant, onnxsim");
}

static void nodes_of_a_network_in_training_are_refused(void **state)
{
    static const float ones[2] = {1, 1};
    static const int two = 2;
    static const char *const part[4] = {"s", "b", "m", "v"};
    (void)state;
    ls_onnx_file f;
    for (int training = 0; training < 2; training++) {
        begin(&f);
        scalar(&f, "half", 0.5f), scalar(&f, "on", (float)training);
        ls_onnx_node_begin(&f, "Dropout", "d", "x");
        ls_onnx_node_input(&f, "half");
        ls_onnx_node_input(&f, "on");
        ls_onnx_node_end(&f, "d");
        end_with_dense(&f, "d");
        if (training)
            check_refused(&f, "node 0 \"d\" (Dropout): its input 2, training_mode, is true; false "
                              "is read: export the network after net.eval()");
        else
            check_layers(&f, "[" DENSE);
    }
    begin(&f);
    ls_onnx_node_begin(&f, "BatchNormalization", "n", "x");
    for (int i = 0; i < 4; i++)
        ls_onnx_node_input(&f, part[i]);
    ls_onnx_node_int(&f, "training_mode", 1);
    ls_onnx_node_end(&f, "n");
    for (int i = 0; i < 4; i++)
        ls_onnx_put_floats(&f, part[i], &two, 1, ones, 2);
    end_with_dense(&f, "n");
    check_refused(&f, "node 0 \"n\" (BatchNormalization): attribute \"training_mode\": 0 is read; "
                      "export the network after net.eval()");
}

/* ---- LayerNorm written out ------------------------------------------------------------------- */

/* Adds the mean of `in` over the axes from 1 to `rank` − 1, or over axis 1 alone if `rank` is 0. */
static void mean(ls_onnx_file *f, const char *in, int rank, const char *out)
{
    static const int axes[3] = {1, 2, 3};
    ls_onnx_node_begin(f, "ReduceMean", out, in);
    ls_onnx_node_ints(f, "axes", axes, rank ? rank - 1 : 1);
    ls_onnx_node_end(f, out);
}

/* Adds (in − m) / √(v + 0.001) as "n", where m and v are mean and variance of a row. */
static void norm(ls_onnx_file *f, const char *in, int rank, bool power)
{
    scalar(f, "2", 2), scalar(f, "epsilon", 0.001f);
    mean(f, in, rank, "m");
    node(f, "Sub", in, "m", "c");
    node(f, power ? "Pow" : "Mul", "c", power ? "2" : "c", "s");
    mean(f, "s", rank, "v");
    node(f, "Add", "v", "epsilon", "e");
    node(f, "Sqrt", "e", NULL, "d");
    node(f, "Div", "c", "d", "n");
}

#define NORM(name) "{\"type\":\"layer_norm\",\"name\":\"" name "\",\"epsilon\":0.001}"

static void a_layer_norm_that_is_written_out_is_one_layer(void **state)
{
    static const float number[32] = {1, 2};
    static const int dim[3] = {2, 4, 4}, two = 2, features = 32;
    (void)state;
    ls_onnx_file f;
    /* it reads an image, and has a weight and a bias */
    begin(&f);
    norm(&f, "x", 4, true);
    ls_onnx_put_floats(&f, "ln.weight", dim, 3, number, 32);
    ls_onnx_put_floats(&f, "ln.bias", dim, 3, number, 32);
    node(&f, "Mul", "n", "ln.weight", "w");
    node(&f, "Add", "w", "ln.bias", "b");
    end_with_dense(&f, "b");
    check_layers(&f, "[" NORM("ln") "," DENSE);
    /* it reads a vector, has neither, and its values are doubled */
    begin(&f);
    node(&f, "Flatten", "x", NULL, "r");
    norm(&f, "r", 2, false);
    node(&f, "Mul", "n", "2", "twice");
    end_with_dense(&f, "twice");
    check_layers(&f, "[{\"type\":\"flatten\",\"name\":\"flatten\"}," NORM(
                         "n") ","
                              "{\"type\":\"affine\",\"name\":\"twice\",\"slope\":2}");
    /* it has a bias alone */
    begin(&f);
    node(&f, "Flatten", "x", NULL, "r");
    norm(&f, "r", 2, true);
    ls_onnx_put_floats(&f, "ln.bias", &features, 1, number, 32);
    node(&f, "Add", "ln.bias", "n", "b");
    end_with_dense(&f, "b");
    check_layers(&f, "[{\"type\":\"flatten\",\"name\":\"flatten\"}," NORM("b") ",");
    /* a mean over the channels alone is not read */
    begin(&f);
    norm(&f, "x", 0, true);
    end_with_dense(&f, "n");
    check_refused(&f,
                  "node 0 \"m\" (ReduceMean): attribute \"axes\": the mean over height and width "
                  "of an image is read, and in a LayerNorm that over all values of a row");
    /* a part of its formula is not read */
    begin(&f);
    mean(&f, "x", 4, "m");
    node(&f, "Sub", "x", "m", "c");
    node(&f, "Relu", "c", NULL, "r");
    end_with_dense(&f, "r");
    check_refused(&f, "node 2 \"r\" (Relu): it reads a part of ReduceMean, Sub, Pow, ");
    /* its weight must have the shape of a row */
    begin(&f);
    norm(&f, "x", 4, true);
    ls_onnx_put_floats(&f, "ln.weight", &two, 1, number, 2);
    node(&f, "Mul", "n", "ln.weight", "w");
    end_with_dense(&f, "w");
    check_refused(&f, "node 7 \"w\" (Mul): its constant has 2 numbers");
}

static void a_layer_norm_keeps_the_shape_in_which_the_graph_sees_rows(void **state)
{
    static const float number[32] = {1};
    static const int64_t moved[4] = {-1, 4, 2, 4};
    static const int dim[3] = {4, 2, 4};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    ls_onnx_put_int64s(&f, "moved", moved, 4);
    node(&f, "Reshape", "x", "moved", "t");
    ls_onnx_put_floats(&f, "ln.weight", dim, 3, number, 32);
    ls_onnx_node_begin(&f, "LayerNormalization", "n", "t");
    ls_onnx_node_input(&f, "ln.weight");
    ls_onnx_node_int(&f, "axis", 1);
    ls_onnx_node_end(&f, "n");
    end_with_mean(&f, "n");
    check_refused(&f, "node 2 \"mean\" (GlobalAveragePool): it reads 2×4×4 values of a row in the "
                      "shape [rows, 4, 2, 4]");
}

/* ---- pools whose last windows extend beyond the padding ---------------------------------------
 */

/* Adds an AveragePool with ceil_mode, whose windows of `side` pixels do not overlap. */
static void ceil_pool(ls_onnx_file *f, const char *in, int side, bool counts, const char *out)
{
    const int sides[2] = {side, side};
    ls_onnx_node_begin(f, "AveragePool", out, in);
    ls_onnx_node_ints(f, "kernel_shape", sides, 2);
    ls_onnx_node_ints(f, "strides", sides, 2);
    ls_onnx_node_int(f, "ceil_mode", 1);
    ls_onnx_node_int(f, "count_include_pad", counts);
    ls_onnx_node_end(f, out);
}

static void a_pool_may_extend_beyond_its_padding(void **state)
{
    static const int one[4] = {0, 0, 1, 1};
    (void)state;
    ls_onnx_file f;
    begin(&f);
    ceil_pool(&f, "x", 3, true, "p");
    end_with_mean(&f, "p");
    check_layers(&f, "[{\"type\":\"avg_pool\",\"name\":\"p\",\"kernel\":3,\"stride\":3,"
                     "\"ceil_mode\":true,\"count_include_pad\":true},");
    begin(&f); /* its last windows are the zeros of a Pad */
    pad(&f, "x", one, "z");
    ceil_pool(&f, "z", 2, false, "p");
    end_with_mean(&f, "p");
    check_layers(&f, "[" PADDED("z", "[0,0,1,1]") "{\"type\":\"avg_pool\",\"name\":\"p\","
                                                  "\"kernel\":2,\"stride\":2,\"ceil_mode\":true},");
}

static void names_that_are_too_many_or_doubled_are_refused(void **state)
{
    (void)state;
    ls_onnx_file f;
    begin(&f);
    node(&f, "Relu", "x", NULL, "r");
    node(&f, "Relu", "x", NULL, "r");
    end_with_dense(&f, "r");
    check_refused(&f, "node 1 \"r\" (Relu): expected each tensor once, found \"r\" twice");
    begin(&f);
    for (int i = 0; i < 20001; i++)
        node(&f, "Relu", "x", NULL, "");
    end_with_dense(&f, "x");
    check_refused(&f, "at most 20000 nodes");
}

/* Reads the file of `json`, whose last layer begins anew. The model then has 3 classes, and all
 * weights but those of the layer `head`. */
static void expect_new_head(const char *json, ls_shape input, const char *head)
{
    const ls_onnx_source source = {.path = path, .new_head = true};
    ls_network *model = make_model(json, input, 10), *again;
    float *weights = calloc(model->floats, sizeof *weights);
    ls_onnx_net *net;
    ls_json *doc;
    ls_error err;
    fill_weights(weights, model, 0.5f, 3);
    read_back(model, weights, plain_pixels); /* leaves the file */
    must(ls_onnx_import(&net, &source, NULL, &err), &err);
    const ls_onnx_about *about = ls_onnx_net_about(net);
    const char *text = ls_onnx_net_text(net);
    must(ls_json_parse(&doc, "layers", text, strlen(text), NULL, &err), &err);
    must(ls_network_parse(&again, doc, ls_json_root(doc), input, 3, NULL, &err), &err);
    assert_string_equal(about->head, head);
    assert_int_equal(about->outputs, 10);
    assert_int_equal(about->weights + about->left_out, model->floats);
    assert_true(about->left_out > 0 && again->floats > about->weights);
    float *canonical = calloc(again->floats, sizeof *canonical);
    canonical[about->weights] = 7;
    must(ls_onnx_net_load(canonical, net, again, &err), &err);
    assert_memory_equal(canonical, weights, about->weights * sizeof *weights);
    assert_true(canonical[about->weights] == 7);
    assert_true(canonical[again->floats - 1] == 0 || again->floats == about->weights + 1);
    const ls_layer *last = &again->layer[again->layers - 1];
    while (last->params == 0)
        last--;
    assert_int_equal(last->params, 2); /* a bias, whether the old one had one or not */
    free(canonical);
    free(weights);
    ls_network_destroy(again, NULL);
    ls_json_destroy(doc);
    ls_onnx_net_destroy(net);
    free_model(model);
}

static void a_new_head_takes_the_place_of_the_last_layer(void **state)
{
    const ls_onnx_source source = {.path = path, .new_head = true};
    const ls_shape pixels = {3, 6, 6};
    ls_onnx_net *net;
    ls_error err;
    (void)state;
    expect_new_head("[{\"type\":\"conv2d\",\"name\":\"a\",\"out\":4,\"kernel\":3},"
                    "{\"type\":\"batch_norm\",\"name\":\"n\"},{\"type\":\"global_avg_pool\"},"
                    "{\"type\":\"dense\",\"name\":\"fc\",\"bias\":false}]",
                    pixels, "fc");
    expect_new_head(
        "[{\"type\":\"conv2d\",\"name\":\"a\",\"out\":4,\"kernel\":3},{\"type\":\"relu\"},"
        "{\"type\":\"conv2d\",\"name\":\"b\",\"out\":10,\"kernel\":1},"
        "{\"type\":\"global_avg_pool\"}]",
        pixels, "b");
    ls_network *model =
        make_model("[{\"type\":\"flatten\"},{\"type\":\"dense\",\"name\":\"fc\",\"out\":10},"
                   "{\"type\":\"layer_norm\",\"name\":\"last\"}]",
                   pixels, 10);
    float *weights = calloc(model->floats, sizeof *weights);
    read_back(model, weights, plain_pixels);
    assert_int_equal(ls_onnx_import(&net, &source, NULL, &err), LS_EUNSUPPORTED);
    if (!strstr(err.text, "its last layer with weights is \"last\", a layer_norm of 10 outputs"))
        fail_msg("%s", err.text);
    free(weights);
    free_model(model);
}

/* A file is longer by what is written after it, because it is a sequence of fields. */
static void licence_and_source_are_kept(void **state)
{
    static const char fields[] = "\x12\x07pytorch" /* producer_name */
                                 "\x72\x15\x0a\x07license\x12\x0a"
                                 "Apache-2.0" /* metadata_props */
                                 "\x72\x17\x0a\x06source\x12\x0d"
                                 "example.org/1";
    const ls_onnx_source source = {.path = path};
    ls_onnx_net *net;
    ls_onnx_file f;
    ls_error err = {0};
    (void)state;
    begin(&f);
    end_with_dense(&f, "x");
    free(read_layers(&f, &err)); /* leaves the file */
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(fields, 1, sizeof fields - 1, file), sizeof fields - 1);
    fclose(file);
    must(ls_onnx_import(&net, &source, NULL, &err), &err);
    if (!strstr(ls_onnx_net_text(net), "\"producer\":\"pytorch\"") ||
        !strstr(ls_onnx_net_text(net), "\"metadata\":{\"license\":\"Apache-2.0\",\"source\":"
                                       "\"example.org/1\"}"))
        fail_msg("%s", ls_onnx_net_text(net));
    ls_onnx_net_destroy(net);
}

static void lack_of_memory(bool new_head)
{
    const ls_onnx_source source = {.path = path, .new_head = new_head};
    ls_network *model = make_model(lenet_json, (ls_shape){1, 28, 28}, 10);
    float *weights = calloc(model->floats, sizeof *weights);
    read_back(model, weights, plain_pixels); /* leaves the file */
    int status = LS_ENOMEM;
    long at = 1;
    for (; status != LS_OK && at < 1000; at++) {
        counting_host h;
        ls_onnx_net *net = NULL;
        ls_error err;
        counting_host_init(&h);
        h.fail_at = at;
        status = ls_onnx_import(&net, &source, &h.host, &err);
        if (status != LS_OK && status != LS_ENOMEM)
            fail_msg("%s", err.text);
        ls_onnx_net_destroy(net);
        assert_int_equal(h.live, 0);
    }
    assert_int_equal(status, LS_OK);
    assert_true(at > 10);
    free(weights);
    free_model(model);
}

static void lack_of_memory_at_any_point_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    lack_of_memory(false);
    lack_of_memory(true);
}

LS_TESTS(onnx_import, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_that_is_exported_comes_back_with_its_weights),
        cmocka_unit_test(lenet_comes_back),
        cmocka_unit_test(the_examples_come_back),
        cmocka_unit_test(formulas_become_the_layer_that_they_stand_for),
        cmocka_unit_test(gelu_with_tanh_is_read_in_every_order),
        cmocka_unit_test(limits_and_constants_become_clip_and_affine),
        cmocka_unit_test(padding_that_a_convolution_has_not_becomes_a_layer),
        cmocka_unit_test(a_pad_before_other_nodes_is_a_layer),
        cmocka_unit_test(a_part_of_a_formula_that_others_read_becomes_a_layer),
        cmocka_unit_test(shapes_are_folded_whether_the_rows_are_free_or_fixed),
        cmocka_unit_test(pads_that_the_graph_computes_are_folded),
        cmocka_unit_test(a_slice_has_the_numbers_of_its_list_alone),
        cmocka_unit_test(what_is_not_read_is_refused_with_its_node),
        cmocka_unit_test(axes_that_occur_twice_are_refused),
        cmocka_unit_test(a_resize_may_say_that_it_stretches),
        cmocka_unit_test(an_output_that_is_an_image_is_refused_by_its_name),
        cmocka_unit_test(a_second_input_is_refused_with_the_names_of_both),
        cmocka_unit_test(an_input_is_refused_with_the_node_that_reads_it),
        cmocka_unit_test(an_operator_that_is_not_read_is_the_first_reason),
        cmocka_unit_test(nodes_of_a_network_in_training_are_refused),
        cmocka_unit_test(a_layer_norm_that_is_written_out_is_one_layer),
        cmocka_unit_test(a_layer_norm_keeps_the_shape_in_which_the_graph_sees_rows),
        cmocka_unit_test(a_pool_may_extend_beyond_its_padding),
        cmocka_unit_test(a_message_about_a_model_that_was_read_names_the_node),
        cmocka_unit_test(names_that_are_too_many_or_doubled_are_refused),
        cmocka_unit_test(a_new_head_takes_the_place_of_the_last_layer),
        cmocka_unit_test(licence_and_source_are_kept),
        cmocka_unit_test(lack_of_memory_at_any_point_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("onnx_import", tests, open_path, remove_path);
}
