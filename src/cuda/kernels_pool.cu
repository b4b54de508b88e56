/* Pooling, channels last: a thread for each value of the output. Backward looks from the input, at
 * the windows that cover a pixel, in order: no two threads write the same place. */
#include "cuda/kernels.cuh"

/* The value that a thread works on: image r, line i, column j, channel c. */
struct place {
    int r, i, j, c;
};

__device__ static place place_of(size_t at, int channels, int h, int w)
{
    place p;
    p.c = (int)(at % channels);
    at /= channels;
    p.j = (int)(at % w);
    at /= w;
    p.i = (int)(at % h);
    p.r = (int)(at / h);
    return p;
}

/* A window's part inside the image. */
struct window {
    int top, bottom, left, right;
    __device__ int pixels() const { return (bottom - top) * (right - left); }
};

__device__ static window window_at(const ls_k_pool &k, int i, int j)
{
    int top = i * k.sh - k.ph, left = j * k.sw - k.pw;
    window w = {max(top, 0), min(top + k.kh, k.h), max(left, 0), min(left + k.kw, k.w)};
    return w;
}

/* The outputs [first, last] whose windows cover position `at` of a side. */
__device__ static void covering(int *first, int *last, int at, int kernel, int stride, int padding,
                                int outputs)
{
    int from = at + padding - kernel + 1;
    *first = from > 0 ? (from + stride - 1) / stride : 0;
    *last = min((at + padding) / stride, outputs - 1);
}

__device__ static size_t index_of(int r, int i, int j, int c, int h, int w, int channels)
{
    return (((size_t)r * h + i) * w + j) * channels + c;
}

/* ---- maximum -------------------------------------------------------------------------------- */

__global__ static void pool_max(float *y, int32_t *at, const float *x, ls_k_pool k)
{
    LS_EACH(o, (size_t)k.rows * k.y_h * k.y_w * k.c) {
        place p = place_of(o, k.c, k.y_h, k.y_w);
        window w = window_at(k, p.i, p.j);
        int best = w.top * k.w + w.left;
        float most = x[index_of(p.r, w.top, w.left, p.c, k.h, k.w, k.c)];
        for (int i = w.top; i < w.bottom; i++)
            for (int j = w.left; j < w.right; j++) {
                float value = x[index_of(p.r, i, j, p.c, k.h, k.w, k.c)];
                if (value > most) {
                    most = value;
                    best = i * k.w + j;
                }
            }
        y[o] = most;
        if (at)
            at[o] = best;
    }
}

cudaError_t ls_k_pool_max(float *y, int32_t *at, const float *x, const ls_k_pool *pool,
                          cudaStream_t stream)
{
    size_t count = (size_t)pool->rows * pool->y_h * pool->y_w * pool->c;
    pool_max<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, at, x, *pool);
    return cudaGetLastError();
}

__global__ static void pool_max_back(float *dx, const float *dy, const int32_t *at, ls_k_pool k)
{
    LS_EACH(o, (size_t)k.rows * k.h * k.w * k.c) {
        place p = place_of(o, k.c, k.h, k.w);
        int top, bottom, left, right;
        covering(&top, &bottom, p.i, k.kh, k.sh, k.ph, k.y_h);
        covering(&left, &right, p.j, k.kw, k.sw, k.pw, k.y_w);
        float sum = 0;
        for (int i = top; i <= bottom; i++)
            for (int j = left; j <= right; j++) {
                size_t from = index_of(p.r, i, j, p.c, k.y_h, k.y_w, k.c);
                if (at[from] == p.i * k.w + p.j)
                    sum += dy[from];
            }
        dx[o] = sum;
    }
}

cudaError_t ls_k_pool_max_back(float *dx, const float *dy, const int32_t *at,
                               const ls_k_pool *pool, cudaStream_t stream)
{
    size_t count = (size_t)pool->rows * pool->h * pool->w * pool->c;
    pool_max_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dy, at, *pool);
    return cudaGetLastError();
}

/* ---- average -------------------------------------------------------------------------------- */

__global__ static void pool_average(float *y, const float *x, ls_k_pool k)
{
    LS_EACH(o, (size_t)k.rows * k.y_h * k.y_w * k.c) {
        place p = place_of(o, k.c, k.y_h, k.y_w);
        window w = window_at(k, p.i, p.j);
        float sum = 0;
        for (int i = w.top; i < w.bottom; i++)
            for (int j = w.left; j < w.right; j++)
                sum += x[index_of(p.r, i, j, p.c, k.h, k.w, k.c)];
        y[o] = sum / (float)w.pixels();
    }
}

cudaError_t ls_k_pool_average(float *y, const float *x, const ls_k_pool *pool, cudaStream_t stream)
{
    size_t count = (size_t)pool->rows * pool->y_h * pool->y_w * pool->c;
    pool_average<<<ls_blocks(count), LS_THREADS, 0, stream>>>(y, x, *pool);
    return cudaGetLastError();
}

__global__ static void pool_average_back(float *dx, const float *dy, ls_k_pool k)
{
    LS_EACH(o, (size_t)k.rows * k.h * k.w * k.c) {
        place p = place_of(o, k.c, k.h, k.w);
        int top, bottom, left, right;
        covering(&top, &bottom, p.i, k.kh, k.sh, k.ph, k.y_h);
        covering(&left, &right, p.j, k.kw, k.sw, k.pw, k.y_w);
        float sum = 0;
        for (int i = top; i <= bottom; i++)
            for (int j = left; j <= right; j++)
                sum += dy[index_of(p.r, i, j, p.c, k.y_h, k.y_w, k.c)] /
                       (float)window_at(k, i, j).pixels();
        dx[o] = sum;
    }
}

cudaError_t ls_k_pool_average_back(float *dx, const float *dy, const ls_k_pool *pool,
                                   cudaStream_t stream)
{
    size_t count = (size_t)pool->rows * pool->h * pool->w * pool->c;
    pool_average_back<<<ls_blocks(count), LS_THREADS, 0, stream>>>(dx, dy, *pool);
    return cudaGetLastError();
}
