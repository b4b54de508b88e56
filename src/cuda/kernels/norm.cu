/* SPDX-License-Identifier: MIT */
/* Sums over the positions of an m × c tensor (kernels.h), biases, and batch norm, which consists of
 * such sums. Also layer norm.
 *
 * The order of a sum. Positions are divided into blocks of LS_K_BLOCK. A *lane* is the threads with
 * the same threadIdx.y. Tiles and chunks are those of kernels.cuh. Within a block of positions,
 * lane y of a tile adds positions y, y + lanes, …. Then the sums of the lanes are added up
 * (ls_add_lanes): lanes that are `lanes / Q` apart are added first, and then these sums in
 * ascending order. The tile depends on c and the type of the values alone. The sums of the blocks
 * are then added in double by LANES lanes, and the sums of these lanes in a binary tree. */
#include "cuda/kernels/kernels.cuh"

/* LANES: number of lanes that add the sums of blocks. FINISH_CHANNELS: number of adjacent channels
 * of a thread block, as many as fit into one sector of memory. */
enum { FINISH_CHANNELS = 8, LANES = 128, FINISH_THREADS = FINISH_CHANNELS * LANES };

static size_t blocks_of(size_t m)
{
    return (m + LS_K_BLOCK - 1) / LS_K_BLOCK;
}

size_t ls_k_partial_floats(size_t m, int c)
{
    return 2 * blocks_of(m) * (size_t)c;
}

size_t ls_k_mask_bytes(size_t m, int c, int half)
{
    return m * (size_t)c / (size_t)ls_wide(c, half ? sizeof(uint16_t) : sizeof(float));
}

/* ---- loops over positions -------------------------------------------------------------------- */

/* Number of positions, or of sums of blocks, that a thread loads before it uses the first of them.
 * Memory has a long latency, which the loads in flight hide. */
#define BATCH 4
#define IN_BATCH(k) _Pragma("unroll") for (int k = 0; k < BATCH; k++)

/* Calls use(at, inside, x, x2) for each position of the thread. `at` is the offset of the chunk.
 * The arguments x and x2 are the chunk's values in the tensors x and x2. x2 is loaded only with
 * TWO. With MASK, values of x2 are 0 where the mask has no bit. Beyond the last position, `use` is
 * called for the last position again with `inside` false, so that loading needs no branch. If
 * `inside` is false, `use` must not store a result. */
template <class T, int V, bool TWO, bool MASK, class Use>
__device__ static void each_position(const ls_thread_span &span, const T *x, const T *x2,
                                     const uint8_t *mask, Use use)
{
    static_assert(TWO || !MASK, "the mask is the second tensor's");
    for (uint32_t i = span.first + threadIdx.y; i < span.end; i += BATCH * blockDim.y) {
        ls_pack<T, V> in[BATCH], in2[BATCH];
        uint32_t bits[BATCH];
        IN_BATCH(k) {
            const uint32_t at = span.at(i + k * blockDim.y);
            in[k] = ls_load<T, V>(x, at);
            if (TWO)
                in2[k] = ls_load<T, V>(x2, at);
            bits[k] = MASK ? mask[at] : 0;
        }
        IN_BATCH(k) {
            float value[V], value2[V];
            ls_widen<V>(value, in[k]);
            if (TWO)
                ls_widen<V>(value2, in2[k]);
            for (int v = 0; MASK && v < V; v++)
                value2[v] = bits[k] >> v & 1 ? value2[v] : 0;
            use(span.at(i + k * blockDim.y), i + k * blockDim.y < span.end, value, value2);
        }
    }
}

/* Does the same as each_position for one tensor: calls use(at, inside, x). */
template <int V, class T, class Use>
__device__ static void each_value(const ls_thread_span &span, const T *x, Use use)
{
    each_position<T, V, false, false>(
        span, x, x, nullptr,
        [&](uint32_t at, bool inside, float value[V], float *) { use(at, inside, value); });
}

/* ---- sums over blocks ------------------------------------------------------------------------ */

/* Adds up the values sum[0] of all lanes of a channel in a binary tree, and the values sum[1] too.
 * Lane 0 then has the results. */
__device__ static void add_doubles(double sum[2], double (*shared)[FINISH_THREADS])
{
    unsigned x = blockDim.x, me = threadIdx.y * x + threadIdx.x;
    shared[0][me] = sum[0];
    shared[1][me] = sum[1];
    for (unsigned half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
            shared[0][me] += shared[0][me + half * x];
            shared[1][me] += shared[1][me + half * x];
        }
    }
    __syncthreads();
    sum[0] = shared[0][threadIdx.x];
    sum[1] = shared[1][threadIdx.x];
    __syncthreads();
}

