/* SPDX-License-Identifier: MIT */
/* train_batch of the book, without the trainer: one step of LeNet on all devices. Each device
 * computes the gradient of its rows of a minibatch, the gradients are added, and each device
 * updates its parameters with the sum. */
#include "demo.h"
#include "net.h"

#include <lockstep/collective.h>
#include <lockstep/split.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, PIXELS = 28 * 28, PARAMS = 129068, B4 = PARAMS - 10 };

typedef struct demo {
    float *X, *params;
    int32_t y[BATCH];
    net net[DEMO_DEVICES];
    ls_collective *group;
    uint32_t first[DEMO_DEVICES], rows[DEMO_DEVICES];
    float stats[DEMO_DEVICES][2]; /* sum of the losses, number of correct predictions */
    /* parameters of each device after the step, copied to host memory */
    float *after[DEMO_DEVICES];
} demo;

static void lenet(net *n)
{
    int x = net_relu(n, net_conv2d(n, NET_INPUT, 20, 3, 1, 0));
    x = net_relu(n, net_conv2d(n, net_avg_pool(n, x, 2), 50, 5, 1, 0));
    x = net_relu(n, net_dense(n, net_avg_pool(n, x, 2), 128));
    net_loss(n, net_dense(n, x, 10));
}

/* Finds the rows of this device, and builds its network. */
static int prepare(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    net *n = &d->net[w->index];
    uint32_t *first = &d->first[w->index], *rows = &d->rows[w->index];
    ls_split(BATCH, (uint32_t)w->workers, (uint32_t)w->index, first, rows);
    net_init(n, ls_worker_device(w), (int)*rows, 1, 28, 28);
    lenet(n);
    return net_build(n, err);
}

/* Does what get_params and split_batch do in the book: copies the parameters and this device's rows
 * to the device. */
static int load(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    net *n = &d->net[w->index];
    uint32_t first = d->first[w->index];
    int status = net_import(n, d->params, err);
    return status ? status : net_load(n, d->X + (size_t)first * PIXELS, d->y + first, err);
}

static int train_batch(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    net *n = &d->net[w->index];
    int status = net_forward(n, 0, err);
    if (status == LS_OK)
        status = net_backward(n, err);
    if (status)
        ls_collective_abort(d->group);
    else
        status = ls_all_reduce(d->group, w->index, n->device, n->grads, n->grads, err);
    if (status == LS_OK)
        status = net_step(n, 0.2f, 1.0f / BATCH, err); /* lr / rows of the whole minibatch */
    if (status == LS_OK)
        status = demo_download(n->device, d->stats[w->index], n->stats, sizeof d->stats[0], err);
    return status ? status : net_export_params(n, d->after[w->index], err);
}

static int finish(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    net_free(&((demo *)arg)->net[w->index]);
    return LS_OK;
}

static void make_minibatch(demo *d, uint64_t seed)
{
    for (int i = 0; i < BATCH * PIXELS; i++)
        d->X[i] = demo_uniform(&seed);
    for (int i = 0; i < BATCH; i++)
        d->y[i] = i % 5; /* labels 0 to 4; the other five classes do not occur */
}

static void report(const demo *d, const demo_devices *devices)
{
    float loss = 0;
    int equal = 1;
    for (int i = 0; i < devices->count; i++) {
        printf("%s: rows %u to %u, loss sum %.1f\n", devices->name[i], (unsigned)d->first[i],
               (unsigned)(d->first[i] + d->rows[i] - 1), (double)d->stats[i][0]);
        loss += d->stats[i][0];
        equal = equal && memcmp(d->after[i], d->after[0], PARAMS * sizeof(float)) == 0;
    }
    printf("minibatch: %d rows, loss sum %.1f, mean %.3f\n", BATCH, (double)loss,
           (double)(loss / BATCH));
    printf("b4 after the step:");
    for (int i = 0; i < 10; i++)
        printf(" %.3f", (double)d->after[0][B4 + i]);
    printf("\nall devices hold equal weights: %s\n", equal ? "yes" : "no");
}

int main(int argc, char **argv)
{
    demo_devices devices;
    ls_error err;
    demo *d = demo_alloc(1, sizeof *d);
    d->X = demo_alloc(BATCH * PIXELS, sizeof(float));
    d->params = demo_alloc(PARAMS, sizeof(float));
    make_minibatch(d, 1);
    demo_open(&devices, argc, argv);
    for (int i = 0; i < devices.count; i++)
        d->after[i] = demo_alloc(PARAMS, sizeof(float));
    demo_run(&devices, prepare, d);
    net_initial(&d->net[0], d->params, 0.01f, 0);
    demo_run(&devices, load, d);
    ls_collective_options options = {
        .size = sizeof options, .ranks = devices.count, .floats = d->net[0].floats};
    demo_check(ls_collective_create(&d->group, &options, &err), &err);
    demo_run(&devices, train_batch, d);
    report(d, &devices);
    demo_run(&devices, finish, d);
    for (int i = 0; i < devices.count; i++)
        free(d->after[i]);
    demo_close(&devices);
    ls_collective_destroy(d->group);
    free(d->params);
    free(d->X);
    free(d);
    return EXIT_SUCCESS;
}
