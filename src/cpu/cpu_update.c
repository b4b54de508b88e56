/* SPDX-License-Identifier: MIT */
/* The ops that work on a whole arena instead of tensors: the updates of the optimizers, gradient
 * clipping, the update of running statistics, and digests. The ops work element by element and
 * without fused multiply-adds. Therefore the bits depend neither on the instruction set nor on the
 * number of threads. */
#include "cpu/lanes_op.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/portable_math.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

typedef struct update_op {
    ls_lanes_op base; /* base; must be first */
    ls_op_desc desc;
    /* adamw, for the current training step: 1 − lr·weight_decay, lr / (1 − β₁ᵗ), √(1 − β₂ᵗ) */
    float keep, rate, root;
} update_op;

static const char *name_of(ls_op_kind kind)
{
    return kind == LS_OP_ADAMW     ? "adamw"
           : kind == LS_OP_RUNNING ? "running"
           : kind == LS_OP_CLIP    ? "clip"
           : kind == LS_OP_DIGEST  ? "digest"
                                   : "sgd";
}

static int update_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    const update_op *u = (const update_op *)op;
    const ls_op_kind kind = u->desc.kind;
    int adamw = kind == LS_OP_ADAMW, velocity = kind == LS_OP_SGD && u->desc.u.sgd.momentum != 0;
    if (!buffers->args || !buffers->param[0] || (!buffers->grad[0] && kind != LS_OP_DIGEST) ||
        (kind == LS_OP_CLIP && !buffers->clip) || ((adamw || velocity) && !buffers->slot[0]) ||
        (adamw && !buffers->slot[1]) || !buffers->guard != !buffers->skip)
        return ls_fail(err, LS_EINVAL, "%s: an arena is missing", name_of(kind));
    return ls_lanes_op_bind(op, buffers, err);
}

/* Updates the elements first … end − 1 of the arena. */
typedef void step_fn(const update_op *u, float lr, float scale, size_t first, size_t end);

static void step_plain(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    float *w = u->base.b.param[0];
    const float *g = u->base.b.grad[0];
    float decay = u->desc.u.sgd.weight_decay;
#pragma omp simd
    for (size_t i = first; i < end; i++)
        w[i] -= lr * (g[i] * scale + decay * w[i]);
}

static void step_momentum(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    float *w = u->base.b.param[0], *v = u->base.b.slot[0];
    const float *g = u->base.b.grad[0];
    float decay = u->desc.u.sgd.weight_decay, momentum = u->desc.u.sgd.momentum;
#pragma omp simd
    for (size_t i = first; i < end; i++) {
        v[i] = momentum * v[i] + (g[i] * scale + decay * w[i]);
        w[i] -= lr * v[i];
    }
}

static void step_nesterov(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    float *w = u->base.b.param[0], *v = u->base.b.slot[0];
    const float *g = u->base.b.grad[0];
    float decay = u->desc.u.sgd.weight_decay, momentum = u->desc.u.sgd.momentum;
#pragma omp simd
    for (size_t i = first; i < end; i++) {
        float gradient = g[i] * scale + decay * w[i];
        v[i] = momentum * v[i] + gradient;
        w[i] -= lr * (gradient + momentum * v[i]);
    }
}

static void step_adamw(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    float *w = u->base.b.param[0], *m = u->base.b.slot[0], *v = u->base.b.slot[1];
    const float *g = u->base.b.grad[0];
    const ls_adamw *k = &u->desc.u.adamw;
    float beta1 = k->beta1, beta2 = k->beta2, epsilon = k->epsilon;
    float rest1 = (float)(1 - (double)beta1), rest2 = (float)(1 - (double)beta2);
    float keep = u->keep, rate = u->rate, root = u->root;
    (void)lr;
#pragma omp simd
    for (size_t i = first; i < end; i++) {
        float gradient = g[i] * scale;
        m[i] = beta1 * m[i] + rest1 * gradient;
        v[i] = beta2 * v[i] + rest2 * (gradient * gradient);
        w[i] = w[i] * keep - rate * (m[i] / (sqrtf(v[i]) / root + epsilon));
    }
}

static void prepare_adamw(update_op *u, const ls_step_args *args, float step_rate)
{
    const ls_adamw *k = &u->desc.u.adamw;
    const double lr = (double)step_rate;
    u->keep = (float)(1 - lr * (double)k->weight_decay);
    u->rate = (float)(lr / (1 - ls_power((double)k->beta1, args->step)));
    u->root = (float)sqrt(1 - ls_power((double)k->beta2, args->step));
}