/* Calls add(sum, block, partial[0][block][channel], partial[1][block][channel]) for every block of
 * positions, and then adds up the `sum` of all lanes. Lane 0 of each channel then has the two
 * results. Beyond the last block, `add` is called with zeros, for which it must add nothing. */
template <class Add>
__device__ static void add_blocks(double sum[2], const float *partial, uint32_t blocks, uint32_t c,
                                  uint32_t channel, double (*shared)[FINISH_THREADS], Add add)
{
    sum[0] = sum[1] = 0;
    for (uint32_t b = threadIdx.y; channel < c && b < blocks; b += BATCH * LANES) {
        float first[BATCH], second[BATCH];
        IN_BATCH(k) {
            uint32_t at = b + k * LANES;
            first[k] = at < blocks ? partial[at * c + channel] : 0;
            second[k] = at < blocks ? partial[(blocks + at) * c + channel] : 0;
        }
        IN_BATCH(k)
            add(sum, b + k * LANES, first[k], second[k]);
    }
    add_doubles(sum, shared);
}

__device__ static void add_both(double sum[2], uint32_t, float first, float second)
{
    sum[0] += first;
    sum[1] += second;
}

__device__ static uint32_t my_channel()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

static dim3 finish_grid(int c)
{
    return dim3(((unsigned)c + FINISH_CHANNELS - 1) / FINISH_CHANNELS);
}

static dim3 finish_tile()
{
    return dim3(FINISH_CHANNELS, LANES);
}

/* ---- biases --------------------------------------------------------------------------------- */

template <class T, int V>
__global__ static void add_bias(T *y, const float *bias, int relu, uint32_t m, int c)
{
    const ls_thread_span span = ls_thread_span_of<V>(m, c);
    float b[V];
    if (!span.has_channels())
        return;
    for (int v = 0; v < V; v++)
        b[v] = bias ? bias[span.chunk * V + v] : 0;
    each_value<V>(span, y, [&](uint32_t at, bool inside, float value[V]) {
        for (int v = 0; v < V; v++) {
            value[v] = bias ? value[v] + b[v] : value[v];
            value[v] = relu && !(value[v] > 0) ? 0 : value[v];
        }
        if (inside)
            ls_store<V>(y, at, value);
    });
}

cudaError_t ls_k_bias(void *y, const float *bias, int half, int relu, size_t m, int c,
                      cudaStream_t stream)
{
    LS_TILED(half, c, T, V,
             add_bias<T, V><<<ls_over(m, c, V), ls_tile_of(c, V), 0, stream>>>((T *)y, bias, relu,
                                                                               (uint32_t)m, c));
    return cudaGetLastError();
}

template <class T, int V, bool RELU>
__global__ static void bias_partial(float *total, int add, float *partial, T *masked, const T *dy,
                                    const T *y, uint32_t m, int c)
{
    __shared__ ls_lanes_room<V> room;
    const ls_thread_span span = ls_thread_span_of<V>(m, c);
    float sum[V] = {0};
    if (span.has_channels())
        each_position<T, V, RELU, false>(
            span, dy, y, nullptr, [&](uint32_t at, bool inside, float g[V], const float out[V]) {
                for (int v = 0; RELU && v < V; v++)
                    g[v] = out[v] > 0 ? g[v] : 0;
                if (inside) {
                    if (RELU && masked)
                        ls_store<V>(masked, at, g);
                    for (int v = 0; v < V; v++)
                        sum[v] += g[v];
                }
            });
    ls_add_lanes<V>(sum, room);
    ls_put_partial<V>(total, add, partial, room, span, c);
}

__global__ static void __launch_bounds__(FINISH_THREADS, 1)
bias_finish(float *sum, int add, const float *partial, uint32_t blocks, uint32_t c)
{
    __shared__ double shared[2][FINISH_THREADS];
    uint32_t channel = my_channel();
    double total[2];
    add_blocks(total, partial, blocks, c, channel, shared, add_both);
    if (threadIdx.y == 0 && channel < c)
        ls_put_sum(&sum[channel], total[0], add);
}

cudaError_t ls_bias_finish(float *sum, int add, const float *partial, size_t m, int c,
                             cudaStream_t stream)
{
    bias_finish<<<finish_grid(c), finish_tile(), 0, stream>>>(
        sum, add, partial, (uint32_t)blocks_of(m), (uint32_t)c);
    return cudaGetLastError();
}

