/* SPDX-License-Identifier: MIT */
/* allreduce: device i holds (i + 1)·[[1, 1]]; afterwards every device holds the sum. */
#include "demo.h"

#include <lockstep/collective.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 2 };

typedef struct demo {
    ls_collective *group;
    float before[DEMO_DEVICES][N], after[DEMO_DEVICES][N];
} demo;

static int allreduce(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    ls_device *device = ls_worker_device(w);
    void *data = NULL;
    int status = device->ops->alloc(&data, device, sizeof d->before[0], err);
    if (status == LS_OK)
        status = demo_upload(device, data, d->before[w->index], sizeof d->before[0], err);
    if (status)
        ls_collective_abort(d->group); /* releases the other workers, which wait for this one */
    else
        status = ls_all_reduce(d->group, w->index, device, data, data, err);
    if (status == LS_OK)
        status = demo_download(device, d->after[w->index], data, sizeof d->after[0], err);
    device->ops->free(device, data);
    return status;
}

int main(int argc, char **argv)
{
    demo_devices devices;
    ls_error err;
    demo d = {.group = NULL};
    demo_open(&devices, argc, argv);
    for (int i = 0; i < devices.count; i++)
        for (int k = 0; k < N; k++)
            d.before[i][k] = (float)(i + 1);
    ls_collective_options options = {.size = sizeof options, .ranks = devices.count, .floats = N};
    demo_check(ls_collective_create(&d.group, &options, &err), &err);

    puts("before allreduce:");
    for (int i = 0; i < devices.count; i++)
        demo_print(d.before[i], 1, N, 0, devices.name[i]);
    demo_run(&devices, allreduce, &d);
    puts("after allreduce:");
    for (int i = 0; i < devices.count; i++)
        demo_print(d.after[i], 1, N, 0, devices.name[i]);

    demo_close(&devices);
    ls_collective_destroy(d.group);
    return EXIT_SUCCESS;
}
