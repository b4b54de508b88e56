/* SPDX-License-Identifier: MIT */
/* Kernels that compute element by element. */
#include "cuda/kernels/kernels.cuh"

#include <float.h>

/* ---- out ← f(a), out ← f(a, b) --------------------------------------------------------------- */

/* Computes four elements at a time if `wide` is set, then the rest one by one. */
template <class T, class F>
__global__ static void map2(T *out, const T *a, const T *b, F f, size_t count, int wide)
{
    typedef ls_pack<T, 4> quad;
    size_t quads = wide ? count / 4 : 0;
    LS_EACH(i, quads) {
        quad x = ((const quad *)a)[i], y = ((const quad *)b)[i];
        for (int k = 0; k < 4; k++)
            ls_put(x.of, k, f(ls_get(x.of, k), ls_get(y.of, k)));
        ((quad *)out)[i] = x;
    }
    LS_EACH(i, count - 4 * quads)
        ls_put(out, 4 * quads + i, f(ls_get(a, 4 * quads + i), ls_get(b, 4 * quads + i)));
}

/* Computes f(a, b) for each element. For a function of one argument the caller passes `a` as `b`
 * too, and the kernel reads this memory only once. */
template <class T, class F>
static cudaError_t map(T *out, const T *a, const T *b, F f, size_t count, cudaStream_t stream)
{
    int wide = ls_aligned(out) && ls_aligned(a) && ls_aligned(b);
    map2<<<ls_blocks(wide ? count / 4 : count), LS_THREADS, 0, stream>>>(out, a, b, f, count, wide);
    return cudaGetLastError();
}

struct plain_sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

cudaError_t ls_k_sum(float *to, const float *a, const float *b, size_t count, cudaStream_t stream)
{
    return map(to, a, b, plain_sum(), count, stream);
}

struct sum_relu {
    __device__ float operator()(float a, float b) const
    {
        float sum = a + b;
        return sum > 0 ? sum : 0;
    }
};

struct sum_maybe_relu {
    int relu;
    __device__ float operator()(float a, float b) const
    {
        float sum = a + b;
        return relu && !(sum > 0) ? 0 : sum;
    }
};

cudaError_t ls_k_add(void *y, const void *x, const void *x2, int half, int relu, size_t count,
                     cudaStream_t stream)
{
    if (half)
        return map((ls_half *)y, (const ls_half *)x, (const ls_half *)x2, sum_maybe_relu{relu},
                   count, stream);
    return relu ? map((float *)y, (const float *)x, (const float *)x2, sum_relu(), count, stream)
                : map((float *)y, (const float *)x, (const float *)x2, plain_sum(), count, stream);
}

template <class T>
__global__ static void add_back(T *dx, T *dx2, const T *dy, const T *y, size_t count)
{
    LS_EACH(i, count) {
        float g = y && !(ls_get(y, i) > 0) ? 0 : ls_get(dy, i);
        ls_put(dx, i, g);
        if (dx2)
            ls_put(dx2, i, g);
    }
}

cudaError_t ls_k_add_back(void *dx, void *dx2, const void *dy, const void *y, int half,
                          size_t count, cudaStream_t stream)
{
    LS_TYPED(half, T,
             add_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>((T *)dx, (T *)dx2, (const T *)dy,
                                                                   (const T *)y, count));
    return cudaGetLastError();
}

/* ---- products -------------------------------------------------------------------------------- */

struct product {
    __device__ float operator()(float a, float b) const { return a * b; }
};

cudaError_t ls_k_multiply(float *y, const float *x, const float *x2, size_t count,
                          cudaStream_t stream)
{
    return map(y, x, x2, product(), count, stream);
}

__global__ static void multiply_back(float *dx, float *dx2, const float *dy, const float *x,
                                     const float *x2, size_t count)
{
    LS_EACH(i, count) {
        const float g = dy[i], own = x[i], other = x2[i];
        dx[i] = g * other;
        dx2[i] = g * own;
    }
}

cudaError_t ls_k_multiply_back(float *dx, float *dx2, const float *dy, const float *x,
                               const float *x2, size_t count, cudaStream_t stream)
{
    multiply_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dx2, dy, x, x2, count);
    return cudaGetLastError();
}

/* A block works on SCALED_C adjacent channels of a row. Its SCALED_P lines of threads share the
 * pixels. */
