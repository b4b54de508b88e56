/* Sums over positions of an m × c tensor, and batch norm, which is made of them.
 *
 * The order of a sum: positions fall into blocks of LS_K_BLOCK. Within a block, lane y of a tile
 * (ls_tile) adds positions y, y + lanes, …, and the lanes are added in a binary tree; the tile
 * depends on c alone. The blocks' sums are then added in double by LANES lanes in the same way.
 */
#include "cuda/kernels.cuh"

/* Lanes that add up blocks, 32 channels beside each other. */
enum { LANES = 32, FINISH_THREADS = 32 * LANES };

static size_t blocks_of(size_t m)
{
    return (m + LS_K_BLOCK - 1) / LS_K_BLOCK;
}

size_t ls_k_partial_floats(size_t m, int c)
{
    return 2 * blocks_of(m) * (size_t)c;
}

/* Adds both values of all lanes of a channel; the result is lane 0's. The lanes are a power of
 * two; everybody of the block takes part. */
template <class T, unsigned N>
__device__ static void add_lanes(T *first, T *second, T (*shared)[N])
{
    unsigned x = blockDim.x, me = threadIdx.y * x + threadIdx.x;
    shared[0][me] = *first;
    shared[1][me] = *second;
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
            shared[0][me] += shared[0][me + half * x];
            shared[1][me] += shared[1][me + half * x];
        }
    }
    __syncthreads();
    *first = shared[0][threadIdx.x];
    *second = shared[1][threadIdx.x];
    __syncthreads();
}

/* The positions of this block of the grid. */
struct range {
    size_t first, end;
};

__device__ static range my_range(size_t m)
{
    size_t first = (size_t)blockIdx.x * LS_K_BLOCK;
    range r = {first, first + LS_K_BLOCK < m ? first + LS_K_BLOCK : m};
    return r;
}

/* The thread's first position, position k of the batch that begins there, and what a tensor has
 * in it, 0 behind the end. */
__device__ static size_t my_first(range r)
{
    return r.first + threadIdx.y;
}

__device__ static size_t position(size_t first, int k)
{
    return first + (size_t)k * blockDim.y;
}

template <class T>
__device__ static float get_at(const T *p, size_t first, int k, range r, int c, int channel)
{
    size_t i = position(first, k);
    return i < r.end ? ls_get(p, i * c + channel) : 0;
}

__device__ static int my_channel()
{
    return blockIdx.y * blockDim.x + threadIdx.x;
}

/* Σ over all blocks of partial[k][block][c], k = 0, 1, in double; lane 0 of each channel has it. */
__device__ static void add_blocks(double sum[2], const float *partial, size_t blocks, int c,
                                  int channel, double (*shared)[FINISH_THREADS])
{
    sum[0] = sum[1] = 0;
    for (size_t b = threadIdx.y; channel < c && b < blocks; b += LS_BATCH * LANES) {
        float first[LS_BATCH], second[LS_BATCH];
        LS_IN_BATCH(k) {
            size_t at = b + k * LANES;
            first[k] = at < blocks ? partial[at * c + channel] : 0;
            second[k] = at < blocks ? partial[(blocks + at) * c + channel] : 0;
        }
        LS_IN_BATCH(k) {
            sum[0] += first[k];
            sum[1] += second[k];
        }
    }
    add_lanes(&sum[0], &sum[1], shared);
}

__device__ static void put(float *to, double value, int add)
{
    *to = add ? (float)((double)*to + value) : (float)value;
}

static dim3 finish_grid(int c)
{
    return dim3(1, ((unsigned)c + 31) / 32);
}

static dim3 finish_tile()
{
    return dim3(32, LANES);
}

/* ---- bias gradients ------------------------------------------------------------------------- */

