/* SPDX-License-Identifier: MIT */
/* Functions that the tests of src/nn share. They make models from text, and data. An allocator
 * counts allocations and fails on request. */
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
    ls_host host;     /* pass &host to the tested function */
    long allocations; /* number of allocations so far */
    long live;        /* number of blocks that are not yet freed */
    long fail_at;     /* number, from 1, of the allocation that fails; 0: none */
} counting_host;

void counting_host_init(counting_host *h);

/* ---- models ---- */

/* A LeNet for images of 1 × 28 × 28 and 10 classes. */
extern const char lenet_json[];

/* Parses `json`, which is a model or a list of layers; fails the test if it is invalid. */
ls_network *make_model(const char *json, ls_shape input, int classes);
void free_model(ls_network *model);

/* Returns the model of a config file (its key "model"). */
ls_network *model_of_config(const char *path, ls_shape input, int classes);

/* Parses the "optimizer" of a config. */
ls_optimizer make_optimizer(const char *json);

/* Fills `out` with reproducible random numbers from −scale to scale. */
void fill_uniform(float *out, size_t floats, float scale, uint64_t seed);

/* Fills the canonical weights of a model with numbers as fill_uniform does, and running variances
 * with numbers from 0.5 to 1.5. */
void fill_weights(float *out, const ls_network *model, float scale, uint64_t seed);

/* ---- data ---- */

/* Creates random images with random labels below `classes`; free_data frees them. */
ls_replica_data make_data(uint32_t rows, ls_shape shape, int classes, uint64_t seed);
void free_data(ls_replica_data *data);

/* Description of a gather op that divides pixels by 255 and does no further normalisation. */
extern const ls_gather plain_pixels;

/* ---- devices ---- */

/* Returns a device of the reference back end with sums in double. The device is bound to the
 * calling thread. */
ls_device *open_ref64(const ls_host *host);

/* Fails the test with the message unless `rc` is LS_OK. */
void must(int rc, const ls_error *err);

#endif