enum { SCALED_C = 32, SCALED_P = 8 };

struct scale {
    ls_k_scale k;
    uint32_t tiles; /* blocks of a row */
    ls_divisor by_tiles;
};

static scale scale_of(const ls_k_scale *k)
{
    const int tiles = (k->c + SCALED_C - 1) / SCALED_C;
    scale s = {*k, (uint32_t)tiles, ls_divide_by(tiles)};
    return s;
}

__global__ static void scale_by(float *y, const float *x, const float *x2,
                                const __grid_constant__ scale s)
{
    const uint32_t row = ls_quotient(blockIdx.x, s.by_tiles), pixels = (uint32_t)s.k.pixels;
    const uint32_t c = (uint32_t)s.k.c, k = (blockIdx.x - row * s.tiles) * SCALED_C + threadIdx.x;
    if (k >= c)
        return;
    const float factor = x2[row * c + k];
    for (uint32_t p = threadIdx.y; p < pixels; p += SCALED_P) {
        const uint32_t at = (row * pixels + p) * c + k;
        y[at] = x[at] * factor;
    }
}

__global__ static void scale_back(float *dx, float *dx2, const float *dy, const float *x,
                                  const float *x2, const __grid_constant__ scale s)
{
    __shared__ float sums[SCALED_P][SCALED_C];
    const uint32_t row = ls_quotient(blockIdx.x, s.by_tiles), pixels = (uint32_t)s.k.pixels;
    const uint32_t c = (uint32_t)s.k.c, k = (blockIdx.x - row * s.tiles) * SCALED_C + threadIdx.x;
    const float factor = k < c ? x2[row * c + k] : 0;
    float sum = 0;
    for (uint32_t p = threadIdx.y; k < c && p < pixels; p += SCALED_P) {
        const uint32_t at = (row * pixels + p) * c + k;
        const float g = dy[at];
        sum = fmaf(g, x[at], sum);
        dx[at] = g * factor;
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || k >= c)
        return;
    for (uint32_t p = 1; p < SCALED_P; p++)
        sum += sums[p][threadIdx.x];
    dx2[row * c + k] = sum;
}

cudaError_t ls_k_scale_by(float *y, const float *x, const float *x2, const ls_k_scale *k,
                          cudaStream_t stream)
{
    const scale s = scale_of(k);
    scale_by<<<(unsigned)k->rows * s.tiles, dim3(SCALED_C, SCALED_P), 0, stream>>>(y, x, x2, s);
    return cudaGetLastError();
}

cudaError_t ls_k_scale_back(float *dx, float *dx2, const float *dy, const float *x,
                            const float *x2, const ls_k_scale *k, cudaStream_t stream)
{
    const scale s = scale_of(k);
    scale_back<<<(unsigned)k->rows * s.tiles, dim3(SCALED_C, SCALED_P), 0, stream>>>(dx, dx2, dy, x,
                                                                                     x2, s);
    return cudaGetLastError();
}

/* ---- curves (activations): y = of(x), dx = back(dy, v); v is x or y ----- */

struct relu_curve {
    float slope;
    __device__ float of(float x) const { return x > 0 ? x : slope != 0 ? slope * x : 0; }
    __device__ float back(float dy, float y) const
    {
        return y > 0 ? dy : slope != 0 ? slope * dy : 0;
    }
};

struct sigmoid_curve {
    __device__ float of(float x) const { return 1 / (1 + expf(-x)); }
    __device__ float back(float dy, float y) const { return dy * y * (1 - y); }
};

struct tanh_curve {
    __device__ float of(float x) const { return tanhf(x); }
    __device__ float back(float dy, float y) const { return dy * (1 - y * y); }
};

/* Replaces infinities by the largest numbers, so that 0 · x is 0, the limit of the products in gelu
 * and silu, and not NaN. */
__device__ static float bounded(float x)
{
    return fabsf(x) > FLT_MAX ? copysignf(FLT_MAX, x) : x;
}

/* Replaces −∞ only. */
__device__ static float from_lowest(float x)
{
    return x < -FLT_MAX ? -FLT_MAX : x;
}

