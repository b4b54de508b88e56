/* SPDX-License-Identifier: MIT */
/* Tests the structure of exported ONNX files, for every layer type. onnx_check.py checks that the
 * files compute the same as the model. */
#include "nn/nn_fixture.h"
#include "onnx/onnx.h"
#include "onnx_reader.h"
#include "runner.h"

#include "prep/prep.h"
#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_IR = 1, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14 };
enum { NODE = 1, NAME = 2, CONSTANT = 5, INPUT = 11, OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { DIMS = 1, ELEMENT = 2, TENSOR_NAME = 8, RAW = 9, FLOATS = 1, INT64S = 7 };

typedef struct written {
    ls_network *model;
    float *weights;
    ls_buffer file;
    pb_reader whole, graph;
} written;

static const ls_gather shifted = {.mean = {0.5f, 0.25f, 0, 0}, .std = {0.5f, 2, 1, 1}};

static written write_model_with(const char *json, ls_shape input, int classes,
                                ls_gather normalisation, const ls_loss *loss,
                                const ls_vector_loss *vector)
{
    written w = {.model = make_model(json, input, classes)};
    ls_error err;
    w.weights = calloc(w.model->floats, sizeof *w.weights);
    fill_weights(w.weights, w.model, 0.5f, 3);
    ls_buffer_init(&w.file, NULL);
    ls_onnx_desc d = {.model = w.model,
                      .weights = w.weights,
                      .normalisation = normalisation,
                      .name = "a name",
                      .loss = loss};
    if (vector)
        d.vector_loss = *vector;
    if (classes == 3)
        w.model->card = strdup("{\"class_names\":[\"a\",\"b\",\"c\"],\"features\":[7]}");
    must(ls_onnx_write(&w.file, &d, &err), &err);
    w.whole =
        (pb_reader){(const uint8_t *)w.file.text, (const uint8_t *)w.file.text + w.file.length};
    const pb_field graph = pb_find(w.whole, MODEL_GRAPH);
    w.graph = pb_inside(&graph);
    return w;
}

static written write_model(const char *json, ls_shape input, int classes, ls_gather normalisation)
{
    return write_model_with(json, input, classes, normalisation, NULL, NULL);
}

static void drop(written *w)
{
    ls_buffer_fini(&w->file);
    free(w->weights);
    free_model(w->model);
}

/* ---- requirements of every file ------------------------------------------------------------- */

enum { MOST_NAMES = 256, NAME_SIZE = 128 };

typedef struct names {
    char text[MOST_NAMES][NAME_SIZE];
    int count;
} names;

static int is_known(const names *n, const char *name)
{
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->text[i], name) == 0)
            return 1;
    return 0;
}

static void add_name(names *n, const pb_field *field)
{
    char text[NAME_SIZE];
    pb_text(text, sizeof text, field);
    assert_true(n->count < MOST_NAMES);
    if (is_known(n, text))
        fail_msg("\"%s\" is there twice", text);
    strcpy(n->text[n->count++], text);
}

/* A constant's bytes are those of its shape. */
static void check_constant(const pb_field *tensor)
{
    pb_reader r = pb_inside(tensor);
    const uint64_t type = pb_find(r, ELEMENT).value;
    uint64_t values = 1;
    assert_true(type == FLOATS || type == INT64S);
    const size_t bytes = pb_find(r, RAW).length;
    for (pb_field f; pb_next(&r, &f);)
        if (f.number == DIMS)
            values *= f.value;
    assert_int_equal(bytes, values * (type == FLOATS ? 4 : 8));
}

static void check_node(names *known, const pb_field *node)
{
    char text[NAME_SIZE];
    pb_reader r = pb_inside(node);
    for (pb_field f; pb_next(&r, &f);)
        if (f.number == NODE_INPUT && f.length && !is_known(known, pb_text(text, sizeof text, &f)))
            fail_msg("\"%s\" is read before it is written", text);
    const pb_field out = pb_find(pb_inside(node), NODE_OUTPUT);
    add_name(known, &out);
}

