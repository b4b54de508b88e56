/* SPDX-License-Identifier: MIT */
/* Writes samples for onnx_check.py: for every sample of every layer type, and for the example
 * networks, an ONNX file, images (bytes) or floats, and their logits as ls_predict computes them.
 *
 *     onnx_samples DIR EXAMPLE.json…        DIR/NAME.onnx, DIR/NAME.x, DIR/NAME.y */
#include "model/predict.h"
#include "nn/nn_fixture.h"
#include "onnx/onnx.h"
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 37, MANY = 1000 };

static ls_registry *registry;

static void stop(const char *what, const ls_error *err)
{
    fprintf(stderr, "onnx_samples: %s: %s\n", what, err->text);
    exit(1);
}

static void write_values(const char *dir, const char *name, const char *end, const void *values,
                         size_t size, size_t count)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", dir, name, end);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(values, size, count, f) != count || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_sample(const char *dir, const char *name, ls_network *model, float *weights,
                         ls_gather normalisation, uint32_t rows, const char *devices)
{
    char path[4096];
    ls_error err;
    ls_prediction sum;
    ls_replica_data data = make_data(rows, model->input, model->classes, 5);
    const size_t pixels =
        rows * (size_t)model->input.c * (size_t)model->input.h * (size_t)model->input.w;
    float *x = malloc(pixels * sizeof *x);
    float *y = malloc(rows * (size_t)model->classes * sizeof *y);
    for (size_t i = 0; i < pixels; i++)
        x[i] = (float)data.images[i] / 16 - 7;
    const ls_onnx_desc onnx = {
        .model = model, .weights = weights, .normalisation = normalisation, .name = name};
    snprintf(path, sizeof path, "%s/%s.onnx", dir, name);
    if (ls_onnx_save(path, &onnx, NULL, &err) != LS_OK)
        stop(name, &err);
    const ls_trained trained = {
        .model = model,
        .weights = weights,
        .config = {.preprocessing = normalisation, .batch_size = 64, .shards = 2, .threads = 1}};
    const ls_predict_desc d = {.trained = &trained,
                               .registry = registry,
                               .devices = devices,
                               .images = normalisation.floats ? (const void *)x : data.images,
                               .rows = rows};
    if (ls_predict(&sum, y, &d, &err) != LS_OK)
        stop(name, &err);
    if (normalisation.floats)
        write_values(dir, name, ".x", x, sizeof *x, pixels);
    else
        write_values(dir, name, ".x", data.images, 1, pixels);
    write_values(dir, name, ".y", y, sizeof *y, rows * (size_t)model->classes);
    free(x);
    free(y);
    free_data(&data);
}

static void write_types(const char *dir)
{
    static const ls_gather shifted = {.mean = {0.5f, 0.25f, 0.75f, 0}, .std = {0.5f, 2, 1, 1}};
    char name[80];
    for (const ls_layer_type *const *type = ls_layer_types(); *type; type++) {
        for (int i = 0; (*type)->samples[i].layers; i++) {
            const struct ls_layer_sample *s = &(*type)->samples[i];
            ls_network *model = make_model(s->layers, s->input, LS_SAMPLE_CLASSES);
            float *weights = calloc(model->floats, sizeof *weights);
            fill_weights(weights, model, 0.5f, (uint64_t)i + 1);
            if (model->params ==
                0) { /* nothing that computes may be left: not a model to predict */
                free(weights);
                free_model(model);
                continue;
            }
            snprintf(name, sizeof name, "%s-%d", (*type)->name, i + 1);
            write_sample(dir, name, model, weights, i % 2 ? shifted : plain_pixels, FEW, "ref:2");
            const ls_gather floats = {.mean = {2, -1, 0, 0}, .std = {3, 2, 1, 1}, .floats = 1};
            snprintf(name, sizeof name, "%s-%d-floats", (*type)->name, i + 1);
            if (i == 0)
                write_sample(dir, name, model, weights, floats, FEW, "ref:2");
            free(weights);
            free_model(model);
        }
    }
}

/* Pools with two windows from top to bottom, where a third one would begin in the padding, and two
 * from left to right, of which the second extends beyond the padding. */
static void write_pools(const char *dir)
{
    static const char *const kinds[][2] = {
        {"pool-counted", "\"avg_pool\",\"count_include_pad\":true"},
        {"pool-mean", "\"avg_pool\",\"count_include_pad\":false"},
        {"pool-max", "\"max_pool\""}};
    for (int i = 0; i < 3; i++) {
        char layers[300];
        snprintf(
            layers, sizeof layers,
            "[{\"type\":%s,\"kernel\":[2,3],\"stride\":[3,5],\"padding\":1,\"ceil_mode\":true},"
            "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
            kinds[i][1]);
        ls_network *model = make_model(layers, (ls_shape){2, 5, 5}, LS_SAMPLE_CLASSES);
        float *weights = calloc(model->floats, sizeof *weights);
        fill_weights(weights, model, 0.5f, 1);
        write_sample(dir, kinds[i][0], model, weights, plain_pixels, FEW, "ref:2");
        free(weights);
        free_model(model);
    }
}

/* The model of a config, with Kaiming's weights and running statistics that are not those of a
 * fresh start. */
static void write_example(const char *dir, const char *path)
{
    ls_json *doc;
    ls_error err;
    ls_network *model;
    if (ls_json_read_file(&doc, path, NULL, &err) != LS_OK)
        stop(path, &err);
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model");
    if (ls_network_parse(&model, doc, node, (ls_shape){1, 28, 28}, 10, NULL, &err) != LS_OK)
        stop(path, &err);
    float *weights = calloc(model->floats, sizeof *weights);
    const ls_init init = {LS_INIT_KAIMING, 0};
    ls_init_weights(weights, model, &init, 9);
    for (int i = 0; i < model->stats; i++)
        fill_uniform(weights + model->stat[i]->offset, model->stat[i]->count, 0.2f, 11);
    for (int i = 1; i < model->stats; i += 2) /* variances */
        for (size_t k = 0; k < model->stat[i]->count; k++)
            weights[model->stat[i]->offset + k] += 1;
    write_sample(dir, model->name, model, weights, plain_pixels, MANY, "auto");
    free(weights);
    ls_network_destroy(model, NULL);
    ls_json_destroy(doc);
}

int main(int argc, char **argv)
{
    ls_error err;
    if (argc < 2)
        return 64;
    if (ls_registry_create(&registry, NULL, &err) != LS_OK ||
        ls_registry_add(registry, ls_ref_backend(), &err) != LS_OK)
        stop("registry", &err);
    write_types(argv[1]);
    write_pools(argv[1]);
    for (int i = 2; i < argc; i++)
        write_example(argv[1], argv[i]);
    ls_registry_destroy(registry);
    return 0;
}
