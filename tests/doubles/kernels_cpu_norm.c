/* SPDX-License-Identifier: MIT */
/* CPU twins of the kernels: sums over positions and batch norm, in double. */
#include "doubles/kernels_cpu.h"

#include <math.h>

size_t ls_k_partial_floats(size_t m, int c)
{
    return 2 * ((m + LS_K_BLOCK - 1) / LS_K_BLOCK) * (size_t)c;
}

/* Values that share a byte of a mask. */
static size_t mask_width(size_t c, int half)
{
    const size_t width = half ? 8 : 4;
    return c % width == 0 ? width : 1;
}

size_t ls_k_mask_bytes(size_t m, int c, int half)
{
    return m * (size_t)c / mask_width((size_t)c, half);
}

static void put(float *to, double value, int add)
{
    *to = add ? (float)((double)*to + value) : (float)value;
}

/* ---- bias gradients ------------------------------------------------------------------------- */

struct bias_grad {
    float *sum, *partial;
    void *masked;
    const void *dy, *y;
    int half, add;
    size_t m, c;
};

static void bias_grad_body(const void *copied)
{
    const struct bias_grad *a = copied;
    const size_t n = a->m * a->c;
    if (!twin_floats(a->sum, a->c) || !twin_tensor(a->masked, n, a->half) ||
        !twin_tensor(a->dy, n, a->half) || !twin_tensor(a->y, n, a->half) ||
        !twin_floats(a->partial, ls_k_partial_floats(a->m, (int)a->c)))
        return;
    for (size_t c = 0; c < a->c; c++) {
        double sum = 0;
        for (size_t at = c; at < n; at += a->c) {
            float g = a->y && !(twin_get(a->y, at, a->half) > 0) ? 0 : twin_get(a->dy, at, a->half);
            if (a->masked)
                twin_put(a->masked, at, a->half, g);
            sum += (double)g;
        }
        put(&a->sum[c], sum, a->add);
    }
}

cudaError_t ls_k_bias_grad(float *sum, void *masked, const void *dy, const void *y, int half,
                           int add, float *partial, size_t m, int c, cudaStream_t stream)
{
    struct bias_grad a = {sum, partial, masked, dy, y, half, add, m, (size_t)c};
    return TWIN(stream, bias_grad_body, a);
}

/* ---- batch norm ----------------------------------------------------------------------------- */

/* Every pointer that some function of batch norm takes; NULL where one does not. */
struct norm {
    const void *x, *x2, *dy;
    const uint8_t *mask_in;
    void *y, *dx, *dx2;
    uint8_t *mask;
    const float *mean_in, *inverse_in, *weight, *bias, *running, *sums_in;
    float *mean, *inverse, *contribution, *weight_grad, *bias_grad, *sums, *partial;
    int add;
    ls_k_norm k;
};

static int may_touch(const struct norm *a)
{
    const size_t c = (size_t)a->k.c, n = a->k.m * c;
    const int half = a->k.half;
    const size_t mask = ls_k_mask_bytes(a->k.m, a->k.c, half);
    return twin_tensor(a->x, n, half) && twin_tensor(a->x2, n, half) &&
           twin_tensor(a->dy, n, half) && twin_bytes(a->mask_in, mask) &&
           twin_bytes(a->mask, mask) && twin_floats(a->mean_in, c) &&
           twin_floats(a->inverse_in, c) && twin_floats(a->weight, c) && twin_floats(a->bias, c) &&
           twin_floats(a->running, 2 * c) && twin_floats(a->sums_in, 2 * c) &&
           twin_floats(a->mean, c) && twin_floats(a->inverse, c) &&
           twin_floats(a->contribution, 2 * c) && twin_tensor(a->y, n, half) &&
           twin_tensor(a->dx, n, half) && twin_tensor(a->dx2, n, half) &&
           twin_floats(a->weight_grad, c) && twin_floats(a->bias_grad, c) &&
           twin_floats(a->sums, 2 * c) &&
           twin_floats(a->partial, ls_k_partial_floats(a->k.m, a->k.c));
}

static void statistics_body(const void *copied)
{
    const struct norm *a = copied;
    const size_t c = (size_t)a->k.c, n = a->k.m * c;
    const double m = (double)a->k.m, rows = a->k.rows;
    for (size_t i = 0, end = may_touch(a) ? c : 0; i < end; i++) {
        double sum = 0, squares = 0;
        for (size_t at = i; at < n; at += c)
            sum += (double)twin_get(a->x, at, a->k.half);
        double mean = sum / m;
        for (size_t at = i; at < n; at += c)
            squares += pow((double)twin_get(a->x, at, a->k.half) - mean, 2);
        a->mean[i] = (float)mean;
        a->inverse[i] = (float)(1 / sqrt(squares / m + (double)a->k.epsilon));
        if (!a->contribution)
            continue;
        put(&a->contribution[i], rows * mean, a->add);
        put(&a->contribution[c + i], rows * (m > 1 ? squares / (m - 1) : squares / m), a->add);
    }
}