static void check_graph(const written *w)
{
    static names known; /* large */
    pb_field f;
    const pb_field input = pb_find(w->graph, INPUT), output = pb_find(w->graph, OUTPUT);
    const pb_field in_name = pb_find(pb_inside(&input), 1),
                   out_name = pb_find(pb_inside(&output), 1);
    char text[NAME_SIZE];
    known.count = 0;
    assert_string_equal(pb_text(text, sizeof text, &in_name), "x");
    add_name(&known, &in_name);
    for (pb_reader r = w->graph; pb_next(&r, &f);) {
        if (f.number != CONSTANT)
            continue;
        check_constant(&f);
        const pb_field name = pb_find(pb_inside(&f), TENSOR_NAME);
        add_name(&known, &name);
    }
    for (int i = 0; i < w->model->params + w->model->stats; i++)
        assert_true(is_known(&known, w->model->tensor[i]->name));
    for (pb_reader r = w->graph; pb_next(&r, &f);)
        if (f.number == NODE)
            check_node(&known, &f);
    assert_string_equal(pb_text(text, sizeof text, &out_name), "logits");
    assert_true(is_known(&known, "logits"));
}

static void every_layer_type_gives_a_graph_whose_names_fit_together(void **state)
{
    (void)state;
    for (const ls_layer_type *const *type = ls_layer_types(); *type; type++) {
        for (int i = 0; (*type)->samples[i].layers; i++) {
            written w = write_model((*type)->samples[i].layers, (*type)->samples[i].input,
                                    LS_SAMPLE_CLASSES, i % 2 ? shifted : plain_pixels);
            check_graph(&w);
            drop(&w);
        }
    }
}

/* ---- LeNet, exactly ------------------------------------------------------------------------- */

static void ops_of(char *out, size_t size, pb_reader graph)
{
    char text[64];
    size_t used = 0;
    out[0] = '\0';
    for (pb_field f; pb_next(&graph, &f) && used < size;) {
        if (f.number != NODE)
            continue;
        const pb_field op = pb_find(pb_inside(&f), NODE_OP);
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "",
                                 pb_text(text, sizeof text, &op));
    }
}

static void the_versions_are_those_that_the_header_states(void **state)
{
    (void)state;
    written w = write_model(lenet_json, (ls_shape){1, 28, 28}, 10, plain_pixels);
    assert_int_equal(pb_find(w.whole, MODEL_IR).value, LS_ONNX_IR_VERSION);
    const pb_field opset = pb_find(w.whole, MODEL_OPSET);
    assert_int_equal(pb_find(pb_inside(&opset), 2).value, LS_ONNX_OPSET);
    assert_int_equal(pb_find(pb_inside(&opset), 1).length, 0);
    drop(&w);
}

static void lenet_is_fourteen_nodes_and_its_weights_as_they_are(void **state)
{
    (void)state;
    char ops[400], text[64];
    written w = write_model(lenet_json, (ls_shape){1, 28, 28}, 10, plain_pixels);
    ops_of(ops, sizeof ops, w.graph);
    assert_string_equal(ops, "Cast Div Conv Relu AveragePool Conv Relu AveragePool Flatten Gemm "
                             "Relu Gemm Identity Softmax");
    assert_int_equal(pb_count(w.graph, CONSTANT), 9);
    pb_reader constants = w.graph;
    pb_field first; /* after the divisor */
    for (int seen = 0; seen < 2 && pb_next(&constants, &first);)
        seen += first.number == CONSTANT;
    const pb_field name = pb_find(pb_inside(&first), TENSOR_NAME);
    const pb_field raw = pb_find(pb_inside(&first), RAW);
    assert_string_equal(pb_text(text, sizeof text, &name), "conv1.weight");
    assert_int_equal(raw.length, 20 * 9 * sizeof(float));
    assert_memory_equal(raw.data, w.weights, raw.length);
    drop(&w);
}

