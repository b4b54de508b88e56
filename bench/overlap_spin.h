/* The spin kernel of bench_overlap on a GPU: one block that computes for a given time, so that many
 * run side by side. Its twin in C is in gpu/overlap_doubled.c. Launchers have the form of
 * cuda/kernels/kernels.h. */
#ifndef BENCH_OVERLAP_SPIN_H
#define BENCH_OVERLAP_SPIN_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State of one worker in GPU memory; initially 0. It contains the number of the step, because a
 * launch's arguments are fixed in a recording. */
typedef struct bench_spin {
    uint64_t step, state;
} bench_spin;

/* Advances the state by `times` rounds of a generator. With `first` it starts from step · stride +
 * shard. */
cudaError_t bench_spin_run(bench_spin *spin, uint64_t stride, uint64_t shard, int first,
                           uint64_t times, cudaStream_t stream);

/* Sets leaf[i] to four bits of the state, as spin_gradient does. With `last` it also begins the
 * next step. */
cudaError_t bench_spin_gradient(float *leaf, size_t floats, bench_spin *spin, int last,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
