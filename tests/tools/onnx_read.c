/* SPDX-License-Identifier: MIT */
/* Reads an ONNX file as a model and predicts with it, for onnx_import.py.
 *
 *     onnx_read FILE.onnx[@C,H,W] [INPUT ROWS OUTPUT [AGAIN.onnx]]
 *
 * C, H, W: the shape of a row if the file leaves it open.
 * INPUT has ROWS rows of float32, OUTPUT becomes their logits. AGAIN.onnx becomes the model as an
 * ONNX file. Prints the number of layers and weights. Exit status 2: the file was refused; the
 * message is the last line. */
#include "model/predict.h"
#include "onnx/import.h"
#include "onnx/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refused(const ls_error *err)
{
    printf("%s\n", err->text);
    return 2;
}

/* Parses the model of `net`, for rows and classes as the file has them. */
static int parse(ls_network **out, ls_json **doc, const ls_onnx_net *net, ls_error *err)
{
    int status = ls_onnx_net_parse(doc, net, err);
    if (status)
        return status;
    const cJSON *side = cJSON_GetObjectItemCaseSensitive(ls_json_root(*doc), "input")->child;
    const ls_shape input = {side->valueint, side->next->valueint, side->next->next->valueint};
    return ls_network_parse(out, *doc, ls_json_root(*doc), input, ls_onnx_net_about(net)->outputs,
                            NULL, err);
}

static int predict(ls_network *model, float *weights, char **arg, ls_error *err)
{
    const uint32_t rows = (uint32_t)atoi(arg[1]);
    const size_t values = rows * (size_t)model->input.c * (size_t)model->input.h *
                          (size_t)model->input.w,
                 outputs = rows * (size_t)model->classes;
    float *x = malloc(values * sizeof *x), *y = malloc(outputs * sizeof *y);
    FILE *in = fopen(arg[0], "rb"), *out = fopen(arg[2], "wb");
    ls_registry *registry;
    ls_prediction sum;
    if (!x || !y || !in || !out || fread(x, sizeof *x, values, in) != values) {
        perror(arg[0]);
        exit(1);
    }
    fclose(in);
    const ls_trained trained = {.model = model,
                                .weights = weights,
                                .config = {.preprocessing = {.std = {1, 1, 1, 1}, .floats = 1},
                                           .batch_size = 64,
                                           .shards = 1,
                                           .threads = 1}};
    int status = ls_registry_create(&registry, NULL, err);
    const ls_predict_desc d = {
        .trained = &trained, .registry = registry, .devices = "cpu:1", .images = x, .rows = rows};
    if (status == LS_OK)
        status = ls_predict(&sum, y, &d, err);
    if (status == LS_OK && fwrite(y, sizeof *y, outputs, out) != outputs)
        perror(arg[2]);
    fclose(out);
    ls_registry_destroy(registry);
    free(x);
    free(y);
    return status;
}

int main(int argc, char **argv)
{
    ls_error err;
    ls_onnx_net *net = NULL;
    ls_network *model = NULL;
    ls_json *doc = NULL;
    if (argc < 2)
        return 64;
    ls_onnx_source source = {.path = argv[1]};
    ls_shape *const in = &source.input;
    char *at = strrchr(argv[1], '@');
    if (at && sscanf(at, "@%d,%d,%d", &in->c, &in->h, &in->w) == 3)
        *at = '\0';
    int status = ls_onnx_import(&net, &source, NULL, &err);
    if (status == LS_OK)
        status = parse(&model, &doc, net, &err);
    if (status)
        return refused(&err);
    float *weights = calloc(model->floats, sizeof *weights);
    status = ls_onnx_net_load(weights, net, model, &err);
    printf("%d layers, %zu weights, rows of %d×%d×%d, %d outputs\n", model->layers, model->floats,
           model->input.c, model->input.h, model->input.w, model->classes);
    if (status == LS_OK && argc >= 5)
        status = predict(model, weights, argv + 2, &err);
    const ls_onnx_desc onnx = {.model = model,
                               .weights = weights,
                               .normalisation = {.std = {1, 1, 1, 1}, .floats = 1},
                               .name = model->name};
    if (status == LS_OK && argc == 6)
        status = ls_onnx_save(argv[5], &onnx, NULL, &err);
    ls_network_destroy(model, NULL);
    ls_json_destroy(doc);
    ls_onnx_net_destroy(net);
    free(weights);
    return status ? refused(&err) : 0;
}