cudaError_t ls_k_bias_grad(float *sum, void *masked, const void *dy, const void *y, int half,
                           int add, float *partial, size_t m, int c, cudaStream_t stream)
{
    LS_TILED(half, c, T, V, LS_CHOSEN(y, RELU, {
        bias_partial<T, V, RELU><<<ls_over(m, c, V), ls_tile_of(c, V), 0, stream>>>(
            sum, add, partial, (T *)masked, (const T *)dy, (const T *)y, (uint32_t)m, c);
    }));
    return blocks_of(m) > 1 ? ls_bias_finish(sum, add, partial, m, c, stream)
                            : cudaGetLastError();
}

/* ---- batch norm: statistics ----------------------------------------------------------------- */

/* Computes the mean and Σ(x − mean)² of each block from sums of the differences to the block's
 * first value. These differences are small even if the mean is far from zero. */
template <class T, int V>
__global__ static void norm_partial(float *partial, const T *x, uint32_t m, int c)
{
    __shared__ ls_lanes_room<2 * V> room;
    const ls_thread_span span = ls_thread_span_of<V>(m, c);
    float origin[V], sum[2 * V] = {0};
    if (span.has_channels()) {
        ls_widen<V>(origin, ls_load<T, V>(x, span.at(span.first)));
        each_value<V>(span, x, [&](uint32_t, bool inside, const float value[V]) {
            for (int v = 0; inside && v < V; v++) {
                float d = value[v] - origin[v];
                sum[v] += d;
                sum[V + v] += d * d;
            }
        });
    }
    ls_add_lanes<2 * V>(sum, room);
    const uint32_t channel = span.chunk * V + threadIdx.y;
    if (threadIdx.y >= V || !span.has_channels())
        return;
    double n = (double)(span.end - span.first), s = ls_total_of<2 * V>(room, threadIdx.y);
    double q = ls_total_of<2 * V>(room, V + threadIdx.y) - s * s / n;
    double from = ls_get(x, (size_t)span.first * c + channel);
    partial[blockIdx.x * (uint32_t)c + channel] = (float)(from + s / n);
    partial[(gridDim.x + blockIdx.x) * (uint32_t)c + channel] = (float)(q > 0 ? q : 0);
}

/* Returns the number of positions of a block; 0 for blocks beyond the last block, for which
 * add_blocks calls `add` too. */
__device__ static double rows_in(uint32_t block, uint32_t m)
{
    uint32_t first = block * LS_K_BLOCK;
    return first >= m ? 0 : (double)(m - first < LS_K_BLOCK ? m - first : LS_K_BLOCK);
}

/* Combines the statistics of the blocks: block i has nᵢ positions, meanᵢ, and qᵢ = Σ(x − meanᵢ)².
 * m = Σ nᵢ, mean = Σ nᵢ·meanᵢ / m, Σ(x − mean)² = Σ qᵢ + nᵢ·(meanᵢ − mean)². Only sum[0] of each
 * pair of sums is used. */
__global__ static void __launch_bounds__(FINISH_THREADS, 1)
norm_finish(float *mean, float *inverse, float *contribution, int add, const float *partial,
            uint32_t blocks, ls_k_norm k)
{
    __shared__ double shared[2][FINISH_THREADS];
    const uint32_t channel = my_channel(), c = (uint32_t)k.c, m = (uint32_t)k.m;
    double sums[2], squares[2];
    add_blocks(sums, partial, blocks, c, channel, shared,
               [=](double to[2], uint32_t block, float block_mean, float) {
                   to[0] += rows_in(block, m) * block_mean;
               });
    double centre = sums[0] / (double)k.m;
    add_blocks(squares, partial, blocks, c, channel, shared,
               [=](double to[2], uint32_t block, float block_mean, float within) {
                   double d = block_mean - centre;
                   to[0] += within + rows_in(block, m) * d * d;
               });
    if (threadIdx.y != 0 || channel >= c)
        return;
    double n = (double)k.m, variance = squares[0] / n;
    mean[channel] = (float)centre;
    inverse[channel] = (float)(1 / sqrt(variance + (double)k.epsilon));
    if (contribution) {
        ls_put_sum(&contribution[channel], k.rows * centre, add);
        ls_put_sum(&contribution[c + channel], k.rows * (n > 1 ? squares[0] / (n - 1) : variance),
                   add);
    }
}

