/* SPDX-License-Identifier: MIT */
/* CPU twins of the kernels: steps over arenas and element-wise work. */
#include "doubles/kernels_cpu.h"

#include "base/digest.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- the numbers of a step ------------------------------------------------------------------ */

struct set_args {
    ls_k_args *to;
    ls_k_steps value;
    int count;
};

static void set_args_body(const void *copied)
{
    const struct set_args *a = copied;
    const size_t bytes = (size_t)a->count * sizeof *a->to;
    if (twin_bytes(a->to, bytes))
        memcpy(a->to, a->value.step, bytes);
}

cudaError_t ls_k_set_args(ls_k_args *to, const ls_k_steps *value, int count, cudaStream_t stream)
{
    struct set_args a = {to, *value, count};
    return TWIN(stream, set_args_body, a);
}

/* ---- optimizers ----------------------------------------------------------------------------- */

struct update {
    ls_k_update of;
    ls_k_adamw adamw;
    float momentum, weight_decay;
    int nesterov, of_weights;
};

static int is_skipped(const ls_k_guard *guard)
{
    if (!guard->loss || !twin_floats(guard->loss, 1) || !twin_floats(guard->skip, 1))
        return guard->loss != NULL;
    if (!isfinite(*guard->loss))
        *guard->skip = 1;
    return *guard->skip != 0;
}

static void tell(const ls_k_update *u)
{
    if (!u->guard.loss || !twin_bytes(u->args, sizeof *u->args) || !u->args->stats_copy)
        return;
    if (twin_floats(u->guard.loss, 2) && twin_floats(u->args->stats_copy, 2))
        memcpy(u->args->stats_copy, u->guard.loss, 2 * sizeof(float));
}

static float rate_of(const ls_k_update *u)
{
    return u->guard.rate != 0 ? u->args->lr * u->guard.rate : u->args->lr;
}

static float scale_of(const ls_k_update *u)
{
    return u->guard.clip && twin_floats(u->guard.clip, 1) ? u->args->scale * u->guard.clip[0]
                                                          : u->args->scale;
}

static int may_update(const ls_k_update *u)
{
    const size_t marks = (u->count / 16 + 31) / 32 * sizeof *u->in_shadow;
    return !is_skipped(&u->guard) && twin_floats(u->w, u->count) &&
           twin_floats(u->slot[0], u->count) && twin_floats(u->slot[1], u->count) &&
           twin_floats(u->grad, u->count) && twin_bytes(u->args, sizeof *u->args) &&
           twin_tensor(u->shadow, u->count, 1) &&
           (!u->in_shadow ||
            (twin_bytes(u->in_shadow, marks) && twin_tensor(u->shadow_grad, u->count, 1)));
}

/* Adds the digest of an array whose first float is at position `at`; NULL: there is no array. */
static void add_digest(const ls_k_args *args, const float *array, size_t at, size_t count)
{
    uint64_t sum = 0;
    if (!args->digest || !array || !twin_bytes(args->digest, sizeof *args->digest))
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &array[i], sizeof bits);
        sum += bits * ls_digest_weight(at + i);
    }
    *args->digest += sum;
}

static void add_digests(const ls_k_update *u)
{
    if (!u->sums)
        return;
    add_digest(u->args, u->w, u->digest_at[0], u->count);
    add_digest(u->args, u->slot[0], u->digest_at[1], u->count);
    add_digest(u->args, u->slot[1], u->digest_at[2], u->count);
}

static float gradient_of(const ls_k_update *u, size_t i)
{
    const size_t grain = i / 16;
    const int half = u->in_shadow && (u->in_shadow[grain / 32] >> grain % 32 & 1);
    return twin_get(half ? (const void *)u->shadow_grad : u->grad, i, half);
}

static void put_weight(const ls_k_update *u, size_t i, float w)
{
    u->w[i] = w;
    if (u->shadow)
        twin_put(u->shadow, i, 1, w);
}

static void sgd_body(const void *copied)
{
    const struct update *a = copied;
    const ls_k_update *u = &a->of;
    float *v = u->slot[0];
    tell(u);
    if (!may_update(u))
        return;
    add_digests(u);
    float lr = rate_of(u), scale = scale_of(u);
    for (size_t i = 0; i < u->count; i++) {
        float gradient = gradient_of(u, i) * scale + a->weight_decay * u->w[i], step = gradient;
        if (a->momentum != 0) {
            v[i] = a->momentum * v[i] + gradient;
            step = a->nesterov ? gradient + a->momentum * v[i] : v[i];
        }
        put_weight(u, i, u->w[i] - lr * step);
    }
}