/* ValueInfo: type (2) → tensor type (1) → shape (2) → dim (1) → value (1) or parameter (2). */
static void the_batch_dimension_has_a_name_and_no_size(void **state)
{
    (void)state;
    char text[32];
    written w = write_model(lenet_json, (ls_shape){1, 28, 28}, 10, plain_pixels);
    const int ends[2] = {INPUT, OUTPUT};
    for (int i = 0; i < 2; i++) {
        pb_field f = pb_find(w.graph, (unsigned)ends[i]);
        f = pb_find(pb_inside(&f), 2);
        f = pb_find(pb_inside(&f), 1);
        f = pb_find(pb_inside(&f), 2);
        assert_int_equal(pb_count(pb_inside(&f), 1), i == 0 ? 4 : 2);
        f = pb_find(pb_inside(&f), 1);
        assert_int_equal(pb_count(pb_inside(&f), 1), 0);
        f = pb_find(pb_inside(&f), 2);
        assert_string_equal(pb_text(text, sizeof text, &f), "batch");
    }
    drop(&w);
}

static void mean_and_std_come_first_and_only_where_they_change_something(void **state)
{
    (void)state;
    char ops[400];
    written w = write_model(lenet_json, (ls_shape){1, 28, 28}, 10, shifted);
    ops_of(ops, sizeof ops, w.graph);
    assert_memory_equal(ops, "Cast Div Sub Div Conv ", 22);
    assert_int_equal(pb_count(w.graph, CONSTANT), 11);
    drop(&w);
}

static void dropout_is_left_out_and_its_reader_reads_what_it_read(void **state)
{
    (void)state;
    char ops[400];
    written w = write_model("[{\"type\":\"dense\",\"out\":4},{\"type\":\"dropout\"},"
                            "{\"type\":\"dense\",\"out\":3},{\"type\":\"dropout\"}]",
                            (ls_shape){6, 1, 1}, 3, plain_pixels);
    ops_of(ops, sizeof ops, w.graph);
    assert_string_equal(ops, "Cast Div Gemm Gemm Identity Softmax");
    check_graph(&w);
    drop(&w);
}

/* Checks the zeros that the Pad node of the layer "p" adds: at the top, left, bottom and right. */
static void check_pads(const written *w, const int64_t wanted[4])
{
    const int64_t sides[8] = {0, 0, wanted[0], wanted[1], 0, 0, wanted[2], wanted[3]};
    pb_field f;
    for (pb_reader r = w->graph; pb_next(&r, &f);) {
        char text[64];
        if (f.number != CONSTANT)
            continue;
        const pb_field name = pb_find(pb_inside(&f), TENSOR_NAME),
                       raw = pb_find(pb_inside(&f), RAW);
        if (strcmp(pb_text(text, sizeof text, &name), "p:pads") != 0)
            continue;
        assert_int_equal(raw.length, sizeof sides);
        assert_memory_equal(raw.data, sides, sizeof sides);
        return;
    }
    fail_msg("there is no constant p:pads");
}

/* From top to bottom two windows, 3 pixels apart, lie in 5 pixels and 1 of padding on each side; a
 * third one would begin in the padding after them, which would be the image after a Pad. From left
 * to right the second window extends beyond the padding, so the pool must keep ceil_mode. */
static void a_padded_pool_has_no_window_that_begins_in_its_padding(void **state)
{
    char ops[400];
    (void)state;
    written w =
        write_model("[{\"type\":\"avg_pool\",\"name\":\"p\",\"kernel\":[2,3],\"stride\":[3,5],"
                    "\"padding\":1,\"ceil_mode\":true,\"count_include_pad\":true},"
                    "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
                    (ls_shape){1, 5, 5}, 3, plain_pixels);
    assert_int_equal(w.model->layer[0].out.h, 2);
    assert_int_equal(w.model->layer[0].out.w, 2);
    ops_of(ops, sizeof ops, w.graph);
    assert_string_equal(ops, "Cast Div Pad AveragePool Flatten Gemm Identity Softmax");
    check_pads(&w, (const int64_t[4]){1, 1, -1, 1});
    drop(&w);
}

