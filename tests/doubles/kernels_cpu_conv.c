/* SPDX-License-Identifier: MIT */
/* CPU twins of the kernels for convolutions of few channels. They add in the order that kernels.h
 * states, so their results have the kernels' bits. */
#include "doubles/kernels_cpu.h"

#include <math.h>
#include <stdlib.h>

/* ---- sums ------------------------------------------------------------------------------------ */

/* sum[i] ← fmaf(factor, to_each[i], sum[i]) for i < n. fmaf gives the same bits with and without an
 * instruction for it. */
#define ADD_PRODUCTS                                                                               \
    for (int i = 0; i < n; i++)                                                                    \
    sum[i] = fmaf(factor, to_each[i], sum[i])

typedef void products(float *sum, float factor, const float *to_each, int n);

static void add_products(float *sum, float factor, const float *to_each, int n)
{
    ADD_PRODUCTS;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("fma"))) static void add_products_fast(float *sum, float factor,
                                                             const float *to_each, int n)
{
    ADD_PRODUCTS;
}

static products *products_here(void)
{
    return __builtin_cpu_supports("fma") ? add_products_fast : add_products;
}
#else
static products *products_here(void)
{
    return add_products;
}
#endif

/* ---- shapes ---------------------------------------------------------------------------------- */

enum { LANES = LS_K_CONV_LANES };

/* Number of quads in one direction. */
static int quads_along(int pixels, int pool)
{
    return pool ? pixels / 2 : (pixels + 1) / 2;
}

static size_t quads_of(const ls_k_conv *k)
{
    return (size_t)k->rows * (size_t)quads_along(k->y_h, k->pool) *
           (size_t)quads_along(k->y_w, k->pool);
}

static int taps_of(const ls_k_conv *k)
{
    return k->c * k->kh * k->kw;
}

static size_t gradients_of(const ls_k_conv *k)
{
    return (size_t)k->out * (size_t)(taps_of(k) + 1);
}

/* Number of quads of a lane of a slice. */
static size_t quads_of_lane(const ls_k_conv *k)
{
    size_t n = 4;
    while (quads_of(k) > n * LANES * LS_K_CONV_SLICES)
        n++;
    return n;
}

static size_t slices_of(const ls_k_conv *k)
{
    const size_t slice = LANES * quads_of_lane(k);
    return (quads_of(k) + slice - 1) / slice;
}

size_t ls_k_conv_partial_floats(const ls_k_conv *k)
{
    return slices_of(k) * gradients_of(k);
}

static size_t y_values(const ls_k_conv *k)
{
    const size_t pixels = k->pool ? quads_of(k) : (size_t)k->rows * (size_t)k->y_h * (size_t)k->y_w;
    return pixels * (size_t)k->out;
}

static int is_refused(const ls_k_conv *k)
{
    return k->c > LS_K_CONV_CHANNELS || k->out % 4 || taps_of(k) > LS_K_CONV_TAPS;
}

static double operations_of(const ls_k_conv *k)
{
    return 2.0 * (double)quads_of(k) * 4 * k->out * taps_of(k);
}

/* A quad: the row of the batch, and the line and column of its first pixel in the result. */
struct quad {
    int row, i, j;
};

static struct quad quad_at(const ls_k_conv *k, size_t number)
{
    const size_t w = (size_t)quads_along(k->y_w, k->pool), h = (size_t)quads_along(k->y_h, k->pool);
    return (struct quad){(int)(number / w / h), (int)(number / w % h * 2), (int)(number % w * 2)};
}

/* Returns the pixel of x that pixel p of a quad multiplies with a tap. */
static float pixel_under(const ls_k_conv *k, const void *x, struct quad q, int p, int tap)
{
    const int c = tap / (k->kh * k->kw), line = tap / k->kw % k->kh, column = tap % k->kw;
    const int i = (q.i + p / 2) * k->sh + line * k->dh - k->ph;
    const int j = (q.j + p % 2) * k->sw + column * k->dw - k->pw;
    if (i < 0 || j < 0 || i >= k->h || j >= k->w)
        return 0;
    return twin_get(x,
                    (((size_t)q.row * (size_t)k->h + (size_t)i) * (size_t)k->w + (size_t)j) *
                            (size_t)k->c +
                        (size_t)c,
                    k->x_half);
}

/* Returns the index of a tap's weight for output channel o. */
static size_t weight_at(const ls_k_conv *k, int o, int tap)
{
    const int plane = k->kh * k->kw;
    return (size_t)((o * plane + tap % plane) * k->c + tap / plane);
}

static int exists(const ls_k_conv *k, struct quad q, int p)
{
    return q.i + p / 2 < k->y_h && q.j + p % 2 < k->y_w;
}