/* Returns the sum of squares. It adds up sixteen sums side by side, so that the order of additions
 * is the same with vector registers of any length. */
static double squares(const float *g, size_t count)
{
    double sum[16] = {0};
    for (size_t i = 0; i < count; i += 16)
        for (size_t k = 0; k < 16; k++)
            sum[k] += (double)g[i + k] * (double)g[i + k];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            sum[k] += sum[k + half];
    return sum[0];
}

static void find_clip(const update_op *u, float scale, unsigned flags)
{
    float *clip = u->base.b.clip;
    double sum = 0;
    if (flags & LS_RUN_ACCUMULATE)
        memcpy(&sum, clip + 2, sizeof sum);
    sum += squares(u->base.b.grad[0], u->desc.count);
    memcpy(clip + 2, &sum, sizeof sum);
    clip[0] = (float)fmin(1, (double)u->desc.u.clip.most / (sqrt(sum) * (double)scale + 1e-6));
}

static void step_running(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    float *to = u->base.b.param[0], momentum = u->desc.u.running.momentum;
    const float *sum = u->base.b.grad[0];
    (void)lr;
    for (size_t i = first; i < end; i++)
        to[i] += momentum * (sum[i] * scale - to[i]);
}

/* The step of an op that only sums a digest. */
static void step_nothing(const update_op *u, float lr, float scale, size_t first, size_t end)
{
    (void)u;
    (void)lr;
    (void)scale;
    (void)first;
    (void)end;
}

/* ---- digests --------------------------------------------------------------------------------- */

/* Number of floats that are summed before they are updated. They stay in the first-level cache in
 * between, together with the floats of the optimizer's state. */
#define DIGEST_FLOATS 512

/* Returns the digest of `vectors` vectors, the first of which is at position `at`. The kernel's
 * sums weight the last vector by 1, the one before it by 2, and so on. */
static uint64_t digest_of(const ls_lanes_digest *d, size_t vectors, size_t at)
{
    const uint64_t end = 2 * (uint64_t)(at / 16 + vectors) + 1;
    uint64_t sum = 0;
    for (int lane = 15; lane >= 0; lane--) {
        const int i = lane / 2 + lane % 2 * 8;
        sum = (sum + end * d->sum[i] - 2 * d->sums[i]) * LS_DIGEST_FACTOR;
    }
    return sum;
}

/* Adds the floats first … end − 1 of an array to the sums. Only the last floats of the array can be
 * less than a vector; zeros are added to them, which count nothing. */
static void sum_floats(const ls_lanes_kernels *kernels, ls_lanes_digest *d, const float *array,
                       const float *ahead, size_t first, size_t end)
{
    const size_t whole = (end - first) / 16 * 16;
    kernels->digest(whole / 16, array + first, ahead + first, d);
    if (first + whole < end) {
        _Alignas(64) float rest[16] = {0};
        memcpy(rest, array + first + whole, (end - first - whole) * sizeof *rest);
        kernels->digest(1, rest, rest, d);
    }
}

/* Returns how many arrays the op updates: param[0], and the optimizer's states. */
static int arrays_of(const update_op *u)
{
    if (u->desc.kind == LS_OP_SGD)
        return u->desc.u.sgd.momentum != 0 ? 2 : 1;
    return u->desc.kind == LS_OP_ADAMW ? 3 : 1;
}

