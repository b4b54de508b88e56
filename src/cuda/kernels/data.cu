/* SPDX-License-Identifier: MIT */
/* Kernels that prepare data: they gather dataset rows into a batch, and convert layouts and number
 * formats. */
#include "cuda/kernels/kernels.cuh"

#define LS_ANYWHERE __host__ __device__ static inline
#include "base/augment.h"

enum { AUGMENT = 3, AUGMENT_MORE = 5, AUGMENT_PART = 6 /* random streams, as in base/rng.h */ };

/* ---- gather: one thread block per row -------------------------------------------------------- */

struct shift {
    int down, right, mirror;
};

__device__ static shift draw_shift(const ls_k_gather &k, uint32_t row)
{
    uint32_t places = 2 * (uint32_t)k.crop + 1;
    uint4 w = ls_random(k.args->seed, AUGMENT, k.args->epoch, row);
    shift s = {(int)(w.x % places) - k.crop, (int)(w.y % places) - k.crop, k.flip && (w.z & 1)};
    return s;
}

struct gather {
    ls_k_gather k;
    ls_divisor by_c, by_w;
};

/* Returns the value at element e of y, in h, w, c order, and its channel in *c. */
template <class Value>
__device__ static Value value_of(const gather &g, const Value *image, shift s, uint32_t e, int *c)
{
    const ls_k_gather &k = g.k;
    const uint32_t pixel = ls_quotient(e, g.by_c), line = ls_quotient(pixel, g.by_w);
    const int i = (int)line + s.down, j = (int)(pixel - line * k.w) + s.right;
    *c = (int)(e - pixel * k.c);
    if (i < 0 || i >= k.h || j < 0 || j >= k.w)
        return 0;
    return image[(*c * k.h + i) * k.w + (s.mirror ? k.w - 1 - j : j)];
}

__device__ static void copy_weight(const ls_k_gather &k, uint32_t row)
{
    if (threadIdx.x == 0 && k.weights)
        k.weights_out[blockIdx.x] = k.weights[row];
}

__device__ static void copy_label(const ls_k_gather &k, uint32_t row)
{
    for (int i = threadIdx.x; k.labels && k.labels_out && i < k.words; i += LS_THREADS)
        k.labels_out[(size_t)blockIdx.x * k.words + i] = k.labels[(size_t)row * k.words + i];
    copy_weight(k, row);
}

/* Copies rows of bytes. Each thread block first computes a lookup table of the normalised values of
 * all 256 bytes, because a look-up is faster than a division for each pixel. */
__global__ static void gather_rows(const __grid_constant__ gather g)
{
    __shared__ shift shared;
    __shared__ float table[4][256];
    const ls_k_gather &k = g.k;
    const uint32_t row = k.args->rows[blockIdx.x], values = (uint32_t)(k.c * k.h * k.w);
    const uint8_t *image = (const uint8_t *)k.images + (size_t)row * values;
    float *y = k.y + (size_t)blockIdx.x * values;
    if (threadIdx.x == 0) {
        shift none = {0, 0, 0};
        shared = k.crop || k.flip ? draw_shift(k, row) : none;
    }
    copy_label(k, row);
    for (int at = 0; at < min(k.c, 4); at++)
        table[at][threadIdx.x] = ((float)threadIdx.x / 255.0f - k.mean[at]) / k.std[at];
    __syncthreads();
    shift s = shared;
    for (uint32_t e = threadIdx.x; e < values; e += LS_THREADS) {
        int c, value = value_of(g, image, s, e, &c);
        y[e] = table[min(c, 3)][value];
    }
}

__global__ static void gather_floats(const __grid_constant__ gather g)
{
    const ls_k_gather &k = g.k;
    const uint32_t row = k.args->rows[blockIdx.x], values = (uint32_t)(k.c * k.h * k.w);
    const float *image = (const float *)k.images + (size_t)row * values;
    float *y = k.y + (size_t)blockIdx.x * values;
    const shift none = {0, 0, 0}, s = k.crop || k.flip ? draw_shift(k, row) : none;
    copy_label(k, row);
    for (uint32_t e = threadIdx.x; e < values; e += LS_THREADS) {
        int c;
        const float value = value_of(g, image, s, e, &c);
        y[e] = (value - k.mean[min(c, 3)]) / k.std[min(c, 3)];
    }
}

/* ---- rows that are augmented in more ways than by a shift and mirroring ---------------------- */

__device__ static void draw_change(ls_change *c, const ls_k_gather &k, uint32_t row)
{
    const ls_augment a = {k.crop, k.flip, k.rotate, k.erase, k.brightness, k.mixup, k.part};
    const uint4 v = ls_random(k.args->seed, AUGMENT, k.args->epoch, row);
    const uint4 m = ls_random(k.args->seed, AUGMENT_MORE, k.args->epoch, row);
    const uint4 p = ls_random(k.args->seed, AUGMENT_PART, k.args->epoch, row);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w}, more[4] = {m.x, m.y, m.z, m.w},
                   place[4] = {p.x, p.y, p.z, p.w};
    ls_change_draw(c, &a, k.h, k.w, words, more, place);
}

__device__ static float changed(const uint8_t *plane, const uint8_t *other, const ls_change c[2],
                                int i, int j)
{
    const int a = ls_changed_byte(plane, &c[0], i, j);
    const int b = c[0].other ? ls_changed_byte(other, &c[1], i, j) : 0;
    return (float)ls_mixed_byte(a, b, &c[0]) / 255.0f;
}

__device__ static float changed(const float *plane, const float *other, const ls_change c[2], int i,
                                int j)
{
    const float a = ls_changed_float(plane, &c[0], i, j);
    const float b = c[0].other ? ls_changed_float(other, &c[1], i, j) : 0;
    return ls_mixed_float(a, b, &c[0]);
}