/* Returns the index of the first channel of pixel p of a quad in the result. */
static size_t result_at(const ls_k_conv *k, struct quad q, int p)
{
    const size_t line = (size_t)q.row * (size_t)k->y_h + (size_t)(q.i + p / 2);
    return (line * (size_t)k->y_w + (size_t)(q.j + p % 2)) * (size_t)k->out;
}

/* ---- forward --------------------------------------------------------------------------------- */

struct forward {
    void *y;
    uint8_t *bits;
    const void *x, *weight, *bias;
    ls_k_conv k;
};

static int may_forward(const struct forward *a)
{
    const ls_k_conv *k = &a->k;
    const size_t x = (size_t)k->rows * (size_t)k->h * (size_t)k->w * (size_t)k->c;
    const size_t w = (size_t)k->out * (size_t)taps_of(k);
    return twin_tensor(a->x, x, k->x_half) && twin_tensor(a->y, y_values(k), k->y_half) &&
           twin_tensor(a->weight, w, k->w_half) &&
           twin_tensor(a->bias, (size_t)k->out, k->w_half) &&
           twin_bytes(k->pool ? a->bits : NULL, y_values(k));
}

/* Stores the pooled value of one channel of a quad, and its bits. */
static void pool_quad(const struct forward *a, size_t at, const float value[4])
{
    const ls_k_conv *k = &a->k;
    float sum = 0, best = value[0];
    int above = 0, first = 1;
    for (int p = 0; p < 4; p++) {
        const int on = !k->relu || value[p] > 0;
        first = value[p] > best ? 1 << p : first;
        best = value[p] > best ? value[p] : best;
        above |= on ? 1 << p : 0;
        sum += on ? value[p] : 0;
    }
    if (k->relu && !(best > 0))
        best = (float)(first = 0);
    twin_put(a->y, at, k->y_half, k->max ? best : sum * 0.25f);
    if (a->bits)
        a->bits[at] = (uint8_t)(k->max ? first : above);
}

/* Stores the results of a quad, of which `sum` has four pixels of k->out channels. */
static void put_quad(const struct forward *a, size_t number, const float *sum)
{
    const ls_k_conv *k = &a->k;
    const struct quad q = quad_at(k, number);
    for (int o = 0; o < k->out; o++) {
        float value[4];
        for (int p = 0; p < 4; p++) {
            value[p] = sum[p * k->out + o];
            if (a->bias)
                value[p] += twin_get(a->bias, (size_t)o, k->w_half);
            if (!k->pool && exists(k, q, p))
                twin_put(a->y, result_at(k, q, p) + (size_t)o, k->y_half,
                         k->relu && !(value[p] > 0) ? 0 : value[p]);
        }
        if (k->pool)
            pool_quad(a, number * (size_t)k->out + (size_t)o, value);
    }
}

static void forward_body(const void *copied)
{
    const struct forward *a = copied;
    const ls_k_conv *k = &a->k;
    products *add = products_here();
    if (!may_forward(a))
        return;
    dbl_computes("ls_k_conv_forward", operations_of(k), 0);
    float *weight = calloc(gradients_of(k), sizeof *weight); /* [tap][channel] */
    float *sum = calloc(4 * (size_t)k->out, sizeof *sum);
    for (int t = 0; weight && t < taps_of(k); t++)
        for (int o = 0; o < k->out; o++)
            weight[t * k->out + o] = twin_get(a->weight, weight_at(k, o, t), k->w_half);
    for (size_t number = 0; weight && sum && number < quads_of(k); number++) {
        memset(sum, 0, 4 * (size_t)k->out * sizeof *sum);
        for (int p = 0; p < 4; p++)
            for (int t = 0; t < taps_of(k); t++)
                add(sum + p * k->out, pixel_under(k, a->x, quad_at(k, number), p, t),
                    weight + t * k->out, k->out);
        put_quad(a, number, sum);
    }
    free(weight);
    free(sum);
}

cudaError_t ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                              const void *bias, const ls_k_conv *conv, cudaStream_t stream)
{
    struct forward a = {y, bits, x, weight, bias, *conv};
    return is_refused(conv) ? cudaErrorInvalidValue : TWIN(stream, forward_body, a);
}

/* ---- gradient of the weights ----------------------------------------------------------------- */

struct weights {
    ls_k_conv_grad g;
    ls_k_conv k;
};

static int may_sum(const struct weights *a)
{
    const ls_k_conv *k = &a->k;
    const ls_k_conv_grad *g = &a->g;
    const size_t x = (size_t)k->rows * (size_t)k->h * (size_t)k->w * (size_t)k->c;
    const size_t w = (size_t)k->out * (size_t)taps_of(k);
    return twin_tensor(g->x, x, k->x_half) && twin_tensor(g->dy, y_values(k), k->y_half) &&
           twin_tensor(k->pool ? NULL : g->y, y_values(k), k->y_half) &&
           twin_bytes(k->pool ? g->bits : NULL, y_values(k)) &&
           twin_floats(g->partial, ls_k_conv_partial_floats(k)) &&
           twin_tensor(g->weight_half ? (void *)g->weight_half : g->weight, w,
                       g->weight_half != NULL) &&
           twin_floats(g->bias, (size_t)k->out);
}