cudaError_t ls_k_sgd(const ls_k_update *update, float momentum, float weight_decay, int nesterov,
                     cudaStream_t stream)
{
    struct update a = {
        .of = *update, .momentum = momentum, .weight_decay = weight_decay, .nesterov = nesterov};
    return TWIN(stream, sgd_body, a);
}

static void adamw_body(const void *copied)
{
    const struct update *a = copied;
    const ls_k_update *u = &a->of;
    const ls_k_adamw *k = &a->adamw;
    float *m = u->slot[0], *v = u->slot[1];
    tell(u);
    if (!may_update(u))
        return;
    add_digests(u);
    double t = (double)u->args->step, lr = (double)rate_of(u);
    float keep = (float)(1 - lr * (double)k->weight_decay);
    float rate = (float)(lr / (1 - pow((double)k->beta1, t)));
    float root = (float)sqrt(1 - pow((double)k->beta2, t));
    float rest1 = (float)(1 - (double)k->beta1), rest2 = (float)(1 - (double)k->beta2);
    for (size_t i = 0; i < u->count; i++) {
        float g = gradient_of(u, i) * scale_of(u);
        m[i] = k->beta1 * m[i] + rest1 * g;
        v[i] = k->beta2 * v[i] + rest2 * (g * g);
        put_weight(u, i, u->w[i] * keep - rate * (m[i] / (sqrtf(v[i]) / root + k->epsilon)));
    }
}

cudaError_t ls_k_adamw_step(const ls_k_update *update, const ls_k_adamw *adamw, cudaStream_t stream)
{
    struct update a = {.of = *update, .adamw = *adamw};
    return TWIN(stream, adamw_body, a);
}

static void running_body(const void *copied)
{
    const struct update *a = copied;
    const ls_k_update *u = &a->of;
    if (!may_update(u))
        return;
    add_digests(u);
    for (size_t i = 0; i < u->count; i++)
        u->w[i] += a->momentum * (u->grad[i] * (a->of_weights ? 1 : u->args->row_scale) - u->w[i]);
}

cudaError_t ls_k_running(const ls_k_update *update, float momentum, int of_weights,
                         cudaStream_t stream)
{
    struct update a = {.of = {.w = update->w,
                              .grad = update->grad,
                              .args = update->args,
                              .guard = update->guard,
                              .count = update->count,
                              .sums = update->sums,
                              .digest_at = {update->digest_at[0]}},
                       .momentum = momentum,
                       .of_weights = of_weights};
    return TWIN(stream, running_body, a);
}

struct digest {
    const float *x;
    const ls_k_args *args;
    size_t at, count;
};

static void digest_body(const void *copied)
{
    const struct digest *a = copied;
    if (twin_floats(a->x, a->count) && twin_bytes(a->args, sizeof *a->args))
        add_digest(a->args, a->x, a->at, a->count);
}

cudaError_t ls_k_digest(const float *x, const ls_k_args *args, size_t at, size_t count,
                        cudaStream_t stream)
{
    struct digest a = {x, args, at, count};
    return TWIN(stream, digest_body, a);
}

struct clip {
    float *clip;
    double *partial;
    const float *grad;
    const ls_k_args *args;
    float most;
    int add;
    size_t count;
};

static void clip_body(const void *copied)
{
    const struct clip *a = copied;
    double sum = 0;
    if (!twin_floats(a->clip, 4) || !twin_floats(a->grad, a->count) ||
        !twin_bytes(a->partial, LS_K_CLIP_SUMS * sizeof *a->partial) ||
        !twin_bytes(a->args, sizeof *a->args))
        return;
    if (a->add)
        memcpy(&sum, a->clip + 2, sizeof sum);
    for (size_t i = 0; i < a->count; i++)
        sum += (double)a->grad[i] * (double)a->grad[i];
    memcpy(a->clip + 2, &sum, sizeof sum);
    a->clip[0] = (float)fmin(1, (double)a->most / (sqrt(sum) * (double)a->args->scale + 1e-6));
}