/* What is one block is finished at once. */
template <class T>
__global__ static void bias_partial(float *total, int add, float *partial, T *masked, const T *dy,
                                    const T *y, size_t m, int c)
{
    __shared__ float shared[2][LS_THREADS];
    range r = my_range(m);
    int channel = my_channel();
    float sum = 0, unused = 0;
    for (size_t i = my_first(r); channel < c && i < r.end; i += LS_BATCH * blockDim.y) {
        float g[LS_BATCH], shown[LS_BATCH];
        LS_IN_BATCH(k) {
            g[k] = get_at(dy, i, k, r, c, channel);
            shown[k] = y ? get_at(y, i, k, r, c, channel) : 1;
        }
        LS_IN_BATCH(k) {
            size_t at = position(i, k);
            float value = shown[k] > 0 ? g[k] : 0;
            if (masked && at < r.end)
                ls_put(masked, at * c + channel, value);
            sum += value; /* behind the end: 0 */
        }
    }
    add_lanes(&sum, &unused, shared);
    if (threadIdx.y != 0 || channel >= c)
        return;
    if (gridDim.x == 1) {
        put(&total[channel], sum, add);
    } else {
        partial[(size_t)blockIdx.x * c + channel] = sum;
        partial[((size_t)gridDim.x + blockIdx.x) * c + channel] = 0;
    }
}

__global__ static void __launch_bounds__(FINISH_THREADS)
bias_finish(float *sum, int add, const float *partial, size_t blocks, int c)
{
    __shared__ double shared[2][FINISH_THREADS];
    int channel = my_channel();
    double total[2];
    add_blocks(total, partial, blocks, c, channel, shared);
    if (threadIdx.y == 0 && channel < c)
        put(&sum[channel], total[0], add);
}

cudaError_t ls_k_bias_grad(float *sum, void *masked, const void *dy, const void *y, int half,
                           int add, float *partial, size_t m, int c, cudaStream_t stream)
{
    LS_TYPED(half, T,
             bias_partial<<<ls_tile_grid(m, c, LS_K_BLOCK), ls_tile(c), 0, stream>>>(
                 sum, add, partial, (T *)masked, (const T *)dy, (const T *)y, m, c));
    if (blocks_of(m) > 1)
        bias_finish<<<finish_grid(c), finish_tile(), 0, stream>>>(sum, add, partial, blocks_of(m),
                                                                  c);
    return cudaGetLastError();
}

/* ---- batch norm: statistics ----------------------------------------------------------------- */

/* Of each block its mean and Σ(x − mean)², from sums of the differences to its first value: those
 * are small where the mean is far from zero. */
template <class T>
__global__ static void norm_partial(float *partial, const T *x, size_t m, int c)
{
    __shared__ float shared[2][LS_THREADS];
    range r = my_range(m);
    int channel = my_channel();
    float origin = channel < c ? ls_get(x, r.first * c + channel) : 0, sum = 0, squares = 0;
    for (size_t i = my_first(r); channel < c && i < r.end; i += LS_BATCH * blockDim.y) {
        float value[LS_BATCH];
        LS_IN_BATCH(k)
            value[k] = get_at(x, i, k, r, c, channel);
        LS_IN_BATCH(k) {
            float d = position(i, k) < r.end ? value[k] - origin : 0;
            sum += d;
            squares += d * d;
        }
    }
    add_lanes(&sum, &squares, shared);
    if (threadIdx.y == 0 && channel < c) {
        double n = (double)(r.end - r.first), s = sum, q = squares - s * s / n;
        partial[(size_t)blockIdx.x * c + channel] = (float)(origin + s / n);
        partial[((size_t)gridDim.x + blockIdx.x) * c + channel] = (float)(q > 0 ? q : 0);
    }
}

/* 0 behind the last block. */
__device__ static double rows_in(size_t block, size_t m)
{
    size_t first = block * LS_K_BLOCK;
    return first >= m ? 0 : (double)(m - first < LS_K_BLOCK ? m - first : LS_K_BLOCK);
}

