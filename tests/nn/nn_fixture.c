/* SPDX-License-Identifier: MIT */
#include "nn/nn_fixture.h"

#include "base/rng.h"
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    counting_host *h = user;
    if (++h->allocations == h->fail_at)
        return NULL;
    h->live++;
    return aligned_alloc(align, bytes);
}

static void counting_free(void *user, void *memory)
{
    counting_host *h = user;
    h->live--;
    free(memory);
}

void counting_host_init(counting_host *h)
{
    *h = (counting_host){0};
    h->host = (ls_host){sizeof h->host, counting_alloc, counting_free, NULL, h};
}

const char lenet_json[] =
    "{\"name\": \"lenet\", \"layers\": ["
    "{\"type\": \"conv2d\", \"name\": \"conv1\", \"out\": 20, \"kernel\": 3},"
    "{\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2},"
    "{\"type\": \"conv2d\", \"name\": \"conv2\", \"out\": 50, \"kernel\": 5},"
    "{\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2}, {\"type\": \"flatten\"},"
    "{\"type\": \"dense\", \"name\": \"fc1\", \"out\": 128}, {\"type\": \"relu\"},"
    "{\"type\": \"dense\", \"name\": \"fc2\", \"out\": 10}]}";

void must(int rc, const ls_error *err)
{
    if (rc != LS_OK)
        fail_msg("%s: %s", ls_status_name(rc), err->text);
}

ls_network *make_model(const char *json, ls_shape input, int classes)
{
    char text[4096];
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    snprintf(text, sizeof text, json[0] == '[' ? "{\"layers\": %s}" : "%s", json);
    must(ls_json_parse(&doc, "model.json", text, strlen(text), NULL, &err), &err);
    must(ls_network_parse(&model, doc, ls_json_root(doc), input, classes, NULL, &err), &err);
    ls_json_destroy(doc); /* a model does not refer to its JSON text */
    return model;
}

ls_network *model_of_config(const char *path, ls_shape input, int classes)
{
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    must(ls_json_read_file(&doc, path, NULL, &err), &err);
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model");
    must(ls_network_parse(&model, doc, node, input, classes, NULL, &err), &err);
    ls_json_destroy(doc);
    return model;
}

ls_optimizer make_optimizer(const char *json)
{
    ls_json *doc = NULL;
    ls_optimizer optimizer;
    ls_error err = {0};
    must(ls_json_parse(&doc, "o.json", json, strlen(json), NULL, &err), &err);
    must(ls_optimizer_parse(&optimizer, doc, ls_json_root(doc), &err), &err);
    ls_json_destroy(doc);
    return optimizer;
}

void free_model(ls_network *model)
{
    ls_network_destroy(model, NULL);
}

void fill_uniform(float *out, size_t floats, float scale, uint64_t seed)
{
    for (size_t i = 0; i < floats; i++)
        out[i] = (2 * ls_rng_uniform(seed, 7, 0, i) - 1) * scale;
}

void fill_weights(float *out, const ls_network *model, float scale, uint64_t seed)
{
    fill_uniform(out, model->floats, scale, seed);
    for (int i = 0; i < model->stats; i++) {
        const ls_param *p = model->stat[i];
        for (size_t k = 0; p->start == LS_START_ONES && k < p->count; k++)
            out[p->offset + k] = 0.5f + ls_rng_uniform(seed, 10, 0, p->offset + k);
    }
}

ls_replica_data make_data(uint32_t rows, ls_shape shape, int classes, uint64_t seed)
{
    size_t pixels = (size_t)rows * (size_t)shape.c * (size_t)shape.h * (size_t)shape.w;
    uint8_t *images = malloc(pixels);
    int32_t *labels = malloc(rows * sizeof *labels);
    assert_non_null(images);
    assert_non_null(labels);
    for (size_t i = 0; i < pixels; i++)
        images[i] = (uint8_t)(256 * ls_rng_uniform(seed, 8, 0, i));
    for (uint32_t i = 0; i < rows; i++)
        labels[i] = (int32_t)((float)classes * ls_rng_uniform(seed, 9, 0, i));
    return (ls_replica_data){.images = images, .labels = labels, .rows = rows};
}

void free_data(ls_replica_data *data)
{
    free((void *)(uintptr_t)data->images);
    free((void *)(uintptr_t)data->labels);
}

const ls_gather plain_pixels = {.std = {1, 1, 1, 1}};

ls_device *open_ref64(const ls_host *host)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1, .host = host};
    ls_error err = {0};
    must(ls_ref64_backend()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    return device;
}
