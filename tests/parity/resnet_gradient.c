/* SPDX-License-Identifier: MIT */
/* Computes the gradient of rows 0 … 31 at given weights; resnet_parity.py compares it with
 * PyTorch's.
 *
 *     resnet_gradient DEVICE CONFIG DATA WEIGHTS OUT
 *
 * DEVICE is ref64 or a name of parity_devices.c; DATA is the folder of the Fashion-MNIST files;
 * WEIGHTS and OUT are safetensors files. OUT contains the gradient of the mean loss, under the
 * parameters' names, and the running statistics after the step, under theirs. Prints the mean loss
 * and the number of floats in all tensors. */
#include "base/error.h"
#include "data/dataset.h"
#include "nn/replica.h"
#include "nn/safetensors.h"
#include "parity/parity_devices.h"
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32 }; /* a power of two: dividing by it rounds nothing */

typedef struct job {
    ls_json *config;
    ls_network *model;
    ls_optimizer sgd;
    ls_dataset *train, *test;
    ls_device *device;
    ls_replica *replica;
    float *gradient, *weights; /* canonical */
    double loss;
} job;

static int open_device(ls_device **out, const char *name, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    if (strcmp(name, "ref64") == 0)
        return ls_ref64_backend()->open(out, &request, err);
    for (int i = 0; i < parity_device_count; i++)
        if (strcmp(name, parity_devices[i].name) == 0)
            return parity_devices[i].open(out, err);
    return ls_fail(err, LS_EINVAL, "no device is called '%s'", name);
}

static int read_inputs(job *j, const char *config, const char *data, ls_error *err)
{
    ls_dataset_spec spec = {.name = "fashion_mnist", .path = data};
    int rc = ls_json_read_file(&j->config, config, NULL, err);
    if (rc)
        return rc;
    const cJSON *root = ls_json_root(j->config);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const cJSON *sgd = cJSON_GetObjectItemCaseSensitive(root, "optimizer");
    rc = ls_network_parse(&j->model, j->config, model, (ls_shape){1, 28, 28}, 10, NULL, err);
    if (!rc)
        rc = ls_optimizer_parse(&j->sgd, j->config, sgd, err);
    return rc ? rc : ls_dataset_open(&j->train, &j->test, &spec, NULL, err);
}

static int make_replica(job *j, ls_error *err)
{
    static const uint32_t sizes[] = {ROWS};
    ls_dataset_view view = ls_dataset_resident(j->train);
    ls_replica_desc desc = {
        .device = j->device,
        .model = j->model,
        .optimizer = &j->sgd,
        .normalisation = {.std = {1, 1, 1, 1}},
        .data[LS_TRAIN] = {.images = view.images,
                           .labels = view.labels,
                           .rows = ls_dataset_describe(j->train)->rows},
        .shard_rows = sizes,
        .shard_row_counts = 1,
    };
    j->gradient = calloc(j->model->floats, sizeof(float));
    j->weights = calloc(j->model->floats, sizeof(float));
    if (!j->gradient || !j->weights)
        return ls_fail(err, LS_ENOMEM, "no memory for the weights");
    return ls_replica_create(&j->replica, &desc, err);
}

/* One step at rate 0 moves the running statistics alone. */
static int step(job *j, ls_error *err)
{
    uint32_t rows[ROWS];
    float tail[LS_TAIL];
    ls_replica_times times = {0};
    ls_device *d = j->device;
    size_t bytes = ls_replica_floats(j->replica) * sizeof(float);
    float *leaf = ls_replica_gradient_arena(j->replica);
    float *total = ls_replica_total_arena(j->replica);
    const ls_replica_step update = {0, 1.0f / ROWS, ROWS, 1};
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = i;
    int rc = ls_replica_gradient(j->replica, rows, ROWS, 0, &times, err);
    if (!rc)
        rc = d->ops->copy(d, NULL, total, leaf, bytes, err);
    if (!rc)
        rc = d->ops->download(d, NULL, tail, total + ls_replica_tail_offset(j->replica),
                              sizeof tail, err);
    if (!rc)
        rc = ls_replica_export(j->replica, j->gradient, total, err);
    if (!rc)
        rc = ls_replica_apply(j->replica, &update, &times, err);
    if (!rc)
        rc = ls_replica_export(j->replica, j->weights, ls_replica_weight_arena(j->replica), err);
    j->loss = (double)tail[LS_TAIL_LOSS] / ROWS;
    return rc;
}

static int compute(job *j, const char *weights, const char *out, ls_error *err)
{
    int rc = ls_safetensors_load(j->weights, weights, j->model, "", NULL, err);
    if (!rc)
        rc = ls_replica_import(j->replica, ls_replica_weight_arena(j->replica), j->weights, err);
    if (!rc)
        rc = step(j, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < j->model->floats; i++)
        j->gradient[i] /= ROWS;
    for (int i = 0; i < j->model->stats; i++) {
        const ls_param *s = j->model->stat[i];
        memcpy(j->gradient + s->offset, j->weights + s->offset, s->count * sizeof(float));
    }
    return ls_safetensors_save(out, j->model, j->gradient, LS_STEPS_UNKNOWN, NULL, err);
}

static void clean_up(job *j)
{
    ls_replica_destroy(j->replica);
    if (j->device)
        j->device->ops->close(j->device);
    ls_dataset_close(j->train);
    ls_dataset_close(j->test);
    ls_network_destroy(j->model, NULL);
    ls_json_destroy(j->config);
    free(j->gradient);
    free(j->weights);
}

int main(int argc, char **argv)
{
    job j = {0};
    ls_error err = {0};
    if (argc != 6) {
        fprintf(stderr, "usage: resnet_gradient DEVICE CONFIG DATA WEIGHTS OUT\n");
        return 64;
    }
    int rc = read_inputs(&j, argv[2], argv[3], &err);
    if (!rc)
        rc = open_device(&j.device, argv[1], &err);
    if (!rc)
        rc = j.device->ops->bind(j.device, &err);
    if (!rc)
        rc = make_replica(&j, &err);
    if (!rc)
        rc = compute(&j, argv[4], argv[5], &err);
    if (rc)
        fprintf(stderr, "resnet_gradient: %s\n", err.text);
    else
        printf("%.9g %zu\n", j.loss, j.model->parameters);
    clean_up(&j);
    return rc ? 1 : 0;
}
