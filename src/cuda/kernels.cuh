/* What the kernels share: how they are laid over memory, and random numbers. */
#ifndef CUDA_KERNELS_CUH
#define CUDA_KERNELS_CUH

#include "cuda/kernels.h"

/* ---- one thread for each element, or for each four ------------------------------------------- */

#define LS_THREADS 256u
#define LS_MOST_BLOCKS 4096u

static inline unsigned ls_blocks(size_t items)
{
    size_t blocks = (items + LS_THREADS - 1) / LS_THREADS;
    return blocks < 1 ? 1u : blocks > LS_MOST_BLOCKS ? LS_MOST_BLOCKS : (unsigned)blocks;
}

/* i over 0 … n − 1, shared out over the grid. */
#define LS_EACH(i, n)                                                                              \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                        \
         i += (size_t)gridDim.x * blockDim.x)

static inline int ls_aligned(const void *a)
{
    return (uintptr_t)a % 16 == 0;
}

/* ---- m × c: a block has `x` channels side by side and `y` positions below each other ---------- */

static inline dim3 ls_tile(int c)
{
    unsigned x = 1;
    while (x < 32 && x < (unsigned)c)
        x *= 2;
    return dim3(x, LS_THREADS / x);
}

/* Blocks along x go over positions, `each` a block; along y over channels. */
static inline dim3 ls_tile_grid(size_t m, int c, size_t each)
{
    dim3 tile = ls_tile(c);
    size_t over = (m + each - 1) / each;
    return dim3((unsigned)(over < 1 ? 1 : over), ((unsigned)c + tile.x - 1) / tile.x);
}

/* ---- bf16 in memory, fp32 in registers ------------------------------------------------------- */

struct ls_half {
    uint16_t bits;
};

__device__ static inline uint16_t ls_rounded(float value)
{
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* stays a NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ static inline float ls_get(const float *p, size_t i)
{
    return p[i];
}

__device__ static inline float ls_get(const ls_half *p, size_t i)
{
    return __uint_as_float((uint32_t)p[i].bits << 16);
}

__device__ static inline void ls_put(float *p, size_t i, float value)
{
    p[i] = value;
}

__device__ static inline void ls_put(ls_half *p, size_t i, float value)
{
    p[i].bits = ls_rounded(value);
}

/* `statement` with T as the type that tensors have. */
#define LS_TYPED(half, T, ...)                                                                     \
    do {                                                                                           \
        if (half) {                                                                                \
            typedef ls_half T;                                                                     \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Memory answers late: a thread asks for so many positions before it uses the first. */
#define LS_BATCH 4
#define LS_IN_BATCH(k) _Pragma("unroll") for (int k = 0; k < LS_BATCH; k++)

/* ---- Philox4x32-10, as base/rng.h has it ------------------------------------------------------ */

__device__ static inline uint4 ls_random(uint64_t seed, uint32_t stream, uint32_t epoch,
                                         uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint4 c = make_uint4(stream, epoch, (uint32_t)index, (uint32_t)(index >> 32));
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

#endif
