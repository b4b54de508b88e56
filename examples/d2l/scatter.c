/* SPDX-License-Identifier: MIT */
/* scatter: the rows of a matrix are divided among the devices. */
#include "demo.h"

#include <lockstep/split.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, COLUMNS = 5 };

typedef struct demo {
    float input[ROWS][COLUMNS];
    /* first row and number of rows of each device */
    uint32_t first[DEMO_DEVICES], count[DEMO_DEVICES];
    float output[DEMO_DEVICES][ROWS][COLUMNS]; /* the rows of each device, copied back from it */
} demo;

static int load(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    ls_device *device = ls_worker_device(w);
    uint32_t *first = &d->first[w->index], *count = &d->count[w->index];
    void *data = NULL;
    ls_split(ROWS, (uint32_t)w->workers, (uint32_t)w->index, first, count);
    size_t bytes = *count * sizeof d->input[0];
    if (bytes == 0)
        return LS_OK; /* there are more devices than rows */
    int status = device->ops->alloc(&data, device, bytes, err);
    if (status == LS_OK)
        status = demo_upload(device, data, d->input[*first], bytes, err);
    if (status == LS_OK)
        status = demo_download(device, d->output[w->index], data, bytes, err);
    device->ops->free(device, data);
    return status;
}

int main(int argc, char **argv)
{
    demo_devices devices;
    demo d = {.input = {{0}}};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        d.input[i / COLUMNS][i % COLUMNS] = (float)i;
    demo_open(&devices, argc, argv);

    printf("input : ");
    demo_print(d.input[0], ROWS, COLUMNS, 8, NULL);
    printf("load into %s\n", devices.list);
    demo_run(&devices, load, &d);
    for (int i = 0; i < devices.count; i++) {
        printf("%s", i ? "        " : "output: ");
        if (d.count[i] > 0)
            demo_print(d.output[i][0], (int)d.count[i], COLUMNS, 8, devices.name[i]);
        else
            printf("[] @%s\n", devices.name[i]);
    }
    demo_close(&devices);
    return EXIT_SUCCESS;
}
