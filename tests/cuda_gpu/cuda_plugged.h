/* SPDX-License-Identifier: MIT */
/* Access to the plugin, loaded as a program on a machine with a GPU loads it. Programs that link
 * cuda_plugged.c exit with status 77 before their main on a machine without a GPU. */
#ifndef TESTS_CUDA_GPU_CUDA_PLUGGED_H
#define TESTS_CUDA_GPU_CUDA_PLUGGED_H

#include "cuda_ops/cuda_backend.h"

#include <stdio.h>

/* Returns 0 if there is a GPU, 77 if there is none, and 1 if there is a GPU that cannot be used.
 * Prints the GPU's name or the reason. */
int plugged_status(FILE *out);

#endif