cudaError_t ls_k_clip(float *clip, double *partial, const float *grad, const ls_k_args *args,
                      float most, int add, size_t count, cudaStream_t stream)
{
    struct clip a = {clip, partial, grad, args, most, add, count};
    return TWIN(stream, clip_body, a);
}

/* ---- sums of arenas ------------------------------------------------------------------------- */

struct add_arenas {
    float *out;
    const float *in[LS_K_ARENAS];
    uint8_t order[2 * LS_K_ARENAS];
    int count, steps;
    size_t floats;
};

static void add_arenas_body(const void *copied)
{
    const struct add_arenas *a = copied;
    for (int k = 0; k < a->count; k++)
        if (!twin_floats(a->in[k], a->floats))
            return;
    if (!twin_floats(a->out, a->floats))
        return;
    for (size_t i = 0; i < a->floats; i++) {
        float stack[LS_K_STACK] = {0};
        int depth = 0;
        for (int s = 0; s < a->steps; s++) {
            if (a->order[s] == LS_K_ADD) {
                depth--;
                stack[depth - 1] = stack[depth - 1] + stack[depth];
            } else {
                stack[depth++] = a->in[a->order[s]][i];
            }
        }
        a->out[i] = stack[0];
    }
}

static int is_postfix(const struct add_arenas *a)
{
    int depth = 0;
    for (int s = 0; s < a->steps; s++) {
        int add = a->order[s] == LS_K_ADD;
        if (add ? depth < 2 : a->order[s] >= a->count || depth == LS_K_STACK)
            return 0;
        depth += add ? -1 : 1;
    }
    return depth == 1;
}

cudaError_t ls_k_add_arenas(float *out, const float *const *in, int count, const uint8_t *order,
                            size_t floats, cudaStream_t stream)
{
    struct add_arenas a = {.out = out, .count = count, .steps = 2 * count - 1, .floats = floats};
    if (count < 1 || count > LS_K_ARENAS)
        return cudaErrorInvalidValue;
    memcpy(a.in, in, (size_t)count * sizeof *in);
    memcpy(a.order, order, (size_t)a.steps);
    return is_postfix(&a) ? TWIN(stream, add_arenas_body, a) : cudaErrorInvalidValue;
}

/* ---- out ← f(a, b) -------------------------------------------------------------------------- */

struct map {
    void *out, *out2;
    const void *a, *b;
    int half;
    ls_k_shape shape;
    size_t count;
    float (*f)(float a, float b, ls_k_shape shape);
};

static void map_body(const void *copied)
{
    const struct map *m = copied;
    if (!twin_tensor(m->out, m->count, m->half) || !twin_tensor(m->out2, m->count, m->half) ||
        !twin_tensor(m->a, m->count, m->half) || !twin_tensor(m->b, m->count, m->half))
        return;
    for (size_t i = 0; i < m->count; i++) {
        float value =
            m->f(twin_get(m->a, i, m->half), m->b ? twin_get(m->b, i, m->half) : 0, m->shape);
        twin_put(m->out, i, m->half, value);
        if (m->out2)
            twin_put(m->out2, i, m->half, value);
    }
}

static float sum_of(float a, float b, ls_k_shape unused)
{
    (void)unused;
    return a + b;
}

static float sum_relu_of(float a, float b, ls_k_shape unused)
{
    (void)unused;
    return a + b > 0 ? a + b : 0;
}

static float relu_of(float x, float unused, ls_k_shape k)
{
    (void)unused;
    return x > 0 ? x : k.slope != 0 ? k.slope * x : 0;
}

static float relu_back_of(float dy, float y, ls_k_shape k)
{
    return y > 0 ? dy : k.slope != 0 ? k.slope * dy : 0;
}

static float pass_of(float dy, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return dy;
}

static float sigmoid_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return 1 / (1 + expf(-x));
}

static float sigmoid_back_of(float dy, float y, ls_k_shape unused)
{
    (void)unused;
    return dy * y * (1 - y);
}

static float tanh_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return tanhf(x);
}

static float tanh_back_of(float dy, float y, ls_k_shape unused)
{
    (void)unused;
    return dy * (1 - y * y);
}

static float bounded(float x)
{
    return fabsf(x) > FLT_MAX ? copysignf(FLT_MAX, x) : x;
}

static float from_lowest(float x)
{
    return x < -FLT_MAX ? -FLT_MAX : x;
}

