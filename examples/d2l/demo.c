/* SPDX-License-Identifier: MIT */
/* Devices, random numbers and printing for the programs in this folder (demo.h). */
#include "demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char demo_lenet_config[] =
    "{\n"
    "  \"name\": \"lenet\",\n"
    "  \"data\": {\"name\": \"fashion_mnist\"},\n"
    "  \"model\": {\"name\": \"lenet\", \"layers\": [\n"
    "    {\"type\": \"conv2d\", \"out\": 20, \"kernel\": 3}, {\"type\": \"relu\"},\n"
    "    {\"type\": \"avg_pool\", \"kernel\": 2},\n"
    "    {\"type\": \"conv2d\", \"out\": 50, \"kernel\": 5}, {\"type\": \"relu\"},\n"
    "    {\"type\": \"avg_pool\", \"kernel\": 2},\n"
    "    {\"type\": \"flatten\"},\n"
    "    {\"type\": \"dense\", \"out\": 128}, {\"type\": \"relu\"},\n"
    "    {\"type\": \"dense\", \"out\": 10}\n"
    "  ]},\n"
    "  \"init\": {\"name\": \"normal\", \"std\": 0.01},\n"
    "  \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.2},\n"
    "  \"batch_size\": 256,\n"
    "  \"epochs\": 10,\n"
    "  \"run_dir\": null\n"
    "}\n";

void demo_check(int status, const ls_error *err)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(EXIT_FAILURE);
}

void *demo_alloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* ---- devices -------------------------------------------------------------------------------- */

static int learn_name(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    demo_devices *d = arg;
    ls_device *device = ls_worker_device(w);
    ls_device_info info;
    device->ops->describe(device, &info);
    memcpy(d->name[w->index], info.name, sizeof info.name);
    return LS_OK;
}

void demo_open(demo_devices *d, int argc, char **argv)
{
    ls_error err;
    memset(d, 0, sizeof *d);
    demo_check(ls_registry_create(&d->registry, NULL, &err), &err);
    ls_device_pool_options options = {
        .size = sizeof options,
        .registry = d->registry,
        .devices = argc > 1 ? argv[1] : "cpu:2",
        .max_devices = DEMO_DEVICES,
    };
    demo_check(ls_device_pool_create(&d->pool, &options, &err), &err);
    d->count = ls_pool_size(d->pool);
    if (d->count > DEMO_DEVICES) {
        fprintf(stderr, "%d devices; name at most %d\n", d->count, DEMO_DEVICES);
        exit(EXIT_FAILURE);
    }
    demo_run(d, learn_name, d);
    for (int i = 0; i < d->count; i++) {
        strcat(d->list, i ? ", " : "[");
        strcat(d->list, d->name[i]);
    }
    strcat(d->list, "]");
}

void demo_close(demo_devices *d)
{
    ls_pool_destroy(d->pool, LS_FOREVER, NULL);
    ls_registry_destroy(d->registry);
}

void demo_run(demo_devices *d, ls_job job, void *arg)
{
    ls_error err;
    demo_check(ls_pool_run(d->pool, job, arg, LS_FOREVER, &err), &err);
}

int demo_upload(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err)
{
    int status = device->ops->upload(device, NULL, dst, src, bytes, err);
    return status ? status : device->ops->sync(device, NULL, err);
}

int demo_download(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err)
{
    int status = device->ops->download(device, NULL, dst, src, bytes, err);
    return status ? status : device->ops->sync(device, NULL, err);
}

/* ---- numbers -------------------------------------------------------------------------------- */

float demo_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-24f;
}

/* The Box-Muller method: two uniform random numbers make two normal ones, of which the second is
 * not used. */
void demo_normal(float *out, size_t count, float std, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        float u = 1.0f - demo_uniform(state);
        float v = demo_uniform(state);
        out[i] = std * sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
    }
}

/* Prints a row. If all numbers of the array are whole (`whole`), they are printed as "3.", padded
 * to `width` digits; else with 8 decimals and an exponent. */
static void print_row(const float *x, int columns, int width, int whole)
{
    putchar('[');
    for (int i = 0; i < columns; i++) {
        printf("%s", i ? " " : "");
        if (whole)
            printf("%*.0f.", width, (double)x[i]);
        else
            printf("%15.8e", (double)x[i]);
    }
    putchar(']');
}

void demo_print(const float *x, int rows, int columns, int indent, const char *device)
{
    int width = 1, whole = 1, lines = rows > 0 ? rows : 1;
    for (int i = 0; i < lines * columns; i++) {
        int digits = snprintf(NULL, 0, "%.0f", (double)x[i]);
        width = digits > width ? digits : width;
        whole = whole && x[i] == floorf(x[i]);
    }
    printf("%s", rows > 0 ? "[" : "");
    for (int r = 0; r < lines; r++) {
        if (r > 0)
            printf("\n%*s", indent + 1, "");
        print_row(x + r * columns, columns, width, whole);
    }
    printf("%s%s%s\n", rows > 0 ? "]" : "", device ? " @" : "", device ? device : "");
}
