/* SPDX-License-Identifier: MIT */
/* Tensors are channels last (math_lib.h). A dense layer is computed as a convolution of one pixel.
 */
#include "cuda/math/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static ls_math_shape as_conv(const ls_math_shape *shape)
{
    ls_math_shape s = *shape;
    if (s.kind < LS_MATH_DENSE)
        return s;
    s.h = s.w = s.y_h = s.y_w = s.kh = s.kw = 1;
    s.sh = s.sw = s.dh = s.dw = s.groups = 1;
    s.ph = s.pw = 0;
    return s;
}

static int pass_of(const ls_math_shape *s)
{
    return (int)s->kind % 3;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* A tensor's four dimensions, the fastest last. */
typedef struct dims {
    size_t of[4];
} dims;

static size_t elements_of(const dims *d)
{
    return d->of[0] * d->of[1] * d->of[2] * d->of[3];
}

static dims dims_of(const ls_math_shape *s, int which)
{
    const dims x = {{(size_t)s->rows, (size_t)s->h, (size_t)s->w, (size_t)s->c}};
    const dims y = {{(size_t)s->rows, (size_t)s->y_h, (size_t)s->y_w, (size_t)s->out}};
    const dims w = {{(size_t)s->out, (size_t)s->kh, (size_t)s->kw, (size_t)(s->c / s->groups)}};
    /* a, b and out of each pass */
    const dims role[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}};
    return role[pass_of(s)][which];
}

size_t ls_sample_elements(const ls_math_shape *shape, int which)
{
    const ls_math_shape s = as_conv(shape);
    const dims d = dims_of(&s, which);
    return elements_of(&d);
}

size_t ls_sample_factor_bytes(const ls_math_shape *shape)
{
    return shape->half ? sizeof(uint16_t) : sizeof(float);
}

size_t ls_sample_result_bytes(const ls_math_shape *shape)
{
    return shape->half && shape->kind < LS_MATH_DENSE ? sizeof(uint16_t) : sizeof(float);
}

/* ---- numbers -------------------------------------------------------------------------------- */

double ls_sample_value(const void *memory, size_t at, size_t bytes)
{
    uint32_t bits;
    float value;
    if (bytes == sizeof value)
        return (double)((const float *)memory)[at];
    bits = (uint32_t)((const uint16_t *)memory)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void store(void *memory, size_t at, size_t bytes, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bytes == sizeof value)
        ((float *)memory)[at] = value;
    else
        ((uint16_t *)memory)[at] = (uint16_t)(bits >> 16);
}

/* Rounds an fp32 number to tf32, which has a mantissa of 10 bits, ties to even. */
static double tf32_of(double value)
{
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    memcpy(&number, &bits, sizeof bits);
    return (double)number;
}

/* Rounds to a mantissa of `bits` bits, ties to even. */
static double rounded_to(double value, int bits)
{
    int exponent;
    const double fraction = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(fraction, bits + 1)), exponent - bits - 1)
                           : value;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32;
}

/* Fills a block. relu: negative numbers become 0. line: elements of a row, where rows are scaled by
 * 2^−6 … 2^6; 0: they are not. */
static void fill_block(unsigned char *block, size_t bytes, uint64_t seed, int relu, size_t line)
{
    uint64_t random = seed, scale = seed + 1;
    int exponent = 0;
    for (size_t i = 0; i < LS_SAMPLE_BLOCK / bytes; i++) {
        if (line > 0 && i % line == 0)
            exponent = (int)(next_random(&scale) % 13) - 6;
        float value = (float)(int32_t)next_random(&random) * 0x1p-31f;
        if (relu && value < 0)
            value = 0;
        store(block, i, bytes, ldexpf(value, exponent));
    }
}

void ls_sample_fill(const ls_sample_data *data, const ls_math_shape *shape, int kind)
{
    const ls_math_shape s = as_conv(shape);
    const dims a = dims_of(&s, 0);
    const size_t bytes = ls_sample_factor_bytes(shape);
    fill_block(data->a, bytes, 1, kind == 1, kind == 2 ? a.of[3] : 0);
    fill_block(data->b, bytes, 2, 0, 0);
    fill_block(data->bias, ls_sample_result_bytes(shape), 3, 0, 0);
}

/* ---- outputs -------------------------------------------------------------------------------- */

static uint64_t hash_of(const ls_math_shape *s)
{
    const int of[] = {s->kind, s->rows, s->c,  s->h,  s->w,  s->out, s->y_h,
                      s->y_w,  s->kh,   s->kw, s->sh, s->sw, s->ph,  s->pw};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        hash = (hash ^ (uint64_t)of[i]) * 0x100000001b3u;
    return hash;
}

void ls_sample_choose(ls_sample *out, int count, const ls_math_shape *shape)
{
    const ls_math_shape s = as_conv(shape);
    const dims d = dims_of(&s, 2);
    uint64_t random = hash_of(&s);
    for (int i = 0; i < count; i++) {
        size_t at = 0;
        for (int k = 0; k < 4;
             k++) { /* bit k of a corner's number: the last index, else the first */
            const size_t corner = i >> k & 1 ? d.of[k] - 1 : 0;
            at = at * d.of[k] + (i < 16 ? corner : next_random(&random) % d.of[k]);
        }
        out[i].at = at;
    }
}

