/* SPDX-License-Identifier: MIT */
/* Pooling and upsampling, channels last. Windows of 2 × 2 that lie side by side (quads), which most
 * networks use, have kernels of their own. These kernels also add a bias and apply a relu before
 * pooling. Indices are divided with ls_divisor, which the host has prepared. Chunks are those of
 * kernels.cuh. */
#include "cuda/kernels/kernels.cuh"

/* ---- adjacent windows of 2 × 2 --------------------------------------------------------------- */

struct quads {
    ls_k_quads k;
    uint32_t m, y_w, y_h; /* size of y; m: positions */
    ls_divisor by_w, by_h;
};

static quads quads_of(const ls_k_quads *k)
{
    const int y_w = k->w / 2, y_h = k->h / 2;
    quads s = {*k, (uint32_t)k->rows * y_w * y_h, (uint32_t)y_w, (uint32_t)y_h,
               ls_divide_by(y_w), ls_divide_by(y_h)};
    return s;
}

/* A window: its line and column in y (i, j), and the offset of its first chunk in x (at). */
struct window_of_quads {
    uint32_t i, j, at;
};

__device__ static window_of_quads find_window(const quads &s, uint32_t position,
                                              const ls_thread_span &span)
{
    const uint32_t line = ls_quotient(position, s.by_w), row = ls_quotient(line, s.by_h);
    window_of_quads q = {line - row * s.y_h, position - line * s.y_w, 0};
    q.at = ((row * s.k.h + 2 * q.i) * s.k.w + 2 * q.j) * span.chunks + span.chunk;
    return q;
}

/* Returns the offset of pixel q of the window that begins at chunk `at`. */
__device__ static uint32_t pixel(const quads &s, const ls_thread_span &span, uint32_t at, int q)
{
    return at + (q / 2 * (uint32_t)s.k.w + q % 2) * span.chunks;
}

template <class T, int V, bool MAX>
__global__ static void quads_forward(T *y, uint8_t *bits, const T *x, const float *bias,
                                     const __grid_constant__ quads s)
{
    const ls_thread_span span = ls_thread_span_of<V>(s.m, s.k.c);
    float b[V];
    if (!span.has_channels())
        return;
    for (int v = 0; v < V; v++)
        b[v] = bias ? bias[span.chunk * V + v] : 0;
    for (uint32_t i = span.first + threadIdx.y; i < span.end; i += blockDim.y) {
        const uint32_t at = find_window(s, i, span).at;
        ls_pack<T, V> in[4];
        ls_pack<uint8_t, V> kept;
        float pixels[4][V], out[V];
        LS_QUAD(q)
            in[q] = ls_load<T, V>(x, pixel(s, span, at, q));
        LS_QUAD(q)
            ls_widen<V>(pixels[q], in[q]);
        for (int v = 0; v < V; v++) {
            float of[4];
            uint32_t found;
            LS_QUAD(q)
                of[q] = bias ? pixels[q][v] + b[v] : pixels[q][v];
            out[v] = ls_window_value<MAX>(&found, of, s.k.relu);
            kept.of[v] = (uint8_t)found;
        }
        ls_store<V>(y, i * span.chunks + span.chunk, out);
        if (bits)
            ((ls_pack<uint8_t, V> *)bits)[i * span.chunks + span.chunk] = kept;
    }
}

cudaError_t ls_k_quads_forward(void *y, uint8_t *bits, const void *x, const float *bias,
                               const ls_k_quads *k, cudaStream_t stream)
{
    const quads s = quads_of(k);
    LS_TILED(k->half, k->c, T, V, LS_CHOSEN(k->max, MAX, {
        quads_forward<T, V, MAX><<<ls_over(s.m, k->c, V), ls_tile_of(k->c, V), 0, stream>>>(
            (T *)y, bits, (const T *)x, bias, s);
    }));
    return cudaGetLastError();
}

/* If the last line or column of x is in no window, sets its gradient to 0. */
template <class T, int V>
__device__ static void clear_rest(T *dx, const quads &s, const ls_thread_span &span,
                                  window_of_quads q)
{
    const float zero[V] = {0};
    const bool right = s.k.w % 2 != 0 && q.j + 1 == s.y_w,
               below = s.k.h % 2 != 0 && q.i + 1 == s.y_h;
    for (uint32_t line = 0; line < 3; line++)
        for (uint32_t column = 0; column < 3; column++)
            if ((line == 2 || column == 2) && (line < 2 || below) && (column < 2 || right))
                ls_store<V>(dx, q.at + (line * s.k.w + column) * span.chunks, zero);
}

