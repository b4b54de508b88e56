/* SPDX-License-Identifier: MIT */
/* Convolutions of few channels, usually the first of a network: forward with bias, relu and pool,
 * and the gradient of the weights. kernels.h says in which order they add. The libraries first copy
 * an image of one channel to one of 4 or 8, for tensor cores, and store the result before it is
 * pooled. These kernels do neither.
 *
 * A thread computes a chunk of V output channels for quads of 2 × 2 pixels. The number of output
 * channels is a multiple of V. In a block, threadIdx.x counts the chunks of a tile, and threadIdx.y
 * counts lanes. `K3` is true for filters of 3 × 3 with stride 1: then a thread keeps the 4 × 4
 * pixels under a quad in registers. */
#include "cuda/kernels/kernels.cuh"

enum {
    V = 4,    /* channels of a thread */
    TILE = 8, /* largest number of chunks of a block */
    LANES = LS_K_CONV_LANES,
    TAPS = 9, /* number of taps whose gradients a thread of few_channels_partial computes */
    FORWARD_QUADS = 2, /* quads of a thread of few_channels_forward */
    FINISH = 8         /* weights of a block of few_channels_finish */
};

/* A thread of a kernel has at most 96 registers: two blocks of 320 threads would fit. */
#define LEAN __launch_bounds__(320, 2)

struct conv {
    ls_k_conv k;
    uint32_t quads, line, image; /* number of quads; of a line; of lines of an image */
    uint32_t chunks, taps;
    uint32_t each; /* quads of a lane of a slice */
    ls_divisor by_line, by_image;
};

static uint32_t ceil_of(size_t n, size_t d)
{
    return (uint32_t)((n + d - 1) / d);
}

static conv conv_of(const ls_k_conv *k)
{
    conv s = {};
    s.k = *k;
    s.line = (uint32_t)(k->pool ? k->y_w / 2 : (k->y_w + 1) / 2);
    s.image = (uint32_t)(k->pool ? k->y_h / 2 : (k->y_h + 1) / 2);
    s.quads = (uint32_t)k->rows * s.line * s.image;
    s.chunks = (uint32_t)k->out / V;
    s.taps = (uint32_t)(k->c * k->kh * k->kw);
    s.each = max(4u, ceil_of(s.quads, (size_t)LANES * LS_K_CONV_SLICES));
    s.by_line = ls_divide_by((int)s.line);
    s.by_image = ls_divide_by((int)s.image);
    return s;
}

static uint32_t slices_of(const conv &s)
{
    return ceil_of(s.quads, LANES * (size_t)s.each);
}

/* Number of gradients: of the weights, then of the bias. */
static uint32_t gradients_of(const ls_k_conv *k)
{
    return (uint32_t)(k->out * (k->c * k->kh * k->kw + 1));
}

static dim3 tile_of(const conv &s)
{
    return dim3(ceil_of(s.chunks, ceil_of(s.chunks, TILE)), LANES);
}

/* ---- parts of both kernels ------------------------------------------------------------------- */

/* A quad: the row of the batch, and the line and column of its first pixel in the result. */
struct quad {
    int row, i, j;
};

__device__ static quad quad_at(const conv &s, uint32_t number)
{
    const uint32_t line = ls_quotient(number, s.by_line), row = ls_quotient(line, s.by_image);
    quad q = {(int)row, (int)(2 * (line - row * s.image)), (int)(2 * (number - line * s.line))};
    return q;
}

/* Returns the pixel (i, j) of a row in channel c of x; 0 outside the image. */
template <class X>
__device__ static float pixel_at(const X *x, const ls_k_conv &k, int row, int i, int j, int c)
{
    const bool inside = (unsigned)i < (unsigned)k.h && (unsigned)j < (unsigned)k.w;
    return inside ? ls_get(x, (uint32_t)(((row * k.h + i) * k.w + j) * k.c + c)) : 0;
}

template <class X>
__device__ static void load_patch_of(float patch[16], const X *x, const ls_k_conv &k, const quad &q,
                                     int c)
{
    const int top = q.i - k.ph, left = q.j - k.pw;
    if (top >= 0 && left >= 0 && top + 4 <= k.h && left + 4 <= k.w) {
        const X *from = x + (uint32_t)(((q.row * k.h + top) * k.w + left) * k.c + c);
#pragma unroll
        for (int p = 0; p < 16; p++)
            patch[p] = ls_get(from, (uint32_t)((p / 4 * k.w + p % 4) * k.c));
        return;
    }
#pragma unroll
    for (int p = 0; p < 16; p++)
        patch[p] = pixel_at(x, k, q.row, top + p / 4, left + p % 4, c);
}