/* Writes the name and the numbers of each attribute of the layer "p". */
static void attributes_of(char *out, size_t size, pb_reader graph)
{
    enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_I = 3, ATTRIBUTE_INTS = 8 };
    char text[64];
    size_t used = 0;
    for (pb_field node; pb_next(&graph, &node);) {
        if (node.number != NODE)
            continue;
        const pb_field output = pb_find(pb_inside(&node), NODE_OUTPUT);
        if (strcmp(pb_text(text, sizeof text, &output), "p:out") != 0)
            continue;
        for (pb_reader r = pb_inside(&node); pb_next(&r, &node) && used < size;) {
            if (node.number != NODE_ATTRIBUTE)
                continue;
            const pb_field name = pb_find(pb_inside(&node), ATTRIBUTE_NAME);
            used +=
                (size_t)snprintf(out + used, size - used, "%s", pb_text(text, sizeof text, &name));
            pb_field f;
            for (pb_reader values = pb_inside(&node); pb_next(&values, &f) && used < size;)
                if (f.number == ATTRIBUTE_I || f.number == ATTRIBUTE_INTS)
                    used += (size_t)snprintf(out + used, size - used, " %lld", (long long)f.value);
            used += (size_t)snprintf(out + used, size - used, "; ");
        }
    }
}

/* The same windows without padding that counts. A pool's own padding cannot be negative, so it
 * rounds down, with the padding that its windows reach. */
static void a_pool_rounds_down_if_a_window_would_begin_in_its_padding(void **state)
{
    static const char *const kinds[][2] = {{"max_pool", ""}, {"avg_pool", "count_include_pad 0; "}};
    char layers[300], found[400], wanted[400];
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(layers, sizeof layers,
                 "[{\"type\":\"%s\",\"name\":\"p\",\"kernel\":[2,3],\"stride\":[3,5],\"padding\":1,"
                 "\"ceil_mode\":true},{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
                 kinds[i][0]);
        written w = write_model(layers, (ls_shape){1, 5, 5}, 3, plain_pixels);
        assert_int_equal(w.model->layer[0].out.h, 2);
        assert_int_equal(w.model->layer[0].out.w, 2);
        attributes_of(found, sizeof found, w.graph);
        snprintf(wanted, sizeof wanted, "kernel_shape 2 3; strides 3 5; pads 1 1 0 2; %s",
                 kinds[i][1]);
        assert_string_equal(found, wanted);
        drop(&w);
    }
}

/* The value of a key of the file's metadata; "" without. */
static const char *metadata(char *text, size_t size, const written *w, const char *key)
{
    pb_field f;
    for (pb_reader r = w->whole; pb_next(&r, &f);) {
        if (f.number != MODEL_METADATA)
            continue;
        const pb_field name = pb_find(pb_inside(&f), 1), value = pb_find(pb_inside(&f), 2);
        if (strcmp(pb_text(text, size, &name), key) == 0)
            return pb_text(text, size, &value);
    }
    return "";
}

static void the_metadata_say_what_goes_in(void **state)
{
    static const char *const wanted[] = {"x: pixels, uint8, batch x",
                                         "x: values as in the data, float32, batch"};
    (void)state;
    for (int floats = 0; floats < 2; floats++) {
        char text[200];
        ls_gather rows = shifted;
        rows.floats = floats;
        written w = write_model("[{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]",
                                (ls_shape){2, 4, 3}, 10, rows);
        assert_ptr_equal(strstr(metadata(text, sizeof text, &w, "input"), wanted[floats]), text);
        assert_string_equal(metadata(text, sizeof text, &w, "size"), "[2,4,3]");
        assert_string_equal(metadata(text, sizeof text, &w, "mean"), "[0.5,0.25]");
        assert_string_equal(metadata(text, sizeof text, &w, "std"), "[0.5,2]");
        assert_string_equal(metadata(text, sizeof text, &w, "class_names"), "");
        drop(&w);
    }
}