cudaError_t ls_k_norm_statistics(float *mean, float *inverse, float *contribution, int add,
                                 const void *x, float *partial, const ls_k_norm *norm,
                                 cudaStream_t stream)
{
    LS_TILED(norm->half, norm->c, T, V,
             norm_partial<T, V><<<ls_over(norm->m, norm->c, V), ls_tile_of(norm->c, V), 0,
                                  stream>>>(partial, (const T *)x, (uint32_t)norm->m, norm->c));
    norm_finish<<<finish_grid(norm->c), finish_tile(), 0, stream>>>(
        mean, inverse, contribution, add, partial, (uint32_t)blocks_of(norm->m), *norm);
    return cudaGetLastError();
}

__global__ static void norm_running(float *mean, float *inverse, const float *running, ls_k_norm k)
{
    LS_EACH(i, (size_t)k.c) {
        mean[i] = running[i];
        inverse[i] = (float)(1 / sqrt((double)running[k.c + i] + (double)k.epsilon));
    }
}

cudaError_t ls_k_norm_running(float *mean, float *inverse, const float *running,
                              const ls_k_norm *norm, cudaStream_t stream)
{
    norm_running<<<ls_blocks((size_t)norm->c), LS_THREADS, 0, stream>>>(mean, inverse, running,
                                                                        *norm);
    return cudaGetLastError();
}

/* ---- batch norm: forward -------------------------------------------------------------------- */

/* Coefficients for each channel of a chunk: y = (x − centre)·scale + bias. */
template <int V> struct norm_line {
    float centre[V], scale[V], bias[V];
};

template <class T, int V, bool ADD, bool RELU>
__global__ static void __launch_bounds__(LS_THREADS, 3)
norm_apply(T *y, uint8_t *mask, const T *x, const T *x2, const float *mean,
                                  const float *inverse, const float *weight, const float *bias,
                                  ls_k_norm k)
{
    const ls_thread_span span = ls_thread_span_of<V>((uint32_t)k.m, k.c);
    norm_line<V> line;
    if (!span.has_channels())
        return;
    for (int v = 0; v < V; v++) {
        const uint32_t channel = span.chunk * V + v;
        line.centre[v] = mean[channel];
        line.scale[v] = inverse[channel] * weight[channel];
        line.bias[v] = bias[channel];
    }
    each_position<T, V, ADD, false>(
        span, x, x2, nullptr, [&](uint32_t at, bool inside, float value[V], const float other[V]) {
            for (int v = 0; v < V; v++) {
                value[v] = (value[v] - line.centre[v]) * line.scale[v] + line.bias[v];
                if (ADD)
                    value[v] += other[v];
                if (RELU)
                    value[v] = value[v] > 0 ? value[v] : 0;
            }
            if (inside)
                ls_store<V>(y, at, value);
            if (inside && RELU && mask)
                mask[at] = (uint8_t)ls_above_zero<V>(value);
        });
}

cudaError_t ls_k_norm_apply(void *y, uint8_t *mask, const void *x, const void *x2,
                            const float *mean, const float *inverse, const float *weight,
                            const float *bias, const ls_k_norm *norm, cudaStream_t stream)
{
    LS_TILED(norm->half, norm->c, T, V, LS_CHOSEN(x2, ADD, LS_CHOSEN(norm->relu, RELU, {
        norm_apply<T, V, ADD, RELU><<<ls_over(norm->m, norm->c, V), ls_tile_of(norm->c, V), 0,
                                      stream>>>((T *)y, mask, (const T *)x, (const T *)x2, mean,
                                                inverse, weight, bias, *norm);
    })));
    return cudaGetLastError();
}

/* ---- batch norm: backward ------------------------------------------------------------------- */

template <class T, int V, bool RELU>
__global__ static void grad_partial(float *partial, const T *x, const T *dy, const uint8_t *mask,
                                    const float *mean, const float *inverse, ls_k_norm k)
{
    __shared__ ls_lanes_room<2 * V> room;
    const ls_thread_span span = ls_thread_span_of<V>((uint32_t)k.m, k.c);
    const uint32_t c = (uint32_t)k.c;
    float centre[V], sum[2 * V] = {0};
    for (int v = 0; span.has_channels() && v < V; v++)
        centre[v] = mean[span.chunk * V + v];
    if (span.has_channels())
        each_position<T, V, true, RELU>(
            span, x, dy, mask, [&](uint32_t, bool inside, const float value[V], const float g[V]) {
                for (int v = 0; inside && v < V; v++) {
                    sum[v] += g[v];
                    sum[V + v] += g[v] * (value[v] - centre[v]);
                }
            });
    ls_add_lanes<2 * V>(sum, room);
    const uint32_t channel = span.chunk * V + threadIdx.y;
    if (threadIdx.y >= V || !span.has_channels())
        return;
    partial[blockIdx.x * c + channel] = ls_total_of<2 * V>(room, threadIdx.y);
    partial[(gridDim.x + blockIdx.x) * c + channel] =
        ls_total_of<2 * V>(room, V + threadIdx.y) * inverse[channel];
}

