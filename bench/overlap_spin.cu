/* SPDX-License-Identifier: MIT */
#include "overlap_spin.h"

static __global__ void run(bench_spin *spin, uint64_t start, uint64_t stride, int first, uint64_t times)
{
    uint64_t state = first ? spin->step * stride + start : spin->state;
    for (uint64_t i = 0; i < times; i++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    __syncthreads(); /* every thread has read spin->state, which thread 0 writes */
    if (threadIdx.x == 0)
        spin->state = state;
}

/* Runs as one block, because it increments the step when all threads of the kernel have written. */
static __global__ void gradient(float *leaf, size_t floats, bench_spin *spin, int last)
{
    const uint64_t state = spin->state;
    for (size_t i = threadIdx.x; i < floats; i += blockDim.x)
        leaf[i] = (float)((state >> (i % 48)) & 15);
    if (last && threadIdx.x == 0)
        spin->step++;
}

cudaError_t bench_spin_run(bench_spin *spin, uint64_t stride, uint64_t shard, int first,
                           uint64_t times, cudaStream_t stream)
{
    run<<<1, 32, 0, stream>>>(spin, shard, stride, first, times);
    return cudaGetLastError();
}

cudaError_t bench_spin_gradient(float *leaf, size_t floats, bench_spin *spin, int last,
                                cudaStream_t stream)
{
    gradient<<<1, 1024, 0, stream>>>(leaf, floats, spin, last);
    return cudaGetLastError();
}