static void the_metadata_say_what_comes_out(void **state)
{
    char text[200];
    (void)state;
    written w = write_model("[{\"type\": \"dense\", \"out\": 3}]", (ls_shape){6, 1, 1}, 3, shifted);
    assert_string_equal(metadata(text, sizeof text, &w, "class_names"), "[\"a\",\"b\",\"c\"]");
    assert_string_equal(metadata(text, sizeof text, &w, "features"), "[7]");
    assert_string_equal(metadata(text, sizeof text, &w, "output"),
                        "logits: one for each class; probabilities: their softmax");
    assert_string_equal(metadata(text, sizeof text, &w, "std"), "[0.5,2,1,1,1,1]");
    assert_string_equal(metadata(text, sizeof text, &w, "output_names"), "");
    drop(&w);
    const ls_vector_loss v = {
        .rule = LS_VECTOR_QUANTILE, .quantiles = 2, .quantile = {0.05, 0.99999999}};
    for (int targets = 1; targets <= 2; targets++) {
        w = write_model_with("[{\"type\": \"dense\"}]", (ls_shape){6, 1, 1}, 2 * targets, shifted,
                             ls_loss_find("quantile", true), &v);
        assert_string_equal(metadata(text, sizeof text, &w, "output_names"),
                            targets == 1 ? "[\"q0.05\",\"q0.99999999\"]"
                                         : "[\"q0.05_0\",\"q0.05_1\",\"q0.99999999_0\","
                                           "\"q0.99999999_1\"]");
        assert_string_equal(
            metadata(text, sizeof text, &w, "output"),
            "logits: the quantiles that output_names lists, in the unit of the targets");
        drop(&w);
    }
}

/* A table of one column of texts and three of numbers, one of which is called like a weight. */
static ls_prep *make_table(const char *text_column)
{
    static const char *const level[] = {"north", "south"};
    static const char *const number[] = {"size", "dense2.weight", ""};
    ls_prep *p;
    ls_error err;
    must(ls_prep_create(&p, LS_PREP_TABLE, NULL, &err), &err);
    for (int i = 0; i < 3; i++)
        must(ls_prep_add(p, number[i], NULL, 0, &err), &err);
    if (text_column)
        must(ls_prep_add(p, text_column, level, 2, &err), &err);
    p->column[0].scaled = true;
    p->column[0].mean = 5000;
    p->column[0].deviation = 20;
    p->column[1].allows_missing = true;
    p->column[1].missing = 7;
    must(ls_prep_finish(p, &err), &err);
    return p;
}

static written write_table(ls_prep *table)
{
    written w = {.model = make_model("[{\"type\":\"dense\",\"name\":\"dense2\",\"out\":3}]",
                                     (ls_shape){table->features + table->scales, 1, 1}, 3)};
    ls_gather floats = plain_pixels;
    ls_error err;
    floats.floats = 1;
    w.weights = calloc(w.model->floats, sizeof *w.weights);
    ls_buffer_init(&w.file, NULL);
    const ls_onnx_desc d = {.model = w.model,
                            .weights = w.weights,
                            .normalisation = floats,
                            .prep = table,
                            .name = "table"};
    must(ls_onnx_write(&w.file, &d, &err), &err);
    w.whole =
        (pb_reader){(const uint8_t *)w.file.text, (const uint8_t *)w.file.text + w.file.length};
    const pb_field graph = pb_find(w.whole, MODEL_GRAPH);
    w.graph = pb_inside(&graph);
    return w;
}