__global__ static void __launch_bounds__(FINISH_THREADS, 1)
grad_finish(float *weight_grad, float *bias_grad, float *sums, int add, const float *partial,
            uint32_t blocks, uint32_t c)
{
    __shared__ double shared[2][FINISH_THREADS];
    const uint32_t channel = my_channel();
    double total[2];
    add_blocks(total, partial, blocks, c, channel, shared, add_both);
    if (threadIdx.y != 0 || channel >= c)
        return;
    sums[channel] = (float)total[0];
    sums[c + channel] = (float)total[1];
    ls_put_sum(&bias_grad[channel], total[0], add);
    ls_put_sum(&weight_grad[channel], total[1], add);
}

cudaError_t ls_k_norm_grad(float *weight_grad, float *bias_grad, float *sums, int add,
                           const void *x, const void *dy, const uint8_t *mask, const float *mean,
                           const float *inverse, float *partial, const ls_k_norm *norm,
                           cudaStream_t stream)
{
    LS_TILED(norm->half, norm->c, T, V, LS_CHOSEN(norm->relu, RELU, {
        grad_partial<T, V, RELU><<<ls_over(norm->m, norm->c, V), ls_tile_of(norm->c, V), 0,
                                   stream>>>(partial, (const T *)x, (const T *)dy, mask, mean,
                                             inverse, *norm);
    }));
    grad_finish<<<finish_grid(norm->c), finish_tile(), 0, stream>>>(
        weight_grad, bias_grad, sums, add, partial, (uint32_t)blocks_of(norm->m),
        (uint32_t)norm->c);
    return cudaGetLastError();
}

/* Coefficients for each channel of a chunk: dx = factor·(g − first) − (x − centre)·slope. */
template <int V> struct slope_line {
    float centre[V], first[V], factor[V], slope[V];
};

template <class T, int V, bool TWO, bool RELU>
__global__ static void norm_dx(T *dx, T *dx2, const T *x, const T *dy, const uint8_t *mask,
                               const float *mean, const float *inverse, const float *weight,
                               const float *sums, ls_k_norm k)
{
    const ls_thread_span span = ls_thread_span_of<V>((uint32_t)k.m, k.c);
    slope_line<V> line;
    if (!span.has_channels())
        return;
    for (int v = 0; v < V; v++) {
        const uint32_t channel = span.chunk * V + v;
        const float n = (float)k.m, scale = inverse[channel], factor = weight[channel] * scale;
        line.centre[v] = mean[channel];
        line.first[v] = sums[channel] / n;
        line.factor[v] = factor;
        line.slope[v] = factor * scale * (sums[k.c + channel] / n);
    }
    each_position<T, V, true, RELU>(
        span, x, dy, mask, [&](uint32_t at, bool inside, float value[V], const float g[V]) {
            for (int v = 0; v < V; v++)
                value[v] = line.factor[v] * (g[v] - line.first[v]) -
                           (value[v] - line.centre[v]) * line.slope[v];
            if (inside)
                ls_store<V>(dx, at, value);
            if (inside && TWO)
                ls_store<V>(dx2, at, g);
        });
}

cudaError_t ls_k_norm_dx(void *dx, void *dx2, const void *x, const void *dy, const uint8_t *mask,
                         const float *mean, const float *inverse, const float *weight,
                         const float *sums, const ls_k_norm *norm, cudaStream_t stream)
{
    LS_TILED(norm->half, norm->c, T, V, LS_CHOSEN(dx2, TWO, LS_CHOSEN(norm->relu, RELU, {
        norm_dx<T, V, TWO, RELU><<<ls_over(norm->m, norm->c, V), ls_tile_of(norm->c, V), 0,
                                   stream>>>((T *)dx, (T *)dx2, (const T *)x, (const T *)dy, mask,
                                             mean, inverse, weight, sums, *norm);
    })));
    return cudaGetLastError();
}