cudaError_t ls_k_norm_statistics(float *mean, float *inverse, float *contribution, int add,
                                 const void *x, float *partial, const ls_k_norm *norm,
                                 cudaStream_t stream)
{
    struct norm a = {.x = x,
                     .mean = mean,
                     .inverse = inverse,
                     .contribution = contribution,
                     .partial = partial,
                     .add = add,
                     .k = *norm};
    return TWIN(stream, statistics_body, a);
}

static void running_body(const void *copied)
{
    const struct norm *a = copied;
    for (int i = 0, end = may_touch(a) ? a->k.c : 0; i < end; i++) {
        a->mean[i] = a->running[i];
        a->inverse[i] = (float)(1 / sqrt((double)a->running[a->k.c + i] + (double)a->k.epsilon));
    }
}

cudaError_t ls_k_norm_running(float *mean, float *inverse, const float *running,
                              const ls_k_norm *norm, cudaStream_t stream)
{
    struct norm a = {.mean = mean, .inverse = inverse, .running = running, .k = *norm};
    return TWIN(stream, running_body, a);
}

static void apply_body(const void *copied)
{
    const struct norm *a = copied;
    const size_t c = (size_t)a->k.c;
    for (size_t at = 0, n = may_touch(a) ? a->k.m * c : 0; at < n; at++) {
        size_t i = at % c, width = mask_width(c, a->k.half);
        float scale = a->inverse_in[i] * a->weight[i];
        float value = (twin_get(a->x, at, a->k.half) - a->mean_in[i]) * scale + a->bias[i];
        if (a->x2)
            value += twin_get(a->x2, at, a->k.half);
        twin_put(a->y, at, a->k.half, a->k.relu && !(value > 0) ? 0 : value);
        if (a->mask && at % width == 0)
            a->mask[at / width] = 0;
        if (a->mask && value > 0)
            a->mask[at / width] |= (uint8_t)(1 << at % width);
    }
}

cudaError_t ls_k_norm_apply(void *y, uint8_t *mask, const void *x, const void *x2,
                            const float *mean, const float *inverse, const float *weight,
                            const float *bias, const ls_k_norm *norm, cudaStream_t stream)
{
    struct norm a = {.y = y,
                     .mask = mask,
                     .x = x,
                     .x2 = x2,
                     .mean_in = mean,
                     .inverse_in = inverse,
                     .weight = weight,
                     .bias = bias,
                     .k = *norm};
    return TWIN(stream, apply_body, a);
}

static float gradient_at(const struct norm *a, size_t at)
{
    const size_t width = mask_width((size_t)a->k.c, a->k.half);
    if (a->k.relu && !(a->mask_in[at / width] >> at % width & 1))
        return 0;
    return twin_get(a->dy, at, a->k.half);
}

static void grad_body(const void *copied)
{
    const struct norm *a = copied;
    const size_t c = (size_t)a->k.c, n = a->k.m * c;
    for (size_t i = 0, end = may_touch(a) ? c : 0; i < end; i++) {
        double sum = 0, product = 0;
        for (size_t at = i; at < n; at += c) {
            double g = (double)gradient_at(a, at);
            sum += g;
            product += g * ((double)twin_get(a->x, at, a->k.half) - (double)a->mean_in[i]);
        }
        product *= (double)a->inverse_in[i];
        a->sums[i] = (float)sum;
        a->sums[c + i] = (float)product;
        put(&a->bias_grad[i], sum, a->add);
        put(&a->weight_grad[i], product, a->add);
    }
}

cudaError_t ls_k_norm_grad(float *weight_grad, float *bias_grad, float *sums, int add,
                           const void *x, const void *dy, const uint8_t *mask, const float *mean,
                           const float *inverse, float *partial, const ls_k_norm *norm,
                           cudaStream_t stream)
{
    struct norm a = {.weight_grad = weight_grad,
                     .bias_grad = bias_grad,
                     .sums = sums,
                     .add = add,
                     .x = x,
                     .dy = dy,
                     .mask_in = mask,
                     .mean_in = mean,
                     .inverse_in = inverse,
                     .partial = partial,
                     .k = *norm};
    return TWIN(stream, grad_body, a);
}

static void dx_body(const void *copied)
{
    const struct norm *a = copied;
    const size_t c = (size_t)a->k.c;
    const float m = (float)a->k.m;
    for (size_t at = 0, n = may_touch(a) ? a->k.m * c : 0; at < n; at++) {
        size_t i = at % c;
        float g = gradient_at(a, at);
        float factor = a->weight[i] * a->inverse_in[i];
        float slope = factor * a->inverse_in[i] * (a->sums_in[c + i] / m);
        float apart = twin_get(a->x, at, a->k.half) - a->mean_in[i];
        if (a->dx2)
            twin_put(a->dx2, at, a->k.half, g);
        twin_put(a->dx, at, a->k.half, factor * (g - a->sums_in[i] / m) - apart * slope);
    }
}