/* Computes dx. With SUMS, also computes the gradient of the bias, which is the sum of dx over all
 * positions. */
template <class T, int V, bool SUMS>
__global__ static void quads_back(T *dx, float *total, int add, float *partial, const T *dy,
                                  const uint8_t *bits, const __grid_constant__ quads s)
{
    __shared__ ls_lanes_room<V> room;
    const ls_thread_span span = ls_thread_span_of<V>(s.m, s.k.c);
    const float share = s.k.max ? 1 : 0.25f;
    const bool odd = s.k.w % 2 != 0 || s.k.h % 2 != 0;
    float sum[V] = {0};
    for (uint32_t i = span.first + threadIdx.y; span.has_channels() && i < span.end;
         i += blockDim.y) {
        const window_of_quads window = find_window(s, i, span);
        const uint32_t from = i * span.chunks + span.chunk;
        const ls_pack<uint8_t, V> kept = ((const ls_pack<uint8_t, V> *)bits)[from];
        float g[V];
        ls_widen<V>(g, ls_load<T, V>(dy, from));
        LS_QUAD(q) {
            float out[V];
            for (int v = 0; v < V; v++) {
                out[v] = kept.of[v] >> q & 1 ? g[v] * share : 0;
                if (SUMS)
                    sum[v] += out[v];
            }
            ls_store<V>(dx, pixel(s, span, window.at, q), out);
        }
        if (odd)
            clear_rest<T, V>(dx, s, span, window);
    }
    if (!SUMS)
        return;
    ls_add_lanes<V>(sum, room);
    ls_put_partial<V>(total, add, partial, room, span, s.k.c);
}

cudaError_t ls_k_quads_back(void *dx, float *bias_sum, int add, const void *dy,
                            const uint8_t *bits, float *partial, const ls_k_quads *k,
                            cudaStream_t stream)
{
    const quads s = quads_of(k);
    LS_TILED(k->half, k->c, T, V, LS_CHOSEN(bias_sum, SUMS, {
        quads_back<T, V, SUMS><<<ls_over(s.m, k->c, V), ls_tile_of(k->c, V), 0, stream>>>(
            (T *)dx, bias_sum, add, partial, (const T *)dy, bits, s);
    }));
    return bias_sum && s.m > LS_K_BLOCK
               ? ls_bias_finish(bias_sum, add, partial, s.m, k->c, stream)
               : cudaGetLastError();
}

/* ---- any windows ----------------------------------------------------------------------------- */

/* A thread works on a chunk of V channels of one pixel: a pixel of y in forward, a pixel of x in
 * backward. */
struct pool {
    ls_k_pool k;
    uint32_t items, chunks, w, h; /* size of the tensor whose chunks the threads work on */
    ls_divisor by_chunks, by_w, by_h, by_sh, by_sw;
};

static pool pool_of(const ls_k_pool *k, int V, int w, int h)
{
    const int chunks = k->c / V;
    pool s = {*k,
              (uint32_t)k->rows * h * w * chunks,
              (uint32_t)chunks,
              (uint32_t)w,
              (uint32_t)h,
              ls_divide_by(chunks),
              ls_divide_by(w),
              ls_divide_by(h),
              ls_divide_by(k->sh),
              ls_divide_by(k->sw)};
    return s;
}

static unsigned blocks_for(const pool &s)
{
    return (s.items + LS_THREADS - 1) / LS_THREADS;
}

/* Position of an item, that is of what one thread computes: image r, line i, column j, chunk c. */
struct place {
    int r, i, j, c;
};

__device__ static place place_of(const pool &s, uint32_t item)
{
    const uint32_t pixel = ls_quotient(item, s.by_chunks), line = ls_quotient(pixel, s.by_w);
    const uint32_t row = ls_quotient(line, s.by_h);
    place p = {(int)row, (int)(line - row * s.h), (int)(pixel - line * s.w),
               (int)(item - pixel * s.chunks)};
    return p;
}

/* Loops over the pixels (i, j) of a window. The loops are not unrolled, because windows are small
 * and most of the unrolled code would never run. */
#define EACH_OF(w, i, j)                                                                           \
    _Pragma("unroll 1") for (int i = (w).top; i < (w).bottom; i++)                                 \
        _Pragma("unroll 1") for (int j = (w).left; j < (w).right; j++)

