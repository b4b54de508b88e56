/* SPDX-License-Identifier: MIT */
/* The kernel of gpu_sweep that compares two results bit by bit. Every thread writes the same
 * value. */
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

static __global__ void differ(const uint32_t *a, const uint32_t *b, size_t words, uint32_t *flag)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        if (a[i] != b[i])
            *flag = 1;
}

extern "C" cudaError_t sweep_differ(const uint32_t *a, const uint32_t *b, size_t words, uint32_t *flag,
                                    cudaStream_t stream)
{
    differ<<<1024, 256, 0, stream>>>(a, b, words, flag);
    return cudaGetLastError();
}