/* Loads the 4 × 4 pixels of channel c under a quad, for a filter of 3 × 3. */
__device__ static void load_patch(float patch[16], const void *x, const ls_k_conv &k, const quad &q,
                                  int c)
{
    if (k.x_half)
        load_patch_of(patch, (const ls_half *)x, k, q, c);
    else
        load_patch_of(patch, (const float *)x, k, q, c);
}

/* Returns the pixel of x that pixel p of a quad multiplies with tap (line, column, c). */
__device__ static float tap_at(const void *x, const ls_k_conv &k, const quad &q, int p, int line,
                               int column, int c)
{
    const int i = (q.i + p / 2) * k.sh + line * k.dh - k.ph;
    const int j = (q.j + p % 2) * k.sw + column * k.dw - k.pw;
    return k.x_half ? pixel_at((const ls_half *)x, k, q.row, i, j, c)
                    : pixel_at((const float *)x, k, q.row, i, j, c);
}

/* Loads or stores chunk `at` of a tensor. */
__device__ static void get_chunk(float to[V], const void *from, int half, uint32_t at)
{
    if (half)
        ls_widen<V>(to, ls_load<ls_half, V>((const ls_half *)from, at));
    else
        ls_widen<V>(to, ls_load<float, V>((const float *)from, at));
}

__device__ static void put_chunk(void *to, int half, uint32_t at, const float from[V])
{
    if (half)
        ls_store<V>((ls_half *)to, at, from);
    else
        ls_store<V>((float *)to, at, from);
}

__device__ static uint32_t chunk_of_thread()
{
    return blockIdx.y * blockDim.x + threadIdx.x;
}

