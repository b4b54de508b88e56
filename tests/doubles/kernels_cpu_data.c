/* SPDX-License-Identifier: MIT */
/* CPU twins of the kernels: gather, layouts, bf16, biases, pooling, loss. */
#include "doubles/kernels_cpu.h"

#include "base/augment.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* ---- gather --------------------------------------------------------------------------------- */

struct shift {
    int down, right, mirror;
};

static struct shift draw_shift(const ls_k_gather *k, uint32_t row)
{
    uint32_t w[4], places = 2 * (uint32_t)k->crop + 1;
    if (!k->crop && !k->flip)
        return (struct shift){0, 0, 0};
    ls_rng_words(w, k->args->seed, LS_STREAM_AUGMENT, k->args->epoch, row);
    return (struct shift){(int)(w[0] % places) - k->crop, (int)(w[1] % places) - k->crop,
                          k->flip && w[2] % 2};
}

static float pixel_at(const ls_k_gather *k, const void *image, struct shift s, int pixel, int c)
{
    int i = pixel / k->w + s.down, j = pixel % k->w + s.right, at = c < 4 ? c : 3;
    const int inside = i >= 0 && i < k->h && j >= 0 && j < k->w;
    const int from = inside ? (c * k->h + i) * k->w + (s.mirror ? k->w - 1 - j : j) : 0;
    const float value =
        k->floats ? ((const float *)image)[from] : (float)((const uint8_t *)image)[from] / 255.0f;
    return ((inside ? value : 0) - k->mean[at]) / k->std[at];
}

static ls_change draw_change(const ls_k_gather *k, uint32_t row)
{
    const ls_augment a = {k->crop, k->flip, k->rotate, k->erase, k->brightness, k->mixup, k->part};
    uint32_t v[4], more[4], place[4];
    ls_change c;
    ls_rng_words(v, k->args->seed, LS_STREAM_AUGMENT, k->args->epoch, row);
    ls_rng_words(more, k->args->seed, LS_STREAM_AUGMENT_MORE, k->args->epoch, row);
    ls_rng_words(place, k->args->seed, LS_STREAM_AUGMENT_PART, k->args->epoch, row);
    ls_change_draw(&c, &a, k->h, k->w, v, more, place);
    return c;
}

static float changed_at(const ls_k_gather *k, const void *image, const ls_change *c, int pixel,
                        int channel)
{
    const size_t plane = (size_t)channel * (size_t)k->h * (size_t)k->w;
    const int i = pixel / k->w, j = pixel % k->w;
    return k->floats ? ls_changed_float((const float *)image + plane, c, i, j)
                     : (float)ls_changed_byte((const uint8_t *)image + plane, c, i, j);
}

static void mix_target(const ls_k_gather *k, int r, const uint32_t row[2], const ls_change *c)
{
    const float *t = (const float *)(const void *)k->labels;
    for (size_t i = 0, n = (size_t)k->words; k->labels && k->labels_out && i < n; i++) {
        const size_t mine = row[0] * n + i, other = row[1] * n + i, to = (size_t)r * n + i;
        if (k->vectors)
            ((float *)(void *)k->labels_out)[to] = ls_mixed_float(t[mine], t[other], c);
        else
            k->labels_out[to] = k->labels[c->other_label ? other : mine];
    }
}

static void change_row(const ls_k_gather *k, int r)
{
    const size_t values = (size_t)k->c * (size_t)k->h * (size_t)k->w;
    const size_t bytes = values * (k->floats ? sizeof(float) : 1);
    const ls_k_args *a = k->args;
    const uint32_t row[2] = {a->rows[r],
                             ls_mixed_row(a->rows, k->rows, r, a->rows_before, a->rows_after)};
    const ls_change c[2] = {draw_change(k, row[0]), draw_change(k, row[1])};
    const char *image[2] = {(const char *)k->images + row[0] * bytes,
                            (const char *)k->images + row[1] * bytes};
    if (!twin_bytes(image[0], bytes) || !twin_bytes(image[1], bytes))
        return;
    for (size_t e = 0; e < values; e++) {
        const int pixel = (int)(e / (size_t)k->c), channel = (int)(e % (size_t)k->c);
        const int at = channel < 4 ? channel : 3;
        const float own = changed_at(k, image[0], &c[0], pixel, channel);
        const float other = changed_at(k, image[1], &c[1], pixel, channel);
        const float value = k->floats ? ls_mixed_float(own, other, c)
                                      : (float)ls_mixed_byte((int)own, (int)other, c) / 255.0f;
        k->y[(size_t)r * values + e] = (value - k->mean[at]) / k->std[at];
    }
    mix_target(k, r, row, c);
}

