/* SPDX-License-Identifier: MIT */
#include "cuda/own_conv.h"

enum {
    FIRST_TAPS = 32,    /* most taps with which the kernels run without being measured */
    MOST_OUT = 1 << 16, /* a grid then has at most 65,535 tiles of channels */
    CHUNK = 4           /* output channels of a thread */
};

/* Largest number of values of a tensor: the kernels' offsets have 32 bits. */
static const double most_values = 2147483647.0;

static int taps_of(const ls_math_shape *s)
{
    return s->c * s->kh * s->kw;
}

bool ls_own_conv_takes(const ls_math_shape *s)
{
    if ((s->kind != LS_MATH_CONV && s->kind != LS_MATH_CONV_WEIGHTS) || s->groups != 1 ||
        s->c > LS_K_CONV_CHANNELS || s->kh > LS_K_CONV_TAPS || s->kw > LS_K_CONV_TAPS ||
        s->out % CHUNK || s->out > MOST_OUT)
        return false;
    return (double)s->c * s->kh * s->kw <= LS_K_CONV_TAPS &&
           (double)s->rows * s->h * s->w * s->c <= most_values &&
           (double)s->rows * s->y_h * s->y_w * s->out <= most_values;
}

bool ls_own_conv_is_first(const ls_math_shape *s)
{
    return ls_own_conv_takes(s) && taps_of(s) <= FIRST_TAPS;
}

ls_k_conv ls_own_conv_of(const ls_math_shape *s)
{
    return (ls_k_conv){.rows = s->rows,
                       .c = s->c,
                       .h = s->h,
                       .w = s->w,
                       .out = s->out,
                       .y_h = s->y_h,
                       .y_w = s->y_w,
                       .kh = s->kh,
                       .kw = s->kw,
                       .sh = s->sh,
                       .sw = s->sw,
                       .ph = s->ph,
                       .pw = s->pw,
                       .dh = s->dh,
                       .dw = s->dw,
                       .relu = s->relu,
                       .x_half = s->half,
                       .w_half = s->half,
                       .y_half = s->half};
}

size_t ls_own_conv_workspace(const ls_math_shape *s)
{
    const ls_k_conv k = ls_own_conv_of(s);
    return s->kind == LS_MATH_CONV ? 0 : ls_k_conv_partial_floats(&k) * sizeof(float);
}

cudaError_t ls_own_conv_run(const ls_math_shape *s, const ls_math_operands *o, cudaStream_t stream)
{
    const ls_k_conv k = ls_own_conv_of(s);
    if (s->kind == LS_MATH_CONV)
        return ls_k_conv_forward(o->out, NULL, o->a, o->b, s->bias ? o->bias : NULL, &k, stream);
    const ls_k_conv_grad g = {.x = o->a,
                              .dy = o->b,
                              .partial = o->workspace,
                              .weight = s->half ? NULL : o->out,
                              .weight_half = s->half ? o->out : NULL,
                              .rounded = s->half,
                              .add = 0};
    return ls_k_conv_weights(&g, &k, stream);
}
