/* SPDX-License-Identifier: MIT */
/* Runs kernels on generated numbers. The same program is linked twice: with the kernels, and with
 * their twins in plain C (src/cuda/kernels/kernels.h). Each of the two programs writes its results
 * to a file, and the two files are compared.
 *
 *     float *x = run_floats(r, n, 1);            n numbers in −1 … 1, always the same
 *     float *y = run_room(r, n * sizeof *y);     memory with undefined content
 *     run_ok(r, ls_k_curve_of(y, x, LS_K_RELU, shape, n, r->stream));
 *     run_keep(r, "relu", y, RUN_FLOAT, n);      waits, and writes the results */
#ifndef TESTS_CUDA_GPU_KERNELS_RUN_H
#define TESTS_CUDA_GPU_KERNELS_RUN_H

#include "cuda/kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { RUN_BLOCKS = 256 };

typedef struct run {
    FILE *file;
    cudaStream_t stream;
    /* text with the shape of the current case, for names of results and messages */
    const char *shape;
    void *block[RUN_BLOCKS];
    int blocks;
    int small; /* non-zero: omit the largest shapes, which take long on a CPU */
    uint64_t draws;
} run;

typedef enum run_type { RUN_FLOAT, RUN_BYTE, RUN_HALF, RUN_INT, RUN_TYPES } run_type;

/* The functions below end the program with a message if they fail. */
void run_ok(run *r, cudaError_t error);

void *run_room(run *r, size_t bytes); /* device memory, valid until run_drop */
float *run_floats(run *r, size_t count, float scale);
uint16_t *run_halves(run *r, size_t count, float scale); /* numbers in bf16 */
void *run_copy(run *r, const void *host, size_t bytes);
void run_keep(run *r, const char *name, const void *device, run_type type, size_t count);
void run_drop(run *r);

/* Run all kernels, on a few shapes each. */
void run_arena_kernels(run *r);
void run_point_kernels(run *r);
void run_data_kernels(run *r);
void run_pool_kernels(run *r);
void run_conv_kernels(run *r);
void run_norm_kernels(run *r);
void run_loss_kernels(run *r);

#endif