/* Returns Φ(x), the normal distribution function. */
__device__ static float normal_below(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

struct gelu_curve {
    __device__ float of(float x) const { return from_lowest(x) * normal_below(x); }
    __device__ float back(float dy, float x) const
    {
        return dy * (normal_below(x) + bounded(x) * 0.39894228f * expf(-0.5f * x * x));
    }
};

struct silu_curve {
    __device__ float of(float x) const { return from_lowest(x) / (1 + expf(-x)); }
    __device__ float back(float dy, float x) const
    {
        float s = 1 / (1 + expf(-x));
        return dy * s * (1 + bounded(x) * (1 - s));
    }
};

/* Returns x, but `least` for numbers below `least`, and `most` for numbers above `most`. NaN
 * stays. */
__device__ static float between(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

struct clamp_curve {
    float least, most;
    __device__ float of(float x) const { return between(x, least, most); }
    __device__ float back(float dy, float y) const { return y > least && y < most ? dy : 0; }
};

/* The approximation of gelu with tanh is x·s, where s is 1 / (1 + e^−inner). Beyond ±16 its
 * derivative is 0 or 1 in float. */
struct gelu_tanh_curve {
    __device__ static float inner(float x) { return x * fmaf(x * x, 0.0713548163f, 1.59576912f); }
    __device__ float of(float x) const { return from_lowest(x) / (1 + expf(-inner(x))); }
    __device__ float back(float dy, float x) const
    {
        const float v = between(x, -16, 16), t = inner(v), s = 1 / (1 + expf(-t));
        const float slope = fmaf(v * v, 3 * 0.0713548163f, 1.59576912f);
        return dy * fmaf(v * s, slope / (1 + expf(t)), s);
    }
};

struct affine_curve {
    float slope, offset;
    __device__ float of(float x) const { return fmaf(slope, x, offset); }
    __device__ float back(float dy, float) const { return slope * dy; }
};

struct hard_sigmoid_curve {
    float slope, offset;
    __device__ float of(float x) const { return between(fmaf(slope, x, offset), 0, 1); }
    __device__ float back(float dy, float y) const { return y > 0 && y < 1 ? slope * dy : 0; }
};

struct hard_swish_curve {
    __device__ float of(float x) const
    {
        return from_lowest(x) * (between(x + 3, 0, 6) * (1.0f / 6));
    }
    __device__ float back(float dy, float x) const
    {
        return x < 3 ? x > -3 ? dy * fmaf(x, 1.0f / 3, 0.5f) : 0 : dy;
    }
};

template <class C> struct value_of {
    C curve;
    __device__ float operator()(float x, float) const { return curve.of(x); }
};

template <class C> struct slope_of {
    C curve;
    __device__ float operator()(float dy, float v) const { return curve.back(dy, v); }
};

/* F is value_of or slope_of. */
template <template <class> class F>
static cudaError_t map_curve(float *out, const float *a, const float *b, ls_k_curve curve,
                             ls_k_shape shape, size_t count, cudaStream_t stream)
{
    switch (curve) {
    case LS_K_RELU: return map(out, a, b, F<relu_curve>{{shape.slope}}, count, stream);
    case LS_K_SIGMOID: return map(out, a, b, F<sigmoid_curve>{}, count, stream);
    case LS_K_TANH: return map(out, a, b, F<tanh_curve>{}, count, stream);
    case LS_K_GELU: return map(out, a, b, F<gelu_curve>{}, count, stream);
    case LS_K_SILU: return map(out, a, b, F<silu_curve>{}, count, stream);
    case LS_K_CLAMP:
        return map(out, a, b, F<clamp_curve>{{shape.least, shape.most}}, count, stream);
    case LS_K_HARD_SIGMOID:
        return map(out, a, b, F<hard_sigmoid_curve>{{shape.slope, shape.offset}}, count, stream);
    case LS_K_HARD_SWISH: return map(out, a, b, F<hard_swish_curve>{}, count, stream);
    case LS_K_GELU_TANH: return map(out, a, b, F<gelu_tanh_curve>{}, count, stream);
    case LS_K_AFFINE:
        return map(out, a, b, F<affine_curve>{{shape.slope, shape.offset}}, count, stream);
    }
    return cudaErrorInvalidValue;
}

cudaError_t ls_k_curve_of(float *y, const float *x, ls_k_curve curve, ls_k_shape shape,
                          size_t count, cudaStream_t stream)
{
    return map_curve<value_of>(y, x, x, curve, shape, count, stream);
}

cudaError_t ls_k_curve_back(float *dx, const float *dy, const float *v, ls_k_curve curve,
                            ls_k_shape shape, size_t count, cudaStream_t stream)
{
    return map_curve<slope_of>(dx, dy, v, curve, shape, count, stream);
}

/* ---- concatenation of channels -------------------------------------------------------------- */

__global__ static void concat(float *y, const float *x, const float *x2, uint32_t count,
                              uint32_t c1, ls_divisor c)
{
    LS_EACH(i, count) {
        uint32_t at = ls_quotient((uint32_t)i, c), k = (uint32_t)i - at * c.d;
        y[i] = k < c1 ? x[at * c1 + k] : x2[at * (c.d - c1) + k - c1];
    }
}

__global__ static void concat_back(float *dx, float *dx2, const float *dy, uint32_t count,
                                   uint32_t c1, ls_divisor c)
{
    LS_EACH(i, count) {
        uint32_t at = ls_quotient((uint32_t)i, c), k = (uint32_t)i - at * c.d;
        *(k < c1 ? &dx[at * c1 + k] : &dx2[at * (c.d - c1) + k - c1]) = dy[i];
    }
}

cudaError_t ls_k_concat(float *y, const float *x, const float *x2, size_t m, int c1, int c2,
                        cudaStream_t stream)
{
    const size_t count = m * (size_t)(c1 + c2);
    concat<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, x, x2, (uint32_t)count, (uint32_t)c1,
                                                        ls_divide_by(c1 + c2));
    return cudaGetLastError();
}

cudaError_t ls_k_concat_back(float *dx, float *dx2, const float *dy, size_t m, int c1, int c2,
                             cudaStream_t stream)
{
    const size_t count = m * (size_t)(c1 + c2);
    concat_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dx2, dy, (uint32_t)count,
                                                             (uint32_t)c1, ls_divide_by(c1 + c2));
    return cudaGetLastError();
}

