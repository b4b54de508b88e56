/* Common parts of the tests of src/nn: models from text, data, and an allocator that counts and
 * fails. */
#ifndef TESTS_NN_FIXTURE_H
#define TESTS_NN_FIXTURE_H

#include "nn/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- an allocator ---- */

typedef struct counting_host {
    ls_host host;     /* give &host to what is tested */
    long allocations; /* so far */
    long live;        /* not freed yet */
    long fail_at;     /* the allocation of this number (from 1) fails; 0: none does */
} counting_host;

void counting_host_init(counting_host *h);

/* ---- models ---- */

/* Seeds' LeNet for 1 × 28 × 28 images, 10 classes. */
extern const char lenet_json[];

/* Parses `json`, which is a model or a list of layers; fails the test when it is not right. */
ls_model *make_model(const char *json, ls_shape input, int classes);
void free_model(ls_model *model);

/* The "model" of a config's file. */
ls_model *model_of_config(const char *path, ls_shape input, int classes);

/* Parses the "optimizer" of a config. */
ls_optimizer make_optimizer(const char *json);

/* `floats` numbers, reproducible, uniform in ±scale. */
void fill_uniform(float *out, size_t floats, float scale, uint64_t seed);

/* Weights for a model: numbers as fill_uniform's, running variances of 0.5 to 1.5. */
void fill_weights(float *out, const ls_model *model, float scale, uint64_t seed);

/* ---- data ---- */

/* Random images with random labels below `classes`; free with free_data. */
ls_replica_data make_data(uint32_t rows, ls_shape shape, int classes, uint64_t seed);
void free_data(ls_replica_data *data);

/* pixel/255 as it is. */
extern const ls_gather plain_pixels;

/* ---- devices ---- */

/* A bound device of the reference back end with doubles inside. */
ls_device *open_ref64(const ls_host *host);

/* Fails the test with the message when `rc` is not LS_OK. */
void must(int rc, const ls_error *err);

#endif