__device__ static void mix_target(const ls_k_gather &k, const ls_change *c, const uint32_t row[2])
{
    for (int i = threadIdx.x; k.labels && k.labels_out && i < k.words; i += LS_THREADS) {
        const int32_t mine = k.labels[(size_t)row[0] * k.words + i];
        const int32_t other = k.labels[(size_t)row[1] * k.words + i];
        const float mixed =
            ls_mixed_float(__uint_as_float((uint32_t)mine), __uint_as_float((uint32_t)other), c);
        k.labels_out[(size_t)blockIdx.x * k.words + i] =
            k.vectors ? (int32_t)__float_as_uint(mixed) : c->other_label ? other : mine;
    }
    copy_weight(k, row[0]);
}

template <class Value>
__global__ static void gather_changed(const __grid_constant__ gather g)
{
    __shared__ ls_change c[2];
    const ls_k_gather &k = g.k;
    const uint32_t row[2] = {
        k.args->rows[blockIdx.x],
        ls_mixed_row(k.args->rows, k.rows, (int)blockIdx.x, k.args->rows_before,
                     k.args->rows_after)};
    const uint32_t values = (uint32_t)(k.c * k.h * k.w);
    if (threadIdx.x < 2)
        draw_change(&c[threadIdx.x], k, row[threadIdx.x]);
    __syncthreads();
    mix_target(k, c, row);
    const Value *image = (const Value *)k.images + (size_t)row[0] * values;
    const Value *other = (const Value *)k.images + (size_t)row[1] * values;
    for (uint32_t e = threadIdx.x; e < values; e += LS_THREADS) {
        const uint32_t pixel = ls_quotient(e, g.by_c), line = ls_quotient(pixel, g.by_w);
        const int at = (int)(e - pixel * k.c), of = min(at, 3);
        const size_t plane = (size_t)at * k.h * k.w;
        const float value =
            changed(image + plane, other + plane, c, (int)line, (int)(pixel - line * k.w));
        k.y[(size_t)blockIdx.x * values + e] = (value - k.mean[of]) / k.std[of];
    }
}

cudaError_t ls_k_gather_rows(const ls_k_gather *k, cudaStream_t stream)
{
    static_assert(LS_THREADS == 256, "a thread for each value of a byte");
    const gather g = {*k, ls_divide_by(k->c), ls_divide_by(k->w)};
    const bool more = k->rotate || k->erase || k->brightness || k->mixup || k->part;
    if (more && k->floats)
        gather_changed<float><<<(unsigned)k->rows, LS_THREADS, 0, stream>>>(g);
    else if (more)
        gather_changed<uint8_t><<<(unsigned)k->rows, LS_THREADS, 0, stream>>>(g);
    else if (k->floats)
        gather_floats<<<(unsigned)k->rows, LS_THREADS, 0, stream>>>(g);
    else
        gather_rows<<<(unsigned)k->rows, LS_THREADS, 0, stream>>>(g);
    return cudaGetLastError();
}

/* ---- layouts -------------------------------------------------------------------------------- */

enum { SIDE = 32, LINES = 8 };

/* Transposes by way of a square in shared memory, so that adjacent threads access adjacent elements
 * of both tensors. */
__global__ static void transpose(float *to, const float *from, int rows, int a, int b)
{
    __shared__ float square[SIDE][SIDE + 1];
    const int j0 = blockIdx.x * SIDE, i0 = blockIdx.y * SIDE, t = threadIdx.x;
    const size_t image = (size_t)a * b;
    for (int r = blockIdx.z; r < rows; r += gridDim.z) {
        for (int l = threadIdx.y; l < SIDE; l += LINES)
            if (i0 + l < a && j0 + t < b)
                square[l][t] = from[r * image + (size_t)(i0 + l) * b + j0 + t];
        __syncthreads();
        for (int l = threadIdx.y; l < SIDE; l += LINES)
            if (j0 + l < b && i0 + t < a)
                to[r * image + (size_t)(j0 + l) * a + i0 + t] = square[t][l];
        __syncthreads(); /* a block processes several images only if there are more than 65,535 */
    }
}

cudaError_t ls_k_transpose(float *to, const float *from, int rows, int a, int b,
                           cudaStream_t stream)
{
    dim3 grid((unsigned)(b + SIDE - 1) / SIDE, (unsigned)(a + SIDE - 1) / SIDE,
              (unsigned)(rows < 65535 ? rows : 65535));
    transpose<<<grid, dim3(SIDE, LINES), 0, stream>>>(to, from, rows, a, b);
    return cudaGetLastError();
}

/* ---- bf16: the upper half of an fp32 number -------------------------------------------------- */

__global__ static void to_bf16(uint16_t *to, const float *from, size_t count)
{
    LS_EACH(i, count)
        to[i] = ls_rounded(from[i]);
}

cudaError_t ls_k_to_bf16(uint16_t *to, const float *from, size_t count, cudaStream_t stream)
{
    to_bf16<<<ls_blocks(count), LS_THREADS, 0, stream>>>(to, from, count);
    return cudaGetLastError();
}

__global__ static void from_bf16(float *to, const uint16_t *from, size_t count, int add)
{
    LS_EACH(i, count) {
        float value = __uint_as_float((uint32_t)from[i] << 16);
        to[i] = add ? to[i] + value : value;
    }
}

cudaError_t ls_k_from_bf16(float *to, const uint16_t *from, size_t count, int add,
                           cudaStream_t stream)
{
    from_bf16<<<ls_blocks(count), LS_THREADS, 0, stream>>>(to, from, count, add);
    return cudaGetLastError();
}