static void gather_body(const void *copied)
{
    const ls_k_gather *k = copied;
    const size_t values = (size_t)k->c * (size_t)k->h * (size_t)k->w;
    if (!twin_bytes(k->args, sizeof *k->args) ||
        !twin_bytes(k->args->rows - k->args->rows_before,
                    (k->args->rows_before + (size_t)k->rows + k->args->rows_after) *
                        sizeof *k->args->rows) ||
        !twin_floats(k->y, (size_t)k->rows * values))
        return;
    for (int r = 0; r < k->rows; r++) {
        const uint32_t row = k->args->rows[r];
        if (k->weights)
            k->weights_out[r] = k->weights[row];
        if (k->rotate || k->erase || k->brightness || k->mixup || k->part) {
            change_row(k, r);
            continue;
        }
        const size_t bytes = values * (k->floats ? sizeof(float) : 1), words = (size_t)k->words;
        const char *image = (const char *)k->images + row * bytes;
        const struct shift s = draw_shift(k, row);
        if (!twin_bytes(image, bytes))
            return;
        for (size_t e = 0; e < values; e++)
            k->y[(size_t)r * values + e] =
                pixel_at(k, image, s, (int)(e / (size_t)k->c), (int)(e % (size_t)k->c));
        if (k->labels && k->labels_out)
            memcpy(k->labels_out + (size_t)r * words, k->labels + row * words,
                   words * sizeof *k->labels);
    }
}

cudaError_t ls_k_gather_rows(const ls_k_gather *gather, cudaStream_t stream)
{
    return TWIN(stream, gather_body, *gather);
}

/* ---- layouts and bf16 ----------------------------------------------------------------------- */

struct transpose {
    float *to;
    const float *from;
    size_t rows, a, b;
};

static void transpose_body(const void *copied)
{
    const struct transpose *t = copied;
    const size_t image = t->a * t->b;
    if (!twin_floats(t->to, t->rows * image) || !twin_floats(t->from, t->rows * image))
        return;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < t->a; i++)
            for (size_t j = 0; j < t->b; j++)
                t->to[r * image + j * t->a + i] = t->from[r * image + i * t->b + j];
}

cudaError_t ls_k_transpose(float *to, const float *from, int rows, int a, int b,
                           cudaStream_t stream)
{
    struct transpose t = {to, from, (size_t)rows, (size_t)a, (size_t)b};
    return TWIN(stream, transpose_body, t);
}

struct convert {
    float *wide;
    uint16_t *half;
    size_t count;
    int add;
};

static int may_convert(const struct convert *c)
{
    return twin_floats(c->wide, c->count) && twin_bytes(c->half, c->count * sizeof *c->half);
}

static uint16_t rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void to_bf16_body(const void *copied)
{
    const struct convert *c = copied;
    if (may_convert(c))
        for (size_t i = 0; i < c->count; i++)
            c->half[i] = rounded(c->wide[i]);
}