/* Returns the number of a chunk of pixel (i, j) of the result. */
__device__ static uint32_t chunk_at(const conv &s, int row, int i, int j, uint32_t chunk)
{
    return (uint32_t)((row * s.k.y_h + i) * s.k.y_w + j) * s.chunks + chunk;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A block's weights, [tap][channel of the tile], and its bias. */
struct weight_room {
    float tap[LS_K_CONV_TAPS][TILE * V], bias[TILE * V];
};

__device__ static float factor_at(const void *from, int half, uint32_t at)
{
    return half ? ls_get((const ls_half *)from, at) : ls_get((const float *)from, at);
}

__device__ static void load_weights(weight_room &room, const conv &s, const void *weight,
                                    const void *bias)
{
    const uint32_t plane = (uint32_t)(s.k.kh * s.k.kw), wide = blockDim.x * V;
    const uint32_t first = blockIdx.y * wide, out = (uint32_t)s.k.out;
    /* a thread's channels stay the same; it loads every LANES-th tap */
    for (uint32_t v = threadIdx.x; v < wide; v += blockDim.x) {
        for (uint32_t tap = threadIdx.y; tap < s.taps; tap += LANES) {
            const uint32_t c = tap / plane,
                           at = (first + v) * s.taps + (tap - c * plane) * s.k.c + c;
            room.tap[tap][v] = first + v < out ? factor_at(weight, s.k.w_half, at) : 0;
        }
        if (threadIdx.y == 0)
            room.bias[v] = bias && first + v < out ? factor_at(bias, s.k.w_half, first + v) : 0;
    }
}

/* Adds a tap's products for pixel p of a quad. */
__device__ static void add_tap(float sum[4][V], int p, float x, const float w[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[p][v] = fmaf(x, w[v], sum[p][v]);
}

template <bool K3>
__device__ static void add_taps(float sum[4][V], const weight_room &room, const void *x,
                                const conv &s, const quad &q)
{
    int tap = 0;
    for (int c = 0; c < s.k.c; c++) {
        if constexpr (K3) {
            float patch[16];
            load_patch(patch, x, s.k, q, c);
#pragma unroll
            for (int t = 0; t < 9; t++) {
                const float *w = &room.tap[tap + t][threadIdx.x * V];
                LS_QUAD(p)
                add_tap(sum, p, patch[(p / 2 + t / 3) * 4 + p % 2 + t % 3], w);
            }
            tap += 9;
        } else {
            for (int line = 0; line < s.k.kh; line++)
                for (int column = 0; column < s.k.kw; column++, tap++)
                    LS_QUAD(p)
            add_tap(sum, p, tap_at(x, s.k, q, p, line, column, c), &room.tap[tap][threadIdx.x * V]);
        }
    }
}

/* Stores the pixels of a quad that exist. */
__device__ static void put_pixels(void *y, const float value[4][V], const conv &s, const quad &q,
                                  uint32_t chunk)
{
    LS_QUAD(p)
    {
        const int i = q.i + p / 2, j = q.j + p % 2;
        float out[V];
        for (int v = 0; v < V; v++)
            out[v] = s.k.relu && !(value[p][v] > 0) ? 0 : value[p][v];
        if (i < s.k.y_h && j < s.k.y_w)
            put_chunk(y, s.k.y_half, chunk_at(s, q.row, i, j, chunk), out);
    }
}

__device__ static void put_pooled(void *y, uint8_t *bits, const float value[4][V], const conv &s,
                                  uint32_t number, uint32_t chunk)
{
    const uint32_t at = number * s.chunks + chunk;
    ls_pack<uint8_t, V> kept;
    float out[V];
    for (int v = 0; v < V; v++) {
        const float pixel[4] = {value[0][v], value[1][v], value[2][v], value[3][v]};
        uint32_t found;
        out[v] = s.k.max ? ls_window_value<true>(&found, pixel, s.k.relu)
                         : ls_window_value<false>(&found, pixel, s.k.relu);
        kept.of[v] = (uint8_t)found;
    }
    put_chunk(y, s.k.y_half, at, out);
    if (bits)
        ((ls_pack<uint8_t, V> *)bits)[at] = kept;
}

template <bool K3>
__global__ static void LEAN few_channels_forward(void *y, uint8_t *bits, const void *x,
                                                 const void *weight, const void *bias,
                                                 const __grid_constant__ conv s)
{
    __shared__ weight_room room;
    const uint32_t chunk = chunk_of_thread(), first = blockIdx.x * (LANES * FORWARD_QUADS);
    load_weights(room, s, weight, bias);
    __syncthreads();
    if (chunk >= s.chunks)
        return;
    for (int n = 0; n < FORWARD_QUADS; n++) {
        const uint32_t number = first + n * LANES + threadIdx.y;
        float sum[4][V] = {};
        if (number >= s.quads)
            return;
        const quad q = quad_at(s, number);
        add_taps<K3>(sum, room, x, s, q);
        LS_QUAD(p)
        for (int v = 0; v < V; v++)
            sum[p][v] = bias ? sum[p][v] + room.bias[threadIdx.x * V + v] : sum[p][v];
        if (s.k.pool)
            put_pooled(y, bits, sum, s, number, chunk);
        else
            put_pixels(y, sum, s, q, chunk);
    }
}

static bool is_k3(const ls_k_conv *k)
{
    return k->kh == 3 && k->kw == 3 && k->sh == 1 && k->sw == 1 && k->dh == 1 && k->dw == 1;
}

static bool is_refused(const ls_k_conv *k)
{
    return k->c > LS_K_CONV_CHANNELS || k->out % V || k->c * k->kh * k->kw > LS_K_CONV_TAPS;
}

cudaError_t ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                              const void *bias, const ls_k_conv *k, cudaStream_t stream)
{
    const conv s = conv_of(k);
    const dim3 tile = tile_of(s);
    const dim3 grid(ceil_of(s.quads, LANES * FORWARD_QUADS), ceil_of(s.chunks, tile.x));
    if (is_refused(k))
        return cudaErrorInvalidValue;
    LS_CHOSEN(is_k3(k), K3, {
        few_channels_forward<K3><<<grid, tile, 0, stream>>>(y, bits, x, weight, bias, s);
    });
    return cudaGetLastError();
}

/* ---- gradient of the weights ----------------------------------------------------------------- */

/* The memory that few_channels_partial reads. */
struct gradient_of {
    const void *dy, *y;
    const uint8_t *bits;
};

/* The gradients of the four pixels of a quad, for one chunk. With a pool, the pixels share the
 * gradient of the pooled value, and have a bit each. */
struct quad_gradient {
    float pooled[V];
    ls_pack<uint8_t, V> bits;
};

__device__ static void load_pooled(quad_gradient &g, const gradient_of &from, const conv &s,
                                   uint32_t number, uint32_t chunk)
{
    get_chunk(g.pooled, from.dy, s.k.y_half, number * s.chunks + chunk);
    g.bits = ((const ls_pack<uint8_t, V> *)from.bits)[number * s.chunks + chunk];
}

/* Computes the gradient of pixel p of a quad. */
__device__ static void gradient_at(float g[V], const quad_gradient &of, const gradient_of &from,
                                   const conv &s, const quad &q, int p, uint32_t chunk)
{
    const int i = q.i + p / 2, j = q.j + p % 2;
    const uint32_t at = chunk_at(s, q.row, i, j, chunk);
    const bool exists = i < s.k.y_h && j < s.k.y_w;
    float y[V];
    for (int v = 0; v < V; v++) {
        const float share = s.k.max ? of.pooled[v] : of.pooled[v] * 0.25f;
        g[v] = s.k.pool && of.bits.of[v] >> p & 1 ? share : 0;
    }
    if (s.k.pool || !exists)
        return;
    get_chunk(g, from.dy, s.k.y_half, at);
    if (!from.y)
        return;
    get_chunk(y, from.y, s.k.y_half, at);
    for (int v = 0; v < V; v++)
        g[v] = y[v] > 0 ? g[v] : 0;
}

/* A thread's sums: of TAPS taps, then of the bias. */
typedef float gradient_sums[TAPS + 1][V];

__device__ static void add_product(gradient_sums &sum, int tap, const float g[V], float x)
{
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[tap][v] = fmaf(g[v], x, sum[tap][v]);
}

/* Taps of a thread block: line, column (8 bits each), channel. NO_TAP: the tap does not exist. */
enum { NO_TAP = 1 << 30 };
struct taps_room {
    int tap[TAPS];
};

__device__ static void find_taps(taps_room &room, const conv &s)
{
    const int t = (int)(threadIdx.y * blockDim.x + threadIdx.x), plane = s.k.kh * s.k.kw;
    if (t >= TAPS)
        return;
    const int tap = (int)blockIdx.z * TAPS + t, c = tap / plane, rest = tap - c * plane;
    const int line = rest / s.k.kw, column = rest - line * s.k.kw;
    room.tap[t] = tap < (int)s.taps ? c << 16 | line << 8 | column : (int)NO_TAP;
}

/* Adds the product of tap t for pixel p of a quad. */
__device__ static void add_any_tap(gradient_sums &sum, int t, int tap, const float g[V],
                                   const void *x, const conv &s, const quad &q, int p)
{
    if (tap != NO_TAP)
        add_product(sum, t, g, tap_at(x, s.k, q, p, tap >> 8 & 255, tap & 255, tap >> 16));
}

/* Adds the products of a quad to a thread's sums. */
template <bool K3>
__device__ static void add_quad(gradient_sums &sum, const void *x, const gradient_of &from,
                                const conv &s, uint32_t number, uint32_t chunk,
                                const taps_room &taps)
{
    const quad q = quad_at(s, number);
    quad_gradient of = {};
    float patch[16];
    if (s.k.pool)
        load_pooled(of, from, s, number, chunk);
    if constexpr (K3)
        load_patch(patch, x, s.k, q, (int)blockIdx.z);
#pragma unroll K3 ? 4 : 1
    for (int p = 0; p < 4; p++) {
        float g[V];
        gradient_at(g, of, from, s, q, p, chunk);
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            if constexpr (K3)
                add_product(sum, t, g, patch[(p / 2 + t / 3) * 4 + p % 2 + t % 3]);
            else
                add_any_tap(sum, t, taps.tap[t], g, x, s, q, p);
        }
        for (int v = 0; v < V; v++)
            sum[TAPS][v] += g[v];
    }
}