static float normal_below(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

static float gelu_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return from_lowest(x) * normal_below(x);
}

static float gelu_back_of(float dy, float x, ls_k_shape unused)
{
    (void)unused;
    return dy * (normal_below(x) + bounded(x) * 0.39894228f * expf(-0.5f * x * x));
}

static float silu_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return from_lowest(x) / (1 + expf(-x));
}

static float silu_back_of(float dy, float x, ls_k_shape unused)
{
    const float s = 1 / (1 + expf(-x));
    (void)unused;
    return dy * s * (1 + bounded(x) * (1 - s));
}

static float between(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

static float clamp_of(float x, float unused, ls_k_shape k)
{
    (void)unused;
    return between(x, k.least, k.most);
}

static float clamp_back_of(float dy, float y, ls_k_shape k)
{
    return y > k.least && y < k.most ? dy : 0;
}

static float gelu_inner(float x)
{
    return x * fmaf(x * x, 0.0713548163f, 1.59576912f);
}

static float gelu_tanh_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return from_lowest(x) / (1 + expf(-gelu_inner(x)));
}

static float gelu_tanh_back_of(float dy, float x, ls_k_shape unused)
{
    const float v = between(x, -16, 16), t = gelu_inner(v), s = 1 / (1 + expf(-t));
    (void)unused;
    return dy * fmaf(v * s, fmaf(v * v, 3 * 0.0713548163f, 1.59576912f) / (1 + expf(t)), s);
}

static float affine_of(float x, float unused, ls_k_shape k)
{
    (void)unused;
    return fmaf(k.slope, x, k.offset);
}

static float affine_back_of(float dy, float unused, ls_k_shape k)
{
    (void)unused;
    return k.slope * dy;
}

static float hard_sigmoid_of(float x, float unused, ls_k_shape k)
{
    (void)unused;
    return between(fmaf(k.slope, x, k.offset), 0, 1);
}

static float hard_sigmoid_back_of(float dy, float y, ls_k_shape k)
{
    return y > 0 && y < 1 ? k.slope * dy : 0;
}

static float hard_swish_of(float x, float unused, ls_k_shape unused2)
{
    (void)unused;
    (void)unused2;
    return from_lowest(x) * (between(x + 3, 0, 6) * (1.0f / 6));
}

static float hard_swish_back_of(float dy, float x, ls_k_shape unused)
{
    (void)unused;
    return x < 3 ? x > -3 ? dy * fmaf(x, 1.0f / 3, 0.5f) : 0 : dy;
}

cudaError_t ls_k_sum(float *to, const float *a, const float *b, size_t count, cudaStream_t stream)
{
    struct map m = {.out = to, .a = a, .b = b, .count = count, .f = sum_of};
    return TWIN(stream, map_body, m);
}

cudaError_t ls_k_add(void *y, const void *x, const void *x2, int half, int relu, size_t count,
                     cudaStream_t stream)
{
    struct map m = {
        .out = y, .a = x, .b = x2, .half = half, .count = count, .f = relu ? sum_relu_of : sum_of};
    return TWIN(stream, map_body, m);
}

cudaError_t ls_k_add_back(void *dx, void *dx2, const void *dy, const void *y, int half,
                          size_t count, cudaStream_t stream)
{
    struct map m = {.out = dx,
                    .out2 = dx2,
                    .a = dy,
                    .b = y,
                    .half = half,
                    .count = count,
                    .f = y ? relu_back_of : pass_of};
    return TWIN(stream, map_body, m);
}

cudaError_t ls_k_curve_of(float *y, const float *x, ls_k_curve curve, ls_k_shape shape,
                          size_t count, cudaStream_t stream)
{
    static float (*const of[])(float, float, ls_k_shape) = {
        [LS_K_RELU] = relu_of,
        [LS_K_SIGMOID] = sigmoid_of,
        [LS_K_TANH] = tanh_of,
        [LS_K_GELU] = gelu_of,
        [LS_K_SILU] = silu_of,
        [LS_K_CLAMP] = clamp_of,
        [LS_K_HARD_SIGMOID] = hard_sigmoid_of,
        [LS_K_HARD_SWISH] = hard_swish_of,
        [LS_K_GELU_TANH] = gelu_tanh_of,
        [LS_K_AFFINE] = affine_of,
    };
    struct map m = {.out = y, .a = x, .shape = shape, .count = count, .f = of[curve]};
    return TWIN(stream, map_body, m);
}

