/* SPDX-License-Identifier: MIT */
/* The spin kernel of bench_overlap on a GPU: one block that computes for a given time. Many blocks
 * can run at the same time. gpu/overlap_doubled.c has a version in C, for tests without a GPU. The
 * functions launch the kernels on a stream, as those in cuda/kernels/kernels.h do. */
#ifndef BENCH_OVERLAP_SPIN_H
#define BENCH_OVERLAP_SPIN_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State of one worker in GPU memory; initially 0. It contains the number of the step, because a
 * recorded graph launches the kernel with the same arguments in every step. */
typedef struct bench_spin {
    uint64_t step, state;
} bench_spin;

/* Advances the state by `times` iterations of a random generator. If `first` is non-zero, the state
 * is first set to step · stride + shard. */
cudaError_t bench_spin_run(bench_spin *spin, uint64_t stride, uint64_t shard, int first,
                           uint64_t times, cudaStream_t stream);

/* Sets leaf[i] to four bits of the state, as spin_gradient (overlap.h) does. If `last` is non-zero,
 * also increments spin->step. */
cudaError_t bench_spin_gradient(float *leaf, size_t floats, bench_spin *spin, int last,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
