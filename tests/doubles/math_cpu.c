/* SPDX-License-Identifier: MIT */
/* The double of src/cuda/math/math_lib.h: convolutions and products as plain loops over
 * channels-last memory, enqueued like kernels. Sums are double. With `half`, results of
 * convolutions are rounded to bf16 as the library does; in TF32, factors are rounded to ten
 * bits. */
#include "cuda/math/math_lib.h"

#include "base/error.h"
#include "cuda/own_conv.h"
#include "doubles/inside.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_math {
    ls_precision precision;
    int engine;
};

typedef struct double_plan {
    ls_math_plan plan; /* first */
    ls_math_shape shape;
    int tf32, engine;
} double_plan;

static size_t asked_workspace;
static int best_engine, without_own;

void dbl_decline_own_kernels(int decline)
{
    without_own = decline;
}

void dbl_prefer_engine(int engine)
{
    best_engine = engine;
}

void dbl_ask_workspace(size_t bytes)
{
    asked_workspace = bytes;
}

void ls_math_version(char *out, size_t size)
{
    snprintf(out, size, "double of cuDNN and cuBLAS");
}

void ls_math_built(char *out, size_t size)
{
    ls_math_version(out, size);
}

void ls_math_loaded(char *out, size_t size)
{
    ls_math_version(out, size);
}

int ls_math_misfit(char *out, size_t size)
{
    (void)out;
    (void)size;
    return 0;
}

int ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err)
{
    ls_math *math = malloc(sizeof *math);
    *out = math;
    if (!math)
        return ls_fail(err, LS_ENOMEM, "math double: no memory");
    math->precision = desc->precision;
    math->engine = best_engine;
    return LS_OK;
}

void ls_math_close(ls_math *math)
{
    free(math);
}

size_t ls_math_choices(const ls_math *math, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "engine %d", math->engine);
}

int ls_math_choose(ls_math *math, const char *text, ls_error *err)
{
    return sscanf(text, "engine %d", &math->engine) == 1
               ? LS_OK
               : ls_fail(err, LS_EDATA, "math double: %s", text);
}

static int is_dense(const ls_math_shape *s)
{
    return s->kind >= LS_MATH_DENSE;
}

/* A dense layer is a convolution of one pixel. */
static ls_math_shape as_conv(ls_math_shape s)
{
    s.h = s.w = s.y_h = s.y_w = 1;
    s.kh = s.kw = s.sh = s.sw = s.dh = s.dw = s.groups = 1;
    return s;
}

int ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                        ls_error *err)
{
    *out = NULL;
    const int own = !without_own && ls_own_conv_takes(shape);
    if (!own && shape->kind == LS_MATH_CONV && shape->bias && shape->c % 2)
        return ls_fail(err, LS_EUNSUPPORTED, "math double: odd channels are not fused");
    double_plan *p = calloc(1, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ENOMEM, "math double: no memory");
    p->shape = is_dense(shape) ? as_conv(*shape) : *shape;
    p->tf32 = math->precision == LS_PRECISION_TF32;
    p->engine = math->engine;
    p->plan.own = own;
    /* Something to get wrong: each pass needs another size. */
    p->plan.workspace_bytes =
        own ? ls_own_conv_workspace(shape)
            : asked_workspace + 64 + (size_t)shape->c + 1024 * (size_t)(shape->kind % 3);
    snprintf(p->plan.name, sizeof p->plan.name, own ? "own kernels" : "double");
    *out = &p->plan;
    return LS_OK;
}

void ls_math_plan_destroy(ls_math_plan *plan)
{
    free(plan);
}

/* ---- memory --------------------------------------------------------------------------------- */

typedef struct work {
    ls_math_shape s;
    ls_math_operands o;
    size_t workspace_bytes;
    int tf32, engine;
} work;