/* ---- layer norm: one thread block per row ---------------------------------------------------- */

__global__ static void layer_norm(float *y, float *stats, const float *x, const float *weight,
                                  const float *bias, float epsilon, size_t n)
{
    const float *from = x + (size_t)blockIdx.x * n;
    float *to = y + (size_t)blockIdx.x * n, sum = 0, squares = 0;
    for (size_t i = threadIdx.x; i < n; i += LS_THREADS)
        sum += from[i];
    const float mean = ls_sum_of_block(sum) / (float)n;
    for (size_t i = threadIdx.x; i < n; i += LS_THREADS)
        squares += (from[i] - mean) * (from[i] - mean);
    float inverse = 1 / sqrtf(ls_sum_of_block(squares) / (float)n + epsilon);
    /* The sum of squares has exceeded the range of floats. It is computed again from values that
     * are scaled by 2⁻⁶⁴. ε is left out, because it is negligible beside such a sum. */
    if (inverse == 0) {
        squares = 0;
        for (size_t i = threadIdx.x; i < n; i += LS_THREADS)
            squares += ((from[i] - mean) * 0x1p-64f) * ((from[i] - mean) * 0x1p-64f);
        inverse = 0x1p-64f / sqrtf(ls_sum_of_block(squares) / (float)n);
    }
    for (size_t i = threadIdx.x; i < n; i += LS_THREADS)
        to[i] = (from[i] - mean) * inverse * weight[i] + bias[i];
    if (threadIdx.x == 0) {
        stats[2 * (size_t)blockIdx.x] = mean;
        stats[2 * (size_t)blockIdx.x + 1] = inverse;
    }
}

cudaError_t ls_k_layer_norm(float *y, float *stats, const float *x, const float *weight,
                            const float *bias, float epsilon, int rows, size_t n,
                            cudaStream_t stream)
{
    layer_norm<<<(unsigned)rows, LS_THREADS, 0, stream>>>(y, stats, x, weight, bias, epsilon, n);
    return cudaGetLastError();
}

__global__ static void layer_norm_dx(float *dx, const float *x, const float *dy,
                                     const float *weight, const float *stats, size_t n)
{
    const size_t first = (size_t)blockIdx.x * n;
    const float mean = stats[2 * (size_t)blockIdx.x], inverse = stats[2 * (size_t)blockIdx.x + 1];
    float sum_g = 0, sum_gx = 0;
    for (size_t i = threadIdx.x; i < n; i += LS_THREADS) {
        float g = dy[first + i] * weight[i];
        sum_g += g;
        sum_gx += g * ((x[first + i] - mean) * inverse);
    }
    sum_g = ls_sum_of_block(sum_g) / (float)n;
    sum_gx = ls_sum_of_block(sum_gx) / (float)n;
    for (size_t i = threadIdx.x; i < n; i += LS_THREADS)
        dx[first + i] = inverse * (dy[first + i] * weight[i] - sum_g -
                                   (x[first + i] - mean) * inverse * sum_gx);
}

cudaError_t ls_k_layer_norm_dx(float *dx, const float *x, const float *dy, const float *weight,
                               const float *stats, int rows, size_t n, cudaStream_t stream)
{
    layer_norm_dx<<<(unsigned)rows, LS_THREADS, 0, stream>>>(dx, x, dy, weight, stats, n);
    return cudaGetLastError();
}

__global__ static void layer_norm_grad(float *weight_grad, float *bias_grad, int add,
                                       const float *x, const float *dy, const float *stats,
                                       int rows, size_t n)
{
    LS_EACH(i, n) {
        double sum = 0, product = 0;
        for (int r = 0; r < rows; r++) {
            float d = dy[(size_t)r * n + i];
            sum += d;
            product += d * ((x[(size_t)r * n + i] - stats[2 * r]) * stats[2 * r + 1]);
        }
        weight_grad[i] = (add ? weight_grad[i] : 0) + (float)product;
        bias_grad[i] = (add ? bias_grad[i] : 0) + (float)sum;
    }
}

cudaError_t ls_k_layer_norm_grad(float *weight_grad, float *bias_grad, int add, const float *x,
                                 const float *dy, const float *stats, int rows, size_t n,
                                 cudaStream_t stream)
{
    layer_norm_grad<<<ls_blocks(n), LS_THREADS, 0, stream>>>(weight_grad, bias_grad, add, x, dy,
                                                             stats, rows, n);
    return cudaGetLastError();
}
