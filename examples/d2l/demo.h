/* Common parts of the programs in this folder: a pool of devices, made-up numbers, and NumPy's way
 * of printing. A demo ends at the first error. */
#ifndef DEMO_H
#define DEMO_H

#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_DEVICES 16 /* at most */

/* LeNet as the book varies it, as a config: the trainer's programs start from it. */
extern const char demo_lenet_config[];

typedef struct demo_devices {
    ls_registry *registry;
    ls_pool *pool;
    int count;
    char name[DEMO_DEVICES][16];  /* "cpu(0)" */
    char list[DEMO_DEVICES * 18]; /* "[cpu(0), cpu(1)]" */
} demo_devices;

/* Opens the devices of the program's first argument, "cpu:2" without one. */
void demo_open(demo_devices *d, int argc, char **argv);
void demo_close(demo_devices *devices);

/* Runs `job` once on every device's worker, and waits. */
void demo_run(demo_devices *devices, ls_job job, void *arg);

/* Prints the error and leaves the program, unless `status` is LS_OK. */
void demo_check(int status, const ls_error *err);

/* Zeroed memory, or the program ends. */
void *demo_alloc(size_t count, size_t size);

/* Draws from N(0, std²), and from 0 … 1. *state is the place in the sequence; start anywhere. */
void demo_normal(float *out, size_t count, float std, uint64_t *state);
float demo_uniform(uint64_t *state);

/* Copies between the host and a device, and waits for it. On the device's thread. */
int demo_upload(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err);
int demo_download(ls_device *device, void *dst, const void *src, size_t bytes, ls_error *err);

/* "[1. 2.]" for a vector (rows 0), "[[1. 2.]\n [3. 4.]]" for a matrix. Later rows are indented by
 * `indent` columns. Ends with " @device" unless `device` is NULL, and a newline. */
void demo_print(const float *x, int rows, int columns, int indent, const char *device);

#endif
