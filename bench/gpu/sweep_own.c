/* SPDX-License-Identifier: MIT */
/* gpu_sweep: Lockstep's own kernels for convolutions of few channels, and what they replace. */
#include "cuda/own_conv.h"
#include "sweep.h"

#include <stdio.h>

/* Offsets in the workspace: first a tensor as large as y, then the bits of a pool, then the partial
 * sums. */
static size_t y_bytes(const ls_math_shape *s)
{
    return (size_t)s->rows * (size_t)s->y_h * (size_t)s->y_w * (size_t)s->out * (s->half ? 2 : 4);
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t bits_at(const ls_math_shape *s)
{
    return rounded_up(y_bytes(s));
}

static size_t partial_at(const ls_math_shape *s)
{
    return bits_at(s) + rounded_up(y_bytes(s) / 4);
}

static ls_k_quads quads_of(const ls_math_shape *s)
{
    return (ls_k_quads){s->rows, s->out, s->y_h, s->y_w, 0, 1, s->half};
}

static ls_k_conv pooled_conv_of(const ls_math_shape *s)
{
    ls_k_conv k = ls_own_conv_of(s);
    k.relu = k.pool = 1;
    return k;
}

static size_t partial_bytes(const ls_math_shape *s, sweep_kind kind)
{
    const ls_k_conv k = pooled_conv_of(s);
    const size_t m = (size_t)s->rows * (size_t)(s->y_h / 2) * (size_t)(s->y_w / 2);
    return sizeof(float) *
           (kind == SWEEP_POOL ? ls_k_partial_floats(m, s->out) + 1 : ls_k_conv_partial_floats(&k));
}

int sweep_find_own(sweep_engine *out, int count, const ls_math_shape *shape, int pooled)
{
    static const char *const mode[] = {"", "own", "own+pool", "pool"};
    if (!ls_own_conv_takes(shape))
        return count;
    for (int kind = SWEEP_OWN; kind <= (pooled ? SWEEP_POOL : SWEEP_OWN) && count < SWEEP_MOST;
         kind++)
        out[count++] = (sweep_engine){
            .kind = (sweep_kind)kind,
            .number = -kind,
            .mode = mode[kind],
            .deterministic = 1,
            .workspace_bytes = kind == SWEEP_OWN
                                   ? ls_own_conv_workspace(shape)
                                   : partial_at(shape) + partial_bytes(shape, (sweep_kind)kind),
        };
    return count;
}

static cudaError_t run_pooled(const ls_math_shape *s, cudaStream_t stream,
                              const ls_math_operands *o)
{
    char *work = o->workspace;
    const ls_k_conv k = pooled_conv_of(s);
    uint8_t *bits = (uint8_t *)work + bits_at(s);
    if (s->kind == LS_MATH_CONV)
        return ls_k_conv_forward(o->out, bits, o->a, o->b, o->bias, &k, stream);
    const ls_k_conv_grad g = {.x = o->a,
                              .dy = o->b,
                              .bits = bits,
                              .partial = (void *)(work + partial_at(s)),
                              .weight = s->half ? NULL : o->out,
                              .weight_half = s->half ? o->out : NULL};
    return ls_k_conv_weights(&g, &k, stream);
}

/* The memory of the unpooled tensor is the beginning of the workspace; in forward its content does
 * not matter. */
static cudaError_t run_pool(const ls_math_shape *s, cudaStream_t stream, const ls_math_operands *o)
{
    char *work = o->workspace;
    const ls_k_quads q = quads_of(s);
    uint8_t *bits = (uint8_t *)work + bits_at(s);
    if (s->kind == LS_MATH_CONV)
        return ls_k_quads_forward(o->out, bits, work, NULL, &q, stream);
    return ls_k_quads_back(work, NULL, 0, o->b, bits, (void *)(work + partial_at(s)), &q, stream);
}

cudaError_t sweep_run_own(const sweep_engine *e, const ls_math_shape *shape, cudaStream_t stream,
                          const ls_math_operands *o)
{
    switch (e->kind) {
    case SWEEP_OWN: return ls_own_conv_run(shape, o, stream);
    case SWEEP_OWN_POOLED: return run_pooled(shape, stream, o);
    case SWEEP_POOL: return run_pool(shape, stream, o);
    case SWEEP_CUDNN: break;
    }
    return cudaErrorInvalidValue;
}