/* The sum of an output in the making. */
typedef struct sum {
    const ls_sample_data *data;
    size_t bytes; /* size of a factor */
    int tf32;     /* non-zero: factors are rounded to tf32 */
    int coarse;   /* non-zero: tensor cores add, which truncate the sum after some terms */
    int terms;
    dims a, b;
    double exact, rounded, magnitude;
} sum;

static size_t index_in(const dims *d, int i, int j, int k, int l)
{
    return ((((size_t)i * d->of[1]) + (size_t)j) * d->of[2] + (size_t)k) * d->of[3] + (size_t)l;
}

enum { TERMS = 16 /* terms that a tensor core adds before it truncates the sum to fp32 */ };

/* Rounds a sum to fp32 towards zero. */
static double truncated(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~(uint64_t)0x1fffffff;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static void add_term(sum *s, size_t a_at, size_t b_at)
{
    const size_t within =
        LS_SAMPLE_BLOCK / s->bytes - 1; /* mask, because the size is a power of two */
    const double a = ls_sample_value(s->data->a, a_at & within, s->bytes);
    const double b = ls_sample_value(s->data->b, b_at & within, s->bytes);
    s->exact += a * b;
    s->magnitude += fabs(a * b);
    if (!s->coarse)
        return;
    s->rounded += s->tf32 ? tf32_of(a) * tf32_of(b) : a * b;
    if (++s->terms % TERMS == 0)
        s->rounded = truncated(s->rounded);
}

static int is_inside(const ls_math_shape *s, int i, int j)
{
    return i >= 0 && i < s->h && j >= 0 && j < s->w;
}

/* y[r][i][j][o] */
static void sum_y(sum *t, const ls_math_shape *s, const int at[4])
{
    const int c = s->c / s->groups, first = at[3] / (s->out / s->groups) * c;
    for (int ki = 0; ki < s->kh; ki++)
        for (int kj = 0; kj < s->kw; kj++) {
            const int i = at[1] * s->sh + ki * s->dh - s->ph,
                      j = at[2] * s->sw + kj * s->dw - s->pw;
            for (int k = 0; k < c && is_inside(s, i, j); k++)
                add_term(t, index_in(&t->a, at[0], i, j, first + k),
                         index_in(&t->b, at[3], ki, kj, k));
        }
}

/* dx[r][i][j][c] */
static void sum_dx(sum *t, const ls_math_shape *s, const int at[4])
{
    const int c = s->c / s->groups, out = s->out / s->groups, first = at[3] / c * out;
    for (int ki = 0; ki < s->kh; ki++)
        for (int kj = 0; kj < s->kw; kj++) {
            const int i = at[1] + s->ph - ki * s->dh, j = at[2] + s->pw - kj * s->dw;
            if (i < 0 || j < 0 || i % s->sh || j % s->sw || i / s->sh >= s->y_h ||
                j / s->sw >= s->y_w)
                continue;
            for (int o = first; o < first + out; o++)
                add_term(t, index_in(&t->a, at[0], i / s->sh, j / s->sw, o),
                         index_in(&t->b, o, ki, kj, at[3] % c));
        }
}

/* dw[o][ki][kj][c] */
static void sum_dw(sum *t, const ls_math_shape *s, const int at[4])
{
    const int c = s->c / s->groups, first = at[0] / (s->out / s->groups) * c;
    for (int r = 0; r < s->rows; r++)
        for (int y = 0; y < s->y_h; y++)
            for (int x = 0; x < s->y_w; x++) {
                const int i = y * s->sh + at[1] * s->dh - s->ph;
                const int j = x * s->sw + at[2] * s->dw - s->pw;
                if (is_inside(s, i, j))
                    add_term(t, index_in(&t->a, r, i, j, first + at[3]),
                             index_in(&t->b, r, y, x, at[0]));
            }
}

void ls_sample_compute(ls_sample *out, const ls_sample_data *data, const ls_math_shape *shape,
                       ls_precision precision)
{
    static void (*const into[3])(sum *, const ls_math_shape *, const int[4]) = {sum_y, sum_dx,
                                                                                sum_dw};
    const ls_math_shape s = as_conv(shape);
    const dims d = dims_of(&s, 2);
    const size_t result = ls_sample_result_bytes(shape);
    sum t = {.data = data,
             .bytes = ls_sample_factor_bytes(shape),
             .tf32 = !shape->half && precision == LS_PRECISION_TF32,
             .coarse = shape->half || precision == LS_PRECISION_TF32,
             .a = dims_of(&s, 0),
             .b = dims_of(&s, 1)};
    int at[4];
    size_t rest = out->at;
    for (int k = 3; k >= 0; k--) {
        at[k] = (int)(rest % d.of[k]);
        rest /= d.of[k];
    }
    into[pass_of(&s)](&t, &s, at);
    if (!t.coarse)
        t.rounded = t.exact;
    if (s.bias) {
        const double bias =
            ls_sample_value(data->bias, (size_t)at[3] % (LS_SAMPLE_BLOCK / result), result);
        t.exact += bias;
        t.rounded += bias;
        t.magnitude += fabs(bias);
    }
    const bool off = s.relu && !(t.exact > 0), rounded_off = s.relu && !(t.rounded > 0);
    out->exact = off ? 0 : t.exact;
    out->rounded = rounded_off ? 0 : rounded_to(t.rounded, result == sizeof(float) ? 23 : 7);
    out->magnitude = t.magnitude;
}