/* The part of a window that is inside the image. */
struct window {
    int top, bottom, left, right;
    int pixels; /* number by which an average divides */
};

__device__ static window window_at(const ls_k_pool &k, int i, int j)
{
    int top = i * k.sh - k.ph, left = j * k.sw - k.pw;
    window w = {max(top, 0), min(top + k.kh, k.h), max(left, 0), min(left + k.kw, k.w), 0};
    w.pixels = k.count_padding
                   ? (min(top + k.kh, k.end_h) - top) * (min(left + k.kw, k.end_w) - left)
                   : (w.bottom - w.top) * (w.right - w.left);
    return w;
}

/* Computes the range [first, last] of outputs in one direction whose windows contain position
 * `at` of x. */
__device__ static void covering(int *first, int *last, int at, int kernel, int stride,
                                ls_divisor by_stride, int padding, int outputs)
{
    int from = at + padding - kernel + 1;
    *first = from > 0 ? (int)ls_quotient((uint32_t)(from + stride - 1), by_stride) : 0;
    *last = min((int)ls_quotient((uint32_t)(at + padding), by_stride), outputs - 1);
}

/* Returns the range of outputs whose windows contain the pixel p of x. */
__device__ static window windows_over(const pool &s, const place &p)
{
    window w;
    int last_i, last_j;
    covering(&w.top, &last_i, p.i, s.k.kh, s.k.sh, s.by_sh, s.k.ph, s.k.y_h);
    covering(&w.left, &last_j, p.j, s.k.kw, s.k.sw, s.by_sw, s.k.pw, s.k.y_w);
    w.bottom = last_i + 1;
    w.right = last_j + 1;
    return w;
}

__device__ static uint32_t my_item()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

template <int V, bool MAX>
__global__ static void pool_forward(float *y, int32_t *at, const float *x,
                                    const __grid_constant__ pool s)
{
    if (my_item() >= s.items)
        return;
    const place p = place_of(s, my_item());
    const window w = window_at(s.k, p.i, p.j);
    float out[V];
    ls_pack<int32_t, V> best;
    if constexpr (!MAX)
        for (int v = 0; v < V; v++)
            out[v] = 0;
    EACH_OF(w, i, j) {
        const bool first = i == w.top && j == w.left;
        float value[V];
        ls_widen<V>(value, ls_load<float, V>(x, ((p.r * s.k.h + i) * s.k.w + j) * s.chunks + p.c));
        for (int v = 0; v < V; v++)
            if constexpr (!MAX) {
                out[v] += value[v];
            } else if (first || value[v] > out[v]) {
                out[v] = value[v];
                best.of[v] = i * s.k.w + j;
            }
    }
    if constexpr (!MAX)
        for (int v = 0; v < V; v++)
            out[v] /= (float)w.pixels;
    ls_store<V>(y, my_item(), out);
    if constexpr (MAX)
        if (at)
            ((ls_pack<int32_t, V> *)at)[my_item()] = best;
}

template <int V, bool MAX>
__global__ static void pool_back(float *dx, const float *dy, const int32_t *at,
                                 const __grid_constant__ pool s)
{
    if (my_item() >= s.items)
        return;
    const place p = place_of(s, my_item());
    const window over = windows_over(s, p);
    const int me = p.i * s.k.w + p.j;
    float sum[V] = {0};
    EACH_OF(over, i, j) {
        const float pixels = (float)window_at(s.k, i, j).pixels;
        const uint32_t from = ((p.r * s.k.y_h + i) * s.k.y_w + j) * s.chunks + p.c;
        if constexpr (MAX) {
            const ls_pack<int32_t, V> best = ((const ls_pack<int32_t, V> *)at)[from];
            const ls_pack<float, V> g = ls_load<float, V>(dy, from);
            for (int v = 0; v < V; v++)
                sum[v] += best.of[v] == me ? g.of[v] : 0;
        } else {
            const ls_pack<float, V> g = ls_load<float, V>(dy, from);
            for (int v = 0; v < V; v++)
                sum[v] += g.of[v] / pixels;
        }
    }
    ls_store<V>(dx, my_item(), sum);
}

/* Executes the statement with V as the number of channels of a thread, MAX as k->max, and s as the
 * shape. */