/* The sums of all threads of a block. A row is longer than the number of threads so that rows begin
 * in different banks. */
struct sums_room {
    float row[(TAPS + 1) * V][LANES * TILE + 8];
};

/* Adds up the lanes, and stores the sums of the slice: gradients of the weights in their order in
 * memory, then of the bias. */
__device__ static void put_slice(float *partial, const sums_room &room, const conv &s)
{
    const uint32_t weights = (uint32_t)s.k.out * s.taps, plane = (uint32_t)(s.k.kh * s.k.kw);
    float *to = partial + (size_t)blockIdx.x * (weights + (uint32_t)s.k.out);
    for (uint32_t n = threadIdx.y; n < (TAPS + 1) * V; n += LANES) {
        const uint32_t o = chunk_of_thread() * V + n % V, t = n / V;
        const uint32_t tap = blockIdx.z * TAPS + t, c = tap / plane;
        float sum = 0;
#pragma unroll 8
        for (uint32_t lane = 0; lane < LANES; lane++)
            sum += room.row[n][lane * blockDim.x + threadIdx.x];
        if (o >= (uint32_t)s.k.out)
            continue;
        if (t < TAPS && tap < s.taps)
            to[o * s.taps + (tap - c * plane) * (uint32_t)s.k.c + c] = sum;
        else if (t == TAPS && blockIdx.z == 0)
            to[weights + o] = sum;
    }
}