static void from_bf16_body(const void *copied)
{
    const struct convert *c = copied;
    if (!may_convert(c))
        return;
    for (size_t i = 0; i < c->count; i++) {
        uint32_t bits = (uint32_t)c->half[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        c->wide[i] = c->add ? c->wide[i] + value : value;
    }
}

cudaError_t ls_k_to_bf16(uint16_t *to, const float *from, size_t count, cudaStream_t stream)
{
    struct convert c = {(float *)from, to, count, 0};
    return TWIN(stream, to_bf16_body, c);
}

cudaError_t ls_k_from_bf16(float *to, const uint16_t *from, size_t count, int add,
                           cudaStream_t stream)
{
    struct convert c = {to, (uint16_t *)from, count, add};
    return TWIN(stream, from_bf16_body, c);
}

struct add_bias {
    void *y;
    const float *bias;
    int half, relu;
    size_t m, c;
};

static void bias_body(const void *copied)
{
    const struct add_bias *a = copied;
    if (!twin_tensor(a->y, a->m * a->c, a->half) || !twin_floats(a->bias, a->c))
        return;
    for (size_t i = 0; i < a->m * a->c; i++) {
        float value = twin_get(a->y, i, a->half);
        if (a->bias)
            value += a->bias[i % a->c];
        twin_put(a->y, i, a->half, a->relu && !(value > 0) ? 0 : value);
    }
}

cudaError_t ls_k_bias(void *y, const float *bias, int half, int relu, size_t m, int c,
                      cudaStream_t stream)
{
    struct add_bias a = {y, bias, half, relu, m, (size_t)c};
    return TWIN(stream, bias_body, a);
}

/* ---- pooling -------------------------------------------------------------------------------- */

struct pool {
    float *out;
    const float *in;
    int32_t *at;
    ls_k_pool k;
};

static size_t x_count(const ls_k_pool *k)
{
    return (size_t)k->rows * (size_t)k->h * (size_t)k->w * (size_t)k->c;
}

static size_t y_count(const ls_k_pool *k)
{
    return (size_t)k->rows * (size_t)k->y_h * (size_t)k->y_w * (size_t)k->c;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

struct window {
    int top, bottom, left, right;
    int pixels; /* by which an average divides */
};

static struct window window_at(const ls_k_pool *k, size_t o)
{
    size_t at = o / (size_t)k->c;
    int j = (int)(at % (size_t)k->y_w), i = (int)(at / (size_t)k->y_w % (size_t)k->y_h);
    int top = i * k->sh - k->ph, left = j * k->sw - k->pw;
    struct window w = {larger(top, 0), smaller(top + k->kh, k->h), larger(left, 0),
                       smaller(left + k->kw, k->w), 0};
    w.pixels = (w.bottom - w.top) * (w.right - w.left);
    if (k->count_padding)
        w.pixels =
            (smaller(top + k->kh, k->end_h) - top) * (smaller(left + k->kw, k->end_w) - left);
    return w;
}

/* Returns the index of pixel (i, j) in the image and channel to which output o belongs. */
static size_t pixel_of(const ls_k_pool *k, size_t o, int i, int j)
{
    size_t c = o % (size_t)k->c, r = o / ((size_t)k->c * (size_t)k->y_h * (size_t)k->y_w);
    return ((r * (size_t)k->h + (size_t)i) * (size_t)k->w + (size_t)j) * (size_t)k->c + c;
}

static void pool_max_body(const void *copied)
{
    const struct pool *p = copied;
    const size_t n = y_count(&p->k);
    if (!twin_floats(p->in, x_count(&p->k)) || !twin_floats(p->out, n) || !twin_floats(p->at, n))
        return;
    for (size_t o = 0; o < n; o++) {
        struct window w = window_at(&p->k, o);
        int best_i = w.top, best_j = w.left;
        for (int i = w.top; i < w.bottom; i++)
            for (int j = w.left; j < w.right; j++)
                if (p->in[pixel_of(&p->k, o, i, j)] > p->in[pixel_of(&p->k, o, best_i, best_j)]) {
                    best_i = i;
                    best_j = j;
                }
        p->out[o] = p->in[pixel_of(&p->k, o, best_i, best_j)];
        if (p->at)
            p->at[o] = best_i * p->k.w + best_j;
    }
}

static void pool_max_back_body(const void *copied)
{
    const struct pool *p = copied;
    const size_t n = y_count(&p->k);
    if (!twin_floats(p->out, x_count(&p->k)) || !twin_floats(p->in, n) || !twin_floats(p->at, n))
        return;
    memset(p->out, 0, x_count(&p->k) * sizeof *p->out);
    for (size_t o = 0; o < n; o++)
        p->out[pixel_of(&p->k, o, p->at[o] / p->k.w, p->at[o] % p->k.w)] += p->in[o];
}

static void pool_average_body(const void *copied)
{
    const struct pool *p = copied;
    if (!twin_floats(p->in, x_count(&p->k)) || !twin_floats(p->out, y_count(&p->k)))
        return;
    for (size_t o = 0; o < y_count(&p->k); o++) {
        struct window w = window_at(&p->k, o);
        float sum = 0;
        for (int i = w.top; i < w.bottom; i++)
            for (int j = w.left; j < w.right; j++)
                sum += p->in[pixel_of(&p->k, o, i, j)];
        p->out[o] = sum / (float)w.pixels;
    }
}

cudaError_t ls_k_pool_forward(float *y, int32_t *at, const float *x, const ls_k_pool *pool,
                              cudaStream_t stream)
{
    struct pool p = {y, x, at, *pool};
    return pool->max ? TWIN(stream, pool_max_body, p) : TWIN(stream, pool_average_body, p);
}

static void pool_average_back_body(const void *copied)
{
    const struct pool *p = copied;
    if (!twin_floats(p->out, x_count(&p->k)) || !twin_floats(p->in, y_count(&p->k)))
        return;
    memset(p->out, 0, x_count(&p->k) * sizeof *p->out);
    for (size_t o = 0; o < y_count(&p->k); o++) {
        struct window w = window_at(&p->k, o);
        float share = p->in[o] / (float)w.pixels;
        for (int i = w.top; i < w.bottom; i++)
            for (int j = w.left; j < w.right; j++)
                p->out[pixel_of(&p->k, o, i, j)] += share;
    }
}

cudaError_t ls_k_pool_back(float *dx, const float *dy, const int32_t *at, const ls_k_pool *pool,
                           cudaStream_t stream)
{
    struct pool p = {dx, dy, (int32_t *)at, *pool};
    return pool->max ? TWIN(stream, pool_max_back_body, p)
                     : TWIN(stream, pool_average_back_body, p);
}

/* ---- 2 × 2 windows after a bias and a relu -------------------------------------------------- */

struct quads {
    void *y, *dx;
    const void *x, *dy;
    uint8_t *bits;
    const uint8_t *bits_in;
    const float *bias;
    float *bias_sum, *partial;
    int add;
    ls_k_quads k;
};

static size_t quads_count(const ls_k_quads *k)
{
    return (size_t)k->rows * (size_t)(k->h / 2) * (size_t)(k->w / 2) * (size_t)k->c;
}

static int may_pool(const struct quads *a)
{
    const ls_k_quads *k = &a->k;
    const size_t x = (size_t)k->rows * (size_t)k->h * (size_t)k->w * (size_t)k->c;
    const size_t y = quads_count(k), c = (size_t)k->c;
    return twin_tensor(a->x, x, k->half) && twin_tensor(a->dx, x, k->half) &&
           twin_tensor(a->y, y, k->half) && twin_tensor(a->dy, y, k->half) &&
           twin_bytes(a->bits, y) && twin_bytes(a->bits_in, y) && twin_floats(a->bias, c) &&
           twin_floats(a->bias_sum, c) &&
           (!a->bias_sum || twin_floats(a->partial, ls_k_partial_floats(y / c, k->c)));
}

/* Returns the index in x of pixel q of output o's window. */
static size_t quad_pixel(const ls_k_quads *k, size_t o, int q)
{
    const ls_k_pool pool = {k->rows, k->c, k->h, k->w, k->h / 2, k->w / 2, 2, 2,
                            2,       2,    0,    0,    0,        0,        0, 0};
    const struct window w = window_at(&pool, o);
    return pixel_of(&pool, o, w.top + q / 2, w.left + q % 2);
}

static void quads_forward_body(const void *copied)
{
    const struct quads *a = copied;
    const ls_k_quads *k = &a->k;
    for (size_t o = 0, n = may_pool(a) ? quads_count(k) : 0; o < n; o++) {
        float sum = 0, best = 0;
        int above = 0, first = 0;
        for (int q = 0; q < 4; q++) {
            float value = twin_get(a->x, quad_pixel(k, o, q), k->half);
            if (a->bias)
                value += a->bias[o % (size_t)k->c];
            if (q == 0 || value > best) {
                first = 1 << q;
                best = value;
            }
            if (k->relu && !(value > 0))
                continue;
            above |= 1 << q;
            sum += value;
        }
        if (k->relu && !(best > 0))
            best = (float)(first = 0);
        twin_put(a->y, o, k->half, k->max ? best : sum * 0.25f);
        if (a->bits)
            a->bits[o] = (uint8_t)(k->max ? first : above);
    }
}

cudaError_t ls_k_quads_forward(void *y, uint8_t *bits, const void *x, const float *bias,
                               const ls_k_quads *quads, cudaStream_t stream)
{
    struct quads a = {.y = y, .x = x, .bits = bits, .bias = bias, .k = *quads};
    return TWIN(stream, quads_forward_body, a);
}

static void quads_back_body(const void *copied)
{
    const struct quads *a = copied;
    const ls_k_quads *k = &a->k;
    const size_t c = (size_t)k->c, n = quads_count(k);
    if (!may_pool(a))
        return;
    memset(a->dx, 0,
           (size_t)k->rows * (size_t)k->h * (size_t)k->w * c *
               (k->half ? sizeof(uint16_t) : sizeof(float)));
    for (size_t channel = 0; channel < c; channel++) {
        double sum = a->add && a->bias_sum ? (double)a->bias_sum[channel] : 0;
        for (size_t o = channel; o < n; o += c)
            for (int q = 0; q < 4; q++) {
                float g = twin_get(a->dy, o, k->half) * (k->max ? 1 : 0.25f);
                if (!(a->bits_in[o] >> q & 1))
                    continue;
                twin_put(a->dx, quad_pixel(k, o, q), k->half, g);
                sum += (double)g;
            }
        if (a->bias_sum)
            a->bias_sum[channel] = (float)sum;
    }
}

cudaError_t ls_k_quads_back(void *dx, float *bias_sum, int add, const void *dy, const uint8_t *bits,
                            float *partial, const ls_k_quads *quads, cudaStream_t stream)
{
    struct quads a = {.dx = dx,
                      .dy = dy,
                      .bits_in = bits,
                      .bias_sum = bias_sum,
                      .partial = partial,
                      .add = add,
                      .k = *quads};
    return TWIN(stream, quads_back_body, a);
}

/* ---- loss ----------------------------------------------------------------------------------- */

static double weighed(double value, float weight)
{
    return weight == 0 ? 0 : value * (double)weight;
}

static double row_loss(const ls_k_xent *k, int row, int *correct)
{
    const float *x = k->x + (size_t)row * (size_t)k->classes;
    float *dx = k->dx ? k->dx + (size_t)row * (size_t)k->classes : NULL;
    const int label = k->labels[row];
    const double smoothing = (double)k->smoothing;
    const int known = label >= 0 && label < k->classes;
    const float weight =
        (k->weight && known ? k->weight[label] : 1) * (k->row_weight ? k->row_weight[row] : 1);
    int best = 0;
    double sum = 0, all = 0;
    for (int j = 1; j < k->classes; j++)
        if (x[j] > x[best])
            best = j;
    for (int j = 0; j < k->classes; j++) {
        sum += (double)expf(x[j] - x[best]);
        all += (double)x[j] - (double)x[best];
    }
    for (int j = 0; dx && j < k->classes; j++) {
        float p =
            (float)((double)expf(x[j] - x[best]) * (1 / sum)) - (float)(smoothing / k->classes);
        p = j == label ? p - (float)(1 - smoothing) : p;
        dx[j] = (float)weighed((double)p, weight);
    }
    *correct = best == label;
    if (!known)
        return (double)NAN; /* nothing may be learned from it */
    double target = (double)x[label] - (double)x[best];
    return weighed(log(sum) - (1 - smoothing) * target - smoothing / k->classes * all, weight);
}

static void xent_body(const void *copied)
{
    const ls_k_xent *k = copied;
    const size_t rows = (size_t)k->rows, count = rows * (size_t)k->classes;
    double loss = 0, correct = 0;
    if (!twin_floats(k->x, count) || !twin_floats(k->dx, count) ||
        !twin_bytes(k->labels, rows * sizeof *k->labels) || !twin_floats(k->stats, 2) ||
        !twin_floats(k->row, 2 * rows) || !twin_bytes(k->fault, sizeof *k->fault) ||
        !twin_floats(k->weight, (size_t)k->classes) || !twin_floats(k->row_weight, rows))
        return;
    for (int r = k->rows - 1; r >= 0; r--)
        if (k->labels[r] < 0 || k->labels[r] >= k->classes)
            *k->fault = (ls_k_fault){LS_K_FAULT_LABEL, r, k->labels[r], k->classes};
    for (int r = 0; r < k->rows; r++) {
        int right;
        k->row[r] = (float)row_loss(k, r, &right);
        k->row[k->rows + r] = (float)right;
        loss += (double)k->row[r];
        correct += right;
    }
    k->stats[0] = (k->add ? k->stats[0] : 0) + (float)loss;
    k->stats[1] = (k->add ? k->stats[1] : 0) + (float)correct;
}

cudaError_t ls_k_softmax_xent(const ls_k_xent *xent, cudaStream_t stream)
{
    return TWIN(stream, xent_body, *xent);
}

/* Returns the loss of output `j` of a row; its derivative by z becomes *slope. */
static double lose(const ls_k_vector_loss *k, size_t j, double *slope, double z, double t)
{
    const double e = exp(-fabs(z)), d = z - t, q = k->quantile[j / (size_t)k->each];
    switch (k->rule) {
    case LS_K_BCE: *slope = (z > 0 ? 1 : e) / (1 + e) - t; return fmax(z, 0) - z * t + log1p(e);
    case LS_K_MAE: *slope = d > 0 ? 1 : d < 0 ? -1 : 0; return fabs(d);
    case LS_K_HUBER:
        *slope = fmax(-k->delta, fmin(d, k->delta));
        return fabs(d) < k->delta ? d * d / 2 : k->delta * (fabs(d) - k->delta / 2);
    case LS_K_QUANTILE:
        *slope = d > 0 ? 1 - q : d < 0 ? -q : 0.5 - q;
        return fmax(-q * d, (1 - q) * d);
    case LS_K_POISSON: *slope = exp(z) - t; return exp(z) - z * t;
    default: *slope = 2 * d; return d * d;
    }
}

static double vector_row(const ls_k_vector_loss *k, size_t row, int *correct)
{
    const size_t n = (size_t)k->n;
    const float weight = k->row_weight ? k->row_weight[row] : 1;
    double sum = 0;
    *correct = k->rule == LS_K_BCE;
    for (size_t i = row * n; i < (row + 1) * n; i++) {
        const size_t j = i - row * n, each = (size_t)k->each;
        const double z = (double)k->x[i], t = (double)k->targets[row * each + j % each];
        double slope;
        sum += lose(k, j, &slope, z, t);
        *correct = *correct && (z > 0) == (t > 0.5);
        if (k->dx)
            k->dx[i] = (float)weighed(slope / k->n, weight);
    }
    return weighed(sum / k->n, weight);
}

static void vector_body(const void *copied)
{
    const ls_k_vector_loss *k = copied;
    const size_t rows = (size_t)k->rows, count = rows * (size_t)k->n;
    double loss = 0, correct = 0;
    if (!twin_floats(k->x, count) || !twin_floats(k->targets, rows * (size_t)k->each) ||
        !twin_floats(k->dx, count) || !twin_floats(k->stats, 2) || !twin_floats(k->row, 2 * rows) ||
        !twin_floats(k->row_weight, rows))
        return;
    for (size_t r = 0; r < rows; r++) {
        int right;
        k->row[r] = (float)vector_row(k, r, &right);
        k->row[rows + r] = (float)right;
        loss += (double)k->row[r];
        correct += right;
    }
    k->stats[0] = (k->add ? k->stats[0] : 0) + (float)loss;
    k->stats[1] = (k->add ? k->stats[1] : 0) + (float)correct;
}

cudaError_t ls_k_vector_loss_of(const ls_k_vector_loss *loss, cudaStream_t stream)
{
    return TWIN(stream, vector_body, *loss);
}

/* ---- upsampling ----------------------------------------------------------------------------- */

struct upsample {
    float *to;
    const float *from;
    ls_k_upsample k;
    int back;
};

static void upsample_body(const void *copied)
{
    const struct upsample *a = copied;
    const ls_k_upsample *k = &a->k;
    const size_t c = (size_t)k->c, w = (size_t)(k->w * k->sw), h = (size_t)(k->h * k->sh);
    const size_t large = (size_t)k->rows * h * w * c, small = large / (size_t)(k->sh * k->sw);
    if (!twin_floats(a->to, a->back ? small : large) ||
        !twin_floats(a->from, a->back ? large : small))
        return;
    for (size_t i = 0; a->back && i < small; i++)
        a->to[i] = 0;
    for (size_t i = 0; i < large; i++) {
        size_t column = i / c % w / (size_t)k->sw, line = i / c / w % h / (size_t)k->sh;
        size_t of = ((i / c / w / h * (size_t)k->h + line) * (size_t)k->w + column) * c + i % c;
        if (a->back)
            a->to[of] += a->from[i];
        else
            a->to[i] = a->from[of];
    }
}

cudaError_t ls_k_upsample_of(float *y, const float *x, const ls_k_upsample *k, cudaStream_t stream)
{
    struct upsample a = {y, x, *k, 0};
    return TWIN(stream, upsample_body, a);
}

cudaError_t ls_k_upsample_back(float *dx, const float *dy, const ls_k_upsample *k,
                               cudaStream_t stream)
{
    struct upsample a = {dx, dy, *k, 1};
    return TWIN(stream, upsample_body, a);
}

/* ---- padding -------------------------------------------------------------------------------- */

struct pad {
    float *y;
    const float *x;
    ls_k_pad k;
};

static void pad_body(const void *copied)
{
    const struct pad *a = copied;
    const ls_k_pad *k = &a->k;
    const size_t rows = (size_t)k->rows * (size_t)k->c;
    if (!twin_floats(a->y, rows * (size_t)(k->y_h * k->y_w)) ||
        !twin_floats(a->x, rows * (size_t)(k->h * k->w)))
        return;
    memset(a->y, 0, rows * (size_t)(k->y_h * k->y_w) * sizeof *a->y);
    for (int r = 0; r < k->rows; r++)
        for (int i = larger(0, -k->top); i < smaller(k->h, k->y_h - k->top); i++)
            for (int j = larger(0, -k->left); j < smaller(k->w, k->y_w - k->left); j++)
                memcpy(a->y + ((size_t)(r * k->y_h + i + k->top) * (size_t)k->y_w +
                               (size_t)(j + k->left)) *
                                  (size_t)k->c,
                       a->x + ((size_t)(r * k->h + i) * (size_t)k->w + (size_t)j) * (size_t)k->c,
                       (size_t)k->c * sizeof *a->y);
}

cudaError_t ls_k_pad_of(float *y, const float *x, const ls_k_pad *k, cudaStream_t stream)
{
    struct pad a = {y, x, *k};
    return TWIN(stream, pad_body, a);
}