#define POOLED(k, w, h, ...)                                                                       \
    LS_CHOSEN(ls_wide((k)->c, sizeof(float)) > 1, WIDE, {                                          \
        enum { V = WIDE ? 4 : 1 };                                                                 \
        const pool s = pool_of(k, V, w, h);                                                        \
        LS_CHOSEN((k)->max, MAX, __VA_ARGS__);                                                     \
    })

cudaError_t ls_k_pool_forward(float *y, int32_t *at, const float *x, const ls_k_pool *k,
                              cudaStream_t stream)
{
    POOLED(k, k->y_w, k->y_h,
           pool_forward<V, MAX><<<blocks_for(s), LS_THREADS, 0, stream>>>(y, at, x, s));
    return cudaGetLastError();
}

cudaError_t ls_k_pool_back(float *dx, const float *dy, const int32_t *at, const ls_k_pool *k,
                           cudaStream_t stream)
{
    POOLED(k, k->w, k->h,
           pool_back<V, MAX><<<blocks_for(s), LS_THREADS, 0, stream>>>(dx, dy, at, s));
    return cudaGetLastError();
}

/* ---- upsampling ----------------------------------------------------------------------------- */

__global__ static void upsample(float *y, const float *x, ls_k_upsample k, uint32_t count)
{
    const uint32_t c = (uint32_t)k.c, w = (uint32_t)(k.w * k.sw), h = (uint32_t)(k.h * k.sh);
    LS_EACH(i, count) {
        uint32_t pixel = (uint32_t)i / c, column = pixel % w, line = pixel / w % h,
                 row = pixel / w / h;
        uint32_t from =
            (row * (uint32_t)k.h + line / (uint32_t)k.sh) * (uint32_t)k.w + column / (uint32_t)k.sw;
        y[i] = x[from * c + (uint32_t)i % c];
    }
}

__global__ static void upsample_back(float *dx, const float *dy, ls_k_upsample k, uint32_t count)
{
    const uint32_t c = (uint32_t)k.c, wide = (uint32_t)(k.w * k.sw);
    LS_EACH(i, count) {
        uint32_t pixel = (uint32_t)i / c, column = pixel % (uint32_t)k.w,
                 line = pixel / (uint32_t)k.w;
        float sum = 0;
        for (int a = 0; a < k.sh; a++)
            for (int b = 0; b < k.sw; b++)
                sum += dy[((line * (uint32_t)k.sh + (uint32_t)a) * wide + column * (uint32_t)k.sw +
                           (uint32_t)b) *
                              c +
                          (uint32_t)i % c];
        dx[i] = sum;
    }
}

cudaError_t ls_k_upsample_of(float *y, const float *x, const ls_k_upsample *k, cudaStream_t stream)
{
    const size_t count =
        (size_t)k->rows * (size_t)k->c * (size_t)(k->h * k->sh) * (size_t)(k->w * k->sw);
    upsample<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, x, *k, (uint32_t)count);
    return cudaGetLastError();
}

cudaError_t ls_k_upsample_back(float *dx, const float *dy, const ls_k_upsample *k,
                               cudaStream_t stream)
{
    const size_t count = (size_t)k->rows * (size_t)k->c * (size_t)k->h * (size_t)k->w;
    upsample_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dy, *k, (uint32_t)count);
    return cudaGetLastError();
}

/* ---- padding -------------------------------------------------------------------------------- */

__global__ static void pad(float *y, const float *x, ls_k_pad k, uint32_t count)
{
    const uint32_t c = (uint32_t)k.c, w = (uint32_t)k.y_w, h = (uint32_t)k.y_h;
    LS_EACH(i, count) {
        const uint32_t pixel = (uint32_t)i / c, row = pixel / w / h;
        const int line = (int)(pixel / w % h) - k.top, column = (int)(pixel % w) - k.left;
        const bool inside = line >= 0 && line < k.h && column >= 0 && column < k.w;
        const uint32_t from =
            (row * (uint32_t)k.h + (uint32_t)line) * (uint32_t)k.w + (uint32_t)column;
        y[i] = inside ? x[from * c + (uint32_t)i % c] : 0;
    }
}

cudaError_t ls_k_pad_of(float *y, const float *x, const ls_k_pad *k, cudaStream_t stream)
{
    const size_t count = (size_t)k->rows * (size_t)k->c * (size_t)k->y_h * (size_t)k->y_w;
    pad<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, x, *k, (uint32_t)count);
    return cudaGetLastError();
}