cudaError_t ls_k_curve_back(float *dx, const float *dy, const float *v, ls_k_curve curve,
                            ls_k_shape shape, size_t count, cudaStream_t stream)
{
    static float (*const of[])(float, float, ls_k_shape) = {
        [LS_K_RELU] = relu_back_of,
        [LS_K_SIGMOID] = sigmoid_back_of,
        [LS_K_TANH] = tanh_back_of,
        [LS_K_GELU] = gelu_back_of,
        [LS_K_SILU] = silu_back_of,
        [LS_K_CLAMP] = clamp_back_of,
        [LS_K_HARD_SIGMOID] = hard_sigmoid_back_of,
        [LS_K_HARD_SWISH] = hard_swish_back_of,
        [LS_K_GELU_TANH] = gelu_tanh_back_of,
        [LS_K_AFFINE] = affine_back_of,
    };
    struct map m = {.out = dx, .a = dy, .b = v, .shape = shape, .count = count, .f = of[curve]};
    return TWIN(stream, map_body, m);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A product of x[n][pixels][c] and x2[n][c]. A product of equal shapes has one pixel. */
struct product {
    float *y;        /* forward */
    float *dx, *dx2; /* backward */
    const float *dy, *x, *x2;
    size_t n, pixels, c;
};

static void product_body(const void *copied)
{
    const struct product *a = copied;
    const size_t count = a->n * a->pixels * a->c, few = a->n * a->c;
    if (!twin_floats(a->y, count) || !twin_floats(a->dx, count) || !twin_floats(a->dx2, few) ||
        !twin_floats(a->dy, count) || !twin_floats(a->x, count) || !twin_floats(a->x2, few))
        return;
    for (size_t j = 0; j < few; j++) {
        double sum = 0;
        for (size_t p = 0; p < a->pixels; p++) {
            const size_t at = (j / a->c * a->pixels + p) * a->c + j % a->c;
            if (a->y)
                a->y[at] = a->x[at] * a->x2[j];
            else
                sum += (double)a->dy[at] * (double)a->x[at];
        }
        for (size_t p = 0; a->dx && p < a->pixels; p++) {
            const size_t at = (j / a->c * a->pixels + p) * a->c + j % a->c;
            a->dx[at] = a->dy[at] * a->x2[j];
        }
        if (a->dx2)
            a->dx2[j] = (float)sum;
    }
}

cudaError_t ls_k_multiply(float *y, const float *x, const float *x2, size_t count,
                          cudaStream_t stream)
{
    struct product a = {.y = y, .x = x, .x2 = x2, .n = count, .pixels = 1, .c = 1};
    return TWIN(stream, product_body, a);
}

cudaError_t ls_k_multiply_back(float *dx, float *dx2, const float *dy, const float *x,
                               const float *x2, size_t count, cudaStream_t stream)
{
    struct product a = {
        .dx = dx, .dx2 = dx2, .dy = dy, .x = x, .x2 = x2, .n = count, .pixels = 1, .c = 1};
    return TWIN(stream, product_body, a);
}

cudaError_t ls_k_scale_by(float *y, const float *x, const float *x2, const ls_k_scale *k,
                          cudaStream_t stream)
{
    struct product a = {.y = y,
                        .x = x,
                        .x2 = x2,
                        .n = (size_t)k->rows,
                        .pixels = (size_t)k->pixels,
                        .c = (size_t)k->c};
    return TWIN(stream, product_body, a);
}

cudaError_t ls_k_scale_back(float *dx, float *dx2, const float *dy, const float *x, const float *x2,
                            const ls_k_scale *k, cudaStream_t stream)
{
    struct product a = {.dx = dx,
                        .dx2 = dx2,
                        .dy = dy,
                        .x = x,
                        .x2 = x2,
                        .n = (size_t)k->rows,
                        .pixels = (size_t)k->pixels,
                        .c = (size_t)k->c};
    return TWIN(stream, product_body, a);
}

/* ---- concatenation -------------------------------------------------------------------------- */

struct concat {
    float *y, *x, *x2;
    size_t m, c1, c2;
    int back;
};

static void concat_body(const void *copied)
{
    const struct concat *a = copied;
    const size_t c = a->c1 + a->c2;
    if (!twin_floats(a->y, a->m * c) || !twin_floats(a->x, a->m * a->c1) ||
        !twin_floats(a->x2, a->m * a->c2))
        return;
    for (size_t i = 0; i < a->m * c; i++) {
        size_t at = i / c, k = i % c;
        float *part = k < a->c1 ? &a->x[at * a->c1 + k] : &a->x2[at * a->c2 + k - a->c1];
        *(a->back ? part : &a->y[i]) = *(a->back ? &a->y[i] : part);
    }
}

cudaError_t ls_k_concat(float *y, const float *x, const float *x2, size_t m, int c1, int c2,
                        cudaStream_t stream)
{
    struct concat a = {y, (float *)x, (float *)x2, m, (size_t)c1, (size_t)c2, 0};
    return TWIN(stream, concat_body, a);
}

cudaError_t ls_k_concat_back(float *dx, float *dx2, const float *dy, size_t m, int c1, int c2,
                             cudaStream_t stream)
{
    struct concat a = {(float *)dy, dx, dx2, m, (size_t)c1, (size_t)c2, 1};
    return TWIN(stream, concat_body, a);
}

/* ---- dropout -------------------------------------------------------------------------------- */

struct drop {
    float *y;
    uint8_t *kept;
    const float *x;
    ls_k_dropout k;
};

static void drop_body(const void *copied)
{
    const struct drop *a = copied;
    const ls_k_dropout *k = &a->k;
    const size_t row = (size_t)k->c * (size_t)k->pixels, count = (size_t)k->rows * row;
    const float scale = 1.0f / (1.0f - k->p);
    if (!twin_bytes(k->args, sizeof *k->args) ||
        !twin_bytes(k->args->rows, (size_t)k->rows * sizeof *k->args->rows) ||
        !twin_floats(a->x, count) || !twin_floats(a->y, count) || !twin_bytes(a->kept, count))
        return;
    for (size_t i = 0; i < count; i++) {
        size_t q = i % row, c = (size_t)k->c;
        size_t e = k->channels_last ? q % c * (size_t)k->pixels + q / c : q;
        uint64_t index = (uint64_t)k->args->rows[i / row] * row + e;
        int keep = !(ls_rng_uniform(k->args->seed, k->number, k->args->epoch, index) < k->p);
        a->y[i] = keep ? a->x[i] * scale : 0;
        if (a->kept)
            a->kept[i] = (uint8_t)keep;
    }
}

cudaError_t ls_k_drop(float *y, uint8_t *kept, const float *x, const ls_k_dropout *dropout,
                      cudaStream_t stream)
{
    struct drop a = {y, kept, x, *dropout};
    return TWIN(stream, drop_body, a);
}

struct drop_back {
    float *dx;
    const float *dy;
    const uint8_t *kept;
    float p;
    size_t count;
};

static void drop_back_body(const void *copied)
{
    const struct drop_back *a = copied;
    const float scale = 1.0f / (1.0f - a->p);
    if (!twin_floats(a->dx, a->count) || !twin_floats(a->dy, a->count) ||
        !twin_bytes(a->kept, a->count))
        return;
    for (size_t i = 0; i < a->count; i++)
        a->dx[i] = a->kept[i] ? a->dy[i] * scale : 0;
}

cudaError_t ls_k_drop_back(float *dx, const float *dy, const uint8_t *kept, float p, size_t count,
                           cudaStream_t stream)
{
    struct drop_back a = {dx, dy, kept, p, count};
    return TWIN(stream, drop_back_body, a);
}

/* ---- load ------------------------------------------------------------------------------------ */

struct busy {
    uint32_t *out;
    int blocks;
    uint32_t rounds;
};

static void busy_body(const void *copied)
{
    const struct busy *a = copied;
    const uint32_t count = (uint32_t)a->blocks * LS_K_BUSY;
    if (!twin_bytes(a->out, count * sizeof *a->out))
        return;
    for (uint32_t t = 0; t < count; t++) {
        uint32_t x = t * 32;
        for (uint32_t i = 0; i < a->rounds; i++)
            x = x * 1664525u + 1013904223u + (x >> 16);
        a->out[t] = x;
    }
}

cudaError_t ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream)
{
    struct busy a = {out, blocks, rounds};
    return TWIN(stream, busy_body, a);
}
