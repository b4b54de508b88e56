/* SPDX-License-Identifier: MIT */
/* Functions that the kernels share: layout of threads over memory, number formats, sums, random
 * numbers. */
#ifndef CUDA_KERNELS_KERNELS_CUH
#define CUDA_KERNELS_KERNELS_CUH

#include "cuda/kernels/kernels.h"

/* ---- one thread for each element, or for each four ------------------------------------------- */

#define LS_THREADS 256u
#define LS_MOST_BLOCKS 4096u

static inline unsigned ls_blocks(size_t items)
{
    size_t blocks = (items + LS_THREADS - 1) / LS_THREADS;
    return blocks < 1 ? 1u : blocks > LS_MOST_BLOCKS ? LS_MOST_BLOCKS : (unsigned)blocks;
}

/* Loops with i over 0 … n − 1, divided among the threads of the grid. */
#define LS_EACH(i, n)                                                                              \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                        \
         i += (size_t)gridDim.x * blockDim.x)

static inline int ls_aligned(const void *a)
{
    return (uintptr_t)a % 16 == 0;
}

/* ---- m × c: threadIdx.x counts chunks of channels, threadIdx.y counts positions -------------- */

/* m × c is a channels-last tensor: m *positions* (rows · h · w) of c values (kernels.h). */

/* Returns V, the number of adjacent channels (a *chunk*) that a thread processes. V is the number
 * of values that fit into 16 bytes if c is a multiple of that number, else 1. */
static inline int ls_wide(int c, size_t value_bytes)
{
    return (size_t)c % (16 / value_bytes) == 0 ? (int)(16 / value_bytes) : 1;
}

/* Returns the *tile*, the shape of a thread block, for c channels in chunks of V. x is the number
 * of adjacent chunks, at most 8, chosen so that the tiles have nearly equal sizes; y is the number
 * of positions, a power of two. The tile, and with it the order of sums, depends only on c and
 * V. */
static inline dim3 ls_tile_of(int c, int V)
{
    const unsigned chunks = (unsigned)(c / V);
    unsigned x = (chunks + (chunks + 7) / 8 - 1) / ((chunks + 7) / 8), y = LS_THREADS;
    while (x * y > LS_THREADS)
        y /= 2;
    return dim3(x, y);
}

/* Returns the grid of a kernel over an m × c tensor whose threads have V channels. Along x each
 * thread block has LS_K_BLOCK positions. Along y and z each thread block has the channels of one
 * tile; y has at most 65,535 blocks. */
static inline dim3 ls_over(size_t m, int c, int V)
{
    const unsigned x = ls_tile_of(c, V).x, tiles = ((unsigned)(c / V) + x - 1) / x;
    const unsigned y = tiles < 65535 ? tiles : 65535;
    return dim3((unsigned)((m + LS_K_BLOCK - 1) / LS_K_BLOCK), y, (tiles + y - 1) / y);
}

/* ---- division by a number that the host knows ------------------------------------------------ */

/* Divides n below 2³¹ by d with a multiplication and a shift. The factor is 2^(31 + l) / d, rounded
 * up, where 2^l ≥ d. Rounding adds less than 1 to it, so the product's error after the shift is
 * less than n / 2^(31 + l) < 1 / d, which cannot change the quotient. */
struct ls_divisor {
    uint32_t d, factor, shift;
};

static inline ls_divisor ls_divide_by(int d)
{
    ls_divisor by = {(uint32_t)d, 0, 31};
    while (1u << (by.shift - 31) < by.d)
        by.shift++;
    by.factor = (uint32_t)((((uint64_t)1 << by.shift) + by.d - 1) / by.d);
    return by;
}

__device__ static inline uint32_t ls_quotient(uint32_t n, ls_divisor by)
{
    return (uint32_t)((uint64_t)n * by.factor >> by.shift);
}

/* ---- bf16 in memory, fp32 in registers ------------------------------------------------------- */

struct ls_half {
    uint16_t bits;
};

/* Rounds two numbers to bf16, to nearest, ties to even, with the instruction that converts two
 * numbers at once. A NaN remains a NaN. */
