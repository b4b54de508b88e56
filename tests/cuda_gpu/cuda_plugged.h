/* The plugin itself, as a program with a GPU loads it. Programs that link cuda_plugged.c exit with
 * status 77 before their main on a machine without a GPU. */
#ifndef TESTS_CUDA_GPU_CUDA_PLUGGED_H
#define TESTS_CUDA_GPU_CUDA_PLUGGED_H

#include "cuda_ops/cuda_backend.h"

#include <stdio.h>

/* 0: there is a GPU; 77: there is none; 1: there is one that cannot be used. Says which, and
 * why. */
int plugged_status(FILE *out);

#endif