static double load(const void *memory, size_t at, int half)
{
    uint32_t bits;
    float value;
    if (!half)
        return (double)((const float *)memory)[at];
    bits = (uint32_t)((const uint16_t *)memory)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void store(void *memory, size_t at, double sum, int half)
{
    float value = (float)sum;
    uint32_t bits;
    if (!half) {
        ((float *)memory)[at] = value;
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)memory)[at] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* ---- convolutions --------------------------------------------------------------------------- */

static size_t at4(int r, int i, int j, int c, int h, int w, int channels)
{
    return (((size_t)r * (size_t)h + (size_t)i) * (size_t)w + (size_t)j) * (size_t)channels +
           (size_t)c;
}

/* The operands in double, and the sums. */
typedef struct summing {
    double *a, *b, *sum;
} summing;

/* Adds the products of n channels: of x[x_at …] and w[w_at …], parts of y[y_at]. The arrays are
 * private copies: the sanitizers, which check the copying, do not instrument these loops. */
typedef void products(const summing *s, size_t x_at, size_t w_at, size_t y_at, size_t n);

#define OF_COPIES __attribute__((no_sanitize("thread", "address", "undefined")))

OF_COPIES static void to_y(const summing *s, size_t x, size_t w, size_t y, size_t n)
{
    for (size_t c = 0; c < n; c++)
        s->sum[y] += s->a[x + c] * s->b[w + c];
}

OF_COPIES static void to_x(const summing *s, size_t x, size_t w, size_t y, size_t n)
{
    for (size_t c = 0; c < n; c++)
        s->sum[x + c] += s->a[y] * s->b[w + c];
}

OF_COPIES static void to_w(const summing *s, size_t x, size_t w, size_t y, size_t n)
{
    for (size_t c = 0; c < n; c++)
        s->sum[w + c] += s->a[x + c] * s->b[y];
}

OF_COPIES static void walk_taps(const ls_math_shape *s, int r, int i, int j, products *f,
                                const summing *to)
{
    const int c = s->c / s->groups, out = s->out / s->groups;
    for (int ki = 0; ki < s->kh; ki++)
        for (int kj = 0; kj < s->kw; kj++) {
            int line = i * s->sh + ki * s->dh - s->ph, column = j * s->sw + kj * s->dw - s->pw;
            if (line < 0 || line >= s->h || column < 0 || column >= s->w)
                continue;
            size_t y = at4(r, i, j, 0, s->y_h, s->y_w, s->out);
            for (int o = 0; o < s->out; o++)
                f(to, at4(r, line, column, o / out * c, s->h, s->w, s->c),
                  at4(o, ki, kj, 0, s->kh, s->kw, c), y + (size_t)o, (size_t)c);
        }
}

static void walk(const ls_math_shape *s, products *f, const summing *to)
{
    for (int r = 0; r < s->rows; r++)
        for (int i = 0; i < s->y_h; i++)
            for (int j = 0; j < s->y_w; j++)
                walk_taps(s, r, i, j, f, to);
}

static size_t elements_x(const ls_math_shape *s)
{
    return (size_t)s->rows * (size_t)s->h * (size_t)s->w * (size_t)s->c;
}

static size_t elements_y(const ls_math_shape *s)
{
    return (size_t)s->rows * (size_t)s->y_h * (size_t)s->y_w * (size_t)s->out;
}

static size_t elements_w(const ls_math_shape *s)
{
    return (size_t)s->out * (size_t)s->kh * (size_t)s->kw * (size_t)(s->c / s->groups);
}

/* ---- one pass ------------------------------------------------------------------------------- */

static int pass_of(const ls_math_shape *s)
{
    return (int)s->kind % 3; /* y, dx, dw */
}

static size_t elements(const ls_math_shape *s, int which)
{
    return which == 0 ? elements_y(s) : which == 1 ? elements_x(s) : elements_w(s);
}

/* The tensors that a, b and out are in each pass: 0 y, 1 x, 2 weights. */
static const int roles[3][3] = {{1, 2, 0}, {0, 2, 1}, {1, 0, 2}};

static int may_touch(const work *w)
{
    const int *role = roles[pass_of(&w->s)];
    const size_t in = w->s.half ? 2 : 4, out = w->s.half && !is_dense(&w->s) ? 2 : 4;
    return dbl_may_touch(w->o.a, elements(&w->s, role[0]) * in) &&
           dbl_may_touch(w->o.b, elements(&w->s, role[1]) * in) &&
           dbl_may_touch(w->o.out, elements(&w->s, role[2]) * out) &&
           dbl_may_touch(w->o.workspace, w->workspace_bytes) &&
           (!w->s.bias || dbl_may_touch(w->o.bias, (size_t)w->s.out * out));
}

static void finish(const work *w, const double *sum, size_t count)
{
    const int half = w->s.half && !is_dense(&w->s);
    for (size_t i = 0; i < count; i++) {
        double value = is_dense(&w->s) ? sum[i] : sum[i] * (1 + w->engine * 0x1p-22);
        if (w->s.bias)
            value += load(w->o.bias, i % (size_t)w->s.out, half);
        if (w->s.relu && !(value > 0))
            value = 0;
        if (w->o.add)
            value += load(w->o.out, i, half);
        store(w->o.out, i, value, half);
    }
}

/* Rounds to ten bits after the binary point, ties to even. */
static double rounded_to_tf32(double value)
{
    const float wide = (float)value;
    uint32_t bits;
    float out;
    memcpy(&bits, &wide, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    memcpy(&out, &bits, sizeof out);
    return isfinite(wide) ? (double)out : value;
}

static double *in_double(const work *w, const void *memory, size_t count)
{
    double *out = calloc(count, sizeof *out);
    for (size_t i = 0; out && i < count; i++) {
        out[i] = load(memory, i, w->s.half);
        if (w->tf32)
            out[i] = rounded_to_tf32(out[i]);
    }
    return out;
}

static double rounded_up(int n, int to)
{
    return (double)((n + to - 1) / to * to);
}

static void tell_cost(const ls_math_shape *s)
{
    static const char *const name[] = {"conv forward",  "conv data",  "conv weights",
                                       "dense forward", "dense data", "dense weights"};
    const double taps = 2.0 * s->rows * s->y_h * s->y_w * s->kh * s->kw;
    dbl_computes(name[s->kind], taps * (s->c / s->groups) * s->out,
                 taps * rounded_up(s->c / s->groups, s->half ? 8 : 4) * rounded_up(s->out, 32));
}

static void run_body(const void *copied)
{
    static products *const into[3] = {to_y, to_x, to_w};
    const work *w = copied;
    const int pass = pass_of(&w->s), *role = roles[pass];
    if (!may_touch(w))
        return;
    tell_cost(&w->s);
    const size_t count = elements(&w->s, role[2]);
    summing s = {in_double(w, w->o.a, elements(&w->s, role[0])),
                 in_double(w, w->o.b, elements(&w->s, role[1])), calloc(count, sizeof *s.sum)};
    memset(w->o.workspace, 0xFF, w->workspace_bytes);
    if (s.a && s.b && s.sum) {
        walk(&w->s, into[pass], &s);
        finish(w, s.sum, count);
    }
    free(s.a);
    free(s.b);
    free(s.sum);
}

/* The libraries are told that all memory begins at a multiple of 16 bytes (cudnn_graph.c,
 * cublas_dense.c). */
static void check_alignment(const ls_math_operands *o)
{
    const void *const memory[] = {o->a, o->b, o->out, o->workspace, o->bias};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if ((uintptr_t)memory[i] % 16)
            dbl_complain("ls_math_run: operand %zu is at %p, no multiple of 16", i, memory[i]);
}

int ls_math_run(ls_math_plan *plan, cudaStream_t stream, const ls_math_operands *operands,
                ls_error *err)
{
    check_alignment(operands);
    const double_plan *p = (const double_plan *)plan;
    work w = {p->shape, *operands, plan->workspace_bytes, p->tf32, p->engine};
    cudaError_t e = plan->own ? ls_own_conv_run(&p->shape, operands, stream)
                              : dbl_launch(stream, "ls_math_run", run_body, &w, sizeof w);
    if (e == cudaSuccess)
        return LS_OK;
    return ls_fail(err, LS_EDEVICE, "math double: %s", cudaGetErrorString(e));
}
