/* SPDX-License-Identifier: MIT */
/* The first steps of the book's concise chapter: creates ResNet-18 on all devices, computes the
 * outputs for four images with the initial parameters, and shows which devices have parameters. */
#include "demo.h"
#include "net.h"

#include <lockstep/split.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, PIXELS = 28 * 28, CLASSES = 10 };

typedef struct demo {
    float x[ROWS][PIXELS];
    float *params;             /* initial parameters, in host memory */
    float *copy[DEMO_DEVICES]; /* parameters of each device, copied to host memory */
    net net[DEMO_DEVICES];
    uint32_t first[DEMO_DEVICES], rows[DEMO_DEVICES];
    float y[DEMO_DEVICES][ROWS][CLASSES];
} demo;

static int residual(net *n, int x, int channels, int stride)
{
    int y = net_relu(n, net_batchnorm(n, net_conv2d(n, x, channels, 3, stride, 1)));
    y = net_batchnorm(n, net_conv2d(n, y, channels, 3, 1, 1));
    return net_relu(n, net_add(n, y, stride == 1 ? x : net_conv2d(n, x, channels, 1, stride, 0)));
}

static int resnet18(net *n)
{
    int x = net_relu(n, net_batchnorm(n, net_conv2d(n, NET_INPUT, 64, 3, 1, 1)));
    for (int stage = 0; stage < 4; stage++) {
        x = residual(n, x, 64 << stage, stage == 0 ? 1 : 2);
        x = residual(n, x, 64 << stage, 1);
    }
    return net_export(n, net_dense(n, net_global_avg_pool(n, x), CLASSES));
}

static int prepare(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    net *n = &d->net[w->index];
    ls_split(ROWS, (uint32_t)w->workers, (uint32_t)w->index, &d->first[w->index],
             &d->rows[w->index]);
    net_init(n, ls_worker_device(w), (int)d->rows[w->index], 1, 28, 28);
    resnet18(n);
    return net_build(n, err);
}

/* Does what net.initialize(…, ctx=devices), split_and_load and net(X) do in the book. */
static int forward(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    net *n = &d->net[w->index];
    size_t bytes = d->rows[w->index] * sizeof d->y[0][0];
    int status = net_import(n, d->params, err);
    if (status == LS_OK)
        status = net_load(n, d->x[d->first[w->index]], NULL, err);
    if (status == LS_OK)
        status = net_forward(n, LS_RUN_EVALUATE, err);
    return status ? status
                  : demo_download(n->device, d->y[w->index], n->node[n->nodes - 1].y, bytes, err);
}

/* Does what weight.data(device) does in the book: copies the parameters of a device to the host. */
static int read_params(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    int status = net_export_params(&d->net[w->index], d->copy[w->index], err);
    net_free(&d->net[w->index]);
    return status;
}

static const float *weight_data(const demo *d, const demo_devices *devices, const char *name)
{
    for (int i = 0; i < devices->count; i++)
        if (strcmp(devices->name[i], name) == 0)
            return d->copy[i];
    printf("not initialized on %s; it is on %s\n", name, devices->list);
    return NULL;
}

static float largest_output(const demo *d, int devices)
{
    float largest = 0;
    for (int i = 0; i < devices; i++)
        for (uint32_t k = 0; k < d->rows[i] * CLASSES; k++)
            largest = fmaxf(largest, fabsf(d->y[i][k / CLASSES][k % CLASSES]));
    return largest;
}

int main(int argc, char **argv)
{
    demo_devices devices;
    uint64_t seed = 1;
    int equal = 1;
    demo *d = demo_alloc(1, sizeof *d);
    demo_open(&devices, argc, argv);
    if (devices.count > ROWS)
        return puts("name at most four devices: there are four images"), EXIT_FAILURE;
    for (int i = 0; i < ROWS * PIXELS; i++)
        d->x[i / PIXELS][i % PIXELS] = demo_uniform(&seed);
    demo_run(&devices, prepare, d);
    size_t params = net_params(&d->net[0]);
    d->params = demo_alloc(params, sizeof(float));
    net_initial(&d->net[0], d->params, 0.01f, 0);
    demo_run(&devices, forward, d);
    for (int i = 0; i < devices.count; i++) {
        demo_print(d->y[i][0], (int)d->rows[i], CLASSES, 0, devices.name[i]);
        d->copy[i] = demo_alloc(params, sizeof(float));
    }
    printf("largest output: %.1e\n", (double)largest_output(d, devices.count));
    free(d->params); /* now only the devices have the parameters */
    demo_run(&devices, read_params, d);

    printf("%zu parameters\nweight: ", params);
    weight_data(d, &devices, "host");
    for (int i = 0; i < devices.count; i++) {
        printf("weight: ");
        demo_print(weight_data(d, &devices, devices.name[i]), 3, 3, 8, devices.name[i]);
        equal = equal && memcmp(d->copy[i], d->copy[0], params * sizeof(float)) == 0;
    }
    printf("all devices hold equal weights: %s\n", equal ? "yes" : "no");
    for (int i = 0; i < devices.count; i++)
        free(d->copy[i]);
    demo_close(&devices);
    free(d);
    return EXIT_SUCCESS;
}
