/* SPDX-License-Identifier: MIT */
/* Common parts of the programs in this folder, which follow chapters of the book d2l.ai: a pool of
 * devices, random numbers, and printing in the way of NumPy. A program ends at the first error. */
#ifndef DEMO_H
#define DEMO_H

#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_DEVICES 16 /* largest number of devices */

/* Config with the variant of LeNet that the book uses; d2l_train and d2l_evaluate begin with it. */
extern const char demo_lenet_config[];

typedef struct demo_devices {
    ls_registry *registry;
    ls_pool *pool;
    int count;
    char name[DEMO_DEVICES][16];  /* "cpu(0)" */
    char list[DEMO_DEVICES * 18]; /* "[cpu(0), cpu(1)]" */
} demo_devices;

/* Opens the devices that the program's first argument names; "cpu:2" if there is no argument. */
void demo_open(demo_devices *d, int argc, char **argv);
void demo_close(demo_devices *devices);

/* Runs `job` once on the worker (the thread) of each device, and waits until all have finished. */
void demo_run(demo_devices *devices, ls_job job, void *arg);

/* If `status` is not LS_OK, prints the error and ends the program. */
void demo_check(int status, const ls_error *err);

/* Returns zeroed memory of count × size bytes. If there is no memory, ends the program. */
void *demo_alloc(size_t count, size_t size);

/* Draws from N(0, std²), and from 0 … 1. *state is the place in the sequence; start anywhere. */
void demo_normal(float *out, size_t count, float std, uint64_t *state);
float demo_uniform(uint64_t *state);

/* Copies between the host and a device, and waits for it. On the device's thread. */
int demo_upload(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err);
int demo_download(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err);

/* Prints a vector (rows 0) as "[1. 2.]", or a matrix as "[[1. 2.]\n [3. 4.]]", whose second and
 * later lines are indented by `indent` more columns. Then prints " @DEVICE", unless `device` is
 * NULL, and a newline. */
void demo_print(const float *x, int rows, int columns, int indent, const char *device);

#endif