/* Updates the elements first … end − 1 and returns their digest before the update. */
static uint64_t step_and_sum(const update_op *u, step_fn *fn, float lr, float scale, size_t first,
                             size_t end)
{
    const ls_op_buffers *b = &u->base.b;
    const float *array[1 + LS_OP_SLOTS] = {b->param[0], b->slot[0], b->slot[1]};
    ls_lanes_digest d[1 + LS_OP_SLOTS] = {{{0}, {0}}};
    const int arrays = arrays_of(u);
    const float *ahead = b->grad[0] ? b->grad[0] : b->param[0];
    uint64_t sum = 0;
    for (size_t at = first; at < end; at += DIGEST_FLOATS) {
        const size_t stop = end - at < DIGEST_FLOATS ? end : at + DIGEST_FLOATS;
        for (int i = 0; i < arrays; i++)
            sum_floats(u->base.kernels, &d[i], array[i], ahead, at, stop);
        fn(u, lr, scale, at, stop);
    }
    for (int i = 0; i < arrays; i++)
        sum += digest_of(&d[i], (end - first + 15) / 16, b->digest_at[i] + first);
    return sum;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* number of floats of an item, the work that a thread takes at a time: whole cache lines */
#define STEP_FLOATS 16384

typedef struct pass {
    const update_op *u;
    step_fn *fn;
    float lr, scale;
    bool sums;               /* the pass also sums the digest */
    _Atomic uint64_t digest; /* the sum so far */
} pass;

static void step_some(void *arg, uint32_t item)
{
    pass *p = arg;
    const size_t first = (size_t)item * STEP_FLOATS, left = p->u->desc.count - first;
    const size_t end = first + (left < STEP_FLOATS ? left : STEP_FLOATS);
    if (!p->sums)
        p->fn(p->u, p->lr, p->scale, first, end);
    else
        /* relaxed: the end of ls_team_run orders the additions before the sum is read */
        atomic_fetch_add_explicit(&p->digest,
                                  step_and_sum(p->u, p->fn, p->lr, p->scale, first, end),
                                  memory_order_relaxed);
}

/* Runs `fn` over the whole arena, by the threads of `team`. */
static void run_pass(const update_op *u, ls_team *team, step_fn *fn, float lr, float scale)
{
    uint64_t *digest = u->base.b.args->digest;
    pass p = {.u = u, .fn = fn, .lr = lr, .scale = scale, .sums = digest};
    ls_team_run(team, (uint32_t)((u->desc.count + STEP_FLOATS - 1) / STEP_FLOATS), step_some, &p);
    if (digest)
        *digest += atomic_load_explicit(&p.digest, memory_order_relaxed);
}

/* Returns true if the update must be skipped. Sets *skip if the loss (*guard) is not finite. As
 * long as *skip is set, all updates are skipped. The user of the device clears it. */
static bool is_skipped(const ls_op_buffers *b)
{
    if (!b->guard)
        return 0;
    if (!isfinite(*b->guard))
        *b->skip = 1;
    return *b->skip != 0;
}

/* Runs one update of an optimizer. */
static void run_step(update_op *u, const ls_step_args *args)
{
    const int adamw = u->desc.kind == LS_OP_ADAMW;
    const ls_sgd *sgd = &u->desc.u.sgd;
    const float factor = u->desc.rate;
    const float lr = factor != 0 ? args->lr * factor : args->lr;
    const float scale = u->base.b.clip ? args->scale * u->base.b.clip[0] : args->scale;
    step_fn *with_momentum = sgd->nesterov ? step_nesterov : step_momentum;
    if (adamw)
        prepare_adamw(u, args, lr);
    run_pass(u, u->base.team,
             adamw                ? step_adamw
             : sgd->momentum != 0 ? with_momentum
                                  : step_plain,
             lr, scale);
}

static int update_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    update_op *u = (update_op *)op;
    const ls_step_args *args = u->base.b.args;
    (void)stream;
    (void)err;
    if (is_skipped(&u->base.b))
        return LS_OK;
    if (u->desc.kind == LS_OP_RUNNING)
        run_pass(u, NULL, step_running, 0, u->desc.u.running.of_weights ? 1 : args->row_scale);
    else if (u->desc.kind == LS_OP_DIGEST && args->digest)
        run_pass(u, NULL, step_nothing, 0, 0);
    else if (u->desc.kind == LS_OP_DIGEST)
        return LS_OK;
    else if (u->desc.kind == LS_OP_CLIP)
        find_clip(u, args->scale, flags);
    else
        run_step(u, args);
    return LS_OK;
}

static const ls_op_impl update_impl = {
    .size = sizeof(ls_op_impl),
    .bind = update_bind,
    .forward = update_forward,
    .destroy = ls_lanes_op_destroy,
};

int ls_cpu_update_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    *out = NULL;
    const bool whole = desc->kind != LS_OP_RUNNING && desc->kind != LS_OP_DIGEST;
    if (whole && desc->count % 16 != 0)
        return ls_fail(err, LS_EINVAL, "%s: an arena of %zu floats; a multiple of 16 is needed",
                       name_of(desc->kind), desc->count);
    update_op *u = (update_op *)ls_lanes_op_alloc(sizeof *u, &update_impl, device, desc);
    if (!u)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of %s", name_of(desc->kind));
    u->desc = *desc;
    *out = &u->base.op;
    return LS_OK;
}