/* Writes the gradient of pixel p of a quad to to[k->out]. */
static void gradient_at(float *to, const struct weights *a, size_t number, int p)
{
    const ls_k_conv *k = &a->k;
    const ls_k_conv_grad *g = &a->g;
    const struct quad q = quad_at(k, number);
    for (int o = 0; o < k->out; o++) {
        const size_t pooled = number * (size_t)k->out + (size_t)o;
        to[o] = 0;
        if (k->pool && g->bits[pooled] >> p & 1)
            to[o] = twin_get(g->dy, pooled, k->y_half) * (k->max ? 1 : 0.25f);
        if (k->pool || !exists(k, q, p))
            continue;
        const size_t at = result_at(k, q, p) + (size_t)o;
        if (!g->y || twin_get(g->y, at, k->y_half) > 0)
            to[o] = twin_get(g->dy, at, k->y_half);
    }
}

/* Adds the quads of a lane to sum[tap][channel]; the row after the last tap is the bias. */
static void add_lane(float *sum, float *gradient, const struct weights *a, size_t first, size_t end)
{
    const ls_k_conv *k = &a->k;
    products *add = products_here();
    for (size_t number = first; number < end; number += LANES)
        for (int p = 0; p < 4; p++) {
            gradient_at(gradient, a, number, p);
            for (int t = 0; t < taps_of(k); t++)
                add(sum + t * k->out, pixel_under(k, a->g.x, quad_at(k, number), p, t), gradient,
                    k->out);
            for (int o = 0; o < k->out; o++)
                sum[taps_of(k) * k->out + o] += gradient[o];
        }
}

/* Computes the sums of a slice: gradients in their order in memory, then of the bias. */
static void sum_slice(float *to, float *lane_sum, float *gradient, const struct weights *a,
                      size_t slice)
{
    const ls_k_conv *k = &a->k;
    const size_t begin = slice * LANES * quads_of_lane(k), quads = quads_of(k);
    const size_t end = begin + LANES * quads_of_lane(k);
    memset(to, 0, gradients_of(k) * sizeof *to);
    for (size_t lane = 0; lane < LANES; lane++) {
        memset(lane_sum, 0, gradients_of(k) * sizeof *lane_sum);
        add_lane(lane_sum, gradient, a, begin + lane, end < quads ? end : quads);
        for (int t = 0; t <= taps_of(k); t++)
            for (int o = 0; o < k->out; o++)
                to[t < taps_of(k) ? weight_at(k, o, t) : (size_t)(taps_of(k) * k->out + o)] +=
                    lane_sum[t * k->out + o];
    }
}

static float total_of(const struct weights *a, size_t n, float before)
{
    const int is_weight = n < (size_t)a->k.out * (size_t)taps_of(&a->k);
    double total = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        double sum = 0;
        for (size_t i = lane; i < slices_of(&a->k); i += LANES)
            sum += (double)a->g.partial[i * gradients_of(&a->k) + n];
        total += sum;
    }
    if (a->g.rounded && is_weight) {
        uint16_t half;
        twin_put(&half, 0, 1, (float)total);
        total = (double)twin_get(&half, 0, 1);
    }
    return a->g.add ? (float)((double)before + total) : (float)total;
}

static void weights_body(const void *copied)
{
    const struct weights *a = copied;
    const ls_k_conv *k = &a->k;
    const ls_k_conv_grad *g = &a->g;
    const size_t weights = (size_t)k->out * (size_t)taps_of(k);
    if (!may_sum(a))
        return;
    dbl_computes("ls_k_conv_weights", operations_of(k), 0);
    float *lane_sum = calloc(gradients_of(k) + (size_t)k->out, sizeof *lane_sum);
    for (size_t i = 0; lane_sum && i < slices_of(k); i++)
        sum_slice(g->partial + i * gradients_of(k), lane_sum, lane_sum + gradients_of(k), a, i);
    free(lane_sum);
    for (size_t n = 0; n < gradients_of(k); n++) {
        if (n >= weights && g->bias)
            g->bias[n - weights] = total_of(a, n, g->bias[n - weights]);
        else if (n < weights && g->weight_half)
            twin_put(g->weight_half, n, 1, total_of(a, n, 0));
        else if (n < weights)
            g->weight[n] = total_of(a, n, g->weight[n]);
    }
}

cudaError_t ls_k_conv_weights(const ls_k_conv_grad *grad, const ls_k_conv *conv,
                              cudaStream_t stream)
{
    struct weights a = {*grad, *conv};
    return is_refused(conv) ? cudaErrorInvalidValue : TWIN(stream, weights_body, a);
}