/* ---- dropout -------------------------------------------------------------------------------- */

__global__ static void drop(float *y, uint8_t *kept, const float *x, ls_k_dropout k)
{
    const ls_k_args *a = k.args;
    const float scale = 1.0f / (1.0f - k.p);
    const unsigned row = (unsigned)k.c * (unsigned)k.pixels;
    LS_EACH(i, (size_t)k.rows * row) {
        unsigned r = (unsigned)(i / row), q = (unsigned)(i % row), e = q;
        if (k.channels_last)
            e = q % (unsigned)k.c * (unsigned)k.pixels + q / (unsigned)k.c;
        uint4 word = ls_random(a->seed, k.number, a->epoch, (uint64_t)a->rows[r] * row + e);
        int keep = !((float)(word.x >> 8) * 0x1p-24f < k.p);
        y[i] = keep ? x[i] * scale : 0;
        if (kept)
            kept[i] = (uint8_t)keep;
    }
}

cudaError_t ls_k_drop(float *y, uint8_t *kept, const float *x, const ls_k_dropout *dropout,
                      cudaStream_t stream)
{
    size_t count = (size_t)dropout->rows * (size_t)dropout->c * (size_t)dropout->pixels;
    drop<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, kept, x, *dropout);
    return cudaGetLastError();
}

__global__ static void drop_back(float *dx, const float *dy, const uint8_t *kept, float p,
                                 size_t count)
{
    const float scale = 1.0f / (1.0f - p);
    LS_EACH(i, count)
        dx[i] = kept[i] ? dy[i] * scale : 0;
}

cudaError_t ls_k_drop_back(float *dx, const float *dy, const uint8_t *kept, float p, size_t count,
                           cudaStream_t stream)
{
    drop_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dy, kept, p, count);
    return cudaGetLastError();
}

/* ---- load ------------------------------------------------------------------------------------ */

__global__ static void busy(uint32_t *out, uint32_t rounds)
{
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t i = 0; i < rounds; i++)
        x = x * 1664525u + 1013904223u + (x >> 16);
    if (threadIdx.x % 32 == 0)
        out[blockIdx.x * LS_K_BUSY + threadIdx.x / 32] = x;
}

cudaError_t ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream)
{
    busy<<<(unsigned)blocks, 32 * LS_K_BUSY, 0, stream>>>(out, rounds);
    return cudaGetLastError();
}