/* m = Σ nᵢ, mean = Σ nᵢ·meanᵢ / m, Σ(x − mean)² = Σ qᵢ + nᵢ·(meanᵢ − mean)². */
__global__ static void __launch_bounds__(FINISH_THREADS)
norm_finish(float *mean, float *inverse, float *contribution, int add,
                                   const float *partial, size_t blocks, ls_k_norm k)
{
    __shared__ double shared[2][FINISH_THREADS];
    int channel = my_channel();
    double sum = 0, squares = 0, unused = 0;
    for (size_t b = threadIdx.y; channel < k.c && b < blocks; b += LS_BATCH * LANES) {
        float means[LS_BATCH];
        LS_IN_BATCH(n) {
            size_t at = b + n * LANES;
            means[n] = at < blocks ? partial[at * k.c + channel] : 0;
        }
        LS_IN_BATCH(n)
            sum += rows_in(b + n * LANES, k.m) * means[n];
    }
    add_lanes(&sum, &unused, shared);
    double centre = sum / (double)k.m;
    for (size_t b = threadIdx.y; channel < k.c && b < blocks; b += LS_BATCH * LANES) {
        float means[LS_BATCH], within[LS_BATCH];
        LS_IN_BATCH(n) {
            size_t at = b + n * LANES;
            means[n] = at < blocks ? partial[at * k.c + channel] : 0;
            within[n] = at < blocks ? partial[(blocks + at) * k.c + channel] : 0;
        }
        LS_IN_BATCH(n) {
            double d = means[n] - centre;
            squares += within[n] + rows_in(b + n * LANES, k.m) * d * d;
        }
    }
    add_lanes(&squares, &unused, shared);
    if (threadIdx.y != 0 || channel >= k.c)
        return;
    double n = (double)k.m, variance = squares / n;
    mean[channel] = (float)centre;
    inverse[channel] = (float)(1 / sqrt(variance + (double)k.epsilon));
    if (contribution) {
        put(&contribution[channel], k.rows * centre, add);
        put(&contribution[k.c + channel], k.rows * (n > 1 ? squares / (n - 1) : variance), add);
    }
}