cudaError_t ls_k_norm_dx(void *dx, void *dx2, const void *x, const void *dy, const uint8_t *mask,
                         const float *mean, const float *inverse, const float *weight,
                         const float *sums, const ls_k_norm *norm, cudaStream_t stream)
{
    struct norm a = {.dx = dx,
                     .dx2 = dx2,
                     .x = x,
                     .dy = dy,
                     .mask_in = mask,
                     .mean_in = mean,
                     .inverse_in = inverse,
                     .weight = weight,
                     .sums_in = sums,
                     .k = *norm};
    return TWIN(stream, dx_body, a);
}

/* ---- layer norm ----------------------------------------------------------------------------- */

struct layer_norm {
    float *out, *out2, *stats;
    const float *x, *dy, *weight, *bias;
    float epsilon;
    int add, rows;
    size_t n;
};

static int may_touch_rows(const struct layer_norm *a)
{
    const size_t all = (size_t)a->rows * a->n;
    return twin_floats(a->x, all) && twin_floats(a->dy, all) && twin_floats(a->weight, a->n) &&
           twin_floats(a->bias, a->n) && twin_floats(a->stats, 2 * (size_t)a->rows);
}

static void layer_norm_body(const void *copied)
{
    const struct layer_norm *a = copied;
    if (!may_touch_rows(a) || !twin_floats(a->out, (size_t)a->rows * a->n))
        return;
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const float *x = a->x + r * a->n;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < a->n; i++)
            sum += (double)x[i];
        const float mean = (float)(sum / (double)a->n);
        for (size_t i = 0; i < a->n; i++)
            squares += (double)((x[i] - mean) * (x[i] - mean));
        float inverse = 1 / sqrtf((float)(squares / (double)a->n) + a->epsilon);
        if (inverse == 0) {
            squares = 0;
            for (size_t i = 0; i < a->n; i++)
                squares += (double)(((x[i] - mean) * 0x1p-64f) * ((x[i] - mean) * 0x1p-64f));
            inverse = 0x1p-64f / sqrtf((float)(squares / (double)a->n));
        }
        for (size_t i = 0; i < a->n; i++)
            a->out[r * a->n + i] = (x[i] - mean) * inverse * a->weight[i] + a->bias[i];
        a->stats[2 * r] = mean;
        a->stats[2 * r + 1] = inverse;
    }
}

cudaError_t ls_k_layer_norm(float *y, float *stats, const float *x, const float *weight,
                            const float *bias, float epsilon, int rows, size_t n,
                            cudaStream_t stream)
{
    struct layer_norm a = {.out = y,
                           .stats = stats,
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .epsilon = epsilon,
                           .rows = rows,
                           .n = n};
    return TWIN(stream, layer_norm_body, a);
}

static void layer_norm_dx_body(const void *copied)
{
    const struct layer_norm *a = copied;
    if (!may_touch_rows(a) || !twin_floats(a->out, (size_t)a->rows * a->n))
        return;
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const float *x = a->x + r * a->n, *dy = a->dy + r * a->n;
        const float mean = a->stats[2 * r], inverse = a->stats[2 * r + 1];
        double sum = 0, product = 0;
        for (size_t i = 0; i < a->n; i++) {
            sum += (double)(dy[i] * a->weight[i]);
            product += (double)(dy[i] * a->weight[i] * ((x[i] - mean) * inverse));
        }
        const float g = (float)(sum / (double)a->n), gx = (float)(product / (double)a->n);
        for (size_t i = 0; i < a->n; i++)
            a->out[r * a->n + i] =
                inverse * (dy[i] * a->weight[i] - g - (x[i] - mean) * inverse * gx);
    }
}

cudaError_t ls_k_layer_norm_dx(float *dx, const float *x, const float *dy, const float *weight,
                               const float *stats, int rows, size_t n, cudaStream_t stream)
{
    struct layer_norm a = {.out = dx,
                           .stats = (float *)stats,
                           .x = x,
                           .dy = dy,
                           .weight = weight,
                           .rows = rows,
                           .n = n};
    return TWIN(stream, layer_norm_dx_body, a);
}

static void layer_norm_grad_body(const void *copied)
{
    const struct layer_norm *a = copied;
    if (!may_touch_rows(a) || !twin_floats(a->out, a->n) || !twin_floats(a->out2, a->n))
        return;
    for (size_t i = 0; i < a->n; i++) {
        double sum = 0, product = 0;
        for (size_t r = 0; r < (size_t)a->rows; r++) {
            const float d = a->dy[r * a->n + i];
            sum += (double)d;
            product += (double)(d * ((a->x[r * a->n + i] - a->stats[2 * r]) * a->stats[2 * r + 1]));
        }
        put(&a->out[i], product, a->add);
        put(&a->out2[i], sum, a->add);
    }
}

cudaError_t ls_k_layer_norm_grad(float *weight_grad, float *bias_grad, int add, const float *x,
                                 const float *dy, const float *stats, int rows, size_t n,
                                 cudaStream_t stream)
{
    struct layer_norm a = {.out = weight_grad,
                           .out2 = bias_grad,
                           .stats = (float *)stats,
                           .x = x,
                           .dy = dy,
                           .add = add,
                           .rows = rows,
                           .n = n};
    return TWIN(stream, layer_norm_grad_body, a);
}