/* Computes the sums of a slice (blockIdx.x) for a tile of channels (y) and TAPS taps (z). */
template <bool K3>
__global__ static void LEAN few_channels_partial(float *partial, const void *x,
                                                 const gradient_of from,
                                                 const __grid_constant__ conv s)
{
    __shared__ sums_room room;
    __shared__ taps_room taps;
    const uint32_t chunk = chunk_of_thread(), end = min((blockIdx.x + 1) * LANES * s.each, s.quads);
    gradient_sums sum = {};
    if constexpr (!K3) {
        find_taps(taps, s);
        __syncthreads();
    }
    for (uint32_t n = blockIdx.x * LANES * s.each + threadIdx.y; chunk < s.chunks && n < end;
         n += LANES)
        add_quad<K3>(sum, x, from, s, n, chunk, taps);
#pragma unroll
    for (int n = 0; n < (TAPS + 1) * V; n++)
        room.row[n][threadIdx.y * blockDim.x + threadIdx.x] = sum[n / V][n % V];
    __syncthreads();
    put_slice(partial, room, s);
}

/* Adds up the slices. */
__global__ static void few_channels_finish(const ls_k_conv_grad g, uint32_t slices,
                                           uint32_t weights, uint32_t gradients)
{
    __shared__ double room[LANES][FINISH];
    const uint32_t n = blockIdx.x * FINISH + threadIdx.x;
    double sum = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.y; n < gradients && i < slices; i += LANES)
        sum += (double)g.partial[(size_t)i * gradients + n];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || n >= gradients)
        return;
    double total = 0;
#pragma unroll 4
    for (uint32_t lane = 0; lane < LANES; lane++)
        total += room[lane][threadIdx.x];
    if (n >= weights) {
        if (g.bias)
            ls_put_sum(&g.bias[n - weights], total, g.add);
        return;
    }
    const uint16_t rounded = ls_rounded((float)total);
    if (g.weight_half)
        g.weight_half[n] = rounded;
    else
        ls_put_sum(&g.weight[n],
                   g.rounded ? (double)__uint_as_float((uint32_t)rounded << 16) : total, g.add);
}

size_t ls_k_conv_partial_floats(const ls_k_conv *k)
{
    return (size_t)slices_of(conv_of(k)) * gradients_of(k);
}

cudaError_t ls_k_conv_weights(const ls_k_conv_grad *g, const ls_k_conv *k, cudaStream_t stream)
{
    const conv s = conv_of(k);
    const dim3 tile = tile_of(s);
    const dim3 grid(slices_of(s), ceil_of(s.chunks, tile.x), ceil_of(s.taps, TAPS));
    const gradient_of from = {g->dy, g->y, g->bits};
    const uint32_t gradients = gradients_of(k);
    if (is_refused(k))
        return cudaErrorInvalidValue;
    LS_CHOSEN(is_k3(k), K3,
              { few_channels_partial<K3><<<grid, tile, 0, stream>>>(g->partial, g->x, from, s); });
    const dim3 finish(FINISH, LANES);
    few_channels_finish<<<ceil_of(gradients, FINISH), finish, 0, stream>>>(
        *g, slices_of(s), (uint32_t)k->out * s.taps, gradients);
    return cudaGetLastError();
}