cudaError_t ls_k_norm_statistics(float *mean, float *inverse, float *contribution, int add,
                                 const void *x, float *partial, const ls_k_norm *norm,
                                 cudaStream_t stream)
{
    LS_TYPED(norm->half, T,
             norm_partial<<<ls_tile_grid(norm->m, norm->c, LS_K_BLOCK), ls_tile(norm->c), 0,
                            stream>>>(partial, (const T *)x, norm->m, norm->c));
    norm_finish<<<finish_grid(norm->c), finish_tile(), 0, stream>>>(
        mean, inverse, contribution, add, partial, blocks_of(norm->m), *norm);
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

template <class T>
__global__ static void norm_apply(T *y, const T *x, const T *x2, const float *mean,
                                  const float *inverse, const float *weight, const float *bias,
                                  ls_k_norm k)
{
    range r = my_range(k.m);
    int channel = my_channel();
    if (channel >= k.c)
        return;
    float centre = mean[channel], scale = inverse[channel], w = weight[channel], b = bias[channel];
    for (size_t i = my_first(r); i < r.end; i += LS_BATCH * blockDim.y) {
        float in[LS_BATCH], in2[LS_BATCH];
        LS_IN_BATCH(n) {
            in[n] = get_at(x, i, n, r, k.c, channel);
            in2[n] = x2 ? get_at(x2, i, n, r, k.c, channel) : 0;
        }
        LS_IN_BATCH(n) {
            size_t at = position(i, n);
            float value = (in[n] - centre) * scale * w + b;
            if (x2)
                value += in2[n];
            if (at < r.end)
                ls_put(y, at * k.c + channel, k.relu && !(value > 0) ? 0 : value);
        }
    }
}

cudaError_t ls_k_norm_apply(void *y, const void *x, const void *x2, const float *mean,
                            const float *inverse, const float *weight, const float *bias,
                            const ls_k_norm *norm, cudaStream_t stream)
{
    LS_TYPED(norm->half, T,
             norm_apply<<<ls_tile_grid(norm->m, norm->c, LS_K_BLOCK), ls_tile(norm->c), 0,
                          stream>>>((T *)y, (const T *)x, (const T *)x2, mean, inverse, weight,
                                    bias, *norm));
    return cudaGetLastError();
}

/* ---- batch norm: backward ------------------------------------------------------------------- */

template <class T>
__global__ static void grad_partial(float *partial, const T *x, const T *dy, const T *y,
                                    const float *mean, const float *inverse, ls_k_norm k)
{
    __shared__ float shared[2][LS_THREADS];
    range r = my_range(k.m);
    int channel = my_channel();
    float sum = 0, product = 0, centre = channel < k.c ? mean[channel] : 0;
    for (size_t i = my_first(r); channel < k.c && i < r.end; i += LS_BATCH * blockDim.y) {
        float in[LS_BATCH], g[LS_BATCH], shown[LS_BATCH];
        LS_IN_BATCH(n) {
            in[n] = get_at(x, i, n, r, k.c, channel);
            g[n] = get_at(dy, i, n, r, k.c, channel);
            shown[n] = k.relu ? get_at(y, i, n, r, k.c, channel) : 1;
        }
        LS_IN_BATCH(n) {
            float value = shown[n] > 0 ? g[n] : 0; /* behind the end: 0 */
            sum += value;
            product += value * (in[n] - centre);
        }
    }
    add_lanes(&sum, &product, shared);
    if (threadIdx.y == 0 && channel < k.c) {
        partial[(size_t)blockIdx.x * k.c + channel] = sum;
        partial[((size_t)gridDim.x + blockIdx.x) * k.c + channel] = product * inverse[channel];
    }
}

__global__ static void __launch_bounds__(FINISH_THREADS)
grad_finish(float *weight_grad, float *bias_grad, float *sums, int add,
                                   const float *partial, size_t blocks, int c)
{
    __shared__ double shared[2][FINISH_THREADS];
    int channel = my_channel();
    double total[2];
    add_blocks(total, partial, blocks, c, channel, shared);
    if (threadIdx.y != 0 || channel >= c)
        return;
    sums[channel] = (float)total[0];
    sums[c + channel] = (float)total[1];
    put(&bias_grad[channel], total[0], add);
    put(&weight_grad[channel], total[1], add);
}

cudaError_t ls_k_norm_grad(float *weight_grad, float *bias_grad, float *sums, int add,
                           const void *x, const void *dy, const void *y, const float *mean,
                           const float *inverse, float *partial, const ls_k_norm *norm,
                           cudaStream_t stream)
{
    LS_TYPED(norm->half, T,
             grad_partial<<<ls_tile_grid(norm->m, norm->c, LS_K_BLOCK), ls_tile(norm->c), 0,
                            stream>>>(partial, (const T *)x, (const T *)dy, (const T *)y, mean,
                                      inverse, *norm));
    grad_finish<<<finish_grid(norm->c), finish_tile(), 0, stream>>>(
        weight_grad, bias_grad, sums, add, partial, blocks_of(norm->m), norm->c);
    return cudaGetLastError();
}

template <class T>
__global__ static void norm_dx(T *dx, T *dx2, const T *x, const T *dy, const T *y,
                               const float *mean, const float *inverse, const float *weight,
                               const float *sums, ls_k_norm k)
{
    range r = my_range(k.m);
    int channel = my_channel();
    if (channel >= k.c)
        return;
    float n = (float)k.m, centre = mean[channel], scale = inverse[channel];
    float first = sums[channel] / n, second = sums[k.c + channel] / n;
    float factor = weight[channel] * scale;
    for (size_t i = my_first(r); i < r.end; i += LS_BATCH * blockDim.y) {
        float in[LS_BATCH], back[LS_BATCH], shown[LS_BATCH];
        LS_IN_BATCH(j) {
            in[j] = get_at(x, i, j, r, k.c, channel);
            back[j] = get_at(dy, i, j, r, k.c, channel);
            shown[j] = k.relu ? get_at(y, i, j, r, k.c, channel) : 1;
        }
        LS_IN_BATCH(j) {
            size_t at = position(i, j);
            float g = shown[j] > 0 ? back[j] : 0, unit = (in[j] - centre) * scale;
            if (at >= r.end)
                continue;
            if (dx2)
                ls_put(dx2, at * k.c + channel, g);
            ls_put(dx, at * k.c + channel, factor * (g - first - unit * second));
        }
    }
}

cudaError_t ls_k_norm_dx(void *dx, void *dx2, const void *x, const void *dy, const void *y,
                         const float *mean, const float *inverse, const float *weight,
                         const float *sums, const ls_k_norm *norm, cudaStream_t stream)
{
    LS_TYPED(norm->half, T,
             norm_dx<<<ls_tile_grid(norm->m, norm->c, LS_K_BLOCK), ls_tile(norm->c), 0, stream>>>(
                 (T *)dx, (T *)dx2, (const T *)x, (const T *)dy, (const T *)y, mean, inverse,
                 weight, sums, *norm));
    return cudaGetLastError();
}