__device__ static inline uint32_t ls_rounded_pair(float low, float high)
{
#ifdef __CUDA_ARCH__
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    uint32_t of[2] = {__float_as_uint(low), __float_as_uint(high)};
    for (int i = 0; i < 2; i++)
        of[i] = (of[i] & 0x7fffffffu) > 0x7f800000u ? 0x7fffu
                                                    : (of[i] + 0x7fffu + (of[i] >> 16 & 1u)) >> 16;
    return of[1] << 16 | of[0];
#endif
}

__device__ static inline uint16_t ls_rounded(float value)
{
    return (uint16_t)ls_rounded_pair(value, 0);
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

/* V adjacent values, which one load or store moves. */
template <class T, int V> struct alignas(sizeof(T) * V) ls_pack {
    T of[V];
};

template <class T, int V>
__device__ static inline ls_pack<T, V> ls_load(const T *p, uint32_t chunk)
{
    return ((const ls_pack<T, V> *)p)[chunk];
}

template <int V> __device__ static inline void ls_widen(float to[V], ls_pack<float, V> from)
{
    for (int v = 0; v < V; v++)
        to[v] = from.of[v];
}

template <int V> __device__ static inline void ls_widen(float to[V], ls_pack<ls_half, V> from)
{
    for (int v = 0; v + 1 < V; v += 2) {
        uint32_t pair;
        memcpy(&pair, &from.of[v], sizeof pair);
        to[v] = __uint_as_float(pair << 16);
        to[v + 1] = __uint_as_float(pair & 0xffff0000u);
    }
    if (V == 1)
        to[0] = __uint_as_float((uint32_t)from.of[0].bits << 16);
}

template <int V>
__device__ static inline void ls_store(float *p, uint32_t chunk, const float from[V])
{
    ls_pack<float, V> out;
    for (int v = 0; v < V; v++)
        out.of[v] = from[v];
    ((ls_pack<float, V> *)p)[chunk] = out;
}

template <int V>
__device__ static inline void ls_store(ls_half *p, uint32_t chunk, const float from[V])
{
    ls_pack<ls_half, V> out;
    for (int v = 0; v + 1 < V; v += 2) {
        uint32_t pair = ls_rounded_pair(from[v], from[v + 1]);
        memcpy(&out.of[v], &pair, sizeof pair);
    }
    if (V == 1)
        out.of[0].bits = ls_rounded(from[0]);
    ((ls_pack<ls_half, V> *)p)[chunk] = out;
}

/* Executes the statement with T as the type of the tensors' values. */
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

/* Executes the statement with B as a compile-time constant of `value`. */
#define LS_CHOSEN(value, B, ...)                                                                   \
    do {                                                                                           \
        if (value) {                                                                               \
            constexpr bool B = true;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr bool B = false;                                                              \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Executes the statement with T as the type of the tensors' values and V as the number of values of
 * a chunk (ls_wide). */
#define LS_TILED(half, c, T, V, ...)                                                               \
    LS_TYPED(half, T, LS_CHOSEN(ls_wide(c, sizeof(T)) > 1, WIDE, {                                 \
        enum { V = WIDE ? 16 / sizeof(T) : 1 };                                                    \
        __VA_ARGS__;                                                                               \
    }))

/* The part of an m × c tensor that a thread works on: its chunk of channels, and the positions
 * [first, end) of its block. All offsets count chunks and fit 32 bits, because tensors have fewer
 * than 2³¹ values. */
struct ls_thread_span {
    uint32_t first, end, chunk, chunks;
    __device__ bool has_channels() const { return chunk < chunks; }
    /* Returns the offset of position `i`; a position beyond the end is read as the last one. */
    __device__ uint32_t at(uint32_t i) const { return min(i, end - 1) * chunks + chunk; }
};

template <int V> __device__ static inline ls_thread_span ls_thread_span_of(uint32_t m, int c)
{
    ls_thread_span s;
    s.first = blockIdx.x * LS_K_BLOCK;
    s.end = min(s.first + LS_K_BLOCK, m);
    s.chunk = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.x + threadIdx.x;
    s.chunks = (uint32_t)c / V;
    return s;
}

/* Returns one byte of a relu's mask: one bit for each value of a chunk, set if the value is above
 * zero. */
template <int V> __device__ static inline uint32_t ls_above_zero(const float value[V])
{
    uint32_t bits = 0;
    for (int v = 0; v < V; v++)
        bits |= value[v] > 0 ? 1u << v : 0u;
    return bits;
}

/* ---- windows of 2 × 2 (quads) ---------------------------------------------------------------- */

/* Loops over the four pixels of a window, line by line. */
#define LS_QUAD(q) _Pragma("unroll") for (int q = 0; q < 4; q++)

/* Returns the pooled value of a window. Sets in *bits a bit for each pixel that gets the gradient
 * in backward. */
template <bool MAX>
__device__ static inline float ls_window_value(uint32_t *bits, const float pixel[4], int relu)
{
    float best = pixel[0], sum = 0;
    uint32_t first = 1, above = 0;
    LS_QUAD(q) {
        if (MAX) {
            first = pixel[q] > best ? 1u << q : first;
            best = pixel[q] > best ? pixel[q] : best;
        } else {
            const bool on = !relu || pixel[q] > 0;
            above |= on ? 1u << q : 0u;
            sum += on ? pixel[q] : 0;
        }
    }
    const bool on = !relu || best > 0;
    *bits = MAX ? (on ? first : 0u) : above;
    return MAX ? (on ? best : 0) : sum * 0.25f;
}

/* ---- sums over lanes ------------------------------------------------------------------------- */

/* Shared memory for Q values of every thread. A row is longer than the number of threads so that
 * rows begin in different banks. */
template <int Q> struct ls_lanes_room {
    float row[Q][LS_THREADS + 8];
};

/* Adds up values over the *lanes* of a tile; a lane is the threads with the same threadIdx.y. Every
 * thread of the block provides Q values. Afterwards ls_total_of returns the sum over the lanes of
 * each of these values. The number of lanes is a power of two and at least Q. */
template <int Q>
__device__ static inline void ls_add_lanes(const float value[Q], ls_lanes_room<Q> &room)
{
    const uint32_t x = blockDim.x, parts = blockDim.y / Q;
    const uint32_t q = threadIdx.y % Q, part = threadIdx.y / Q;
    for (int k = 0; k < Q; k++)
        room.row[k][threadIdx.y * x + threadIdx.x] = value[k];
    __syncthreads();
    float sum = 0;
    for (int n = 0; n < Q; n++)
        sum += room.row[q][(part + n * parts) * x + threadIdx.x];
    /* No barrier is needed before this store, because no other thread reads the value that this
     * thread replaces. */
    room.row[q][part * x + threadIdx.x] = sum;
    __syncthreads();
}

template <int Q> __device__ static inline float ls_total_of(const ls_lanes_room<Q> &room, int q)
{
    float sum = 0;
    for (uint32_t part = 0; part < blockDim.y / Q; part++)
        sum += room.row[q][part * blockDim.x + threadIdx.x];
    return sum;
}

/* Returns the sum over the threads of a block, added in a binary tree. */
template <class T> __device__ static inline T ls_sum_of_block(T value)
{
    __shared__ T sum[LS_THREADS];
    sum[threadIdx.x] = value;
    for (unsigned half = LS_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sum[threadIdx.x] += sum[threadIdx.x + half];
    }
    __syncthreads();
    value = sum[0];
    __syncthreads();
    return value;
}

__device__ static inline void ls_put_sum(float *to, double value, int add)
{
    *to = add ? (float)((double)*to + value) : (float)value;
}

/* norm.cu: sum[c] ← or, with `add`, += the sum of the partial sums of all blocks of m positions. */
cudaError_t ls_bias_finish(float *sum, int add, const float *partial, size_t m, int c,
                           cudaStream_t stream);

/* Stores a block's sums of V channels. If the grid has only one block of positions, these sums are
 * the totals. Otherwise ls_bias_finish later adds the sums of all blocks. */
template <int V>
__device__ static inline void ls_put_partial(float *total, int add, float *partial,
                                             const ls_lanes_room<V> &room,
                                             const ls_thread_span &span, int c)
{
    const uint32_t channel = span.chunk * V + threadIdx.y;
    if (threadIdx.y >= V || !span.has_channels())
        return;
    if (gridDim.x == 1) {
        ls_put_sum(&total[channel], ls_total_of<V>(room, threadIdx.y), add);
    } else {
        partial[blockIdx.x * (uint32_t)c + channel] = ls_total_of<V>(room, threadIdx.y);
        partial[(gridDim.x + blockIdx.x) * (uint32_t)c + channel] = 0;
    }
}

/* ---- Philox4x32-10, as in base/rng.h --------------------------------------------------------- */

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
