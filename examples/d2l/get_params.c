/* SPDX-License-Identifier: MIT */
/* get_params of the book: copies LeNet's parameters to a device and allocates a gradient for
 * each. */
#include "demo.h"

#include <stdio.h>
#include <stdlib.h>

enum { PARAMS = 8, B1 = 1 };

/* Number of floats in W1, b1, W2, b2, W3, b3, W4, b4. */
static const size_t count[PARAMS] = {20 * 1 * 3 * 3, 20,  50 * 20 * 5 * 5, 50,
                                     128 * 800,      128, 10 * 128,        10};

typedef struct demo {
    float *params[PARAMS];     /* in host memory */
    float b1[20], b1_grad[20]; /* copies of the device's b1 and of its gradient */
} demo;

typedef struct device_params {
    void *value[PARAMS], *grad[PARAMS];
} device_params;

static int get_params(device_params *out, float *const *params, ls_device *device, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < PARAMS && status == LS_OK; i++) {
        size_t bytes = count[i] * sizeof(float);
        status = device->ops->alloc(&out->value[i], device, bytes, err);
        if (status == LS_OK)
            status = demo_upload(device, out->value[i], params[i], bytes, err);
        if (status == LS_OK)
            status = device->ops->alloc(&out->grad[i], device, bytes, err); /* zeroed */
    }
    return status;
}

static int job(const ls_worker *w, void *arg, ls_error *err)
{
    demo *d = arg;
    ls_device *device = ls_worker_device(w);
    device_params p = {{NULL}, {NULL}};
    if (w->index != 0)
        return LS_OK;
    int status = get_params(&p, d->params, device, err);
    if (status == LS_OK)
        status = demo_download(device, d->b1, p.value[B1], sizeof d->b1, err);
    if (status == LS_OK)
        status = demo_download(device, d->b1_grad, p.grad[B1], sizeof d->b1_grad, err);
    for (int i = 0; i < PARAMS; i++) {
        device->ops->free(device, p.grad[i]);
        device->ops->free(device, p.value[i]);
    }
    return status;
}

int main(int argc, char **argv)
{
    demo_devices devices;
    uint64_t seed = 0;
    demo d;
    for (int i = 0; i < PARAMS; i++) {
        d.params[i] = demo_alloc(count[i], sizeof(float));
        if (i % 2 == 0) /* weights N(0, 0.01²), biases 0 */
            demo_normal(d.params[i], count[i], 0.01f, &seed);
    }
    for (int i = 0; i < 20; i++) /* not zero, so that the printed zeros are those of the device */
        d.b1[i] = d.b1_grad[i] = 7.0f;
    demo_open(&devices, argc, argv);
    demo_run(&devices, job, &d);
    printf("b1 weight: ");
    demo_print(d.b1, 0, 20, 0, devices.name[0]);
    printf("b1 grad: ");
    demo_print(d.b1_grad, 0, 20, 0, devices.name[0]);
    demo_close(&devices);
    for (int i = 0; i < PARAMS; i++)
        free(d.params[i]);
    return EXIT_SUCCESS;
}