static void tables_of_numbers_go_in_as_they_are_in_the_file(void **state)
{
    char text[600];
    (void)state;
    ls_prep *table = make_table(NULL);
    written w = write_table(table);
    ops_of(text, sizeof text, w.graph);
    assert_string_equal(
        text, "Cast IsNaN IsInf Or Where Sub Div Cast Mul ReduceSum Gemm Add Identity Softmax");
    assert_string_equal(metadata(text, sizeof text, &w, "inputs"),
                        "[{\"name\":\"x\",\"type\":\"float32\",\"shape\":[\"batch\",3],"
                        "\"columns\":[\"size\",\"dense2.weight\",\"\"]}]");
    drop(&w);
    table->column[0].clip = 3;
    w = write_table(table);
    ops_of(text, sizeof text, w.graph);
    assert_string_equal(
        text,
        "Cast IsNaN IsInf Or Where Mul Sub Div Max Min Add Cast Mul ReduceSum Gemm Add Identity Softmax");
    drop(&w);
    ls_prep_free(table);
}

static void values_of_arrays_are_scaled_and_limited(void **state)
{
    static const double mean[] = {5000, 3}, deviation[] = {20, (double)INFINITY};
    char text[600];
    ls_error err;
    (void)state;
    for (int clips = 0; clips < 2; clips++) {
        ls_prep *array;
        must(ls_prep_create(&array, LS_PREP_ARRAY, NULL, &err), &err);
        must(ls_prep_scale_values(array, mean, deviation, 2, &err), &err);
        array->clip = clips ? 3 : 0;
        written w = write_table(array);
        ops_of(text, sizeof text, w.graph);
        assert_string_equal(
            text, clips
                      ? "Cast Mul Sub Div Max Min Add Cast Mul ReduceSum Gemm Add Identity Softmax"
                      : "Cast Sub Div Cast Mul ReduceSum Gemm Add Identity Softmax");
        drop(&w);
        ls_prep_free(array);
    }
}

/* A graph cannot read dates: the numbers that they become are its inputs. */
static void dates_go_in_as_the_numbers_of_their_parts(void **state)
{
    static const ls_date_part part[] = {LS_PART_MONTH, LS_PART_DAYS};
    static const char *const level[] = {"north", "south"};
    char text[900];
    ls_error err;
    (void)state;
    for (int texts = 0; texts < 2; texts++) {
        ls_prep *table;
        must(ls_prep_create(&table, LS_PREP_TABLE, NULL, &err), &err);
        must(ls_prep_add_dates(table, "when", LS_DATE_DMY, 19723, part, 2, &err), &err);
        must(ls_prep_add(table, "when_days", NULL, 0, &err), &err);
        if (texts)
            must(ls_prep_add(table, "place", level, 2, &err), &err);
        table->column[0].part[0].scaled = true;
        table->column[0].part[0].mean = 6;
        must(ls_prep_finish(table, &err), &err);
        written w = write_table(table);
        metadata(text, sizeof text, &w, "inputs");
        assert_string_equal(
            text, texts ? "[{\"name\":\"when_month\",\"type\":\"float32\",\"shape\":[\"batch\",1],"
                          "\"column\":\"when\",\"part\":\"month\"},"
                          "{\"name\":\"column:4\",\"type\":\"float32\",\"shape\":[\"batch\",1],"
                          "\"column\":\"when\",\"part\":\"days\"},"
                          "{\"name\":\"when_days\",\"type\":\"float32\",\"shape\":[\"batch\",1],"
                          "\"column\":\"when_days\"},"
                          "{\"name\":\"place\",\"type\":\"string\",\"shape\":[\"batch\",1],"
                          "\"column\":\"place\"}]"
                        : "[{\"name\":\"x\",\"type\":\"float32\",\"shape\":[\"batch\",3],"
                          "\"columns\":[\"when_month\",\"column:3\",\"when_days\"]}]");
        assert_non_null(
            strstr(metadata(text, sizeof text, &w, "dates"), "COLUMN_weekday, 0 (Monday)"));
        ops_of(text, sizeof text, w.graph);
        assert_non_null(strstr(text, "IsNaN IsInf Or Where Sub Div"));
        drop(&w);
        ls_prep_free(table);
    }
}

static void texts_go_in_as_strings_by_the_names_of_their_columns(void **state)
{
    static const char *const wanted[] = {"size", "column:1", "column:2", "place"};
    char text[900];
    int i = 0;
    (void)state;
    ls_prep *table = make_table("place");
    written w = write_table(table);
    ops_of(text, sizeof text, w.graph);
    assert_string_equal(
        text, "OneHotEncoder Flatten ReduceSum Div Slice Concat Cast IsNaN IsInf Or Where Sub Div "
              "Cast Mul ReduceSum Gemm Add Identity Softmax");
    pb_field f;
    for (pb_reader r = w.graph; pb_next(&r, &f);) {
        if (f.number != INPUT)
            continue;
        const pb_field name = pb_find(pb_inside(&f), 1);
        assert_string_equal(pb_text(text, sizeof text, &name), wanted[i]);
        i++;
    }
    assert_int_equal(i, 4);
    assert_int_equal(pb_count(w.whole, MODEL_OPSET), 2);
    assert_non_null(strstr(metadata(text, sizeof text, &w, "inputs"),
                           "{\"name\":\"column:1\",\"type\":\"float32\",\"shape\":[\"batch\",1],"
                           "\"column\":\"dense2.weight\"}"));
    drop(&w);
    table->unknown = LS_UNKNOWN_ZEROS;
    w = write_table(table);
    ops_of(text, sizeof text, w.graph);
    assert_string_equal(text,
                        "OneHotEncoder Flatten Slice Concat Cast IsNaN IsInf Or Where Sub Div "
                        "Cast Mul ReduceSum Gemm Add Identity Softmax");
    drop(&w);
    ls_prep_free(table);
}

static void lack_of_memory_at_any_point_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    ls_network *model = make_model(lenet_json, (ls_shape){1, 28, 28}, 10);
    float *weights = calloc(model->floats, sizeof *weights);
    int status = LS_ENOMEM;
    long at = 1;
    for (; status != LS_OK && at < 200; at++) {
        counting_host h;
        ls_buffer file;
        ls_error err;
        counting_host_init(&h);
        h.fail_at = at;
        ls_buffer_init(&file, &h.host);
        const ls_onnx_desc d = {
            .model = model, .weights = weights, .normalisation = plain_pixels, .name = "lenet"};
        status = ls_onnx_write(&file, &d, &err);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        ls_buffer_fini(&file);
        assert_int_equal(h.live, 0);
    }
    assert_int_equal(status, LS_OK);
    assert_true(at > 10);
    free(weights);
    free_model(model);
}

LS_TESTS(onnx, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_type_gives_a_graph_whose_names_fit_together),
        cmocka_unit_test(the_versions_are_those_that_the_header_states),
        cmocka_unit_test(lenet_is_fourteen_nodes_and_its_weights_as_they_are),
        cmocka_unit_test(the_batch_dimension_has_a_name_and_no_size),
        cmocka_unit_test(mean_and_std_come_first_and_only_where_they_change_something),
        cmocka_unit_test(a_padded_pool_has_no_window_that_begins_in_its_padding),
        cmocka_unit_test(a_pool_rounds_down_if_a_window_would_begin_in_its_padding),
        cmocka_unit_test(dropout_is_left_out_and_its_reader_reads_what_it_read),
        cmocka_unit_test(the_metadata_say_what_goes_in),
        cmocka_unit_test(the_metadata_say_what_comes_out),
        cmocka_unit_test(tables_of_numbers_go_in_as_they_are_in_the_file),
        cmocka_unit_test(values_of_arrays_are_scaled_and_limited),
        cmocka_unit_test(dates_go_in_as_the_numbers_of_their_parts),
        cmocka_unit_test(texts_go_in_as_strings_by_the_names_of_their_columns),
        cmocka_unit_test(lack_of_memory_at_any_point_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("onnx", tests, NULL, NULL);
}
